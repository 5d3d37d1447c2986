"""The five kinds of keyed state: what is stored under the backend's current key and the state's current namespace.

Their rules are those of Flink's ``RocksDBValueState``, ``RocksDBListState``, ``RocksDBMapState``,
``RocksDBReducingState`` and ``RocksDBAggregatingState``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from statestore.catalog.keyed.rows.database import LocalDatabase, Row
from statestore.catalog.keyed.rows.row_keys import ONLY, StateRows, place_bytes, state_rows
from statestore.catalog.keyed.rows.state_spec import StateDescriptor
from statestore.formats.errors import InvalidInputError

Reduce = Callable[[Any, Any], Any]


class Aggregate(Protocol):
    """What an aggregating state does with values (Flink's AggregateFunction)."""

    @property
    def accumulator_type(self) -> Any:
        """The type of accumulators, as a column's: a Spark or Arrow name, or a pyarrow type."""

    def create(self) -> Any:
        """A new accumulator."""

    def add(self, value: Any, accumulator: Any) -> Any:
        """The accumulator with a value more."""

    def result(self, accumulator: Any) -> Any:
        """What `AggregatingState.get` answers."""

    def merge(self, left: Any, right: Any) -> Any:
        """Two accumulators as one."""


class Owner(Protocol):
    """The backend, as its states see it."""

    database: LocalDatabase

    def key_bytes(self) -> bytes:
        """Group and current key, as stored keys begin. Raises InvalidInputError NO_CURRENT_KEY."""

    def next_place(self) -> int:
        """A place in lists behind all others."""

    def attach(self, state: KeyedState) -> None:
        """Have `KeyedState.adopt` called when the state is migrated."""


class KeyedState:
    """What all kinds have in common. ``clear`` removes what is under the current key and namespace."""

    def __init__(self, owner: Owner, spec: StateDescriptor) -> None:
        self._owner = owner
        self._database = owner.database
        self._namespace: bytes | None = None if len(spec.namespace) else b""
        self.adopt(spec)
        owner.attach(self)

    def adopt(self, spec: StateDescriptor) -> None:
        """The state's rows are as ``spec`` says from now on."""
        self.spec = spec
        self._rows: StateRows = state_rows(spec)

    def set_current_namespace(self, namespace: Any) -> None:
        """What follows is about this namespace: a value, or a mapping where it has several columns.

        Raises InvalidInputError NULL_KEY or WRONG_KEY.
        """
        if not len(self.spec.namespace):
            raise InvalidInputError("NO_NAMESPACE", f"state {self.spec.name!r} was registered without a namespace")
        self._namespace = self._rows.namespace(namespace)

    def clear(self) -> None:
        self._database.delete_prefix(self.spec.name, self._place())

    def _place(self) -> bytes:
        """What stored keys begin with here."""
        key = self._owner.key_bytes()
        if self._namespace is None:
            raise InvalidInputError(
                "NO_NAMESPACE", f"state {self.spec.name!r} has namespaces; call set_current_namespace first"
            )
        return key + self._namespace

    def _places_of(self, target: Any, sources: Iterable[Any]) -> tuple[bytes, list[bytes]]:
        """Those of two namespaces that are merged; each source once, and none that is the target."""
        key = self._owner.key_bytes()
        if not len(self.spec.namespace):
            raise InvalidInputError("NO_NAMESPACE", f"state {self.spec.name!r} was registered without a namespace")
        into = key + self._rows.namespace(target)
        places = dict.fromkeys(key + self._rows.namespace(source) for source in sources)
        return into, [place for place in places if place != into]


class _OneRow(KeyedState):
    """Kinds that store one value under a key and namespace."""

    def _stored(self, place: bytes) -> Any:
        """None where there is nothing: no value of these kinds is null."""
        found = self._database.get(self.spec.name, place + ONLY)
        return None if found is None else self._rows.value_of(found)

    def clear(self) -> None:
        self._database.delete(self.spec.name, self._place() + ONLY)

    def _store(self, place: bytes, value: Any) -> None:
        self._database.put(self.spec.name, place + ONLY, self._rows.value(_present(self.spec, value)))

    def _merged(self, target: Any, sources: Iterable[Any], merge: Reduce) -> None:
        """All that is in the sources is taken out of them and, with what is in the target, put there: at once, so
        that nothing is lost where ``merge`` fails."""
        into, places = self._places_of(target, sources)
        found = self._stored(into)
        taken = []
        for place in places:
            value = self._stored(place)
            if value is not None:
                taken.append(place + ONLY)
                found = value if found is None else merge(found, value)
        if taken:
            row = into + ONLY, self._rows.value(_present(self.spec, found))
            self._database.write(self.spec.name, [row], keys=taken)


class ValueState(_OneRow):
    """One value; ``default`` where none is set."""

    def __init__(self, owner: Owner, spec: StateDescriptor, default: Any = None) -> None:
        """Raises InvalidInputError WRONG_VALUE for a default that is not of the state's type."""
        super().__init__(owner, spec)
        # As bytes, so that nobody changes it who changes what `value` answered; of the type that it was given for.
        self._default = None if default is None else self._rows.value(default)
        self._default_of = self._rows.value_of

    def value(self) -> Any:
        found = self._database.get(self.spec.name, self._place() + ONLY)
        if found is not None:
            return self._rows.value_of(found)
        return None if self._default is None else self._default_of(self._default)

    def update(self, value: Any) -> None:
        """None clears."""
        if value is None:
            self.clear()
        else:
            self._store(self._place(), value)


class ReducingState(_OneRow):
    """The values added so far, reduced to one: ``reduce`` is called with what is stored, and the value as it was
    given."""

    def __init__(self, owner: Owner, spec: StateDescriptor, reduce: Reduce) -> None:
        super().__init__(owner, spec)
        self._reduce = reduce

    def get(self) -> Any:
        """None where nothing was added."""
        return self._stored(self._place())

    def add(self, value: Any) -> None:
        place = self._place()
        found = self._stored(place)
        given = _present(self.spec, value)
        self._store(place, given if found is None else self._reduce(found, given))

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        self._merged(target, sources, self._reduce)


class AggregatingState(_OneRow):
    """An accumulator of the values added so far; the aggregate gets values as they were given."""

    def __init__(self, owner: Owner, spec: StateDescriptor, aggregate: Aggregate) -> None:
        super().__init__(owner, spec)
        self._aggregate = aggregate

    def get(self) -> Any:
        """The result; None where nothing was added."""
        found = self._stored(self._place())
        return None if found is None else self._aggregate.result(found)

    def add(self, value: Any) -> None:
        place = self._place()
        found = self._stored(place)
        accumulator = self._aggregate.create() if found is None else found
        self._store(place, self._aggregate.add(_present(self.spec, value), accumulator))

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        self._merged(target, sources, self._aggregate.merge)


class ListState(KeyedState):
    """Elements in the order in which they were added, a row each, so that ``add`` never reads."""

    def get(self) -> list[Any]:
        """Nothing where nothing was added."""
        return [self._rows.value_of(value) for _, value in self._database.rows(self.spec.name, self._place())]

    def add(self, element: Any) -> None:
        self._database.put(self.spec.name, *self._row(self._place(), element))

    def add_all(self, elements: Iterable[Any]) -> None:
        place = self._place()
        self._database.write(self.spec.name, self._rows_of(place, elements))

    def update(self, elements: Iterable[Any]) -> None:
        """These elements in the place of all that are there."""
        place, name = self._place(), self.spec.name
        values = [self._rows.value(_present(self.spec, element)) for element in _given(self.spec, elements)]
        # Where others were: what reads a list goes through all its places that were given up.
        places = list(itertools.islice(self._database.keys(name, place), len(values)))
        places += [place + place_bytes(self._owner.next_place()) for _ in range(len(values) - len(places))]
        self._database.write(name, zip(places, values, strict=True), prefixes=[place])

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """The elements of the sources, one source after the other, behind those of the target."""
        into, places = self._places_of(target, sources)
        moved = [
            (into + place_bytes(self._owner.next_place()), value)
            for place in places
            for _, value in self._database.rows(self.spec.name, place)
        ]
        self._database.write(self.spec.name, moved, prefixes=places if moved else ())

    def _rows_of(self, place: bytes, elements: Iterable[Any]) -> list[Row]:
        """All of them, so that nothing is written where one is refused."""
        return [self._row(place, element) for element in _given(self.spec, elements)]

    def _row(self, place: bytes, element: Any) -> Row:
        stored = self._rows.value(_present(self.spec, element))
        return place + place_bytes(self._owner.next_place()), stored


class MapState(KeyedState):
    """A map; its values may be None, its keys not."""

    def get(self, key: Any) -> Any:
        """None where the key is not in the map."""
        found = self._database.get(self.spec.name, self._place() + self._rows.user_key(key))
        return None if found is None else self._rows.value_of(found)

    def put(self, key: Any, value: Any) -> None:
        self._database.put(self.spec.name, self._place() + self._rows.user_key(key), self._rows.value(value))

    def put_all(self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        place = self._place()
        pairs = entries.items() if isinstance(entries, Mapping) else _given(self.spec, entries)
        rows = [(place + self._rows.user_key(key), self._rows.value(value)) for key, value in pairs]
        self._database.write(self.spec.name, rows)

    def remove(self, key: Any) -> None:
        self._database.delete(self.spec.name, self._place() + self._rows.user_key(key))

    def contains(self, key: Any) -> bool:
        return self._database.get(self.spec.name, self._place() + self._rows.user_key(key)) is not None

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """(key, value), in the order of keys; what is changed while they are read does not change them."""
        place, rows = self._place(), self._rows
        found = self._database.rows(self.spec.name, place)
        return ((rows.user_key_of(key[len(place) :]), rows.value_of(value)) for key, value in found)

    def keys(self) -> Iterator[Any]:
        return (key for key, _ in self.entries())

    def values(self) -> Iterator[Any]:
        return (value for _, value in self.entries())

    def is_empty(self) -> bool:
        return next(self._database.rows(self.spec.name, self._place()), None) is None


def _given(spec: StateDescriptor, elements: Iterable[Any]) -> Iterable[Any]:
    if elements is None:
        raise InvalidInputError("NULL_VALUE", f"state {spec.name!r}: None is given; expected elements, none is []")
    return elements


def _present(spec: StateDescriptor, value: Any) -> Any:
    if value is None:
        raise InvalidInputError("NULL_VALUE", f"state {spec.name!r}: None cannot be added; expected a {spec.value}")
    return value
