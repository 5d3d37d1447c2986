"""The store that an import makes: nobody sees it before its first version is complete.

In a local warehouse it is made in a hidden folder beside its place and then renamed. In an object store, where nothing
is renamed, its files are in a folder of their own, and its description, by which it exists, is put last.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from statestore.catalog.catalog import Catalog, connect
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots.snapshot_log import first_snapshot
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotPart
from statestore.catalog.log.storage import Storage, StorageExistsError, UnsettledError, sync_folder
from statestore.catalog.log.store_locations import is_described, storage_at
from statestore.catalog.log.store_spec import STORE_FILE, StoreSpec, encode_spec
from statestore.catalog.store_kinds import new_keyed_spec, write_first_entry
from statestore.catalog.upkeep.store_folders import rebuilt_folder
from statestore.connector.imports.import_plan import ImportPlan
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.local_directory import temporary_directory
from statestore.formats.places.locations import Location


class NewStore(Protocol):
    """A store that is being made. ``scratch`` is a local folder for what the import needs meanwhile."""

    @property
    def storage(self) -> Storage: ...

    @property
    def scratch(self) -> Path: ...

    def commit(self, parts: Sequence[SnapshotPart]) -> int:
        """Commit the first snapshot and return its version."""


@dataclass(frozen=True)
class _InFolder:
    """A store in a hidden folder of a local warehouse."""

    store: KeyedStore
    scratch: Path

    @property
    def storage(self) -> Storage:
        return self.store.files()

    def commit(self, parts: Sequence[SnapshotPart]) -> int:
        return self.store.commit(parts)


@dataclass(frozen=True)
class _InObjects:
    """A store in an object store that has no description yet."""

    spec: StoreSpec
    storage: Storage
    scratch: Path

    def commit(self, parts: Sequence[SnapshotPart]) -> int:
        return first_snapshot(self.storage, self.spec, parts)


@contextmanager
def new_store(place: Location, plan: ImportPlan) -> Iterator[NewStore]:
    """Yield the new store, which gets its place when the block ends well. Raises InvalidInputError STORE_EXISTS."""
    if place.is_local:
        with _in_folder(Path(place.path), plan) as made:
            yield made
    else:
        with _in_objects(place, plan) as made:
            yield made


def check_absent(place: Location) -> None:
    """Raise InvalidInputError STORE_EXISTS for a place that is taken, UnsupportedError UNSUPPORTED_PATH."""
    if place.is_local:
        path = Path(place.path)
        if os.path.lexists(path) or (path.parent.is_dir() and path.name in Catalog(path.parent).stores()):
            raise _exists(place)
    elif is_described(storage_at(place)):
        raise _exists(place)


def _exists(place: Location) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.STORE_EXISTS,
        f"{place} exists; import into a new store, or remove it first: statestore.connect({str(place.parent)!r})"
        f".drop_store({place.name!r})",
    )


@contextmanager
def _in_folder(path: Path, plan: ImportPlan) -> Iterator[NewStore]:
    root, name = connect(path.parent).root, path.name
    with rebuilt_folder(root, name) as folder:
        hidden = Catalog(folder)
        with hidden.create_store(name, "keyed", key=plan.key, key_groups=plan.operator.key_groups) as store:
            yield _InFolder(store, folder)
        with disk_errors("make the store", root / name):
            try:
                (folder / name).rename(root / name)
            except OSError:
                if os.path.lexists(root / name):
                    raise _exists(Location(str(root / name))) from None
                raise
            sync_folder(root)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _in_objects(place: Location, plan: ImportPlan) -> Iterator[NewStore]:
    from statestore.catalog.upkeep.store_objects import Place, marks_of, stays

    whole = connect(place.parent.uri).object_storage(place.name)
    marks = marks_of(whole)
    if is_described(whole):
        raise _exists(place)
    folder = uuid.uuid4().hex
    storage = whole.within(folder)
    spec = replace(new_keyed_spec(place.name, plan.key, plan.operator.key_groups), folder=folder)
    try:
        spec = write_first_entry(storage, spec)
        with temporary_directory() as scratch:
            yield _InObjects(spec, storage, scratch)
        try:
            whole.create(STORE_FILE, encode_spec(spec))
        except StorageExistsError:
            raise _exists(place) from None
    except BaseException as error:
        if not isinstance(error, UnsettledError):  # else the description may yet appear
            with contextlib.suppress(StateStoreError):  # vacuum of a later store of this name removes what stays
                storage.delete_many([item.name for item in storage.list("")])
        raise
    if not stays(whole, Place(storage, spec, marks), spec):
        raise _exists(place)
