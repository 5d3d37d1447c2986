"""The files of a commit of many records, made range by range in bounded memory, for one log entry.

Each range gets its own segments, which are written before the next range is resolved. Only what the log entry and the
index of open rows need is kept: closures, and the open rows of new segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.open_row_lookup import OpenRows
from statestore.catalog.commits.open_rows import GIVEN_UP, MAX_ROWS, NewOpenRows, OpenRowsChange, give_back, take_index
from statestore.catalog.commits.publish_commit import WrittenRows, add_rows, closure_parts, remove_files
from statestore.catalog.commits.record_timelines import Closure, resolve_with
from statestore.catalog.commits.sorted_records import Records
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Hashes, Ints


def write_ranges(
    files: SegmentFiles, log_state: LogState, ranges: Iterable[Records], count: int, claimed: str
) -> WrittenRows:
    """Resolve and write ranges, which have ``count`` records together; leave no file if that fails."""
    new = NewFiles(claimed)
    index = take_index(files, log_state, count)
    try:
        return _write(files, log_state, ranges, new, index)
    except BaseException:
        give_back(files, index)
        remove_files(files.storage, new)
        raise


def _write(
    files: SegmentFiles, log_state: LogState, ranges: Iterable[Records], new: NewFiles, index: OpenRows | None
) -> WrittenRows:
    closures: list[Closure] = []
    opened: list[NewOpenRows] = []
    emptied: list[Hashes] = [np.empty(0, np.uint64)]
    usable, values, tombstones, ended, count = index, 0, 0, 0, 0
    for records in ranges:
        resolution = resolve_with(files, log_state, records, usable)
        added = add_rows(files, log_state, records, resolution, new, keep_indexes=False)
        new.write(files.storage)
        values += len(resolution.values.record)
        tombstones += len(resolution.tombstones.record)
        closures += resolution.closures
        if resolution.index is not usable:
            give_back(files, usable)
            usable = None
        if usable is not None:
            opened += added
            count += sum(len(rows.row) for rows in added)
            ended += resolution.ended
            emptied += [] if resolution.emptied is None else [resolution.emptied]
            if count > MAX_ROWS:
                usable, files.bulk_commits = None, GIVEN_UP
        if usable is None:
            opened.clear()
    new.add_closures(closure_parts(log_state, list(_by_segment(closures))))
    new.write(files.storage)
    change = OpenRowsChange(usable, tuple(opened), ended, None, np.sort(np.concatenate(emptied)))
    return WrittenRows(new, values, tombstones, change)


def _by_segment(closures: list[Closure]) -> Iterator[Closure]:
    """Yield the closures of each segment, of different rows, as one with its rows in ascending order."""
    by_name: dict[str, list[tuple[Ints, Ints]]] = {}
    for name, rows, ends in closures:
        by_name.setdefault(name, []).append((rows, ends))
    for name, pieces in by_name.items():
        rows, ends = (np.concatenate(column) for column in zip(*pieces, strict=True))
        order = np.argsort(rows, kind="stable")
        yield name, rows[order], ends[order]
