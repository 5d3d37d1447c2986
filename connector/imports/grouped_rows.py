"""Rows that arrive in any order, collected and given back by key group, in bounded memory.

Rows are held until they fill a run, which is sorted by key group and written to a file. Each window of key groups is
then read from all runs. A window has about as many bytes as a run, but at least one whole key group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.regular_files import map_regular

RUN_BYTES = 64 << 20
"""Bytes of rows that are held in memory before they are written as a run."""
MOST_BYTES = 1 << 30
"""Bytes of the rows of one key group that can be sorted in memory."""
_WRITTEN_ROWS = 1 << 16


@dataclass(frozen=True)
class _Run:
    """Rows by key group: group ``g`` has those from ``ends[g]`` to ``ends[g + 1]``."""

    rows: pa.Table
    ends: Ints


@dataclass
class GroupedRows:
    """The rows of one state. ``folder`` is for the files of its runs; who makes it removes it."""

    schema: pa.Schema
    key_groups: int
    folder: Path
    run_bytes: int = RUN_BYTES
    count: int = 0
    _held: list[tuple[pa.RecordBatch, Ints]] = field(default_factory=list)
    _held_bytes: int = 0
    _bytes: int = 0
    _runs: list[_Run] = field(default_factory=list)

    def add(self, rows: pa.RecordBatch, groups: Ints) -> None:
        """Add rows with the key group of each. Raises StorageError DISK_FAILED."""
        if not rows.num_rows:
            return
        self._held.append((rows, groups))
        self._held_bytes += rows.nbytes
        self._bytes += rows.nbytes
        self.count += rows.num_rows
        if self._held_bytes >= self.run_bytes:
            self._runs.append(self._written(self._taken()))

    def windows(self, groups: range) -> Iterator[tuple[Ints, pa.RecordBatch]]:
        """Yield the rows of these key groups in windows: the key group of each row, ascending by run, and the rows.

        No row may be added any more. Raises InvalidInputError BATCH_TOO_LARGE.
        """
        if self._held:
            self._runs.append(self._taken())
        counts = self._counts(groups)
        most = max(int(self.run_bytes * self.count / max(self._bytes, 1)), 1)
        start = groups.start
        while start < groups.stop:
            stop = start + 1
            rows = int(counts[start - groups.start])
            while stop < groups.stop and rows + counts[stop - groups.start] <= most:
                rows += int(counts[stop - groups.start])
                stop += 1
            if rows:
                yield self._of(start, stop)
            start = stop

    def _counts(self, groups: range) -> Ints:
        """Return the number of rows of each of these key groups."""
        total = np.zeros(len(groups), np.int64)
        for run in self._runs:
            total += np.diff(run.ends[groups.start : groups.stop + 1])
        return total

    def _of(self, start: int, stop: int) -> tuple[Ints, pa.RecordBatch]:
        pieces, groups = [], []
        for run in self._runs:
            first, last = int(run.ends[start]), int(run.ends[stop])
            pieces.append(run.rows.slice(first, last - first))
            groups.append(np.repeat(np.arange(start, stop), np.diff(run.ends[start : stop + 1])))
        rows = pa.concat_tables(pieces)
        if rows.nbytes > MOST_BYTES:
            raise InvalidInputError(
                ErrorCode.BATCH_TOO_LARGE,
                f"key groups {start} to {stop - 1} have {rows.nbytes} bytes of rows of one state, expected at most "
                f"{MOST_BYTES}, which are sorted in memory; import the other states with states=",
            )
        (whole,) = rows.combine_chunks().to_batches()
        return np.concatenate(groups), whole

    def _taken(self) -> _Run:
        """The rows that are held, by key group; none are held afterwards."""
        groups = np.concatenate([held for _, held in self._held])
        rows = pa.Table.from_batches([batch for batch, _ in self._held], self.schema)
        self._held, self._held_bytes = [], 0
        if len(groups) > 1 and (np.diff(groups) < 0).any():
            rows = rows.take(pa.array(np.argsort(groups.astype(np.int16), kind="stable")))
        counts = np.bincount(groups, minlength=self.key_groups)
        return _Run(rows, np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))))

    def _written(self, run: _Run) -> _Run:
        path = self.folder / f"{len(self._runs)}.arrow"
        with disk_errors("write", path):
            self.folder.mkdir(exist_ok=True)
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, self.schema) as writer:
                writer.write_table(run.rows, _WRITTEN_ROWS)
        return _Run(pa.ipc.open_file(map_regular(path)).read_all(), run.ends)
