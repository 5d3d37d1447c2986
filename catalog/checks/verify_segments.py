"""Verification of the rows of segments: values, statistics, key indexes and closures, here or in many tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.checks.invariants import closure_violations, segment_violations
from statestore.catalog.checks.verify_files import divided, problem_from_json, problem_to_json
from statestore.catalog.checks.verify_report import Problem, problem_of
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.belief import SegmentWithClosures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError
from statestore.formats.segments.segment_meta import SegmentMeta
from statestore.formats.values.key_hash import hash_keys, key_groups_of


@dataclass(frozen=True)
class SegmentsPlan:
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
    shares = divided(segments, [row_bytes(segment.meta) for segment in segments], runs.parallelism)
    plan = SegmentsPlan(files.storage, files.spec, log_state, frozenset(intact), shares)
    answers = runs.run(partial(check_segments, plan), len(shares)) if shares else []
    found = [item for answer in answers for item in json.loads(answer).items()]
    return {name: [problem_from_json(data) for data in problems] for name, problems in found}


def check_segments(plan: SegmentsPlan, number: int) -> str:
    """Check the segments of one task, and return what was found as a text."""
    files = SegmentFiles(plan.storage, plan.spec)
    found = {}
    for segment in plan.segments[number]:
        problems = segment_problems(files, plan.log_state, segment, plan.intact)
        found[segment.meta.name] = [problem_to_json(problem) for problem in problems]
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
