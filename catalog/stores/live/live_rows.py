"""The three forms of a live store's row: bytes in hot tier and changelog, Arrow columns in tables, Python for users.

This module converts whole batches, and the live stores convert single rows. ``formats/serdes`` makes bytes of keys and
values. The layout of the kind adds its times to a key, as Kafka Streams does (``formats/kafka_rows``): ``key | start |
sequence`` in window stores, ``key | end | start`` in session stores, numbers big-endian.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.commits.sorted_records import Records
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.stores.live.hot_tier import ONE, HotTier
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.kafka_rows.window_keys import MAX_TIME
from statestore.formats.kernels.arrays import Ints
from statestore.formats.serdes.row_serde import RowSerde, row_serde
from statestore.formats.values.times import TICK
from statestore.formats.values.types import TIME

# From this many rows on, a sorted file costs less than single writes. With files alone, `put_all` of 10 rows would take
# 2.1 times as long, of 200 rows 1.5 times; with single writes alone, of 20,000 rows 2.1 times.
INGEST_ROWS = 2_000


@dataclass(frozen=True)
class RowForms:
    """The forms of the rows of one store, and the conversions between them."""

    spec: StoreSpec
    serde: RowSerde
    layout: _RowLayout

    def records(self, row_keys: pa.BinaryArray, values: pa.BinaryArray, times: Ints) -> Records:
        """Return rows as records of the store's table, valid from ``times`` (epoch microseconds) on."""
        keys, columns, _ = self.layout.split(row_keys)
        dead = values.is_null().to_numpy(zero_copy_only=False)
        return Records([*self.serde.keys_from_bytes(keys), *columns], self.serde.values_from_bytes(values), times, dead)

    def rows(self, batch: pa.RecordBatch) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        """Return (row keys, values) of a batch with the table's key and value columns, in their order."""
        width, user = len(self.spec.key), len(self.spec.user_key)
        keys = self.serde.keys_to_bytes(batch.columns[:user])
        row_keys = self.layout.join(keys, batch.columns[user:width])
        return row_keys, self.serde.values_to_bytes(batch.columns[width : width + len(self.spec.value)], batch.num_rows)

    def times(self, row_keys: pa.BinaryArray) -> Ints | None:
        """Return the epoch milliseconds of the rows; None if the kind has no times of its own."""
        times = self.layout.split(row_keys)[2]
        return None if times is None else times // TICK

    def time_segments(self, times: Ints | None) -> Ints | None:
        """Return the segment of each time; None for a kind without segments."""
        if times is None or self.spec.windowing is None:
            return None
        interval = self.spec.windowing.segment_interval
        time_segments: Ints = np.where(times >= 0, times // interval, -(-times // interval))
        return time_segments


def row_forms(spec: StoreSpec) -> RowForms:
    return RowForms(spec, row_serde(spec.serde, spec.user_key, spec.value), _layout_of(spec))


def apply_rows(
    tier: HotTier, row_keys: pa.BinaryArray, values: pa.BinaryArray, time_segments: Ints | None, first_live: int
) -> None:
    """Write rows (null values remove) into the tier, in order; rows of dead segments are left out."""
    for time_segment, chosen in _by_time_segment(time_segments, len(row_keys)):
        if time_segments is not None and time_segment < first_live:
            continue
        keys, cells = (row_keys, values) if chosen is None else (row_keys.take(chosen), values.take(chosen))
        rows = dict(zip(keys.to_pylist(), cells.to_pylist(), strict=True))
        if len(rows) >= INGEST_ROWS:
            tier.ingest(time_segment, rows)
        else:
            for key, value in rows.items():
                tier.put(time_segment, key, value)


def _by_time_segment(time_segments: Ints | None, rows: int) -> Iterator[tuple[int, pa.Array | None]]:
    if time_segments is None:
        if rows:
            yield ONE, None
        return
    for time_segment in np.unique(time_segments).tolist():
        yield time_segment, pa.array(np.flatnonzero(time_segments == time_segment))


def binary_columns(batches: Sequence[pa.RecordBatch], name: str) -> pa.BinaryArray:
    """Return one column of several batches as one array."""
    return pa.concat_arrays([batch.column(name) for batch in batches]) if batches else pa.array([], pa.binary())


@dataclass(frozen=True)
class _RowLayout:
    """A layout in which ``suffix`` bytes follow the user's key in a row key.

    ``columns`` converts those bytes (one numpy row per row key) to the kind's key columns and the rows' state times in
    epoch microseconds (None: the time of the commit). ``suffixes`` converts the kind's key columns back to bytes.
    """

    suffix: int
    columns: Callable[[npt.NDArray[np.uint8]], tuple[list[pa.Array], Ints | None]]
    suffixes: Callable[[Sequence[pa.Array]], npt.NDArray[np.uint8]]

    def split(self, row_keys: pa.BinaryArray) -> tuple[pa.BinaryArray, list[pa.Array], Ints | None]:
        """Return (key bytes, the kind's key columns, state times or None) of each row key."""
        if not self.suffix:
            return row_keys, [], None
        lengths = pc.binary_length(row_keys).to_numpy(zero_copy_only=False)
        if len(lengths) and lengths.min() < self.suffix:
            raise CorruptError(
                ErrorCode.ROW_CORRUPT,
                f"a row key has {lengths.min()} bytes; expected at least {self.suffix}, the length of its times",
            )
        ends = np.frombuffer(row_keys.buffers()[1], np.int32)[row_keys.offset + 1 :][: len(row_keys)]
        data = np.frombuffer(row_keys.buffers()[2] or b"", np.uint8)
        tails = data[ends[:, None].astype(np.int64) + np.arange(-self.suffix, 0)]
        columns, times = self.columns(tails)
        return pc.binary_slice(row_keys, 0, -self.suffix), columns, times

    def join(self, keys: pa.BinaryArray, columns: Sequence[pa.Array]) -> pa.BinaryArray:
        """Return row keys from key bytes and the kind's key columns."""
        if not self.suffix:
            return keys
        tails = np.ascontiguousarray(self.suffixes(columns))
        fixed = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(self.suffix), len(keys), [None, pa.py_buffer(tails.tobytes())]
        )
        return pc.binary_join_element_wise(keys, fixed.cast(pa.binary()), b"")


