"""A table as one input of a join or an aggregation: the newest value of each key, versioned or not (KIP-914)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from statestore.catalog.stores.live.key_value import KeyValueStore
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.serdes.row_serde import row_serde
from statestore.formats.values.times import Time, from_us, to_us

EVENT_TIME = "event_time"  # the column of a key-value store that holds the time of its value


class Emitted(NamedTuple):
    """A record that an operator emits; ``value`` None is a tombstone, ``timestamp`` epoch milliseconds."""

    key: Any
    value: Any
    timestamp: int


@dataclass(frozen=True)
class Change:
    """The effect of a record on a table.

    ``old`` is the key's newest value before the record, ``new`` is the record's own value, and ``is_latest`` is whether
    it is the newest now.
    """

    old: Any
    new: Any
    is_latest: bool


class TableSide(Protocol):
    """A table as an input of operators. Times are epoch milliseconds."""

    @property
    def is_versioned(self) -> bool: ...

    @property
    def history_retention(self) -> int | None:
        """The age up to which ``at`` has values, milliseconds; None: unlimited."""

    def put(self, key: Any, value: Any, timestamp: int) -> Change | None:
        """Take in a record (None deletes) and return its effect; None if it is too late and the table refuses it."""

    def newest(self, key: Any) -> tuple[Any, int] | None:
        """Return (value, timestamp) of the key's newest version; None if the key is deleted or never existed."""

    def at(self, key: Any, timestamp: int) -> Any:
        """Return the value with which a stream record of that time is joined; None if there is none."""

    def key_bytes(self, key: Any) -> bytes:
        """Return the key in the bytes by which the store's serde orders it. Raises InvalidInputError WRONG_KEY."""


def table_side(store: Any) -> TableSide:
    """Return the side of an open store: versioned, or key-value with a value column ``event_time`` (bigint) for the
    times.

    Raises UnsupportedError JOIN_KIND for other kinds, InvalidInputError WRONG_SCHEMA without that column.
    """
    if isinstance(store, VersionedStore):
        return VersionedSide(store)
    if isinstance(store, KeyValueStore):
        names = store.spec.value.names
        if EVENT_TIME not in names or len(names) < 2:
            raise InvalidInputError(
                ErrorCode.WRONG_SCHEMA,
                f"store {store.name!r} has the value columns {', '.join(names)}; as a table it needs one more: "
                "`event_time` of type bigint, for the time of each value",
            )
        return CurrentSide(store)
    raise UnsupportedError(ErrorCode.JOIN_KIND, f"{store!r} is not a table; expected a versioned or key-value store")


@dataclass(frozen=True)
class VersionedSide:
    """A versioned store: a stream record meets the value of its own time, and late records do not change the newest
    value.
    """

    store: Any

    @property
    def is_versioned(self) -> bool:
        return True

    @property
    def history_retention(self) -> int | None:
        retention: int | None = self.store.spec.history_retention
        return retention

    def put(self, key: Any, value: Any, timestamp: int) -> Change | None:
        before = self.store.get(key)
        result = self.store.put(key, value, timestamp)
        if not result.accepted:
            return None
        return Change(None if before is None else before.value, value, result.valid_to is None)

    def newest(self, key: Any) -> tuple[Any, int] | None:
        row = self.store.get(key)
        return None if row is None else (row.value, row.valid_from)

    def at(self, key: Any, timestamp: int) -> Any:
        row = self.store.get(key, timestamp)
        return None if row is None else row.value

    def key_bytes(self, key: Any) -> bytes:
        return _key_bytes(self.store, key)


@dataclass(frozen=True)
class CurrentSide:
    """A key-value store: only the newest value by arrival, regardless of its time."""

    store: KeyValueStore

    @property
    def is_versioned(self) -> bool:
        return False

    @property
    def history_retention(self) -> int | None:
        return None

    def put(self, key: Any, value: Any, timestamp: int) -> Change | None:
        before = self.newest(key)
        self.store.put(key, None if value is None else self._cells(value, timestamp), timestamp)
        return Change(None if before is None else before[0], value, True)

    def newest(self, key: Any) -> tuple[Any, int] | None:
        row = self.store.get(key)
        if row is None:
            return None
        values = {name: cell for name, cell in row.items() if name != EVENT_TIME}
        return (next(iter(values.values())) if len(values) == 1 else values), row[EVENT_TIME]

    def at(self, key: Any, timestamp: int) -> Any:
        row = self.newest(key)
        return None if row is None else row[0]

    def key_bytes(self, key: Any) -> bytes:
        return _key_bytes(self.store, key)

    def _cells(self, value: Any, timestamp: int) -> dict[str, Any]:
        names = [name for name in self.store.spec.value.names if name != EVENT_TIME]
        if isinstance(value, dict):
            return {**value, EVENT_TIME: timestamp}
        if len(names) > 1:
            return {**dict(zip(names, value, strict=True)), EVENT_TIME: timestamp}
        return {names[0]: value, EVENT_TIME: timestamp}


def _key_bytes(store: Any, key: Any) -> bytes:
    spec = store.spec
    return row_serde(spec.serde, spec.user_key, spec.value).key_bytes(key)


def milliseconds(time: Time) -> int:
    """Return a record's time as epoch milliseconds. Raises InvalidInputError like every put."""
    return from_us(to_us(time, "timestamp"))
