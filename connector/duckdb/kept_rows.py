"""What is kept of the rows of one version for the next query: marks of dead rows, views of files, and copies.

Batches of mapped files are kept as they are, with their dead rows, and copied without them when they are asked for
again and again. Columns that are compressed, or made for a read, are copied when they are first read (`LiveColumns`).
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from statestore.connector.duckdb.live_columns import LiveColumns
from statestore.formats.state_table import MarksDeadRows, MaskedSplit, Split, all_live

MARKS = "__live"
KEPT_ROWS = 1 << 16  # rows that take memory and are kept beside views of files
KEPT_READS = 16  # sets of columns whose batches are kept
READS_BEFORE_COPY = 3  # of one version and set of columns, after which live rows are copied
COPIED_BYTES = 32 << 20  # for all copies of one view
CHECK_SECONDS = 0.05


@dataclass
class KeptBatches:
    """The batches of some columns that a query has read. They are views of files, or copies of the live rows alone."""

    batches: list[pa.RecordBatch]  # not empty
    reads: int = 1
    copied: int = 0  # bytes

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches)


@dataclass
class MarkedRows:
    """The rows of one version with their marks, and the batches of columns that were read before."""

    plan: Sequence[Split]
    table: MarksDeadRows
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

    def keep(self, asked: tuple[str, ...], batches: list[pa.RecordBatch]) -> None:
        """Keep batches for the next query that asks for these columns."""
        self.kept[asked] = KeptBatches(batches)
        while len(self.kept) > KEPT_READS:
            self.kept.popitem(last=False)

    def again(self, kept: KeptBatches) -> Iterator[pa.RecordBatch]:
        """Batches that were kept. The lengths of their files are checked first, and then again and again."""
        kept.reads += 1
        if kept.reads == READS_BEFORE_COPY:
            self._copy_live(kept)
        checked = -math.inf
        for batch in kept.batches:
            if time.monotonic() - checked > CHECK_SECONDS:
                for part in self.parts:
                    self.table.check_files(part.split)
                checked = time.monotonic()
            yield batch

    def _copy_live(self, kept: KeptBatches) -> None:
        """Copy the live rows of batches with dead ones, if they are numbers and few enough."""
        cut = [batch for batch in kept.batches if _has_dead(batch)]
        if not cut or not all(pa.types.is_primitive(kind) for kind in cut[0].schema.types):
            return
        cost = sum(kind.bit_width for kind in cut[0].schema.types) // 8 * sum(batch.num_rows for batch in cut)
        copied = sum(other.copied for other in self.kept.values()) + self.live_columns.nbytes
        if cost + copied <= COPIED_BYTES:
            kept.copied = cost
            kept.batches = [_live_rows(batch) if _has_dead(batch) else batch for batch in kept.batches]


def _has_dead(batch: pa.RecordBatch) -> bool:
    return MARKS in batch.schema.names and batch.column(MARKS).null_count > 0


def _live_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    marks = batch.schema.get_field_index(MARKS)
    live = batch.filter(batch.column(marks).is_valid())
    return live.set_column(marks, live.schema.field(marks), all_live(live.num_rows))
