"""Clients of object stores (S3, Google Cloud Storage, Azure), through obstore.

A client is made from a location (`statestore.formats.places.locations`). Credentials come from the location's options
or, in S3, from ``key:secret@`` before its bucket, else from the environment, a profile of ``~/.aws``, or the role of
the machine, as obstore finds them. They are never part of a message.

    s3://bucket/folder     s3a, s3n                  options: those of pyarrow's URIs, or obstore's names
    gs://bucket/folder     gcs                       options: obstore's names, such as service_account_path
    az://container/folder  abfs, abfss, with an account as abfss://container@account.dfs.core.windows.net/folder
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, StorageError, UnsupportedError
from statestore.formats.places.folder import Folder, folder_at, nowhere
from statestore.formats.places.locations import AZURE, GCS, OBJECT_SCHEMES, S3, Location
from statestore.formats.places.s3_objects import ObstoreUse, profile_keys

MARKER = "warehouse.json"
"""An object of every warehouse in an object store, which whoever connects tries to create."""

MAX_CLIENTS = 64
REQUEST_TIMEOUT = timedelta(seconds=60)  # of one request, its body included
CONNECT_TIMEOUT = timedelta(seconds=10)
RETRY_TIMEOUT = timedelta(seconds=30)  # after which obstore gives a request up that keeps failing
MAX_RETRIES = 4
PAUSES = (0.05, 0.2, 0.8, 3.2)  # seconds before a request is repeated that obstore gave up, as after a reset

AROUND = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_ENDPOINT")
"""Variables of the environment that say on which server a bucket lies."""
GCS_AROUND = "GOOGLE_BASE_URL"
"""The variable that says on which server a bucket of Google Cloud Storage lies."""

Answer = TypeVar("Answer")

# pyarrow's options of S3 by obstore's names. ``scheme`` goes with the endpoint.
_S3_NAMES = {"access_key": "access_key_id", "secret_key": "secret_access_key", "anonymous": "skip_signature"}
_ENDPOINT = "endpoint_override"
_ANSWER = re.compile(r"<\?xml.*?<Code>([^<]*)</Code>.*")
_ROLE_SERVICE = re.compile(r"http://(169\.254\.\d+\.\d+|metadata\.google\.internal)\b")
"""Services of a cloud's machines that give credentials to those that have a role."""
_ARROW_GCS = {"scheme", "endpoint_override", "retry_limit_seconds", "project_id"}
"""pyarrow's options of Google Cloud Storage."""
_NOT_FOR_OBSTORE = ("scheme", _ENDPOINT, "allow_bucket_creation", "allow_bucket_deletion")


@dataclass(frozen=True)
class ObjectClient:
    """A client of one bucket or container; ``identity`` distinguishes it from buckets of other servers.

    ``once`` sends a request once, whatever becomes of it; ``store`` repeats requests.
    """

    store: Any = field(repr=False)
    identity: str
    once: Any = field(repr=False)


_clients: dict[tuple[str, str, str], ObjectClient] = {}
_given: dict[tuple[str, str, str], ObjectClient] = {}
_lock = threading.Lock()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def object_client(location: Location) -> ObjectClient:
    """Return the client of a location's bucket; clients are shared. No request is sent yet.

    Raises InvalidInputError INVALID_LOCATION for options that the store does not have, NO_ACCESS where the client
    cannot start; UnsupportedError FORKED in a fork of a process that used one.
    """
    if ObstoreUse.forked:
        raise UnsupportedError(
            ErrorCode.FORKED,
            f"{location}: this process was forked from one that used object stores, whose threads it does not have; "
            'start it with multiprocessing.get_context("spawn"), or fork before the first use',
        )
    key = location.scheme, location.authority, location.options
    found = _given.get(key) or _clients.get(key)
    if found is None:
        with _lock:
            found = _clients.get(key)
            if found is None:
                while len(_clients) >= MAX_CLIENTS:
                    del _clients[next(iter(_clients))]
                found = _clients[key] = _opened(location)
    return found


def keep_client(location: Location, store: Any) -> None:
    """Use ``store``, an object of obstore, for the bucket of a location from now on, as tests do."""
    _given[location.scheme, location.authority, location.options] = ObjectClient(store, f"given {id(store)}", store)


def with_options(location: Location, options: Mapping[str, object]) -> Location:
    """Return the location with further options, which may be secret; they replace options of the same name."""
    if not options:
        return location
    given = dict(parse_qsl(location.options, keep_blank_values=True))
    for name, value in options.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if OBJECT_SCHEMES.get(location.scheme) == S3:
            name, text = _arrow_option(str(name), text, given)
        given[str(name)] = text
    return Location(location.path, location.scheme, location.authority, urlencode(given, quote_via=quote))


