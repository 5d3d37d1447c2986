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
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import ObjectInfo, Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.row_ends import SegmentWithClosures, ends_at, views_of
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep.maintenance import file_names
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
    snapshot = log.snapshot
    there = {item.name for item in listed}
    needed = file_names(snapshot) if snapshot is not None else set()
    references = dict(log.references)
    if snapshot is not None:
        references |= _of_snapshot(snapshot, references)
    extents = _extents(snapshot)
    report.total += (
        0 if snapshot is None else sum(_row_bytes(meta) for meta in snapshot.segments)
    )  # rows are read a second time
    intact = set()
    for name in sorted(references):
        if name not in there and name not in needed:
            continue
        problems = _file_problems(storage, references[name].ref, report)
        for problem in problems:
            report.add(_affecting(problem, extents.get(name), UNKNOWN if snapshot is None else SUPERSEDED))
        if not problems:
            intact.add(name)
    if spec is not None and snapshot is not None:
        _verify_rows(SegmentFiles(storage, spec), snapshot, intact, report)


def _of_snapshot(snapshot: LogState, known: dict[str, Reference]) -> dict[str, Reference]:
    """Return the files that only a checkpoint names, because the log entries that added them are lost."""
    found = {}
    for meta in snapshot.segments:
        found[meta.name] = Reference(meta.file, meta.max_added)
        if meta.index is not None:
            found[meta.index.name] = Reference(meta.index, meta.max_added)
        for piece in snapshot.closures.get(meta.name, ()):
            found[piece.file.name] = Reference(piece.file, piece.version)
    return {name: reference for name, reference in found.items() if name not in known}


# Bytes


def _file_problems(storage: Storage, ref: FileRef, report: Report) -> list[Problem]:
    """Return the problems of a file's bytes: the file is missing, its length is wrong, or regions are damaged."""
    try:
        data = storage.map(ref.name)
    except NotFoundError as error:
        return [problem_of(error, ref.name, "")]
    found = []
    if data.size != ref.bytes:
        message = f"{ref.name} has {data.size} bytes, the commit says {ref.bytes}; restore the file from a copy"
        found = [
            Problem(ErrorCode.SEGMENT_TRUNCATED, ref.name, message, "", expected=str(ref.bytes), found=str(data.size))
        ]
    view = memoryview(data)
    for region, start in enumerate(range(0, min(data.size, ref.bytes), REGION_BYTES)):
        stop = min(start + REGION_BYTES, ref.bytes)
        if stop > data.size:
            break
        checksum = xxhash.xxh3_64_hexdigest(view[start:stop])
        expected = ref.checksums[region * CHECKSUM_DIGITS : (region + 1) * CHECKSUM_DIGITS]
        report.compared += stop - start
        report.advance(ref.name, stop - start)
        if checksum != expected:
            message = (
                f"{ref.name}: region {region} (bytes {start} to {stop}) has checksum {checksum}, "
                f"the commit says {expected}; restore the file from a copy"
            )
            found.append(Problem(ErrorCode.SEGMENT_CORRUPT, ref.name, message, "", region, expected, checksum))
    report.checked.add(ref.name)
    return found


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


def _extents(snapshot: LogState | None) -> dict[str, _Extent]:
    """Return the extent of each file that the newest version needs."""
    found: dict[str, _Extent] = {}
    if snapshot is None:
        return found
    for meta in snapshot.segments:
        whole = found[meta.name] = _extent(meta, snapshot)
        if meta.index is not None:
            found[meta.index.name] = whole
        for piece in snapshot.closures.get(meta.name, ()):
            name = piece.file.name
            found[name] = replace(whole, first=piece.version).joined(found.get(name))
    return found


def _extent(meta: SegmentMeta, snapshot: LogState) -> _Extent:
    last = meta.max_dropped - 1 if meta.role == "belief" else snapshot.version
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


def _verify_rows(files: SegmentFiles, snapshot: LogState, intact: set[str], report: Report) -> None:
    whole = []
    for view in views_of(snapshot.segments, snapshot.closures):
        names = {view.meta.name, *(piece.file.name for piece in view.closures)}
        if view.meta.index is not None:
            names.add(view.meta.index.name)
        if view.meta.name in intact:
            problems = _segment_problems(files, snapshot, view, intact)
            for problem in problems:
                report.add(_affecting(problem, _extent(view.meta, snapshot), UNKNOWN))
            if names <= intact and not problems:
                whole.append(view)
        files.forget()
        report.advance(view.meta.name, _row_bytes(view.meta))
    oldest = 0 if snapshot.horizon is None else snapshot.horizon.version
    for version in sorted({oldest, snapshot.version}):
        _verify_keys(files, whole, version, report)


