"""Verification of data files one by one, in this process or divided over many tasks: the bytes of a file, and the rows
of a segment with its statistics, key index and closures.

Rows are checked as whole columns, so a check costs as much as a scan of the segment. Violations are lists of words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from statestore.catalog.checks.verify_report import Problem, Report, problem_of
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.belief import SegmentWithClosures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.segments.page_table import check_pages
from statestore.formats.segments.regions import CHECKSUM_DIGITS, REGION_BYTES
from statestore.formats.segments.segment_meta import OPEN, Block, FileRef, SegmentMeta
from statestore.formats.values.key_hash import hash_keys, key_groups_of

Item = TypeVar("Item")


@dataclass(frozen=True)
class FilesPlan:
    """The files that each task checks; can be pickled."""

    storage: Storage
    files: tuple[tuple[FileRef, ...], ...]


def checked_files(
    storage: Storage, refs: Sequence[FileRef], report: Report, runs: TaskRuns | None
) -> Iterator[tuple[FileRef, list[Problem]]]:
    """Yield the files with the problems of their bytes, in their order; tasks of ``runs`` check them all before."""
    if runs is None:
        for ref in refs:
            yield ref, _file_problems(storage, ref, report)
        return
    plan = FilesPlan(storage, _divided(refs, [ref.bytes for ref in refs], runs.parallelism))
    answers = runs.run(partial(_check_files, plan), len(plan.files))
    found = {each["file"]: each for answer in answers for each in json.loads(answer)}
    for ref in refs:
        each = found[ref.name]
        report.compared += each["compared"]
        report.advance(ref.name, each["compared"])
        if each["checked"]:
            report.checked.add(ref.name)
        yield ref, [_problem_from_json(data) for data in each["problems"]]


def _check_files(plan: FilesPlan, number: int) -> str:
    """Check the files of one task, and return what was found as a text."""
    found = []
    for ref in plan.files[number]:
        report = Report("", lambda event: None, 0)
        problems = [_problem_to_json(problem) for problem in _file_problems(plan.storage, ref, report)]
        checked = ref.name in report.checked
        found.append({"file": ref.name, "compared": report.compared, "checked": checked, "problems": problems})
    return json.dumps(found)


def _file_problems(storage: Storage, ref: FileRef, report: Report) -> list[Problem]:
    """Return the problems of a file's bytes: the file is missing, its length is wrong, or regions are damaged."""
    try:
        data = storage.map(ref.name)
    except NotFoundError as error:
        return [problem_of(error, ref.name, "")]
    problems = []
    if data.size != ref.bytes:
        message = f"{ref.name} has {data.size} bytes, the commit says {ref.bytes}; restore the file from a copy"
        problems = [
            Problem(ErrorCode.SEGMENT_TRUNCATED, ref.name, message, "", expected=str(ref.bytes), found=str(data.size))
        ]
    memory = memoryview(data)
    for region, start in enumerate(range(0, min(data.size, ref.bytes), REGION_BYTES)):
        stop = min(start + REGION_BYTES, ref.bytes)
        if stop > data.size:
            break
        checksum = xxhash.xxh3_64_hexdigest(memory[start:stop])
        expected = ref.checksums[region * CHECKSUM_DIGITS : (region + 1) * CHECKSUM_DIGITS]
        report.compared += stop - start
        report.advance(ref.name, stop - start)
        if checksum != expected:
            message = (
                f"{ref.name}: region {region} (bytes {start} to {stop}) has checksum {checksum}, "
                f"the commit says {expected}; restore the file from a copy"
            )
            problems.append(Problem(ErrorCode.SEGMENT_CORRUPT, ref.name, message, "", region, expected, checksum))
    if ref.tail_checksum and not problems:
        try:
            check_pages(ref, memory)
        except CorruptError as error:
            problems.append(problem_of(error, ref.name, ""))
    report.checked.add(ref.name)
    return problems


def _divided(items: Sequence[Item], sizes: Sequence[int], tasks: int) -> tuple[tuple[Item, ...], ...]:
    """Divide items among at most so many tasks, the largest first, each to the task that has least so far."""
    shares: list[list[Item]] = [[] for _ in range(max(1, min(tasks, len(items))))]
    loads = [0] * len(shares)
    for position in sorted(range(len(items)), key=lambda position: -sizes[position]):
        least = loads.index(min(loads))
        shares[least].append(items[position])
        loads[least] += sizes[position]
    return tuple(tuple(share) for share in shares if share)


def _problem_to_json(problem: Problem) -> list[Any]:
    """Return a problem of which it is not yet known what it affects, in a form for JSON."""
    return [problem.code, problem.file, problem.message, problem.region, problem.expected, problem.found]


