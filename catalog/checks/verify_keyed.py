"""Verification of a keyed store: its log, every byte of every kept snapshot, and the key group of every row.

Files of discarded snapshots are gone and cannot be checked. Only the log shows that they were discarded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from statestore.catalog.checks.verify_report import Problem, Report, problem_of
from statestore.catalog.keyed.rows.state_rows import Grouped, decoder, table_schema
from statestore.catalog.keyed.rows.state_spec import widest
from statestore.catalog.keyed.snapshots.restore_snapshot import link_database, table_rows
from statestore.catalog.keyed.snapshots.snapshot_log import (
    SnapshotEntry,
    SnapshotLog,
    check_complete,
    folded,
    log_checkpoints,
    read_log,
    read_log_checkpoint,
    read_snapshot_entry,
)
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotPart
from statestore.catalog.keyed.snapshots.stored_files import opened
from statestore.catalog.log.entries import entry_name, read_entry
from statestore.catalog.log.log_names import ENTRY
from statestore.catalog.log.storage import ObjectInfo, Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.places.local_directory import temporary_directory
from statestore.formats.rocksdb.scan import scan_rocksdb
from statestore.formats.segments.ipc_file import open_file, verify_everything
from statestore.formats.segments.segment_meta import FileRef
from statestore.formats.values.key_groups import key_groups

EVERYTHING = "every read and write of the store"


@dataclass
class KeyedFindings:
    """Findings about a keyed store; ``log`` is None if it cannot be determined."""

    log: SnapshotLog | None = None
    entries: int = 0
    log_checkpoints: int = 0
    files: int = 0
    rows: int = 0


def is_keyed(storage: Storage) -> bool:
    """Return whether the log has snapshots, for a store that has lost its description."""
    with contextlib.suppress(StateStoreError):
        read_snapshot_entry(storage, 1)
        return True
    return False


def verify_keyed(storage: Storage, spec: StoreSpec | None, listed: list[ObjectInfo], report: Report) -> KeyedFindings:
    """Check log and snapshots, and add problems to the report. Without ``spec`` the rows cannot be interpreted or
    checked.
    """
    sizes = {item.name: item.bytes for item in listed}
    findings = KeyedFindings()
    findings.log = _log(storage, sizes, findings, report)
    if findings.log is None:
        return findings
    _verify_log_checkpoints(storage, sizes, findings.log, findings, report)
    users = _users(findings.log)
    findings.files = len(users)
    damaged = {name for name, (file, needed_by) in users.items() if not _whole(storage, file, needed_by, report)}
    if spec is not None:
        for entry in findings.log.kept_snapshots().values():
            _verify_snapshot(storage, spec, entry, damaged, findings, report)
    _drop_overtaken(storage, report)
    return findings


def _drop_overtaken(storage: Storage, report: Report) -> None:
    """Drop problems of files that are missing because another process discarded their snapshots during the check."""
    missing = {problem.file for problem in report.problems if problem.code == ErrorCode.SNAPSHOT_FILE_MISSING}
    if missing:
        with contextlib.suppress(StateStoreError):
            missing -= read_log(storage).files().keys()
            report.problems[:] = [p for p in report.problems if p.file not in missing]


def _log(storage: Storage, sizes: dict[str, int], findings: KeyedFindings, report: Report) -> SnapshotLog | None:
    """Return the log that the entries describe; None where an entry is missing or damaged."""
    versions = sorted(int(name[4:24]) for name in sizes if ENTRY.fullmatch(name))
    absent = sorted(set(range(max(versions, default=0) + 1)) - set(versions))
    for version in absent:
        name = entry_name(version)
        message = f"{name} is missing; restore the file from a copy"
        report.add(Problem(ErrorCode.LOG_CORRUPT, name, message, EVERYTHING, versions=(version, version)))
    entries: list[SnapshotEntry] = []
    for version in versions:
        name = entry_name(version)
        try:
            report.read(name, sizes[name])
            if version == 0:
                read_entry(storage, version)
            else:
                entries.append(read_snapshot_entry(storage, version))
            findings.entries += 1
        except StateStoreError as error:
            report.add(replace(problem_of(error, name, EVERYTHING), versions=(version, version)))
    if absent or len(entries) != versions[-1]:
        return None
    for problem in _wrong_entries(entries):
        report.add(problem)
    return SnapshotLog(tuple(entries))


def _wrong_entries(entries: Iterable[SnapshotEntry]) -> Iterator[Problem]:
    kept: set[int] = set()
    transactions: set[tuple[str, int]] = set()
    time = 0
    for entry in entries:
        if entry.timestamp < time:
            yield _wrong(entry, "was committed before the version that precedes it")
        if entry.transaction in transactions:
            yield _wrong(entry, f"commits transaction {entry.transaction}, which an earlier version committed")
        if entry.operation == "snapshot":
            kept.add(entry.version)
        elif entry.discarded in kept:
            kept.discard(entry.discarded)
        else:
            yield _wrong(entry, f"discards version {entry.discarded}, which was not a kept snapshot at that time")
        time = max(time, entry.timestamp)
        transactions |= set() if entry.transaction is None else {entry.transaction}


def _wrong(entry: SnapshotEntry, what: str) -> Problem:
    name = entry_name(entry.version)
    versions = (entry.version, entry.version)
    return Problem(
        ErrorCode.LOG_WRONG, name, f"{name} {what}", f"what version {entry.version} recorded", versions=versions
    )


def _verify_log_checkpoints(
    storage: Storage, sizes: dict[str, int], log: SnapshotLog, findings: KeyedFindings, report: Report
) -> None:
    for name in log_checkpoints(storage):
        try:
            checkpoint = read_log_checkpoint(name, storage.read(name))
        except StateStoreError as error:
            report.add(
                problem_of(error, name, "only the time to open the store: readers skip the checkpoint and read the log")
            )
            continue
        finally:
            report.read(name, sizes.get(name, 0))
        findings.log_checkpoints += 1
        if checkpoint != folded(SnapshotLog(log.entries[: checkpoint.newest])):
            message = f"{name} differs from the sum of the log entries; remove it"
            report.add(Problem(ErrorCode.CHECKPOINT_WRONG, name, message, EVERYTHING, versions=(0, checkpoint.newest)))


def _users(log: SnapshotLog) -> dict[str, tuple[FileRef, str]]:
    """Return the needed files by name, each with the snapshots that need it."""
    users: dict[str, list[int]] = {}
    for version, entry in log.kept_snapshots().items():
        for part in entry.parts:
            for name in part.files():
                users.setdefault(name, []).append(version)
    needed_by = {name: f"snapshots {', '.join(map(str, versions))}" for name, versions in users.items()}
    return {name: (file, needed_by.get(name, "emitted records of a batch")) for name, file in log.files().items()}


def _whole(storage: Storage, file: FileRef, needed_by: str, report: Report) -> bool:
    """Compare all bytes; earlier checks of the file by this process are not relied on."""
    try:
        with opened(storage, file, anew=True) as verified:
            report.read(file.name, file.bytes)
            verified.verify_all()
            if file.metadata_ranges:
                verify_everything(verified, open_file(verified)[1])
        return True
    except StateStoreError as error:
        report.add(problem_of(error, file.name, needed_by))
        return False


def _verify_snapshot(
    storage: Storage, spec: StoreSpec, entry: SnapshotEntry, damaged: set[str], findings: KeyedFindings, report: Report
) -> None:
    affects, name = f"snapshot {entry.version}", entry_name(entry.version)
    try:
        check_complete(entry.parts, spec.key_groups)
        widest(state for part in entry.parts for state in part.states)
    except StateStoreError as error:
        report.add(problem_of(error, name, affects))
    for part in entry.parts:
        if damaged & part.files().keys():
            continue  # the damage of the file is reported already
        try:
            findings.rows += _verify_part(storage, spec, part)
        except StateStoreError as error:
            if (
                error.code != ErrorCode.SNAPSHOT_FILE_MISSING
            ):  # the file existed a moment ago: another process is discarding the snapshot
                report.add(problem_of(error, name, affects))


def _verify_part(storage: Storage, spec: StoreSpec, part: SnapshotPart) -> int:
    """Return the number of rows of a part. Raises CorruptError ROW_CORRUPT, ROCKSDB_FILE or WRONG_KEY_GROUP."""
    if part.kind == "full":
        return sum(_verify_table(storage, spec, part, state) for state in part.tables)
    with temporary_directory() as folder:
        directory = folder / "database"
        link_database(storage, part, directory)
        count = 0
        for state in part.states:
            for grouped in scan_rocksdb(directory, decoder(spec.key, state), family=state.name):
                _check_groups(spec, part, state.name, grouped)
                count += grouped.rows.num_rows
        return count


def _verify_table(storage: Storage, spec: StoreSpec, part: SnapshotPart, state: str) -> int:
    table = part.tables[state]
    count = 0
    schema = next(table_schema(spec.key, described) for described in part.states if described.name == state)
    for grouped in table_rows(storage, table, part.key_groups):
        if grouped.rows.schema != schema:
            raise CorruptError(
                ErrorCode.ROW_CORRUPT, f"{table.file.name}: columns {grouped.rows.schema}, expected {schema}"
            )
        _check_groups(spec, part, state, grouped)
        count += grouped.rows.num_rows
    if count != table.groups[-1]:
        raise CorruptError(
            ErrorCode.ROW_CORRUPT, f"{table.file.name} has {count} rows, the log says {table.groups[-1]}"
        )
    return count


def _check_groups(spec: StoreSpec, part: SnapshotPart, state: str, grouped: Grouped) -> None:
    groups = key_groups([grouped.rows.column(name) for name in spec.key.names], spec.key_groups)
    wrong = np.flatnonzero(groups != grouped.groups)
    if len(wrong):
        row = grouped.rows.slice(int(wrong[0]), 1).to_pylist()[0]
        raise CorruptError(
            ErrorCode.WRONG_KEY_GROUP,
            f"state {state!r}: {row} is stored in key group {grouped.groups[wrong[0]]}, expected {groups[wrong[0]]}",
        )
    outside = (grouped.groups < part.key_groups.start) | (grouped.groups >= part.key_groups.stop)
    if outside.any():
        raise CorruptError(
            ErrorCode.WRONG_KEY_GROUP,
            f"state {state!r} has rows of key group {grouped.groups[outside][0]} in a "
            "part that does not contain this group",
        )
