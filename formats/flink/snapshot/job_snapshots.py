"""Savepoints and checkpoints below a folder, by the job that took them.

A folder is that of one snapshot (it has ``_metadata``), that of a job (``chk-<n>``), or one with the folders of several
jobs and savepoints. Source: ``org.apache.flink.runtime.state.filesystem.AbstractFsCheckpointStorageAccess``.
"""

from __future__ import annotations

import errno
import itertools
import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from statestore.formats.errors import InvalidInputError
from statestore.formats.flink.snapshot.snapshot_names import CHECKPOINT, JOB, METADATA, SAVEPOINT
from statestore.formats.places.folder import PARALLEL_REQUESTS, Folder
from statestore.formats.places.foreign_storages import STORAGE_ERRORS
from statestore.formats.places.listings import Entry, EntryKind, entry_at
from statestore.formats.places.locations import no_access

Kind = Literal["checkpoint", "savepoint"]
_OF_A_JOB = {"shared", "taskowned"}
_MOST_NAMED = 10
_LONGEST_COPY_US = 3600 * 1_000_000
LEAST_INTERVAL_US = 100_000
"""Snapshots that are closer together than this, on the average, were copied: no job takes them so often."""
LEAST_GAP_US = 20_000
"""One snapshot is not completed so soon after another: of 189 pairs that jobs took in a hurry the closest has 27 ms."""
_PARQUET = b"PAR1"  # a data set of Parquet files may have a _metadata file, too
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class SnapshotRef:
    """A complete snapshot. ``time_us`` is when ``_metadata`` was written, epoch microseconds, None: not known.

    ``kind`` is that which the folder's name says; a folder with another name counts as a savepoint.
    """

    folder: Folder
    name: str
    time_us: int | None
    kind: Kind


@dataclass(frozen=True)
class JobSnapshots:
    """The snapshots of a job, oldest first.

    ``job`` is its id, or the 6 digits in the names of savepoints whose job has no folder here, or the folder's name.
    ``incomplete`` are the names of checkpoints without ``_metadata``: they did not complete, or are being taken.
    ``broken`` are those whose ``_metadata`` is a link that leads to no file.
    """

    job: str
    snapshots: tuple[SnapshotRef, ...]
    incomplete: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Candidate:
    """A folder that is named as a snapshot; ``owner`` is the name of the job's folder, "" for a savepoint."""

    folder: Folder
    owner: str

    @property
    def name(self) -> str:
        return posixpath.basename(self.folder.path)


def recognises(folder: Folder) -> bool:
    """Return whether Flink wrote the folder, or the file ``_metadata`` at this place; costs at most two listings.

    Raises InvalidInputError NO_ACCESS.
    """
    names: list[str] = []
    if _is_file(folder):
        folder = _parent(folder)
        info = _metadata(folder)
    else:
        info, names = _inside(folder)
    if info is not None:
        return _is_snapshot(posixpath.basename(folder.path)) or not _is_parquet(folder)
    if any(_is_snapshot(name) for name in names) or _OF_A_JOB.issubset(names):
        return True
    jobs = [name for name in names if JOB.fullmatch(name)]
    return any(_is_of_a_job(folder.at(name).folders()) for name in (jobs if folder.is_local else jobs[:1]))


def find_jobs(folder: Folder) -> tuple[JobSnapshots, ...]:
    """All snapshots in a folder, by job, or the one whose folder or file ``_metadata`` is given.

    A savepoint belongs to the job whose id begins with the 6 digits in its name, if that is one job. Two snapshots of a
    job may have the same checkpoint id, after a restore into the same folder. An object store gets a request for each
    job and one for each snapshot, many at the same time.

    Raises InvalidInputError NO_ACCESS.
    """
    names: list[str] = []
    if _is_file(folder):
        folder = _parent(folder)
        info = _metadata(folder)
    else:
        info, names = _inside(folder)
    if info is not None:
        one = _Candidate(folder, _job_of_one(folder))
        return (JobSnapshots(one.owner, (_ref(one, info),)),)
    jobs = [folder.at(name) for name in names if JOB.fullmatch(name)]
    found = _candidates(folder, names)
    for job, inside in zip(jobs, _at_once(Folder.folders, jobs), strict=True):
        found += _candidates(job, inside)
    return _grouped(found, _at_once(lambda each: _metadata(each.folder), found))


