"""Locations of state: a local path, a ``file:`` URI, or a folder in an object store, HDFS or another file system.

    /data/checkpoint   file:/data/checkpoint   file:///data/checkpoint
    s3://bucket/checkpoint?region=eu-west-1   (also s3a and s3n)   gs://…   abfs(s)://container@account.dfs…/…   az://…
    hdfs://namenode:8020/checkpoint   viewfs://…   and the schemes of an installed fsspec
    schemes of engines, whose locations are servers and no folders (``Engine.schemes``)

Names are read as Spark and Hadoop read them: a percent sign is a percent sign. Only options after ``?`` are encoded.
They are those of pyarrow's URIs, and for S3 ``access_key``, ``secret_key``, ``session_token`` and ``anonymous``.
Credentials come from where the tools of the storage find them. Passwords and
options are never shown.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
import posixpath
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlencode

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError
from statestore.formats.places.foreign_storages import STORAGE_ERRORS, within_contact_time
from statestore.formats.places.local_files import FileSystem, LocalFiles

if TYPE_CHECKING:
    import pyarrow.fs as pafs

LOCAL_SCHEME = "file"
ARROW_SCHEMES = {
    "s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfss", "az": "abfs",
    "azure": "abfs", "hdfs": "hdfs", "viewfs": "viewfs",
}  # fmt: skip
"""The schemes that pyarrow opens, and its spelling of each."""

S3, GCS, AZURE = "s3", "gs", "az"
OBJECT_SCHEMES = {
    "s3": S3, "s3a": S3, "s3n": S3, "gs": GCS, "gcs": GCS, "abfs": AZURE, "abfss": AZURE, "az": AZURE, "azure": AZURE,
}  # fmt: skip
"""The schemes of object stores, in which warehouses can be, and the kind of each."""

_BUCKETS = {"s3": "bucket", "gs": "bucket", "abfs": "container", "abfss": "container"}
_URI = re.compile(r"([a-zA-Z][\w+.-]+):(/.*)", re.DOTALL)
_MOST_BYTES, _MOST_OF_A_NAME = 8192, 1024  # of a URI with its options
_SHORT = 63  # characters of a path that no file system refuses for its length, in whatever bytes
_S3_OPTIONS = ("access_key", "secret_key", "session_token", "anonymous")
_LOCAL_HOSTS = ("", "localhost")
_ENDPOINT_OPTION = "endpoint_override"
_GCS_RETRY_SECONDS = 8  # pyarrow's default is a quarter of an hour without a word
_CREDENTIALS = {
    S3: ("the location, the environment (AWS_ACCESS_KEY_ID), a profile of ~/.aws or the machine's role", "Amazon S3"),
    GCS: (
        "GOOGLE_APPLICATION_CREDENTIALS, of gcloud (gcloud auth application-default login) or of the machine's role",
        "storage.googleapis.com",
    ),
    AZURE: ("the environment (AZURE_CLIENT_ID), az login or the machine's identity", "Azure"),
}  # fmt: skip
"""The places in which the client of a storage looks for credentials, and the server that it contacts by default."""

UNFINISHED = "unfinished"
"""The scheme of folders that this process is writing (`statestore.formats.places.unfinished_folders`)."""

_reached: set[tuple[str, str, str]] = set()
_lent: dict[str, pafs.FileSystem] = {}


@dataclass(frozen=True)
class Location:
    """A folder. A local ``path`` is absolute and has no slash at its end; another one has none at its start either,
    except HDFS's root.

    ``str`` leaves out parts that may be secret; ``uri`` has them.
    """

    path: str
    scheme: str = LOCAL_SCHEME
    authority: str = field(default="", repr=False)
    options: str = field(default="", repr=False)

    @property
    def is_local(self) -> bool:
        return self.scheme == LOCAL_SCHEME

    @property
    def name(self) -> str:
        """The last part of the path, or the bucket where the location is a whole bucket."""
        return posixpath.basename(self.path) or self.authority.rpartition("@")[2]

    @property
    def parent(self) -> Location:
        return replace(self, path=posixpath.dirname(self.path))

    def at(self, name: str) -> Location:
        """A folder inside this one."""
        return replace(self, path=posixpath.join(self.path, name))

    @property
    def uri(self) -> str:
        """The URI from which `parse_location` makes this location."""
        if self.is_local:
            return self.path
        return f"{self._address(self.authority)}{'?' if self.options else ''}{self.options}"

    def __str__(self) -> str:
        if self.is_local:
            return self.path
        user, at, host = self.authority.rpartition("@")
        return self._address(host if ":" in user else f"{user}{at}{host}")

    def _address(self, authority: str) -> str:
        return f"{self.scheme}://{authority}/{self.path.lstrip('/')}".rstrip("/")


def parse_location(text: str | os.PathLike[str]) -> Location:
    """Parse a path or URI without opening it; a relative path is made absolute. Raises InvalidInputError
    INVALID_LOCATION."""
    written = _checked(text)
    uri = _URI.fullmatch(written)
    if uri is None:
        # Spark gives some relative paths in a form that is no URI: file:folder.
        return Location(_of_usable_length(_absolute(written.removeprefix("file:"))))
    scheme, rest = uri[1].lower(), uri[2]
    if scheme == LOCAL_SCHEME:
        return Location(_of_usable_length(_local_path(written, rest)))
    bare, _, options = rest.partition("?")
    if bare.startswith("//"):
        authority, _, path = bare[2:].partition("/")
    elif ARROW_SCHEMES.get(scheme) in _BUCKETS:
        authority, _, path = bare[1:].partition("/")  # the form in which pathlib writes a URI
    else:
        authority, path = "", bare
    bucket = _BUCKETS.get(ARROW_SCHEMES.get(scheme, ""))
    if bucket and not authority.rpartition("@")[2]:
        raise InvalidInputError(
            ErrorCode.INVALID_LOCATION, f"{scheme}:{bare} has no {bucket}; expected {scheme}://{bucket}/folder"
        )
    return Location(path.strip("/"), scheme, authority, options)


def is_object_store(location: Location) -> bool:
    """Return whether a location lies in an object store, so that a warehouse can be there."""
    return location.scheme in OBJECT_SCHEMES


def bucket_of(location: Location) -> str:
    """Return the bucket or container of a location in an object store; "" for another one."""
    kind = OBJECT_SCHEMES.get(location.scheme)
    if kind is None:
        return ""
    # Azure names the account behind it, and a URI of S3 may have keys before it.
    return location.authority.partition("@")[0] if kind == AZURE else location.authority.rpartition("@")[2]


def is_relative(text: str) -> bool:
    """Return whether the text is a local path whose meaning depends on the working directory."""
    return _URI.fullmatch(text) is None and not text.removeprefix("file:").startswith("/")


def _checked(text: object) -> str:
    """Refuse paths that no file system has, or that cannot be passed to one."""
    path = os.fspath(text) if isinstance(text, str | os.PathLike) else None
    if not isinstance(path, str):
        raise InvalidInputError(
            ErrorCode.INVALID_LOCATION, f"path is a {type(text).__name__}; expected a str or pathlib.Path"
        )
    reason = ""
    if path in ("", "file:", "file://"):
        reason = "it is empty"
    elif "\0" in path:
        reason = "it holds a NUL character"
    elif any("\ud800" <= character <= "\udfff" for character in path):
        reason = "it is no valid Unicode"
    elif len(path.encode()) > _MOST_BYTES or any(len(part.encode()) > _MOST_OF_A_NAME for part in path.split("/")):
        reason = "it is too long"
    if reason:
        raise _unusable(path, reason)
    return path


def open_location(location: Location) -> tuple[pafs.FileSystem, str]:
    """The file system and the path in it. Reads nothing yet. Clients of one storage are shared.

    Raises UnsupportedError UNSUPPORTED_PATH for a scheme that no installed library opens, InvalidInputError
    INVALID_LOCATION for options that the scheme does not have, NO_ACCESS where the storage's client cannot start.
    """
    if location.is_local:
        import pyarrow.fs as pafs

        return pafs.LocalFileSystem(), location.path
    if location.scheme == UNFINISHED and location.authority in _lent:
        return _lent[location.authority], location.path
    if location.scheme in ARROW_SCHEMES:
        return _through_arrow(location)
    return _through_fsspec(location)


def lend_filesystem(authority: str, filesystem: pafs.FileSystem) -> None:
    """Let this process open locations of the scheme `UNFINISHED` with this authority."""
    _lent[authority] = filesystem


def take_back_filesystem(authority: str) -> None:
    del _lent[authority]


def reach_location(location: Location) -> tuple[FileSystem, str]:
    """Open as `open_location`, and ask the storage for the folder, once for each storage in a process.

    Raises InvalidInputError NO_ACCESS also for a storage that does not answer in time. S3's client has a limit of its
    own and is not asked, because a user may have the right to list a folder and no other.
    """
    if location.is_local:
        return LocalFiles(), location.path
    filesystem, path = open_location(location)
    storage = location.scheme, location.authority, location.options
    if ARROW_SCHEMES.get(location.scheme) != S3 and storage not in _reached:
        try:
            within_contact_time(lambda: filesystem.get_file_info(path))
        except STORAGE_ERRORS as error:
            raise _unreached(location, error) from error
        _reached.add(storage)
    return filesystem, path


def no_access(where: str, error: BaseException) -> InvalidInputError:
    """The error for a location that this user cannot read, or that cannot be reached from here."""
    said = " ".join(str(error).split())[:500]
    return InvalidInputError(
        ErrorCode.NO_ACCESS, f"{where} cannot be read ({said}); check credentials, region, endpoint and permissions"
    )


def _unreached(location: Location, error: BaseException) -> InvalidInputError:
    """The error for a storage that could not be reached, with the server and the credentials that were tried."""
    kind = OBJECT_SCHEMES.get(location.scheme, "")
    said = " ".join(_without_secrets(str(error), location).split())[:400]
    if kind not in _CREDENTIALS:
        return no_access(str(location), OSError(said))
    credentials, server = _CREDENTIALS[kind]
    given = dict(parse_qsl(location.options))
    server = given.get(_ENDPOINT_OPTION) or (location.authority.rpartition("@")[2] if kind == AZURE else server)
    return InvalidInputError(
        ErrorCode.NO_ACCESS,
        f"{location} cannot be read: tried {server} with the credentials of {credentials}, and found: {said}; set "
        "them, and check that this machine reaches the server",
    )


def _absolute(written: str) -> str:
    """The absolute form of a local path. What is opened by a relative path stays the same when the process changes its
    working directory, and in tasks of Spark, which run in another one."""
    try:
        return str(Path(written).absolute())
    except FileNotFoundError:
        raise InvalidInputError(
            ErrorCode.INVALID_LOCATION,
            f"path {written!r} is relative, and the working directory of this process was removed; give an absolute "
            "path",
        ) from None


def _of_usable_length(path: str) -> str:
    """The local path. Raises InvalidInputError INVALID_LOCATION if it is too long for its file system."""
    if len(path) > _SHORT:
        try:
            os.lstat(path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise _unusable(path, "it is too long") from None
    return path


def _unusable(path: str, reason: str) -> InvalidInputError:
    shown = repr(path[:200])
    return InvalidInputError(ErrorCode.INVALID_LOCATION, f"path {shown}: {reason}; give the path of a folder")


def _local_path(uri: str, rest: str) -> str:
    """The path of a ``file:`` URI.

    Spark writes names as they are and other tools encode them, so the existing one is used.
    """
    host, path = "", rest
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        path = f"{slash}{path}"
    if host not in _LOCAL_HOSTS:
        raise InvalidInputError(ErrorCode.INVALID_LOCATION, f"{uri} names the host {host!r}; expected file:///folder")
    literal, decoded = Path(_of_usable_length(path)), Path(unquote(path))
    return str(decoded if literal != decoded and decoded.exists() and not literal.exists() else literal)


@lru_cache(maxsize=32)
def _opened(uri: str) -> tuple[pafs.FileSystem, str]:
    """Open a URI. For S3 there are also the options of `_S3_OPTIONS`, which pyarrow's URIs lack."""
    import pyarrow.fs as pafs

    address, _, options = uri.partition("?")
    own = {}
    if uri.startswith("s3:"):
        given = dict(parse_qsl(options, keep_blank_values=True))
        own = {name: given.pop(name) for name in _S3_OPTIONS if name in given}
        uri = f"{address}?{urlencode(given, quote_via=quote)}" if own else uri
    filesystem, base = pafs.FileSystem.from_uri(uri)
    if own:
        _, (settings,) = filesystem.__reduce__()  # the only place where pyarrow says its settings
        anonymous = own.pop("anonymous", "") == "true"
        changed: dict[str, object] = {"anonymous": True} if anonymous else dict(own)
        filesystem = pafs.S3FileSystem(**{name: value or None for name, value in (settings | changed).items()})
    return filesystem, base


