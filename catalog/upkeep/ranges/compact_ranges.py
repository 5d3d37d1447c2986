"""A compaction in many tasks, one for each range of keys, and its publication as one commit.

The tasks write their files beside the store's; nothing names them before the one log entry that puts all of them in the
place of the segments they were made of. Commits that come meanwhile are undisturbed: the closures they put on replaced
segments move along. A task may fail, die, or run twice: only the files in the answer that counts are published, and the
others are removed here, or by vacuum where a task wrote them later. The segments to rewrite are chosen from statistics
alone (`Choice`).
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations

from statestore.catalog.commits.claims import DIGITS, claim
from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.writer_state import writer_of
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import POLL
from statestore.catalog.reads.belief import SegmentWithClosures, with_closures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep.background_compaction import compaction_lock
from statestore.catalog.upkeep.compaction_plan import Mode, ended_rows, has_many_lists, next_step, overlap
from statestore.catalog.upkeep.compaction_rules import Rules
from statestore.catalog.upkeep.publish_compaction import publish_rewrite
from statestore.catalog.upkeep.ranges.compact_range import (
    RangePlan,
    RangeResult,
    compact_range,
    key_ranges,
    moved_closures,
    result_from_json,
)
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CommitUnknownError, ConflictError, CorruptError, StateStoreError

MAX_ATTEMPTS = 3
LOCK_WAIT = 60.0  # seconds
_Inputs = Sequence[SegmentWithClosures]
Choice = Callable[[LogState, Rules], _Inputs]


def compact_ranges(files: SegmentFiles, base: LogState, runs: TaskRuns, choose: Choice, rules: Rules) -> LogState:
    """Compact the segments that ``choose`` takes of the newest log state; return the newest log state afterwards.

    Raises ConflictError COMPACTION_OVERTAKEN if other compactions or expiries keep removing the same segments.
    """
    log_state = base
    for _ in range(MAX_ATTEMPTS):
        log_state, _lease = files.log.leased(log_state)  # what tasks read stays, whoever vacuums
        inputs = choose(log_state, rules)
        if not inputs:
            return log_state
        with claim(files.storage) as claimed:
            # Without claims, as in object stores, the names of new files begin alike nevertheless.
            mark = claimed or uuid.uuid4().hex[:DIGITS]
            published = _attempt(files, log_state, runs, inputs, rules, mark)
        if published is not None:
            return published
    raise ConflictError(
        ErrorCode.COMPACTION_OVERTAKEN,
        f"store {files.spec.name!r}: other compactions or expiries removed the same segments {MAX_ATTEMPTS} times; "
        "let one process compact a store",
    )


@contextlib.contextmanager
def waiting_for_turn(files: SegmentFiles) -> Iterator[None]:
    """Hold the lock of compactions, so that none in the background overtakes this one.

    A holder that keeps it for a minute is not waited for any longer: this compaction can then be overtaken.
    """
    deadline = time.monotonic() + LOCK_WAIT
    while True:
        with compaction_lock(files) as is_ours:
            if is_ours or time.monotonic() > deadline:
                yield
                return
        time.sleep(POLL)


def range_count(rows: int, runs: TaskRuns, rules: Rules) -> int:
    """Return the number of tasks: none reads more rows than a step may, and no core is idle if it pays."""
    return max(1, -(-rows * 9 // (rules.step_rows * 8)), min(runs.parallelism, rows // rules.task_rows))


def _attempt(
    files: SegmentFiles, base: LogState, runs: TaskRuns, inputs: _Inputs, rules: Rules, claimed: str
) -> LogState | None:
    """Return the log state with the compaction; None if a segment that it read was removed meanwhile."""
    removed = [segment.meta for segment in inputs]
    names = tuple(meta.name for meta in removed)
    rows = sum(meta.rows for meta in removed)
    ranges = key_ranges(range_count(rows, runs, rules), files.spec.key_groups)
    plan = RangePlan(files.storage, files.spec, base.version, claimed, names, ranges, rules)
    begun = time.monotonic()
    try:
        results = [result_from_json(text) for text in runs.run(partial(compact_range, plan), len(ranges))]
        _check_complete(files, results, len(ranges), rows)
    except BaseException:
        _remove_unnamed(files, claimed, set())
        raise
    metas = [meta for result in results for meta in result.segments]
    new = NewFiles(claimed, segments=metas, begun=begun)
    new.written = {ref.name: ref.bytes for meta in metas for ref in (meta.file, meta.index) if ref is not None}

    def carry(at: LogState) -> NewFiles:
        carried = NewFiles(claimed)
        pieces = [piece for name in names for piece in at.closures.get(name, ()) if piece.version > base.version]
        if pieces:
            moves = ((result.segments, ref) for result in results for ref in result.moves)
            carried.add_closures(moved_closures(files, removed, pieces, moves))
            carried.write(files.storage)
        return carried

    try:
        with writer_of(files).publishing:
            published = publish_rewrite(files, base, new, names, carry)
    except CommitUnknownError:
        raise
    except StateStoreError:  # any other exception (such as an interrupt) leaves the outcome unknown
        _remove_unnamed(files, claimed, set())
        raise
    _remove_unnamed(files, claimed, set() if published is None else _names_of(published, claimed))
    return published


def _check_complete(files: SegmentFiles, results: Sequence[RangeResult], count: int, rows: int) -> None:
    """Raise CorruptError SEGMENT_CORRUPT unless the tasks together read each row once."""
    found = sum(result.rows for result in results)
    if len(results) != count or found != rows:
        raise CorruptError(
            ErrorCode.SEGMENT_CORRUPT,
            f"store {files.spec.name!r}: {len(results)} tasks of {count} found {found} rows in segments that have "
            f"{rows}; nothing was changed. Run verify, and restore the files that it names from a copy",
        )


def _names_of(log_state: LogState, claimed: str) -> set[str]:
    """Return the files of a claim that a log state names."""
    refs = [ref for meta in log_state.segments for ref in (meta.file, meta.index) if ref is not None]
    refs += [piece.file for pieces in log_state.closures.values() for piece in pieces]
    return {ref.name for ref in refs if claimed in ref.name}


def _remove_unnamed(files: SegmentFiles, claimed: str, named: set[str]) -> None:
    """Remove the files of a claim but those in ``named``: moved rows, and files of attempts that do not count."""
    with contextlib.suppress(StateStoreError, OSError):  # vacuum removes what is left
        mine = (item.name for item in files.storage.list("segments/") if item.name.startswith(f"segments/{claimed}"))
        files.storage.delete_many([name for name in mine if name not in named])


def everything(log_state: LogState, rules: Rules) -> _Inputs:
    """Return all segments, or none if a rewrite would leave them as they are."""
    found = with_closures(log_state.segments, log_state.closures)
    return [] if _is_compact(found, rules) else found


def due(log_state: LogState, rules: Rules) -> _Inputs:
    """Return what a compaction in this process would rewrite in the end, if a step of one is due.

    These are the segments with open rows, small ones, and closed ones with many pending closures.
    """
    return _by_mode(log_state, rules, "due")


def idle(log_state: LogState, rules: Rules) -> _Inputs:
    """Return the same for a compaction of a store to which no writer commits for a while."""
    return _by_mode(log_state, rules, "idle")


def _by_mode(log_state: LogState, rules: Rules, mode: Mode) -> _Inputs:
    if next_step(log_state, rules, mode) is None:
        return []
    return [v for v in with_closures(log_state.segments, log_state.closures) if _is_worth(v, rules)]


def expired(log_state: LogState, rules: Rules) -> _Inputs:
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


def _is_compact(segments: _Inputs, rules: Rules) -> bool:
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
