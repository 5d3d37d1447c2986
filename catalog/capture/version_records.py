"""The records that make the newest state of a captured store that of the next version of its source.

They come from the first of these that there is: the files that the version itself wrote (`Source.written`); the rows
that differ between it and the version that was captured last, as the engine finds them; the rows that differ between
it and the store, which are read in whole. A record is a row of the store with ``timestamp`` and ``_change_type``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.capture.layout import COPY, DELETE, INSERT, Layout
from statestore.catalog.engines.engine_table import reading
from statestore.catalog.engines.past_rows import past_of
from statestore.catalog.reads.row_pairs import Side, differences, keyed_rows, others, pairs
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.formats.engine import Source, StateAt, Version
from statestore.formats.kernels.arrays import OPEN, Hashes, Ints
from statestore.formats.notices import notices_to
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.state_table import Query
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.filters import Filter
from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.times import TICK
from statestore.formats.values.types import TIME
from statestore.formats.written import APPEND, PUT, REMOVE, WRITE, WRITTEN_AT, Written

MOST_ROWS = 1 << 20
"""Rows of a state that are compared at a time."""
_NOTHING = Version(-1, None)  # before the first version
FEW_GROUPS = 1_000
"""Groups of a bag, up to which their rows are looked up in the store."""


@dataclass(frozen=True)
class NextVersion:
    """The version of a state that is captured next. ``moment`` is its state time in the store, epoch microseconds.

    ``before`` is the version that the store has; None for an empty store. Others may lie between the two.
    """

    source: Source
    state: str
    version: Version
    moment: int
    before: Version | None

    @property
    def at(self) -> StateAt:
        return self.source.at(self.state, self.version.number)


def records_of_version(table: VersionedTable, layout: Layout, wanted: NextVersion) -> Iterator[pa.RecordBatch]:
    """Yield the records of a version, those of one key in one batch.

    Raises NotFoundError VERSION_GONE where the engine removes what is read.
    """
    if wanted.source.info(wanted.state).has_past:
        written = wanted.source.written(wanted.state, wanted.version, wanted.before or _NOTHING)
        if written is not None and written.timed:
            yield from _timed(table, layout, wanted, written)
        else:
            yield from _of_past(table, layout, wanted)
            yield from _gone(table, layout, wanted, _rows(layout, wanted))
        return
    if wanted.before is None:
        if layout.counted:
            yield from _puts(layout.stored(_joined(_rows(layout, wanted), layout)), wanted)
            return
        for batch in _rows(layout, wanted):
            yield from _puts(layout.stored(batch), wanted)
        return
    with reading(wanted.source, wanted.state, [wanted.version.number]):
        written = wanted.source.written(wanted.state, wanted.version, wanted.before)
    if written is not None and _tells_rows(layout, written):
        yield from _written(table, layout, wanted, written)
        return
    is_keyed = bool(wanted.source.info(wanted.state).row_key)
    if is_keyed and wanted.source.keeps_versions and wanted.before.number in wanted.source.kept(wanted.state):
        found = _between_versions(layout, wanted)
        if found is not None:
            yield from found
            return
    yield from _against_store(table, layout, wanted)


# What the version itself wrote


def _written(table: VersionedTable, layout: Layout, wanted: NextVersion, written: Written) -> Iterator[pa.RecordBatch]:
    """Yield the records of what a version wrote to its files."""
    number = _number_in_group(layout, written)
    with reading(written, wanted.state, [wanted.version.number]):
        for part in written.parts():
            batches = (batch for batch in written.rows(part) if batch.num_rows)
            for batch in batches if number is None else _whole(batches):
                kinds = batch.column(WRITE).to_numpy(zero_copy_only=False)
                if number is None:
                    yield from _puts(_stored_where(layout, batch, kinds == PUT), wanted)
                    yield from _deletes(_stored_where(layout, batch, kinds == REMOVE), wanted)
                else:
                    yield from _of_groups(table, layout, wanted, number, batch, kinds)


def _tells_rows(layout: Layout, written: Written) -> bool:
    """Return whether writes have what the key of the store is made of, but for the number of a row in its group."""
    if layout.hashed:
        return not layout.counted and set(layout.hashed) <= set(written.group)
    number = _number_in_group(layout, written)
    return number is None or pa.types.is_integer(layout.key.field(number).type)


def _number_in_group(layout: Layout, written: Written) -> str | None:
    """Return the column of the store that numbers the rows of a group; None where each row is a group of its own."""
    stored = dict(layout.names)
    group = {stored.get(name, COPY if name == layout.number else name) for name in written.group}
    left = [] if layout.hashed else [name for name in layout.key.names if name not in group]
    assert len(left) < 2, f"{left} are no columns of {written.group}"
    return left[0] if left else None


def _whole(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches as one, if there are any."""
    found = list(batches)
    if found:
        yield _one(pa.Table.from_batches(found))


