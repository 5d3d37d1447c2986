"""A warehouse: a directory of stores, or a folder of stores in an object store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, overload

from statestore.catalog.checks.verification import stores_to_verify, verify_store
from statestore.catalog.checks.verify_report import Verification
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.log.log_names import STORE_FILE
from statestore.catalog.log.storage import LocalStorage, Storage, StorageExistsError, make_directories
from statestore.catalog.log.store_locations import storage_at
from statestore.catalog.log.store_spec import (
    StoreSpec,
    encode_spec,
)
from statestore.catalog.named_stores import check_name, located, store_names
from statestore.catalog.reads.segment_files import shared_files
from statestore.catalog.reads.shown import Facts, NamedItems, listed
from statestore.catalog.store_kinds import (
    Columns,
    chosen_store,
    new_spec,
    open_handle,
    store_exists,
    value_schema,
    write_first_entry,
)
from statestore.catalog.stores.live.join_window import JoinWindowStore
from statestore.catalog.stores.live.key_value import KeyValueStore
from statestore.catalog.stores.live.live_store import LiveStore
from statestore.catalog.stores.live.session import SessionStore
from statestore.catalog.stores.live.window import WindowStore
from statestore.catalog.stores.store_handle import AutoCompact
from statestore.catalog.stores.versioned.replay_in_tasks import replay_in_tasks
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.catalog.upkeep.ranges.task_runs import runs_of
from statestore.catalog.upkeep.rebuild import check_rebuild
from statestore.catalog.upkeep.store_folders import (
    rebuilt_folder,
    remove_store,
    replace_store,
    undo_replacement,
)
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.locations import Location, not_local, parse_location
from statestore.formats.values.types import make_schema

if TYPE_CHECKING:
    from statestore.catalog.log.storage_objects import ObjectStorage

Duration: TypeAlias = int | timedelta | str


def connect(
    path: str | PathLike[str],
    *,
    options: Mapping[str, object] | None = None,
    local: str | PathLike[str] | None = None,
    cache: str | PathLike[str] | None = None,
) -> Catalog:
    """Open the warehouse at ``path``, and create it where it does not exist.

    ``path`` is a local directory or a folder in an object store: ``s3://bucket/folder``, ``gs://bucket/folder``,
    ``az://container/folder`` or ``abfss://container@account.dfs.core.windows.net/folder``. Credentials come from the
    environment, the user's profile or the machine's role, or are given as ``options`` (such as ``access_key``,
    ``secret_key``, ``region``, ``endpoint_override``) or behind a question mark in ``path``; they are never shown.

    For a warehouse in an object store, ``local`` is the directory for what writers keep on this machine (changelogs of
    writes that wait for their commit, hot tiers, locks), by default in the user's cache, and ``cache`` the folder for
    copies of data files. `docs/object-stores.md` says what a lost machine loses.

    Raises InvalidInputError INVALID_LOCATION, NOT_A_WAREHOUSE or NO_ACCESS; UnsupportedError UNSUPPORTED_PATH for a
    scheme of no object store, NO_CREATE_ONLY_PUT for a store on which commits would not be safe.
    """
    location = parse_location(path)
    if not location.is_local:
        from statestore.catalog.upkeep.store_objects import check_create_only
        from statestore.formats.places.object_clients import with_options

        found = Catalog(
            with_options(location, options or {}),
            local=None if local is None else os.fspath(local),
            cache=None if cache is None else os.fspath(cache),
        )
        check_create_only(found.object_storage())
        return found
    given = {"options": options, "local": local, "cache": cache}
    if useless := [name for name, value in given.items() if value is not None]:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"{useless[0]}={shown(given[useless[0]])} is for warehouses in object stores, and {location} is a local "
            "directory; leave it out",
        )
    root = Path(location.path)
    with disk_errors("make the directory", root):
        if os.path.lexists(root) and not root.is_dir():
            raise InvalidInputError(
                ErrorCode.NOT_A_WAREHOUSE,
                f"{root} is not a directory; expected a directory, or a path at which nothing exists yet",
            )
        make_directories(root)
    return Catalog(location)


def spec_of(
    name: str,
    kind: str = "versioned",
    *,
    key: Columns,
    value: Columns | None = None,
    serde: str = "natural",
    key_groups: int = 128,
    **options: Any,
) -> StoreSpec:
    """Return the description of a new store; arguments and errors are those of `Catalog.create_store`."""
    check_name(name)
    return new_spec(name, kind, (make_schema(key, "key"), value_schema(kind, value)), options, serde, key_groups)


class Catalog(NamedItems):
    """The stores of one warehouse, by name: a directory, or a folder in an object store."""

    def __init__(self, location: Location | Path, *, local: str | None = None, cache: str | None = None) -> None:
        self.location = location if isinstance(location, Location) else parse_location(location)
        self._local = local
        self._cache = cache

    @property
    def root(self) -> Path:
        """The directory of a local warehouse. Raises UnsupportedError UNSUPPORTED_PATH for another one."""
        if not self.location.is_local:
            raise not_local(self.location, "this needs")
        return Path(self.location.path)

    def object_storage(self, name: str = "") -> ObjectStorage:
        """Return the storage of a store of this warehouse, which is in an object store; "": of the warehouse."""
        location = self.location.at(name) if name else self.location
        storage = storage_at(location, local=self._local, cache=self._cache)
        assert not isinstance(storage, LocalStorage)
        return cast("ObjectStorage", storage)

    @overload
    def create_store(
        self,
        name: str,
        kind: Literal["versioned"] = "versioned",
        *,
        key: Columns,
        value: Columns,
        history_retention: Duration | None = None,
        segment_interval: Duration | None = None,
        serde: str = "natural",
        key_groups: int = 128,
    ) -> VersionedStore: ...

    @overload
    def create_store(
        self,
        name: str,
        kind: Literal["key_value"],
        *,
        key: Columns,
        value: Columns,
        serde: str = "natural",
        key_groups: int = 128,
    ) -> KeyValueStore: ...

    @overload
    def create_store(
        self,
        name: str,
        kind: Literal["window"],
        *,
        key: Columns,
        value: Columns,
        retention: Duration,
        window_size: Duration,
        segment_interval: Duration | None = None,
        retain_duplicates: bool | None = None,
        time_ordered: bool | None = None,
        serde: str = "natural",
        key_groups: int = 128,
    ) -> WindowStore: ...

    @overload
    def create_store(
        self,
        name: str,
        kind: Literal["join_window"],
        *,
        key: Columns,
        value: Columns,
        retention: Duration,
        window_before: Duration | None = None,
        window_after: Duration | None = None,
        num_segments: int | None = None,
        batched_changelog: bool | None = None,
        serde: str = "natural",
        key_groups: int = 128,
    ) -> JoinWindowStore: ...

    @overload
    def create_store(
        self,
        name: str,
        kind: Literal["session"],
        *,
        key: Columns,
        value: Columns,
        retention: Duration,
        segment_interval: Duration | None = None,
        serde: str = "natural",
        key_groups: int = 128,
    ) -> SessionStore: ...

    @overload
    def create_store(
        self,
        name: str,
        kind: Literal["keyed"],
        *,
        key: Columns,
        key_groups: int = 128,
    ) -> KeyedStore: ...

    @overload
    def create_store(
        self, name: str, kind: str, *, key: Columns, value: Columns | None = None, **options: Any
    ) -> Any: ...

    def create_store(
        self,
        name: str,
        kind: str = "versioned",
        *,
        key: Columns,
        value: Columns | None = None,
        serde: str = "natural",
        key_groups: int = 128,
        **options: Any,
    ) -> Any:
        """Create a store of the given ``kind`` and return it, open.

        The result is a `VersionedStore`, `KeyValueStore`, `WindowStore`, `JoinWindowStore`, `SessionStore` or
        `KeyedStore`. Column types are Spark or Arrow names, or pyarrow types. Durations are int milliseconds, timedelta
        or "30 days". The overloads above list the options of each kind. With ``serde`` "kafka", rows have the bytes and
        the order of Kafka Streams; with "natural", keys have the order of their type. A keyed store receives its value
        types when its states are registered.

        Raises InvalidInputError (STORE_EXISTS, WRONG_SCHEMA, INVALID_NAME, UNKNOWN_OPTION, MISSING_OPTION, …) or
        UnsupportedError.
        """
        return self.create_described(
            spec_of(name, kind, key=key, value=value, serde=serde, key_groups=key_groups, **options)
        )

    def create_described(self, spec: StoreSpec) -> Any:
        """Create the store of a new description and return it, open. Raises InvalidInputError STORE_EXISTS."""
        name = spec.name
        if not self.location.is_local:
            return self._create_objects(name, spec)
        if not (self.root / name).exists():
            undo_replacement(self.root, name)
        return self._create(self.root / name, spec)

    def rebuild(
        self,
        name: str,
        kind: str | None = None,
        *,
        serde: str | None = None,
        key_groups: int | None = None,
        spark: Any = None,
        **options: Any,
    ) -> Any:
        """Recreate a store by replaying its writes, with another kind, retention, segment interval or serde; return
        the new store.

        ``kind`` and further options are those of ``create_store``; an omitted option has the default of the kind. The
        old store stays until the new one is committed; a handle that is open on it has to be closed first. An
        unversioned store becomes versioned with the time of each commit as the time of its versions. A versioned store
        becomes unversioned in the order of commits: the last write of a key wins, even if it is older. A store that
        stays versioned has the same timelines, as the newest version believes them, so later puts have the same effect.
        A shorter retention refuses the records that were too old for it when they were committed.

        After an expiry the new store has the same horizon. What ended before it is not known, and not replayed; what is
        valid at the horizon is never too old. A key_value store has no horizon, because its times are new.

        With ``spark``, a SparkSession, its tasks replay ranges of keys and write their files where the new store lies,
        and one commit takes all of them in. A new store with a hot tier is replayed in this process, because it has one
        writer, and so is a store without versions that becomes one with a retention, which judges the writes in their
        order.

        Raises ConflictError STORE_LOCKED, REBUILD_OVERTAKEN if the store was written to meanwhile, FILES_TOO_OLD if it
        took longer than twelve hours in an object store, UnsupportedError REBUILD_KIND, and InvalidInputError as
        ``create_store`` does.
        """
        runs = None if spark is None else runs_of(spark)
        found = self.locate(name)[1]
        new_kind = kind or found.kind
        check_rebuild(found, new_kind)
        if not self.location.is_local:
            from statestore.catalog.upkeep import store_objects

            with self.open_store(name) as old:
                spec = old.spec
                schemas = spec.user_key, spec.value
                rebuilt = new_spec(name, new_kind, schemas, options, serde or spec.serde, key_groups or spec.key_groups)

                def make(storage: Storage) -> None:
                    with self._create_in(storage, rebuilt) as new:
                        replay_in_tasks(runs, old.table, new)

                store_objects.replace_store(self.object_storage(name), old._files, old.commit(), make)
                old._files.log.look_at = 0
            return self.open_store(name)
        with rebuilt_folder(self.root, name) as folder:
            with self.open_store(name) as old:
                spec = old.spec
                schemas = spec.user_key, spec.value
                rebuilt = new_spec(name, new_kind, schemas, options, serde or spec.serde, key_groups or spec.key_groups)
                version = old.commit()
                with self._create(folder, rebuilt) as new:
                    replay_in_tasks(runs, old.table, new)
            replace_store(self.root, name, folder, spec.store_id, version)
            old._files.log.look_at = 0  # other handles of this process look at once
        return self.open_store(name)

    def _names(self) -> list[str]:
        return self.stores()

    def _item(self, name: str) -> Any:
        return self.open_store(name)

    def _about(self) -> tuple[str, Facts]:
        title = f"Catalog({str(self.location)!r})"
        # In an object store that would be a request, which a text does not ask for.
        return title, [("stores", listed(self.stores()) or "none")] if self.location.is_local else []

    def _create(self, folder: Path, spec: StoreSpec) -> Any:
        """Create the store in ``folder`` and open it."""
        storage = LocalStorage(folder)
        if storage.exists(STORE_FILE):
            raise store_exists(spec.name, self.location)
        with disk_errors("make the directory", folder):
            folder.mkdir(exist_ok=True)
        spec = write_first_entry(storage, spec)
        try:
            storage.create(STORE_FILE, encode_spec(spec))
        except StorageExistsError:
            raise store_exists(spec.name, self.location) from None
        storage.settle(STORE_FILE)
        return open_handle(storage, spec)

    def _create_objects(self, name: str, spec: StoreSpec) -> Any:
        """Create a store in an object store and open it."""
        from statestore.catalog.upkeep.store_objects import place_for, stays

        root = self.object_storage(name)
        place = place_for(root, spec)
        if place is None:
            raise store_exists(spec.name, self.location)
        spec = self._describe(place.storage, place.spec)
        if not stays(root, place, spec):
            raise store_exists(spec.name, self.location)
        return open_handle(place.storage, spec)

    def _create_in(self, storage: Storage, spec: StoreSpec) -> Any:
        """Create a store in a place of an object store where none is, and open it."""
        return open_handle(storage, self._describe(storage, spec))

    def _describe(self, storage: Storage, spec: StoreSpec) -> StoreSpec:
        """Write version 0 of a new store and its description, by which it exists; return the description."""
        spec = write_first_entry(storage, spec)
        try:
            storage.create(STORE_FILE, encode_spec(spec))
        except StorageExistsError:
            raise store_exists(spec.name, self.location) from None
        return spec

    def open_store(
        self, name: str, *, auto_compact: AutoCompact = True, read_only: bool = False, takeover: bool = False
    ) -> Any:
        """Open a store with the methods of its kind (see ``create_store``) and recover the acknowledged writes of a
        crashed writer.

        ``auto_compact`` says who compacts: a thread of this process (True), a process of its own, which shares no
        interpreter with the commits ("process"), or nobody but `compact` (False). With ``read_only``, the handle never
        writes and does not keep another process from writing.

        A live store (every kind but keyed, and versioned with serde "natural") whose commits are in an object store has
        one writer among all machines, too. While it is not closed there, writing on another machine raises
        ConflictError STORE_LOCKED. ``takeover`` takes the store from a machine that is lost. What it acknowledged and
        did not commit is then not in the store.

        Raises NotFoundError STORE_NOT_FOUND, InvalidInputError INVALID_OPTION for ``takeover`` of another store.
        """
        storage, spec = self.locate(name)
        if takeover and (read_only or not spec.has_hot_tier):
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"store {name!r}: takeover=True is for writing to a live store in an object store; leave it out",
            )
        handle = open_handle(storage, spec, auto_compact=auto_compact, read_only=read_only)
        if takeover:
            live = cast(LiveStore, handle)
            try:
                live.take_over()
            except BaseException:
                live.close()
                raise
        return handle

    def store(
        self,
        name: str,
        kind: str | None = None,
        *,
        key: Columns | None = None,
        value: Columns | None = None,
        if_missing: Literal["error", "create"] = "error",
        **options: Any,
    ) -> Any:
        """Open the store that the arguments describe, and with ``if_missing="create"`` create it where it does not
        exist: a cell of a notebook can run twice.

        The other arguments are those of `create_store`, which must be so in a store that exists, and of `open_store`. A
        new store has the kind "versioned" where none is given.

        Raises NotFoundError STORE_NOT_FOUND with ``if_missing="error"``; InvalidInputError STORE_EXISTS for a store
        that differs, with both in the message, and as `create_store` does.
        """
        described = (kind, key, value)
        return chosen_store(self.locate, self.open_store, self.create_store, name, described, if_missing, options)

    def stores(self) -> list[str]:
        """Names of the stores, sorted."""
        return store_names(self.location)

    def drop_store(self, name: str) -> None:
        """Remove a store and everything in it. Handles that are open on it raise STORE_REPLACED from then on.

        Raises NotFoundError STORE_NOT_FOUND, ConflictError STORE_LOCKED while a live store is open for writing.
        """
        storage, spec = self.locate(name)
        if isinstance(storage, LocalStorage):
            remove_store(self.root, name)
        else:
            from statestore.catalog.upkeep import store_objects

            store_objects.remove_store(self.object_storage(name), cast("ObjectStorage", storage), spec)
        shared_files(storage, spec).log.look_at = 0  # handles of this process look at once

    def verify(self, name: str, *, spark: Any = None) -> Verification:
        """Check every checksum, log entry and invariant of a store. Damage is returned, not raised.

        With ``spark``, a SparkSession, its tasks check the data files, some each; the report is the same. A keyed store
        is checked in this process.

        Raises NotFoundError STORE_NOT_FOUND.
        """
        check_name(name)
        runs = None if spark is None else runs_of(spark)
        if not self.location.is_local:
            return verify_store(self.locate(name)[0], name, runs=runs)
        ((storage, _),) = stores_to_verify(self.location.uri, name)
        return verify_store(storage, name, runs=runs)

    def locate(self, name: str) -> tuple[Storage, StoreSpec]:
        """Return the storage and the description of an existing store."""
        return located(self.location, name, None if self.location.is_local else self.object_storage(name))
