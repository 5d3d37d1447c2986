"""The path or URI that a read or write in Spark names.

A path in S3 comes with settings of Hadoop's client.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

from statestore.catalog.catalog import connect
from statestore.connector.options import S3A
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.places.locations import ARROW_SCHEMES, Location, is_relative, parse_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROVIDERS = ("arrow_statestore", "statestore")
_INSTEAD = (
    'name a warehouse as a catalog with statestore.register(spark, "warehouse", name="state") and use its tables, like '
    "state.prices, or CREATE TEMPORARY VIEW … USING statestore OPTIONS (path '…')"
)
_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")


def checked_path(options: Mapping[str, str]) -> str:
    """The absolute local path, or the URI, in the options.

    Raises InvalidInputError MISSING_PATH, INVALID_OPTION or INVALID_LOCATION.
    """
    provider = _option(options, "provider")
    if provider is not None and provider.lower() not in PROVIDERS:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"option provider is {provider!r}; expected builtin, for Spark's own source, or nothing",
        )
    if _option(options, "location") is not None:  # Spark's name for the path of a table in its catalog
        raise no_catalog_table("this table")
    path = _option(options, "path")
    if not path:
        raise InvalidInputError(
            ErrorCode.MISSING_PATH,
            "expected one path; write .load('warehouse/store') or .save(…). Spark passes none for a table of its own "
            f"catalog: {_INSTEAD}",
        )
    return parse_location(path).uri


def no_catalog_table(name: str) -> UnsupportedError:
    """The error for a table of this package in Spark's own catalog, which reads it without its path and options."""
    return UnsupportedError(
        ErrorCode.SESSION_CATALOG,
        f"{name} would be a table of Spark's own catalog, which does not pass the path and options of a table to "
        f"sources written in Python: {_INSTEAD}",
    )


def open_store_at(location: Location) -> Any:
    """Open the store at a location, to write to it."""
    return connect(location.parent.uri).open_store(location.name)


def client_path(path: str, session: Any) -> str:
    """The path as this process means it. Spark's processes run in other directories, and a server of Spark Connect
    plans each session in a directory of its own.

    Raises InvalidInputError INVALID_LOCATION for a relative path where the server runs on another machine.
    """
    if not path.strip() or not is_relative(path):
        return path
    host = _host(session)
    if host is not None and host not in _THIS_MACHINE:
        raise InvalidInputError(
            ErrorCode.INVALID_LOCATION,
            f"path {path!r} is relative to a folder of this machine, and the session's server runs on {host}; give the "
            "absolute path of the store there, or a URI",
        )
    return parse_location(path).uri


def _host(session: Any) -> str | None:
    """The host of a Connect session's server; None for a classic session."""
    if session is None or hasattr(session, "_jsparkSession"):
        return None
    try:
        return str(session.client.host)
    except (AttributeError, NotImplementedError):  # of a channel that the user has built
        return "another machine, perhaps"


def _option(options: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)


# Settings of Hadoop's S3 client (``fs.s3a.…``), taken for locations in S3.
#
# They are options of a read, or settings of the session with ``spark.hadoop.`` before them, also for one bucket
# (``fs.s3a.bucket.NAME.…``). What a URI says itself comes first. Settings that concern only Hadoop's client are
# ignored.

_ACCESS, _SECRET, _TOKEN = "access.key", "secret.key", "session.token"
_ENDPOINT, _REGION, _SSL, _PROVIDER = (
    "endpoint",
    "endpoint.region",
    "connection.ssl.enabled",
    "aws.credentials.provider",
)
_NAMES = (_ACCESS, _SECRET, _TOKEN, _ENDPOINT, _REGION, _SSL, _PROVIDER)
_KEYS_OF_URI = ("access_key", "access_key_id", "aws_access_key_id", "anonymous", "skip_signature")
_REGIONAL = re.compile(r"s3[.-]([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com(?:\.cn)?")
_ANYWHERE = "s3.amazonaws.com"  # Hadoop's default endpoint, which says nothing


def _is_s3(location: Location) -> bool:
    return ARROW_SCHEMES.get(location.scheme) == "s3"


def session_settings(spark: SparkSession | None, path: object) -> dict[str, str]:
    """The settings of a session for a path in S3, by names like ``fs.s3a.endpoint``; none for other paths."""
    if not isinstance(path, str) or not path.lower().startswith(("s3:", "s3a:", "s3n:")):
        return {}
    session: Any = spark
    with contextlib.suppress(InvalidInputError):  # what is wrong with a path is reported by the source
        return _settings(session, parse_location(path))
    return {}


def _settings(session: Any, location: Location) -> dict[str, str]:
    if session is None:
        return {}
    context = getattr(session, "_sc", None)
    if context is None:  # Spark Connect: the server's settings of its own file are not known here
        conf = {name.removeprefix("spark.hadoop."): value for name, value in session.conf.getAll.items()}
        return {name: value for name, value in conf.items() if name.startswith(S3A)}
    hadoop = context._jsc.hadoopConfiguration()
    bucket = _bucket(location)
    names = [name for each in _NAMES for name in _spellings(each, bucket)]
    found = {name: session.conf.get(name, None) or hadoop.get(name) for name in names}  # the first is set while it runs
    return {name: str(value) for name, value in found.items() if value}


def with_settings(path: str, settings: Mapping[str, str]) -> str:
    """The path; one in S3 with what the settings say of its bucket. Raises InvalidInputError INVALID_LOCATION."""
    location = parse_location(path)
    if not settings or not _is_s3(location):
        return path
    bucket = _bucket(location)
    said = {each: value for each in _NAMES for value in _values(settings, each, bucket)}
    options = dict(parse_qsl(location.options, keep_blank_values=True))
    endpoint, ssl = said.get(_ENDPOINT, ""), said.get(_SSL, "true").lower() != "false"
    scheme, there, host = endpoint.rstrip("/").rpartition("://")
    regional = _REGIONAL.fullmatch(host)
    if regional is not None:
        options.setdefault("region", said.get(_REGION) or regional[1])
    elif host and host != _ANYWHERE and "endpoint_override" not in options:
        options["endpoint_override"] = host
        options.setdefault("scheme", scheme if there else "https" if ssl else "http")
    if said.get(_REGION):
        options.setdefault("region", said[_REGION])
    authority = location.authority
    has_keys = "@" in authority or any(name in options for name in _KEYS_OF_URI)
    if not has_keys and said.get(_ACCESS) and said.get(_SECRET):
        authority = f"{quote(said[_ACCESS], safe='')}:{quote(said[_SECRET], safe='')}@{authority}"
        options |= {"session_token": said[_TOKEN]} if said.get(_TOKEN) else {}
    elif not has_keys and said.get(_PROVIDER, "").endswith("AnonymousAWSCredentialsProvider"):
        options["anonymous"] = "true"
    return replace(location, authority=authority, options=urlencode(options, quote_via=quote)).uri


def _bucket(location: Location) -> str:
    return location.authority.rpartition("@")[2]


def _spellings(name: str, bucket: str) -> tuple[str, str]:
    return f"{S3A}bucket.{bucket}.{name}", f"{S3A}{name}"


def _values(settings: Mapping[str, str], name: str, bucket: str) -> Iterator[str]:
    lower = {key.lower(): value for key, value in settings.items()}
    for spelling in _spellings(name, bucket.lower()):
        if spelling in lower:
            yield lower[spelling]
            return