def _stored_where(layout: Layout, batch: pa.RecordBatch, chosen: np.ndarray) -> pa.RecordBatch:
    return layout.stored(batch if chosen.all() else batch.filter(pa.array(chosen)))


def _of_groups(
    table: VersionedTable,
    layout: Layout,
    wanted: NextVersion,
    number: str,
    batch: pa.RecordBatch,
    kinds: np.ndarray,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of whole groups, such as lists: what they have now, and the end of rows that they had.

    ``number`` is the column that numbers the rows of a group. All writes to a group have to be in the batch.
    """
    names = [name for name in layout.key.names if name != number]
    stored = layout.stored(_with_numbers(batch, layout))
    keys = [stored.column(name) for name in names]
    numbers, first = _groups(hash_keys(keys))
    had = _counts_in_store(table, [*names, number], [key.take(pa.array(first)) for key in keys])
    is_put, is_append = kinds == PUT, kinds == APPEND
    put = np.bincount(numbers[is_put], minlength=len(first))
    appended = np.bincount(numbers[is_append], minlength=len(first))
    replaced = np.bincount(numbers[~is_append], minlength=len(first)) > 0
    begin = np.where(replaced, put, had)  # where appended rows begin
    after = begin + appended
    places = np.zeros(batch.num_rows, np.int64)
    places[is_put] = _ranks(numbers[is_put])
    places[is_append] = begin[numbers[is_append]] + _ranks(numbers[is_append])
    stays = pa.array(np.flatnonzero(is_put | is_append))
    numbered = stored.schema.field(number)
    column = stored.schema.get_field_index(number)
    yield from _puts(stored.set_column(column, numbered, pa.array(places).cast(numbered.type)).take(stays), wanted)
    gone = np.maximum(had - after, 0)
    rows = np.repeat(np.arange(len(first)), gone)
    if len(rows):
        ended = stored.take(pa.array(first[rows]))
        copies = np.repeat(after, gone) + _ranks(rows)
        yield from _deletes(ended.set_column(column, numbered, pa.array(copies).cast(numbered.type)), wanted)


def _with_numbers(batch: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """Return writes with a column of numbers, which is made later."""
    if layout.number is None or layout.number in batch.schema.names:
        return batch
    return batch.append_column(layout.number, pa.array(np.zeros(batch.num_rows, np.int64)))


def _counts_in_store(table: VersionedTable, columns: Sequence[str], groups: list[pa.Array]) -> Ints:
    """Return the number of rows that each group has in the store; groups are distinct. ``columns`` are the key, the
    number of a row last."""
    names = columns[:-1]
    filters: tuple[Filter, ...] = ()
    count = len(groups[0])
    if len(names) == 1 and count <= FEW_GROUPS:
        filters = (Filter(names[0], "in", tuple(groups[0].to_pylist())),)
    wanted = Side(groups, [], hash_keys(groups))
    found = np.zeros(count, np.int64)
    query = Query(columns=tuple(columns), filters=filters)
    planned = table.for_plan()
    for split in planned.splits(query):
        for batch in planned.read(split, query):
            keys = [batch.column(name) for name in names]
            numbers, first = _groups(hash_keys(keys))
            side = Side([key.take(pa.array(first)) for key in keys], [], hash_keys(keys)[first])
            left, right = pairs(side, wanted)
            counts = np.bincount(numbers, minlength=len(first))
            found[right] += counts[left]
    return found


def _groups(hashes: np.ndarray) -> tuple[Ints, Ints]:
    """Return (the number of each row's group, the first row of each group)."""
    _, first, numbers = np.unique(hashes, return_index=True, return_inverse=True)
    return numbers.astype(np.int64), first.astype(np.int64)


def _ranks(numbers: Ints) -> Ints:
    """Return the place of each row among those of its number."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))) if len(order) else order
    ranks = np.empty(len(numbers), np.int64)
    ranks[order] = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return ranks


# What differs between two versions


def _between_versions(layout: Layout, wanted: NextVersion) -> Iterator[pa.RecordBatch] | None:
    """Return the records of the rows that differ from the version before, as the engine finds them; None where it
    has no way that costs less than a read."""
    assert wanted.before is not None
    old, new = numbers = wanted.before.number, wanted.version.number
    with reading(wanted.source, wanted.state, numbers):
        found = wanted.source.differing_rows(wanted.state, old, new, [layout.columns, layout.columns])
    if found is None:
        return None

    def records() -> Iterator[pa.RecordBatch]:
        with reading(wanted.source, wanted.state, numbers):
            for before, after in found:
                yield from _difference(_side(layout, before), _side(layout, after), layout, wanted)

    return records()


def _side(layout: Layout, rows: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    return layout.stored(_joined(rows, layout))


def _difference(
    before: pa.RecordBatch, after: pa.RecordBatch, layout: Layout, wanted: NextVersion
) -> Iterator[pa.RecordBatch]:
    """Yield the records that make one set of rows of the store another one."""
    old, new = (
        keyed_rows([rows.column(n) for n in layout.key.names], [rows.column(n) for n in layout.value.names])
        for rows in (before, after)
    )
    left, right = pairs(old, new)
    changed = right[np.any(differences(old, new, left, right), axis=1)]
    put = np.concatenate((others(after.num_rows, right), changed))
    yield from _puts(after.take(pa.array(put)), wanted)
    yield from _deletes(before.take(pa.array(others(before.num_rows, left))), wanted)


# What differs from the store


def _against_store(table: VersionedTable, layout: Layout, wanted: NextVersion) -> Iterator[pa.RecordBatch]:
    """Yield the records of the rows that differ from the newest state of the store, by ranges of their keys."""
    planned = table.for_plan()
    query = Query(columns=tuple(layout.schema.names))
    count = planned.count(Query()) or 0
    if layout.counted or count <= MOST_ROWS:
        before = _joined_stored((b for split in planned.splits(query) for b in planned.read(split, query)), layout)
        yield from _difference(before, _side(layout, _rows(layout, wanted)), layout, wanted)
        return
    ranges = -(-2 * count // MOST_ROWS)
    splits: list[list[Any]] = [[] for _ in range(ranges)]
    for number, split in planned.hashed_splits(query, ranges) or ():
        splits[number].append(split)
    with ExitStack() as files:
        parts = [files.enter_context(_temporary()) for _ in range(ranges)]
        _divide(layout, wanted, parts)
        for number, part in enumerate(parts):
            part.seek(0)
            after = _joined_stored(iter(pa.ipc.open_stream(part)), layout)
            before = _joined_stored((b for split in splits[number] for b in planned.read(split, query)), layout)
            yield from _difference(before, after, layout, wanted)


def _temporary() -> IO[bytes]:
    with disk_errors("write a temporary file in", tempfile.gettempdir()):
        return tempfile.TemporaryFile()


def _divide(layout: Layout, wanted: NextVersion, parts: Sequence[IO[bytes]]) -> None:
    """Write the rows of a version to a file for each range of key hashes."""
    with ExitStack() as writers, disk_errors("write a temporary file in", tempfile.gettempdir()):
        begins = np.array([(number << 64) // len(parts) for number in range(1, len(parts))], np.uint64)
        streams = [writers.enter_context(pa.ipc.new_stream(part, layout.schema)) for part in parts]
        for batch in _rows(layout, wanted):
            stored = layout.stored(batch)
            # The ranges of `VersionedTable.hashed_splits`: each begins at its number, times 2**64, by their count.
            hashes = hash_keys([stored.column(name) for name in layout.key.names])
            ranges = np.searchsorted(begins, hashes, side="right")
            order = np.argsort(ranges, kind="stable")
            ordered = stored.take(pa.array(order))
            ends = np.searchsorted(ranges[order], np.arange(len(parts) + 1))
            for number in range(len(parts)):
                if ends[number + 1] > ends[number]:
                    streams[number].write_batch(ordered.slice(ends[number], ends[number + 1] - ends[number]))


# Rows that say when they were valid


def _timed(table: VersionedTable, layout: Layout, wanted: NextVersion, written: Written) -> Iterator[pa.RecordBatch]:
    """Yield the records of writes that have their own times, in their order, and the ends of rows that are gone."""
    with reading(written, wanted.state, [wanted.version.number]):
        for part in written.parts():
            for batch in written.rows(part):
                if batch.num_rows:
                    is_gone = pc.equal(batch.column(WRITE), pa.scalar(REMOVE, pa.int8()))
                    moments = _micros(batch.column(WRITTEN_AT), wanted.moment)
                    yield _record_batch(layout.stored(batch), moments, pc.if_else(is_gone, DELETE, INSERT))
        remaining = written.remaining()
        if remaining is not None:
            yield from _gone(table, layout, wanted, remaining)


def _gone(
    table: VersionedTable, layout: Layout, wanted: NextVersion, remaining: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the ends of the rows of the store whose keys no longer are there, at the time of the version."""
    if wanted.before is None:
        return
    planned, query = table.for_plan(), Query(columns=tuple(layout.schema.names))
    before = _joined_stored((b for split in planned.splits(query) for b in planned.read(split, query)), layout)
    now = _joined_stored((layout.stored(batch) for batch in remaining), layout)
    old, new = (keyed_rows([rows.column(name) for name in layout.key.names], []) for rows in (before, now))
    left, _ = pairs(old, new)
    yield from _deletes(before.take(pa.array(others(before.num_rows, left))), wanted)


def _of_past(table: VersionedTable, layout: Layout, wanted: NextVersion) -> Iterator[pa.RecordBatch]:
    """Yield the records of rows of the present and the past, at their own times; those that the store has are left out.

    A row whose beginning is unknown begins with the version. All rows of one key are in one part.
    """
    at = past_of(wanted.at)
    known, ends = _known_past(table, layout)
    with reading(at, wanted.state, [at.version]):
        for part in at.parts(()):
            batches = list(at.past_rows(part, layout.columns, ()))
            if not batches:
                continue
            rows = _one(pa.Table.from_batches(batches))
            stored = layout.stored(rows.select([name for name in layout.columns if name in rows.schema.names]))
            start = _micros(rows.column("valid_from"), wanted.moment)
            end = _micros(rows.column("valid_to"), OPEN)
            held = start // TICK < end // TICK  # a row that was replaced at its own time is none
            stored, start, end = stored.filter(pa.array(held)), start[held], end[held]
            keys = [stored.column(name) for name in layout.key.names]
            new = ~np.isin(_row_hashes(stored, start), known)
            yield from _at_times(stored.filter(pa.array(new)), start[new], INSERT)
            ended = _hashes_at(keys, end)
            last = (end != OPEN) & ~np.isin(ended, _hashes_at(keys, start)) & ~np.isin(ended, ends)
            yield from _at_times(stored.filter(pa.array(last)), end[last], DELETE)


def _known_past(table: VersionedTable, layout: Layout) -> tuple[Hashes, Hashes]:
    """Return the hashes of the rows in the history of a store with their starts, and of their keys with their ends."""
    planned = table.for_plan()
    query = Query(columns=(*layout.schema.names, "valid_from", "valid_to"), mode="history")
    rows, ends = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    with notices_to(lambda text: None):  # of gaps, which are no news here
        splits = planned.splits(query)
    for split in splits:
        for batch in planned.read(split, query):
            stored = batch.select(layout.schema.names)
            rows.append(_row_hashes(stored, _micros(batch.column("valid_from"), OPEN)))
            keys = [stored.column(name) for name in layout.key.names]
            ends.append(_hashes_at(keys, _micros(batch.column("valid_to"), OPEN)))
    return np.concatenate(rows), np.concatenate(ends)


def _row_hashes(stored: pa.RecordBatch, start: Ints) -> Hashes:
    return _hashes_at(stored.columns, start)


def _hashes_at(columns: Sequence[pa.Array], times: Ints) -> Hashes:
    """Return the hash of each row with its time in milliseconds, which is what stores keep."""
    return hash_keys([*(comparable(column) for column in columns), pa.array(times // TICK)])


def _micros(column: pa.Array, absent: int) -> Ints:
    found: Ints = pc.fill_null(column.view(pa.int64()), absent).to_numpy(zero_copy_only=False)
    return found


def _at_times(stored: pa.RecordBatch, moments: Ints, kind: str) -> Iterator[pa.RecordBatch]:
    if stored.num_rows:
        yield _record_batch(stored, moments, pa.repeat(pa.scalar(kind), stored.num_rows))


# Rows and records


def _rows(layout: Layout, wanted: NextVersion) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the version in whole."""
    at = wanted.at
    with reading(at, wanted.state, [at.version]):
        for part in at.parts(()):
            for batch in at.rows(part, layout.columns, ()):
                if batch.num_rows:
                    yield batch


def _joined(batches: Iterable[pa.RecordBatch], layout: Layout) -> pa.RecordBatch:
    """Return batches of the state as one, with the columns that any of them has."""
    found = [batch.select([name for name in layout.columns if name in batch.schema.names]) for batch in batches]
    if not found:
        renamed = {stored: name for name, stored in layout.names}
        fields = [field.with_name(renamed.get(field.name, field.name)) for field in layout.schema]
        kept = [field for field in fields if field.name in layout.columns]
        return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in kept], schema=pa.schema(kept))
    return _one(pa.Table.from_batches(found))


def _joined_stored(batches: Iterable[pa.RecordBatch], layout: Layout) -> pa.RecordBatch:
    return _one(pa.Table.from_batches([batch.cast(layout.schema) for batch in batches], layout.schema))


def _one(table: pa.Table) -> pa.RecordBatch:
    columns = [pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type) for column in table]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _puts(stored: pa.RecordBatch, wanted: NextVersion) -> Iterator[pa.RecordBatch]:
    return _records(stored, wanted, INSERT)


def _deletes(stored: pa.RecordBatch, wanted: NextVersion) -> Iterator[pa.RecordBatch]:
    return _records(stored, wanted, DELETE)


def _records(stored: pa.RecordBatch, wanted: NextVersion, kind: str) -> Iterator[pa.RecordBatch]:
    if stored.num_rows:
        kinds = pa.repeat(pa.scalar(kind), stored.num_rows)
        yield _record_batch(stored, np.full(stored.num_rows, wanted.moment), kinds)


def _record_batch(stored: pa.RecordBatch, moments: Ints, kinds: pa.Array) -> pa.RecordBatch:
    fields = [*stored.schema, pa.field("timestamp", TIME), pa.field("_change_type", pa.string())]
    return pa.RecordBatch.from_arrays([*stored.columns, pa.array(moments).cast(TIME), kinds], schema=pa.schema(fields))
