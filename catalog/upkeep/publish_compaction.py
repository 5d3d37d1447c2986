"""Publishing of compactions, which cost no commit: a compaction that races with a commit lets the commit win, and moves
the closures that arrived meanwhile to the rows' new locations.

A compaction is a series of steps. Each is written, published as a commit and counted by itself, so a process that dies
loses the step that it was at, and the next compaction goes on behind the last one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

from statestore.catalog.commits.claims import claim
from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.open_rows import Moves, note_moves
from statestore.catalog.commits.publish_commit import after_publish, check_age, new_entry, remove_files
from statestore.catalog.commits.writer_state import writer_of
from statestore.catalog.log.entries import CommitEntry, write_entry
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep import compaction_rules
from statestore.catalog.upkeep.compaction import Rewrite, moved_closures, run_step
from statestore.catalog.upkeep.compaction_plan import Mode, Step, next_step
from statestore.catalog.upkeep.compaction_rules import Rules
from statestore.catalog.upkeep.segment_output import GivenUpError
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CommitUnknownError, ConflictError, StateStoreError

MAX_ATTEMPTS = 20

Progress = Callable[[int, int], None]


def run_compaction(
    files: SegmentFiles,
    base: LogState,
    full: bool,
    rules: Rules | None = None,
    progress: Progress = lambda done, total: None,
) -> LogState:
    """Run the steps that are due (``full``: until all is folded); return the newest log state, which is unchanged if
    nothing is due.

    ``progress`` is called with (rows done, rows that are done or to do) before and after each step. Raises
    ConflictError COMPACTION_OVERTAKEN if other compactions keep removing the same segments.
    """
    rules = rules or compaction_rules.DEFAULT
    mode: Mode = "full" if full else "due"
    log_state, done = load_log_state(files.storage, base=base), 0
    until = log_state.version
    for _ in range(16 + 8 * len(log_state.segments)):
        step = next_step(log_state, rules, mode, until)
        if step is None:
            break
        rest = sum(meta.rows for meta in log_state.segments) if full else 0
        progress(done, done + max(rest, step.rows))
        log_state = run_one_step(files, log_state, rules, mode, until)
        done += step.rows
        progress(done, done + max(rest - step.rows, 0))
    return log_state


def run_one_step(
    files: SegmentFiles,
    base: LogState,
    rules: Rules,
    mode: Mode,
    until: int | None = None,
    stop: Callable[[Step], bool] = lambda step: False,
) -> LogState:
    """Run and publish the next step; return the newest log state, which is unchanged if nothing is due.

    ``stop`` is asked with the step before each block and before the step is published; if it answers True, the step is
    given up. Raises ConflictError COMPACTION_OVERTAKEN.
    """
    log_state = base
    for _ in range(MAX_ATTEMPTS):
        with claim(files.storage) as claimed:  # before the log is read, so that its trimming cannot overtake the step
            log_state, _lease = files.log.leased(log_state, commits=True)
            step = next_step(log_state, rules, mode, until)
            if step is None:
                return log_state
            published = _attempt(files, log_state, step, rules, claimed, partial(stop, step))
        if published is not None:
            return published
    raise ConflictError(
        ErrorCode.COMPACTION_OVERTAKEN,
        f"store {files.spec.name!r}: other compactions removed the same segments {MAX_ATTEMPTS} times; "
        "let one process compact a store",
    )


def _attempt(
    files: SegmentFiles, base: LogState, step: Step, rules: Rules, claimed: str, stop: Callable[[], bool]
) -> LogState | None:
    """Return the log state with the step; None if another compaction or an expiry removed a segment that it read."""
    new = NewFiles(claimed)
    try:
        rewrite = run_step(files, base, step, rules, new, stop)
    except Exception as error:
        remove_files(files.storage, new)
        if isinstance(error, GivenUpError):
            return base
        raise
    if stop():
        remove_files(files.storage, new)
        return base
    with writer_of(files).publishing:
        return _publish_rewrite(files, base, rewrite)


def _publish_rewrite(files: SegmentFiles, base: LogState, rewrite: Rewrite) -> LogState | None:
    """Publish a rewrite; return None if another compaction or an expiry removed a segment that it read."""
    removed = tuple(m.name for m in rewrite.removed)
    published = publish_rewrite(files, base, rewrite.new, removed, lambda at: _carry(files, base, at, rewrite))
    if published is not None:
        with contextlib.suppress(Exception):  # the compaction exists, whether or not an index follows it
            names = tuple(m.name for m in rewrite.new.segments)
            note_moves(files, published, {name: Moves(names, *to) for name, to in rewrite.moved.items()})
    return published


def publish_rewrite(
    files: SegmentFiles,
    base: LogState,
    new: NewFiles,
    removed: tuple[str, ...],
    carry: Callable[[LogState], NewFiles],
) -> LogState | None:
    """Publish ``new`` in place of the segments ``removed``; return None if one of them is not there any more.

    ``carry`` writes the closures that commits between ``base`` and a later log state put on the removed segments, at
    the rows' new locations.
    """
    storage = files.storage
    at, carried = base, NewFiles(new.claim)
    try:
        while True:
            entry = _rewrite_entry(at, new, carried, removed)
            check_age(storage, new, entry.version)
            try:
                write_entry(storage, entry)
                return after_publish(storage, at, entry)
            except ConflictError:
                remove_files(storage, carried)
            at, _lease = files.log.leased(at, commits=True)  # its closures are read
            if not set(removed) <= {m.name for m in at.segments}:
                remove_files(storage, new)
                return None
            carried = carry(at)
    except CommitUnknownError:
        raise
    except StateStoreError:
        remove_files(storage, new)
        remove_files(storage, carried)
        raise


def _rewrite_entry(at: LogState, new: NewFiles, carried: NewFiles, removed: tuple[str, ...]) -> CommitEntry:
    both = NewFiles(
        new.claim, segments=new.segments, closures=carried.closures, written={**new.written, **carried.written}
    )
    return new_entry(at, "compact", both, removed=removed)


def _carry(files: SegmentFiles, base: LogState, at: LogState, rewrite: Rewrite) -> NewFiles:
    """Return closures that commits after ``base`` put on the rewritten segments, at the rows' new locations."""
    carried = NewFiles(rewrite.new.claim)
    pieces = [c for m in rewrite.removed for c in at.closures.get(m.name, ()) if c.version > base.version]
    carried.add_closures(moved_closures(files, rewrite, pieces))
    carried.write(files.storage)
    return carried
