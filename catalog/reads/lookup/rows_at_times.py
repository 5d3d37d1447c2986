"""Rows of many keys, each valid at a moment of its own, as columns: an as-of join without a read of the history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.added_columns import VERSION_COLUMN
from statestore.catalog.reads.lookup.many_keys_at import FoundRows
from statestore.catalog.reads.lookup.point_lookup import PointLookup
from statestore.catalog.reads.scattered_rows import GatheredRows
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.formats.kernels.arrays import Ints
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.segments.segment_columns import end_column
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.key_codec import KeyCodec, ValueCodec

# Without compiled code, stored rows that are read in the time of one look-up. A million look-ups among 100,000 rows
# take twice as long as a read of these, and 200,000 among two million rows a third.
ROWS_A_LOOKUP = 2
# Stored rows of which one column is held decompressed at a time: memory grows with the keys, not with the history.
HELD_ROWS = 1 << 22


def lookup_of(files: SegmentFiles, log_state: LogState) -> PointLookup:
    """Return the lookup of a log state, which takes over what the last one of this process has opened."""

    def follow(known: PointLookup | None) -> PointLookup:
        if known is None:
            return PointLookup(files, log_state, KeyCodec(files.spec.key), ValueCodec(files.spec.value))
        return known if known.is_of(log_state) else known.following(log_state)

    lookup: PointLookup = files.shared(follow)
    return lookup


def rows_at_times(
    table: StateTable, keys: Sequence[pa.Array], moments: Ints, query: Query
) -> tuple[Ints, pa.Table] | None:
    """Return, for each key of these columns, the position of its row at its moment, or -1; and these rows, each once.

    ``keys`` are in the order and of the types of the table's `row_key`, without nulls. The rows have the columns of
    ``query``, a history. None where keys cannot be looked up, or a read of the history takes less time.
    """
    if not isinstance(table, VersionedTable) or (planned := table.for_lookups(query)) is None:
        return None
    log_state, _lease = planned  # held until all is read
    files, schema = table.files(), table.schema(query)
    lookup = lookup_of(files, log_state)
    lookup.count_reads(len(moments))
    stored = sum(meta.rows for meta in log_state.segments if not meta.tombstone)
    if not lookup.is_compiled and len(moments) * ROWS_A_LOOKUP > stored:
        return None
    positions = np.full(len(moments), -1, np.int64)
    found: list[FoundRows] = []
    count = 0
    for part in lookup.locate_many(keys, moments) if len(moments) else []:
        if not len(part.rows):  # all of them were rows of other keys of the same hash
            continue
        is_first = np.append(True, part.rows[1:] != part.rows[:-1])  # rows ascend
        positions[part.numbers] = count + np.cumsum(is_first) - 1
        found.append(FoundRows(part.opened, *(column[is_first] for column in part[1:])))
        count += len(found[-1].rows)
    batches = [_gathered(files, parts, schema) for parts in _held_together(found)]
    return positions, pa.Table.from_batches(batches, schema=schema).combine_chunks()


def _held_together(found: Sequence[FoundRows]) -> Iterator[list[FoundRows]]:
    """Yield rows of segments in their order, at once those of at most HELD_ROWS stored rows."""
    together: list[FoundRows] = []
    room = HELD_ROWS
    for part in found:
        at = 0
        while at < len(part.rows):
            stop = int(part.rows.searchsorted(part.rows[at] + room))
            together.append(FoundRows(part.opened, *(column[at:stop] for column in part[1:])))
            room -= int(part.rows[stop - 1] - part.rows[at]) + 1
            at = stop
            if room <= 0 or at < len(part.rows):
                yield together
                together, room = [], HELD_ROWS
    if together:
        yield together


def _gathered(files: SegmentFiles, parts: Sequence[FoundRows], schema: pa.Schema) -> pa.RecordBatch:
    source = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part.rows) for part in parts])
    row = np.concatenate([part.rows for part in parts]).astype(np.int32)
    metas = [part.opened.meta for part in parts]
    rows = GatheredRows(lambda number: files.open_segment(metas[number]), source, row, compiled=is_loaded())
    stored = {name: "_added" if name == VERSION_COLUMN else name for name in schema.names if name != "valid_to"}
    columns = dict(zip(stored, rows.columns([*stored.values()]), strict=True))
    if "valid_to" in schema.names:
        columns["valid_to"] = end_column(np.concatenate([part.ends for part in parts]))
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
