"""The path or URI that a read or write in Spark names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statestore.catalog.catalog import connect
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.places.locations import Location, is_relative, parse_location

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
