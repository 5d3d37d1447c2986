"""Chosen rows of many parts as columns of their own: by compiled loops, or by Arrow where these are not loaded.

A loop copies a number in a nanosecond and a short text in three, whatever the number of parts. Arrow takes two to four
times as long, and some microseconds for each part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.reads.chosen_rows import ChosenRows, Rows, stored_columns
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.column_checks import check_values
from statestore.formats.segments.regions import corrupt

MOST_TEXT = 2**31 - 1  # bytes of the texts of one array
SPARE = 32  # bytes behind the texts that a loop may overwrite
TEXT_BYTES = 24  # of a text of which only the type is known
RUN_ROWS = 6  # where consecutive rows are so many on average, they are copied as runs
SPARSE = 4  # where fewer than one row in so many is chosen, Arrow takes the rows of a part before it joins parts


class TooMuchTextError(Exception):
    """The texts of one column have more bytes than an array can hold."""


class GatheredColumn:
    """A stored column of the parts of ``chosen``, of which ranges of rows are copied into arrays."""

    def __init__(self, chosen: ChosenRows, name: str, compiled: bool) -> None:
        self._name = name
        self._chosen = chosen
        self._columns = stored_columns(chosen.parts, name)
        self.type: pa.DataType = chosen.parts[0].file.schema.field(name).type
        self._gather: Callable[[Range], pa.Array] = self._gather_by_arrow
        self._width = bit_width(self.type)
        if compiled and self._has_addresses():
            self._gather = self._chosen_loop()

    @property
    def row_bytes(self) -> float:
        """Bytes that a row takes, on average."""
        if not is_text(self.type):
            return max(self._width, 8) / 8
        rows = sum(len(column.array) for column in self._columns)
        return 4 + sum(column.text_bytes for column in self._columns) / max(rows, 1)

    def rows(self, chosen: Range) -> pa.Array:
        """Return a range of the chosen rows.

        Raises TooMuchTextError, or CorruptError for offsets that are wrong.
        """
        return self._gather(chosen)

    def _has_addresses(self) -> bool:
        return (self._width > 0 or is_text(self.type)) and all(column.values for column in self._columns)

    def _chosen_loop(self) -> Callable[[Range], pa.Array]:
        """Prepare the addresses of all parts, and return the method that gathers this type."""
        columns = self._columns
        self._values = np.array([column.values for column in columns])
        validity = [column.validity for column in columns]
        self._validity = np.array(validity) if any(validity) else None
        if not is_text(self.type):
            return self._gather_bits if self._width == 1 else self._gather_values
        self._texts = np.array([column.text for column in columns])
        self._text_bytes = np.array([column.text_bytes for column in columns])
        return self._gather_texts

    def _gather_values(self, chosen: Range) -> pa.Array:
        from statestore.formats.kernels.gather_kernels import gather_values

        width = self._width // 8
        values = pa.allocate_buffer(chosen.count * width)
        gather_values(self._values[chosen.parts], *chosen.arrays, width, values.address)
        return self._array(chosen, [values])

    def _gather_bits(self, chosen: Range) -> pa.Array:
        return self._array(chosen, [self._bits(self._values[chosen.parts], chosen)[0]])

    def _gather_texts(self, chosen: Range) -> pa.Array:
        from statestore.formats.kernels.gather_kernels import gather_texts, text_room

        address, sizes = self._values[chosen.parts], self._text_bytes[chosen.parts]
        bounds, rows, *_ = chosen.arrays
        room = text_room(address, sizes, bounds, rows, not chosen.is_dense)
        if room > MOST_TEXT:
            raise TooMuchTextError
        size = -1
        if room >= 0:
            offsets, texts = pa.allocate_buffer(4 * chosen.count + 4), pa.allocate_buffer(room + SPARE)
            values = self._texts[chosen.parts]
            size = gather_texts(address, values, sizes, *chosen.arrays, offsets.address, texts.address, room)
        if size < 0:
            raise self._wrong(chosen.parts)
        return self._array(chosen, [offsets, texts.slice(0, size)])

    def _array(self, chosen: Range, buffers: Sequence[pa.Buffer]) -> pa.Array:
        validity, nulls = None, 0
        if self._validity is not None and self._validity[chosen.parts].any():
            validity, nulls = self._bits(self._validity[chosen.parts], chosen)
        return pa.Array.from_buffers(self.type, chosen.count, [validity if nulls else None, *buffers], nulls)

    def _bits(self, addresses: Ints, chosen: Range) -> tuple[pa.Buffer, int]:
        """Return gathered bits, and how many of them are not set."""
        from statestore.formats.kernels.gather_kernels import gather_bits

        bits = pa.allocate_buffer(-(-chosen.count // 8))
        bounds, rows, *_ = chosen.arrays
        return bits, chosen.count - gather_bits(addresses, bounds, rows, bits.address)

    def _wrong(self, parts: slice) -> Exception:
        """Return the error for offsets that a loop has found to be wrong, though they were right when checked."""
        for part, column in zip(self._chosen.parts[parts], self._columns[parts], strict=True):
            try:
                check_values(column.array)
            except pa.ArrowException as error:
                return corrupt(part.segment.meta.file, f"column {self._name!r}: {error}")
        return corrupt(
            self._chosen.parts[parts][0].segment.meta.file, f"column {self._name!r} changed while it is read"
        )

    def _gather_by_arrow(self, chosen: Range) -> pa.Array:
        parts, bounds = chosen.parts, chosen.arrays[0]
        slices: list[pa.Array] = []
        wanted: list[Any] = []
        joined_rows = 0
        for column, first, stop in zip(self._columns[parts], bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            rows = self._chosen.rows[first:stop]
            low, span = int(rows[0]), int(rows[-1]) - int(rows[0]) + 1
            mine = column.array.slice(low, span)
            if len(rows) * SPARSE < span:
                mine, rows = mine.take(pa.array(rows - low)), np.arange(len(rows), dtype=np.int32)
                low = 0
            slices.append(mine)
            wanted.append(rows + np.int64(joined_rows - low))
            joined_rows += len(mine)
        try:
            whole = slices[0] if len(slices) == 1 else pa.concat_arrays(slices)
        except pa.ArrowInvalid as error:  # offsets would overflow
            raise TooMuchTextError from error
        return whole if len(whole) == chosen.count else whole.take(pa.array(np.concatenate(wanted)))


@dataclass(frozen=True)
class Range:
    """Some of the chosen rows: their parts, and (bounds, rows, begins of runs, bounds of runs) for the loops."""

    parts: slice
    count: int
    arrays: tuple[Ints, Rows, Rows, Ints]

    @property
    def is_dense(self) -> bool:
        """Whether at least every other row of the parts, from their first chosen row to the last, is chosen."""
        bounds, rows, *_ = self.arrays
        span = int((rows[bounds[1:] - 1].astype(np.int64) - rows[bounds[:-1]] + 1).sum())
        return 2 * self.count >= span


def rows_between(chosen: ChosenRows, first: int, stop: int, compiled: bool) -> Range:
    """Return the chosen rows [first, stop) by part."""
    begin, end = chosen.bounds.searchsorted([first, stop - 1], "right").tolist()
    bounds = chosen.bounds[begin - 1 : end + 1].copy()
    bounds[0], bounds[-1] = first, stop
    begins, run_bounds = np.empty(0, np.int32), np.zeros(len(bounds), np.int64)
    if compiled:
        from statestore.formats.kernels.gather_kernels import find_runs

        begins = np.empty((stop - first) // RUN_ROWS + len(bounds), np.int32)
        find_runs(bounds, chosen.rows, RUN_ROWS, begins, run_bounds)
    return Range(slice(begin - 1, end), stop - first, (bounds, chosen.rows, begins, run_bounds))


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def bit_width(kind: pa.DataType) -> int:
    """Bits of a value of a type that compiled loops gather, 0 for text and nested types."""
    if not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)):
        return 0
    width: int = kind.bit_width
    return width if width in (1, 8, 16, 32, 64, 128) else 0


def usual_bytes(kind: pa.DataType) -> float:
    """Bytes of a value by its type alone."""
    return bit_width(kind) / 8 or TEXT_BYTES
