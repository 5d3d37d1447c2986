"""The as-of join on Arrow. The table looks the left rows up by key and time, or its history is read.

For that the left rows are sorted by (hash of the key, time). The left rows in a version's interval [valid_from,
valid_to) then lie side by side, so each batch of the history needs two binary searches a version, and no left row is
read twice. Keys with equal hashes are distinguished by comparing the keys. Memory grows with the left side, not with
the history.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.reads.lookup.rows_at_times import rows_at_times
from statestore.catalog.stores.record_input import instants_of, is_text, times_of
from statestore.connector.asof.join_request import AsofRequest
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.state_table import Query
from statestore.formats.values.exact_cast import cast_exactly
from statestore.formats.values.filters import Filter, check_filters
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys

THREADS = min(8, os.cpu_count() or 1)
# Up to this many keys are looked up in the table's index; for more, the history is read. One key of a million is joined
# in a fifteenth of the time of that, 4,000 in half, and 30,000 would take five times as long.
FEW_KEYS = 4_096
FEW_NESTED_KEYS = 32  # of 200,000 such keys: 32 are joined in half of the time, and 400 would take twice as long
MILLISECOND = 1000
BEGINNING = -(1 << 61)  # before all times: the start of a version that is older than the known state of the table


@dataclass(frozen=True)
class _Clock:
    """Times as numbers from 0 to ``top``, in order: multiples of ``unit`` since the first time, or ranks where such
    numbers would be too wide. The left times are whole multiples of ``unit`` (microseconds) apart; the times of a table
    need not be."""

    first: int
    last: int
    unit: int
    ranks: Ints | None  # the distinct times, where numbers are ranks

    @staticmethod
    def of(times: Ints, groups: int) -> _Clock:
        if not len(times):
            return _Clock(0, 0, 1, None)
        first, last = int(times.min()), int(times.max())
        unit = 1 if ((times - first) % MILLISECOND).any() else MILLISECOND
        fits = groups * ((last - first) // unit + 2) < 1 << 62
        return _Clock(first, last, unit, None if fits else np.unique(times))

    @property
    def top(self) -> int:
        return (self.last - self.first) // self.unit + 1 if self.ranks is None else len(self.ranks)

    def numbers(self, times: Ints) -> Ints:
        """Return, for each time, the number of the first left time at or after it."""
        if self.ranks is not None:
            ranks: Ints = np.searchsorted(self.ranks, times)
            return ranks
        inside: Ints = -(-(np.clip(times, self.first, self.last + self.unit) - self.first) // self.unit)
        return inside


@dataclass(frozen=True)
class _Known:
    """The left rows whose key and time are known, in their order."""

    row: Ints  # in the left table
    keys: list[pa.Array]  # as the store types them
    time: Ints  # epoch microseconds


@dataclass(frozen=True)
class _Left:
    """The left rows that can meet a version, sorted by (group of equal hashes, time)."""

    row: Ints  # in the left table
    keys: list[pa.Array]  # of the left table, as the store types them
    cells: list[pa.Array]  # the keys in the form of `comparable`
    hashes: npt.NDArray[np.uint64]  # distinct, ascending: one a group
    order_key: Ints  # group * (top of the clock + 1) + number of the time, ascending
    clock: _Clock
    time: Ints  # of each left row


def join_table(left: pa.Table, request: AsofRequest, history: Iterable[pa.RecordBatch] | None = None) -> pa.Table:
    """Return the left rows in their order with the added columns, which are null where nothing was valid.

    ``history`` must hold at least the versions of the left rows' keys and times; by default it is read from the table.
    Raises NotFoundError TIME_NOT_KEPT for a left row that is older than the known state of the table.
    """
    known = _known_rows(left, request)
    found = _looked_up(known, request, left.num_rows) if history is None else None
    if found is None:
        sides = _sorted(known, request)
        history = _history(sides, request) if history is None else history
        found = _match(sides, request, left.num_rows, history)
    matches, values = found
    if request.how == "inner":
        kept = np.flatnonzero(matches >= 0)
        if len(kept) < left.num_rows:
            left, matches = left.take(pa.array(kept)), matches[kept]
    positions = pa.array(matches, mask=matches < 0)
    result = left
    for field, column in zip(request.added_schema(), values.columns, strict=True):
        result = result.append_column(field.with_nullable(True), column.take(positions))
    return result


def result_schema(left: pa.Schema, request: AsofRequest) -> pa.Schema:
    added = [field.with_nullable(True) for field in request.added_schema()]
    return pa.schema([*left, *added], metadata=left.metadata)


def prepared_keys(left: pa.Table, request: AsofRequest) -> list[pa.Array]:
    """The left side's key columns, cast to the types of the store's key; InvalidInputError WRONG_KEY where they cannot
    be."""
    schema = request.table.schema(Query())
    return [
        _cast(whole(left[name]), schema.field(column).type, name)
        for name, column in zip(request.left_keys, request.key_columns, strict=True)
    ]


def _known_rows(left: pa.Table, request: AsofRequest) -> _Known:
    keys = prepared_keys(left, request)
    moments = whole(left[request.left_time])
    usable = np.ones(left.num_rows, bool)
    for column in (*keys, moments):
        if column.null_count:
            usable &= column.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(usable)
    if len(rows) < left.num_rows:
        keys = [column.take(pa.array(rows)) for column in keys]
        moments = moments.take(pa.array(rows))
    time = left_times(moments, request.left_time)
    if len(time):
        request.check_times(int(time.min()))
    return _Known(rows, keys, time)


def _sorted(known: _Known, request: AsofRequest) -> _Left:
    keys, time = known.keys, known.time
    cells = request.cells(keys)
    hashes = hash_keys(cells) if len(time) else np.empty(0, np.uint64)
    distinct, group = np.unique(hashes, return_inverse=True)
    clock = _Clock.of(time, len(distinct))
    order_key = group.astype(np.int64) * (clock.top + 1) + clock.numbers(time)
    order = np.argsort(order_key)
    chosen = pa.array(order)
    cells = [column.take(chosen) for column in cells]
    return _Left(
        known.row[order], [k.take(chosen) for k in keys], cells, distinct, order_key[order], clock, time[order]
    )


def _looked_up(known: _Known, request: AsofRequest, rows: int) -> tuple[Ints, pa.Table] | None:
    """Return what `_match` does, where the table finds the rows of keys at less cost than by a read of its history."""
    if not len(known.time) or tuple(request.key_columns) != request.table.row_key:
        return None
    names = [name for name, _ in request.added]
    if request.floor is not None and "valid_to" not in names:
        names.append("valid_to")
    query = replace(request.history(int(known.time.min()), int(known.time.max())), columns=tuple(names))
    found = rows_at_times(request.table, known.keys, known.time, query)
    if found is None:
        return None
    positions, values = found
    if request.floor is not None:
        is_open = values.column("valid_to").is_null().to_numpy()
        is_met = positions >= 0
        is_met[is_met] = is_open[positions[is_met]]
        positions[~is_met & (known.time < request.floor)] = -1
    matches = np.full(rows, -1, np.int64)
    matches[known.row] = positions
    return matches, values.select([name for name, _ in request.added])


def _match(sides: _Left, request: AsofRequest, rows: int, history: Iterable[pa.RecordBatch]) -> tuple[Ints, pa.Table]:
    """(for each left row the position of its version among the values, or -1; the values of these versions)."""
    matches = np.full(rows, -1, np.int64)
    names = [name for name, _ in request.added]
    schema = request.table.schema(Query(mode="history", columns=tuple(names)))
    met: list[pa.RecordBatch] = []
    count = 0
    for batch, version, position in _all_meetings(sides, request, history):
        if not len(version):
            continue
        distinct, where = np.unique(version, return_inverse=True)
        matches[sides.row[position]] = count + where
        met.append(pa.RecordBatch.from_arrays([batch.column(n).take(pa.array(distinct)) for n in names], schema=schema))
        count += len(distinct)
    return matches, pa.Table.from_batches(met, schema=schema).combine_chunks()


def _all_meetings(
    sides: _Left, request: AsofRequest, history: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, Ints, Ints]]:
    """Yield `_meetings` of each batch, on as many threads as there are cores: numpy's searches run in parallel."""
    if not len(sides.row):
        return
    with ThreadPoolExecutor(THREADS) as pool:
        running: deque[tuple[pa.RecordBatch, Future[tuple[Ints, Ints]]]] = deque()
        for batch in history:
            running.append((batch, pool.submit(_meetings, sides, request, batch)))
            if len(running) > THREADS:
                done, meetings = running.popleft()
                yield done, *meetings.result()
        for done, meetings in running:
            yield done, *meetings.result()


