"""Verification of data files: the checksum of every region, then every value, statistic and index that the newest
version needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from statestore.catalog.checks.invariants import closure_violations, segment_violations
from statestore.catalog.checks.verify_log import LogFindings, Reference
from statestore.catalog.checks.verify_report import Problem, Report, problem_of
from statestore.catalog.log.log_state import LogState, file_names
from statestore.catalog.log.storage import ObjectInfo, Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.row_ends import SegmentWithClosures, ends_at, with_closures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, StateStoreError
from statestore.formats.segments.regions import CHECKSUM_DIGITS, REGION_BYTES
from statestore.formats.segments.segment_meta import OPEN, FileRef, SegmentMeta
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys, key_groups_of
from statestore.formats.values.times import format_time

PART_ROWS = 1 << 22  # about so many keys are compared with one another at a time
SUPERSEDED = "only readers that opened the store earlier; no current read needs the file, and vacuum removes it"
UNKNOWN = "unknown: the log does not say which versions need this file"


def verify_data(
    storage: Storage, spec: StoreSpec | None, log: LogFindings, listed: list[ObjectInfo], report: Report
) -> None:
    """Check all files that a commit added and that exist or have to exist."""
    log_state = log.log_state
    there = {item.name for item in listed}
    needed = file_names(log_state) if log_state is not None else set()
    references = dict(log.references)
    if log_state is not None:
        references |= _of_log_state(log_state, references)
    extents = _extents(log_state)
    report.total += (
        0 if log_state is None else sum(_row_bytes(meta) for meta in log_state.segments)
    )  # rows are read a second time
    intact = set()
    for name in sorted(references):
        if name not in there and name not in needed:
            continue
        problems = _file_problems(storage, references[name].ref, report)
        for problem in problems:
            report.add(_affecting(problem, extents.get(name), UNKNOWN if log_state is None else SUPERSEDED))
        if not problems:
            intact.add(name)
    if spec is not None and log_state is not None:
        _verify_rows(SegmentFiles(storage, spec), log_state, intact, report)


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


# Bytes


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
    report.checked.add(ref.name)
    return problems


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


def _verify_rows(files: SegmentFiles, log_state: LogState, intact: set[str], report: Report) -> None:
    whole = []
    for segment in with_closures(log_state.segments, log_state.closures):
        names = {segment.meta.name, *(piece.file.name for piece in segment.closures)}
        if segment.meta.index is not None:
            names.add(segment.meta.index.name)
        if segment.meta.name in intact:
            problems = _segment_problems(files, log_state, segment, intact)
            for problem in problems:
                report.add(_affecting(problem, _extent(segment.meta, log_state), UNKNOWN))
            if names <= intact and not problems:
                whole.append(segment)
        files.forget()
        report.advance(segment.meta.name, _row_bytes(segment.meta))
    oldest = 0 if log_state.horizon is None else log_state.horizon.version
    for version in sorted({oldest, log_state.version}):
        _verify_keys(files, whole, version, report)


def _row_bytes(meta: SegmentMeta) -> int:
    return meta.file.bytes + (0 if meta.index is None else meta.index.bytes)


def _segment_problems(
    files: SegmentFiles, log_state: LogState, segment: SegmentWithClosures, intact: set[str]
) -> list[Problem]:
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
