"""The history of one key as a table, from the rows that its key indexes name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.reads.points.point_lookup import PointLookup
from statestore.catalog.reads.points.segment_probe import OpenedSegment
from statestore.catalog.reads.scan import VERSION_COLUMN, TimeRange
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
    found = [
        ((_is_judged(opened, row, window), lookup.place(opened.meta), row), opened, end)
        for opened, row, end in lookup.rows_ending_from(key, max(window.low, -(2**63)) + 1)
        if not opened.meta.tombstone and opened.probe.starts[row] <= window.high
    ]
    if not found:
        return []
    found.sort(key=lambda item: item[0])
    rows = [(opened, place[2], end) for place, opened, end in found]
    keys, values = codecs
    names, key_names, value_names = schema.names, files.spec.key_names, files.spec.value_names
    columns = dict(zip(key_names, keys.to_columns([key] * len(rows)), strict=True))
    if not set(value_names).isdisjoint(names):
        columns |= dict(zip(value_names, _value_columns(values, rows), strict=True))
    if "valid_from" in names:
        columns["valid_from"] = pa.array([opened.probe.starts[row] for opened, row, _ in rows], TIME)
    if "valid_to" in names:
        columns["valid_to"] = end_column(np.array([end for _, _, end in rows], np.int64))
    if VERSION_COLUMN in names:
        columns[VERSION_COLUMN] = pa.array([opened.added(files)[row] for opened, row, _ in rows], pa.int64())
    return [pa.RecordBatch.from_arrays([columns[name] for name in names], schema=schema)]


def _value_columns(values: ValueCodec, rows: Sequence[tuple[OpenedSegment, int, int]]) -> list[pa.Array]:
    """Return the columns of the values of these rows; of some columns at once, which costs half as much."""
    schema = values.schema
    if len(schema) == 1 or any(pa.types.is_nested(kind) for kind in schema.types):
        return values.to_columns([opened.probe.values(row) or () for opened, row, _ in rows])
    shown = [opened.probe.shown(row) for opened, row, _ in rows]  # a dict for each
    return pa.array(shown, pa.struct(list(schema))).flatten()  # type: ignore[no-any-return]


def _is_judged(opened: OpenedSegment, row: int, window: TimeRange) -> bool:
    """Return whether a scan of the window judges the rows beside this one by their ends."""
    return bool(opened.closures) or _least_end(opened.meta, row) <= window.low


def _least_end(meta: SegmentMeta, row: int) -> int:
    """Return the least stored end in the block of a row."""
    for block in meta.blocks:
        if row < block.rows:
            return block.min_valid_to
        row -= block.rows
    return meta.min_valid_to
