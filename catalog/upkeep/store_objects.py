"""The stores of a warehouse in an object store: listing, creation, replacement and removal.

Nothing is renamed or overwritten there. A store exists when its description does, which one create-only put decides. A
dropped store leaves an object below ``dropped/``. The next store of that name finds it and puts its files into a folder
of their own, so that a late write of the dropped one, which may still be on its way, never meets them. A late delete of
the description does: the folder has a copy, which counts where the description is missing.

Nobody ever sees a half of a store that replaces another one, such as a rebuilt one. The new store is made in a folder
of its own, with a description of its own. One create-only put then replaces the old store: the last entry of its log,
which names the folder. A commit of another writer that was first makes the rebuild fail, and one that comes later finds
its version taken, reads the entry, and is refused. So the store is there at each moment, and whoever opens it after
that follows the entry.

An *intent* below ``log/_checkpoint/`` says in which version the entry may be found, because reading a whole old log to
its end would take too long. It is made first, and what it names belongs to the new store if the entry says so, and to
nobody if that version is another commit.

A rebuild may leave objects below a store's name that no store there needs: its driver may have died, or a task may have
written a file after the rebuild had failed and its folder was removed. All of it lies in folders beside the store's own
files, or is an intent. A rebuild under way looks the same, so it is told from a dead one by age, like the files of a
commit: no rebuild is published that began so long ago (``FILES_TOO_OLD``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from statestore.catalog.commits.changelogs import CHANGELOGS, OURS, OVERTAKEN, waiting_changelogs
from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.publish_commit import MOST_SECONDS, new_entry
from statestore.catalog.commits.store_owners import OPENED, fence, is_here, newest_record
from statestore.catalog.commits.writer_lock import take_writer_lock
from statestore.catalog.log.entries import REPLACE, decode_entry, entry_name, write_entry
from statestore.catalog.log.log_names import LOG_CHECKPOINTS, REPLACEMENT, STORE_FILE, replacement_name
from statestore.catalog.log.storage import ObjectInfo, Storage, StorageExistsError, make_directories, own_folder
from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.catalog.log.store_locations import (
    TIER,
    is_described,
    kept_descriptions,
    replaced_stores,
    stores_in_turn,
)
from statestore.catalog.log.store_spec import (
    DESCRIPTION_COPY,
    DROPPED,
    FOLDER,
    StoreSpec,
    encode_spec,
    identity_guard,
    replaced,
    stored_identity,
)
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.changelogs.changelog import store_of
from statestore.formats.changelogs.changelog_writer import try_adopt
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import (
    CommitUnknownError,
    ConflictError,
    NotFoundError,
    StateStoreError,
    UnsupportedError,
)
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.file_presence import names_in
from statestore.formats.places.locations import Location
from statestore.formats.places.object_cache import in_parallel
from statestore.formats.places.object_clients import MARKER, folders_in

OUTPUTS = "outputs"
"""The folder for copies of a keyed store's outputs among what a machine keeps of the store."""
LOCAL = "rebuilt-"
"""The beginning of the names of directories in which this machine makes a new store."""
DELETED_AT_ONCE = 1_000
DATA = ("segments/", "staging/")


def check_create_only(root: ObjectStorage) -> None:
    """Check that the store of a warehouse refuses to overwrite an object that should only be created.

    A warehouse has an object that everybody who connects tries to create. If that is refused, the store keeps its
    promise; whoever creates it tries once more. Raises UnsupportedError NO_CREATE_ONLY_PUT. A user who may not write is
    not refused: there is nothing to protect.
    """
    if root.tries_to_create(MARKER, _MARKED) and root.tries_to_create(MARKER, _MARKED):
        root.delete(MARKER)
        raise UnsupportedError(
            ErrorCode.NO_CREATE_ONLY_PUT,
            f"{root}: this object store overwrites an object although it was asked to create it only (If-None-Match), "
            "so two writers could overwrite each other's commits; use a store that has conditional writes, such as "
            "Amazon S3, Google Cloud Storage, Azure Blob Storage, Cloudflare R2 or a recent MinIO",
        )


_MARKED = b'{"format": 1, "statestore": "warehouse"}\n'


def store_names(location: Location) -> list[str]:
    """Return the names of the stores in a warehouse, sorted, with a request for each folder beside one listing."""
    names = [name for name in folders_in(location) if not name.startswith(".")]
    found = in_parallel(lambda name: is_described(ObjectStorage(location.at(name))), names)
    return sorted(name for name, exists in zip(names, found, strict=True) if exists)


@dataclass(frozen=True)
class Place:
    """The place of a new store's files, its description that says so, and the marks of dropped stores before."""

    storage: ObjectStorage
    spec: StoreSpec
    marks: frozenset[str]


