"""Objects of S3, read through obstore: one GET for an object or a part of it.

pyarrow's client asks for the length of an object (HEAD) before each read. It still lists folders, and it reads where it
knows more than obstore: profiles of ``~/.aws`` with roles or single sign-on, assumed roles, proxies and own
certificates.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from statestore.formats.places.fetched_parts import keep_part, kept_part

if TYPE_CHECKING:
    import pyarrow.fs as pafs

    from statestore.formats.places.local_files import FileSystem

_KEYS = {"aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key",
         "aws_session_token": "session_token"}  # fmt: skip
_UNDERSTOOD = {
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
    "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_EXECUTION_ENV",
    "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_STS_REGIONAL_ENDPOINTS",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_CA_BUNDLE", "AWS_PAGER", "AWS_DEFAULT_OUTPUT", "AWS_MAX_ATTEMPTS",
    "AWS_RETRY_MODE", "AWS_SDK_LOAD_CONFIG",
}  # fmt: skip
_ONLY_ARROW = ("role_arn", "session_name", "external_id", "tls_ca_file_path", "force_virtual_addressing")
_CHUNK = 1 << 20


class ObstoreUse:
    """Whether this process is a fork of one that used obstore, whose threads it lacks."""

    used = False
    forked = False


def _after_fork() -> None:
    ObstoreUse.forked = ObstoreUse.used


os.register_at_fork(after_in_child=_after_fork)


class SizeError(OSError):
    """An object is not as long as expected; ``size`` is its length."""

    def __init__(self, size: int) -> None:
        super().__init__(f"found {size} bytes")
        self.size = size


@dataclass(frozen=True)
class S3Object:
    """An object: ``path`` is bucket and key, ``identity`` distinguishes it from objects of other servers and users.

    ``size`` and ``modified`` (epoch seconds) are those with which it was listed, None where it was not; ``unique``: no
    other object ever gets this name. What is read is kept, where that shows that it is the same object later.
    """

    store: Any = field(repr=False)
    identity: str = field(repr=False)
    path: str
    size: int | None = None
    modified: int | None = None
    unique: bool = False

    def read(self, most: int) -> bytes:
        """Read the object. Raises SizeError if it has more than ``most`` bytes, FileNotFoundError, OSError."""
        key = (self.identity, self.path, self.size, self.modified)
        if self._is_known and (kept := kept_part(key)) is not None:
            return kept
        with _os_errors():
            found = self._get()
            if found.meta["size"] > most:
                raise SizeError(found.meta["size"])
            data = bytes(found.bytes())
        if self._is_same(found.meta):
            keep_part(key, data)
        return data

    def read_at(self, offset: int, length: int) -> bytes:
        """Read a part of an object of known size.

        Raises SizeError if the object has another size, FileNotFoundError, OSError.
        """
        assert self.size is not None
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        key = (self.identity, self.path, self.size, self.modified, offset, length)
        if self._is_known and (kept := kept_part(key)) is not None:
            return kept
        try:
            with _os_errors():
                found = self._get(range=(offset, offset + length))
                if found.meta["size"] != self.size:
                    raise SizeError(found.meta["size"])
                data = bytes(found.bytes())
        except (FileNotFoundError, SizeError):
            raise
        except OSError:
            self._check_size()  # a part behind the end of the object is refused, too
            raise
        if self._is_same(found.meta):
            keep_part(key, data)
        return data

    def stream(self) -> IO[bytes]:
        """Stream the object's bytes. Raises FileNotFoundError and OSError, also while it is read."""
        with _os_errors():
            return cast(IO[bytes], _Chunks(iter(self._get().stream(min_chunk_size=_CHUNK))))

    def below(self) -> Iterator[tuple[str, int, int, str]]:
        """Yield path, size, time of change (epoch nanoseconds) and entity tag of each object below this name.

        Raises OSError.
        """
        import obstore

        bucket, _, key = self.path.partition("/")
        with _os_errors():
            for batch in obstore.list(self.store, prefix=key or None):
                for item in batch:
                    changed = int(item["last_modified"].timestamp()) * 10**9
                    yield f"{bucket}/{item['path']}", item["size"], changed, item["e_tag"] or ""

    def _get(self, **options: Any) -> Any:
        import obstore

        return obstore.get(self.store, self._key, options=cast(Any, options))

    @property
    def _key(self) -> str:
        return self.path.partition("/")[2]

    @property
    def _is_known(self) -> bool:
        return self.unique or self.modified is not None

    def _is_same(self, meta: Mapping[str, Any]) -> bool:
        return self.unique or (meta["size"] == self.size and int(meta["last_modified"].timestamp()) == self.modified)

    def _check_size(self) -> None:
        import obstore

        with _os_errors():
            size = obstore.head(self.store, self._key)["size"]
        if size != self.size:
            raise SizeError(size)


