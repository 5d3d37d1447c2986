"""Murmur3 of the words of many byte strings."""

from __future__ import annotations

from statestore.formats.bytes.byte_columns import Cells, gather
from statestore.formats.kernels.arrays import Ints, U32s
from statestore.formats.kernels.murmur3 import mixed


def mixed_words(h: U32s, cells: Cells, rows: Ints) -> U32s:
    """The states with all whole words of the cells in these rows, little-endian; what is behind them is left out."""
    state, words = h.copy(), cells.size // 4
    rows, at = rows[words[rows] > 0], 0
    while len(rows):
        word = gather(cells.data, cells.start[rows] + 4 * at, "<u4")
        state[rows] = mixed(state[rows], word)
        at += 1
        rows = rows[words[rows] > at]
    return state
