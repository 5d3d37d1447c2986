"""Columns of chosen rows, copied out of many parts: a range of the rows is a record batch of its own.

One compiled loop copies all columns of a batch into one buffer, a number in a nanosecond and a short text in three,
whatever the number of parts. A call for each column, with a buffer of its own, took a fifth of a millisecond more for
each batch. Arrow gathers nested columns, and all columns where the loops are not loaded. It takes two to four times as
long, and some microseconds for each part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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
ALIGNED = 64  # bytes; where the values of an array begin
# Where fewer than one row in so many is chosen, Arrow takes the rows of a part before it joins parts, so that it joins
# at most so many times the bytes of a batch. Were they always taken before, a scan without compiled loops would take
# 1.3 to 1.5 times as long (scans.py, 100x as delivered).
SPARSE = 4


class TooMuchTextError(Exception):
    """The texts of one column have more bytes than an array can hold."""


class GatheredColumns:
    """Stored columns of the parts of ``chosen``, of which ranges of rows are copied into arrays."""

    def __init__(self, chosen: ChosenRows, names: Sequence[str], compiled: bool) -> None:
        self._chosen = chosen
        self._names = names
        self._stored = [stored_columns(chosen.parts, name) for name in names]
        schema = chosen.parts[0].file.schema
        self._types: list[pa.DataType] = [schema.field(name).type for name in names]
        looped = range(len(names)) if compiled else ()
        self._looped = [number for number in looped if self._has_addresses(number)]
        if self._looped:
            self._places = self._places_of(self._looped)

    @cached_property
    def row_bytes(self) -> float:
        """Bytes that a row takes, on average."""
        total = 0.0
        for kind, stored in zip(self._types, self._stored, strict=True):
            if is_text(kind):
                rows = sum(len(column.array) for column in stored)
                total += 4 + sum(column.text_bytes for column in stored) / max(rows, 1)
            else:
                total += max(bit_width(kind), 8) / 8
        return total

    def rows(self, chosen: Range) -> list[pa.Array]:
        """Return the columns of a range of the chosen rows.

        Raises TooMuchTextError, or CorruptError for offsets that are wrong.
        """
        found = dict(zip(self._looped, self._by_loop(chosen), strict=True)) if self._looped else {}
        return [
            found[number] if number in found else self._by_arrow(number, chosen) for number in range(len(self._names))
        ]

    def _has_addresses(self, number: int) -> bool:
        kind = self._types[number]
        return (bit_width(kind) > 0 or is_text(kind)) and all(column.values for column in self._stored[number])

    def _places_of(self, numbers: list[int]) -> Ints:
        """Return addresses of the validity, the values and the texts of each part of a column, and bytes of texts."""
        places = [list(zip(*(column[1:] for column in self._stored[number]), strict=True)) for number in numbers]
        return np.array(places, np.int64)

    def _by_loop(self, chosen: Range) -> list[pa.Array]:
        from statestore.formats.kernels.gather_kernels import ONES, ROOM, gather_columns

        layout, buffer, begins = self._layout(chosen)
        parts, count = chosen.parts, chosen.count
        wrong = gather_columns(layout, self._places, parts.start, parts.stop, chosen.bounds, chosen.rows)
        if wrong >= 0:
            raise self._wrong(self._looped[wrong], parts)
        sizes, ones = layout[:, ROOM].tolist(), layout[:, ONES].tolist()
        arrays = []
        for place, number in enumerate(self._looped):
            kind, nulls = self._types[number], count - ones[place]
            bits, values, texts = begins[place]
            buffers = [buffer.slice(bits, -(-count // 8)) if nulls else None, buffer.slice(values, texts - values)]
            if is_text(kind):
                buffers.append(buffer.slice(texts, sizes[place]))
            arrays.append(pa.Array.from_buffers(kind, count, buffers, nulls))
        return arrays

    def _layout(self, chosen: Range) -> tuple[Ints, pa.Buffer, list[tuple[int, int, int]]]:
        """Return the layout for `gather_columns`; the buffer for all columns; and where, in this buffer, the validity
        bits, the values or offsets, and the texts of each column begin.
        """
        from statestore.formats.kernels.gather_kernels import BITS_AT, FIELDS, KIND, ROOM, TEXTS_AT, text_rooms

        kinds = [bit_width(self._types[number]) for number in self._looped]
        layout = np.zeros((len(kinds), FIELDS), np.int64)
        layout[:, KIND] = kinds
        parts = chosen.parts
        if 0 in kinds:
            # Were each offset looked at first, a copy of 400,000 rows of which 10 % were updated would take up to 1.2
            # times as long.
            exact = not chosen.is_dense
            text_rooms(layout, self._places, parts.start, parts.stop, chosen.bounds, chosen.rows, exact)
        rooms = layout[:, ROOM].tolist()
        begins, end = [], 0
        for number, kind, room in zip(self._looped, kinds, rooms, strict=True):
            if room > MOST_TEXT:
                raise TooMuchTextError
            if room < 0:
                raise self._wrong(number, parts)
            values = end + _aligned(-(-chosen.count // 8))
            texts = values + _aligned(-(-chosen.count * kind // 8) if kind else 4 * chosen.count + 4)
            begins.append((end, values, texts))
            end = texts if kind else texts + _aligned(room + SPARE)
        buffer = pa.allocate_buffer(end)
        layout[:, BITS_AT : TEXTS_AT + 1] = np.array(begins) + buffer.address
        return layout, buffer, begins

    def _wrong(self, number: int, parts: slice) -> Exception:
        """Return the error for offsets that a loop has found to be wrong, though they were right when checked."""
        name = self._names[number]
        for part, column in zip(self._chosen.parts[parts], self._stored[number][parts], strict=True):
            try:
                check_values(column.array)
            except pa.ArrowException as error:
                return corrupt(part.segment.meta.file, f"column {name!r}: {error}")
        return corrupt(self._chosen.parts[parts][0].segment.meta.file, f"column {name!r} changed while it is read")

    def _by_arrow(self, number: int, chosen: Range) -> pa.Array:
        parts, bounds = chosen.parts, chosen.bounds
        slices: list[pa.Array] = []
        wanted: list[Any] = []
        joined_rows = 0
        stored = self._stored[number][parts]
        for column, first, stop in zip(stored, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            rows = chosen.rows[first:stop]
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
    """``count`` of the chosen rows: ``rows[bounds[p] : bounds[p + 1]]`` of each of their parts."""

    parts: slice
    count: int
    bounds: Ints
    rows: Rows

    @cached_property
    def is_dense(self) -> bool:
        """Whether at least every other row of the parts, from their first chosen row to the last, is chosen."""
        bounds, rows = self.bounds, self.rows
        span = int((rows[bounds[1:] - 1].astype(np.int64) - rows[bounds[:-1]] + 1).sum())
        return 2 * self.count >= span


def rows_between(chosen: ChosenRows, first: int, stop: int) -> Range:
    """Return the chosen rows [first, stop) by part."""
    begin, end = chosen.bounds.searchsorted([first, stop - 1], "right").tolist()
    bounds = chosen.bounds[begin - 1 : end + 1].copy()
    bounds[0], bounds[-1] = first, stop
    return Range(slice(begin - 1, end), stop - first, bounds, chosen.rows)


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


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
