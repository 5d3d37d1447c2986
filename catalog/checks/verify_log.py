"""Verification of the log: all entries exist and follow one another, every checkpoint agrees with them, and so do the
files that stand for many entries, version chunks and entry packs.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from statestore.catalog.checks.verify_report import Problem, Report, problem_of
from statestore.catalog.log.entries import CommitEntry, canonical_text, decode_entry, entry_name, read_entry
from statestore.catalog.log.entry_packs import PACKED_VERSIONS, PACKS, first_of_pack, open_pack
from statestore.catalog.log.log_checkpoint import read_log_checkpoint
from statestore.catalog.log.log_names import ENTRY, LOG_CHECKPOINT
from statestore.catalog.log.log_state import EMPTY, LogState, advance, check_layout
from statestore.catalog.log.storage import ObjectInfo, Storage
from statestore.catalog.log.version_chunks import CHUNK_VERSIONS, CHUNKS, NUMBERS, TEXTS, ChunkRef, read_chunk
from statestore.catalog.log.versions import Versions
from statestore.catalog.upkeep.log_trimming import PACK
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.segments.segment_meta import FileRef

_CHUNK = re.compile(re.escape(CHUNKS) + r"([0-9]{20})-([0-9a-f]{16})\.arrow")
_ONLY_OLD = "the list of commits and the outcome of old commits; no read of the state"


@dataclass(frozen=True)
class Reference:
    """A data file, as described by the commit ``version`` that added it."""

    ref: FileRef
    version: int


@dataclass
class LogFindings:
    """Findings about a log.

    ``log_state``: the log state of the newest version, None if it cannot be determined. ``references``: all files that
    were ever added. ``begins``: the first version of a trimmed log, else 0.
    """

    log_state: LogState | None = None
    references: dict[str, Reference] = field(default_factory=dict)
    entries: int = 0
    log_checkpoints: int = 0
    begins: int = 0


def verify_log(storage: Storage, listed: list[ObjectInfo], report: Report, store: str = "") -> LogFindings:
    """Replay the log of the store with the identity ``store`` (empty: unknown) from its beginning, or from the log
    checkpoint with which a trimmed log begins.

    Checkpoints bridge gaps in the log.
    """
    sizes = {item.name: item.bytes for item in listed}
    marks = {int(match[1]): item.name for item in listed if (match := LOG_CHECKPOINT.fullmatch(item.name))}
    entries = {int(item.name[4:24]) for item in listed if ENTRY.fullmatch(item.name)}
    packs = {int(match[1]): item.name for item in listed if (match := PACK.fullmatch(item.name))}
    findings = LogFindings()
    if not entries and not marks:
        report.add(_missing(0, 0, "every read and write of the store: its log is empty"))
        return findings
    packed: dict[int, bytes] = {}
    log_state: LogState | None = replace(EMPTY, store=store)
    lowest = min((*entries, *packs), default=0)
    start = expected = findings.begins = _first_kept(storage, marks, lowest)
    if start:
        log_state = None
    for version in _versions(entries, packs, marks, start):
        absent = version - 1 if version in entries or first_of_pack(version) in packs else version
        if expected <= absent:
            report.add(_missing(expected, absent, ""))
            log_state = None
        expected = version + 1
        if version in packs:
            packed = _verified_pack(storage, version, sizes[packs[version]], report)
        if version in entries or version in packed:
            data = None if version in entries else packed.pop(version)
            entry = _entry(storage, version, data, sizes, report, findings)
            log_state = None if entry is None or log_state is None else _advanced(log_state, entry, report)
        elif first_of_pack(version) in packs:  # the pack is damaged, which was reported
            log_state = None
        if version in marks:
            log_state = _verify_log_checkpoint(storage, marks[version], sizes, log_state, report, findings)
    findings.log_state = _checked_layout(log_state, report)
    _verify_chunks(storage, listed, findings.log_state, report)
    _say_what_is_affected(findings, report)
    return findings


def _versions(entries: set[int], packs: dict[int, str], marks: dict[int, str], start: int) -> list[int]:
    """Return the versions from ``start`` on of which the log has anything."""
    runs = [np.arange(first, first + PACKED_VERSIONS) for first in packs]
    found = np.unique(np.concatenate([np.array([*entries, *marks], np.int64), *runs]))
    versions: list[int] = found[found >= start].tolist()
    return versions


def _entry(
    storage: Storage, version: int, packed: bytes | None, sizes: dict[str, int], report: Report, findings: LogFindings
) -> CommitEntry | None:
    name = entry_name(version)
    try:
        entry = read_entry(storage, version) if packed is None else decode_entry(name, packed)
    except StateStoreError as error:
        if packed is None:
            report.read(name, sizes[name])
        report.add(replace(problem_of(error, name, ""), versions=(version, version)))
        return None
    if packed is None:
        report.read(name, sizes[name])
    findings.entries += 1
    new = {reference.ref.name: reference for reference in _references(entry)}
    again = sorted(new.keys() & findings.references.keys())
    if again:
        report.add(_wrong(name, f"adds {again[0]}, which an earlier version added", version))
    total = sum(reference.ref.bytes for reference in new.values())
    if total != entry.bytes:
        what = f"records {entry.bytes} added bytes, its files have {total}"
        report.add(_wrong(name, what, version))
    findings.references |= new
    return entry


def _references(entry: CommitEntry) -> Iterator[Reference]:
    for meta in entry.added:
        yield Reference(meta.file, entry.version)
        if meta.index is not None:
            yield Reference(meta.index, entry.version)
    for piece in entry.closures:
        yield Reference(piece.file, entry.version)


def _advanced(log_state: LogState, entry: CommitEntry, report: Report) -> LogState | None:
    try:
        _check_order(log_state, entry, report)
        return advance(log_state, entry)
    except StateStoreError as error:
        report.add(problem_of(error, entry_name(entry.version), f"version {entry.version} and all later ones"))
        return None


def _check_order(log_state: LogState, entry: CommitEntry, report: Report) -> None:
    if log_state.version >= 0:
        versions, repeated = log_state.versions, False
        if entry.timestamp < versions.timestamp_at(log_state.version):
            report.add(
                _wrong(entry_name(entry.version), "was committed before the version that precedes it", entry.version)
            )
        if entry.stream_time is not None and entry.stream_time < log_state.stream_time_us:
            report.add(_wrong(entry_name(entry.version), "decreases the stream time", entry.version))
        with contextlib.suppress(CorruptError):  # of a chunk, which is reported by itself
            repeated = entry.transaction is not None and versions.find_transaction(*entry.transaction) is not None
        if entry.source is not None and log_state.captured is not None:
            newest = log_state.captured.newest
            if entry.source.version <= newest.version or entry.source.time < newest.time:
                what = f"captures version {entry.source.version} of the source after version {newest.version}"
                report.add(_wrong(entry_name(entry.version), what, entry.version))
        if repeated:
            what = f"commits transaction {entry.transaction}, which an earlier version committed"
            report.add(_wrong(entry_name(entry.version), what, entry.version))


def _verify_log_checkpoint(
    storage: Storage, name: str, sizes: dict[str, int], replayed: LogState | None, report: Report, findings: LogFindings
) -> LogState | None:
    """Return the log state to continue from: the replayed one, or the checkpoint's where the replayed one is lost."""
    try:
        folded = read_log_checkpoint(name, storage.read(name), storage)
    except NotFoundError:  # a writer has replaced it by a newer one in the meantime
        return replayed
    except StateStoreError as error:
        report.read(name, sizes[name])
        report.add(
            problem_of(error, name, "only the time to open the store: readers skip the checkpoint and read the log")
        )
        return replayed
    report.read(name, sizes[name])
    findings.log_checkpoints += 1
    _verify_named_chunks(name, folded, sizes, report)
    if replayed is None:
        return folded
    try:
        different = _difference(folded, replayed)
    except CorruptError:  # of a chunk, which is reported by itself
        return replayed
    if different:
        affects = f"every read and write of the store that starts from version {folded.version}"
        message = f"{name}: {different} differ from the sum of the log entries; remove it"
        report.add(Problem(ErrorCode.CHECKPOINT_WRONG, name, message, affects, versions=(0, folded.version)))
    return replayed


