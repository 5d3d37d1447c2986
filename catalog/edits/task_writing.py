"""The files of a target written and copied in tasks, such as those of a cluster.

A task may run twice, or die and run again elsewhere. So each attempt writes in a folder of its own, beside that of the
target, and names it in its answer. The files of the attempt whose answer counts are renamed to their places here, in
one process; what other attempts have written is removed. Only this process makes the folder of attempts, so one that
still runs when it is gone leaves nothing behind.
"""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.catalog.edits.copied_files import check_size, copied_file, copied_files
from statestore.catalog.edits.receipt import Copied, CopiedFiles, WrittenFile
from statestore.catalog.edits.target_folder import TargetFolder
from statestore.catalog.edits.task_shares import most_tasks, striped
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.formats.edits import CopiedFile, EditPlan, MovedRows
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.durable_files import sync_tree
from statestore.formats.places.local_directory import remove_tree
from statestore.formats.places.reading_threads import limit_reading_threads

COPIED_FILES, COPIED_BYTES = 64, 1 << 26
"""Files and bytes that are worth a task of their own."""


@dataclass(frozen=True)
class _Share:
    """The parts and copies that one task writes."""

    parts: tuple[Any, ...] = ()
    files: tuple[CopiedFile, ...] = ()


@dataclass(frozen=True)
class _Attempts:
    """The folder in which tasks have one for each attempt, for the target at ``path``."""

    path: str
    folder: str


@dataclass(frozen=True)
class _Writing:
    """The work of all tasks that write parts and copy files."""

    plan: EditPlan
    attempts: _Attempts
    shares: tuple[_Share, ...]


@dataclass(frozen=True)
class _Moving:
    """The work of all tasks between which rows move."""

    moved: MovedRows
    attempts: _Attempts
    sources: tuple[Any, ...]
    targets: tuple[Any, ...]


def write_in_tasks(
    plan: EditPlan, files: Sequence[CopiedFile], target: TargetFolder, runs: TaskRuns, sizes: dict[str, int]
) -> CopiedFiles:
    """Write the parts of a plan and copy files into the target; add the sizes of the written files by their paths.

    Rows move between tasks (`EditPlan.moved`) where the plan has fewer parts than there may be tasks.

    Raises UnsupportedError UNSUPPORTED_PATH where a task does not see the folder of the target, and what writing and
    copying in this process raise.
    """
    parts = plan.parts()
    moved = plan.moved() if len(parts) < most_tasks(runs) else None
    if moved is not None:
        parts = moved.left()
    shares = (*(_Share(parts=each) for each in striped(parts, runs)), *_of_files(files, most_tasks(runs)))
    if not shares and moved is None:
        return CopiedFiles()
    attempts = Path(target.root).with_name("attempts")
    with disk_errors("make a folder", attempts):
        attempts.mkdir()
    place = _Attempts(target.path, str(attempts))
    copies: list[Copied] = []
    try:
        work = partial(_attempt, _Writing(plan, place, shares))
        for share, answer in zip(shares, runs.run(work, len(shares)) if shares else (), strict=True):
            found = _taken(answer, target, attempts, sizes)
            copies += [Copied(*each) for each in found["copied"]]
            for part, noted in zip(share.parts, found["noted"], strict=True):
                plan.note(part, noted)
        if moved is not None:
            moving = _Moving(moved, place, tuple(moved.sources()), tuple(moved.targets()))
            given = partial(_read, moving), len(moving.sources), partial(_write, moving), len(moving.targets)
            for answer in runs.move(*given):
                _taken(answer, target, attempts, sizes)
    finally:
        remove_tree(attempts)
    return copied_files(copies)


def _taken(answer: str, target: TargetFolder, attempts: Path, sizes: dict[str, int]) -> Mapping[str, Any]:
    """Take the files of an attempt that counts into the target; return what it has answered."""
    found: Mapping[str, Any] = json.loads(answer)
    written = [WrittenFile(*each) for each in found["written"]]
    for path in [*(Copied(*each).path for each in found["copied"]), *(each.path for each in written)]:
        target.take(path, attempts / found["attempt"] / path)
    target.written.update((each.path, each) for each in written)
    sizes.update(found["sizes"])
    return found


def _of_files(files: Sequence[CopiedFile], most: int) -> list[_Share]:
    """Return shares of about the same size, of which a few small files make one."""
    largest = sorted(files, key=lambda file: -(file.bytes or 0))
    total = sum(file.bytes or 0 for file in files)
    count = min(len(files), most, max(-(-len(files) // COPIED_FILES), -(-total // COPIED_BYTES)))
    return [_Share(files=tuple(largest[number::count])) for number in range(count)]


# In a task


def _attempt(writing: _Writing, number: int) -> str:
    """Write a share; return the name of the attempt's folder, the sizes, and the files with their digests."""
    limit_reading_threads(1)  # a task has one core; others run beside it
    share = writing.shares[number]
    folder = _new_folder(writing.attempts, str(number))
    sizes: dict[str, int] = {}
    noted = []
    for part in share.parts:
        sizes.update(writing.plan.write(part, folder))
        noted.append(writing.plan.noted(part))
    copied = [copied_file(folder, file) for file in share.files]
    for file, found_file in zip(share.files, copied, strict=True):
        check_size(file, found_file)
    return _answer(folder, sizes, noted, copied)


def _read(moving: _Moving, number: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a source, each with its destination."""
    limit_reading_threads(1)
    yield from moving.moved.read(moving.sources[number])


def _write(moving: _Moving, number: int, rows: Iterator[pa.RecordBatch]) -> str:
    """Write the files of a destination; answer as `_attempt` does."""
    limit_reading_threads(1)
    folder = _new_folder(moving.attempts, f"moved-{number}")
    return _answer(folder, moving.moved.write(moving.targets[number], rows, folder))


def _answer(
    folder: TargetFolder, sizes: Mapping[str, int], noted: Sequence[str] = (), copied: Sequence[Copied] = ()
) -> str:
    """Make the folder of an attempt durable, and return what the committing process has to know of it."""
    with disk_errors("make durable", folder.root):  # by the machine that wrote it
        sync_tree(folder.root)
    found: Mapping[str, Any] = {
        "attempt": Path(folder.root).name,
        "sizes": dict(sizes),
        "noted": list(noted),
        "written": [[each.path, each.bytes, each.sha256] for each in folder.written.values()],
        "copied": [[each.path, each.bytes, each.sha256, each.linked] for each in copied],
    }
    return json.dumps(found)


def _new_folder(attempts: _Attempts, name: str) -> TargetFolder:
    """Make the folder of an attempt."""
    place = Path(attempts.folder, f"{name}-{uuid.uuid4().hex}")
    with disk_errors("make a folder", place):
        try:
            place.mkdir(mode=0o777)
        except (FileNotFoundError, PermissionError) as error:
            raise UnsupportedError(
                ErrorCode.UNSUPPORTED_PATH,
                f"{attempts.path} is made in {attempts.folder}, and a task on {socket.gethostname()} cannot write "
                f"there ({error.strerror}); name a target in a file system that the driver and all executors share, "
                "or leave out spark",
            ) from error
    return TargetFolder(attempts.path, str(place))
