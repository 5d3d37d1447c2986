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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from statestore.catalog.edits.copied_files import check_size, copied_file, copied_files
from statestore.catalog.edits.receipt import Copied, CopiedFiles, WrittenFile
from statestore.catalog.edits.target_folder import TargetFolder
from statestore.catalog.edits.task_shares import most_tasks, striped
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.formats.edits import CopiedFile, EditPlan
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
class _Writing:
    """The work of all tasks, for the target at ``path``, in attempts below a folder."""

    plan: EditPlan
    path: str
    attempts: str
    shares: tuple[_Share, ...]


def write_in_tasks(
    plan: EditPlan, files: Sequence[CopiedFile], target: TargetFolder, runs: TaskRuns, sizes: dict[str, int]
) -> CopiedFiles:
    """Write the parts of a plan and copy files into the target; add the sizes of the written files by their paths.

    Raises UnsupportedError UNSUPPORTED_PATH where a task does not see the folder of the target, and what writing and
    copying in this process raise.
    """
    shares = (*(_Share(parts=each) for each in striped(plan.parts(), runs)), *_of_files(files, most_tasks(runs)))
    if not shares:
        return CopiedFiles()
    attempts = Path(target.root).with_name("attempts")
    with disk_errors("make a folder", attempts):
        attempts.mkdir()
    copies: list[Copied] = []
    try:
        work = partial(_attempt, _Writing(plan, target.path, str(attempts), shares))
        for share, answer in zip(shares, runs.run(work, len(shares)), strict=True):
            found = json.loads(answer)
            copied = [Copied(*each) for each in found["copied"]]
            written = [WrittenFile(*each) for each in found["written"]]
            for path in [*(each.path for each in copied), *(each.path for each in written)]:
                target.take(path, attempts / found["attempt"] / path)
            target.written.update((each.path, each) for each in written)
            sizes.update(found["sizes"])
            copies += copied
            for part, noted in zip(share.parts, found["noted"], strict=True):
                plan.note(part, noted)
    finally:
        remove_tree(attempts)
    return copied_files(copies)


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
    name = f"{number}-{uuid.uuid4().hex}"
    folder = TargetFolder(writing.path, str(_made(writing, name)))
    sizes: dict[str, int] = {}
    noted = []
    for part in share.parts:
        sizes.update(writing.plan.write(part, folder))
        noted.append(writing.plan.noted(part))
    copied = [copied_file(folder, file) for file in share.files]
    for file, found_file in zip(share.files, copied, strict=True):
        check_size(file, found_file)
    with disk_errors("make durable", folder.root):  # by the machine that wrote it
        sync_tree(folder.root)
    found: Mapping[str, Any] = {
        "attempt": name,
        "sizes": sizes,
        "noted": noted,
        "written": [[each.path, each.bytes, each.sha256] for each in folder.written.values()],
        "copied": [[each.path, each.bytes, each.sha256, each.linked] for each in copied],
    }
    return json.dumps(found)


def _made(writing: _Writing, name: str) -> Path:
    """Make the folder of an attempt."""
    place = Path(writing.attempts, name)
    with disk_errors("make a folder", place):
        try:
            place.mkdir(mode=0o777)
        except (FileNotFoundError, PermissionError) as error:
            raise UnsupportedError(
                ErrorCode.UNSUPPORTED_PATH,
                f"{writing.path} is made in {writing.attempts}, and a task on {socket.gethostname()} cannot write "
                f"there ({error.strerror}); name a target in a file system that the driver and all executors share, "
                "or leave out spark",
            ) from error
    return place