def incomplete(folder: Folder) -> str:
    """Return what a folder is that is named as a snapshot and lacks ``_metadata``; "" for any other.

    The complete snapshots beside it are named, the newest first, at most `_MOST_NAMED`. Raises InvalidInputError
    NO_ACCESS for the folder itself.
    """
    name = posixpath.basename(folder.path)
    if not _is_snapshot(name) or not folder.entries() or _metadata(folder) is not None:
        return ""
    kind = "checkpoint" if CHECKPOINT.fullmatch(name) else "savepoint"
    said = f"is a {kind} of Flink that is not complete: it has no {METADATA}, which Flink writes last"
    if _is_link(folder):
        said = f"is a {kind} of Flink whose {METADATA} is a link that leads to no file"
    return f"{said}; it was aborted, or is still being taken; {_complete_beside(folder)}"


def _complete_beside(folder: Folder) -> str:
    parent = _parent(folder)
    try:
        beside = [each for job in find_jobs(parent) for each in job.snapshots]
    except InvalidInputError:
        return f"{parent.path} cannot be listed, so that complete ones are not known"
    names = [each.name for each in sorted(beside, key=_age, reverse=True)[:_MOST_NAMED]]
    return f"complete beside it: {', '.join(names)}" if names else "no snapshot beside it is complete"


def is_there(ref: SnapshotRef) -> bool:
    """Return whether a snapshot still has its ``_metadata``. Raises InvalidInputError NO_ACCESS."""
    return _metadata(ref.folder) is not None


def newer_checkpoints(ref: SnapshotRef, number: int) -> list[int]:
    """The ids above ``number`` of complete checkpoints beside a snapshot now. Raises InvalidInputError NO_ACCESS."""
    job = _parent(ref.folder)
    found = [(int(match[1]), name) for name in job.folders() if (match := CHECKPOINT.fullmatch(name))]
    return sorted(each for each, name in found if each > number and _metadata(job.at(name)) is not None)


def _inside(folder: Folder) -> tuple[Entry | None, list[str]]:
    """The facts of a folder's ``_metadata``, None where it has none, and the names of its folders, by one listing."""
    entries = folder.entries()
    files = [info for info in entries if info.base_name == METADATA and info.kind is EntryKind.FILE]
    names = [info.base_name for info in entries if info.kind is EntryKind.FOLDER]
    return files[0] if files else None, sorted(names)


def _candidates(folder: Folder, names: Iterable[str]) -> list[_Candidate]:
    """The folders in a folder that are named as snapshots."""
    owner = posixpath.basename(folder.path)
    return [
        _Candidate(folder.at(name), owner if CHECKPOINT.fullmatch(name) else "") for name in names if _is_snapshot(name)
    ]


def _is_snapshot(name: str) -> bool:
    """Return whether a folder's name is that of a snapshot."""
    return bool(CHECKPOINT.fullmatch(name) or SAVEPOINT.fullmatch(name))


def _grouped(found: Sequence[_Candidate], infos: Sequence[Entry | None]) -> tuple[JobSnapshots, ...]:
    owners = {each.owner for each in found if each.owner}
    snapshots: dict[str, list[SnapshotRef]] = defaultdict(list)
    incomplete: dict[str, list[str]] = defaultdict(list)
    broken: dict[str, list[str]] = defaultdict(list)
    for each, info in zip(found, infos, strict=True):
        job = each.owner or _job_of_savepoint(each.name, owners)
        if info is None:
            (broken if _is_link(each.folder) else incomplete)[job].append(each.name)
        else:
            snapshots[job].append(_ref(each, info))
    return tuple(
        JobSnapshots(
            job, tuple(sorted(snapshots[job], key=_age)), tuple(sorted(incomplete[job])), tuple(sorted(broken[job]))
        )
        for job in sorted({*snapshots, *incomplete, *broken})
    )


def _job_of_savepoint(name: str, jobs: Iterable[str]) -> str:
    """The one job with the digits in a savepoint's name; else these digits."""
    match = SAVEPOINT.fullmatch(name)
    digits = match[1] if match is not None else name
    meant = [job for job in jobs if JOB.fullmatch(job) and job.startswith(digits)]
    return meant[0] if len(meant) == 1 else digits


