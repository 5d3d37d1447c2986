"""Moments, history and change feed of a state whose rows say themselves when they were valid (`HoldsPast`).

State time is that of the rows. A row that ends where the next one of its row key begins is updated there; one that ends
without a successor is deleted. Each part of such a state has whole row keys, and the rows of one part are in memory
while its changes are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.engines.history_columns import HISTORY_COLUMNS, valid_rows
from statestore.catalog.reads.added_columns import CHANGE_COLUMNS, CHANGE_TYPES, DELETE, INSERT, POSTIMAGE, PREIMAGE
from statestore.catalog.reads.row_pairs import Side, keyed_rows, pairs
from statestore.formats.engine import HoldsPast, Part, Source, StateAt, StateInfo
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.kernels.arrays import Bools
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter
from statestore.formats.values.times import format_time
from statestore.formats.values.types import TIME

FROM, TO = "valid_from", "valid_to"


@dataclass(frozen=True)
class PastSplit:
    """A part of a state with its past; ``info`` describes the state, ``since`` is where its past begins."""

    at: StateAt
    part: Part
    info: StateInfo
    since: int | None

    @property
    def rows(self) -> int | None:
        """Upper bound of the rows; None: unknown until read."""
        return None


def past_of(at: StateAt) -> HoldsPast:
    """Return a state of which `StateInfo.has_past` says that it has one."""
    assert isinstance(at, HoldsPast), f"{type(at).__name__} has no past_rows"
    return at


def past_columns(at: StateAt, query: Query) -> pa.Schema:
    """Return all columns of the answer to a question about the past."""
    if query.mode == "state":
        return at.schema
    own = [field for field in at.schema if field.name not in (FROM, TO)]
    return pa.schema([*own, *(HISTORY_COLUMNS if query.mode == "history" else CHANGE_COLUMNS)])


def past_splits(source: Source, info: StateInfo, at: StateAt, query: Query) -> Sequence[PastSplit]:
    """Return the pieces of an answer. Raises NotFoundError TIME_NOT_KEPT for moments before the past begins."""
    exclusive = query.mode == "changes"
    asked = [moment for moment in (query.as_of, query.start_time, query.end_time) if moment is not None]
    since = None
    if asked or exclusive:
        since = past_of(at).past_from()
    else:
        past_of(at).check_past()
    if since is not None and asked and min(asked) < since + exclusive:
        begin = f"after {format_time(since)}" if exclusive else f"from {format_time(since)} on"
        raise NotFoundError(
            ErrorCode.TIME_NOT_KEPT,
            f"{info.name} of {source.path} keeps {_subject(query)} {begin}, asked for {format_time(min(asked))}"
            f"{past_of(at).past_hint()}",
        )
    return [PastSplit(at, part, info, since) for part in at.parts(_own_filters(at, query))]


def read_past(split: PastSplit, query: Query, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
    """Yield the requested columns of the state, followed by those of the mode. The caller applies filters."""
    if query.mode == "changes":
        yield from _changes(split, query, columns)
        return
    for batch in past_of(split.at).past_rows(split.part, columns, _own_filters(split.at, query)):
        if query.mode == "history":
            yield valid_rows(_history(batch, split.at.version), query)
        elif query.as_of is not None:
            yield batch.filter(_valid_at(batch, query.as_of))


def _valid_at(batch: pa.RecordBatch, moment: int) -> pa.Array:
    """Return which rows hold at a moment that the past covers: a row without a start held from its beginning on."""
    at = pa.scalar(moment, pa.int64()).cast(TIME)
    begun = pc.fill_null(pc.less_equal(batch.column(FROM), at), True)
    return pc.and_(begun, pc.fill_null(pc.greater(batch.column(TO), at), True))


def _history(batch: pa.RecordBatch, version: int) -> pa.RecordBatch:
    own = [name for name in batch.schema.names if name not in (FROM, TO)]
    start = batch.column(FROM)
    cells = [start, batch.column(TO), _recorded(version, start)]
    return _with(
        [batch.column(name) for name in own], [batch.schema.field(name) for name in own], cells, HISTORY_COLUMNS
    )


def _own_filters(at: StateAt, query: Query) -> list[Filter]:
    """Return the filters on columns of the state: times of the answer are not those of the stored rows."""
    return [item for item in query.filters if item.column in at.schema.names and item.column not in (FROM, TO)]


def _changes(split: PastSplit, query: Query, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows at their starts and at their ends."""
    own = [name for name in split.at.schema.names if name in columns and name not in (FROM, TO)]
    # Without the rows that other filters leave out, an update would look like an insert.
    filters = [item for item in _own_filters(split.at, query) if item.column in split.info.row_key]
    batches = list(past_of(split.at).past_rows(split.part, {*own, *split.info.row_key}, filters))
    if not batches:
        return
    rows = _not_empty(pa.Table.from_batches(batches).combine_chunks())
    start, end = rows[FROM].combine_chunks(), rows[TO].combine_chunks()
    replaced, replacing = _updates(rows, split.info.row_key, start, end)
    for moments, updated, kinds in ((start, replacing, (INSERT, POSTIMAGE)), (end, replaced, (DELETE, PREIMAGE))):
        chosen = pa.array(_within(moments, query, split.since))
        kind = pa.array(np.where(updated, kinds[1], kinds[0])).filter(chosen)
        at = moments.filter(chosen)
        cells = [at, pa.array(CHANGE_TYPES).take(kind), _recorded(split.at.version, at), pa.nulls(len(at), TIME)]
        table = rows.select(own).filter(chosen).combine_chunks()
        arrays = [table[name].combine_chunks() for name in own]
        yield _with(arrays, [rows.schema.field(name) for name in own], cells, CHANGE_COLUMNS)


