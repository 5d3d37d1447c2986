"""Stamps of local files and folders, by which what was made of them is known to be still theirs.

A stamp is what the system knows of a file: its number, size and times. The time of change is the system's own: no
program can set it back, and each write, rename and removal in a folder moves it on. A file that changed a moment ago
may change again within the same tick of the clock, so its stamp says nothing yet (`is_settled`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from statestore.formats.places.fetched_parts import is_settled

Stamp = tuple[int, int, int, int, int]


def stamp_of(path: str) -> Stamp | None:
    """The stamp of what a path leads to; None where it leads to nothing, or cannot be followed."""
    try:
        found = os.stat(path)  # noqa: PTH116 (a Path would take longer than the look)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@dataclass(frozen=True)
class FileStamps:
    """The stamps of files and folders, by path; None: there was none."""

    found: dict[str, Stamp | None]

    def still_hold(self) -> bool:
        """Return whether each path leads to the same file in the same state."""
        return all(stamp_of(path) == stamp for path, stamp in self.found.items())


def settled_stamps(paths: Iterable[str], begun: float) -> FileStamps | None:
    """The stamps of paths that were read from the moment ``begun`` (epoch seconds) on; None if they may not be those of
    what was read.

    A file that changed meanwhile, or so shortly before that it may have changed unseen, has no settled stamp.
    """
    found = {path: stamp_of(path) for path in paths}
    newest = max((stamp[-1] for stamp in found.values() if stamp is not None), default=0)
    return FileStamps(found) if is_settled(newest / 1e9, begun) else None
