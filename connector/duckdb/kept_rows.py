"""What is kept of the rows of one version for the next query: marks of dead rows, views of files, and copies.

Batches of mapped files are kept as they are, with their dead rows. `LiveColumns` are copies without them: of columns
that are compressed, or made for a read, when they are first read; of others when they are asked for again and again.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from statestore.formats.state_table import MaskedSplit, Split, StateTable

MARKS = "__live"
KEPT_ROWS = 1 << 16  # rows that take memory and are kept beside views of files
KEPT_READS = 16  # sets of columns whose batches are kept
READS_BEFORE_COPY = 3  # of one version and set of columns, after which live rows are copied
COPIED_BYTES = 32 << 20  # for all copies of one view
CHECK_SECONDS = 0.05


@dataclass
class KeptBatches:
    """The batches of some columns that a query has read, which are views of files for the most part."""

    batches: list[pa.RecordBatch]  # not empty
    reads: int = 1

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches)


@dataclass
class MarkedRows:
    """The rows of one version with their marks, and the batches of columns that were read before."""

    plan: Sequence[Split]
    table: StateTable
    parts: Sequence[MaskedSplit]
    kept: OrderedDict[tuple[str, ...], KeptBatches] = field(default_factory=OrderedDict)
    live_columns: LiveColumns = field(default_factory=lambda: LiveColumns(COPIED_BYTES))
    _keeps: dict[tuple[str, ...], bool] = field(default_factory=dict)

    @property
    def is_uncut(self) -> bool:
        return all(part.marks is None for part in self.parts)

    @property
    def live(self) -> int | None:
        """The number of live rows; None where only a read finds it."""
        counts = [part.live for part in self.parts]
        return None if None in counts else sum(count or 0 for count in counts)

    def can_keep(self, columns: tuple[str, ...]) -> bool:
        """Whether batches of these columns take next to no memory: views of files, and few others."""
        if columns not in self._keeps:
            made = [part.live for part in self.parts if not self.table.is_mapped(part.split, columns)]
            self._keeps[columns] = None not in made and sum(live or 0 for live in made) <= KEPT_ROWS
        return self._keeps[columns]

    def copies(self, asked: tuple[str, ...], columns: Sequence[pa.Field]) -> bool:
        """Whether live rows are copied out of batches that are kept: they are numbers, few enough, and asked for
        again."""
        kept = self.kept.get(asked)
        if kept is None or kept.reads + 1 < READS_BEFORE_COPY or self.is_uncut:
            return False
        new = [column for column in columns if column.name not in self.live_columns.kept([column.name])]
        if not all(pa.types.is_primitive(column.type) for column in new):
            return False
        size = sum(column.type.bit_width for column in new) * (self.live or 0) // 8
        return bool(size + self.live_columns.nbytes <= COPIED_BYTES)

    def keep(self, asked: tuple[str, ...], batches: list[pa.RecordBatch]) -> None:
        """Keep batches for the next query that asks for these columns."""
        self.kept[asked] = KeptBatches(batches)
        while len(self.kept) > KEPT_READS:
            self.kept.popitem(last=False)

    def again(self, kept: KeptBatches) -> Iterator[pa.RecordBatch]:
        """Batches that were kept. The lengths of their files are checked first, and then again and again."""
        kept.reads += 1
        checked = -math.inf
        for batch in kept.batches:
            if time.monotonic() - checked > CHECK_SECONDS:
                for part in self.parts:
                    self.table.check_files(part.split)
                checked = time.monotonic()
            yield batch


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
