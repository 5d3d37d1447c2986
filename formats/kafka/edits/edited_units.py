"""The rows of an edit, each with the record that holds it now.

A row is found by what its record decodes to, so that a key is edited under the bytes that the application gave it.
Rows are equal if their bits are: each column of the edit and of the records gets a number for each distinct cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import pack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.edits import StateEdit
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.kafka.changelogs.record_log import RecordLog
from statestore.formats.kafka.columns.store_kinds import logged_rows
from statestore.formats.kafka.edits.edited_store import EditedStore, present_records
from statestore.formats.kernels.arrays import Bools, Ints

_FLOATS = {pa.float16(): np.int16, pa.float32(): np.int32, pa.float64(): np.int64}


@dataclass(frozen=True)
class Stored:
    """Rows of now: the partition, key and value of their records, and the rows that these decode to."""

    partition: Ints
    key: pa.Array
    value: pa.Array
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.partition)

    def take(self, places: Ints) -> Stored:
        chosen = pa.array(places)
        return Stored(self.partition[places], self.key.take(chosen), self.value.take(chosen), self.rows.take(chosen))

    def milliseconds(self, name: str) -> Ints:
        """A column of times."""
        found: Ints = self.rows.column(name).cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
        return found


@dataclass(frozen=True)
class FoundRows:
    """The rows of an edit by what becomes of them: ``erased`` go, ``kept`` are replaced by the added rows at
    ``kept_by``, and the added rows at ``new`` have no record yet."""

    erased: Stored
    kept: Stored
    kept_by: Ints
    new: Ints


def found_rows(store: EditedStore, edit: StateEdit) -> FoundRows:
    """Return the rows of an edit with their records.

    Raises InvalidInputError EDIT_REFUSED where the rows that go are not those that are there, or where a row that comes
    would not be the only one of its key.
    """
    removed, added = (rows_of(store, table) for table in (edit.removed, edit.added))
    stored = _stored(store, _values(removed, added, store.unit[0]))
    gone, come, there = _codes([removed, added, stored.rows], store.unit)
    own = np.isin(there, np.concatenate([gone, come]))
    stored, there = stored.take(np.flatnonzero(own)), there[own]
    _check_removed(store, removed, added, stored)
    _check_added(store, added, stored, come, there)
    places = np.argsort(there, kind="stable")
    at = np.searchsorted(there[places], come)
    exists = np.zeros(len(come), bool)
    inside = at < len(there)
    exists[inside] = there[places[at[inside]]] == come[inside]
    kept_by = np.flatnonzero(exists)
    kept = stored.take(places[at[exists]] if len(kept_by) else np.empty(0, np.int64))
    return FoundRows(stored.take(np.flatnonzero(~np.isin(there, come))), kept, kept_by, np.flatnonzero(~exists))


def _stored(store: EditedStore, values: pa.Array | None) -> Stored:
    """The rows of now. ``values``: those that the first column of the edit may have; other rows are left out."""
    parts = [part for log in store.logs for part in _stored_in(store, log, values)]
    if not parts:
        nothing = pa.array([], pa.binary())
        return Stored(np.empty(0, np.int64), nothing, nothing, pa.RecordBatch.from_pylist([], store.schema))
    rows = pa.Table.from_batches([part.rows for part in parts]).combine_chunks()
    columns = [_one(column) for column in rows.columns]
    return Stored(
        np.concatenate([part.partition for part in parts]),
        pa.concat_arrays([part.key for part in parts]),
        pa.concat_arrays([part.value for part in parts]),
        pa.RecordBatch.from_arrays(columns, schema=store.schema),
    )


def _stored_in(store: EditedStore, log: RecordLog, values: pa.Array | None) -> Iterator[Stored]:
    for records in present_records(store, log):
        keys, timestamps, headers = records["key"], records["timestamp"], records["headers"]
        rows = logged_rows(store.form, keys, records["value"], timestamps, headers)
        if values is not None:
            rows = rows.filter(pc.is_in(rows.column(store.unit[0]), value_set=values))
        places = rows.column("record")
        own = rows.select(store.schema.names).cast(store.schema)
        yield Stored(np.full(len(rows), log.partition, np.int64), keys.take(places), records["value"].take(places), own)


def _check_removed(store: EditedStore, removed: pa.RecordBatch, added: pa.RecordBatch, stored: Stored) -> None:
    """Raise InvalidInputError EDIT_REFUSED unless the rows that go are those that are there."""
    gone, there = _codes([removed, stored.rows], store.schema.names)
    distinct, which = np.unique(np.concatenate([gone, there]), return_inverse=True)
    count = [np.bincount(part, minlength=len(distinct)) for part in (which[: len(gone)], which[len(gone) :])]
    wrong = count[0] != count[1]
    if not wrong.any():
        return
    at = int(np.flatnonzero(wrong[which])[0])
    row = removed.slice(at, 1) if at < len(gone) else stored.rows.slice(at - len(gone), 1)
    first, others = _codes([row, removed], store.unit)
    is_new = not np.isin(others, first).any()
    raise store.refused(
        f"a row with {_named(store, row)} is there already; change it, or delete it first"
        if is_new
        else f"the row with {_named(store, row)} is not there as the edit has it; read the state again, and state the "
        "edit anew"
    )


def _check_added(store: EditedStore, added: pa.RecordBatch, stored: Stored, come: Ints, there: Ints) -> None:
    """Raise InvalidInputError EDIT_REFUSED unless a row that comes is the only one of its key, and replaces one."""
    distinct, count = np.unique(come, return_counts=True)
    if (count > 1).any():
        raise store.refused(f"the edit adds {int(count.max())} rows with one {' and '.join(store.unit)}, expected one")
    several, count = np.unique(there[np.isin(there, distinct)], return_counts=True)
    if (count > 1).any():
        own = np.flatnonzero(there == several[count.argmax()])
        places = ", ".join(
            f"partition {stored.partition[each]} as {stored.key[int(each)].as_py().hex()}" for each in own
        )
        raise store.refused(f"a row that changes is there several times: {places}; delete the rows, or leave them")


def _named(store: EditedStore, row: pa.RecordBatch) -> str:
    [cells] = cells_of_rows(row, store.unit)
    return ", ".join(f"{name} = {shown(value, 60)}" for name, value in zip(store.unit, cells, strict=True))


def _values(removed: pa.RecordBatch, added: pa.RecordBatch, name: str) -> pa.Array | None:
    """The values of a column in both; None for a type that Arrow does not look up by its bits."""
    kind = removed.schema.field(name).type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_integer(kind)):
        return None
    return pa.concat_arrays([removed.column(name), added.column(name)])


def rows_of(store: EditedStore, table: pa.Table) -> pa.RecordBatch:
    """The rows of an edit in the columns of the store. Raises InvalidInputError WRONG_SCHEMA where one is missing."""
    missing = [name for name in store.schema.names if name not in table.column_names]
    if missing:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"{store.where}: the rows of the edit have no column {missing[0]}, expected "
            f"{', '.join(store.schema.names)}",
        )
    chosen = table.select(store.schema.names).cast(store.schema).combine_chunks()
    return pa.RecordBatch.from_arrays([_one(each) for each in chosen.columns], schema=store.schema)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


# Rows that are equal


def same_cells(one: pa.Array, other: pa.Array) -> Bools:
    """Return where the cells of two columns are equal in all bits."""
    first, second = _numbers([one, other])
    found: Bools = first == second
    return found


def _codes(batches: Sequence[pa.RecordBatch], names: Sequence[str]) -> list[Ints]:
    """A number for each row of some batches, equal where the rows are equal in these columns."""
    ends = np.cumsum([0, *map(len, batches)])
    columns = [[batch.column(name) for batch in batches] for name in names]
    whole = _combined([np.concatenate(_numbers(column)) for column in columns])
    return [whole[begin:end] for begin, end in pairwise(ends)]


def _combined(parts: Sequence[Ints]) -> Ints:
    """A number for each row, equal where the numbers of all parts are."""
    whole = parts[0]
    for numbers in parts[1:]:
        _, whole = np.unique(whole * (int(numbers.max(initial=0)) + 1) + numbers, return_inverse=True)
    return whole


def _numbers(columns: Sequence[pa.Array]) -> list[Ints]:
    """A number for each cell of some columns of one type, equal where all bits are."""
    ends = np.cumsum([0, *map(len, columns)])
    if not ends[-1]:
        return [np.empty(0, np.int64) for _ in columns]
    found = _cell_numbers(_plain(pa.concat_arrays(list(columns))))
    return [found[begin:end] for begin, end in pairwise(ends)]


def _cell_numbers(column: pa.Array) -> Ints:
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)
    if pa.types.is_struct(kind):
        valid = column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        return _combined([valid, *(_cell_numbers(_plain(part)) for part in column.flatten())])
    if pa.types.is_nested(kind):
        seen: dict[Any, int] = {}
        return np.array([seen.setdefault(_exact(cell), len(seen)) for cell in column.to_pylist()], np.int64)
    codes = column.dictionary_encode(null_encoding="encode").indices
    return np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)


def _plain(column: pa.Array) -> pa.Array:
    """A column of which equal cells have equal bits: times as numbers, floats as their bits."""
    if column.type in _FLOATS:
        bits = column.fill_null(0).to_numpy(zero_copy_only=False).view(_FLOATS[column.type])
        return pa.array(bits, mask=column.is_null().to_numpy(zero_copy_only=False))
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def cells_of_rows(rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The cells of these columns row by row, for messages; times in microseconds."""
    columns = (rows.column(name) for name in names)
    plain = (each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in columns)
    return zip(*(map(_exact, each.to_pylist()) for each in plain), strict=True)


def _exact(cell: Any) -> Any:
    """A value to compare and to hash, in which NaN equals itself and -0.0 is not 0.0."""
    if isinstance(cell, float):
        return pack(">d", cell)
    if isinstance(cell, dict):
        return tuple(map(_exact, cell.values()))
    return tuple(map(_exact, cell)) if isinstance(cell, list | tuple) else cell
