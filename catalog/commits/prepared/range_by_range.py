"""The files of a commit of many records, made range by range in bounded memory, for one log entry.

Each range gets its own segments, which are written before the next range is resolved. Only what the log entry and the
index of open rows need is kept: closures, and the open rows of new segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.open_row_lookup import OpenRows
from statestore.catalog.commits.open_rows import GIVEN_UP, MAX_ROWS, NewOpenRows, OpenRowsChange, give_back, take_index
from statestore.catalog.commits.prepared.many_records import ManyRecords
from statestore.catalog.commits.prepared.new_rows import add_rows, closure_parts
from statestore.catalog.commits.record_timelines import Closure, resolve_with
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Hashes, Ints


@dataclass
class WrittenRanges:
    """Files of all ranges, which exist, with the number of rows and of tombstones, and the effect on the open rows."""

    new: NewFiles
    rows: int = 0
    tombstones: int = 0
    opened: OpenRowsChange = field(default_factory=lambda: OpenRowsChange(None, (), 0, None, np.empty(0, np.uint64)))


def write_ranges(
    files: SegmentFiles, log_state: LogState, records: ManyRecords, claimed: str, remove: Callable[[NewFiles], None]
) -> WrittenRanges:
    """Resolve and write the ranges of ``records``. If that fails, ``remove`` is called for the files."""
    written = WrittenRanges(NewFiles(claimed))
    index = take_index(files, log_state, len(records))
    try:
        _write(files, log_state, records, written, index)
    except BaseException:
        give_back(files, index)
        remove(written.new)
        raise
    return written


def _write(
    files: SegmentFiles, log_state: LogState, records: ManyRecords, written: WrittenRanges, index: OpenRows | None
) -> None:
    new = written.new
    closures: list[Closure] = []
    opened: list[NewOpenRows] = []
    emptied: list[Hashes] = [np.empty(0, np.uint64)]
    usable, ended, count = index, 0, 0
    for piece in records.ranges():
        resolution = resolve_with(files, log_state, piece, usable)
        usable = resolution.index
        added = add_rows(files, log_state, piece, resolution, new)
        new.write(files.storage)
        written.rows += len(resolution.values.record)
        written.tombstones += len(resolution.tombstones.record)
        closures += resolution.closures
        ended += resolution.ended
        if usable is not None:
            opened += added
            count += sum(len(rows.row) for rows in added)
            emptied += [] if resolution.emptied is None else [resolution.emptied]
            if count > MAX_ROWS:
                usable, files.bulk_commits = None, GIVEN_UP
        if usable is None:
            opened.clear()
    new.add_closures(closure_parts(log_state, list(_by_segment(closures))))
    new.write(files.storage)
    if usable is not None:
        written.opened = OpenRowsChange(usable, tuple(opened), ended, None, np.sort(np.concatenate(emptied)))
    elif files.bulk_commits != GIVEN_UP:
        give_back(files, index)


def _by_segment(closures: list[Closure]) -> Iterator[Closure]:
    """Yield the closures of each segment, of different rows, as one with its rows in ascending order."""
    by_name: dict[str, list[tuple[Ints, Ints]]] = {}
    for name, rows, ends in closures:
        by_name.setdefault(name, []).append((rows, ends))
    for name, pieces in by_name.items():
        rows, ends = (np.concatenate(column) for column in zip(*pieces, strict=True))
        order = np.argsort(rows, kind="stable")
        yield name, rows[order], ends[order]
