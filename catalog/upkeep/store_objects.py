"""The stores of a warehouse in an object store: listing, creation and removal.

Nothing is renamed or overwritten there. A store exists when its description does, which one create-only put decides. A
dropped store leaves an object below ``dropped/``. The next store of that name finds it and puts its files into a folder
of their own, so that a late write of the dropped one, which may still be on its way, never meets them. A late delete of
the description does: the folder has a copy, which counts where the description is missing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from statestore.catalog.commits.changelogs import CHANGELOGS, OURS, OVERTAKEN
from statestore.catalog.commits.store_owners import OPENED, is_here, newest_record
from statestore.catalog.commits.writer_lock import take_writer_lock
from statestore.catalog.log.storage import Storage, StorageExistsError, own_folder
from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.catalog.log.storage_places import TIER, is_described, kept_descriptions, stores_in_turn
from statestore.catalog.log.store_spec import (
    DESCRIPTION_COPY,
    DROPPED,
    FOLDER,
    STORE_FILE,
    StoreSpec,
    encode_spec,
    replaced,
    stored_identity,
)
from statestore.formats.changelogs.changelog import store_of
from statestore.formats.changelogs.changelog_writer import try_adopt
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, NotFoundError, StateStoreError, UnsupportedError
from statestore.formats.places.file_presence import names_in
from statestore.formats.places.locations import Location
from statestore.formats.places.object_cache import in_parallel
from statestore.formats.places.object_clients import MARKER, folders_in

OUTPUTS = "outputs"
"""The folder for copies of a keyed store's outputs among what a machine keeps of the store."""
_DELETED_AT_ONCE = 1_000


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
    """Where a new store puts its files, its description that says so, and the marks of dropped stores before."""

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
        _delete(whole, [name for name in names if _folder(name) in own])
        return
    folders = {_folder(name) for name in names}
    whole.delete_once(STORE_FILE)
    whole.delete_many([name for name in names if name.endswith(f"/{STORE_FILE}")])
    late = [name for name in _names(whole) if _folder(name) in folders and name not in set(names)]
    _delete(whole, [*names, *late])


def marks_of(root: ObjectStorage) -> frozenset[str]:
    """Return the marks of the dropped stores of a name."""
    return frozenset(item.name for item in root.list(DROPPED))


def _mark(root: ObjectStorage, ids: Iterable[str]) -> None:
    """Mark stores as dropped. Nothing removes a mark."""
    for store_id in ids:
        with contextlib.suppress(StorageExistsError):  # an interrupted drop goes on
            root.create(f"{DROPPED}{store_id}", b"")


def _delete(whole: ObjectStorage, names: Sequence[str]) -> None:
    for first in range(0, len(names), _DELETED_AT_ONCE):
        whole.delete_many(names[first : first + _DELETED_AT_ONCE])


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
