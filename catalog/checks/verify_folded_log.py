"""Verification of the files that stand for many log entries: version chunks and entry packs."""

from __future__ import annotations

import re

from statestore.catalog.checks.verify_report import Problem, Report, problem_of
from statestore.catalog.log.entries import canonical_text, entry_name
from statestore.catalog.log.entry_packs import PACKED_VERSIONS, PACKS, open_pack
from statestore.catalog.log.log_checkpoint import read_log_checkpoint
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import ObjectInfo, Storage
from statestore.catalog.log.version_chunks import CHUNK_VERSIONS, CHUNKS, ChunkRef, read_chunk
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError

PACK = re.compile(re.escape(PACKS) + r"([0-9]{20})\.arrow")
_CHUNK = re.compile(re.escape(CHUNKS) + r"([0-9]{20})-([0-9a-f]{16})\.arrow")
_ONLY_OLD = "the list of commits and the outcome of old commits; no read of the state"


def first_kept(storage: Storage, marks: dict[int, str], lowest: int) -> int:
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


def verified_pack(storage: Storage, first: int, size: int, report: Report) -> dict[int, bytes]:
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


def verify_chunks(storage: Storage, listed: list[ObjectInfo], log_state: LogState | None, report: Report) -> None:
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


def verify_named_chunks(name: str, folded: LogState, sizes: dict[str, int], report: Report) -> None:
    """Report chunks that the log checkpoint ``name`` names and that are not there."""
    for ref in folded.versions.chunks.refs:
        if ref.name not in sizes and not any(problem.file == ref.name for problem in report.problems):
            versions = (ref.first, ref.first + CHUNK_VERSIONS - 1)
            what = f"{ref.name} is missing, but {name} names it; restore it from a copy"
            report.add(Problem(ErrorCode.LOG_CORRUPT, ref.name, what, _ONLY_OLD, versions=versions))


def _problem(error: StateStoreError, name: str, versions: tuple[int, int]) -> Problem:
    found = problem_of(error, name, _ONLY_OLD)
    return Problem(found.code, found.file, found.message, found.affects, versions=versions)
