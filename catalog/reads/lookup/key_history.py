"""The history of looked-up keys, without rows of other keys: of one key as a table, the newest rows of some keys first,
and the commits that wrote them.

Each row that a commit wrote is stored as long as a version from before its replacement can be read. So the rows of a
key in all segments, and what ended them, name all commits that wrote or deleted it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count, groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.belief import Piece, SegmentWithClosures, TimeRange, cells_of, with_closures
from statestore.catalog.reads.fetching import fetch_files, fetch_rows
from statestore.catalog.reads.lookup.point_lookup import PointLookup
from statestore.catalog.reads.lookup.remote_lookup import RemoteVersion
from statestore.catalog.reads.lookup.segment_probe import OpenedSegment
from statestore.catalog.reads.plan import VERSION_COLUMN, keys_may_match
from statestore.catalog.reads.scan import matched_rows, taken_rows
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment_meta import SegmentMeta
from statestore.formats.segments.segment_write import end_column
from statestore.formats.state_table import NewestBatch
from statestore.formats.values.arrow_numbers import int64_values
from statestore.formats.values.filters import Filter, mask
from statestore.formats.values.key_codec import KeyCodec, ValueCodec
from statestore.formats.values.types import TIME

START = "valid_from"
CAUSES = ("_added", "_closed", "_dropped")
# Latest start among rows that are not read yet, negative because the heap has its least entry first; a number that no
# two entries share; how many of the rows are read at once; the piece and its rows.
_Unread = tuple[int, int, int, Piece, Ints]


def key_history(
    lookup: PointLookup,
    files: SegmentFiles,
    codecs: tuple[KeyCodec, ValueCodec],
    key: tuple[Any, ...],
    window: TimeRange,
    schema: pa.Schema,
) -> list[pa.RecordBatch]:
    """Return the versions of a key (normalized) in a window of several moments at the newest version.

    The columns are those of ``schema``, the rows those of a scan of all rows. They come by segment, first those of
    segments in which no row has to be judged by its end.
    """
    found = _stored_rows(lookup, files, key, window)
    if not found:
        return []
    found.sort(key=lambda row: (_is_judged(row, window), lookup.place(row.meta), row.number))
    keys, values = codecs
    names, key_names, value_names = schema.names, files.spec.key_names, files.spec.value_names
    columns = dict(zip(key_names, keys.to_columns([key] * len(found)), strict=True))
    if not set(value_names).isdisjoint(names):
        columns |= dict(zip(value_names, _value_columns(values, found), strict=True))
    if "valid_from" in names:
        columns["valid_from"] = pa.array([row.start for row in found], TIME)
    if "valid_to" in names:
        columns["valid_to"] = end_column(np.array([row.end for row in found], np.int64))
    if VERSION_COLUMN in names:
        columns[VERSION_COLUMN] = pa.array([row.added() for row in found], pa.int64())
    return [pa.RecordBatch.from_arrays([columns[name] for name in names], schema=schema)]


class _Row(NamedTuple):
    """A value version of the key: a row of a segment, times in epoch microseconds, and functions that read the rest."""

    meta: SegmentMeta
    number: int
    start: int
    end: int
    has_closures: bool
    values: Callable[[], tuple[Any, ...] | None]
    shown: Callable[[], Any]
    added: Callable[[], int]


def _stored_rows(lookup: PointLookup, files: SegmentFiles, key: tuple[Any, ...], window: TimeRange) -> list[_Row]:
    """Return the versions of a key in a window, in no order."""
    low = max(window.low, -(2**63)) + 1
    versions = lookup.remote_versions(key, low, window.high)
    if versions is not None:
        return [_remote_row(each) for each in versions if not each.meta.tombstone]
    return [
        _row(files, opened, number, end)
        for opened, number, end in lookup.rows_ending_from(key, low)
        if not opened.meta.tombstone and opened.probe.starts[number] <= window.high
    ]


def _row(files: SegmentFiles, opened: OpenedSegment, number: int, end: int) -> _Row:
    probe = opened.probe
    values, shown = partial(probe.values, number), partial(probe.shown, number)
    start, has_closures = probe.starts[number], bool(opened.closures)
    return _Row(opened.meta, number, start, end, has_closures, values, shown, lambda: opened.added(files)[number])


def _remote_row(found: RemoteVersion) -> _Row:
    row = found.version
    return _Row(
        found.meta, found.row, row.start, row.end, found.has_closures,
        lambda: row.values, lambda: row.shown, lambda: found.added,
    )  # fmt: skip


def _value_columns(values: ValueCodec, rows: Sequence[_Row]) -> list[pa.Array]:
    """Return the columns of the values of these rows; of some columns at once, which costs half as much."""
    schema = values.schema
    if len(schema) == 1 or any(pa.types.is_nested(kind) for kind in schema.types):
        return values.to_columns([row.values() or () for row in rows])
    shown = [row.shown() for row in rows]  # a dict for each
    return pa.array(shown, pa.struct(list(schema))).flatten()  # type: ignore[no-any-return]


def _is_judged(row: _Row, window: TimeRange) -> bool:
    """Return whether a scan of the window judges the rows beside this one by their ends."""
    return row.has_closures or _least_end(row.meta, row.number) <= window.low


def _least_end(meta: SegmentMeta, row: int) -> int:
    """Return the least stored end in the block of a row."""
    for block in meta.blocks:
        if row < block.rows:
            return block.min_valid_to
        row -= block.rows
    return meta.min_valid_to


# The newest rows first


def newest_first(
    files: SegmentFiles,
    pieces: Sequence[Piece],
    window: TimeRange,
    schema: pa.Schema,
    filters: tuple[Filter, ...],
    hashes: list[int],
    rows: int,
) -> Iterator[NewestBatch]:
    """Yield the rows of keys with these hashes that belong to the window and pass the filters, in ``schema``.

    About ``rows`` rows are read at once of each piece. A batch is not sorted, and later ones may have rows that are
    newer than some of its rows, up to the bound that it names.
    """
    names = list(dict.fromkeys([*schema.names, *(each.column for each in filters), START]))
    numbers = count()
    unread = [
        (-latest, next(numbers), rows, piece, mine) for latest, piece, mine in _matched_pieces(files, pieces, hashes)
    ]
    heapify(unread)
    while unread:
        _, _, size, piece, mine = heappop(unread)
        older, some = mine[:-size], mine[-size:]
        batch, live = taken_rows(files, piece, window, names, some)
        if len(older):  # more at once each time, since many of them may not belong to the answer
            earliest = int(int64_values(batch.column(START))[0])
            heappush(unread, (-earliest, next(numbers), 2 * size, piece, older))
        keep = mask(filters, batch)
        if live is not None:
            batch, keep = batch.filter(pa.array(live)), None if keep is None else keep.filter(pa.array(live))
        if keep is not None:
            batch = batch.filter(keep)
        found = pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
        yield NewestBatch(found, -unread[0][0] if unread else None)


def _matched_pieces(
    files: SegmentFiles, pieces: Sequence[Piece], hashes: list[int]
) -> Iterator[tuple[int, Piece, Ints]]:
    """Yield the pieces that have rows of these hashes, with the rows and the latest start that they may have."""
    for _, group in groupby(pieces, key=lambda piece: piece.segment.meta.name):
        mine = list(group)
        meta = mine[0].segment.meta
        rows = matched_rows(files, meta, hashes)
        if not len(rows):
            continue
        firsts, latest = _latest_starts(meta)
        for piece in mine:
            here = rows[slice(*rows.searchsorted((piece.start, piece.stop)).tolist())]
            if len(here):
                yield latest[int(firsts.searchsorted(piece.start, "right")) - 1], piece, here


def _latest_starts(meta: SegmentMeta) -> tuple[Ints, list[int]]:
    """Return the first row of each block, and its greatest start."""
    spans = meta.spans()
    return np.array([first for first, _ in spans]), [block.max_valid_from for _, block in spans]


# The commits that wrote


def key_writers(files: SegmentFiles, log_state: LogState, filters: tuple[Filter, ...], hashes: list[int]) -> Ints:
    """Return the commits, ascending, that wrote, ended or replaced rows of the keys which the filters name.

    ``hashes`` are those of the keys.
    """
    metas = [meta for meta in log_state.segments if keys_may_match(files, meta, filters)]
    fetch_files(files, [meta.index for meta in metas])
    found = [
        (segment, rows)
        for segment in with_closures(metas, log_state.closures)
        if len(rows := _rows_of(files, segment, hashes))
    ]
    fetch_rows(files, [(segment, row, row + 1) for segment, rows in found for row in rows.tolist()])
    versions = [_causes(files, segment, rows, filters) for segment, rows in found]
    return np.unique(np.concatenate([np.empty(0, np.int64), *versions]))


def _rows_of(files: SegmentFiles, segment: SegmentWithClosures, hashes: list[int]) -> Ints:
    index = files.index(segment.meta)
    return np.array(sorted({row for hash in hashes for row in index.find(hash)}), np.int64)


def _causes(files: SegmentFiles, segment: SegmentWithClosures, rows: Ints, filters: tuple[Filter, ...]) -> Ints:
    meta, file = segment.meta, files.open_segment(segment.meta)
    names = files.spec.key_names
    keys = pa.RecordBatch.from_arrays([file.take(name, rows) for name in names], names=list(names))
    chosen = mask(filters, keys)
    if chosen is not None:
        rows = rows[chosen.to_numpy(zero_copy_only=False)]
    parts = [cells_of(file, name, rows) for name in CAUSES if name != "_dropped" or meta.role == "belief"]
    parts[1] = parts[1][parts[1] > 0]  # of an end that no commit has given
    if segment.closures:
        parts.append(files.pending(meta, segment.closures).versions_of(rows, len(segment.closures)))
    return np.concatenate(parts)