def _problem_from_json(data: list[Any]) -> Problem:
    """Return the problem of which `_problem_to_json` made the data."""
    code, file, message, region, expected, found = data
    return Problem(ErrorCode(code), file, message, "", region, expected, found)


@dataclass(frozen=True)
class _SegmentsPlan:
    """The segments that each task checks; can be pickled. ``intact`` are the files whose bytes are right."""

    storage: Storage
    spec: StoreSpec
    log_state: LogState
    intact: frozenset[str]
    segments: tuple[tuple[SegmentWithClosures, ...], ...]


def problems_in_tasks(
    files: SegmentFiles,
    log_state: LogState,
    segments: Sequence[SegmentWithClosures],
    intact: set[str],
    runs: TaskRuns,
) -> dict[str, list[Problem]]:
    """Return the problems of the rows of each segment, by its name."""
    shares = _divided(segments, [row_bytes(segment.meta) for segment in segments], runs.parallelism)
    plan = _SegmentsPlan(files.storage, files.spec, log_state, frozenset(intact), shares)
    answers = runs.run(partial(_check_segments, plan), len(shares)) if shares else []
    found = [item for answer in answers for item in json.loads(answer).items()]
    return {name: [_problem_from_json(data) for data in problems] for name, problems in found}


def _check_segments(plan: _SegmentsPlan, number: int) -> str:
    """Check the segments of one task, and return what was found as a text."""
    files = SegmentFiles(plan.storage, plan.spec)
    found = {}
    for segment in plan.segments[number]:
        problems = segment_problems(files, plan.log_state, segment, plan.intact)
        found[segment.meta.name] = [_problem_to_json(problem) for problem in problems]
        files.forget()
    return json.dumps(found)


def row_bytes(meta: SegmentMeta) -> int:
    """Return the bytes of a segment with its index."""
    return meta.file.bytes + (0 if meta.index is None else meta.index.bytes)


def segment_problems(
    files: SegmentFiles, log_state: LogState, segment: SegmentWithClosures, intact: Collection[str]
) -> list[Problem]:
    """Return the problems of the rows of a segment, of its index and of its closures, where their bytes are right."""
    meta = segment.meta
    index_intact = meta.index is None or meta.index.name in intact
    closures_intact = all(piece.file.name in intact for piece in segment.closures)
    steps: list[tuple[str, Callable[[], list[str] | None]]] = [
        (meta.name, lambda: files.open_segment(meta).verify_all()),
        (meta.name, lambda: _key_violations(files, meta)),
    ]
    if index_intact:
        index = meta.name if meta.index is None else meta.index.name
        steps.append((index, lambda: files.index(meta).verify_all()))
        steps.append((meta.name, lambda: segment_violations(files, log_state, segment)))
    if closures_intact and segment.closures:
        steps.append((segment.closures[0].file.name, lambda: closure_violations(files, segment)))
    problems: list[Problem] = []
    for name, step in steps:
        try:
            problems += [Problem(ErrorCode.INVARIANT, name, text, "") for text in step() or ()]
        except StateStoreError as error:
            if error.code == ErrorCode.FILES_REPLACED:  # the store is not damaged, and has to be checked again
                raise
            problems.append(problem_of(error, name, ""))
            break
        except (pa.ArrowException, ValueError, IndexError, TypeError) as error:
            problems.append(Problem(ErrorCode.SEGMENT_CORRUPT, name, f"{name}: {type(error).__name__}: {error}", ""))
            break
    return problems


def _key_violations(files: SegmentFiles, meta: SegmentMeta) -> list[str]:
    """Check the statistics about keys by which reads skip a segment."""
    file = files.open_segment(meta)
    hashes = hash_keys([file.column_array(name) for name in files.spec.key_names])
    groups = key_groups_of(np.array([hashes.min(), hashes.max()], np.uint64), files.spec.key_groups)
    violations = []
    if not meta.key_groups[0] <= groups[0] <= groups[1] <= meta.key_groups[1]:
        violations.append(
            f"{meta.name}: key groups are {meta.key_groups[0]} to {meta.key_groups[1]} in the log, "
            f"{groups[0]} to {groups[1]} in the rows"
        )
    for number, name in enumerate(files.spec.key_names):
        for what, bounds in (("min", meta.key_min), ("max", meta.key_max)):
            bound = None if bounds is None else bounds[number]
            if bound is not None and pc.min_max(file.column(name)).as_py()[what] != bound:
                violations.append(
                    f"{meta.name}: the {what} of key column {name} is not {bound!r}, the value in the log"
                )
    return violations


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
