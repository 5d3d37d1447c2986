"""Rows of several segments in any order, and what versions believe of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.reads.belief import Chosen, InDoubt, SegmentWithClosures, believed, last_end
from statestore.catalog.reads.scattered_rows import GatheredRows, PlacedRows
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import ABSENT, Ints
from statestore.formats.segments.stored_column import StoredColumn


@dataclass(frozen=True)
class PickedRows:
    """The rows ``row`` of the segments with the numbers ``source``; ``compiled``: compiled loops read them."""

    files: SegmentFiles
    segments: Sequence[SegmentWithClosures]
    source: npt.NDArray[np.int32]
    row: npt.NDArray[np.int32]
    compiled: bool

    @cached_property
    def _cells(self) -> GatheredRows:
        return GatheredRows(
            lambda number: self.files.open_segment(self.segments[number].meta),
            self.source,
            self.row,
            compiled=self.compiled,
        )

    def at(self, positions: Ints) -> PickedRows:
        """Return some of the rows."""
        chosen = PickedRows(self.files, self.segments, self.source[positions], self.row[positions], self.compiled)
        if "_cells" in self.__dict__:
            chosen.__dict__["_cells"] = self._cells.at(positions)
        return chosen

    def keys(self) -> list[pa.Array]:
        """Return the columns of their keys."""
        return [self._cells.column(name) for name in self.files.spec.key_names]

    def numbers(self, name: str) -> Ints:
        """Return a column of times or versions."""
        return self._cells.numbers(name)

    def ends_at(self, versions: Ints) -> Ints:
        """Return the end of each row in the belief of its version, as `statestore.catalog.reads.belief.pair_ends`
        does."""
        if not len(self.row):
            return np.empty(0, np.int64)
        placed = self._cells.placed
        batches = None if placed is None else self._tables(placed, int(versions.min()))
        if placed is not None and batches is not None:
            from statestore.formats.kernels.belief_kernels import stored_ends

            ends, missing = np.empty(len(self.row), np.int64), np.empty(len(self.row), bool)
            count = stored_ends(batches[0], placed.part, placed.rows, versions, ends, missing)
            self._close(ends, versions)
            if count:
                ends[missing] = ABSENT
            return ends
        return believed(
            self._chosen_numbers, versions, self._in_doubt(versions), lambda ends: self._close(ends, versions)
        )

    def _tables(self, placed: PlacedRows, oldest: int) -> tuple[Ints, list[StoredColumn]] | None:
        """Return the addresses that a compiled loop needs of each batch, and the columns that are held for it; None
        where it cannot read them.

        As in `believed`, columns that no version from ``oldest`` on sees otherwise are not read.
        """
        from statestore.formats.kernels.belief_kernels import (
            END_COLUMNS,
            ROW_ADDED,
            ROW_CLOSED,
            ROW_DROPPED,
            ROW_END,
            ROW_SPLIT,
        )

        table = np.zeros((sum(len(numbers) for _, numbers in placed.batches), END_COLUMNS), np.int64)
        held, first = list[StoredColumn](), 0
        for file, numbers in placed.batches:
            meta, wanted = file.meta, {"valid_to": ROW_END}
            if last_end(meta) > oldest:
                wanted |= {"_closed": ROW_CLOSED, "_split": ROW_SPLIT}
            if meta.max_added > oldest:
                wanted["_added"] = ROW_ADDED
            if meta.role == "belief":
                wanted["_dropped"] = ROW_DROPPED
            for name, place in wanted.items():
                columns = file.stored(name, numbers)
                held += columns
                table[first : first + len(numbers), place] = [column.values for column in columns]
            first += len(numbers)
        return (table, held) if all(column.values for column in held) else None

    def _chosen_numbers(self, name: str, rows: Chosen) -> Ints:
        if isinstance(rows, slice):
            return self.numbers(name)
        if name == "_dropped":  # which batches of other segments do not have
            return PickedRows(self.files, self.segments, self.source[rows], self.row[rows], self.compiled).numbers(name)
        return self.numbers(name)[rows] if 2 * len(rows) > len(self.row) else self.at(rows).numbers(name)

    def _in_doubt(self, versions: Ints) -> InDoubt:
        metas, oldest = [segment.meta for segment in self.segments], int(versions.min())

        def later(bounds: list[int]) -> Ints | None:
            if max(bounds) <= oldest:
                return None
            found = np.flatnonzero(np.array(bounds)[self.source] > versions)
            return found if len(found) else None

        beliefs = [meta.role == "belief" for meta in metas]
        dropped = np.flatnonzero(np.array(beliefs)[self.source]) if any(beliefs) else None
        return InDoubt(
            later([last_end(meta) for meta in metas]),
            later([meta.max_added for meta in metas]),
            dropped if dropped is not None and len(dropped) else None,
        )

    def _close(self, ends: Ints, versions: Ints) -> None:
        """Put the ends of closures up to the versions in the place of stored ones."""
        newest = int(versions.max())
        first = np.flatnonzero(np.append(True, self.source[1:] != self.source[:-1]))
        for low, high in zip(first.tolist(), [*first[1:].tolist(), len(self.source)], strict=True):
            segment = self.segments[self.source[low]]
            if not segment.closures or segment.closures[0].version > newest:
                continue
            pending = self.files.pending(segment.meta, segment.closures)
            counts = np.minimum(pending.numbers_at(versions[low:high]), len(segment.closures))
            pending.update(ends[low:high], self.row[low:high].astype(np.int64), counts)
