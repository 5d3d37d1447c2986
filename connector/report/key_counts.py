"""How often each key occurs, folded batch by batch in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]

MAX_HASHES = 1 << 22  # 64 MB; beyond that only keys that have been seen more often are kept
FIXED_WIDTH = 8


class KeyCounts:
    """Counts, or sums of weights, by key hash, with one key for each hash that may come out on top."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._hashes = np.empty(0, np.uint64)
        self._counts = np.empty(0, np.int64)
        self._keys: pa.Table | None = None  # in the order of the hashes
        self._waiting: list[tuple[npt.NDArray[np.uint64], Ints, pa.Table]] = []
        self._size = 0

    def add(self, keys: Sequence[pa.Array], hashes: npt.NDArray[np.uint64], weights: Ints | None = None) -> None:
        """Counts each row once, or by its weight."""
        distinct, first, place = np.unique(hashes, return_index=True, return_inverse=True)
        counts = np.bincount(place, weights, len(distinct))
        table = pa.table([key.take(pa.array(first)) for key in keys], names=self._names)
        self._waiting.append((distinct, counts.astype(np.int64), table))
        self._size += len(distinct)
        if self._size > MAX_HASHES:
            self._fold()

    def top(self, count: int, name: str) -> list[dict[str, Any]]:
        """The keys with the greatest counts: ``key`` as text, and the count as ``name``."""
        self._fold()
        if self._keys is None or not len(self._counts):
            return []
        best = np.lexsort((self._hashes, -self._counts))[:count]
        rows = self._keys.take(pa.array(best)).combine_chunks()
        texts = key_texts([column.chunk(0) for column in rows.columns]).to_pylist()
        return [{"key": key, name: int(n)} for key, n in zip(texts, self._counts[best], strict=True)]

    def _fold(self) -> None:
        parts = self._waiting
        if self._keys is not None:
            parts = [(self._hashes, self._counts, self._keys), *parts]
        if not parts:
            return
        hashes = np.concatenate([p[0] for p in parts])
        counts = np.concatenate([p[1] for p in parts])
        keys = pa.concat_tables([p[2] for p in parts])
        distinct, first, place = np.unique(hashes, return_index=True, return_inverse=True)
        total = np.bincount(place, counts, len(distinct)).astype(np.int64)
        if len(distinct) > MAX_HASHES // 2:
            kept = np.sort(np.argsort(-total, kind="stable")[: MAX_HASHES // 2])
            distinct, first, total = distinct[kept], first[kept], total[kept]
        self._hashes, self._counts, self._keys = distinct, total, keys.take(pa.array(first))
        self._waiting, self._size = [], len(distinct)


def key_texts(columns: Sequence[pa.Array]) -> pa.Array:
    """A key as people read it, a text a row: the cells, and those of structs, joined by a comma."""
    texts = []
    for column in columns:
        if pa.types.is_struct(column.type) and column.type.num_fields:
            texts.append(pc.fill_null(key_texts(column.flatten()), "null"))
            continue
        try:
            texts.append(column.cast(pa.string()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # bytes that are no text, lists
            texts.append(pa.array([str(cell) for cell in column.to_pylist()], pa.string()))
    return (
        texts[0]
        if len(texts) == 1
        else pc.binary_join_element_wise(*texts, ", ", null_handling="replace", null_replacement="null")
    )


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