def _not_empty(rows: pa.Table) -> pa.Table:
    """Return the rows that were valid at some moment."""
    start, end = rows[FROM], rows[TO]
    return rows.filter(pc.fill_null(pc.less(start, end), True))


def _updates(rows: pa.Table, row_key: Sequence[str], start: pa.Array, end: pa.Array) -> tuple[Bools, Bools]:
    """Return which rows another row of their key follows at once, and which rows follow one."""
    keys = [rows[name].combine_chunks() for name in row_key]
    replaced, replacing = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    ended, begun = (np.flatnonzero(pc.is_valid(column).to_numpy(zero_copy_only=False)) for column in (end, start))
    before = _side([column.take(pa.array(ended)) for column in (*keys, end)])
    after = _side([column.take(pa.array(begun)) for column in (*keys, start)])
    left, right = pairs(before, after)
    replaced[ended[left]], replacing[begun[right]] = True, True
    return replaced, replacing


def _side(columns: list[pa.Array]) -> Side:
    return keyed_rows(columns, [])


def _within(moments: pa.Array, query: Query, since: int | None) -> Bools:
    """Return which events are known and requested: before the past begins, a row may have replaced an unknown one."""
    known: Bools = pc.is_valid(moments).to_numpy(zero_copy_only=False)
    times = moments.cast(pa.int64()).fill_null(0).to_numpy()
    if since is not None:
        known = known & (times > since)
    if query.start_time is not None:
        known = known & (times >= query.start_time)
    return known if query.end_time is None else known & (times <= query.end_time)


def _recorded(version: int, start: pa.Array) -> pa.Array:
    """Return the version that has the rows; null for those whose start is unknown."""
    return pc.if_else(pc.is_valid(start), pa.scalar(version, pa.int64()), pa.scalar(None, pa.int64()))


def _with(
    columns: list[pa.Array], fields: list[pa.Field], cells: list[pa.Array], added: Sequence[pa.Field]
) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*columns, *cells], schema=pa.schema([*fields, *added]))


def _subject(query: Query) -> str:
    return {"state": "its past", "history": "history", "changes": "changes"}[query.mode]
