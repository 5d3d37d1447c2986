"""The possible contents of a disk after a power cut, from the calls made before.

There are three models of a file system's promises. ``strict``: only what was fsynced, data by its file's fsync and a
name by its folder's (POSIX to the letter). ``folders``: the same, but a new folder is sure at once. ``ordered``: names
reach the disk in their order, as with a journal, and any fsync makes all names before it sure; data by its own fsync.
Of everything else a disk may hold nothing, all, or any part: names each for itself (in the ordered model up to some
moment), and of data each page of 4 KiB in any state that it had since the last fsync.
"""

from __future__ import annotations

import posixpath
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faults.trace import Step

MODELS = ("strict", "folders", "ordered")
HELD = ("nothing", "names", "data", "all", "some")
PAGE = 4096

Disk = dict[str, bytes | None]
"""Contents by name below the root; None: a folder."""


@dataclass(frozen=True)
class Cut:
    """A power cut after ``upto`` steps. ``held``: the part of the unsynced data that the disk has; ``draw``: its
    seed."""

    upto: int
    model: str
    held: str
    draw: int = 0

    def __str__(self) -> str:
        return f"{self.upto}/{self.model}/{self.held}/{self.draw}"


def disk_after(steps: Sequence[Step], root: str, cut: Cut) -> Disk:
    """The disk that the cut leaves."""
    rng = random.Random(str(cut))
    done = steps[: cut.upto]
    synced: dict[int, int] = {}  # of a file, its last fsync
    folder_synced: dict[str, int] = {}
    any_sync = -1
    changes: dict[int, list[tuple[int, Step]]] = defaultdict(list)
    for number, step in enumerate(done):
        if step.do == "sync":
            synced[step.file] = folder_synced[step.name] = any_sync = number
        elif step.do in ("write", "cut"):
            changes[step.file].append((number, step))
    until = rng.randint(any_sync, cut.upto)

    def is_sure(number: int, step: Step) -> bool:
        if cut.model == "ordered":
            return number < any_sync
        if cut.model == "folders" and step.do == "add" and step.folder:
            return True
        return folder_synced.get(posixpath.dirname(step.name), -1) > number

    def is_kept(number: int) -> bool:
        if cut.held in ("all", "names"):
            return True
        return cut.held == "some" and (number <= until if cut.model == "ordered" else rng.random() < 0.5)

    names: dict[str, tuple[int, bool]] = {root: (0, True)}
    for number, step in enumerate(done):
        if step.do in ("add", "move", "remove") and (is_sure(number, step) or is_kept(number)):
            _apply(names, step)
    found: Disk = {}
    for name in sorted(names):
        file, folder = names[name]
        if name == root or posixpath.dirname(name) not in names:
            continue
        found[name[len(root) + 1 :]] = None if folder else _content(changes[file], synced.get(file, -1), cut.held, rng)
    return found


def _apply(names: dict[str, tuple[int, bool]], step: Step) -> None:
    if step.do == "add":
        if posixpath.dirname(step.name) in names:
            names[step.name] = (step.file, step.folder)
    elif step.do == "remove":
        names.pop(step.name, None)
    elif step.source in names:
        for old in [n for n in names if n == step.source or n.startswith(step.source + "/")]:
            names[step.name + old[len(step.source) :]] = names.pop(old)


def _content(changes: list[tuple[int, Step]], synced: int, held: str, rng: random.Random) -> bytes:
    sure = [step for number, step in changes if number < synced]
    rest = [step for number, step in changes if number > synced]
    if held in ("nothing", "names") or not rest:
        return bytes(_replayed(sure))
    everything = [*sure, *rest]
    if held in ("data", "all"):
        return bytes(_replayed(everything))
    moments = sorted({rng.randint(0, len(rest)) for _ in range(3)})
    states = [bytes(_replayed(everything[: len(sure) + moment])) for moment in moments]
    size = len(rng.choice(states))
    pages = []
    for at in range(0, size, PAGE):
        page = rng.choice(states)[at : at + PAGE]
        pages.append(page + bytes(min(PAGE, size - at) - len(page)) if len(page) < size - at else page[: size - at])
    return b"".join(pages)


def _replayed(steps: Sequence[Step]) -> bytearray:
    content = bytearray()
    for step in steps:
        if len(content) < step.offset:
            content.extend(bytes(step.offset - len(content)))
        if step.do == "cut":
            del content[step.offset :]
        else:
            content[step.offset : step.offset + len(step.data)] = step.data
    return content


def make_disk(disk: Disk, folder: Path) -> None:
    """The files of a disk, below ``folder``."""
    folder.mkdir(parents=True)
    for name, content in disk.items():
        path = folder / name
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
