"""Many byte strings in one buffer, read column by column with numpy.

``Spans`` are like an Arrow binary array, but may start anywhere, overlap and leave gaps. Bounds are checked where spans
are made; the functions here trust them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.kernels.arrays import Bools, Bytes, Ints
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.spark.checkpoint.state_errors import corrupt_row

_MAX_OFFSET = 2**31 - 1


@dataclass(frozen=True)
class Spans:
    """``data[start[i] : start[i] + size[i]]`` is string ``i``."""

    data: Bytes
    start: Ints
    size: Ints

    def __len__(self) -> int:
        return len(self.start)

    def select(self, which: Bools | Ints) -> Spans:
        """The strings at these positions, or where the mask is true."""
        return Spans(self.data, self.start[which], self.size[which])

    def cut(self, front: int, what: str) -> Spans:
        """Each string without its first ``front`` bytes. Raises CorruptError SPARK_STATE_ROW if one is shorter."""
        self.require(front, what)
        return Spans(self.data, self.start + front, self.size - front)

    def require(self, least: int, what: str) -> None:
        """Raise CorruptError SPARK_STATE_ROW if a string has fewer than ``least`` bytes."""
        if len(self) and int(self.size.min()) < least:
            raise corrupt_row(f"{what}: found {int(self.size.min())} bytes, expected at least {least}")


def row_kernels() -> Any:
    """The module of compiled loops if it is in use already; None: numpy works without waiting for compilation."""
    if not is_loaded():
        return None
    from statestore.formats.kernels import row_kernels

    return row_kernels


def change_kernels() -> Any:
    """The module of compiled loops over records of files if it is in use already, else None."""
    if not is_loaded():
        return None
    from statestore.formats.kernels import change_kernels

    return change_kernels


def gather(data: Bytes, positions: Ints, form: str) -> npt.NDArray[Any]:
    """Read the number of numpy type ``form`` at each position, aligned or not; all must lie inside ``data``."""
    width = np.dtype(form).itemsize
    if not len(positions):
        return np.empty(0, form)
    kernels = row_kernels() if width >= 4 and form[0] == "<" else None
    if kernels is not None:
        found = np.empty(len(positions), form)
        read, bits = (kernels.words_at, np.int64) if width == 8 else (kernels.halves_at, np.int32)
        if read(data, positions, found.view(bits)):
            return found
    return np.ndarray((len(data) - width + 1,), form, data, 0, (1,))[positions]


def spans_of(column: pa.Array) -> Spans:
    """The cells of a binary or large binary array, without a copy; nulls become empty strings."""
    wide = pa.types.is_large_binary(column.type)
    if not len(column):
        return Spans(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    buffers, form = column.buffers(), np.int64 if wide else np.int32
    offsets = np.frombuffer(buffers[1], form)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    data = np.empty(0, np.uint8) if buffers[2] is None else np.frombuffer(buffers[2], np.uint8)
    return Spans(data, offsets[:-1], np.diff(offsets))


def binary_of(spans: Spans, nulls: Bools | None = None) -> pa.Array:
    """A compact binary array of the strings, null where ``nulls``."""
    count = len(spans)
    if not count:
        return pa.array([], pa.binary())
    kernels = row_kernels()
    if kernels is not None and nulls is None:
        return _copied(kernels, spans)
    edges = np.empty(2 * count + 1, np.int64)
    edges[:-1:2], edges[1::2] = spans.start, spans.start + spans.size
    edges[-1] = edges[-2]
    if nulls is not None:
        edges[:-1:2][nulls] = edges[1::2][nulls] = spans.start[0]  # raised to the ends of the neighbours below
        edges[-1] = edges[-2]
    first = int(edges.min())
    rising = np.maximum.accumulate(edges)
    if not _same(rising, edges, nulls) or int(rising[-1]) - first > _MAX_OFFSET:
        return _scattered(spans, nulls)
    offsets = pa.py_buffer((rising - first).astype(np.int32))
    cells = pa.Array.from_buffers(pa.binary(), 2 * count, [None, offsets, pa.py_buffer(spans.data[first:])])
    return cells.take(pa.array(np.arange(0, 2 * count, 2), mask=nulls))


def _copied(kernels: Any, spans: Spans) -> pa.Array:
    ends = _cell_ends(spans.size)
    cells = np.empty(int(ends[-1]), np.uint8)
    offsets = ends.astype(np.int32)
    if not kernels.copy_spans(spans.data, spans.start, offsets, cells):
        raise corrupt_row("found a string outside the bytes that were read")
    return pa.Array.from_buffers(pa.binary(), len(spans), [None, pa.py_buffer(offsets), pa.py_buffer(cells)])


def _same(rising: Ints, edges: Ints, nulls: Bools | None) -> bool:
    """Return whether strings follow each other, so that raising the edges changed only nulls."""
    if nulls is None:
        return bool(np.array_equal(rising, edges))
    kept = ~nulls
    return bool(np.array_equal(rising[:-1:2][kept], edges[:-1:2][kept])) and bool(
        np.array_equal(rising[1::2][kept], edges[1::2][kept])
    )


def _scattered(spans: Spans, nulls: Bools | None) -> pa.Array:
    """``binary_of`` for strings that overlap or are in another order."""
    size = spans.size if nulls is None else np.where(nulls, 0, spans.size)
    offsets = _cell_ends(size)
    positions = np.repeat(spans.start - offsets[:-1], size) + np.arange(offsets[-1])
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(spans.data[positions])]
    cells = pa.Array.from_buffers(pa.binary(), len(spans), buffers)
    return cells if nulls is None else cells.take(pa.array(np.arange(len(spans)), mask=nulls))


def _cell_ends(size: Ints) -> Ints:
    """The offsets of the cells of a binary array."""
    offsets = ends_of(size)
    if int(offsets[-1]) > _MAX_OFFSET:
        raise corrupt_row(f"found {int(offsets[-1])} bytes in one column of a batch, expected at most {_MAX_OFFSET}")
    return offsets


def ends_of(sizes: Ints) -> Ints:
    """0 and the running sums of sizes: the offsets of strings or lists."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def spread(values: pa.Array, nulls: Bools | None) -> pa.Array:
    """Insert nulls between ``values``, which are those of the other rows."""
    if nulls is None:
        return values
    positions = np.cumsum(~nulls) - 1
    return values.take(pa.array(positions, mask=nulls))
