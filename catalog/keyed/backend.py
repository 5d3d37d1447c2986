"""The keyed state backend: named states under a current key, for a range of key groups, in a local database.

The rules are those of Flink's ``RocksDBKeyedStateBackend``. One thread uses a backend; other threads write snapshots.
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Self, TypeAlias

import pyarrow as pa

from statestore.catalog.keyed.rows.database import LocalDatabase, Row
from statestore.catalog.keyed.rows.state_rows import (
    DUE_BYTES,
    GROUP_BYTES,
    group_bytes,
    prefix_decoder,
    prefix_encoder,
    state_rows,
)
from statestore.catalog.keyed.rows.state_spec import (
    StateDescriptor,
    StateKind,
    check_columns,
    check_name,
    migrated,
    widest,
)
from statestore.catalog.keyed.snapshots.restore_snapshot import converter, insert, link_database, opens_in_place
from statestore.catalog.keyed.snapshots.snapshot_log import SnapshotLog, shared_log
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind, SnapshotPart
from statestore.catalog.keyed.snapshots.take_snapshot import Running, start
from statestore.catalog.keyed.states import (
    Aggregate,
    AggregatingState,
    KeyedState,
    ListState,
    MapState,
    Reduce,
    ReducingState,
    ValueColumns,
    ValueState,
)
from statestore.catalog.keyed.timers import TimerState
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.segment_files import shared_files
from statestore.catalog.reads.shown import Facts, ShowsItself, listed, shown_columns
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.places.local_directory import LocalDirectory, take_directory
from statestore.formats.rocksdb.scan import scan_rocksdb
from statestore.formats.values.key_codec import KeyCodec
from statestore.formats.values.key_groups import key_group_function
from statestore.formats.values.types import make_schema

Type: TypeAlias = "str | pa.DataType"
Columns: TypeAlias = "Type | Mapping[str, Type] | pa.Schema | None"
"""Type of namespaces: one type, or columns by name; None: no namespaces."""


class KeyedBackend(ShowsItself):
    """States by name, for the keys of ``key_groups``; `KeyedStore.backend` opens one.

    Types are Spark or Arrow names, or pyarrow types. A state that is registered again under its name must have the same
    kind, and either the same types or types to which its rows can be migrated: structs with more fields, wider numbers.
    """

    def __init__(self, store: StoreSpec, key_groups: range, storage: Storage, local: LocalDirectory) -> None:
        self.key_groups = key_groups
        self._storage, self._store_id, self._key, self._local = storage, store.store_id, store.key, local
        self._files = shared_files(storage, store)
        self._forgotten = weakref.finalize(self, local.remove)
        self._base: tuple[int, SnapshotPart, str] | None = (
            None  # version and part of a snapshot, and the lineage of its files
        )
        self._running: list[Running] = []
        self._states: dict[str, StateDescriptor] = {}
        self._objects: dict[str, weakref.WeakSet[KeyedState]] = {}
        self._codec = KeyCodec(store.key)
        self._encode, self._decode = prefix_encoder(store.key), prefix_decoder(store.key)
        self._group = key_group_function(store.key, store.key_groups)
        self._current: bytes | None = None
        self._position = 0
        self.database: LocalDatabase

    @classmethod
    def opened(
        cls,
        store: StoreSpec,
        key_groups: range,
        storage: Storage,
        version: int | None,
        parts: Sequence[SnapshotPart],
        directory: str | Path | None,
    ) -> Self:
        """Open a backend with the rows that the parts of snapshot ``version`` have for the key groups.

        ``storage`` is the store's, ``directory`` is for local files. A failed call leaves no files.
        """
        local = take_directory(directory)
        backend = cls(store, key_groups, storage, local)
        try:
            backend._restore(version, parts)
        except BaseException:
            if hasattr(backend, "database"):
                backend.database.close()
            backend._remove_files()
            raise
        return backend

    def _restore(self, version: int | None, parts: Sequence[SnapshotPart]) -> None:
        self._states = widest(spec for part in parts for spec in part.states)
        self._position = max((part.next_position for part in parts), default=0)
        path = self._local.path / "database"
        if opens_in_place(parts, self.key_groups) and version is not None:
            link_database(self._storage, parts[0], path)
            self.database = LocalDatabase(path)
            self._base = version, parts[0], self.database.lineage
            return
        self.database = LocalDatabase(path, self._states)
        for part in parts:
            insert(self._storage, part, self._key, self.key_groups, self._states, self.database)

    # Keys

    def set_current_key(self, key: Any) -> None:
        """Set the key to which later calls refer, written as in the other stores.

        Raises InvalidInputError NULL_KEY, WRONG_KEY, or WRONG_KEY_GROUP for a key of another backend's groups.
        """
        group = self.key_group(key)
        if group not in self.key_groups:
            first, last = self.key_groups.start, self.key_groups.stop - 1
            raise InvalidInputError(
                ErrorCode.WRONG_KEY_GROUP,
                f"key {key!r} is of key group {group}; this backend has groups {first} to {last}: use "
                "the backend of that group",
            )
        self.database.check()
        self._current = group_bytes(group) + self._encode(key)

    def key_group(self, key: Any) -> int:
        """Return the key group of a key, which is Flink's for the types that Flink has too.

        Raises InvalidInputError NULL_KEY or WRONG_KEY.
        """
        return self._group(self._codec.normalize(key))

    def key_bytes(self) -> bytes:
        """Return the group and the current key as the beginning of stored keys.

        Raises InvalidInputError NO_CURRENT_KEY or BACKEND_CLOSED, NotFoundError STORE_REPLACED for a dropped store.
        """
        if perf_counter_ns() >= self._files.log.look_at:
            self._files.log.look()
        if self._current is None:
            self.database.check()
            raise InvalidInputError(ErrorCode.NO_CURRENT_KEY, "no current key; call set_current_key first")
        return self._current

    def next_position(self) -> int:
        """Return a list position behind all others."""
        self._position += 1
        return self._position

    def attach(self, state: KeyedState) -> None:
        """Register a state's object, so that it is notified when another registration migrates the state."""
        self._objects.setdefault(state.spec.name, weakref.WeakSet()).add(state)

    def keys(self, state: str, namespace: Any = None) -> Iterator[Any]:
        """Iterate over the keys that have rows in a state and namespace, in storage order: by key group.

        Later writes do not change the iteration. Raises NotFoundError STATE_NOT_FOUND, InvalidInputError NULL_KEY or
        WRONG_KEY for the namespace, NO_NAMESPACE for a namespace of a state without namespaces.
        """
        self.database.check()
        spec = self._spec(state)
        if namespace is not None and not len(spec.namespace):
            raise InvalidInputError(ErrorCode.NO_NAMESPACE, f"state {state!r} was registered without a namespace")
        rows, named = self.database.rows(state), state_rows(spec).namespace(namespace)
        return self._timed_keys(rows, named) if spec.kind == "timer" else self._keys_of(rows, named)

    def _keys_of(self, stored: Iterator[Row], user_key: bytes) -> Iterator[Any]:
        last = None
        for row, _ in stored:
            key, at = self._decode(row, GROUP_BYTES)
            if (
                row.startswith(user_key, at) and row[:at] != last
            ):  # the bytes of a namespace are never a prefix of another's
                last = row[:at]
                yield key

    def _timed_keys(self, stored: Iterator[Row], namespace: bytes) -> Iterator[Any]:
        """Yield each key once, at its first timer: the time comes before the key in stored keys of timers."""
        group, seen = b"", set[bytes]()
        begin = GROUP_BYTES + DUE_BYTES
        for row, _ in stored:
            if row[:GROUP_BYTES] != group:
                group, seen = row[:GROUP_BYTES], set()
            key, at = self._decode(row, begin)
            if row.startswith(namespace, at) and row[begin:at] not in seen:
                seen.add(row[begin:at])
                yield key

    def num_entries(self) -> int:
        """Count the rows of all states, one by one: a value, an element or an entry of a map is one row."""
        self.database.check()
        return sum(1 for state in self.database.states() for _ in self.database.rows(state))

    def states(self) -> list[str]:
        """Return the names of the states that were registered or restored."""
        self.database.check()
        return sorted(self._states)

    # States

    def value_state(self, name: str, type: Type, *, default: Any = None, namespace: Columns = None) -> ValueState:
        """Register a state with one value for each key (and namespace)."""
        return ValueState(self, self._register(name, "value", type, namespace), default)

    def list_state(self, name: str, type: Type, *, namespace: Columns = None) -> ListState:
        """Register a state with a list of elements for each key (and namespace)."""
        return ListState(self, self._register(name, "list", type, namespace))

    def map_state(self, name: str, key_type: Type, value_type: Type, *, namespace: Columns = None) -> MapState:
        """Register a state with a map for each key (and namespace), stored as a row for each entry."""
        return MapState(self, self._register(name, "map", value_type, namespace, key_type))

    def reducing_state(self, name: str, type: Type, reduce: Reduce, *, namespace: Columns = None) -> ReducingState:
        """Register a state whose values are reduced to one as they are added."""
        return ReducingState(self, self._register(name, "reducing", type, namespace), reduce)

    def aggregating_state(self, name: str, aggregate: Aggregate, *, namespace: Columns = None) -> AggregatingState:
        """Register a state whose values are added to an accumulator."""
        spec = self._register(name, "aggregating", aggregate.accumulator_type, namespace)
        return AggregatingState(self, spec, aggregate)

    def timer_state(self, name: str, *, namespace: Columns = None) -> TimerState:
        """Register a state of timers: times of keys (and namespaces), found by time, for whole columns."""
        spec = self._register(name, "timer", "boolean", namespace)
        return TimerState(self.database, self._key, self.key_groups, spec)

    def value_columns(self, name: str, type: Type) -> ValueColumns:
        """Register a value state for whole columns; it has the rows of `value_state` with this name and type."""
        return ValueColumns(self.database, self._key, self._register(name, "value", type, None))

    # Snapshots

    def snapshot(self, kind: SnapshotKind = "full") -> Running:
        """Write all rows as they are now to the store, while the backend continues to be used.

        An incremental snapshot names again the table files that the last confirmed one has (`notify_complete`).

        Raises InvalidInputError BACKEND_CLOSED or INVALID_OPTION, NotFoundError STORE_REPLACED for a dropped store.
        """
        if kind not in ("full", "incremental"):
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION, f"kind of snapshot is {kind!r}; expected full or incremental"
            )
        self.database.check()
        self._usable_base(kind)  # a dropped store is refused before anything is written
        linked = self._linked_files()
        try:
            base = self._usable_base(kind)  # after a disk failure the checkpoint may have other files
        except BaseException:
            shutil.rmtree(linked, ignore_errors=True)
            raise
        uid = self.database.lineage
        part = SnapshotPart(kind, uid, self.key_groups, tuple(self._states.values()), self._position, {}, {}, {})
        running = start(linked, self._storage, self._key, part, base, self)
        self._running = [other for other in self._running if not other.done()] + [running]
        return running

    def notify_complete(self, version: int) -> None:
        """Confirm that the store's snapshot ``version`` was committed.

        Later incremental snapshots build on this backend's part of it. The call is ignored for a version that is older
        than the newest confirmed one, that was discarded since, or that has no incremental part of this backend
        (Flink's ``notifyCheckpointComplete``). Raises InvalidInputError INVALID_VERSION.
        """
        self.database.check()
        if type(version) is not int:
            raise InvalidInputError(
                ErrorCode.INVALID_VERSION, f"version is {version!r}; expected an int, as commit returns it"
            )
        if self._base is not None and version <= self._base[0]:
            return
        entry = self._log().kept_snapshots().get(version)
        for part in () if entry is None else entry.parts:
            if part.backend == self.database.lineage and part.kind == "incremental":
                self._base = version, part, part.backend

    def _usable_base(self, kind: SnapshotKind) -> SnapshotPart | None:
        """Return the confirmed snapshot on which a new one may build; None if it was discarded, as its files may be
        gone.
        """
        kept_snapshots = self._log().kept_snapshots()
        if kind == "full" or self._base is None or self._base[0] not in kept_snapshots:
            return None
        _, part, lineage = self._base
        return part if lineage == self.database.lineage else None

    def _log(self) -> SnapshotLog:
        return shared_log(self._storage, self._store_id)

    def dispose(self) -> None:
        """Cancel running snapshots, close the backend, and remove the local files.

        Rows that are in no snapshot are lost. Every later call except this one raises InvalidInputError BACKEND_CLOSED.
        """
        if self.database.closed:
            return
        for running in self._running:
            running.cancel()
            with contextlib.suppress(Exception):
                running.result()
        self._current = None
        self.database.close()
        self._remove_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dispose()

    # Internals

    def _about(self) -> tuple[str, Facts]:
        if self.database.closed:
            return "keyed backend", [("closed", "open another one with store.backend()")]
        groups = f"{self.key_groups.start} to {self.key_groups.stop - 1}"
        version = "none" if self._base is None else str(self._base[0])
        facts = [("key", shown_columns(self._key)), ("key groups", groups), ("began with snapshot", version)]
        return f"keyed backend at {self._storage}", [*facts, ("states", listed(sorted(self._states)) or "none")]

    def _remove_files(self) -> None:
        self._forgotten.detach()
        self._local.remove()

    def _register(
        self, name: str, kind: StateKind, type: Type, namespace: Columns, user_key: Any = None
    ) -> StateDescriptor:
        """Register a state and return its description.

        Raises InvalidInputError INVALID_NAME, WRONG_SCHEMA or INCOMPATIBLE_STATE, UnsupportedError UNSUPPORTED_TYPE or
        UNSUPPORTED_KEY_TYPE.
        """
        value = make_schema({"value": type}, "value").field(0).type
        keys = None if user_key is None else make_schema({"user_key": user_key}, "key").field(0).type
        self.database.check()
        spec = StateDescriptor(check_name(name), kind, value, keys, _namespace_schema(namespace))
        check_columns(self._key, spec.namespace, name)
        state_rows(spec)  # refuses types that cannot be stored
        registered = self._states.get(name)
        if registered is None:
            self._check_case(name)
            self.database.create(name)
        elif migrated(registered, spec) is not None:
            self._migrate(registered, spec)
        self._states[name] = spec
        return spec

    def _check_case(self, name: str) -> None:
        """Refuse a name that differs from another only by case: SQL could not distinguish the tables."""
        alike = [other for other in self._states if other.lower() == name.lower()]
        if alike:
            raise InvalidInputError(
                ErrorCode.INVALID_NAME,
                f"state name {name!r}: there is a state {alike[0]!r}, and names in SQL "
                "ignore case; choose another name",
            )

    def _migrate(self, old: StateDescriptor, new: StateDescriptor) -> None:
        """Rewrite the rows of a state in its new type; if that fails, the backend is disposed of."""
        linked = self._linked_files()
        try:
            for rows in scan_rocksdb(linked, converter(self._key, old, new), family=old.name):
                self.database.load(old.name, rows)
        except BaseException:
            self.dispose()
            raise
        finally:
            shutil.rmtree(linked, ignore_errors=True)
        for state in self._objects.get(old.name, ()):
            state.adopt(new)

    def _linked_files(self) -> Path:
        path = self._local.path / f"snapshot-{uuid.uuid4().hex}"
        self.database.link_files(path)
        return path

    def _spec(self, name: str) -> StateDescriptor:
        if name not in self._states:
            listed = ", ".join(sorted(self._states)) or "none"
            raise NotFoundError(ErrorCode.STATE_NOT_FOUND, f"no state {name!r} is registered; registered are {listed}")
        return self._states[name]


def _namespace_schema(namespace: Columns) -> pa.Schema:
    if namespace is None:
        return pa.schema([])
    if isinstance(namespace, str | pa.DataType):
        namespace = {"namespace": namespace}
    return make_schema(namespace, "key")
