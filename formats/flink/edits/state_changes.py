"""An edit of a keyed state as changes of its stored entries.

An entry is what a stored key has: a value, an entry of a map, a timer, or a whole list. The rows of an edit are brought
together by entry. Those that take the place of others, or are new, are written in the bytes of Flink's serializers; the
key group of a new key follows from Java's hash code of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.edits import StateEdit
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.flink.columns.key_bytes import java_hash
from statestore.formats.flink.columns.value_bytes import plain_values, value_bytes
from statestore.formats.flink.columns.written_rows import NoBytesError
from statestore.formats.flink.serializers.flink_types import FlinkType, TimerOf
from statestore.formats.flink.serializers.type_names import shown
from statestore.formats.flink.streams.keyed_columns import prefix_width, stored_element
from statestore.formats.flink.streams.state_form import (
    KEY,
    LAST_ACCESS,
    MAP_KEY,
    MAP_VALUE,
    NAMESPACE,
    PLACEMENT,
    POSITION,
    TIMESTAMP,
    TIMESTAMP_MS,
    VALUE,
    KeyedForm,
    is_opaque,
)
from statestore.formats.kernels.arrays import Ints
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_groups import murmur_of
from statestore.formats.values.key_hash import hash_keys

_WHOLE = 0  # the position of the value in an entry that is no list
_PROCESSOR = "write it with Flink's State Processor API (SavepointWriter), which has the job's classes"


@dataclass(frozen=True)
class EntryChange:
    """What becomes of one entry: the positions that go, and the bytes of those that come, of a list by position.

    ``group`` is the key group of its key, None where that does not follow from the key, and ``key`` are the bytes of
    its stored key behind the key group, of entries that may be new.
    """

    row: Mapping[str, Any]
    removed: frozenset[int]
    added: Mapping[int, bytes]
    group: int | None = None
    key: bytes = b""

    @property
    def may_be_new(self) -> bool:
        """Return whether the entry need not be stored before the edit."""
        return not self.removed


@dataclass(frozen=True)
class StateChanges:
    """The changes of a state in ``form``, with what finds them among stored entries.

    ``names`` are the columns that tell entries apart, ``columns`` their values for each change, ``order`` and
    ``hashes`` the changes by the hashes of these.
    """

    form: KeyedForm
    groups: int
    origin: str
    names: tuple[str, ...]
    entries: tuple[EntryChange, ...]
    columns: tuple[pa.Array, ...] = field(repr=False)
    order: Ints = field(repr=False)
    hashes: npt.NDArray[np.uint64] = field(repr=False)

    @property
    def width(self) -> int:
        return prefix_width(self.groups)

    def found(self, columns: Mapping[str, pa.Array]) -> Ints:
        """The change of each stored entry, by the columns of its key; -1 where it has none."""
        mine = _comparable([columns[name] for name in self.names])
        hashes = hash_keys(mine)
        at = np.searchsorted(self.hashes, hashes)
        result = np.full(len(hashes), -1)
        rows = np.flatnonzero(at < len(self.hashes))
        while len(rows):
            rows = rows[self.hashes[at[rows]] == hashes[rows]]
            same = keys_equal(mine, rows, self.columns, self.order[at[rows]])
            result[rows[same]] = self.order[at[rows[same]]]
            rows = rows[~same]  # two keys have one hash
            at[rows] += 1
            rows = rows[at[rows] < len(self.hashes)]
        return result

    def new_in(self, group: int) -> Sequence[int]:
        """The changes in a key group whose entries may be new."""
        return [number for number, each in enumerate(self.entries) if each.group == group and each.may_be_new]


def entry_names(form: KeyedForm) -> tuple[str, ...]:
    """The columns that tell the entries of a state apart."""
    names = tuple(name for name in form.row_key if name != POSITION)
    return (*names, TIMESTAMP_MS) if form.kind == "timers" and TIMESTAMP_MS not in names else names


def state_changes(
    edit: StateEdit, form: KeyedForm, key: FlinkType | None, groups: int, columns: pa.Schema, origin: str
) -> StateChanges:
    """The changes that an edit makes to entries.

    ``key`` is the type of keys as stored, ``columns`` are those of the state. Raises UnsupportedError EDIT_UNSUPPORTED
    for values that cannot be written and for new keys whose key group is not known, InvalidInputError EDIT_REFUSED for
    rows that contradict each other.
    """
    schema = pa.schema([each for each in columns if each.name in form.schema.names and each.name not in PLACEMENT])
    names = entry_names(form)
    removed, added = (_in_columns(rows, schema, origin) for rows in (edit.removed, edit.added))
    both = pa.concat_tables([removed.select(names), added.select(names)]).combine_chunks()
    kept = [_column(both, name) for name in names]
    tokens = [tuple(map(_token, row)) for row in zip(*map(plain_values, kept), strict=True)]
    old, new = _rows(removed, names, form), _rows(added, None, form)
    positions: dict[Any, tuple[dict[int, Mapping[str, Any]], dict[int, Mapping[str, Any]]]] = {}
    first: dict[Any, int] = {}
    for number, token in enumerate(tokens):
        first.setdefault(token, number)
        gone, come = positions.setdefault(token, ({}, {}))
        is_old = number < len(old)
        row = old[number] if is_old else new[number - len(old)]
        place = _position(row, form, origin)
        if place in (gone if is_old else come):
            raise _refused(origin, f"the edit has two rows {_named(row, names)}, expected one")
        (gone if is_old else come)[place] = row
    written = _Written(form, key, groups, origin, names)
    entries = tuple(written.entry(gone, come) for gone, come in positions.values())
    chosen = pa.array(list(first.values()), pa.int64())
    values = tuple(_comparable([each.take(chosen) for each in kept]))
    hashes = hash_keys(values) if entries else np.empty(0, np.uint64)
    order = np.argsort(hashes, kind="stable")
    return StateChanges(form, groups, origin, names, entries, values, order, hashes[order])


def _in_columns(rows: pa.Table, schema: pa.Schema, origin: str) -> pa.Table:
    missing = [name for name in schema.names if name not in rows.schema.names]
    if missing:
        raise _refused(origin, f"the edit's rows have no column {missing[0]}, expected {', '.join(schema.names)}")
    try:
        return rows.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, TypeError) as error:
        raise _refused(origin, f"the edit's rows have other types than the state's: {error}") from error


def _column(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _comparable(columns: Sequence[pa.Array]) -> list[pa.Array]:
    return [comparable(each, by_bits=True) for each in columns]


def _rows(rows: pa.Table, names: Sequence[str] | None, form: KeyedForm) -> list[dict[str, Any]]:
    """The rows as dictionaries, of those that go only what places them."""
    wanted = rows.schema.names if names is None else [*names, *([POSITION] if _has_positions(form) else [])]
    values = [plain_values(_column(rows, name)) for name in wanted]
    return [dict(zip(wanted, each, strict=True)) for each in zip(*values, strict=True)]


def _has_positions(form: KeyedForm) -> bool:
    return form.kind == "list" and not form.whole


def _position(row: Mapping[str, Any], form: KeyedForm, origin: str) -> int:
    if not _has_positions(form):
        return _WHOLE
    place = row[POSITION]
    if place is None or place < 0:
        raise _refused(origin, f"a row has position {place}; give elements the positions 0, 1, 2 of their list")
    return int(place)


def _token(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _token(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_token, value))
    return value.hex() if isinstance(value, float) else value  # a zero of each sign; NaN


def _named(row: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{name}={row[name]!r:.80}" for name in names if name in row)


def _refused(origin: str, why: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.EDIT_REFUSED, f"{origin}: {why}")


def unsupported(origin: str, why: str) -> UnsupportedError:
    """The error EDIT_UNSUPPORTED about a state."""
    return UnsupportedError(ErrorCode.EDIT_UNSUPPORTED, f"{origin}: {why}")


def stored_value(form: KeyedForm, row: Mapping[str, Any]) -> bytes:
    """The bytes of the stored value of a row, of a list those of its element. Raises NoBytesError."""
    if form.kind == "timers":
        return b""
    value = row.get(MAP_VALUE if form.kind == "map" else VALUE)
    if form.has_ttl:
        value = {"value": value, LAST_ACCESS: row[LAST_ACCESS]}
    return value_bytes(stored_element(form), value)


@dataclass(frozen=True)
class _Written:
    """The means to write the entries of a state."""

    form: KeyedForm
    key: FlinkType | None
    groups: int
    origin: str
    names: Sequence[str]

    def entry(self, removed: Mapping[int, Mapping[str, Any]], added: Mapping[int, Mapping[str, Any]]) -> EntryChange:
        """The change of one entry, by the positions of its rows."""
        row = next(iter((added or removed).values()))
        bytes_of = {place: self._value(each) for place, each in added.items()}
        if removed:
            return EntryChange(row, frozenset(removed), bytes_of)
        return EntryChange(row, frozenset(), bytes_of, self._group(row), self._key(row))

    def _value(self, row: Mapping[str, Any]) -> bytes:
        if self.form.kind == "timers":
            millis, moment = row[TIMESTAMP_MS], row.get(TIMESTAMP)
            if millis is None or (moment is not None and moment != millis * 1000):
                why = f"a timer has timestamp_ms {millis} and timestamp {moment}; give both, and the same moment"
                raise _refused(self.origin, why)
            return b""
        return self._bytes("value", self.form.element, lambda: stored_value(self.form, row))

    def _group(self, row: Mapping[str, Any]) -> int:
        code = None if self.key is None or self.key != self.form.key else java_hash(self.key, row[KEY])
        if code is None:
            raise unsupported(
                self.origin,
                f"a new key cannot be added, because the key group of keys of {shown(self.form.key)} follows from a "
                f"hash code that no file has; {_PROCESSOR}, or change and remove rows of keys that are there",
            )
        return murmur_of(code) % self.groups

    def _key(self, row: Mapping[str, Any]) -> bytes:
        form = self.form
        if form.undivided:
            raise unsupported(self.origin, f"keys of {shown(form.key)} cannot be written; {_PROCESSOR}")
        if form.kind == "timers":
            timer = {"timestamp": row[TIMESTAMP_MS], "key": row.get(KEY), "namespace": row.get(NAMESPACE)}
            return self._bytes("key", form.stored, lambda: value_bytes(TimerOf(form.key, form.namespace), timer))
        parts = [self._part(form.key, row.get(KEY)), self._part(form.namespace, row.get(NAMESPACE))]
        if form.map_key is not None:
            map_key, row_value = form.map_key, row.get(MAP_KEY)
            parts.append(self._bytes("map_key", map_key, lambda: value_bytes(map_key, row_value)))
        return b"".join(parts)

    def _part(self, kind: FlinkType, value: Any) -> bytes:
        """The bytes of a key or namespace, and its length where stored keys have lengths."""
        octets = self._bytes("key", kind, lambda: value_bytes(kind, value))
        if not self.form.ambiguous:
            return octets
        size = max((len(octets).bit_length() + 7) // 8, 1)
        return octets + len(octets).to_bytes(size, "little")

    def _bytes(self, column: str, kind: FlinkType, write: Callable[[], bytes]) -> bytes:
        try:
            if is_opaque(kind):
                raise NoBytesError(f"values of {shown(kind)} are shown as bytes of the job's own serializer")
            return write()
        except NoBytesError as error:
            raise unsupported(
                self.origin, f"column {column}: {error}; {_PROCESSOR}, or remove whole rows, which needs no such bytes"
            ) from error
