"""Invariants of a segment and its closures, which `verify` checks.

Each function returns a list of violations in words, which is empty if there is none. The functions read whole columns,
so they cost as much as a scan of the segment.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.belief import SegmentWithClosures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.segments.segment_meta import OPEN, Block
from statestore.formats.values.key_hash import hash_keys


def segment_violations(files: SegmentFiles, log_state: LogState, segment: SegmentWithClosures) -> list[str]:
    """Check that rows are sorted, and that the statistics by which reads prune are those of the rows."""
    meta, file = segment.meta, files.open_segment(segment.meta)
    starts, ends = file.int64("valid_from"), file.int64("valid_to")
    added, closed, split = file.int64("_added"), file.int64("_closed"), file.bools("_split")
    late = starts <= log_state.versions.stream_time_before(added)
    punctual = closed[(added < closed) & ~split]
    expected = {
        "rows": len(starts),
        "min_valid_from": int(starts.min()),
        "max_valid_from": int(starts.max()),
        "min_valid_to": int(ends.min()),
        "max_valid_to": int(ends.max()),
        "min_added": int(added.min()),
        "max_added": int(added.max()),
        "last_closed": int(punctual.max(initial=0)),
        "split_closed": int(closed[split].max(initial=0)),
        "late_added": int(added[late].max(initial=0)),
    }
    if meta.role == "belief":
        expected["max_dropped"] = int(file.int64("_dropped").max())
    if meta.open_rows is not None:
        expected["open_rows"] = int(np.count_nonzero(ends == OPEN))
    violations = [
        f"{meta.name}: {name} is {getattr(meta, name)} in the log, {value} in the rows"
        for name, value in expected.items()
        if getattr(meta, name) != value
    ]
    for first, block in meta.spans():
        mine = slice(first, first + block.rows)
        if (starts[mine][1:] < starts[mine][:-1]).any():
            violations.append(f"{meta.name}: rows {mine.start} to {mine.stop} are not sorted by valid_from")
        found = _block_of(starts[mine], ends[mine], added[mine], closed[mine], split[mine], late[mine])
        if meta.blocks and replace(block, batch_rows=0) != found:
            violations.append(f"{meta.name}: rows {mine.start} to {mine.stop} do not have the statistics in the log")
    if (ends <= starts).any():
        violations.append(f"{meta.name}: a row ends at or before its start")
    if ((closed == 0) != (ends == OPEN)).any():
        violations.append(
            f"{meta.name}: a row is open but a commit closed it, or it has an end but no commit closed it"
        )
    if not np.array_equal(
        hash_keys([file.column_array(n) for n in files.spec.key_names])[files.index(meta).rows],
        files.index(meta).hashes,
    ):
        violations.append(f"{meta.name}: the key index does not lead to the rows with those keys")
    return violations


def _block_of(starts: Ints, ends: Ints, added: Ints, closed: Ints, split: Bools, late: Bools) -> Block:
    """Return the statistics that these rows have."""
    return Block(
        len(starts),
        int(starts.min()),
        int(starts.max()),
        int(ends.min()),
        int(ends.max()),
        int(added.min()),
        int(closed[(added < closed) & ~split].max(initial=0)),
        int(closed[split].max(initial=0)),
        int(added[late].max(initial=0)),
    )


def closure_violations(files: SegmentFiles, segment: SegmentWithClosures) -> list[str]:
    """Check invariant 1: ends only shrink, and a rewritten segment has only closures newer than the ends of its own
    rows.
    """
    violations = []
    file = files.open_segment(segment.meta)
    ends = file.int64("valid_to").copy()
    version = 0
    for piece in segment.closures:
        rows, new_ends = files.closures(piece, segment.meta.rows)
        if piece.version <= version:
            violations.append(f"{segment.meta.name}: closures are not in the order of their commits")
        version = piece.version
        if (new_ends >= ends[rows]).any():
            violations.append(f"{segment.meta.name}: commit {version} does not shorten a row it closes")
        if (new_ends < file.int64("valid_from")[rows]).any():
            violations.append(f"{segment.meta.name}: commit {version} closes a row before its start")
        if (file.int64("_closed")[rows] >= version).any():
            violations.append(
                f"{segment.meta.name}: commit {version} closes a row that a later commit has already closed"
            )
        if int(new_ends.min(initial=OPEN)) != piece.min_valid_to:
            violations.append(
                f"{segment.meta.name}: the least end of the closures of commit {version} is not the one in the log"
            )
        ends[rows] = new_ends
    return violations