def is_only_for_stores(location: Location) -> bool:
    """Return whether only warehouses can be at a location: pyarrow, which reads the files of engines, does not open it.

    These are ``az://``, whose options are those of obstore, a bucket of Google Cloud Storage with options or a server
    of the environment that only obstore knows, and stores that `keep_client` gave.
    """
    if OBJECT_SCHEMES.get(location.scheme) == GCS:
        options = dict(parse_qsl(location.options, keep_blank_values=True))
        if os.environ.get(GCS_AROUND) or not options.keys() <= _ARROW_GCS:
            return True
    return location.scheme in ("az", "azure") or (location.scheme, location.authority, location.options) in _given


def listed_folder(location: Location) -> Folder:
    """Return the folder at a location, with a memory. That of a store which only obstore reads lists nothing."""
    return nowhere(location.path) if is_only_for_stores(location) else folder_at(location).remembering()


def names_at(location: Location) -> list[str]:
    """Return the names of the objects and folders at a location, sorted, by one listing."""
    found = _listed(location)
    paths = [*found["common_prefixes"], *(item["path"] for item in found["objects"])]
    return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)


def folders_in(location: Location) -> list[str]:
    """Return the names of the folders at a location, sorted, by one listing (one request for a thousand)."""
    return sorted(path.rstrip("/").rpartition("/")[2] for path in _listed(location)["common_prefixes"])


def _listed(location: Location) -> Any:
    import obstore

    prefix = f"{location.path}/" if location.path else None
    store = object_client(location).store
    try:
        return repeated("list", str(location), lambda: obstore.list_with_delimiter(store, prefix=prefix))
    except FileNotFoundError:
        return {"common_prefixes": [], "objects": []}


def _arrow_option(name: str, text: str, given: dict[str, str]) -> tuple[str, str]:
    """Return an option of S3 as pyarrow's URIs have it, in which locations carry them."""
    plain = name.lower().removeprefix("aws_")
    if plain in ("endpoint", "endpoint_url") and "://" in text:
        given["scheme"], _, text = text.partition("://")
    names = {value: key for key, value in _S3_NAMES.items()} | dict.fromkeys(("endpoint", "endpoint_url"), _ENDPOINT)
    return names.get(plain, plain), text


def repeated(doing: str, where: str, request: Callable[[], Answer]) -> Answer:
    """Return the answer to a request that may be sent again if it failed; errors are those of `request_errors`.

    obstore repeats what a server refused or ended in order, but not after a reset connection or a time-out.
    """
    for pause in PAUSES:
        try:
            with request_errors(doing, where):
                return request()
        except StorageError:
            time.sleep(pause)
    with request_errors(doing, where):
        return request()


@contextmanager
def request_errors(doing: str, where: str) -> Iterator[None]:
    """Raise the errors of this package for those of obstore, but not for a missing or an existing object.

    InvalidInputError NO_ACCESS where the store refuses the user; else StorageError REQUEST_FAILED.
    """
    from obstore import exceptions
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        raise
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise refused(doing, where, error) from None
    except (BaseError, OSError) as error:
        if isinstance(error, FileNotFoundError | StorageError) or is_missing(error):
            raise
        if _ROLE_SERVICE.search(str(error)):
            raise _no_credentials(doing, where, error) from None
        raise StorageError(
            ErrorCode.REQUEST_FAILED,
            f"{where}: cannot {doing}: {said(error)}; repeat the call once the object store answers again",
        ) from None


def refused(doing: str, where: str, error: BaseException) -> InvalidInputError:
    """Return the error for a request that the store does not permit."""
    return InvalidInputError(
        ErrorCode.NO_ACCESS,
        f"{where}: cannot {doing}: the object store refuses ({said(error)}); check credentials, region, endpoint and "
        "permissions",
    )


def no_bucket(location: Location) -> NotFoundError:
    """Return the error for a bucket or container that does not exist."""
    names_account = OBJECT_SCHEMES.get(location.scheme) == AZURE and "@" in location.authority
    bucket = location.authority.partition("@")[0] if names_account else location.authority.rpartition("@")[2]
    return NotFoundError(
        ErrorCode.PATH_NOT_FOUND,
        f"{location}: there is no bucket or container {bucket!r} for this user; create it, or correct the name, the "
        "endpoint or the credentials",
    )


def is_missing(error: BaseException) -> bool:
    """Return whether an error of obstore says that there is no such object or bucket."""
    from obstore import exceptions

    return isinstance(error, exceptions.NotFoundError | FileNotFoundError)


def _no_credentials(doing: str, where: str, error: BaseException) -> InvalidInputError:
    """Return the error for a client that found no credentials, and asked for those of the machine's role in vain."""
    return InvalidInputError(
        ErrorCode.NO_ACCESS,
        f"{where}: cannot {doing}: there are no credentials in the options, the environment or a profile, and this "
        f"machine has no role that gives some ({said(error)}); set them as docs/object-stores.md says",
    )