def _difference(left: LogState, right: LogState) -> str:
    parts = ("segments", "horizon", "captured")
    different = [name for name in parts if getattr(left, name) != getattr(right, name)]
    different += [
        name for name in ("closures", "changelogs") if dict(getattr(left, name)) != dict(getattr(right, name))
    ]
    if not _same_versions(left.versions, right.versions):
        different.append("commits")
    return ", ".join(different)


def _same_versions(left: Versions, right: Versions) -> bool:
    return all(np.array_equal(getattr(left, n), getattr(right, n)) for n in NUMBERS) and all(
        getattr(left, n) == getattr(right, n) for n in TEXTS
    )


def _checked_layout(log_state: LogState | None, report: Report) -> LogState | None:
    if log_state is not None:
        try:
            check_layout(log_state)
        except StateStoreError as error:
            report.add(problem_of(error, entry_name(log_state.version), "every read and write of the store"))
            return None
    return log_state


def _say_what_is_affected(findings: LogFindings, report: Report) -> None:
    """State what missing or damaged entries affect: everything, or nothing where a later checkpoint has their
    content."""
    affects = "every read and write of the store"
    if findings.log_state is not None:
        affects = "no read as long as the next checkpoint exists; its record of these versions cannot be verified"
    report.problems[:] = [p if p.affects else replace(p, affects=affects) for p in report.problems]