def place_for(root: ObjectStorage, spec: StoreSpec) -> Place | None:
    """Return the place of a new store; None if there is a store of the name.

    The marks are listed first. So a drop that still removes files of this name later either knows of no file of the new
    store, or has made a mark since, which `stays` finds.
    """
    marks = marks_of(root)
    if root.exists(STORE_FILE) or (marks and kept_descriptions(root)):
        return None
    if not marks:
        return Place(root, spec, marks)
    folder = uuid.uuid4().hex
    return Place(root.within(folder), replace(spec, folder=folder), marks)


def stays(root: ObjectStorage, place: Place, spec: StoreSpec) -> bool:
    """Keep a copy of the description of a new store in its folder, and return whether the store stays.

    It does not if a store of the name was dropped since the place was chosen: that drop may remove files of this one.
    Nor does it if another store of the name has a copy: a late delete had removed the description of that one. The new
    store is then dropped.
    """
    others: list[bytes] = []
    if spec.folder:
        with contextlib.suppress(StorageExistsError):
            place.storage.create(DESCRIPTION_COPY, encode_spec(spec))
        others = [data for data in kept_descriptions(root) if stored_identity(data) != spec.store_id]
    if not others and marks_of(root) == place.marks:
        return True
    _mark(root, [spec.store_id])
    if (data := _description(root)) is not None and stored_identity(data) == spec.store_id:
        root.delete_once(STORE_FILE)
    return False


def remove_store(root: ObjectStorage, storage: ObjectStorage, spec: StoreSpec) -> None:
    """Remove a store: its description, by which it exists, then its files, and what this machine keeps of it.

    ``root`` is the storage of the store's name, ``storage`` that of its files. Raises ConflictError STORE_LOCKED while
    a live store is open for writing, here or on another machine.
    """
    own = own_folder(root)
    with contextlib.ExitStack() as held:
        if own is not None and own.is_dir():
            held.callback(os.close, take_writer_lock(own, spec.name))
        _check_owner(storage, spec, own)
        _remove_objects(root, spec)
        if own is not None and own.is_dir():
            _remove_own(own, spec.store_id)


def _check_owner(storage: ObjectStorage, spec: StoreSpec, own: Path | None) -> None:
    record = newest_record(storage)
    if record is not None and record.event == OPENED and not (own is not None and is_here(record, own)):
        raise ConflictError(
            ErrorCode.STORE_LOCKED,
            f"store {spec.name!r} is open for writing in {record}, or was when that process ended; close it there, or "
            f"take it over with open_store({spec.name!r}, takeover=True) if that machine is lost, and drop it then",
        )


def _remove_objects(root: ObjectStorage, spec: StoreSpec) -> None:
    whole = root.within("")
    stores: list[tuple[Storage, StoreSpec]] = []
    with contextlib.suppress(NotFoundError):
        stores += stores_in_turn(root)  # those that rebuilds replaced have descriptions, too
    if not stores or stores[-1][1].store_id != spec.store_id:
        raise replaced(f"store {spec.name!r}", spec.store_id)
    _mark(whole, [each.store_id for _, each in stores])
    # Listed first, because a store of the same name may be created as soon as this one has no description.
    names = _names(whole)
    data = _description(whole)
    if data is None or stored_identity(data) != stores[0][1].store_id:
        # Another drop was faster, or the description was removed late. What was listed may be of the next store.
        own = {folder for found, each in stores if (folder := each.folder or _below(root, found))}
        _remove(whole, [name for name in names if _folder(name) in own])
        return
    folders = {_folder(name) for name in names}
    whole.delete_once(STORE_FILE)
    whole.delete_many([name for name in names if name.endswith(f"/{STORE_FILE}")])
    late = [name for name in _names(whole) if _folder(name) in folders and name not in set(names)]
    _remove(whole, [*names, *late])


def marks_of(root: ObjectStorage) -> frozenset[str]:
    """Return the marks of the dropped stores of a name."""
    return frozenset(item.name for item in root.list(DROPPED))


def _mark(root: ObjectStorage, ids: Iterable[str]) -> None:
    """Mark stores as dropped. Nothing removes a mark."""
    for store_id in ids:
        with contextlib.suppress(StorageExistsError):  # an interrupted drop goes on
            root.create(f"{DROPPED}{store_id}", b"")


def _description(root: ObjectStorage) -> bytes | None:
    """Return the description itself, never a copy of it."""
    return root.within("").read_many([STORE_FILE])[0]


def _below(root: ObjectStorage, storage: Storage) -> str:
    """Return the folder in which a rebuild put a store; empty for another one."""
    assert isinstance(storage, ObjectStorage)
    return storage.location.path.removeprefix(root.location.path).lstrip("/")