def said(error: BaseException) -> str:
    """Return the text of an obstore error on one line, without the dump of its fields.

    Of a server's answer only the code is left, because a refusal repeats the user's key and what he signed.
    """
    text = " ".join(str(error).partition("\n\nDebug source")[0].split())
    return _ANSWER.sub(r"\1", text)[:500]


def _opened(location: Location) -> ObjectClient:
    kind = OBJECT_SCHEMES[location.scheme]
    bucket = location.authority.rpartition("@")[2]
    given = dict(parse_qsl(location.options, keep_blank_values=True))
    if kind == S3:
        config = _s3_config(_keys_of_user(location) | given)
    elif kind == AZURE:
        bucket, config = _azure_config(location, given)
    else:
        config = {"base_url": os.environ[GCS_AROUND]} if os.environ.get(GCS_AROUND) else {}
        config |= given
    endpoints = [str(config.get(name, "")) for name in ("endpoint", "aws_endpoint", "base_url")]
    if not any(endpoints):
        endpoints = [os.environ.get(name, "") for name in AROUND]
    plain_http = any(endpoint.startswith("http://") for endpoint in endpoints)
    identity = hashlib.sha256(repr((kind, bucket, _server_of(config))).encode()).hexdigest()[:32]
    store, once = (_client(location, kind, bucket, config, plain_http, most) for most in (MAX_RETRIES, 0))
    return ObjectClient(store, identity, once)


def _client(
    location: Location, kind: str, bucket: str, config: Mapping[str, Any], plain_http: bool, retries: int
) -> Any:
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, GCSStore, S3Store

    retry = {"max_retries": retries, "retry_timeout": RETRY_TIMEOUT}
    options: dict[str, Any] = {"timeout": REQUEST_TIMEOUT, "connect_timeout": CONNECT_TIMEOUT}
    if plain_http:
        options["allow_http"] = True
    made: Any = {S3: S3Store, GCS: GCSStore, AZURE: AzureStore}[kind]
    settings = dict(config)
    provider = settings.pop("credential_provider", None)
    ObstoreUse.used = True
    try:
        return made(
            bucket, config=settings, client_options=options, retry_config=retry,
            **({} if provider is None else {"credential_provider": provider}),
        )  # fmt: skip
    except (BaseError, ValueError, TypeError, OSError) as error:
        text = said(error)
        for secret in (value for value in config.values() if isinstance(value, str) and len(value) > 3):
            text = text.replace(secret, "…")
        raise InvalidInputError(
            ErrorCode.INVALID_LOCATION, f"{location}: no client can be made from its options ({text}); correct them"
        ) from None


def _keys_of_user(location: Location) -> dict[str, str]:
    """Return the keys in ``s3://key:secret@bucket``, the form of pyarrow's URIs, which encodes them."""
    user, _, _ = location.authority.rpartition("@")
    key, colon, secret = user.partition(":")
    return {"access_key": unquote(key), "secret_key": unquote(secret)} if colon else {}


def _s3_config(given: Mapping[str, str]) -> dict[str, Any]:
    config: dict[str, Any] = {
        _S3_NAMES.get(name, name): value for name, value in given.items() if name not in _NOT_FOR_OBSTORE
    }
    endpoint = given.get("endpoint_override", "")
    if endpoint:
        config["endpoint"] = endpoint if "://" in endpoint else f"{given.get('scheme') or 'https'}://{endpoint}"
    has_keys = any(name.removeprefix("aws_") in ("access_key_id", "skip_signature") for name in config)
    if has_keys or os.environ.get("AWS_ACCESS_KEY_ID"):
        return config
    profile = profile_keys()
    if profile is not None:
        return profile | config
    return config | _profile_of_boto3(config)


def _profile_of_boto3(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a provider for a profile with roles or single sign-on. obstore does not know these, boto3 does."""
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        name = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default"
        raise InvalidInputError(
            ErrorCode.NO_ACCESS,
            f"the AWS profile {name!r} has more than lasting keys, such as a role or single sign-on; install boto3, "
            "which resolves it, or set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN",
        ) from None
    return {"credential_provider": Boto3CredentialProvider()}


def _azure_config(location: Location, given: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the container and the options: ``container@account.dfs…`` names both, ``container`` alone the first."""
    container, at, host = location.authority.partition("@")
    config: dict[str, Any] = dict(given)
    if at:
        account = host.partition(".")[0].partition(":")[2] or host.partition(".")[0]
        config.setdefault("account_name", account)
    return container, config


def _server_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what says on which server a bucket lies: not its credentials."""
    names = ("endpoint", "aws_endpoint", "base_url", "account_name", "azure_storage_account_name", "use_emulator")
    return (*(str(config.get(name, "")) for name in names), *(os.environ.get(name, "") for name in AROUND))
