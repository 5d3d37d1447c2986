"""Columns of rows in any order, out of several segments.

Compiled loops take a number in two nanoseconds and a short text in ten; Arrow takes 80. Where the loops are not loaded,
and for nested columns, Arrow takes the rows of each segment and then puts them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.reads.belief import cells_of
from statestore.catalog.reads.gathered_columns import MOST_TEXT, SPARE, bit_width, is_text
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.column_checks import check_values
from statestore.formats.segments.regions import corrupt
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.stored_column import StoredColumn
from statestore.formats.values.without_pandas import arrow_numbers

UNPACKED = 4  # compressed columns take at most so many bytes in memory for one on disk, for the bound of memory

Numbers = npt.NDArray[np.int32]
Sources = npt.NDArray[np.int16 | np.int32]
Opened = Callable[[int], Segment]


class GatheredRows:
    """The rows ``row`` of the inputs ``source``, of which columns are copied, by ``compiled`` loops where it pays.

    ``opened`` returns an input. ``kept_bytes``: what of compressed inputs may be held at once, if it is bounded.
    """

    def __init__(
        self, opened: Opened, source: Sources, row: Numbers, *, compiled: bool, kept_bytes: int | None = None
    ) -> None:
        self._opened, self._source, self._row = opened, source, row
        self._sorted: _SortedRows | None = None
        self._placed = _placed(opened, source, row, kept_bytes) if len(row) and compiled else None

    def column(self, name: str) -> pa.Array:
        """Return a column. Raises CorruptError SEGMENT_CORRUPT for bytes that are wrong."""
        return self.columns([name])[0]

    def columns(self, names: Sequence[str]) -> list[pa.Array]:
        """Return columns; what Arrow takes of them is in memory at the same time."""
        placed = self._placed
        found = {} if placed is None else {name: _compiled_column(placed, name) for name in dict.fromkeys(names)}
        others = [name for name in names if found.get(name) is None]
        if others:
            found |= zip(others, self._in_order().columns(others), strict=True)
        return [found[name] for name in names]

    def numbers(self, name: str) -> Ints:
        """Return a column of times, versions or booleans as numbers; a null end is OPEN."""
        found = None if self._placed is None else _compiled_numbers(self._placed, name)
        return self._in_order().numbers(name) if found is None else found

    @property
    def placed(self) -> PlacedRows | None:
        """Return the batches that have the rows, for compiled loops; None where these do not read them."""
        return self._placed

    def at(self, positions: Ints) -> GatheredRows:
        """Return some of the rows. Their batches are not searched again."""
        chosen = copy(self)
        chosen._source, chosen._row, chosen._sorted = self._source[positions], self._row[positions], None
        if self._placed is not None:
            placed = self._placed
            chosen._placed = PlacedRows(placed.batches, placed.part[positions], placed.rows[positions])
        return chosen

    def _in_order(self) -> _SortedRows:
        if self._sorted is None:
            self._sorted = _SortedRows.of(self._opened, self._source, self._row)
        return self._sorted


@dataclass(frozen=True)
class PlacedRows:
    """Rows by the batches that have them: row i is the row ``rows[i]`` of the batch with the number ``part[i]``."""

    batches: list[tuple[Segment, list[int]]]  # numbers of batches of each file, in the order of the parts
    part: Numbers
    rows: Numbers


def _placed(opened: Opened, source: Sources, row: Numbers, kept_bytes: int | None) -> PlacedRows | None:
    """Return the batch of each row; None where the columns of these batches may be too large to hold at once."""
    from statestore.formats.kernels.gather_kernels import place_rows

    used = np.zeros(int(source.max()) + 1, bool)
    used[source] = True
    numbers = np.flatnonzero(used).tolist()
    files = [opened(number) for number in numbers]
    starts = [file.batch_starts for file in files]
    bounds = np.zeros(numbers[-1] + 2, np.int64)  # parts of the input s: bounds[s] : bounds[s + 1]
    bounds[np.array(numbers) + 1] = [len(each) for each in starts]
    bounds = bounds.cumsum()
    part, rows = np.empty(len(row), np.int32), np.empty(len(row), np.int32)
    touched = np.zeros(int(bounds[-1]), bool)
    place_rows(source, row, bounds, np.concatenate(starts), part, rows, touched)
    if not touched.all():  # what no row needs is not decompressed
        part = (np.cumsum(touched, dtype=np.int32) - np.int32(1)).take(part)
    batches = [
        (file, np.flatnonzero(touched[bounds[number] : bounds[number + 1]]).tolist())
        for number, file in zip(numbers, files, strict=True)
    ]
    placed = PlacedRows(batches, part, rows)
    return placed if kept_bytes is None or _decoded_bytes(placed) <= kept_bytes else None


def _decoded_bytes(placed: PlacedRows) -> float:
    total = 0.0
    for file, numbers in placed.batches:
        if file.is_compressed and numbers:
            total += len(numbers) / len(file.batch_starts) * file.meta.file.bytes * UNPACKED
    return total


def _compiled_column(placed: PlacedRows, name: str) -> pa.Array | None:
    """Return a column; None if its type or its buffers are not for compiled loops, or it has too many bytes."""
    stored = [column for file, numbers in placed.batches for column in file.stored(name, numbers)]
    kind = stored[0].array.type
    width = bit_width(kind)
    if not (width or is_text(kind)) or not all(column.values for column in stored):
        return None
    values = np.array([column.values for column in stored])
    if is_text(kind):
        buffers = _texts(placed, name, stored, values)
        if buffers is None:
            return None
    elif width == 1:
        buffers = [_bits(placed, values)[0]]
    else:
        buffers = [_values(placed, values, width // 8)]
    validity, nulls = None, 0
    if any(column.validity for column in stored):
        validity, nulls = _bits(placed, np.array([column.validity for column in stored]))
    return pa.Array.from_buffers(kind, len(placed.rows), [validity if nulls else None, *buffers], nulls)


def _compiled_numbers(placed: PlacedRows, name: str) -> Ints | None:
    """Return a column as numbers; None if its buffers are not for compiled loops."""
    from statestore.formats.kernels.gather_kernels import scattered_values

    stored = [column for file, numbers in placed.batches for column in file.stored(name, numbers)]
    if not all(column.values for column in stored):
        return None
    address = np.array([column.values for column in stored])
    if pa.types.is_boolean(stored[0].array.type):
        bits, _ = _bits(placed, address)
        return np.unpackbits(np.frombuffer(bits, np.uint8), count=len(placed.rows), bitorder="little").astype(np.int64)
    found = np.empty(len(placed.rows), np.int64)
    scattered_values(address, placed.part, placed.rows, 8, found.ctypes.data)
    return found


def _values(placed: PlacedRows, address: Ints, width: int) -> pa.Buffer:
    from statestore.formats.kernels.gather_kernels import scattered_values

    target = pa.allocate_buffer(len(placed.rows) * width)
    scattered_values(address, placed.part, placed.rows, width, target.address)
    return target


def _bits(placed: PlacedRows, address: Ints) -> tuple[pa.Buffer, int]:
    """Return gathered bits, and how many of them are not set."""
    from statestore.formats.kernels.gather_kernels import scattered_bits

    target = pa.allocate_buffer(-(-len(placed.rows) // 8))
    return target, len(placed.rows) - scattered_bits(address, placed.part, placed.rows, target.address)


def _texts(placed: PlacedRows, name: str, stored: list[StoredColumn], address: Ints) -> list[pa.Buffer] | None:
    """Return the offsets and bytes of texts; None for more bytes than an array can have."""
    from statestore.formats.kernels.gather_kernels import TOO_MUCH, scattered_offsets, scattered_texts

    sizes = np.array([column.text_bytes for column in stored])
    begins = np.empty(len(placed.rows), np.int32)
    offsets = pa.allocate_buffer(4 * len(placed.rows) + 4)
    size = scattered_offsets(address, sizes, placed.part, placed.rows, MOST_TEXT, begins, offsets.address)
    if size == TOO_MUCH:
        return None
    if size < 0:
        raise _wrong(placed, name, stored)
    texts = pa.allocate_buffer(size + SPARE)
    values = np.array([column.text for column in stored])
    scattered_texts(values, sizes, placed.part, begins, offsets.address, texts.address)
    return [offsets, texts.slice(0, size)]


def _wrong(placed: PlacedRows, name: str, stored: list[StoredColumn]) -> Exception:
    """Return the error for offsets that a loop has found to be wrong, though they were right when checked."""
    files = [file for file, numbers in placed.batches for _ in numbers]
    for file, column in zip(files, stored, strict=True):
        try:
            check_values(column.array)
        except pa.ArrowException as error:
            return corrupt(file.meta.file, f"column {name!r}: {error}")
    return corrupt(files[0].meta.file, f"column {name!r} changed while it was read")


@dataclass(frozen=True)
class _SortedRows:
    """Rows by input, as Arrow takes them: (file, its rows) each, and the position of each row of the answer."""

    parts: list[tuple[Segment, Ints]]
    position: Numbers | None

    @staticmethod
    def of(opened: Opened, source: Sources, row: Numbers) -> _SortedRows:
        is_sorted = bool((source[1:] >= source[:-1]).all())
        order: Any = slice(None) if is_sorted else np.argsort(source, kind="stable")  # 16 bits are sorted fastest
        ordered = source[order]
        first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        numbers = ordered[first].tolist()
        parts = [
            (opened(number), rows.astype(np.int64))
            for number, rows in zip(numbers, np.split(row[order], first[1:]), strict=True)
        ]
        if is_sorted:
            return _SortedRows(parts, None)
        position = np.empty(len(source), np.int32)
        position[order] = np.arange(len(source), dtype=np.int32)
        return _SortedRows(parts, position)

    def columns(self, names: Sequence[str]) -> list[pa.Array]:
        taken = [file.take_columns(names, rows) for file, rows in self.parts]
        wholes = taken[0] if len(taken) == 1 else [pa.concat_arrays(parts) for parts in zip(*taken, strict=True)]
        position = self.position
        return wholes if position is None else [whole.take(arrow_numbers(position)) for whole in wholes]

    def numbers(self, name: str) -> Ints:
        found = [cells_of(file, name, rows) for file, rows in self.parts]
        whole = found[0] if len(found) == 1 else np.concatenate([np.empty(0, np.int64), *found])
        return whole if self.position is None else whole[self.position]