def _job_of_one(folder: Folder) -> str:
    """The job of a snapshot whose folder was given: named by the folder above it, or by the folder's own name."""
    name = posixpath.basename(folder.path)
    if CHECKPOINT.fullmatch(name):
        return posixpath.basename(_parent(folder).path) or name
    return _job_of_savepoint(name, ())


def _ref(candidate: _Candidate, info: Entry) -> SnapshotRef:
    time = None if info.mtime_ns is None else info.mtime_ns // 1000
    kind: Kind = "checkpoint" if CHECKPOINT.fullmatch(candidate.name) else "savepoint"
    return SnapshotRef(candidate.folder, candidate.name, time, kind)


def _age(ref: SnapshotRef) -> tuple[int, int, str]:
    match = CHECKPOINT.fullmatch(ref.name)
    return ref.time_us or 0, int(match[1]) if match else 0, ref.name


def times_of(refs: Sequence[tuple[int, SnapshotRef]]) -> dict[int, int]:
    """The times of snapshots by id, ascending; none where one of them is that of a copy."""
    return {} if _has_copies(refs) else {number: ref.time_us or 0 for number, ref in refs}


def _has_copies(refs: Sequence[tuple[int, SnapshotRef]]) -> bool:
    """Whether times are not in the order of the ids, or too close together, or a snapshot's files are newer."""
    known = [ref.time_us for _, ref in refs if ref.time_us is not None]
    gaps = [after - before for before, after in itertools.pairwise(known)]
    if len(known) < len(refs) or any(gap < LEAST_GAP_US for gap in gaps):
        return True
    return sum(gaps) < len(gaps) * LEAST_INTERVAL_US or any(is_copy(ref) for _, ref in refs)


def is_copy(ref: SnapshotRef) -> bool:
    """Return whether a folder of this machine was copied without its times: a file in it is newer than ``_metadata``.

    Flink writes ``_metadata`` when all other files are there; a copy has them in any order. Where a file is newer by
    more than an hour, somebody set the time of ``_metadata``.
    """
    if ref.time_us is None or not ref.folder.is_local:
        return False
    try:
        written = [info.mtime_ns for info in ref.folder.fresh().entries()]
    except InvalidInputError:  # a read of its files says so
        return False
    later = (time // 1000 - ref.time_us for time in written if time is not None)
    return any(0 < microseconds <= _LONGEST_COPY_US for microseconds in later)


def _is_file(folder: Folder) -> bool:
    """Return whether a place is that of a file ``_metadata``, by its name."""
    return posixpath.basename(folder.path) == METADATA


def _parent(folder: Folder) -> Folder:
    return replace(folder, path=posixpath.dirname(folder.path))


def _is_of_a_job(names: Iterable[str]) -> bool:
    found = set(names)
    return found >= _OF_A_JOB or any(CHECKPOINT.fullmatch(name) for name in found)


def _is_parquet(folder: Folder) -> bool:
    with folder.stream(METADATA) as stream:
        return stream.read(len(_PARQUET)) == _PARQUET


def _metadata(folder: Folder) -> Entry | None:
    """The facts of a folder's ``_metadata``, None where it has none."""
    path = posixpath.join(folder.path, METADATA)
    try:
        info = entry_at(folder.filesystem, path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except STORAGE_ERRORS as error:
        if (isinstance(error, OSError) and error.errno == errno.ELOOP) or _is_link(folder):
            return None
        raise no_access(path, error) from error
    return info if info.kind is EntryKind.FILE else None


def _is_link(folder: Folder) -> bool:
    """Return whether ``_metadata`` is a link, which is known of this machine's folders alone."""
    return folder.is_local and Path(folder.path, METADATA).is_symlink()


def _at_once(work: Callable[[T], R], pieces: Sequence[T]) -> list[R]:
    """The results of requests that are made at the same time, in the order of the pieces."""
    if len(pieces) < 2:
        return [work(piece) for piece in pieces]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(len(pieces), PARALLEL_REQUESTS)) as pool:
        return list(pool.map(work, pieces))