def _names(whole: ObjectStorage) -> list[str]:
    return [item.name for item in whole.list("") if not item.name.startswith(DROPPED) and item.name != STORE_FILE]


def _folder(name: str) -> str:
    """Return the folder of its own in which a file of a store is; empty for a store without one."""
    first = name.partition("/")[0]
    return first if FOLDER.fullmatch(first) else ""


def _remove_own(own: Path, store_id: str) -> None:
    """Remove what this machine keeps of a store, but not the files of others, and not the lock, which is held."""
    for folder in (TIER, OUTPUTS):
        shutil.rmtree(own / folder, ignore_errors=True)
    for folder in (CHANGELOGS, OVERTAKEN):
        for name in names_in(own / folder):
            path = own / folder / name
            with contextlib.suppress(StateStoreError, OSError):
                if OURS.fullmatch(name) and store_of(path) == store_id and (file := try_adopt(path)) is not None:
                    file.discard()
                    file.close()


def replace_store(
    root: ObjectStorage, files: SegmentFiles, version: int, make: Callable[[ObjectStorage], None]
) -> None:
    """Replace the store of ``files``, whose newest version is ``version``, by the one that ``make`` makes.

    ``root`` is the storage of the store's name. Raises ConflictError, after which the store is as it was:
    REBUILD_OVERTAKEN if it was written to meanwhile, FILES_TOO_OLD if the rebuild took longer than a commit may.
    """
    old, folder, begun = files.storage, uuid.uuid4().hex, time.monotonic()
    assert isinstance(old, ObjectStorage)
    intent = replacement_name(version + 1, folder)
    with _private(root, folder) as local:
        new = replace(old.beside(root, folder), local=local)
        old.create(intent, b"", identity_guard(files.spec.store_id))
        try:
            make(new)
            _check_waiting(files)
            _check_age(files.spec, begun)
        except BaseException:
            _forget(root, old, intent, folder)
            raise
        _publish(root, files, version, intent, folder)
    with contextlib.suppress(StateStoreError, OSError):  # the store is replaced, whatever remains of the old one
        _remove_remains(root)


def _publish(root: ObjectStorage, files: SegmentFiles, version: int, intent: str, folder: str) -> None:
    """Write the entry that replaces the store."""
    old = files.storage
    try:
        log_state = files.log.newest()
        if log_state.version != version:
            raise _overtaken(files.spec)
        write_entry(old, new_entry(log_state, REPLACE, NewFiles(), replacement=folder))
    except CommitUnknownError:
        if not _is_replaced(files):
            _forget(root, old, intent, folder)
            raise _overtaken(files.spec) from None
    except StateStoreError as error:  # any other exception, such as an interrupt, leaves the outcome unknown
        _forget(root, old, intent, folder)
        if error.code in (ErrorCode.VERSION_TAKEN, ErrorCode.STORE_REPLACED):
            raise _overtaken(files.spec) from None
        raise


def _is_replaced(files: SegmentFiles) -> bool:
    """Return whether an entry whose put was not answered is there; if not, it never will be."""
    try:
        fence(files, None)
    except NotFoundError as error:
        if error.code != ErrorCode.STORE_REPLACED:
            raise
        return True
    return False


def _check_waiting(files: SegmentFiles) -> None:
    """Raise ConflictError REBUILD_OVERTAKEN if writers of this machine have acknowledged writes meanwhile."""
    own = own_folder(files.storage)
    if own is not None and waiting_changelogs(files.storage, files.spec, files.log.newest(), own):
        raise _overtaken(files.spec)


def _check_age(spec: StoreSpec, begun: float) -> None:
    """Raise ConflictError FILES_TOO_OLD if vacuum may soon take the new store for one of a dead rebuild."""
    if time.monotonic() - begun > MOST_SECONDS:
        raise ConflictError(
            ErrorCode.FILES_TOO_OLD,
            f"store {spec.name!r}: the rebuild began more than {MOST_SECONDS // 3600} hours ago, and vacuum removes "
            "files of that age that no commit names; the store is as it was; rebuild it with more cores (spark=), or "
            "write a new store in several commits",
        )


def _overtaken(spec: StoreSpec) -> ConflictError:
    return ConflictError(
        ErrorCode.REBUILD_OVERTAKEN,
        f"store {spec.name!r} was written to, or replaced, while it was rebuilt; close the writer, then rebuild again",
    )


def _forget(root: ObjectStorage, old: Any, intent: str, folder: str) -> None:
    """Remove what a rebuild made that replaced nothing; the next rebuild removes what remains."""
    with contextlib.suppress(Exception):
        _remove_folder(root, folder)
        old.delete(intent)


def _remove_folder(root: ObjectStorage, folder: str) -> None:
    whole = root.within("")
    _remove(whole, [item.name for item in whole.list(f"{folder}/")])


