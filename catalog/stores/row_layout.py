"""Row keys of live stores: the layout of key bytes and times of each kind, and its conversion to columns and back.

The layouts are those of Kafka Streams (``formats/kafka_rows``): ``key | start | sequence`` in window stores, ``key |
end | start`` in session stores, numbers big-endian. This module converts whole batches; the live stores convert single
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.values.types import TIME

TICK = 1_000  # microseconds in a millisecond
MAX_MS = 2**63 - 1


@dataclass(frozen=True)
class RowLayout:
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


def layout_of(spec: StoreSpec) -> RowLayout:
    """Return the layout of a store's kind."""
    if spec.kind == "window":
        assert spec.windowing is not None
        return _window(spec.windowing.window_size, spec.windowing.duplicates)
    if spec.kind == "join_window":
        return RowLayout(12, _join_window_columns, _time_and_sequence)
    if spec.kind == "session":
        return RowLayout(16, _session_columns, lambda columns: _bytes(_ms(columns[1]), _ms(columns[0])))
    return RowLayout(0, lambda tails: ([], None), lambda columns: np.empty((0, 0), np.uint8))


def _window(size: int, duplicates: bool) -> RowLayout:
    def columns(tails: npt.NDArray[np.uint8]) -> tuple[list[pa.Array], Ints]:
        starts = _numbers(tails[:, :8])
        ends = np.where(starts > MAX_MS - size, MAX_MS, starts + size)
        times = [_times(starts), _times(ends)]
        return [*times, _sequences(tails)] if duplicates else times, starts * TICK

    def suffixes(columns: Sequence[pa.Array]) -> npt.NDArray[np.uint8]:
        return _time_and_sequence((columns[0], columns[-1])) if duplicates else _time_and_sequence((columns[0],))

    return RowLayout(12, columns, suffixes)


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