def _row_bytes(meta: SegmentMeta) -> int:
    return meta.file.bytes + (0 if meta.index is None else meta.index.bytes)


def _segment_problems(
    files: SegmentFiles, snapshot: LogState, view: SegmentWithClosures, intact: set[str]
) -> list[Problem]:
    meta = view.meta
    index_intact = meta.index is None or meta.index.name in intact
    closures_intact = all(piece.file.name in intact for piece in view.closures)
    steps: list[tuple[str, Callable[[], list[str] | None]]] = [
        (meta.name, lambda: files.segment(meta).verify_all()),
        (meta.name, lambda: _key_violations(files, meta)),
    ]
    if index_intact:
        index = meta.name if meta.index is None else meta.index.name
        steps.append((index, lambda: files.index(meta).verify_all()))
        steps.append((meta.name, lambda: segment_violations(files, snapshot, view)))
    if closures_intact and view.closures:
        steps.append((view.closures[0].file.name, lambda: closure_violations(files, view)))
    found: list[Problem] = []
    for name, step in steps:
        try:
            found += [Problem(ErrorCode.INVARIANT, name, text, "") for text in step() or ()]
        except StateStoreError as error:
            found.append(problem_of(error, name, ""))
            break
        except (pa.ArrowException, ValueError, IndexError, TypeError) as error:
            found.append(Problem(ErrorCode.SEGMENT_CORRUPT, name, f"{name}: {type(error).__name__}: {error}", ""))
            break
    return found


def _key_violations(files: SegmentFiles, meta: SegmentMeta) -> list[str]:
    """Check the statistics about keys by which reads skip a segment."""
    segment = files.segment(meta)
    hashes = hash_keys([segment.column_array(name) for name in files.spec.key_names])
    groups = key_groups_of(np.array([hashes.min(), hashes.max()], np.uint64), files.spec.key_groups)
    found = []
    if not meta.key_groups[0] <= groups[0] <= groups[1] <= meta.key_groups[1]:
        found.append(
            f"{meta.name}: key groups are {meta.key_groups[0]} to {meta.key_groups[1]} in the log, "
            f"{groups[0]} to {groups[1]} in the rows"
        )
    for number, name in enumerate(files.spec.key_names):
        for what, bounds in (("min", meta.key_min), ("max", meta.key_max)):
            bound = None if bounds is None else bounds[number]
            if bound is not None and pc.min_max(segment.column(name)).as_py()[what] != bound:
                found.append(f"{meta.name}: the {what} of key column {name} is not {bound!r}, the value in the log")
    return found


def _verify_keys(files: SegmentFiles, views: list[SegmentWithClosures], version: int, report: Report) -> None:
    """Check that no key has two rows at one moment in the belief of a version.

    Keys are compared range by range of their hashes.
    """
    total = sum(view.meta.rows for view in views)
    bits = max(-(-total // PART_ROWS) - 1, 0).bit_length()
    twice = sum(_overlaps(files, views, version, part, bits) for part in range(1 << bits))
    files.forget()
    if twice:
        message = f"version {version}: {twice} keys have two rows at one moment"
        affects = f"reads of these keys at version {version}"
        report.add(Problem(ErrorCode.INVARIANT, "log/", message, affects, versions=(version, version)))


def _overlaps(files: SegmentFiles, views: list[SegmentWithClosures], version: int, part: int, bits: int) -> int:
    keys: list[list[pa.Array]] = []
    hashes, starts, ends = [], [], []
    for view in views:
        if view.meta.min_added > version:
            continue
        index = files.index(view.meta)
        low, high = _range(index.hashes, part, bits)
        rows = index.rows[low:high].astype(np.int64)
        end = ends_at(files, view, version)[rows]
        start = files.segment(view.meta).int64("valid_from")[rows]
        valid = end > start
        keys.append(
            [files.segment(view.meta).column_array(n).take(pa.array(rows[valid])) for n in files.spec.key_names]
        )
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