def _history(sides: _Left, request: AsofRequest) -> Iterator[pa.RecordBatch]:
    query = request.history(sides.clock.first, sides.clock.last)
    filters = _few_keys(sides, request)
    query = Query(**{**vars(query), "filters": filters})
    for split in request.table.splits(query):
        yield from request.table.read(split, query)


def _few_keys(sides: _Left, request: AsofRequest) -> tuple[Filter, ...]:
    """A filter on each key column where the left side has few keys, which the table finds in its index. Nested values
    are compared one by one, so at most FEW_NESTED_KEYS of them are looked up."""
    nested = any(pa.types.is_nested(column.type) for column in sides.keys)
    if len(sides.hashes) > (FEW_NESTED_KEYS if nested else FEW_KEYS):
        return ()
    first = np.searchsorted(sides.order_key, np.arange(len(sides.hashes)) * (sides.clock.top + 1))
    group = sides.order_key // (sides.clock.top + 1)
    if not keys_equal(sides.cells, np.arange(len(sides.order_key)), sides.cells, first[group]).all():
        return ()  # different keys with one hash
    filters = []
    for name, column in zip(request.key_columns, sides.keys, strict=True):
        cells = column.take(pa.array(first))
        filters.append(Filter(name, "in", tuple((cells if nested else cells.unique()).to_pylist())))
    return tuple(filters) if _can_filter(filters, request) else ()


