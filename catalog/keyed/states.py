"""The five kinds of keyed state, stored under the backend's current key and the state's current namespace; and a value
state for whole columns.

Their rules are those of Flink's ``RocksDBValueState``, ``RocksDBListState``, ``RocksDBMapState``,
``RocksDBReducingState`` and ``RocksDBAggregatingState``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from statestore.catalog.keyed.rows.database import LocalDatabase, Row
from statestore.catalog.keyed.rows.state_rows import ONLY, StateRows, position_bytes, state_rows, stored_key
from statestore.catalog.keyed.rows.state_spec import StateDescriptor
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.serdes import natural_keys, natural_values
from statestore.formats.serdes.value_layout import ValueLayout, value_layout

Reduce = Callable[[Any, Any], Any]


class Aggregate(Protocol):
    """The functions of an aggregating state (Flink's AggregateFunction)."""

    @property
    def accumulator_type(self) -> Any:
        """The type of accumulators, as a column's: a Spark or Arrow name, or a pyarrow type."""

    def create(self) -> Any:
        """Return a new accumulator."""

    def add(self, value: Any, accumulator: Any) -> Any:
        """Return the accumulator with one more value."""

    def result(self, accumulator: Any) -> Any:
        """Return the result of `AggregatingState.get`."""

    def merge(self, left: Any, right: Any) -> Any:
        """Return two accumulators merged into one."""


class Owner(Protocol):
    """The interface of a backend to its states."""

    database: LocalDatabase

    def key_bytes(self) -> bytes:
        """Return the group and the current key as the beginning of stored keys. Raises InvalidInputError
        NO_CURRENT_KEY.
        """

    def next_position(self) -> int:
        """Return a list position behind all others."""

    def attach(self, state: KeyedState) -> None:
        """Register a state, so that `KeyedState.adopt` is called when it is migrated."""


class KeyedState:
    """The base of all kinds. ``clear`` removes the rows under the current key and namespace."""

    def __init__(self, owner: Owner, spec: StateDescriptor) -> None:
        self._owner = owner
        self._database = owner.database
        self._namespace: bytes | None = None if len(spec.namespace) else b""
        self.adopt(spec)
        owner.attach(self)

    def adopt(self, spec: StateDescriptor) -> None:
        """Read and write the state's rows as ``spec`` describes them from now on."""
        self.spec = spec
        self._rows: StateRows = state_rows(spec)

    def set_current_namespace(self, namespace: Any) -> None:
        """Set the namespace to which later calls refer: a value, or a mapping where it has several columns.

        Raises InvalidInputError NULL_KEY or WRONG_KEY, and NO_NAMESPACE for a state without namespaces.
        """
        if not len(self.spec.namespace):
            raise InvalidInputError(
                ErrorCode.NO_NAMESPACE, f"state {self.spec.name!r} was registered without a namespace"
            )
        self._namespace = self._rows.namespace(namespace)

    def clear(self) -> None:
        self._database.delete_prefix(self.spec.name, self._row_prefix())

    def _row_prefix(self) -> bytes:
        """Return the beginning of stored keys under the current key and namespace."""
        key = self._owner.key_bytes()
        if self._namespace is None:
            raise InvalidInputError(
                ErrorCode.NO_NAMESPACE, f"state {self.spec.name!r} has namespaces; call set_current_namespace first"
            )
        return key + self._namespace

    def _prefixes_of(self, target: Any, sources: Iterable[Any]) -> tuple[bytes, list[bytes]]:
        """Return the beginnings of stored keys of the merged namespaces: the target's, and each source's once, without
        the target.
        """
        key = self._owner.key_bytes()
        if not len(self.spec.namespace):
            raise InvalidInputError(
                ErrorCode.NO_NAMESPACE, f"state {self.spec.name!r} was registered without a namespace"
            )
        into = key + self._rows.namespace(target)
        prefixes = dict.fromkeys(key + self._rows.namespace(source) for source in sources)
        return into, [prefix for prefix in prefixes if prefix != into]


class _OneRow(KeyedState):
    """A kind that stores one value under a key and namespace."""

    def _stored(self, prefix: bytes) -> Any:
        """Return the stored value; None if there is none, as no value of these kinds is null."""
        encoded = self._database.get(self.spec.name, prefix + ONLY)
        return None if encoded is None else self._rows.value_of(encoded)

    def clear(self) -> None:
        self._database.delete(self.spec.name, self._row_prefix() + ONLY)

    def _store(self, prefix: bytes, value: Any) -> None:
        self._database.put(self.spec.name, prefix + ONLY, self._rows.value(_present(self.spec, value)))

    def _merged(self, target: Any, sources: Iterable[Any], merge: Reduce) -> None:
        """Move the values of the sources to the target, merged with the target's value.

        One write does it, so that nothing is lost if ``merge`` fails.
        """
        into, prefixes = self._prefixes_of(target, sources)
        merged = self._stored(into)
        taken = []
        for prefix in prefixes:
            value = self._stored(prefix)
            if value is not None:
                taken.append(prefix + ONLY)
                merged = value if merged is None else merge(merged, value)
        if taken:
            row = into + ONLY, self._rows.value(_present(self.spec, merged))
            self._database.write(self.spec.name, [row], keys=taken)


class ValueState(_OneRow):
    """One value; ``default`` if none is set."""

    def __init__(self, owner: Owner, spec: StateDescriptor, default: Any = None) -> None:
        """Raise InvalidInputError WRONG_VALUE for a default that is not of the state's type."""
        super().__init__(owner, spec)
        # The default is kept as bytes, so that callers cannot change it through the result of `value`, and with the
        # type for which it was given.
        self._default = None if default is None else self._rows.value(default)
        self._default_of = self._rows.value_of

    def value(self) -> Any:
        encoded = self._database.get(self.spec.name, self._row_prefix() + ONLY)
        if encoded is not None:
            return self._rows.value_of(encoded)
        return None if self._default is None else self._default_of(self._default)

    def update(self, value: Any) -> None:
        """Set the value; None clears it."""
        if value is None:
            self.clear()
        else:
            self._store(self._row_prefix(), value)


class ReducingState(_OneRow):
    """One value, the reduction of all added values: ``reduce`` is called with the stored value and the given one."""

    def __init__(self, owner: Owner, spec: StateDescriptor, reduce: Reduce) -> None:
        super().__init__(owner, spec)
        self._reduce = reduce

    def get(self) -> Any:
        """Return the reduced value; None if nothing was added."""
        return self._stored(self._row_prefix())

    def add(self, value: Any) -> None:
        prefix = self._row_prefix()
        stored = self._stored(prefix)
        added = _present(self.spec, value)
        self._store(prefix, added if stored is None else self._reduce(stored, added))

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        self._merged(target, sources, self._reduce)


class AggregatingState(_OneRow):
    """An accumulator of the values added so far; the aggregate gets values as they were given."""

    def __init__(self, owner: Owner, spec: StateDescriptor, aggregate: Aggregate) -> None:
        super().__init__(owner, spec)
        self._aggregate = aggregate

    def get(self) -> Any:
        """Return the result; None if nothing was added."""
        accumulator = self._stored(self._row_prefix())
        return None if accumulator is None else self._aggregate.result(accumulator)

    def add(self, value: Any) -> None:
        prefix = self._row_prefix()
        stored = self._stored(prefix)
        accumulator = self._aggregate.create() if stored is None else stored
        self._store(prefix, self._aggregate.add(_present(self.spec, value), accumulator))

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        self._merged(target, sources, self._aggregate.merge)


class ListState(KeyedState):
    """Elements in the order in which they were added, with a row for each, so that ``add`` never reads."""

    def get(self) -> list[Any]:
        """Return the elements; an empty list if nothing was added."""
        return [self._rows.value_of(value) for _, value in self._database.rows(self.spec.name, self._row_prefix())]

    def add(self, element: Any) -> None:
        self._database.put(self.spec.name, *self._row(self._row_prefix(), element))

    def add_all(self, elements: Iterable[Any]) -> None:
        prefix = self._row_prefix()
        self._database.write(self.spec.name, self._rows_of(prefix, elements))

    def update(self, elements: Iterable[Any]) -> None:
        """Replace all elements by these."""
        prefix, name = self._row_prefix(), self.spec.name
        values = [self._rows.value(_present(self.spec, element)) for element in _given(self.spec, elements)]
        # Positions are reused, because reading a list passes all its positions that were given up.
        stored_keys = list(itertools.islice(self._database.keys(name, prefix), len(values)))
        stored_keys += [
            prefix + position_bytes(self._owner.next_position()) for _ in range(len(values) - len(stored_keys))
        ]
        self._database.write(name, zip(stored_keys, values, strict=True), prefixes=[prefix])

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Move the elements of the sources, one source after the other, behind those of the target."""
        into, prefixes = self._prefixes_of(target, sources)
        moved = [
            (into + position_bytes(self._owner.next_position()), value)
            for prefix in prefixes
            for _, value in self._database.rows(self.spec.name, prefix)
        ]
        self._database.write(self.spec.name, moved, prefixes=prefixes if moved else ())

    def _rows_of(self, prefix: bytes, elements: Iterable[Any]) -> list[Row]:
        """Encode all elements before any is written, so that nothing is written if one is refused."""
        return [self._row(prefix, element) for element in _given(self.spec, elements)]

    def _row(self, prefix: bytes, element: Any) -> Row:
        stored = self._rows.value(_present(self.spec, element))
        return prefix + position_bytes(self._owner.next_position()), stored


class MapState(KeyedState):
    """A map; its values may be None, its keys not."""

    def get(self, key: Any) -> Any:
        """Return the value of a key; None if the key is not in the map."""
        encoded = self._database.get(self.spec.name, self._row_prefix() + self._rows.user_key(key))
        return None if encoded is None else self._rows.value_of(encoded)

    def put(self, key: Any, value: Any) -> None:
        self._database.put(self.spec.name, self._row_prefix() + self._rows.user_key(key), self._rows.value(value))

    def put_all(self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        prefix = self._row_prefix()
        pairs = entries.items() if isinstance(entries, Mapping) else _given(self.spec, entries)
        rows = [(prefix + self._rows.user_key(key), self._rows.value(value)) for key, value in pairs]
        self._database.write(self.spec.name, rows)

    def remove(self, key: Any) -> None:
        self._database.delete(self.spec.name, self._row_prefix() + self._rows.user_key(key))

    def contains(self, key: Any) -> bool:
        return self._database.get(self.spec.name, self._row_prefix() + self._rows.user_key(key)) is not None

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over (key, value) in the order of keys; later writes do not change the iteration."""
        prefix, rows = self._row_prefix(), self._rows
        rows_found = self._database.rows(self.spec.name, prefix)
        return ((rows.user_key_of(key[len(prefix) :]), rows.value_of(value)) for key, value in rows_found)

    def keys(self) -> Iterator[Any]:
        return (key for key, _ in self.entries())

    def values(self) -> Iterator[Any]:
        return (value for _, value in self.entries())

    def is_empty(self) -> bool:
        return next(self._database.rows(self.spec.name, self._row_prefix()), None) is None


@dataclass(frozen=True)
class ValueColumns:
    """A value state without namespaces, addressed by its `stored_keys`."""

    database: LocalDatabase
    key: pa.Schema
    spec: StateDescriptor

    def stored_keys(self, groups: Ints, keys: Sequence[pa.Array]) -> pa.Array:
        """Return the stored key of each row of the key columns, whose key groups are ``groups``."""
        ones = pa.array(np.zeros(len(groups), np.int8))
        columns = [pa.array(groups.astype(np.int16)), *keys, ones]
        return natural_keys.keys_to_bytes(stored_key(self.key, self.spec), columns)

    def get(self, stored: pa.Array) -> pa.Array:
        """Return the value of each stored key; null if there is none."""
        found = pa.array(self.database.get_many(self.spec.name, stored.to_pylist()), pa.binary())
        there = found.is_valid().to_numpy(zero_copy_only=False)
        (values,) = natural_values.values_from_bytes(self._layout(), found.drop_null())
        if there.all():
            return values
        return values.take(pa.array(np.cumsum(there) - 1, pa.int64(), mask=~there))

    def put(self, stored: pa.Array, values: pa.Array) -> None:
        """Write values without nulls."""
        rows = natural_values.values_to_bytes(self._layout(), [values])
        self.database.load(self.spec.name, pa.RecordBatch.from_arrays([stored, rows], names=["key", "value"]))

    def remove(self, stored: pa.Array) -> None:
        """Remove the values of stored keys, which may have none."""
        self.database.write(self.spec.name, [], keys=stored.to_pylist())

    def _layout(self) -> ValueLayout:
        return value_layout(pa.schema([pa.field("value", self.spec.value)]))


def _given(spec: StateDescriptor, elements: Iterable[Any]) -> Iterable[Any]:
    if elements is None:
        raise InvalidInputError(
            ErrorCode.NULL_VALUE, f"state {spec.name!r}: None is given; expected elements, or [] for none"
        )
    return elements


def _present(spec: StateDescriptor, value: Any) -> Any:
    if value is None:
        raise InvalidInputError(
            ErrorCode.NULL_VALUE, f"state {spec.name!r}: None cannot be added; expected a {spec.value}"
        )
    return value
