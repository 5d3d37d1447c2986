"""Verification of data files: the checksum of every region, then every value, statistic and index that the newest
version needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.checks.verify_files import checked_files, problems_in_tasks, row_bytes, segment_problems
from statestore.catalog.checks.verify_log import LogFindings, Reference
from statestore.catalog.checks.verify_report import Problem, Report
from statestore.catalog.log.log_state import LogState, file_names
from statestore.catalog.log.storage import ObjectInfo, Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.belief import SegmentWithClosures, ends_at, with_closures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.formats.error_codes import ErrorCode
from statestore.formats.segments.segment_meta import OPEN, SegmentMeta
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.times import format_time

PART_ROWS = 1 << 22  # about so many keys are compared with one another at a time
SUPERSEDED = "only readers that opened the store earlier; no current read needs the file, and vacuum removes it"
UNKNOWN = "unknown: the log does not say which versions need this file"


def verify_data(
    storage: Storage,
    spec: StoreSpec | None,
    log: LogFindings,
    listed: list[ObjectInfo],
    report: Report,
    runs: TaskRuns | None = None,
) -> None:
    """Check all files that a commit added and that exist or have to exist, with ``runs`` in tasks."""
    log_state = log.log_state
    there = {item.name for item in listed}
    needed = file_names(log_state) if log_state is not None else set()
    references = dict(log.references)
    if log_state is not None:
        references |= _of_log_state(log_state, references)
    extents = _extents(log_state)
    report.total += (
        0 if log_state is None else sum(row_bytes(meta) for meta in log_state.segments)
    )  # rows are read a second time
    intact = set()
    chosen = [references[name].ref for name in sorted(references) if name in there or name in needed]
    for ref, problems in checked_files(storage, chosen, report, runs):
        for problem in problems:
            report.add(_affecting(problem, extents.get(ref.name), UNKNOWN if log_state is None else SUPERSEDED))
        if not problems:
            intact.add(ref.name)
    if spec is not None and log_state is not None:
        _verify_rows(SegmentFiles(storage, spec), log_state, intact, report, runs)


def _of_log_state(log_state: LogState, references: dict[str, Reference]) -> dict[str, Reference]:
    """Return the files that only a checkpoint names, because the log entries that added them are lost."""
    named = {}
    for meta in log_state.segments:
        named[meta.name] = Reference(meta.file, meta.max_added)
        if meta.index is not None:
            named[meta.index.name] = Reference(meta.index, meta.max_added)
        for piece in log_state.closures.get(meta.name, ()):
            named[piece.file.name] = Reference(piece.file, piece.version)
    return {name: reference for name, reference in named.items() if name not in references}


@dataclass(frozen=True)
class _Extent:
    """Versions and state times that the rows of a file cover; ``end`` OPEN: until now."""

    first: int
    last: int
    start: int
    end: int

    def joined(self, other: _Extent | None) -> _Extent:
        if other is None:
            return self
        first, last = min(self.first, other.first), max(self.last, other.last)
        return _Extent(first, last, min(self.start, other.start), max(self.end, other.end))


def _extents(log_state: LogState | None) -> dict[str, _Extent]:
    """Return the extent of each file that the newest version needs."""
    extents: dict[str, _Extent] = {}
    if log_state is None:
        return extents
    for meta in log_state.segments:
        whole = extents[meta.name] = _extent(meta, log_state)
        if meta.index is not None:
            extents[meta.index.name] = whole
        for piece in log_state.closures.get(meta.name, ()):
            name = piece.file.name
            extents[name] = replace(whole, first=piece.version).joined(extents.get(name))
    return extents


def _extent(meta: SegmentMeta, log_state: LogState) -> _Extent:
    last = meta.max_dropped - 1 if meta.role == "belief" else log_state.version
    return _Extent(meta.min_added, last, meta.min_valid_from, meta.max_valid_to)


def _affecting(problem: Problem, extent: _Extent | None, unknown: str) -> Problem:
    if extent is None:
        return replace(problem, affects=unknown)
    until = "now" if extent.end == OPEN else format_time(extent.end)
    affects = (
        f"rows valid from {format_time(extent.start)} to {until}, "
        f"as versions {extent.first} to {extent.last} recorded them"
    )
    times = extent.start, None if extent.end == OPEN else extent.end
    return replace(problem, affects=affects, versions=(extent.first, extent.last), times=times)


# Rows


def _verify_rows(
    files: SegmentFiles, log_state: LogState, intact: set[str], report: Report, runs: TaskRuns | None
) -> None:
    whole = []
    segments = with_closures(log_state.segments, log_state.closures)
    there = [segment for segment in segments if segment.meta.name in intact]
    found = {} if runs is None else problems_in_tasks(files, log_state, there, intact, runs)
    for segment in segments:
        names = {segment.meta.name, *(piece.file.name for piece in segment.closures)}
        if segment.meta.index is not None:
            names.add(segment.meta.index.name)
        if segment.meta.name in intact:
            name = segment.meta.name
            problems = found[name] if name in found else segment_problems(files, log_state, segment, intact)
            for problem in problems:
                report.add(_affecting(problem, _extent(segment.meta, log_state), UNKNOWN))
            if names <= intact and not problems:
                whole.append(segment)
        files.forget()
        report.advance(segment.meta.name, row_bytes(segment.meta))
    oldest = 0 if log_state.horizon is None else log_state.horizon.version
    for version in sorted({oldest, log_state.version}):
        _verify_keys(files, whole, version, report)


def _verify_keys(files: SegmentFiles, segments: list[SegmentWithClosures], version: int, report: Report) -> None:
    """Check that no key has two rows at one moment in the belief of a version.

    Keys are compared range by range of their hashes.
    """
    total = sum(segment.meta.rows for segment in segments)
    bits = max(-(-total // PART_ROWS) - 1, 0).bit_length()
    twice = sum(_overlaps(files, segments, version, part, bits) for part in range(1 << bits))
    files.forget()
    if twice:
        message = f"version {version}: {twice} keys have two rows at one moment"
        affects = f"reads of these keys at version {version}"
        report.add(Problem(ErrorCode.INVARIANT, "log/", message, affects, versions=(version, version)))


def _overlaps(files: SegmentFiles, segments: list[SegmentWithClosures], version: int, part: int, bits: int) -> int:
    keys: list[list[pa.Array]] = []
    hashes, starts, ends = [], [], []
    for segment in segments:
        if segment.meta.min_added > version:
            continue
        index = files.index(segment.meta)
        low, high = _range(index.hashes, part, bits)
        rows = index.rows[low:high].astype(np.int64)
        end = ends_at(files, segment, version)[rows]
        start = files.open_segment(segment.meta).int64("valid_from")[rows]
        valid = end > start
        keys.append([files.open_segment(segment.meta).take(n, rows[valid]) for n in files.spec.key_names])
        hashes.append(index.hashes[low:high][valid])
        starts.append(start[valid])
        ends.append(end[valid])
        if bits:
            files.forget()
    if not keys:
        return 0
    columns = [pa.concat_arrays([key[i] for key in keys]) for i in range(len(files.spec.key))]
    joined, start, end = np.concatenate(hashes), np.concatenate(starts), np.concatenate(ends)
    order = np.lexsort((start, joined))
    pairs = np.flatnonzero((joined[order][1:] == joined[order][:-1]) & (start[order][1:] < end[order][:-1]))
    return int(keys_equal(columns, order[pairs], columns, order[pairs + 1]).sum())


def _range(hashes: npt.NDArray[np.uint64], part: int, bits: int) -> tuple[int, int]:
    """Return the bounds of the hashes that begin with the bits of ``part``, among ascending hashes."""
    if not bits:
        return 0, len(hashes)
    shift = np.uint64(64 - bits)
    low = np.searchsorted(hashes, np.uint64(part) << shift)
    last = part + 1 == 1 << bits
    return int(low), len(hashes) if last else int(np.searchsorted(hashes, np.uint64(part + 1) << shift))