def _missing(first: int, last: int, affects: str) -> Problem:
    name = entry_name(first)
    others = "" if first == last else f" and all others to version {last}"
    message = f"{name}{others} is missing; restore the log from a copy"
    return Problem(ErrorCode.LOG_CORRUPT, name, message, affects, versions=(first, last))


def _wrong(name: str, what: str, version: int) -> Problem:
    return Problem(
        ErrorCode.LOG_WRONG, name, f"{name} {what}", f"what version {version} recorded", versions=(version, version)
    )


def _first_kept(storage: Storage, marks: dict[int, str], lowest: int) -> int:
    """Return the version with which a trimmed log begins; 0 for a log that was not trimmed.

    ``marks`` are the log checkpoints, ``lowest`` the first version of which there is an entry. A log begins later than
    at version 0 only if the newest readable checkpoint has a horizon that allows it.
    """
    if not lowest:
        return 0
    for version in sorted(marks, reverse=True):
        try:
            folded = read_log_checkpoint(marks[version], storage.read(marks[version]), storage)
        except StateStoreError:
            continue
        horizon = 0 if folded.horizon is None else folded.horizon.version
        return min((mark for mark in marks if lowest <= mark <= horizon), default=0)
    return 0


def _verified_pack(storage: Storage, first: int, size: int, report: Report) -> dict[int, bytes]:
    """Return the packed entries of the versions from ``first`` on; none if the pack is damaged, which is reported.

    Entries that are still there beside the pack must be equal to its own.
    """
    name = f"{PACKS}{first:020d}.arrow"
    versions = (first, first + PACKED_VERSIONS - 1)
    report.read(name, size)
    try:
        packed = dict(open_pack(storage, first).entries())
        for version, text in packed.items():
            beside = entry_name(version)
            if storage.exists(beside) and canonical_text(beside, storage.read(beside)) != text:
                report.add(
                    Problem(ErrorCode.LOG_WRONG, name, f"{name} differs from {beside}", _ONLY_OLD, versions=versions)
                )
    except StateStoreError as error:
        report.add(_problem(error, name, versions))
        return {}
    return packed


def _verify_chunks(storage: Storage, listed: list[ObjectInfo], log_state: LogState | None, report: Report) -> None:
    """Read every chunk, and compare it with the list of commits that the log entries give."""
    for item in listed:
        match = _CHUNK.fullmatch(item.name)
        if match is None:
            continue
        first = int(match[1])
        versions = (first, first + CHUNK_VERSIONS - 1)
        report.read(item.name, item.bytes)
        try:
            chunk = read_chunk(storage, ChunkRef(first, item.bytes, match[2]))
        except StateStoreError as error:
            report.add(_problem(error, item.name, versions))
            continue
        if log_state is None or len(log_state.versions) < first + CHUNK_VERSIONS or len(log_state.versions.chunks):
            continue
        if not chunk.equals(log_state.versions.between(first, first + CHUNK_VERSIONS)):
            what = f"{item.name} differs from the log entries of its versions; remove it"
            report.add(Problem(ErrorCode.CHECKPOINT_WRONG, item.name, what, _ONLY_OLD, versions=versions))


def _verify_named_chunks(name: str, folded: LogState, sizes: dict[str, int], report: Report) -> None:
    """Report chunks that the log checkpoint ``name`` names and that are not there."""
    for ref in folded.versions.chunks.refs:
        if ref.name not in sizes and not any(problem.file == ref.name for problem in report.problems):
            versions = (ref.first, ref.first + CHUNK_VERSIONS - 1)
            what = f"{ref.name} is missing, but {name} names it; restore it from a copy"
            report.add(Problem(ErrorCode.LOG_CORRUPT, ref.name, what, _ONLY_OLD, versions=versions))


def _problem(error: StateStoreError, name: str, versions: tuple[int, int]) -> Problem:
    found = problem_of(error, name, _ONLY_OLD)
    return Problem(found.code, found.file, found.message, found.affects, versions=versions)
