"""Entries that an edit adds: the bytes of their keys and values, and the key groups in which Flink looks for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.flink.changelog.stored_entries import joined_bytes, length_bytes
from statestore.formats.flink.columns.column_bytes import column_bytes
from statestore.formats.flink.columns.key_bytes import java_hash
from statestore.formats.flink.columns.value_bytes import plain_values
from statestore.formats.flink.columns.written_rows import NoBytesError
from statestore.formats.flink.serializers.flink_types import Basic, FlinkType, SortedLong
from statestore.formats.flink.serializers.type_names import shown
from statestore.formats.flink.streams.keyed_columns import stored_element
from statestore.formats.flink.streams.state_form import (
    KEY,
    LAST_ACCESS,
    MAP_KEY,
    MAP_VALUE,
    NAMESPACE,
    TIMESTAMP,
    TIMESTAMP_MS,
    VALUE,
    KeyedForm,
    is_opaque,
)
from statestore.formats.kernels.arrays import Ints
from statestore.formats.values.key_groups import key_groups, murmur_of

_HASHED_AT_ONCE = ("string", "long", "int", "short", "byte", "boolean")
_PROCESSOR = "write it with Flink's State Processor API (SavepointWriter), which has the job's classes"


class NotWrittenError(Exception):
    """Rows that cannot be written; the message says why, and what to do."""


@dataclass(frozen=True)
class EntryWriter:
    """The means to write entries of a state; ``key`` is the type of keys as stored, ``groups`` the max parallelism."""

    form: KeyedForm
    key: FlinkType | None
    groups: int

    def values(self, rows: pa.Table) -> pa.BinaryArray:
        """The stored value of each row, of a list that of its element.

        Raises NotWrittenError, and ValueError for timers of two moments.
        """
        form, count = self.form, rows.num_rows
        if form.kind == "timers":
            _check_moments(rows)
            return pa.repeat(pa.scalar(b"", pa.binary()), count)
        return written_cells(self._name, form.element, stored_element(form), self.column(rows))

    @property
    def _name(self) -> str:
        return MAP_VALUE if self.form.kind == "map" else VALUE

    def column(self, rows: pa.Table) -> pa.Array:
        """The stored values as a column of their type, which has the time of the last access, too."""
        form = self.form
        column = _array(rows, self._name) if form.has_value else pa.nulls(rows.num_rows)
        if form.has_ttl:
            parts = {"value": column} if form.has_value else {}
            parts[LAST_ACCESS] = _array(rows, LAST_ACCESS)
            column = pa.StructArray.from_arrays(list(parts.values()), names=list(parts))
        return column

    def keys(self, rows: pa.Table) -> tuple[pa.BinaryArray, Ints]:
        """The stored key of each row behind the key group, and that group. Raises NotWrittenError."""
        form, count = self.form, rows.num_rows
        if not count:
            return pa.array([], pa.binary()), np.empty(0, np.int64)
        if form.undivided:
            raise NotWrittenError(f"keys of {shown(form.key)} cannot be written; {_PROCESSOR}")
        groups = self._groups(rows)
        parts: list[pa.Array] = []
        if form.kind == "timers":
            parts.append(written_cells(TIMESTAMP_MS, SortedLong(), SortedLong(), _array(rows, TIMESTAMP_MS)))
        for name, kind in ((KEY, form.key), (NAMESPACE, form.namespace)):
            column = _array(rows, name) if name in rows.schema.names else pa.nulls(count)
            parts.append(written_cells(name, kind, kind, column))
            if form.ambiguous:
                parts.append(length_bytes(parts[-1]))
        if form.map_key is not None:
            parts.append(written_cells(MAP_KEY, form.map_key, form.map_key, _array(rows, MAP_KEY)))
        return joined_bytes(parts), groups

    def _groups(self, rows: pa.Table) -> Ints:
        kind, column = self.form.key, _array(rows, KEY)
        if self.key == kind and isinstance(kind, Basic) and not kind.class_name and kind.name in _HASHED_AT_ONCE:
            if not column.null_count:
                return key_groups([column], self.groups)
        elif self.key == kind:
            codes = [java_hash(kind, each) for each in plain_values(column)]
            if None not in codes:
                return np.array([murmur_of(each) % self.groups for each in codes if each is not None], np.int64)
        raise NotWrittenError(
            f"a new key cannot be added, because the key group of keys of {shown(kind)} follows from a hash code that "
            f"no file has; {_PROCESSOR}, or change and remove rows of keys that are there"
        )


def _array(rows: pa.Table, name: str) -> pa.Array:
    found = rows.column(name).combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


def _check_moments(rows: pa.Table) -> None:
    pairs: Iterable[tuple[int | None, int | None]] = zip(
        plain_values(_array(rows, TIMESTAMP_MS)), plain_values(_array(rows, TIMESTAMP)), strict=True
    )
    for millis, moment in pairs:
        if millis is None or (moment is not None and moment != millis * 1000):
            told = f"timestamp_ms {millis} and timestamp {moment}"
            raise ValueError(f"a timer has {told}; give both, and the same moment")


def written_cells(name: str, shown_as: FlinkType, kind: FlinkType, column: pa.Array) -> pa.BinaryArray:
    """The bytes of each value of a column, of a type that is shown as another one where it cannot be decoded.

    Raises NotWrittenError.
    """
    try:
        if is_opaque(shown_as) and len(column):
            raise NoBytesError(f"values of {shown(shown_as)} are shown as bytes of the job's own serializer")
        return column_bytes(kind, column)
    except NoBytesError as error:
        raise NotWrittenError(
            f"column {name}: {error}; {_PROCESSOR}, or remove whole rows, which needs no such bytes"
        ) from error
