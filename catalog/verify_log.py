"""Verifying the log: all entries are there and follow one another, and every checkpoint says what they say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from statestore.catalog.log import CommitEntry, entry_name, read_entry
from statestore.catalog.log_checkpoint import ENTRY, NAME, read_checkpoint
from statestore.catalog.snapshot import EMPTY, NUMBERS, TEXTS, Snapshot, Versions, advance, check_layout
from statestore.catalog.storage import ObjectInfo, Storage
from statestore.catalog.verify_report import Problem, Report, problem_of
from statestore.formats.errors import NotFoundError, StateStoreError
from statestore.formats.segment_meta import FileRef

Use = Literal["segment", "index", "closures"]


@dataclass(frozen=True)
class Reference:
    """A data file as the commit ``version``, which added it, describes it."""

    ref: FileRef
    use: Use
    version: int


@dataclass
class LogFindings:
    """``snapshot``: the newest version, None if nobody can tell it. ``references``: all files that were ever added."""

    snapshot: Snapshot | None = None
    references: dict[str, Reference] = field(default_factory=dict)
    entries: int = 0
    checkpoints: int = 0


def verify_log(storage: Storage, listed: list[ObjectInfo], report: Report) -> LogFindings:
    """Replay the log from its beginning, over gaps with the help of checkpoints."""
    sizes = {item.name: item.bytes for item in listed}
    marks = {int(found[1]): item.name for item in listed if (found := NAME.fullmatch(item.name))}
    known = [int(item.name[4:24]) for item in listed if ENTRY.fullmatch(item.name)]
    newest = max([*known, *marks], default=-1)
    findings = LogFindings()
    if newest < 0:
        report.add(_missing(entry_name(0), "every read and write of the store: its log is empty"))
    snapshot: Snapshot | None = EMPTY
    lost: list[int] = []
    for version in range(newest + 1):
        entry = _entry(storage, version, sizes, report, findings)
        if entry is None:
            snapshot, lost = None, [*lost, version]
        elif snapshot is not None:
            snapshot = _advanced(snapshot, entry, report)
        if version in marks:
            snapshot = _checkpoint(storage, marks[version], sizes, snapshot, report, findings)
    findings.snapshot = _checked_layout(snapshot, report) if newest >= 0 else None
    _say_what_is_affected(lost, findings, report)
    return findings


def _entry(
    storage: Storage, version: int, sizes: dict[str, int], report: Report, findings: LogFindings
) -> CommitEntry | None:
    name = entry_name(version)
    try:
        entry = read_entry(storage, version)
    except NotFoundError:
        report.add(_missing(name, ""))
        return None
    except StateStoreError as error:
        report.read(name, sizes.get(name, 0))
        report.add(problem_of(error, name, ""))
        return None
    report.read(name, sizes.get(name, 0))
    findings.entries += 1
    new = {reference.ref.name: reference for reference in _references(entry)}
    again = sorted(new.keys() & findings.references.keys())
    if again:
        report.add(_wrong(name, f"adds {again[0]}, which an earlier version added", version))
    total = sum(reference.ref.bytes for reference in new.values())
    if total != entry.bytes:
        found = f"says it added {entry.bytes} bytes, its files have {total}"
        report.add(_wrong(name, found, version))
    findings.references |= new
    return entry


def _references(entry: CommitEntry) -> Iterator[Reference]:
    for meta in entry.added:
        yield Reference(meta.file, "segment", entry.version)
        if meta.index is not None:
            yield Reference(meta.index, "index", entry.version)
    for piece in entry.closures:
        yield Reference(piece.file, "closures", entry.version)


def _advanced(snapshot: Snapshot, entry: CommitEntry, report: Report) -> Snapshot | None:
    if snapshot.version >= 0:
        versions = snapshot.versions
        if entry.timestamp < versions.timestamp[-1]:
            report.add(
                _wrong(entry_name(entry.version), "was committed before the version that it follows", entry.version)
            )
        if entry.stream_time is not None and entry.stream_time < versions.stream_time[-1]:
            report.add(_wrong(entry_name(entry.version), "takes the stream time back", entry.version))
        if entry.transaction is not None and versions.find_transaction(*entry.transaction) is not None:
            found = f"commits transaction {entry.transaction}, which an earlier version committed"
            report.add(_wrong(entry_name(entry.version), found, entry.version))
    try:
        return advance(snapshot, entry)
    except StateStoreError as error:
        report.add(problem_of(error, entry_name(entry.version), f"version {entry.version} and all later ones"))
        return None


def _checkpoint(
    storage: Storage, name: str, sizes: dict[str, int], replayed: Snapshot | None, report: Report, findings: LogFindings
) -> Snapshot | None:
    """The snapshot to go on from: what was replayed, or where that is lost, the checkpoint's."""
    try:
        found = read_checkpoint(name, storage.read(name))
    except NotFoundError:  # a writer has made a newer one meanwhile
        return replayed
    except StateStoreError as error:
        report.read(name, sizes[name])
        report.add(problem_of(error, name, "only how long opening takes: readers pass it over for the log"))
        return replayed
    report.read(name, sizes[name])
    findings.checkpoints += 1
    if replayed is None:
        return found
    different = _difference(found, replayed)
    if different:
        affects = f"every read and write of the store that starts from version {found.version}"
        message = f"{name}: {different} differ from what the log entries add up to; remove it"
        report.add(Problem("CHECKPOINT_WRONG", name, message, affects, versions=(0, found.version)))
    return replayed


def _difference(left: Snapshot, right: Snapshot) -> str:
    parts = ("segments", "horizon")
    found = [name for name in parts if getattr(left, name) != getattr(right, name)]
    found += [name for name in ("closures", "changelogs") if dict(getattr(left, name)) != dict(getattr(right, name))]
    if not _same_versions(left.versions, right.versions):
        found.append("commits")
    return ", ".join(found)


def _same_versions(left: Versions, right: Versions) -> bool:
    return all(np.array_equal(getattr(left, n), getattr(right, n)) for n in NUMBERS) and all(
        getattr(left, n) == getattr(right, n) for n in TEXTS
    )


def _checked_layout(snapshot: Snapshot | None, report: Report) -> Snapshot | None:
    if snapshot is not None:
        try:
            check_layout(snapshot)
        except StateStoreError as error:
            report.add(problem_of(error, entry_name(snapshot.version), "every read and write of the store"))
            return None
    return snapshot


def _say_what_is_affected(lost: list[int], findings: LogFindings, report: Report) -> None:
    if findings.snapshot is None:
        affects = "every read and write of the store"
    else:
        affects = f"nothing that is read: a checkpoint covers it as long as it is there; versions {lost} are not proven"
    for number, problem in enumerate(report.problems):
        if not problem.affects:
            version = int(problem.file[4:24])
            last = version if findings.snapshot is None else findings.snapshot.version
            report.problems[number] = replace(problem, affects=affects, versions=(version, last))


def _missing(name: str, affects: str) -> Problem:
    return Problem("LOG_CORRUPT", name, f"{name} is missing; restore it from a copy", affects)


def _wrong(name: str, found: str, version: int) -> Problem:
    return Problem(
        "LOG_WRONG", name, f"{name} {found}", f"what version {version} recorded", versions=(version, version)
    )
