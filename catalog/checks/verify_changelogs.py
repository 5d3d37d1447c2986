"""Verification of changelogs: whole frames, and all writes that the hot tier's position records as acknowledged."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow as pa

from statestore.catalog.checks.verify_report import Problem, Report, problem_of
from statestore.catalog.commits.changelogs import (
    CHANGELOGS,
    OURS,
    consumed_ends,
    foreign_note,
    overtaken_changelogs,
)
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage, own_folder
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.stores.live.tier_position import expected_extents, missing, read_position
from statestore.formats.changelogs.changelog import ROW_SCHEMA, passed_over_note, read_changelog, store_of
from statestore.formats.errors import StateStoreError
from statestore.formats.places.file_presence import names_in

AFFECTS = "acknowledged puts that are not committed, and opening the store to write"


def verify_changelogs(storage: Storage, spec: StoreSpec | None, log_state: LogState | None, report: Report) -> int:
    """Return the number of acknowledged puts that wait for a commit."""
    root = own_folder(storage)
    if root is None:
        return 0
    paths = [root / CHANGELOGS / name for name in names_in(root / CHANGELOGS) if OURS.fullmatch(name)]
    done: dict[str, int] = {}
    if log_state is not None:
        try:
            done = consumed_ends(storage, log_state, [path.name for path in paths])
        except StateStoreError:  # a damaged log entry is a problem of its own
            done = dict(log_state.changelogs)
    schema = None if spec is None else spec.record_schema() if _logs_records(spec) else ROW_SCHEMA
    waiting = 0
    for path in paths:
        if not _is_foreign(path, spec, report):
            waiting += _verify_changelog(path, schema, done.get(path.name, 0), report)
    if spec is not None and log_state is not None:
        _verify_extents(storage, root, spec, log_state, report)
        with contextlib.suppress(StateStoreError):  # a damaged log entry is a problem of its own
            for path in overtaken_changelogs(storage, spec, log_state, root):
                report.note(
                    f"{path}: writes that were not committed before another machine took the store over; "
                    "take_back() adds them"
                )
    return waiting


def _is_foreign(path: Path, spec: StoreSpec | None, report: Report) -> bool:
    try:
        store = store_of(path)
    except (StateStoreError, FileNotFoundError):
        return False  # reading the file reports the damage
    if spec is None or store in ("", spec.store_id):
        return False
    report.note(foreign_note(f"{CHANGELOGS}/{path.name}", store))
    return True


def _verify_changelog(path: Path, schema: pa.Schema | None, done: int, report: Report) -> int:
    """Return the number of records of one file that no commit has taken in."""
    name = f"{CHANGELOGS}/{path.name}"
    changelog = read_changelog(path, schema)
    try:
        waiting: int = sum(batch.num_rows for batch, _ in changelog)
        if done:
            waiting = sum(batch.num_rows for batch, _ in read_changelog(path, schema, done))
    except FileNotFoundError:  # committed in the meantime
        return 0
    except StateStoreError as error:
        report.read(name, changelog.size)
        report.add(problem_of(error, name, AFFECTS))
        return 0
    report.read(name, changelog.size)
    if changelog.passed_over:
        report.note(passed_over_note(name, changelog.end, changelog.passed_over))
    elif not changelog.end:
        report.note(f"{name}: nothing in it can be read; the machine may have stopped before the file was written")
    elif changelog.end < changelog.size:
        lost = changelog.size - changelog.end
        report.note(
            f"{name}: the last {lost} bytes are not a whole record; a put that was cut off there was never acknowledged"
        )
    return waiting


def _verify_extents(storage: Storage, root: Path, spec: StoreSpec, log_state: LogState, report: Report) -> None:
    reported = {problem.file for problem in report.problems}
    problems = [p for p in _extent_problems(storage, root, spec, log_state) if p.file not in reported]
    if problems:  # check again: a missing file may have been committed in the meantime
        try:
            again = _extent_problems(storage, root, spec, load_log_state(storage))
        except StateStoreError:
            again = problems
        for problem in problems:
            if problem in again:
                report.add(problem)


def _extent_problems(storage: Storage, root: Path, spec: StoreSpec, log_state: LogState) -> list[Problem]:
    position = read_position(root / "live")
    if position is None:
        return []
    try:
        extents = list(expected_extents(position, storage, spec, log_state))
    except StateStoreError:  # a damaged log entry is a problem of its own
        return []
    problems = []
    for extent in extents:
        changelog = read_changelog(root / CHANGELOGS / extent.name, None)
        end: int | None
        try:
            for _ in changelog:
                pass
            end = changelog.end
        except FileNotFoundError:
            end = None
        except StateStoreError:  # reported already
            continue
        if end is None or end < extent.end:
            error = missing(storage, extent, end)
            problems.append(
                problem_of(error, f"{CHANGELOGS}/{extent.name}", "acknowledged puts that are not committed")
            )
    return problems


def _logs_records(spec: StoreSpec) -> bool:
    return spec.kind == "versioned" and spec.serde == "natural"
