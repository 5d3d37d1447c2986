"""Opening the snapshots of one job at a location."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.flink.flink_settings import FlinkSettings
from statestore.formats.flink.snapshot.job_snapshots import JobSnapshots, SnapshotRef, find_jobs
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.flink.snapshot.snapshot_names import CHECKPOINT
from statestore.formats.flink.snapshot_states import OpenedSnapshot, open_snapshot
from statestore.formats.flink.source import FlinkSource, Found
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import Location

_LISTINGS = 4
T = TypeVar("T")


def open_source(location: Location, settings: FlinkSettings) -> FlinkSource:
    """Open the job at a location, or the one of several that the settings name.

    Raises InvalidInputError STATE_SELECTION where there are several, or none of that name, NotFoundError
    FLINK_FILE_MISSING where no snapshot is complete, and the errors of `open_snapshot`.
    """
    jobs = _complete(location)
    chosen = [job for job in jobs if job.job.startswith(settings.job or "")]
    if not jobs:
        raise NotFoundError(
            ErrorCode.FLINK_FILE_MISSING,
            f"{location} is the checkpoint folder of a Flink job that has completed no snapshot: no folder chk-… or "
            "savepoint-… in it has a file _metadata, which Flink writes last; read it once a checkpoint is complete",
        )
    if len(chosen) != 1:
        found = ", ".join(job.job for job in jobs)
        asked = "" if settings.job is None else f", not one that begins with {settings.job!r}"
        raise InvalidInputError(
            ErrorCode.STATE_SELECTION,
            f"{location} has the jobs {found}{asked}; name one with option job, or give the path of a snapshot",
        )
    (job,) = chosen
    numbered: dict[int, SnapshotRef] = {}
    opened: dict[int, OpenedSnapshot] = {}
    for ref in job.snapshots:
        match = CHECKPOINT.fullmatch(ref.name)
        if len(job.snapshots) == 1:
            one = _while_there(ref, lambda each: open_snapshot(each, settings))
            number = one.metadata.checkpoint_id
            opened[number] = one
        else:
            number = (
                int(match[1]) if match else _while_there(ref, lambda each: SnapshotFiles(each.folder).checkpoint_id())
            )
        if number in numbered:
            raise InvalidInputError(
                ErrorCode.STATE_SELECTION,
                f"{location}: {numbered[number].name} and {ref.name} both have checkpoint id {number}; give the path "
                "of one of them",
            )
        numbered[number] = ref
    refs = tuple(sorted(numbered.items()))
    return FlinkSource(location, job.job, refs, job.incomplete, settings, job.broken, found=Found(opened))


def _complete(location: Location) -> list[JobSnapshots]:
    """The jobs with complete snapshots. A job that keeps one may have replaced it between the looks at its folders, so
    where there is none they are listed again until nothing changes."""
    before: tuple[JobSnapshots, ...] = ()
    for _ in range(_LISTINGS):
        jobs = find_jobs(folder_at(location))
        complete = [job for job in jobs if job.snapshots]
        if complete or jobs == before:
            return complete
        before = jobs
    return []


def _while_there(ref: SnapshotRef, look: Callable[[SnapshotRef], T]) -> T:
    """Look at a snapshot that was just listed.

    Raises NotFoundError VERSION_GONE where it was removed since, and the errors of ``look``.
    """
    try:
        return look(ref)
    except NotFoundError as error:
        raise NotFoundError(
            ErrorCode.VERSION_GONE, f"{ref.folder.path} was removed while it was opened; read again"
        ) from error
