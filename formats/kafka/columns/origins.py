"""Errors of cells that cannot be decoded: which row, which bytes, what was expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.kernels.arrays import Bools, Ints

_MOST_HEX = 24


@dataclass(frozen=True)
class Origin:
    """The rows from which the cells of a column come.

    ``column`` names them ("key", "value", "headers"), ``keys`` are the row keys as stored, and ``row`` is the row of
    each cell; None: cell ``i`` is of row ``i``.
    """

    column: str
    keys: pa.BinaryArray
    row: Ints | None = None

    def named(self, column: str) -> Origin:
        """Another column of these rows."""
        return Origin(column, self.keys, self.row)

    def select(self, which: Bools | Ints) -> Origin:
        """The origin of some of the cells: those at these positions, or where the mask is true."""
        row: Ints = np.flatnonzero(which) if which.dtype == bool else which.astype(np.int64)
        return Origin(self.column, self.keys, row if self.row is None else self.row[row])

    def refuse(self, cells: Cells, bad: Bools, expected: str, remedy: str = "name another serde") -> None:
        """Raise CorruptError KAFKA_BYTES about the first cell that is ``bad``, if one is.

        ``expected`` says which form the bytes should have, ``remedy`` what to do.
        """
        if bad.any():
            index = int(bad.argmax())
            raise self.error(index, shown(cells.cell(index)), expected, remedy)

    def error(self, index: int, found: str, expected: str, remedy: str = "name another serde") -> CorruptError:
        """The error about cell ``index``."""
        return CorruptError(
            ErrorCode.KAFKA_BYTES,
            f"{self.column} of the row with {self.stored_key(index)}: found {found}, "
            f"expected {expected}; {remedy}, or restore the files from a copy",
        )

    def stored_key(self, index: int) -> str:
        """Words for the row of cell ``index``: its key as stored."""
        row = index if self.row is None else int(self.row[index])
        key = self.keys[row].as_py()
        return "a key that is null" if key is None else f"the stored key {shown(key)}"


def shown(data: bytes) -> str:
    """Bytes for a message: their hex, shortened, and how many they are."""
    dots = "..." if len(data) > _MOST_HEX else ""
    return f"{data[:_MOST_HEX].hex()}{dots} ({len(data)} byte{'' if len(data) == 1 else 's'})"


def first_wrong(count: int, is_right: Callable[[int], bool]) -> int:
    """The first of ``count`` cells that is not right, by asking for each; only errors pay for it."""
    return next(index for index in range(count) if not is_right(index))