def _can_filter(filters: Sequence[Filter], request: AsofRequest) -> bool:
    try:
        check_filters(filters, request.table.schema(Query()))
    except StateStoreError:  # values of this type cannot be compared with constants
        return False
    return True


def _meetings(sides: _Left, request: AsofRequest, batch: pa.RecordBatch) -> tuple[Ints, Ints]:
    """(row of the batch, sorted position of the left row) for each left row in the interval of a version of the
    batch."""
    keys = request.cells([batch.column(name) for name in request.key_columns])
    hashes = hash_keys(keys)
    order = np.argsort(hashes)  # sorted probes are found many times faster
    probes = hashes[order]
    group = np.searchsorted(sides.hashes, probes)
    group[group == len(sides.hashes)] = 0
    hit = sides.hashes[group] == probes
    versions, group = order[hit], group[hit]
    if not len(versions):
        return versions, versions
    base = group.astype(np.int64) * (sides.clock.top + 1)
    is_open = batch.column("valid_to").is_null().to_numpy(zero_copy_only=False)[versions]
    start = sides.clock.numbers(_microseconds(batch.column("valid_from"), BEGINNING))[versions]
    end = np.where(is_open, sides.clock.top, sides.clock.numbers(_microseconds(batch.column("valid_to")))[versions])
    low = np.searchsorted(sides.order_key, base + start)
    high = np.searchsorted(sides.order_key, base + end)
    counts = np.maximum(high - low, 0)
    meeting = np.repeat(np.arange(len(versions)), counts)
    position = np.arange(len(meeting)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(low, counts)
    if request.floor is not None:
        kept = is_open[meeting] | (sides.time[position] >= request.floor)
        meeting, position = meeting[kept], position[kept]
    row = versions[meeting]
    same = keys_equal(sides.cells, position, keys, row)
    return row[same], position[same]


def left_times(column: pa.Array, name: str) -> Ints:
    """Epoch microseconds of a column of times; raises as `times_of`."""
    if is_text(column.type):
        column = instants_of(column, name)
    floored = times_of(column, name)
    if pa.types.is_timestamp(column.type) and column.type.unit in ("us", "ns"):
        exact: Ints = column.view(pa.int64()).to_numpy(zero_copy_only=False) // (
            1 if column.type.unit == "us" else 1000
        )
        return exact
    return floored


def _microseconds(column: pa.Array, absent: int = 0) -> Ints:
    times = column.cast(pa.timestamp("us", "UTC")).view(pa.int64())
    numbers: Ints = times.fill_null(absent).to_numpy(zero_copy_only=False)
    return numbers


def whole(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array, without a dictionary."""
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):  # an empty table, or more than an array can hold
        combined = pa.concat_arrays(combined.chunks) if combined.num_chunks else pa.array([], column.type)
    return combined.dictionary_decode() if pa.types.is_dictionary(combined.type) else combined


def _cast(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    try:
        return cast_exactly(column, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            ErrorCode.WRONG_KEY, f"column {name!r} is {column.type}; the key it is joined with is {kind} ({error})"
        ) from error
