"""The keyed state backend: named states under a current key, for a range of key groups, in a local database.

The rules are those of Flink's ``RocksDBKeyedStateBackend``. One thread uses a backend.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.catalog.stores.keyed.database import LocalDatabase
from statestore.catalog.stores.keyed.restoring import insert, opens_in_place, place, specs_of
from statestore.catalog.stores.keyed.row_keys import (
    GROUP_BYTES,
    group_bytes,
    prefix_decoder,
    prefix_encoder,
    state_rows,
)
from statestore.catalog.stores.keyed.snapshot_handle import Handle, SnapshotKind
from statestore.catalog.stores.keyed.state_spec import Kind, StateSpec, check_name, migrated
from statestore.catalog.stores.keyed.states import (
    Aggregate,
    AggregatingState,
    ListState,
    MapState,
    Reduce,
    ReducingState,
    ValueState,
)
from statestore.catalog.stores.keyed.taking import Running, start
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.flink.key_groups import key_group_function
from statestore.formats.key_codec import KeyCodec
from statestore.formats.types import make_schema

Columns = Any


class KeyedBackend:
    """States by name. ``key_groups`` is the range of groups whose keys it takes."""

    def __init__(
        self,
        directory: Path,
        key: pa.Schema,
        key_groups: range,
        max_parallelism: int,
        folder: Path | None = None,
        restored: Sequence[Handle] = (),
    ) -> None:
        """``directory`` is for the local database, ``folder`` for snapshots; ``restored``: the parts of a snapshot to
        begin with. Fails without leaving anything."""
        self.key_groups = key_groups
        self._folder, self._key = folder, key
        self._uid = uuid.uuid4().hex
        self._base: tuple[int, Handle] | None = None
        self._running: list[Running] = []
        in_place = opens_in_place(restored, key_groups)
        if in_place and folder is not None:
            place(folder, restored[0], directory)
        self.database = LocalDatabase(directory)
        self._states: dict[str, StateSpec] = specs_of(restored)
        try:
            if not in_place and folder is not None:
                for name in self._states:
                    self.database.create(name)
                for handle in restored:
                    insert(folder, handle, key, key_groups, self.database)
        except BaseException:
            self.database.destroy()
            raise
        if in_place:
            self._uid, self._base = restored[0].backend, (-1, restored[0])
        self._codec = KeyCodec(key)
        self._encode, self._decode = prefix_encoder(key), prefix_decoder(key)
        self._group = key_group_function(key, max_parallelism)
        self._current: bytes | None = None
        self._place = max((handle.next_place for handle in restored), default=0)

    # Keys

    def set_current_key(self, key: Any) -> None:
        """What follows is about this key, written as in the other stores.

        Raises InvalidInputError NULL_KEY, WRONG_KEY, or WRONG_KEY_GROUP for a key of another backend's groups.
        """
        group = self._group(self._codec.normalize(key))
        if group not in self.key_groups:
            first, last = self.key_groups.start, self.key_groups.stop - 1
            raise InvalidInputError(
                "WRONG_KEY_GROUP",
                f"key {key!r} is of key group {group}; this backend has groups {first} to {last}: send it to the other",
            )
        self._current = group_bytes(group) + self._encode(key)

    def key_bytes(self) -> bytes:
        if self._current is None:
            raise InvalidInputError("NO_CURRENT_KEY", "no current key; call set_current_key first")
        return self._current

    def next_place(self) -> int:
        self._place += 1
        return self._place

    def keys(self, state: str, namespace: Any = None) -> Iterator[Any]:
        """The keys that have something in a state and namespace, in storage order: by key group.

        Raises NotFoundError STATE_NOT_FOUND.
        """
        rows = state_rows(self._spec(state))
        wanted = rows.namespace(namespace)
        last = None
        for row, _ in self.database.rows(state):
            key, at = self._decode(row, GROUP_BYTES)
            if row.startswith(wanted, at) and row[:at] != last:
                end = rows.namespace_of(row, at)[1]
                if row[at:end] == wanted:
                    last = row[:at]
                    yield key

    def num_entries(self) -> int:
        """Rows of all states, counted one by one: a value, an element or an entry of a map is one."""
        return sum(1 for state in self.database.states() for _ in self.database.rows(state))

    # States

    def value_state(self, name: str, type: Any, *, default: Any = None, namespace: Columns = None) -> ValueState:
        return ValueState(self, self._register(name, "value", type, namespace), default)

    def list_state(self, name: str, type: Any, *, namespace: Columns = None) -> ListState:
        return ListState(self, self._register(name, "list", type, namespace))

    def map_state(self, name: str, key_type: Any, value_type: Any, *, namespace: Columns = None) -> MapState:
        return MapState(self, self._register(name, "map", value_type, namespace, key_type))

    def reducing_state(self, name: str, type: Any, reduce: Reduce, *, namespace: Columns = None) -> ReducingState:
        return ReducingState(self, self._register(name, "reducing", type, namespace), reduce)

    def aggregating_state(self, name: str, aggregate: Aggregate, *, namespace: Columns = None) -> AggregatingState:
        spec = self._register(name, "aggregating", aggregate.accumulator_type, namespace)
        return AggregatingState(self, spec, aggregate)

    # Snapshots

    def snapshot(self, kind: SnapshotKind = "full") -> Running:
        """All rows as they are now, written to the store's folder while work goes on. An incremental snapshot names the
        table files again that the last confirmed one has (`notify_complete`).

        Raises InvalidInputError BACKEND_CLOSED.
        """
        if self._folder is None:
            raise InvalidInputError("NO_FOLDER", "this backend belongs to no store, so there is nowhere to write to")
        checkpoint = self.database.directory.with_name(f"{self.database.directory.name}-{uuid.uuid4().hex}")
        self.database.checkpoint(checkpoint)
        handle = Handle(kind, self._uid, self.key_groups, tuple(self._states.values()), self._place, {}, {}, {})
        running = start(checkpoint, self._folder, self._key, handle, None if self._base is None else self._base[1])
        self._running = [other for other in self._running if not other.done()] + [running]
        return running

    def notify_complete(self, version: int, handle: Handle) -> None:
        """The snapshot with ``handle`` was committed as ``version``: later ones may build on it. One that is older than
        the newest confirmed is ignored."""
        if handle.kind == "incremental" and (self._base is None or version > self._base[0]):
            self._base = version, handle

    def dispose(self) -> None:
        """Cancel running snapshots, close, and remove the local files; what was not in a snapshot is gone. Every later
        call raises."""
        for running in self._running:
            running.cancel()
            with contextlib.suppress(Exception):
                running.result()
        self.database.destroy()

    def _register(self, name: str, kind: Kind, type: Any, namespace: Columns, user_key: Any = None) -> StateSpec:
        """Raises InvalidInputError INVALID_NAME, INCOMPATIBLE_STATE, UnsupportedError UNSUPPORTED_TYPE."""
        value = make_schema({"value": type}, "value").field(0).type
        keys = None if user_key is None else make_schema({"user_key": user_key}, "key").field(0).type
        spec = StateSpec(check_name(name), kind, value, keys, _namespace_schema(namespace))
        known = self._states.get(name)
        if known is None:
            self.database.create(name)
        elif migrated(known, spec) is not None:
            self._migrate(known, spec)
        self._states[name] = spec
        return spec

    def _migrate(self, old: StateSpec, new: StateSpec) -> None:
        """Write the values of a state again, in its new type."""
        before, after = state_rows(old), state_rows(new)
        rows = list(self.database.rows(old.name))
        self.database.write(old.name, [(key, after.value(before.value_of(value))) for key, value in rows])

    def _spec(self, name: str) -> StateSpec:
        if name not in self._states:
            known = ", ".join(sorted(self._states)) or "none"
            raise NotFoundError("STATE_NOT_FOUND", f"no state {name!r} is registered; there are {known}")
        return self._states[name]


def _namespace_schema(namespace: Columns) -> pa.Schema:
    if namespace is None:
        return pa.schema([])
    if isinstance(namespace, str | pa.DataType):
        namespace = {"namespace": namespace}
    return make_schema(namespace, "key")
