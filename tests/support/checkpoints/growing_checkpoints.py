"""Checkpoints that grow elsewhere: the files of a whole one, put one by one in the order in which Spark writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.checkpoints.purged_checkpoints import DATA_FILE

_OF_BATCH = re.compile(r"(?:offsets|commits|sources/\d+)/(\d+)")
_BASES = ("snapshot", "zip")


@dataclass
class Growing:
    """A checkpoint made of the files of ``whole``: ``put`` (path, content) writes one, ``remove`` removes one.

    After each commit, old batches are removed as with ``spark.sql.streaming.minBatchesToRetain`` = ``retained``: the
    logs of batches, and the files of state which the ones that are left do not need. ``commits`` are the batches that
    were committed, ``readable`` those of which nothing was removed.
    """

    whole: Path
    put: Callable[[str, bytes], object]
    remove: Callable[[str], None]
    retained: int = 2
    commits: list[int] = field(default_factory=list)
    readable: list[int] = field(default_factory=list)
    _there: set[str] = field(default_factory=set)

    def writes(self) -> Iterator[str]:
        """Write file after file, and yield the path of each; what is removed after a commit is none of them."""
        paths = [path.relative_to(self.whole).as_posix() for path in self.whole.rglob("*") if path.is_file()]
        for path in sorted((each for each in paths if not each.rpartition("/")[2].startswith(".")), key=_order):
            self.put(path, (self.whole / path).read_bytes())
            self._there.add(path)
            folder, _, name = path.rpartition("/")
            if folder == "commits":
                self.commits.append(int(name))
                self.readable.append(int(name))
                self._purge(int(name))
            yield path

    def write(self, files: int) -> None:
        """Write so many files."""
        writes = self.writes()
        for _ in range(files):
            next(writes)

    def _purge(self, batch: int) -> None:
        oldest = batch + 1 - self.retained
        data: dict[str, list[tuple[int, str, str]]] = {}
        for path in sorted(self._there):
            folder, _, name = path.rpartition("/")
            found = DATA_FILE.fullmatch(name)
            if found is not None and folder.startswith("state/"):
                data.setdefault(folder, []).append((int(found[1]), found[3], path))
            elif (of_batch := _OF_BATCH.fullmatch(path)) is not None and int(of_batch[1]) < oldest:
                self._gone(path)
        for files in data.values():
            needed = max((version for version, kind, _ in files if kind in _BASES and version <= oldest + 1), default=0)
            for version, _, path in files:
                if version < needed:
                    self._gone(path)
        self.readable = [each for each in self.readable if each >= oldest]

    def _gone(self, path: str) -> None:
        self.remove(path)
        self._there.discard(path)


def _order(path: str) -> tuple[int, int, str]:
    """Order files by their batch and within it: offsets, state, the commit. Files without a number come first, and
    table files, of which only a zip says which version they are of."""
    folder, _, name = path.rpartition("/")
    of_batch, data = _OF_BATCH.fullmatch(path), DATA_FILE.fullmatch(name)
    if of_batch is not None:
        return int(of_batch[1]), 2 if folder == "commits" else 0, path
    if data is not None and folder.startswith("state/"):
        return int(data[1]) - 1, 1, path
    return -1, 0, path
