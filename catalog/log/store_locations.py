"""The places of stores: the storage of a location, and the directory for what its writers keep on this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from statestore.catalog.log.entries import decode_entry, entry_name
from statestore.catalog.log.log_names import LOG_CHECKPOINTS, REPLACEMENT, STORE_FILE
from statestore.catalog.log.storage import LocalStorage, ObjectInfo, Storage, local_root, own_folder
from statestore.catalog.log.store_spec import DROPPED, FOLDER, StoreSpec, decode_spec
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, UnsupportedError
from statestore.formats.places.locations import OBJECT_SCHEMES, Location, is_object_store

LOCAL_VARIABLE = "STATESTORE_LOCAL"
"""The environment variable with the directory for changelogs and hot tiers of stores in object stores."""
TIER = "live"  # the folder of the hot tier of a live store
CACHE = f"{TIER}/"


def storage_at(location: Location, *, local: str | None = None, cache: str | None = None) -> Storage:
    """Return the storage of the store at a location. Nothing is read.

    ``local`` is the directory below which writers of a store in an object store keep changelogs, locks and hot tiers;
    ``cache`` the folder of its cache. Raises UnsupportedError UNSUPPORTED_PATH for a scheme of no object store.
    """
    if location.is_local:
        return LocalStorage(Path(location.path))
    import hashlib

    from statestore.catalog.log.storage_objects import ObjectStorage
    from statestore.formats.places.object_clients import object_client

    if not is_object_store(location):
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_PATH,
            f"{location}: stores lie in a local directory or an object store; expected a path, or one of the schemes "
            f"{', '.join(OBJECT_SCHEMES)}",
        )
    text = f"{object_client(location).identity}/{location.path}"
    digits = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
    return ObjectStorage(location, local=_local_folder(local) / f"{digits}-{location.name}", cache=cache)


def described(storage: Storage) -> tuple[Storage, StoreSpec]:
    """Return the storage of the files of a store, and its description; those of the store that took its place, if it
    was rebuilt in an object store.

    Raises NotFoundError FILE_NOT_FOUND where no store is, CorruptError STORE_CORRUPT.
    """
    *_, last = stores_in_turn(storage)
    return last


def replaced_stores(storage: Storage) -> list[Storage]:
    """Return the storages of the stores of one name that rebuilds in an object store have replaced, oldest first.

    Raises as `described` does.
    """
    return [found for found, _ in stores_in_turn(storage)][:-1]


def stores_in_turn(storage: Storage) -> Iterator[tuple[Storage, StoreSpec]]:
    """Yield the storage and the description of each store that took the place of the one before.

    Raises as `described` does.
    """
    found, spec = _described(storage)
    if isinstance(found, LocalStorage):
        yield found, spec
        return
    from statestore.catalog.log.storage_objects import ObjectStorage

    assert isinstance(storage, ObjectStorage)
    while True:
        assert isinstance(found, ObjectStorage)
        listing = found.list(LOG_CHECKPOINTS)
        yield found.having_listed(LOG_CHECKPOINTS, listing), spec
        folder = _replacement(found, listing)
        if folder is None:
            return
        found, spec = _described(found.beside(storage, folder))


def _described(storage: Storage) -> tuple[Storage, StoreSpec]:
    reading = storage.beginning(LOG_CHECKPOINTS)
    try:
        data = reading.read(STORE_FILE)
    except NotFoundError:
        copies = kept_descriptions(storage)
        if not copies:
            raise
        data = _only(copies, storage)
    spec = decode_spec(data, f"{storage}/{STORE_FILE}")
    return (reading.within(spec.folder) if spec.folder else reading), spec


def kept_descriptions(storage: Storage) -> list[bytes]:
    """Return the copies of descriptions of the stores of a name that were not dropped, with a listing of its folders.

    There is one for each store that took the name of a dropped one, so at most one unless two were created at once.
    """
    if isinstance(storage, LocalStorage):
        return []
    from statestore.catalog.log.storage_objects import ObjectStorage
    from statestore.formats.places.object_cache import in_parallel
    from statestore.formats.places.object_clients import folders_in

    assert isinstance(storage, ObjectStorage)
    folders = [name for name in folders_in(storage.location) if FOLDER.fullmatch(name)]
    found = in_parallel(lambda folder: storage.within(folder).kept_description(), folders)
    return [data for data in found if data is not None]


def _only(copies: Sequence[bytes], storage: Storage) -> bytes:
    if len(copies) > 1:
        ids = ", ".join(decode_spec(data, STORE_FILE).store_id for data in copies)
        raise CorruptError(
            ErrorCode.STORE_CORRUPT,
            f"{storage}/{STORE_FILE} is missing, and {len(copies)} stores of this name have a copy of it (ids {ids}); "
            "expected one; copy the description.json in the folder of the store that you want to store.json",
        )
    return copies[0]


def is_described(storage: Storage) -> bool:
    """Return whether a store is in a storage, also if its description is missing and has a copy."""
    return storage.exists(STORE_FILE) or bool(kept_descriptions(storage))


def names_a_store(names: Collection[str], location: Location) -> bool:
    """Return whether a store is at a location with files and folders of these names. Mostly nothing is requested."""
    return STORE_FILE in names or (DROPPED.rstrip("/") in names and spec_at(location) is not None)


def _replacement(storage: Storage, listing: Sequence[ObjectInfo]) -> str | None:
    """Return the folder of the store that has taken this one's place; None if none has.

    A rebuild that was overtaken, or is under way, has left an object, too. The log says whether it was published.
    """
    matches = [match for item in listing if (match := REPLACEMENT.fullmatch(item.name))]
    names = sorted({entry_name(int(match[1])) for match in matches})
    for name, data in zip(names, storage.read_many(names), strict=True):
        if data is not None and (replacement := decode_entry(name, data).replacement):
            return replacement
    return None


def spec_at(location: Location) -> StoreSpec | None:
    """Return the description of the store at a location; None where there is none, or a damaged one."""
    try:
        return described(storage_at(location))[1]
    except (NotFoundError, CorruptError):
        return None


def _local_folder(given: str | None) -> Path:
    found = given or os.environ.get(LOCAL_VARIABLE)
    if found:
        return Path(found).expanduser().absolute()
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "statestore" / "stores"
    except RuntimeError:  # a user of a container may have no home
        import tempfile

        return Path(tempfile.gettempdir()) / f"statestore-{os.getuid()}" / "stores"


def tier_bytes(storage: Storage, listed: Iterable[ObjectInfo]) -> int:
    """Return the bytes of the hot tier; ``listed`` are the files of the store, which has it where it is local."""
    if local_root(storage) is not None:
        return sum(item.bytes for item in listed if item.name.startswith(CACHE))
    own = own_folder(storage)
    return 0 if own is None else _bytes_below(own / CACHE)


def own_bytes(storage: Storage) -> int:
    """Return the bytes that a store in an object store has on this machine; 0 for a local store, which lists them."""
    own = own_folder(storage)
    return 0 if own is None or local_root(storage) is not None else _bytes_below(own)


def _bytes_below(root: Path) -> int:
    size = 0
    for folder, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += os.stat(f"{folder}/{name}", follow_symlinks=False).st_size  # noqa: PTH116
    return size
