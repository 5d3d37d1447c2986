"""The as-of join by DuckDB's own ASOF JOIN. It returns the same rows, and uses DuckDB's threads and spilling.

Keys are replaced by numbers first. DuckDB 1.4 finds only some of the rows of an ASOF JOIN by a struct, and floats must
be compared as everywhere else in this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.connector.asof import join_on_arrow as arrow_engine
from statestore.connector.asof.join_on_arrow import left_times, prepared_keys, result_schema, whole
from statestore.connector.asof.join_request import AsofRequest
from statestore.connector.duckdb.attach import connect
from statestore.connector.identifiers import quoted
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.interrupts import stoppable
from statestore.formats.values.comparison import has_floats
from statestore.formats.values.exact_cast import retyped
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.types import TIME

ROW, MOMENT, KEY = "__statestore_row", "__statestore_moment", "__statestore_key"


def join_table(left: pa.Table, request: AsofRequest) -> pa.Table:
    """Join like `statestore.connector.asof.join_on_arrow.join_table`, which joins values that DuckDB does not keep."""
    numbered_rows = _known_rows(left, request) if _keeps(request.added_schema()) else None
    if numbered_rows is None or not numbered_rows[1].num_rows:
        return arrow_engine.join_table(left, request)
    keys, rows = numbered_rows
    schema = result_schema(left.schema, request)
    with connect() as connection:
        connection.register("left_side", rows)
        connection.register("history", _history(rows, keys, request))
        holds = "(h.valid_to IS NULL OR (l.{m} < h.valid_to{floor}))".format(
            m=quoted(MOMENT),
            floor="" if request.floor is None else f" AND epoch_us(l.{quoted(MOMENT)}) >= {request.floor}",
        )
        added = ", ".join(f"h.{quoted(name)} AS {quoted(shown)}" for name, shown in request.added)
        statement = f"""
            SELECT l.{quoted(ROW)}, {added} FROM left_side l ASOF JOIN history h
            ON l.{quoted(KEY)} = h.{quoted(KEY)}
            AND l.{quoted(MOMENT)} >= coalesce(h.valid_from, '-infinity'::TIMESTAMPTZ)
            WHERE {holds} ORDER BY l.{quoted(ROW)}
        """
        joined = stoppable(lambda: connection.sql(statement).to_arrow_table(), connection.interrupt)
    return _put_beside(left, joined, request, schema)


def _keeps(schema: pa.Schema) -> bool:
    """Return whether DuckDB hands out values of these types as it takes them.

    It makes an interval of a duration. Its as-of join makes 0.0 of -0.0 inside structs and lists (DuckDB 2.0.1).
    """
    with connect() as connection:
        connection.register("nothing", schema.empty_table())
        returned = connection.sql("FROM nothing").to_arrow_table().schema if len(schema) else schema
    pairs = zip(schema.types, returned.types, strict=True)
    return all(_is_kept(ours, theirs) for ours, theirs in pairs)


def _is_kept(ours: pa.DataType, theirs: pa.DataType) -> bool:
    if ours.num_fields:
        if has_floats(ours):
            return False
        members = [(ours.field(n).type, theirs.field(n).type) for n in range(min(ours.num_fields, theirs.num_fields))]
        return ours.id == theirs.id and len(members) == ours.num_fields and all(_is_kept(*pair) for pair in members)
    if pa.types.is_timestamp(ours) and pa.types.is_timestamp(theirs):
        return bool(ours.unit == theirs.unit and (ours.tz is None) == (theirs.tz is None))
    return bool(ours == theirs)


def _known_rows(left: pa.Table, request: AsofRequest) -> tuple[_KeyNumbers, pa.Table] | None:
    """The keys of the left rows that can meet a version, and a table with the position, moment and key number of these
    rows; None where different keys have one hash."""
    keys = prepared_keys(left, request)
    moments = whole(left[request.left_time])
    usable = np.logical_and.reduce([c.is_valid().to_numpy(zero_copy_only=False) for c in (*keys, moments)])
    rows = pa.array(np.flatnonzero(usable))
    times = left_times(moments.take(rows), request.left_time)
    if len(times):
        request.check_times(int(times.min()))
    key_numbers = _numbered(request.cells([column.take(rows) for column in keys]))
    if key_numbers is None:
        return None
    return key_numbers[0], pa.table({ROW: rows, MOMENT: pa.array(times).cast(TIME), KEY: key_numbers[1]})


def _history(left: pa.Table, keys: _KeyNumbers, request: AsofRequest) -> pa.RecordBatchReader:
    """The versions of these keys, with their numbers."""
    times = left[MOMENT].cast(pa.int64()).to_numpy()
    query = request.history(int(times.min()), int(times.max()))
    table = request.table
    schema = table.schema(query).append(pa.field(KEY, pa.int64()))
    batches = (batch for split in table.splits(query) for batch in table.read(split, query))
    return pa.RecordBatchReader.from_batches(schema, (_with_numbers(batch, keys, request) for batch in batches))


def _with_numbers(batch: pa.RecordBatch, keys: _KeyNumbers, request: AsofRequest) -> pa.RecordBatch:
    rows, numbers = keys.numbers_of(request.cells([batch.column(name) for name in request.key_columns]))
    chosen = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
    return chosen.append_column(KEY, pa.array(numbers))


def _put_beside(left: pa.Table, joined: pa.Table, request: AsofRequest, schema: pa.Schema) -> pa.Table:
    rows = joined.column(0).to_numpy()
    values = joined.drop_columns([ROW]).combine_chunks()
    if request.how == "inner":
        left, positions = left.take(pa.array(rows)), pa.array(np.arange(len(rows)))
    else:
        match = np.full(left.num_rows, -1, np.int64)
        match[rows] = np.arange(len(rows))
        positions = pa.array(match, mask=match < 0)
    fields = [schema.field(name) for name in values.column_names]
    columns = [retyped(c.take(positions), field.type) for field, c in zip(fields, values.columns, strict=True)]
    return pa.Table.from_arrays([*left.columns, *columns], schema=schema)


# Numbers for keys of any type, so that an engine can join integers: two keys have one number only if they are
# equal.


@dataclass(frozen=True)
class _KeyNumbers:
    """Distinct keys by their number: ``hashes`` ascending, and ``cells`` as `AsofRequest.cells` makes them."""

    hashes: npt.NDArray[np.uint64]
    cells: list[pa.Array]

    def numbers_of(self, cells: Sequence[pa.Array]) -> tuple[Ints, Ints]:
        """(the rows whose key has a number, their numbers)."""
        if not len(self.hashes) or not len(cells[0]):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        probes = hash_keys(cells)
        number = np.searchsorted(self.hashes, probes)
        number[number == len(self.hashes)] = 0
        rows = np.flatnonzero(self.hashes[number] == probes)
        rows = rows[keys_equal(cells, rows, self.cells, number[rows])]
        return rows, number[rows].astype(np.int64)


def _numbered(cells: Sequence[pa.Array]) -> tuple[_KeyNumbers, Ints] | None:
    """The distinct keys and the number of each row's key; None where different keys have one hash."""
    hashes = hash_keys(cells) if len(cells[0]) else np.empty(0, np.uint64)
    distinct, first, number = np.unique(hashes, return_index=True, return_inverse=True)
    found = _KeyNumbers(distinct, [column.take(pa.array(first)) for column in cells])
    if not keys_equal(cells, np.arange(len(number)), found.cells, number).all():
        return None
    return found, number.astype(np.int64)
