"""Rows of one version that are kept for the next query: marks of dead rows, and copies of columns without them.

Columns that are compressed, or made for a read, are copied when they are first read; numbers in mapped files when they
are read for the second time. Other columns of mapped files are read as views of the files each time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from statestore.formats.state_table import MaskedSplit, Split, StateTable

MARKS = "__live"
COPIED_BYTES = 32 << 20  # for all copies of one view


@dataclass
class MarkedRows:
    """The rows of one version with their marks, and the columns that earlier queries left in memory."""

    plan: Sequence[Split]
    table: StateTable
    parts: Sequence[MaskedSplit]
    live_columns: LiveColumns = field(default_factory=lambda: LiveColumns(COPIED_BYTES))
    _mapped: dict[tuple[str, ...], bool] = field(default_factory=dict)
    _read_before: set[str] = field(default_factory=set)

    @property
    def is_uncut(self) -> bool:
        return all(part.marks is None for part in self.parts)

    @property
    def live(self) -> int | None:
        """The number of live rows; None where only a read finds it."""
        counts = [part.live for part in self.parts]
        return None if None in counts else sum(count or 0 for count in counts)

    def is_mapped(self, names: tuple[str, ...]) -> bool:
        """Whether these columns of all live rows are read as views of mapped files."""
        if names not in self._mapped:
            self._mapped[names] = all(part.live == 0 or self.table.is_mapped(part.split, names) for part in self.parts)
        return self._mapped[names]

    def copies(self, columns: Sequence[pa.Field]) -> bool:
        """Whether this read of columns copies their live rows for the queries to come."""
        if not columns or self.live is None:
            return False
        names = tuple(column.name for column in columns)
        if not self.is_mapped(names):
            return True
        again = self._read_before.issuperset(names)
        self._read_before.update(names)
        if not again or not all(pa.types.is_primitive(column.type) for column in columns):
            return False
        missing = set(names) - self.live_columns.kept(names).keys()
        size = sum(column.type.bit_width for column in columns if column.name in missing) * self.live // 8
        return bool(size + self.live_columns.nbytes <= COPIED_BYTES)


# Columns of the live rows of one version, copied into memory when they are first read, up to a number of bytes.
#
# Columns that are compressed, or made for a read, cost several times what DuckDB needs for an answer. They are
# therefore made once, and without dead rows. A column is kept only when it was read to its end.

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
        then kept. ``names`` is not empty."""
        missing = tuple(name for name in names if name not in kept)
        if not missing:  # another thread has read the last of them since it was looked for
            yield len(kept[names[0]]), kept
            return
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
