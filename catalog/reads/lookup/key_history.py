"""The history of one key as a table, from the rows that its key indexes name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from statestore.catalog.reads.added_columns import VERSION_COLUMN
from statestore.catalog.reads.belief import TimeRange
from statestore.catalog.reads.lookup.lookup_table import ADDED, MOST_VERSIONS
from statestore.catalog.reads.lookup.point_lookup import PointLookup
from statestore.catalog.reads.lookup.remote_lookup import RemoteVersion
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.segments.segment_meta import OPEN, SegmentMeta
from statestore.formats.values.key_codec import KeyCodec, ValueCodec

_Place = tuple[bool, int, int]
"""The place of a row in a scan: whether rows beside it are judged by their ends, its segment, its number in it."""


def key_history(
    lookup: PointLookup,
    files: SegmentFiles,
    codecs: tuple[KeyCodec, ValueCodec],
    asked: Any,
    window: TimeRange,
    schema: pa.Schema,
) -> list[pa.RecordBatch] | None:
    """Return the versions of a key in a window of several moments at the newest version; ``asked``: the user's key.

    The columns are those of ``schema``, the rows those of a scan of all rows. They come by segment, first those of
    segments in which no row has to be judged by its end. None for a key of so many versions that a scan costs less.
    """
    low = max(window.low, -(2**63))
    batches = lookup.versions(asked, (low, window.high), schema)
    if batches is not None:
        return batches
    key = codecs[0].normalize(asked)
    names = set(schema.names)
    # Compiled code finds all columns at hand the next time, whichever are asked for.
    wanted = _Wanted(
        lookup.is_compiled or not names.isdisjoint(files.spec.value_names),
        lookup.is_compiled or VERSION_COLUMN in names,
    )
    versions = lookup.remote_versions(key, low + 1, window.high)
    if versions is not None:
        found = [_remote_row(lookup, each, window, wanted) for each in versions if not each.meta.tombstone]
    else:
        found = _local_rows(lookup, key, window, low + 1, wanted)
        if len(found) > MOST_VERSIONS:
            return None
    if not found:
        return []
    found.sort(key=_place)
    return [_batch(codecs, key, [cells for _, cells in found], wanted, schema)]


class _Wanted(NamedTuple):
    """Whether the values of rows are asked for, and the versions that wrote them."""

    values: bool
    versions: bool


def _place(row: tuple[_Place, tuple[Any, ...]]) -> _Place:
    return row[0]


def _local_rows(
    lookup: PointLookup, key: tuple[Any, ...], window: TimeRange, low: int, wanted: _Wanted
) -> list[tuple[_Place, tuple[Any, ...]]]:
    """Return the place and the cells of the versions of a key in a window: values, start, end and version.

    They are in no order. After more than MOST_VERSIONS no further one is read.
    """
    found: list[tuple[_Place, tuple[Any, ...]]] = []
    none: tuple[Any, ...] = ()
    high, opened = window.high, None
    for segment, number, end in lookup.rows_ending_from(key, low):
        if segment is not opened:  # the rows of a segment come together
            opened, probe, meta = segment, segment.probe, segment.meta
            starts, values_of = probe.starts, probe.values
            place = lookup.place(meta)
            # All rows of a segment are judged where it has closures, and none where all end after the window begins.
            is_judged = bool(segment.closures) or (None if meta.min_valid_to <= window.low else False)
        start = starts[number]
        if start > high or meta.tombstone:
            continue
        judged = _least_end(meta, number) <= window.low if is_judged is None else is_judged
        cells = (values_of(number) or none) if wanted.values else none
        version = segment.written[number] if wanted.versions else None
        found.append(((judged, place, number), (*cells, start, None if end == OPEN else end, version)))
        if len(found) > MOST_VERSIONS:
            break
    return found


def _remote_row(
    lookup: PointLookup, found: RemoteVersion, window: TimeRange, wanted: _Wanted
) -> tuple[_Place, tuple[Any, ...]]:
    row, meta = found.version, found.meta
    judged = found.has_closures or _least_end(meta, found.row) <= window.low
    cells = (row.values or ()) if wanted.values else ()
    return (judged, lookup.place(meta), found.row), (
        *cells,
        row.start,
        None if row.end == OPEN else row.end,
        found.added,
    )


def _batch(
    codecs: tuple[KeyCodec, ValueCodec],
    key: tuple[Any, ...],
    rows: Sequence[tuple[Any, ...]],
    wanted: _Wanted,
    schema: pa.Schema,
) -> pa.RecordBatch:
    """Return the columns of a schema for rows of values, start, end and version of a key."""
    keys, values = codecs
    fields = [*keys.schema, *(values.schema if wanted.values else ()), *ADDED]
    if any(pa.types.is_nested(field.type) for field in fields):
        arrays = keys.to_columns([key] * len(rows))
        if wanted.values:
            arrays += values.to_columns(rows)
        arrays += [pa.array([row[at] for row in rows], ADDED[at].type) for at in range(-3, 0)]
    else:  # all of them at once, which costs a third
        arrays = pa.array([(*key, *row) for row in rows], pa.struct(fields)).flatten()
    return _chosen(dict(zip(_names_of(fields), arrays, strict=True)), schema)


def _names_of(fields: Sequence[pa.Field]) -> list[str]:
    return [field.name for field in fields]


def _chosen(columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _least_end(meta: SegmentMeta, row: int) -> int:
    """Return the least stored end in the block of a row."""
    for block in meta.blocks:
        if row < block.rows:
            return block.min_valid_to
        row -= block.rows
    return meta.min_valid_to
