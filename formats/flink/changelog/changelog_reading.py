"""Rows of a keyed state of the changelog state backend: what was materialized, with the changes since."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, joined_cells
from statestore.formats.flink.changelog.logged_changes import MERGE, LoggedChanges, logged_changes
from statestore.formats.flink.changelog.merges import replayed_with_merges
from statestore.formats.flink.changelog.replay import (
    BATCH_BYTES,
    Entries,
    Materialized,
    replayed_list,
    replayed_map,
    replayed_timers,
    replayed_values,
)
from statestore.formats.flink.changelog.replay_parts import replay_parts
from statestore.formats.flink.serializers.flink_types import FlinkType
from statestore.formats.flink.snapshot.handles import ChangelogHandle
from statestore.formats.flink.streams.keyed_columns import framed_rows, stepped_kinds
from statestore.formats.flink.streams.keyed_reading import KeyedReading
from statestore.formats.flink.streams.state_form import Typed, form_of
from statestore.formats.flink.streams.stored_states import StoredKeyed
from statestore.formats.kernels import compiled_use
from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.rocksdb.key_ranges import KeyRange

_FEW, _MOST_WAITING = 1 << 14, 64


def read_changelog(
    reading: KeyedReading, stored: StoredKeyed, handle: ChangelogHandle, ranges: Sequence[KeyRange]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a state; ``ranges`` are those of stored keys that are wanted, at least.

    ``stored_bytes`` are those that a canonical savepoint would have. Raises as `read_savepoint`, `read_database` and
    `logged_changes`, UnsupportedError FLINK_UNSUPPORTED for values that only the job's functions merge, and
    StorageError DISK_FAILED.
    """

    def rows(found: tuple[Cells, Cells]) -> pa.RecordBatch:
        keys, values = found
        return framed_rows(reading.form, keys, values, reading.stored_groups, reading.columns, reading.origin)

    yield from in_order(rows, changelog_entries(reading, stored, handle, ranges), reading_threads())


def changelog_entries(
    reading: KeyedReading, stored: StoredKeyed, handle: ChangelogHandle, ranges: Sequence[KeyRange]
) -> Entries:
    """Yield the stored keys and values of a state as a canonical savepoint would have them, in no order of key groups.

    Raises as `read_changelog`.
    """
    compiled_use.load_if_it_pays(handle.size)
    kinds = _kinds(reading, stored)
    if kinds is None:
        return

    def entries() -> Entries:
        for raw, materialized in replay_parts(reading, stored, handle, kinds, ranges):
            changes = logged_changes(reading, stored, handle, kinds, raw)
            yield from _replayed(reading, changes, kinds, materialized)

    yield from _together(entries())


def _together(entries: Entries) -> Entries:
    """The entries in batches that are not small: those of a key group may be few, and each batch has its costs."""
    waiting: list[tuple[Cells, Cells]] = []
    count = size = 0
    for keys, values in entries:
        if not len(keys):
            continue
        waiting.append((keys, values))
        count, size = count + len(keys), size + int(keys.size.sum() + values.size.sum())
        if count >= _FEW or size >= BATCH_BYTES or len(waiting) >= _MOST_WAITING:
            count = size = 0
            yield joined_cells([each for each, _ in waiting]), joined_cells([each for _, each in waiting])
            waiting = []
    if waiting:
        yield joined_cells([each for each, _ in waiting]), joined_cells([each for _, each in waiting])


def _kinds(reading: KeyedReading, stored: StoredKeyed) -> list[FlinkType] | None:
    """The types of a record of the heap, None where the subtask has no such state."""
    header = next((each for each in stored.header.states if each.name == reading.form.name), None)
    if header is None:
        return None
    written = form_of(header, stored.header.key, Typed({}, reading.origin))
    return stepped_kinds(written, reading.form, reading.form.key)


def _replayed(
    reading: KeyedReading, changes: LoggedChanges, kinds: Sequence[FlinkType], materialized: Materialized
) -> Entries:
    form, origin, width = reading.form, reading.origin, reading.stored_groups.width
    if not len(changes):
        yield from materialized()
    elif form.kind == "timers":
        within = reading.first, reading.last
        yield from replayed_timers(changes, kinds[0], width, within, materialized, origin)
    elif form.kind == "map":
        yield from replayed_map(changes, kinds[2], width, materialized, origin)
    elif np.any(changes.are(MERGE)):
        yield from replayed_with_merges(reading, changes, kinds, materialized)
    elif form.kind == "list":
        yield from replayed_list(changes, kinds[2], width, materialized, origin)
    else:
        yield from replayed_values(changes, width, materialized)
