"""Random histories of a database whose versions share table files, and the rows of each version in plain Python.

A version is a directory with a MANIFEST and links to the files that it has, as a checkpoint of an engine becomes one.
Files are flushed, moved to another level, and compacted in whole or in part, as RocksDB does; their content is known
entry by entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from support.rocksdb.rocksdb_tables import (
    DELETE,
    FIRST_EDIT,
    MERGE,
    PUT,
    Entry,
    Form,
    new_file,
    sorted_entries,
    table,
    varint,
    write_manifest,
)

Model = dict[bytes, bytes]


@dataclass(frozen=True)
class StoredFile:
    number: int
    entries: tuple[Entry, ...]
    path: Path
    size: int

    @property
    def bounds(self) -> tuple[bytes, bytes]:
        return self.entries[0][0], self.entries[-1][0]


@dataclass
class Database:
    """``levels[0]`` are files from old to new, which may overlap; those of the other levels do not."""

    folder: Path
    random: Random
    form: Form
    merges: bool
    model: Model = field(default_factory=dict)
    levels: list[list[StoredFile]] = field(default_factory=lambda: [[], [], []])
    sequence: int = 0
    files: int = 9
    versions: int = 0

    def write(self, keys: list[bytes], count: int) -> None:
        """Flush so many random writes as a file of level 0."""
        entries: dict[bytes, list[Entry]] = {}
        for _ in range(count):
            key, self.sequence = self.random.choice(keys), self.sequence + 1
            kind = self.random.choice([PUT, PUT, PUT, DELETE, *([MERGE] if self.merges else [])])
            value = b"" if kind == DELETE else b"v%d" % self.random.randrange(4) * self.random.randrange(1, 4)
            if kind == PUT:
                self.model[key] = value
            elif kind == DELETE:
                self.model.pop(key, None)
            else:
                self.model[key] = self.model[key] + b"," + value if key in self.model else value
            entries.setdefault(key, []).append((key, self.sequence, kind, value))
        # RocksDB flushes only what no newer entry hides; a merge needs those before it.
        kept = [each for found in entries.values() for each in _visible(found)]
        self.levels[0].append(self._stored(kept))

    def compact(self, *, whole: bool) -> None:
        """Join the files of level 0 and those of level 1 that they overlap, or everything, into the next level."""
        if whole:
            taken, below, target = [*self.levels[0], *self.levels[1], *self.levels[2]], [], 2
            self.levels = [[], [], []]
        elif self.levels[0] and self.random.random() < 0.6:
            first = min(each.bounds[0] for each in self.levels[0])
            last = max(each.bounds[1] for each in self.levels[0])
            over = [each for each in self.levels[1] if each.bounds[0] <= last and first <= each.bounds[1]]
            taken, target, below = [*self.levels[0], *over], 1, self.levels[2]
            self.levels[0] = []
            self.levels[1] = [each for each in self.levels[1] if each not in over]
        elif self.levels[1]:
            one = self.random.choice(self.levels[1])
            over = [
                each for each in self.levels[2] if each.bounds[0] <= one.bounds[1] and one.bounds[0] <= each.bounds[1]
            ]
            self.levels[1].remove(one)
            if not over:  # a file that overlaps none is moved as it is
                self.levels[2].append(one)
                return
            taken, target, below = [one, *over], 2, []
            self.levels[2] = [each for each in self.levels[2] if each not in over]
        else:
            return
        by_key: dict[bytes, list[Entry]] = {}
        for each in taken:
            for entry in each.entries:
                by_key.setdefault(entry[0], []).append(entry)
        entries: list[Entry] = []
        for key, found in by_key.items():
            visible = _visible(sorted(found, key=lambda entry: entry[1]))
            is_last = not any(each.bounds[0] <= key <= each.bounds[1] for each in below)
            if is_last:
                visible = self._of_last_level(key, visible)
            entries += visible
        entries = sorted_entries(entries)
        while entries:  # all entries of a key are in one file of a level
            size = self.random.randrange(1, 40)
            while size < len(entries) and entries[size - 1][0] == entries[size][0]:
                size += 1
            self.levels[target].append(self._stored(entries[:size]))
            entries = entries[size:]

    def _of_last_level(self, key: bytes, entries: list[Entry]) -> list[Entry]:
        """Entries kept where nothing is below: no deletion, one put in place of operands, at times sequence 0."""
        if entries and entries[0][2] == DELETE:
            entries = entries[1:]
        if not entries:
            return []
        value, newest = b",".join(each[3] for each in entries), entries[-1][1]
        return [(key, self.random.choice([0, newest]), PUT, value)]

    def version(self) -> Path:
        """Make a directory of the database as it is."""
        self.versions += 1
        path = self.folder / f"version-{self.versions}"
        path.mkdir(parents=True)
        edits = [FIRST_EDIT + varint(3) + varint(1 << 20) + varint(4) + varint(1 << 40)]
        for level, files in enumerate(self.levels):
            for each in files:
                (path / f"{each.number:06d}.sst").symlink_to(each.path)
                edits.append(new_file(each.number, level, each.size, each.entries))
        write_manifest(path, edits)
        return path

    def _stored(self, entries: list[Entry]) -> StoredFile:
        self.files += 1
        path = self.folder / f"stored-{self.files}.sst"
        path.parent.mkdir(exist_ok=True)
        kept = sorted_entries(entries)
        data = table(kept, self.form).data
        path.write_bytes(data)
        return StoredFile(self.files, tuple(kept), path, len(data))


def _visible(entries: list[Entry]) -> list[Entry]:
    """The entries of a key, from old to new, that nothing newer hides."""
    start = max((place for place, each in enumerate(entries) if each[2] in (PUT, DELETE)), default=0)
    return entries[start:]
