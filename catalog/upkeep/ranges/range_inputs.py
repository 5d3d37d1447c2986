"""The segments that a compaction by ranges of keys rewrites, chosen from statistics alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.belief import SegmentWithClosures, with_closures
from statestore.catalog.upkeep.compaction_plan import Mode, ended_rows, has_many_lists, next_step, overlap
from statestore.catalog.upkeep.compaction_rules import Rules

Inputs = Sequence[SegmentWithClosures]
Choice = Callable[[LogState, Rules], Inputs]


def everything(log_state: LogState, rules: Rules) -> Inputs:
    """Return all segments, or none if a rewrite would leave them as they are."""
    found = with_closures(log_state.segments, log_state.closures)
    return [] if _is_compact(found, rules) else found


def due(log_state: LogState, rules: Rules) -> Inputs:
    """Return what a compaction in this process would rewrite in the end, if a step of one is due.

    These are the segments with open rows, small ones, and closed ones with many pending closures.
    """
    return _by_mode(log_state, rules, "due")


def idle(log_state: LogState, rules: Rules) -> Inputs:
    """Return the same for a compaction of a store to which no writer commits for a while."""
    return _by_mode(log_state, rules, "idle")


def _by_mode(log_state: LogState, rules: Rules, mode: Mode) -> Inputs:
    if next_step(log_state, rules, mode) is None:
        return []
    return [v for v in with_closures(log_state.segments, log_state.closures) if _is_worth(v, rules)]


def expired(log_state: LogState, rules: Rules) -> Inputs:
    """Return the segments that may have rows which only moments before the horizon see."""
    horizon = log_state.horizon
    if horizon is None:
        return []
    found = []
    for v in with_closures(log_state.segments, log_state.closures):
        least = min((v.meta.min_valid_to, *(piece.min_valid_to for piece in v.closures)))
        begun = v.meta.tombstone and v.meta.min_valid_from <= horizon.time
        if v.meta.role != "belief" and v.meta.min_added <= horizon.version and (least <= horizon.time or begun):
            found.append(v)
    return found


def _is_worth(segment: SegmentWithClosures, rules: Rules) -> bool:
    meta = segment.meta
    if meta.role in ("open", "delta", "late") or meta.rows < rules.file_rows // 2:
        return True
    pending = sum(piece.count for piece in segment.closures)
    return pending >= rules.fold_share * meta.rows or has_many_lists(segment, rules)


def _is_compact(segments: Inputs, rules: Rules) -> bool:
    """Return whether every row is folded, and segments of one kind have other keys or other times."""
    if any(v.closures or v.meta.role in ("delta", "late") for v in segments):
        return False
    if any(v.meta.role == "open" and ended_rows(v) for v in segments):
        return False
    for one, other in combinations(segments, 2):
        alike = (one.meta.tombstone, one.meta.role) == (other.meta.tombstone, other.meta.role)
        if alike and _share_keys(one, other) and _could_be_one(one, other, rules):
            return False
    return True


def _share_keys(one: SegmentWithClosures, other: SegmentWithClosures) -> bool:
    mine, theirs = one.meta.key_groups, other.meta.key_groups
    return mine[0] <= theirs[1] and theirs[0] <= mine[1]


def _could_be_one(one: SegmentWithClosures, other: SegmentWithClosures, rules: Rules) -> bool:
    if one.meta.role == "closed":
        return overlap(one, other) or one.meta.rows + other.meta.rows <= rules.file_rows
    if one.meta.role == "open":
        return one.meta.file.bytes + other.meta.file.bytes <= rules.open_bytes
    return one.meta.rows + other.meta.rows <= rules.step_rows