def s3_object(filesystem: FileSystem, path: str) -> S3Object | None:
    """The object at a path of a file system; None if that is not S3, or pyarrow has to read it."""
    if filesystem.type_name != "s3" or ObstoreUse.forked:
        return None
    import hashlib

    storage: pafs.FileSystem = filesystem
    _, (options,) = storage.__reduce__()  # the only place where pyarrow says its settings
    given = {name: value for name, value in options.items() if isinstance(value, str | bool)}
    proxy = str((options.get("proxy_options") or {}).get("host") or "")
    settings = _settings(tuple(sorted(given.items())), proxy, _variables())
    if settings is None or not _is_plain_key(path):
        return None
    with _os_errors():
        store = _client(path.partition("/")[0], settings)
    return S3Object(store, hashlib.sha256(repr(settings).encode()).hexdigest(), path)


def _variables() -> tuple[tuple[str, str], ...]:
    """The variables of the environment that concern storages."""
    names = [name for name in os.environ if name.startswith("AWS_") or name.upper().endswith("_PROXY")]
    return tuple([(name, os.environ[name]) for name in sorted(names)])


def _is_plain_key(path: str) -> bool:
    """Return whether obstore takes the key: it refuses empty and dotted parts, and control characters."""
    return path.isprintable() and not {"", ".", ".."} & set(path.split("/"))


@lru_cache(maxsize=32)
def _settings(
    given: tuple[tuple[str, Any], ...], proxy: str, around: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...] | None:
    """The settings of obstore's client that say the same as those of pyarrow's; None where there are none.

    ``around`` are the variables of the environment that concern storages. obstore follows some that pyarrow does not,
    so any variable but those of `_UNDERSTOOD` leaves the reading to pyarrow.
    """
    options, variables = dict(given), dict(around)
    if proxy or variables.keys() - _UNDERSTOOD or any(options.get(name) for name in _ONLY_ARROW):
        return None
    if str(options.get("region", "")).startswith("cn-"):
        return None  # obstore does not know the names of the hosts there
    found = _credentials(options)
    if found is not None and "AWS_SESSION_TOKEN" in variables and "session_token" not in found:
        return None  # obstore would send the token of other keys
    return None if found is None else tuple(sorted(found.items()))


def _credentials(options: Mapping[str, Any]) -> dict[str, str] | None:
    found: dict[str, str] = {"region": options["region"]} if options.get("region") else {}
    if options.get("endpoint_override"):
        endpoint = str(options["endpoint_override"])
        found["endpoint"] = endpoint if "://" in endpoint else f"{options.get('scheme') or 'https'}://{endpoint}"
    if options.get("anonymous"):
        return {**found, "skip_signature": "true"}
    if options.get("access_key"):
        found |= {"access_key_id": options["access_key"], "secret_access_key": options.get("secret_key", "")}
        return {**found, **({"session_token": options["session_token"]} if options.get("session_token") else {})}
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        return found | {given: os.environ[name.upper()] for name, given in _KEYS.items() if name.upper() in os.environ}
    profile = profile_keys()
    return None if profile is None else found | profile


def profile_keys() -> dict[str, str] | None:
    """The keys of the user's profile; none where there is no profile; None for one that is more than lasting keys."""
    name = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default"
    home = Path(os.environ.get("HOME") or "/", ".aws")
    section = name if name == "default" else f"profile {name}"
    import configparser

    files = [  # the later one decides
        (Path(os.environ.get("AWS_CONFIG_FILE") or home / "config"), section),
        (Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials"), name),
    ]
    profile: dict[str, str] = {}
    for file, section in files:
        parsed = configparser.RawConfigParser()
        try:
            parsed.read(file, "utf-8")
        except (OSError, ValueError, configparser.Error):
            return None
        profile |= dict(parsed[section]) if parsed.has_section(section) else {}
    keys = {given: profile.pop(key) for key, given in _KEYS.items() if key in profile}
    if profile.keys() - {"region", "output"} or "session_token" in keys or (name != "default" and not keys):
        return None
    return keys


@lru_cache(maxsize=32)
def _client(bucket: str, settings: tuple[tuple[str, str], ...]) -> Any:
    from obstore.store import S3Store

    ObstoreUse.used = True
    plain_http = dict(settings).get("endpoint", "").startswith("http://")
    return S3Store(bucket, config=cast(Any, dict(settings)), client_options={"allow_http": plain_http})


@contextmanager
def _os_errors() -> Iterator[None]:
    """Raise OSError for obstore's own errors; a missing object is a FileNotFoundError already."""
    from obstore.exceptions import BaseError

    try:
        yield
    except BaseError as error:
        raise OSError(str(error).partition("\n\nDebug source")[0]) from error


@dataclass
class _Chunks:
    """A file of the chunks of an answer."""

    chunks: Iterator[Any]
    ready: bytes = b""

    def read(self, size: int = -1) -> bytes:
        parts, wanted = [self.ready], size - len(self.ready)
        self.ready = b""
        while size < 0 or wanted > 0:
            with _os_errors():
                chunk = next(self.chunks, None)
            if chunk is None:
                break
            parts.append(bytes(chunk))
            wanted -= len(parts[-1])
        found = b"".join(parts)
        if 0 <= size < len(found):
            found, self.ready = found[:size], found[size:]
        return found

    def close(self) -> None:
        self.chunks = iter(())
