"""Columns of the live rows of one version, copied into memory when they are first read, up to a number of bytes.

Columns that are compressed, or made for a read, cost several times what DuckDB needs for an answer. They are therefore
made once, and without dead rows. A column is kept only when it was read to its end.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

BATCH_ROWS = 1 << 17

_ReadLive = Callable[[tuple[str, ...]], Iterator[Sequence[pa.Array]]]


class LiveColumns:
    """The columns of one version that are kept, the one asked for last at the end. All have the same rows in the same
    order."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._kept: OrderedDict[str, pa.Array] = OrderedDict()
        self._lock = threading.Lock()  # scans of one query run in several threads

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(array.nbytes for array in self._kept.values())

    def kept(self, names: Sequence[str]) -> dict[str, pa.Array]:
        """The columns among ``names`` that need not be read."""
        with self._lock:
            found = {name: self._kept[name] for name in names if name in self._kept}
            for name in found:
                self._kept.move_to_end(name)
        return found

    def read(
        self, names: Sequence[str], kept: dict[str, pa.Array], read: _ReadLive
    ) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        """Batches of live rows as (number of rows, columns): those of ``kept``, and the others from ``read``, which are
        then kept. ``names`` has one that is not in ``kept``."""
        missing = tuple(name for name in names if name not in kept)
        made: list[Sequence[pa.Array]] | None = []
        size = row = 0
        for arrays in read(missing):
            rows = len(arrays[0])
            if not rows:
                continue
            if made is not None:
                made.append(arrays)
                size += sum(array.nbytes for array in arrays)
                made = made if size <= self._most else None
            yield (
                rows,
                {name: array.slice(row, rows) for name, array in kept.items()}
                | dict(zip(missing, arrays, strict=True)),
            )
            row += rows
        if made:
            for name, chunks in zip(missing, zip(*made, strict=True), strict=True):
                self._keep(name, pa.concat_arrays(chunks))  # a copy: nothing that is kept is a view of a mapped file

    def _keep(self, name: str, array: pa.Array) -> None:
        """Keep a column as the one asked for last, and as many others as there is room for."""
        with self._lock:
            self._kept[name] = array
            self._kept.move_to_end(name)
            size = sum(each.nbytes for each in self._kept.values())
            while size > self._most:
                size -= self._kept.popitem(last=False)[1].nbytes
