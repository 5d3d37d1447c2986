"""Windows and sessions that leave a store's retention: the commit that moves the stream time ends their rows.

So a snapshot shows, as of any version and state time, what the live store would have shown then, and history says until
when; rows whose end is known can be sealed and, in time, dropped like any others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from statestore.catalog.commits.record_timelines import Resolution
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.store_spec import Windowing
from statestore.catalog.reads.row_ends import newest_ends, views_of
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.segments.segment_meta import OPEN

Ints = npt.NDArray[np.int64]
Closure = tuple[str, Ints, Ints]

TICK = 1_000  # microseconds in a millisecond


def end_expired(
    files: SegmentFiles, snapshot: LogState, found: Resolution, rule: Windowing, stream_time: int
) -> Resolution:
    """What a commit adds and closes, with the rows ended that are no longer visible at ``stream_time`` (epoch us)."""
    first = rule.first_visible(stream_time // TICK) * TICK
    starts, ends = found.values.start, found.values.end
    born = np.where(starts < first, np.minimum(ends, expiry_of(starts, rule)), ends)
    closed = {name: (rows, new_ends) for name, rows, new_ends in found.closures}
    for name, rows, new_ends in _expired(files, snapshot, first, rule):
        closed[name] = _merged(closed.get(name), rows, new_ends)
    closures = [(name, rows, new_ends) for name, (rows, new_ends) in closed.items()]
    return replace(found, values=replace(found.values, end=born), closures=closures)


def expiry_of(starts: Ints, rule: Windowing) -> Ints:
    """The first stream time (epoch microseconds) at which rows of these times are no longer visible."""
    if rule.segments:
        interval = rule.segment_interval * TICK
        ends: Ints = (starts // interval + rule.segments) * interval
        return ends
    return starts + (rule.retention + (1 if rule.time_ordered else 0)) * TICK


def _expired(files: SegmentFiles, snapshot: LogState, first: int, rule: Windowing) -> list[Closure]:
    """Open value rows that began before ``first``."""
    found = []
    for view in views_of(snapshot.segments, snapshot.closures):
        meta = view.meta
        if meta.tombstone or meta.role == "belief" or meta.min_valid_from >= first or meta.max_valid_to != OPEN:
            continue
        starts = files.segment(meta).int64("valid_from")
        stop = int(np.searchsorted(starts, first, side="left"))
        rows = np.flatnonzero(newest_ends(files, view)[:stop] == OPEN)
        if len(rows):
            found.append((meta.name, rows, expiry_of(starts[rows], rule)))
    return found


def _merged(closed: tuple[Ints, Ints] | None, rows: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Closures of one segment by row; what the commit closes anyway (a row that is replaced) stays as it is."""
    if closed is None:
        return rows, ends
    new = ~np.isin(rows, closed[0])
    all_rows, all_ends = np.concatenate((closed[0], rows[new])), np.concatenate((closed[1], ends[new]))
    order = np.argsort(all_rows, kind="stable")
    return all_rows[order], all_ends[order]
