"""Verification of the bytes of data files, in this process or divided over many tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import xxhash

from statestore.catalog.checks.verify_report import Problem, Report, problem_of
from statestore.catalog.log.storage import Storage
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.segments.page_table import check_pages
from statestore.formats.segments.regions import CHECKSUM_DIGITS, REGION_BYTES
from statestore.formats.segments.segment_meta import FileRef

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
            yield ref, file_problems(storage, ref, report)
        return
    plan = FilesPlan(storage, divided(refs, [ref.bytes for ref in refs], runs.parallelism))
    answers = runs.run(partial(check_files, plan), len(plan.files))
    found = {each["file"]: each for answer in answers for each in json.loads(answer)}
    for ref in refs:
        each = found[ref.name]
        report.compared += each["compared"]
        report.advance(ref.name, each["compared"])
        if each["checked"]:
            report.checked.add(ref.name)
        yield ref, [problem_from_json(data) for data in each["problems"]]


def check_files(plan: FilesPlan, number: int) -> str:
    """Check the files of one task, and return what was found as a text."""
    found = []
    for ref in plan.files[number]:
        report = Report("", lambda event: None, 0)
        problems = [problem_to_json(problem) for problem in file_problems(plan.storage, ref, report)]
        checked = ref.name in report.checked
        found.append({"file": ref.name, "compared": report.compared, "checked": checked, "problems": problems})
    return json.dumps(found)


def file_problems(storage: Storage, ref: FileRef, report: Report) -> list[Problem]:
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


def divided(items: Sequence[Item], sizes: Sequence[int], tasks: int) -> tuple[tuple[Item, ...], ...]:
    """Divide items among at most so many tasks, the largest first, each to the task that has least so far."""
    shares: list[list[Item]] = [[] for _ in range(max(1, min(tasks, len(items))))]
    loads = [0] * len(shares)
    for position in sorted(range(len(items)), key=lambda position: -sizes[position]):
        least = loads.index(min(loads))
        shares[least].append(items[position])
        loads[least] += sizes[position]
    return tuple(tuple(share) for share in shares if share)


def problem_to_json(problem: Problem) -> list[Any]:
    """Return a problem of which it is not yet known what it affects, in a form for JSON."""
    return [problem.code, problem.file, problem.message, problem.region, problem.expected, problem.found]


def problem_from_json(data: list[Any]) -> Problem:
    """Return the problem of which `problem_to_json` made the data."""
    code, file, message, region, expected, found = data
    return Problem(ErrorCode(code), file, message, "", region, expected, found)