def _remove_remains(root: ObjectStorage) -> None:
    """Remove the data files of the stores that were replaced, and what rebuilds left that replaced none.

    A rebuild may have died just after it replaced a store, so those that were replaced earlier are looked at, too. The
    logs stay: they tell late writers and readers that the store was replaced.
    """
    for old in replaced_stores(root):
        assert isinstance(old, ObjectStorage)
        _remove(old, [item.name for item in old.list("segments/")])
        intents = [match for item in old.list(LOG_CHECKPOINTS) if (match := REPLACEMENT.fullmatch(item.name))]
        names = [entry_name(int(match[1])) for match in intents]
        for match, name, data in zip(intents, names, old.read_many(names), strict=True):
            # The entry that replaced the store is its last one, so a version that was trimmed was another commit.
            if data is None or decode_entry(name, data).replacement != match[2]:
                _forget(root, old, match[0], match[2])


def _remove(storage: ObjectStorage, names: Sequence[str]) -> None:
    for first in range(0, len(names), DELETED_AT_ONCE):
        storage.delete_many(names[first : first + DELETED_AT_ONCE])


@contextmanager
def _private(root: ObjectStorage, folder: str) -> Iterator[Path | None]:
    """Make a directory for what this machine keeps of the new store until it is there, and remove it after that.

    Those of rebuilds that died are removed, too.
    """
    own = own_folder(root, make=True)
    if own is None:
        yield None
        return
    for left in names_in(own):
        if left.startswith(LOCAL):
            with contextlib.suppress(OSError), _held(own / left):
                shutil.rmtree(own / left, ignore_errors=True)
    path = own / f"{LOCAL}{folder}"
    with disk_errors("make the directory", path):
        make_directories(path)
    try:
        with _held(path):
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a lock on a directory. Raises BlockingIOError if another process holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class ObjectsBelow:
    """The objects below the name of a store at some moment, of which ``storage`` has the newest one's."""

    storage: ObjectStorage
    listed: Sequence[ObjectInfo]

    @staticmethod
    def of(storage: Storage) -> ObjectsBelow:
        """List the objects, which costs what a listing of the store alone costs if it was never rebuilt."""
        assert isinstance(storage, ObjectStorage)
        return ObjectsBelow(storage, storage.root.list(""))

    @property
    def whole(self) -> ObjectStorage:
        """The storage of everything below the store's name."""
        return self.storage.root

    @property
    def own(self) -> Iterator[ObjectInfo]:
        """The objects of the store itself, by their names in it."""
        begin = self._begin(self.storage)
        for item in self.listed:
            if item.name.startswith(begin):
                yield ObjectInfo(item.name[len(begin) :], item.bytes, item.modified_us)

    def remains(self, cutoff: int) -> list[ObjectInfo]:
        """Return what rebuilds left, but for objects younger than ``cutoff`` (epoch microseconds).

        Nothing is returned if another store has taken this one's place meanwhile. Logs and descriptions of replaced
        stores stay: they tell late writers and readers that the store was replaced.
        """
        stores = {self._begin(found): found for found, _ in stores_in_turn(self.storage.root)}
        own = self._begin(self.storage)
        if own != list(stores)[-1]:
            return []
        old = [item for item in self.listed if item.modified_us <= cutoff]
        left = [item for item in old if _is_left(item.name, own, stores.keys())]
        return left + [item for begin, found in stores.items() for item in _intents(found, begin, old)]

    def _begin(self, storage: Storage) -> str:
        """Return how the names of a store's objects begin below the store's name."""
        assert isinstance(storage, ObjectStorage)
        below = storage.location.path.removeprefix(self.storage.root.location.path).lstrip("/")
        return f"{below}/" if below else storage.folder


def _is_left(name: str, own: str, stores: Iterable[str]) -> bool:
    """Return whether an object belongs to a store that was replaced or dropped, or to one that never was there."""
    first, _, rest = name.partition("/")
    begin, name = (f"{first}/", rest) if FOLDER.fullmatch(first) else ("", name)
    if begin == own:
        return False  # vacuum itself knows which files the store needs
    return name.startswith(DATA) or (begin != "" and begin not in stores)


def _intents(store: Storage, begin: str, old: Sequence[ObjectInfo]) -> Iterator[ObjectInfo]:
    """Yield the intents of a store's log that did not replace it."""
    own = (item for item in old if item.name.startswith(begin))
    found = [(item, match) for item in own if (match := REPLACEMENT.fullmatch(item.name[len(begin) :]))]
    names = [entry_name(int(match[1])) for _, match in found]
    for (item, match), name, data in zip(found, names, store.read_many(names), strict=True):
        if data is None or decode_entry(name, data).replacement != match[2]:
            yield item
