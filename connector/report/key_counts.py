"""The keys that occur most often or take the most bytes, exactly, in memory that does not grow with the number of keys.

Keys are counted by their 64-bit hash. If there are more hashes than fit into memory, the lowest hashes are counted
first, and another pass over the rows counts the next ones. The keys of the greatest hashes are read at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.connector.key_text import BASE64, HEX
from statestore.connector.terminal import plain_text
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.values.python_times import python_values

Weighed = tuple[Hashes, Ints | None]
"""The hash of each row's key, and the weight of the row, one by default."""

MAX_HASHES = 1 << 22  # 64 MB
PENDING_ROWS = 1 << 20
FIXED_WIDTH = 8
KEY_CHARACTERS = 100


class _Sums:
    """Sums by hash from ``first`` to ``last`` (inclusive).

    ``last`` is lowered when there are more than ``most`` hashes. Rows wait to be added until they are more than
    ``pending``.
    """

    def __init__(self, first: int, most: int, pending: int) -> None:
        self.first = first
        self._most = most
        self._most_pending = pending
        self.last = (1 << 64) - 1
        self.hashes = np.empty(0, np.uint64)
        self.sums = np.empty(0, np.int64)
        self._pending: list[tuple[Hashes, Ints]] = []
        self._rows = 0

    def add(self, hashes: Hashes, weights: Ints | None) -> None:
        distinct, inverse = np.unique(hashes, return_inverse=True)
        counts = np.bincount(inverse, weights, len(distinct)).astype(np.int64)
        low, high = np.searchsorted(distinct, np.array([self.first, self.last], np.uint64))
        high += high < len(distinct) and int(distinct[high]) == self.last
        self._pending.append((distinct[low:high], counts[low:high]))
        self._rows += high - low
        if self._rows > self._most_pending:
            self.fold()

    def fold(self) -> None:
        if not self._pending:
            return
        new, inverse = np.unique(np.concatenate([part[0] for part in self._pending]), return_inverse=True)
        counts = np.concatenate([part[1] for part in self._pending])
        counts = np.bincount(inverse, counts, len(new)).astype(np.int64)
        self._pending, self._rows = [], 0
        at = np.searchsorted(self.hashes, new)
        known = np.zeros(len(new), bool)
        inside = at < len(self.hashes)
        known[inside] = self.hashes[at[inside]] == new[inside]
        self.sums[at[known]] += counts[known]
        self.hashes = np.insert(self.hashes, at[~known], new[~known])
        self.sums = np.insert(self.sums, at[~known], counts[~known])
        if len(self.hashes) > self._most:
            self.last = int(self.hashes[self._most // 2])
            held = self._most // 2 + 1
            self.hashes, self.sums = self.hashes[:held].copy(), self.sums[:held].copy()


def greatest(
    read: Callable[[], Iterator[Weighed]], count: int, *, most: int = MAX_HASHES, pending: int = PENDING_ROWS
) -> tuple[Hashes, Ints]:
    """The hashes with the greatest sums, descending, and these sums.

    ``read`` yields all rows each time it is called. At most ``most`` hashes and ``pending`` rows are held.
    """
    best, totals, first = np.empty(0, np.uint64), np.empty(0, np.int64), 0
    while first < 1 << 64:
        sums = _Sums(first, most, pending)
        for hashes, weights in read():
            sums.add(hashes, weights)
        sums.fold()
        best, totals = np.concatenate([best, sums.hashes]), np.concatenate([totals, sums.sums])
        order = np.lexsort((best, -totals))[:count]
        best, totals = best[order], totals[order]
        first = sums.last + 1
    return best, totals


def key_texts(columns: Sequence[pa.Array]) -> pa.Array:
    """Keys as readable text, one text a row: the cells, and the cells of structs, joined by commas."""
    texts = []
    for column in columns:
        if pa.types.is_struct(column.type) and column.type.num_fields:
            texts.append(pc.fill_null(key_texts(column.flatten()), "null"))
            continue
        if pa.types.is_string(column.type) or pa.types.is_integer(column.type):
            texts.append(pc.fill_null(column.cast(pa.string()), "null"))
        else:
            texts.append(pa.array([_key_cell(cell) for cell in python_values(column)], pa.string()))
    return (
        texts[0]
        if len(texts) == 1
        else pc.binary_join_element_wise(*texts, ", ", null_handling="replace", null_replacement="null")
    )


def _key_cell(cell: Any) -> str:
    """Return the cell of a key as it is typed: binary as the text that it holds, or as base64:…"""
    if not isinstance(cell, bytes):
        return plain_text(cell)
    try:
        text = cell.decode()
    except UnicodeDecodeError:
        return f"{BASE64}{plain_text(cell)}"
    return f"{BASE64}{plain_text(cell)}" if text.startswith((BASE64, HEX)) else text


def shortened(text: str, characters: int) -> str:
    """Return the text, cut where it is longer than so many characters."""
    return text if len(text) <= characters else text[: characters - 1] + "…"


def unlike(texts: Sequence[str]) -> list[str]:
    """Return a short name for each of these keys; keys with one text are numbered from the second on."""
    taken: dict[str, None] = {}
    for text in (shortened(text, KEY_CHARACTERS) for text in texts):
        numbered = (text if n == 1 else f"{text} ({n})" for n in range(1, len(texts) + 2))
        taken.setdefault(next(name for name in numbered if name not in taken))
    return list(taken)


def row_bytes(columns: Sequence[pa.Array]) -> Ints:
    """About how many bytes each row takes: text and lists by their length, everything else by its width."""
    total = np.zeros(len(columns[0]) if columns else 0, np.int64)
    for column in columns:
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
            total += pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        elif pa.types.is_list(kind) or pa.types.is_map(kind):
            lengths = np.diff(column.offsets.to_numpy(zero_copy_only=False))
            inner = row_bytes([column.values if pa.types.is_list(kind) else column.items])
            ends = np.concatenate(([0], np.cumsum(inner)))
            offsets = column.offsets.to_numpy(zero_copy_only=False)
            total += ends[offsets[1:]] - ends[offsets[:-1]] + 4 * (lengths > 0)
        elif pa.types.is_struct(kind):
            total += row_bytes(column.flatten())
        else:
            total += FIXED_WIDTH
    return total