def _layout_of(spec: StoreSpec) -> _RowLayout:
    """Return the layout of a store's kind."""
    if spec.kind == "window":
        assert spec.windowing is not None
        return _window(spec.windowing.window_size, spec.windowing.duplicates)
    if spec.kind == "join_window":
        return _RowLayout(12, _join_window_columns, _time_and_sequence)
    if spec.kind == "session":
        return _RowLayout(16, _session_columns, lambda columns: _bytes(_ms(columns[1]), _ms(columns[0])))
    return _RowLayout(0, lambda tails: ([], None), lambda columns: np.empty((0, 0), np.uint8))


def _window(size: int, duplicates: bool) -> _RowLayout:
    def columns(tails: npt.NDArray[np.uint8]) -> tuple[list[pa.Array], Ints]:
        starts = _numbers(tails[:, :8])
        ends = np.where(starts > MAX_TIME - size, MAX_TIME, starts + size)
        times = [_times(starts), _times(ends)]
        return [*times, _sequences(tails)] if duplicates else times, starts * TICK

    def suffixes(columns: Sequence[pa.Array]) -> npt.NDArray[np.uint8]:
        return _time_and_sequence((columns[0], columns[-1])) if duplicates else _time_and_sequence((columns[0],))

    return _RowLayout(12, columns, suffixes)


def _join_window_columns(tails: npt.NDArray[np.uint8]) -> tuple[list[pa.Array], Ints]:
    times = _numbers(tails[:, :8])
    return [_times(times), _sequences(tails)], times * TICK


def _session_columns(tails: npt.NDArray[np.uint8]) -> tuple[list[pa.Array], Ints]:
    ends, starts = _numbers(tails[:, :8]), _numbers(tails[:, 8:])
    return [_times(starts), _times(ends)], ends * TICK


def _time_and_sequence(columns: Sequence[pa.Array]) -> npt.NDArray[np.uint8]:
    times = _ms(columns[0])
    sequence = columns[1].to_numpy(zero_copy_only=False) if len(columns) > 1 else np.zeros(len(times), np.int32)
    return np.hstack((_bytes(times), sequence.astype(">i4").view(np.uint8).reshape(-1, 4)))


def _bytes(*numbers: Ints) -> npt.NDArray[np.uint8]:
    """Return eight big-endian bytes for each number, side by side."""
    return np.hstack([column.astype(">i8").view(np.uint8).reshape(-1, 8) for column in numbers])


def _numbers(eight: npt.NDArray[np.uint8]) -> Ints:
    return np.ascontiguousarray(eight).view(">i8").reshape(-1).astype(np.int64)


def _sequences(tails: npt.NDArray[np.uint8]) -> pa.Array:
    return pa.array(np.ascontiguousarray(tails[:, 8:]).view(">i4").reshape(-1).astype(np.int32))


def _ms(column: pa.Array) -> Ints:
    """Return the epoch milliseconds of a time column."""
    numbers: Ints = column.view(pa.int64()).to_numpy(zero_copy_only=False) // TICK
    return numbers


def _times(milliseconds: Ints) -> pa.Array:
    return pa.array(milliseconds * TICK).cast(TIME)