def _through_arrow(location: Location) -> tuple[pafs.FileSystem, str]:
    # The path is kept out of the URI, where it would have to be encoded.
    scheme, options = ARROW_SCHEMES[location.scheme], location.options
    if scheme == "gs" and "retry_limit_seconds" not in options:
        options = "&".join(filter(None, (options, f"retry_limit_seconds={_GCS_RETRY_SECONDS}")))
    uri = f"{scheme}://{location.authority}/{'?' if options else ''}{options}"
    try:
        filesystem, base = within_contact_time(lambda: _opened(uri))
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_PATH, f"{location}: this build of pyarrow has no {scheme} file system ({error})"
        ) from error
    except (pa.ArrowInvalid, ValueError) as error:
        raise InvalidInputError(
            ErrorCode.INVALID_LOCATION, f"{location}: {_without_secrets(str(error), location)}"
        ) from None
    except STORAGE_ERRORS as error:
        if scheme in ("hdfs", "viewfs") and "lib" in str(error):
            raise UnsupportedError(
                ErrorCode.UNSUPPORTED_PATH,
                f"{location}: pyarrow found no Java or Hadoop client ({' '.join(str(error).split())[:200]}); set "
                "JAVA_HOME, HADOOP_HOME and CLASSPATH=$(hadoop classpath --glob)",
            ) from error
        raise _unreached(location, error) from error
    return filesystem, posixpath.join(base, location.path)


