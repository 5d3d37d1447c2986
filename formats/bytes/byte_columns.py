"""Many byte strings in one buffer as a column: cells of a batch, fields of rows, keys and values of records.

`Cells` are like an Arrow binary array, but may start anywhere in the buffer, overlap and leave gaps, so a part of each
cell is taken without a copy. Bounds are checked where cells are made; the functions here trust them. Copies are made by
compiled loops where these are in use already, else by Arrow and numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Bools, Bytes, Ints
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.values.without_pandas import arrow_numbers

_MOST_BYTES = 2**31 - 1  # of one binary array
_NO_BYTES, _NO_PLACES = np.empty(0, np.uint8), np.empty(0, np.int64)
Fault = Callable[[str], Exception]
"""Makes the error for bytes that are not as they must be; the text says what was found and what was expected."""


@dataclass(frozen=True)
class Cells:
    """``data[start[i] : start[i] + size[i]]`` is cell ``i``; it is null where ``missing``, and then of size 0.

    ``column`` is the Arrow column of exactly these cells, where there is one.
    """

    data: Bytes
    start: Ints
    size: Ints
    missing: Bools | None = None
    column: pa.BinaryArray | None = None

    def __len__(self) -> int:
        return len(self.start)

    @property
    def nulls(self) -> Bools:
        """A mask of the cells that are null."""
        return np.zeros(len(self), bool) if self.missing is None else self.missing

    def cell(self, index: int) -> bytes:
        """Return one cell."""
        return self.data[self.start[index] : self.start[index] + self.size[index]].tobytes()

    def select(self, which: Bools | Ints | slice) -> Cells:
        """The cells at these positions, of this slice, or where the mask is true."""
        missing = None if self.missing is None else self.missing[which]
        return Cells(self.data, self.start[which], self.size[which], missing)

    def cut(self, front: int, back: int = 0) -> Cells:
        """Each cell without its first ``front`` and last ``back`` bytes. No cell may be null or shorter than both."""
        return Cells(self.data, self.start + front, self.size - (front + back))

    def behind(self, front: int, what: str, fault: Fault) -> Cells:
        """Each cell without its first ``front`` bytes; no cell may be null. Raises as `require`."""
        self.require(front, what, fault)
        return self.cut(front)

    def require(self, least: int, what: str, fault: Fault) -> None:
        """Raise the error that ``fault`` makes if a cell has fewer than ``least`` bytes."""
        if len(self) and int(self.size.min()) < least:
            raise fault(f"{what}: found {int(self.size.min())} bytes, expected at least {least}")

    def numbers(self, at: int, form: str) -> npt.NDArray[Any]:
        """The number of numpy type ``form`` at byte ``at`` of each cell, which counts from the end if negative.

        Cells must be long enough. Null cells yield any number.
        """
        positions = self.start + at if at >= 0 else self.start + self.size + at
        if self.missing is not None:
            positions = np.where(self.missing, 0, positions)
        return gather(self.data, positions, form)

    def first_bytes(self) -> Bytes:
        """The first byte of each cell; 0 where it is empty or null."""
        found: Bytes = gather(self.data, np.where(self.size > 0, self.start, 0), "u1")
        return np.where(self.size > 0, found, 0).astype(np.uint8)

    def binary(self, fault: Fault | None = None) -> pa.BinaryArray:
        """Return the cells as a column, ``column`` where there is one. Raises as `copied`."""
        return self.copied(fault) if self.column is None else self.column

    def copied(self, fault: Fault | None = None) -> pa.BinaryArray:
        """Return the cells as a column with memory of its own.

        Raises the error that ``fault`` makes beyond 2 GiB, by default InvalidInputError BATCH_TOO_LARGE.
        """
        count = len(self)
        if not count:
            return pa.nulls(0, pa.binary())
        if not is_loaded():
            taken = self._taken()
            if taken is not None:
                return taken
        offsets = ends_of(self.size)
        if offsets[-1] > _MOST_BYTES:
            found = f"found {int(offsets[-1])} bytes in one column of a batch, expected at most {_MOST_BYTES}"
            if fault is not None:
                raise fault(found)
            raise InvalidInputError(ErrorCode.BATCH_TOO_LARGE, f"{found}; read smaller batches")
        content = self._content(offsets, fault)
        empty = 0 if self.missing is None else int(np.count_nonzero(self.missing))
        validity = pa.py_buffer(np.packbits(~self.nulls, bitorder="little")) if empty else None
        buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content)]
        return pa.Array.from_buffers(pa.binary(), count, buffers, null_count=empty)

    def content(self) -> tuple[Bytes, Ints]:
        """Return the bytes of all cells one after another, and the offsets of each cell in them.

        The bytes are copied, unless they lie so already.
        """
        offsets = ends_of(self.size)
        if len(self) and np.array_equal(self.start - self.start[0], offsets[:-1]):
            return self.data[self.start[0] : self.start[0] + offsets[-1]], offsets
        return self._content(offsets, None), offsets

    def _content(self, offsets: Ints, fault: Fault | None) -> Bytes:
        kernels = row_kernels() if len(self.data) and offsets[-1] <= _MOST_BYTES else None
        if kernels is None:
            content: Bytes = self.data[np.repeat(self.start - offsets[:-1], self.size) + np.arange(offsets[-1])]
            return content
        start = self.start if self.missing is None else np.where(self.missing, 0, self.start)
        target = np.empty(int(offsets[-1]), np.uint8)
        if not kernels.copy_spans(self.data, start, offsets.astype(np.int32), target):
            raise (fault or IndexError)("found a string outside the bytes that were read")
        return target

    def _taken(self) -> pa.BinaryArray | None:
        """Return a copy by Arrow; None for cells that overlap or do not follow each other."""
        count = len(self)
        edges = np.empty(2 * count + 1, np.int64)
        edges[:-1:2], edges[1::2] = self.start, self.start + self.size
        if self.missing is not None:  # raised to the ends of the cells before them
            edges[:-1:2][self.missing] = edges[1::2][self.missing] = 0
        edges[-1] = edges[-2]
        rising = np.maximum.accumulate(edges)
        first = int(edges[0] if self.missing is None else self.start[~self.missing].min(initial=_MOST_BYTES))
        if int(rising[-1]) - first > _MOST_BYTES or not self._same(rising, edges):
            return None
        # Cells and the gaps between them are one column, of which every second is taken.
        offsets = pa.py_buffer(np.maximum(rising - first, 0).astype(np.int32))
        both = pa.Array.from_buffers(pa.binary(), 2 * count, [None, offsets, pa.py_buffer(self.data[first:])])
        return both.take(arrow_numbers(np.arange(0, 2 * count, 2), self.missing))

    def _same(self, rising: Ints, edges: Ints) -> bool:
        """Return whether cells follow each other, so that raising the edges changed only nulls."""
        if self.missing is None:
            return bool(np.array_equal(rising, edges))
        kept = ~self.missing
        return bool((rising[:-1:2] == edges[:-1:2])[kept].all() and (rising[1::2] == edges[1::2])[kept].all())


def cells_of(column: pa.Array) -> Cells:
    """The cells of a binary or large binary column, without a copy; other columns are cast to binary."""
    wide = pa.types.is_large_binary(column.type)
    if not wide and column.type != pa.binary():
        column = column.cast(pa.binary())
    own = None if wide else column
    if not len(column):
        return Cells(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64), None, own)
    buffers = column.buffers()
    stored = np.frombuffer(buffers[1], np.int64 if wide else np.int32)
    offsets = stored[column.offset : column.offset + len(column) + 1].astype(np.int64)
    data = np.empty(0, np.uint8) if buffers[2] is None else np.frombuffer(buffers[2], np.uint8)
    size, missing = np.diff(offsets), None
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        size = np.where(missing, 0, size)
    return Cells(data, offsets[:-1], size, missing, own)


def sized_cells(data: Bytes, start: Ints, size: Ints) -> Cells:
    """The cells of these sizes, null where the size is -1."""
    missing = size < 0
    return Cells(data, start, np.maximum(size, 0), missing) if missing.any() else Cells(data, start, size)


def joined(parts: list[Cells], order: Ints) -> Cells:
    """The cells of all parts, which have the same buffer, in this order."""
    start = np.concatenate([part.start for part in parts])[order]
    size = np.concatenate([part.size for part in parts])[order]
    missing = np.concatenate([part.nulls for part in parts])[order]
    return Cells(parts[0].data, start, size, missing if missing.any() else None)


def joined_cells(parts: Sequence[Cells]) -> Cells:
    """The cells of all parts, none of which is null, one after another; the bytes of several parts are copied."""
    if len(parts) == 1:
        return parts[0]
    contents = [each.content() for each in parts]
    places = ends_of(np.array([len(data) for data, _ in contents], np.int64))
    start = [offsets[:-1] + at for (_, offsets), at in zip(contents, places[:-1], strict=True)]
    return Cells(
        np.concatenate([_NO_BYTES, *(data for data, _ in contents)]),
        np.concatenate([_NO_PLACES, *start]),
        np.concatenate([_NO_PLACES, *(each.size for each in parts)]),
    )


def gather(data: Bytes, positions: Ints, form: str) -> npt.NDArray[Any]:
    """The number of numpy type ``form`` at each position, aligned or not, in the machine's byte order.

    Positions must lie inside ``data``, unless it is shorter than a number: then the result is zeros.
    """
    kind = np.dtype(form)
    native = kind.newbyteorder("=")
    if not len(positions) or len(data) < kind.itemsize:
        return np.zeros(len(positions), native)
    kernels = row_kernels() if kind.itemsize >= 4 and form[0] == "<" else None
    if kernels is not None:
        found = np.empty(len(positions), native)
        read, bits = (kernels.words_at, np.int64) if kind.itemsize == 8 else (kernels.halves_at, np.int32)
        if read(data, positions, found.view(bits)):
            return found
    return np.ndarray((len(data) - kind.itemsize + 1,), kind, data, 0, (1,))[positions].astype(native, copy=False)


def ends_of(sizes: Ints) -> Ints:
    """0 and the running sums of sizes: the offsets of strings or lists."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def row_kernels() -> Any:
    """The module of compiled loops over rows if loops are in use already; None: numpy works without waiting for
    compilation."""
    if not is_loaded():
        return None
    from statestore.formats.kernels import row_kernels

    return row_kernels
