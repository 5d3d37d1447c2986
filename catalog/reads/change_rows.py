"""The rows of a change feed, batch by batch, from its events and their old rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.reads.added_columns import CHANGE_TYPES, DELETE, INSERT, POSTIMAGE, PREIMAGE
from statestore.catalog.reads.change_events import ChangeSplit, Events
from statestore.catalog.reads.gathered_columns import usual_bytes
from statestore.catalog.reads.replaced_rows import NOWHERE, StoredRows
from statestore.catalog.reads.scattered_rows import GatheredRows
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.segments.segment import Segment
from statestore.formats.values.types import TIME
from statestore.formats.values.without_pandas import arrow_numbers

BATCH_BYTES = 1 << 23
MOST_ROWS = 1 << 17
NO_CHANGE = -1


@dataclass(frozen=True)
class ChangeRows:
    """Rows of the feed, in order: the stored row with the values of each, its event, and its change type."""

    segment_index: npt.NDArray[np.int32]
    row: npt.NDArray[np.int32]
    event: Ints
    kind: npt.NDArray[np.int8]


def change_batches(
    files: SegmentFiles,
    split: ChangeSplit,
    events: Events,
    old: StoredRows,
    still_there: Bools,
    names: tuple[str, ...],
) -> Iterator[pa.RecordBatch]:
    """Yield these columns of the changes in the order of the events."""
    rows = _rows(split, events, old, still_there)
    stored = [field for field in [*files.spec.key, *files.spec.value] if field.name in names]
    row_bytes = sum(usual_bytes(field.type) for field in stored) + 8.0
    at = 0
    while at < len(rows.row):
        count = int(min(max(BATCH_BYTES / row_bytes, 1), MOST_ROWS, len(rows.row) - at))
        batch = _batch(files, split, events, rows, slice(at, at + count), names)
        yield batch
        row_bytes = max(batch.nbytes / count, 8.0)
        at += count


def _rows(split: ChangeSplit, events: Events, old: StoredRows, still_there: Bools) -> ChangeRows:
    is_tombstone = np.array([segment.meta.tombstone for segment in split.segments], bool)
    tombstone = is_tombstone[events.segment_index]
    has_old = (old.segment_index != NOWHERE) & ~is_tombstone[old.segment_index]
    kind = np.full(len(events), NO_CHANGE, np.int8)
    value = ~tombstone & ~events.taken_back
    updates = value & has_old
    kind[value] = INSERT
    kind[updates] = POSTIMAGE
    kind[tombstone & (has_old | split.whole) | events.taken_back & ~still_there] = DELETE
    count = (kind != NO_CHANGE) + updates.astype(np.int64)
    event = np.repeat(np.arange(len(events)), count)
    first = np.cumsum(count) - count
    segment_index, row, kinds = events.segment_index[event], events.row[event], kind[event]
    of_old = np.flatnonzero(updates | (tombstone & has_old))
    at = first[of_old]
    segment_index[at], row[at] = old.segment_index[of_old], old.row[of_old]
    kinds[first[updates]] = PREIMAGE
    return ChangeRows(segment_index, row, event, kinds)


def _batch(
    files: SegmentFiles,
    split: ChangeSplit,
    events: Events,
    rows: ChangeRows,
    part: slice,
    names: tuple[str, ...],
) -> pa.RecordBatch:
    event = rows.event[part]
    version = (events.own if split.by_time else events.version)[event]
    made = {
        "valid_from": lambda: arrow_numbers(events.start[event]).cast(TIME),
        "_change_type": lambda: pa.array(CHANGE_TYPES).take(arrow_numbers(rows.kind[part])),
        "_commit_version": lambda: arrow_numbers(version),
        "_commit_timestamp": lambda: arrow_numbers(np.array(split.timestamps, np.int64)[version - split.base]).cast(
            TIME
        ),
    }
    source, row = rows.segment_index[part], rows.row[part]
    if not names:
        return pa.record_batch([pa.nulls(len(row))], names=["none"]).select([])

    def opened(number: int) -> Segment:
        return files.open_segment(split.segments[number].meta)

    gathered = GatheredRows(opened, source, row, compiled=events.compiled)
    has_values = _with_values(split, source)
    valued = (
        None
        if has_values is None
        else GatheredRows(opened, source[has_values], row[has_values], compiled=events.compiled)
    )
    place = None if has_values is None else np.where(has_values, np.cumsum(has_values) - 1, -1)
    arrays = []
    for name in names:
        if name in made:
            arrays.append(made[name]())
        elif name in files.spec.key_names or valued is None or place is None:
            arrays.append(gathered.column(name))
        elif not (place >= 0).any():
            arrays.append(pa.nulls(len(row), files.spec.segment_schema(False, False).field(name).type))
        else:
            arrays.append(valued.column(name).take(pa.array(place, mask=place < 0)))
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _with_values(split: ChangeSplit, source: npt.NDArray[np.int32]) -> Bools | None:
    """Return which rows are no tombstones, which have no values; None for all."""
    if not split.whole:
        return None
    is_tombstone = np.array([segment.meta.tombstone for segment in split.segments], bool)
    found: Bools = ~is_tombstone[source]
    return None if found.all() else found