def _without_secrets(text: str, location: Location) -> str:
    user = location.authority.rpartition("@")[0]
    for secret in (location.options, user if ":" in user else ""):
        text = text.replace(secret, "…") if secret else text
    return text[:500]


def _through_fsspec(location: Location) -> tuple[pafs.FileSystem, str]:
    schemes = ", ".join(["file", *ARROW_SCHEMES])
    advice = _other_address(location)
    if importlib.util.find_spec("fsspec") is None:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_PATH,
            f"{location}: unknown scheme {location.scheme!r}; "
            + (advice or f"expected one of {schemes}, or install fsspec for others"),
        )
    known = location.scheme in importlib.import_module("fsspec").available_protocols()
    try:
        opened = importlib.import_module("fsspec.core").url_to_fs
        filesystem, path = within_contact_time(lambda: opened(location.uri))
    except OSError as error:
        raise _unreached(location, error) from error
    except Exception as error:  # whatever the package of a scheme raises
        said = f"{type(error).__name__}: {_without_secrets(str(error), location)}"
        settings = f"fsspec's configuration (FSSPEC_{location.scheme.upper()}_…)"
        if isinstance(error, ImportError) or not known:
            found: StateStoreError = UnsupportedError(
                ErrorCode.UNSUPPORTED_PATH,
                f"{location}: {said}; "
                + (advice or f"expected one of {schemes}, or a scheme that the installed fsspec opens"),
            )
        else:
            found = InvalidInputError(
                ErrorCode.INVALID_LOCATION,
                f"{location}: fsspec opens nothing from this location ({said}); "
                + (advice or f"correct it, or set what is missing in {settings}"),
            )
        raise found from error
    from statestore.formats.places.fsspec_files import fsspec_files

    return fsspec_files(filesystem), path.rstrip("/")


def _other_address(location: Location) -> str:
    """The advice for addresses of Databricks and of older Azure drivers, whose state is reached by another one."""
    if location.scheme == "dbfs":
        path = posixpath.join("/dbfs", location.authority, location.path)
        return f"on a machine of Databricks give the path at which it is mounted: {path}"
    if location.scheme in ("wasb", "wasbs"):
        host = location.authority.replace(".blob.", ".dfs.")
        return f"give it by the address of Azure's newer driver: abfss://{host}/{location.path}"
    if location.scheme == "adl":
        return "give its copy in Azure Data Lake Storage Gen2, abfss://container@account.dfs.core.windows.net/folder"
    return ""


def not_local(location: Location, what: str) -> UnsupportedError:
    """The error for operations that need a local directory."""
    return UnsupportedError(
        ErrorCode.UNSUPPORTED_PATH, f"{location}: {what} a local directory, and this is none; use one"
    )
