"""The next step of a compaction: the segments to rewrite together, chosen from statistics alone.

The layout is kept by three rules. (1) *Open rows are kept dense*: where ended rows are too many among the segments that
have open rows, those with the largest share of them are rewritten. (2) *Segments of one size are merged*: no tier of
sizes holds more than `Rules.fan_in` segments, so their number grows with the logarithm of the history, whatever the
share of late records. (3) *Pending closures are folded* by every rewrite, and a closed segment is rewritten for them
alone when they are many; so is any segment when they lie in many lists. A step is bounded by `Rules.step_rows`; what it
leaves is the next step's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.belief import SegmentWithClosures, with_closures
from statestore.catalog.upkeep import compaction_rules
from statestore.catalog.upkeep.compaction_rules import Rules
from statestore.formats.segments import segment_write
from statestore.formats.segments.segment_meta import OPEN, SegmentMeta

Mode = Literal["due", "idle", "closing", "full"]
"""``due``: while commits come; ``idle``: when none came for a while; ``closing``: when a writer closes its handle, and
large merges of ended rows are left to the next one; ``full``: everything that can be folded is."""

# Share of the ended rows that a rewrite for them removes while commits come. Were all removed, compaction would read
# 1.2 times as many rows, in steps that are twice as long.
REMOVED_SHARE = 0.5
FAR_BEHIND = 3
IDLE_ROWS = 0.5  # rows committed since the open rows were last made dense, in units of live rows
# Into so many a full compaction is cut where that rewrites little. Without portions, that of 10 million rows in 200
# commits takes more than 2.4 times as long (scans.py, 100x never compacted).
PORTIONS = 3
# Rows of a portion, in units of those that have ended before the rows of the next one. Were portions cut in any case, a
# full compaction of keys at random takes twice as long (1.2 million rows of 800,000 keys).
WORTH_CUTTING = 3
MIN_RANGE_ROWS = 1 << 14  # a range of keys with fewer rows does not get segments of its own


@dataclass(frozen=True)
class Rewriting:
    """Segments that are rewritten together: their open rows into open segments, the others into a closed one.

    ``beliefs`` are belief segments that are merged with the beliefs that the rewriting makes. ``mixed``: the rows stay
    together in a delta. ``cold``: the closed segment is compressed. ``window``: ends (epoch
    microseconds, both inclusive) that get a file of their own, apart from earlier and later ones. ``through``: rows
    that end later, or not at all, stay in a delta, because rows of segments that are not read end among them.
    """

    segments: tuple[SegmentWithClosures, ...]
    beliefs: tuple[SegmentWithClosures, ...] = ()
    mixed: bool = False
    cold: bool = False
    window: tuple[int, int] | None = None
    through: int | None = None

    @property
    def rows(self) -> int:
        return sum(segment.meta.rows for segment in (*self.segments, *self.beliefs))


@dataclass(frozen=True)
class Step:
    """The work of one commit of a compaction; ``live`` is the number of open value rows of the store."""

    rewritings: tuple[Rewriting, ...]
    live: int

    @property
    def rows(self) -> int:
        return sum(rewriting.rows for rewriting in self.rewritings)

    @property
    def has_open_rows(self) -> bool:
        """Whether it rewrites segments that may have open rows."""
        return any(v.meta.role in ("open", "delta") for rewriting in self.rewritings for v in rewriting.segments)


def is_due(log_state: LogState) -> bool:
    """Return whether a step of compaction is due, from statistics alone."""
    return next_step(log_state, compaction_rules.DEFAULT, "due") is not None


def next_step(log_state: LogState, rules: Rules, mode: Mode, until: int | None = None) -> Step | None:
    """Return the next step; None if nothing is due.

    ``until``: work that only later versions than this one made is not due.
    """
    chosen: list[Rewriting] = []
    room = rules.step_rows
    everything = with_closures(log_state.segments, log_state.closures)
    if until is not None:
        everything = [v for v in everything if v.meta.role != "delta" or v.meta.min_added <= until]
    for tombstone in (False, True):
        segments = [v for v in everything if v.meta.tombstone == tombstone]
        if not segments:
            continue
        main = [v for v in segments if v.meta.role != "belief"]
        beliefs = [v for v in segments if v.meta.role == "belief"]
        if mode == "full":
            through = log_state.version if until is None else until
            rewriting = _fold_everything(main, beliefs, rules, log_state.versions.stream_time_at, through)
        else:
            rewriting = _rewrite_main(main, rules, mode)
        merges_beliefs = rewriting is not None and bool(rewriting.beliefs)
        others = None if merges_beliefs else _merge_beliefs(beliefs, rules, mode)
        if mode == "closing" and others is not None and others.rows > rules.closing_rows:
            others = None
        for found in (rewriting, others):
            if found is not None and (not chosen or found.rows <= room):
                chosen.append(found)
                room -= found.rows
    if not chosen:
        return None
    live = sum(open_rows(v) for v in everything if not v.meta.tombstone and v.meta.role != "belief")
    return Step(tuple(chosen), live)


def is_behind(log_state: LogState, rules: Rules) -> bool:
    """Return whether compaction has fallen far behind: the ended rows are several times the limit, or the deltas."""
    everything = with_closures(log_state.segments, log_state.closures)
    recent = [v for v in everything if v.meta.role in ("open", "delta") and not v.meta.tombstone]
    live = sum(map(open_rows, recent))
    ended = _rows(recent) - live
    return ended > FAR_BEHIND * max(rules.ended_share * live, rules.small_store) or (
        len(recent) > FAR_BEHIND * (rules.small_fan_in + rules.fan_in)
    )


def is_idle_work(log_state: LogState, rules: Rules, committed: int) -> bool:
    """Return whether a pause is to be used: ``committed`` rows, since the open rows were last made dense, are many
    beside the open ones, and a step of mode "idle" is due.
    """
    live = sum(meta.open_rows or 0 for meta in log_state.segments if not meta.tombstone)
    return committed >= IDLE_ROWS * live and next_step(log_state, rules, "idle") is not None


def open_rows(segment: SegmentWithClosures) -> int:
    """Return a lower bound of the open rows of a segment: its open rows without those that closures may have ended."""
    meta = segment.meta
    if meta.max_valid_to != OPEN:
        return 0
    stored = meta.open_rows if meta.open_rows is not None else meta.rows
    return max(stored - segment.pending, 0)


def ended_rows(segment: SegmentWithClosures) -> int:
    """Return an upper bound of the rows of a segment that are not open."""
    return segment.meta.rows - open_rows(segment)


def _rewrite_main(main: Sequence[SegmentWithClosures], rules: Rules, mode: Mode) -> Rewriting | None:
    recent, closed = _divided(main)
    for choose in (_make_dense, _merge_recent, _fold_many_lists):
        rewriting = choose(recent, rules, mode)
        if rewriting is not None:
            return rewriting
    return _merge_closed(closed, rules, mode)


def _divided(
    main: Sequence[SegmentWithClosures],
) -> tuple[list[SegmentWithClosures], list[SegmentWithClosures]]:
    """Return (segments that may have open rows, the others)."""
    recent = [v for v in main if v.meta.role in ("open", "delta")]
    return recent, [v for v in main if v.meta.role in ("closed", "late")]


# Open rows


def _make_dense(recent: Sequence[SegmentWithClosures], rules: Rules, mode: Mode) -> Rewriting | None:
    """Rewrite the segments with the largest shares of ended rows, if all together have too many of them.

    While commits come, those with half of the ended rows are enough: where few rows have ended, more will soon.
    """
    live = sum(map(open_rows, recent))
    ended = _rows(recent) - live
    share = {"due": rules.ended_share, "idle": rules.idle_share, "closing": rules.closing_share}[mode]
    at_closing = min(rules.small_store, rules.small_idle)
    least = {"due": rules.small_store, "idle": rules.small_idle, "closing": at_closing}[mode]
    if ended <= max(share * live, least):
        return None
    ranked = sorted((v for v in recent if ended_rows(v)), key=lambda v: ended_rows(v) / v.meta.rows, reverse=True)
    worth: list[SegmentWithClosures] = []
    removed = 0
    for segment in ranked:
        if mode == "due" and removed >= REMOVED_SHARE * ended:
            break
        worth.append(segment)
        removed += ended_rows(segment)
    return Rewriting(tuple(_within(worth, rules.step_rows)))


def _merge_recent(recent: Sequence[SegmentWithClosures], rules: Rules, mode: Mode) -> Rewriting | None:
    """Merge open segments and deltas of one tier, if there are too many of them."""
    limit = rules.open_bytes // 2
    mergeable = [v for v in recent if v.meta.file.bytes < limit]
    group = _crowded(mergeable, rules, mode)
    if group is None:
        return None
    ended = sum(map(ended_rows, group))
    return Rewriting(tuple(group), mixed=ended < rules.mixed_rows)


def _fold_many_lists(recent: Sequence[SegmentWithClosures], rules: Rules, mode: Mode) -> Rewriting | None:
    """Rewrite a segment whose closures lie in many lists, as after thousands of small commits.

    Every log checkpoint names all lists, and every plan and commit looks through those of the segments that it opens.
    """
    for segment in recent:
        if len(segment.closures) >= rules.fold_lists and has_many_lists(segment, rules):
            return Rewriting((segment,), mixed=ended_rows(segment) < rules.mixed_rows)
    return None


def has_many_lists(segment: SegmentWithClosures, rules: Rules) -> bool:
    """Return whether a segment has so many lists of pending closures that a rewrite is due."""
    return len(segment.closures) >= rules.fold_lists + segment.meta.rows // rules.list_rows


def _crowded(segments: Sequence[SegmentWithClosures], rules: Rules, mode: Mode) -> list[SegmentWithClosures] | None:
    """Return the segments of the lowest tier that holds too many, those that ended first; None if none does.

    In mode "closing" these are few enough for that, or so many that they are not left any more.
    """
    small_fan_in = {
        "due": rules.small_fan_in,
        "idle": rules.idle_fan_in,
        "closing": min(rules.small_fan_in, rules.idle_fan_in),
    }[mode]
    if len(segments) < min(small_fan_in, rules.fan_in):
        return None
    tiers: dict[int, list[SegmentWithClosures]] = {}
    for segment in segments:
        tiers.setdefault(rules.tier(segment.meta.rows), []).append(segment)
    for tier, group in sorted(tiers.items()):
        rows = sum(v.meta.rows for v in group)
        is_small = tier == 0 and rows < rules.fan_in * rules.tier_rows // 2
        fan_in = small_fan_in if is_small else rules.fan_in
        layers = _layers(group)
        if layers >= fan_in:
            ordered = sorted(group, key=lambda v: v.meta.max_added)
            leaves = mode == "closing" and layers < rules.overdue * fan_in and rules.closing_rows < rules.step_rows
            chosen = _within(ordered, rules.closing_rows if leaves else rules.step_rows)
            if len(chosen) >= (fan_in if leaves else 2):
                return chosen
    return None


def _layers(group: Sequence[SegmentWithClosures]) -> int:
    """Return how many of the segments a key can be in: those that tasks wrote by ranges of keys count as one."""
    if any(v.meta.rows < MIN_RANGE_ROWS for v in group):
        return len(group)  # few rows have few key groups by chance
    borders = [(first, 1) for first, _ in (v.meta.key_groups for v in group)]
    borders += [(last + 1, -1) for _, last in (v.meta.key_groups for v in group)]
    return max(accumulate(change for _, change in sorted(borders)))


def _within(segments: Iterable[SegmentWithClosures], rows: int) -> list[SegmentWithClosures]:
    """Return the first segments that have at most ``rows`` rows, but at least one segment."""
    chosen: list[SegmentWithClosures] = []
    for segment in segments:
        rows -= segment.meta.rows
        if rows < 0 and chosen:
            break
        chosen.append(segment)
    return chosen


# Ended rows


def _merge_closed(closed: Sequence[SegmentWithClosures], rules: Rules, mode: Mode) -> Rewriting | None:
    """Merge closed segments of one tier, or rewrite one that has many pending closures."""
    group = _crowded([v for v in closed if v.meta.rows < rules.file_rows // 2], rules, mode)
    if group is not None:
        return Rewriting(tuple(group), cold=True)
    for segment in closed:
        pending = segment.pending / max(rules.fold_share * segment.meta.rows, rules.tier_rows)
        if mode == "closing" and segment.meta.rows > rules.closing_rows:
            if pending >= rules.overdue:
                return Rewriting((segment,), cold=True)
        elif pending >= 1 or has_many_lists(segment, rules):
            return Rewriting((segment,), cold=True)
    return None


def _merge_beliefs(beliefs: Sequence[SegmentWithClosures], rules: Rules, mode: Mode) -> Rewriting | None:
    if mode == "full":
        group = _within(sorted(beliefs, key=lambda v: v.meta.rows), rules.step_rows)
        return Rewriting(tuple(group)) if len(group) > 1 else None
    tiers: dict[int, list[SegmentWithClosures]] = {}
    for segment in beliefs:
        tiers.setdefault(rules.tier(segment.meta.rows), []).append(segment)
    for _, group in sorted(tiers.items()):
        if len(group) >= rules.fan_in:
            chosen = _within(group, rules.step_rows)
            return Rewriting(tuple(chosen)) if len(chosen) > 1 else None
    return None


# Everything


def _fold_everything(
    main: Sequence[SegmentWithClosures],
    beliefs: Sequence[SegmentWithClosures],
    rules: Rules,
    stream_time: Callable[[int], int],
    until: int,
) -> Rewriting | None:
    """Return the next rewriting after which, at last, every row is folded, open rows are dense, and closed segments
    follow each other in time and are compressed.
    """
    recent, closed = _divided(main)
    unfolded = [v for v in recent if v.meta.role == "delta" or v.until(until).closures or _stored_ended(v)]
    small = [v for v in recent if v.meta.file.bytes < rules.open_bytes // 2]
    rough = unfolded or (small if len(small) > 1 else [])
    tangled = _untangle(closed, rules, until)
    if not rough and tangled is None:
        # One by one: rows of several would lie among those of compressed segments between them.
        large = [v for v in closed if v.meta.rows >= segment_write.COMPRESSED_BATCH_ROWS]
        warm = [v for v in large if not segment_write.may_be_compressed(v.meta)]
        return Rewriting((warm[0],), cold=True) if warm else None
    if unfolded and _rows(main) > rules.file_rows:
        portion = _next_portion(unfolded, closed, beliefs, rules, stream_time)
        if portion is not None:
            return portion
    if _rows((*main, *beliefs)) <= rules.step_rows:
        return Rewriting((*(recent if rough else ()), *closed), tuple(beliefs), cold=True)
    if rough:
        return Rewriting(tuple(_within(sorted(rough, key=lambda v: v.meta.rows), rules.step_rows)))
    return tangled


def _next_portion(
    unfolded: Sequence[SegmentWithClosures],
    closed: Sequence[SegmentWithClosures],
    beliefs: Sequence[SegmentWithClosures],
    rules: Rules,
    stream_time: Callable[[int], int],
) -> Rewriting | None:
    """Return a rewriting of those segments whose rows ended first, about a third of all rows, of which most have
    ended before any row of the others; None if rows end in no such order.

    What it makes closed is final, so that nothing is compressed twice and the work of each step survives a kill.
    """
    ordered = sorted(unfolded, key=_first_end)
    if closed and max(v.meta.max_valid_to for v in closed) > _first_end(ordered[0]):
        return None
    left = [v for v in ordered if _was_left(v)]
    fresh = [v for v in ordered if v not in left]
    reread = _rows((*left, *beliefs))
    room = min(max(_rows((*unfolded, *closed)) // PORTIONS, rules.file_rows // 2), rules.step_rows * 2 // 3)
    chosen = _within(fresh, min(room + max((v.meta.rows for v in fresh), default=0) // 2, rules.step_rows - reread))
    if _rows(fresh) - _rows(chosen) < room // 2 and reread + _rows(fresh) <= rules.step_rows:
        chosen = fresh
    rest = fresh[len(chosen) :]
    if not (left or rest) or reread + _rows(chosen) > rules.step_rows or (rest and reread > _rows(chosen)):
        return None
    through = min(map(_first_end, rest)) if rest else None
    if through is not None:
        ended = sum(_ended_by(v, through, stream_time) for v in chosen)
        if WORTH_CUTTING * ended < _rows(chosen):
            return None
    return Rewriting((*left, *chosen), tuple(beliefs), cold=True, through=through)


def _rows(segments: Iterable[SegmentWithClosures]) -> int:
    return sum(segment.meta.rows for segment in segments)


def _first_end(segment: SegmentWithClosures) -> int:
    """Return the first time (epoch microseconds) at which a row of a segment ends."""
    return min([segment.meta.min_valid_to, *(piece.min_valid_to for piece in segment.closures)])


def _ended_by(segment: SegmentWithClosures, time: int, stream_time: Callable[[int], int]) -> int:
    """Return about how many rows of a segment had ended at a time; no commit ends rows later than its stream time."""
    stored = _stored_ended(segment) if stream_time(segment.meta.max_added) <= time else 0
    return stored + sum(piece.count for piece in segment.closures if stream_time(piece.version) <= time)


def _was_left(segment: SegmentWithClosures) -> bool:
    """Return whether a segment looks as if a portion left its rows for the next one: rows of several commits."""
    meta = segment.meta
    return (
        meta.role == "delta" and meta.min_added < meta.max_added and not segment.closures and _stored_ended(segment) > 0
    )


def _stored_ended(segment: SegmentWithClosures) -> int:
    return ended_rows(SegmentWithClosures(segment.meta))


def _untangle(closed: Sequence[SegmentWithClosures], rules: Rules, until: int) -> Rewriting | None:
    """Return a rewriting of closed segments that overlap in time, have pending closures, or are small neighbours."""
    ordered = sorted(closed, key=lambda v: (v.meta.min_valid_to, v.meta.max_valid_to))
    pairs = [(a, b) for n, a in enumerate(ordered) for b in ordered[n + 1 :] if overlap(a, b)]
    if pairs:
        swept = _sweep(ordered, rules)
        if swept is not None:
            return swept
        pair = min(pairs, key=lambda pair: sum(v.meta.rows for v in pair))
        if sum(v.meta.rows for v in pair) <= rules.step_rows:
            return Rewriting(_with_overlapping(pair, closed, rules), cold=True)
        larger = max(pair, key=lambda v: v.meta.rows).meta
        return Rewriting(pair, cold=True, window=(larger.min_valid_to, larger.max_valid_to))
    unfolded = [v for v in ordered if v.until(until).closures or v.meta.role == "late"]
    if unfolded:
        return Rewriting(tuple(_within(unfolded, rules.step_rows)), cold=True)
    for first in range(len(ordered) - 1):
        neighbours = _within(ordered[first:], rules.file_rows)
        if len(neighbours) > 1 and min(v.meta.rows for v in neighbours) < rules.file_rows // 4:
            return Rewriting(tuple(neighbours), cold=True)
    return None


def _sweep(ordered: Sequence[SegmentWithClosures], rules: Rules) -> Rewriting | None:
    """Return a rewriting of the first segments, by time, that overlap; None if most of their rows end among those of
    later ones.

    Rows that end before any row of the later ones get files of their own, which are final. The others, which are few
    where rows end about in the order of commits, are read once more with those. Were pairs rewritten until none
    overlaps, 100 commits of 100,000 rows would be read 1.6 times, and not 1.1 times.
    """
    chain: list[SegmentWithClosures] = []
    for segment in ordered:
        if chain and segment.meta.min_valid_to >= max(v.meta.max_valid_to for v in chain):
            if len(chain) > 1:
                break
            chain = []
        chain.append(segment)
    chosen = _within(chain, rules.step_rows)
    rest = chain[len(chosen) :]
    if not rest:
        return Rewriting(tuple(chosen), cold=True)
    through = rest[0].meta.min_valid_to
    ended = sum(v.meta.rows * _share_by(v.meta, through) for v in chosen)
    if len(chosen) < 2 or 2 * ended < _rows(chosen):
        return None
    return Rewriting(tuple(chosen), cold=True, window=(chosen[0].meta.min_valid_to, through))


def _share_by(meta: SegmentMeta, time: int) -> float:
    """Return about which share of the rows of a closed segment had ended at a time."""
    span = meta.max_valid_to - meta.min_valid_to
    return min((time - meta.min_valid_to) / span, 1.0) if span else 1.0


def _with_overlapping(
    pair: tuple[SegmentWithClosures, ...], closed: Sequence[SegmentWithClosures], rules: Rules
) -> tuple[SegmentWithClosures, ...]:
    """Return a pair of segments with others that overlap one of them, the smallest first, as many as a step reads."""
    group, rows = list(pair), sum(v.meta.rows for v in pair)
    for segment in sorted(closed, key=lambda v: v.meta.rows):
        if segment not in group and any(overlap(segment, other) for other in group):
            rows += segment.meta.rows
            if rows > rules.step_rows:
                break
            group.append(segment)
    return tuple(group)


def overlap(left: SegmentWithClosures, right: SegmentWithClosures) -> bool:
    """Return whether the ends of two closed segments overlap in time."""
    return left.meta.min_valid_to < right.meta.max_valid_to and right.meta.min_valid_to < left.meta.max_valid_to
