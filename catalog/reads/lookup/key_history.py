"""The history of one key as a table, from the rows that its key indexes name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from statestore.catalog.reads.added_columns import VERSION_COLUMN
from statestore.catalog.reads.belief import TimeRange
from statestore.catalog.reads.lookup.point_lookup import PointLookup
from statestore.catalog.reads.lookup.remote_lookup import RemoteVersion
from statestore.catalog.reads.lookup.segment_probe import OpenedSegment
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.segments.segment_meta import SegmentMeta
from statestore.formats.segments.segment_write import end_column
from statestore.formats.values.key_codec import KeyCodec, ValueCodec
from statestore.formats.values.types import TIME


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
