"""Expiry of windows and sessions: the commit that moves the stream time ends the rows that leave the retention.

Therefore a scan shows, as of any version and state time, what the live store showed at that point, and history shows
when each row ended. Rows whose end is known can be sealed and later dropped like any others.
"""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from statestore.catalog.commits.record_timelines import Resolution
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.store_spec import Windowing
from statestore.catalog.reads.belief import chosen_ends, with_closures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.values.times import TICK

Closure = tuple[str, Ints, Ints]


# The number of first rows of a segment that have all ended, as earlier commits of this process found.
_ended_before: WeakKeyDictionary[SegmentFiles, dict[str, int]] = WeakKeyDictionary()


def end_expired(
    files: SegmentFiles, log_state: LogState, resolution: Resolution, rule: Windowing, stream_time: int
) -> Resolution:
    """Return the resolution of a commit, with the rows ended that are no longer visible at ``stream_time`` (epoch
    us)."""
    first = rule.first_visible(stream_time // TICK) * TICK
    starts, ends = resolution.values.start, resolution.values.end
    born = np.where(starts < first, np.minimum(ends, expiry_of(starts, rule)), ends)
    closed = {name: (rows, new_ends) for name, rows, new_ends in resolution.closures}
    for name, rows, new_ends in _expired(files, log_state, first, rule):
        closed[name] = _merged(closed.get(name), rows, new_ends)
    closures = [(name, rows, new_ends) for name, (rows, new_ends) in closed.items()]
    return replace(resolution, values=replace(resolution.values, end=born), closures=closures)


def expiry_of(starts: Ints, rule: Windowing) -> Ints:
    """Return the first stream time (epoch microseconds) at which rows of these times are no longer visible."""
    if rule.segments:
        interval = rule.segment_interval * TICK
        ends: Ints = (starts // interval + rule.segments) * interval
        return ends
    return starts + (rule.retention + (1 if rule.time_ordered else 0)) * TICK


def _expired(files: SegmentFiles, log_state: LogState, first: int, rule: Windowing) -> list[Closure]:
    """Return the closures of open value rows that began before ``first``.

    Rows that have ended stay so. Therefore the next commit begins where this one has found an open row.
    """
    closures = []
    known, ended_before = _ended_before.setdefault(files, {}), {}
    for segment in with_closures(log_state.segments, log_state.closures):
        meta = segment.meta
        if meta.tombstone or meta.role == "belief" or meta.min_valid_from >= first or meta.max_valid_to != OPEN:
            continue
        starts = files.open_segment(meta).int64("valid_from")
        if meta.blocks:
            candidates = np.flatnonzero(starts < first)
        else:
            begin, stop = known.get(meta.name, 0), int(np.searchsorted(starts, first, side="left"))
            candidates = np.arange(begin, max(begin, stop))
        rows = candidates[chosen_ends(files, segment, candidates) == OPEN]
        if not meta.blocks:
            ended_before[meta.name] = int(rows[0]) if len(rows) else max(begin, stop)
        if len(rows):
            closures.append((meta.name, rows, expiry_of(starts[rows], rule)))
    _ended_before[files] = ended_before
    return closures


def _merged(closed: tuple[Ints, Ints] | None, rows: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return the closures of one segment by row. A row that the commit closes anyway, as one that is replaced, keeps
    that end.
    """
    if closed is None:
        return rows, ends
    new = ~np.isin(rows, closed[0])
    all_rows, all_ends = np.concatenate((closed[0], rows[new])), np.concatenate((closed[1], ends[new]))
    order = np.argsort(all_rows, kind="stable")
    return all_rows[order], all_ends[order]
