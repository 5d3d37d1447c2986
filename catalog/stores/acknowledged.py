"""The changelogs of one store: where acknowledged writes wait for their commit.

Each writing handle appends to a file of its own and holds its lock; a file whose owner is gone is adopted by the next
handle that opens the store, so an acknowledged write is never lost and never applied twice: the commit that
takes records in names the file and how far it was read.
"""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.formats.changelog import ChangelogWriter, read_changelog, try_adopt

FOLDER = "changelog"
SUFFIX = ".changelog"
OURS = re.compile(rf"\d{{20}}-[0-9a-f]{{32}}{re.escape(SUFFIX)}")


class Changelogs:
    """This handle's changelog and those it adopted. ``root`` is the store's directory, None where there is none.

    ``from_rows`` makes a batch of ``schema`` from one of rows that were logged singly.
    """

    def __init__(
        self,
        root: Path | None,
        schema: pa.Schema,
        from_rows: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda rows: rows,
    ) -> None:
        self._folder = None if root is None else root / FOLDER
        self._schema = schema
        self._from_rows = from_rows
        self._writer: ChangelogWriter | None = None
        self._name = ""
        self._adopted: dict[str, tuple[int, Any]] = {}
        self._done: dict[str, int] = {}  # how much of each adopted file is committed

    def append(self, batch: pa.RecordBatch) -> None:
        """Acknowledge ``batch``: it survives the end of this process from here on (and of the machine from sync)."""
        if self._folder is not None:
            self.writer().append(batch)

    @property
    def is_local(self) -> bool:
        return self._folder is not None

    def writer(self) -> ChangelogWriter:
        """This handle's changelog, made where there is none yet; valid until the next ``discard``."""
        if self._writer is None:
            assert self._folder is not None
            self._folder.mkdir(exist_ok=True)
            self._name = self._next_name()
            self._writer = ChangelogWriter(self._folder / self._name, self._schema)
        return self._writer

    def _next_name(self) -> str:
        """A name that sorts after every changelog there is: adopted files are replayed in order of their names."""
        assert self._folder is not None
        numbers = [p.name.partition("-")[0] for p in self._folder.glob(f"*{SUFFIX}")]
        newest = max((int(number) for number in numbers if number.isdigit()), default=0)
        return f"{max(time.time_ns(), newest + 1):020d}-{uuid.uuid4().hex}{SUFFIX}"

    def sync(self) -> None:
        if self._writer is not None:
            self._writer.sync()

    def adopt(self, committed: Callable[[], Mapping[str, int]]) -> list[pa.RecordBatch]:
        """Records that writers which are gone have acknowledged but not committed.

        ``committed`` tells how far each changelog is in the log; asked once the locks are held, because a writer may
        commit until it gives up its lock. Raises CorruptError CHANGELOG_CORRUPT, and holds no lock then.
        """
        self.take_over(committed)
        try:
            return [batch for name in self._adopted for batch in self._read(name, self._done[name])]
        except BaseException:
            self.close()
            raise

    def take_over(self, committed: Callable[[], Mapping[str, int]]) -> None:
        """Hold the changelogs of writers that are gone, so that ``uncommitted`` reads them (see ``adopt``)."""
        if self._folder is None or not self._folder.is_dir():
            return
        try:
            for path in sorted(self._folder.glob(f"*{SUFFIX}")):
                lock = try_adopt(path) if OURS.fullmatch(path.name) else None
                if lock is not None:
                    self._adopted[path.name] = (path.stat().st_size, lock)
            done = self._done = dict.fromkeys(self._adopted, 0)
            if self._adopted:
                self._done |= {name: end for name, end in committed().items() if name in done}
        except BaseException:
            self.close()
            raise

    def _read(self, name: str, done: int) -> list[pa.RecordBatch]:
        """The records of an adopted file behind what was committed of it."""
        assert self._folder is not None
        batches, end = [], done
        for batch, at in read_changelog(self._folder / name, self._schema, done):
            batches.append(self._in_schema(batch))
            end = at
        self._adopted[name] = (end, self._adopted[name][1])
        return batches

    def position(self) -> tuple[str, int]:
        """(name, end) of the newest changelog this handle holds; ("", 0) if it holds none."""
        return max(self.consumed(), default=("", 0))

    def uncommitted(self, after: tuple[str, int] = ("", 0)) -> Iterator[pa.RecordBatch]:
        """Everything that was acknowledged and not committed, read from the files, in order.

        ``after`` (name, offset): only what lies behind that place.
        """
        assert self._folder is not None
        held = [(name, self._done[name]) for name in sorted(self._adopted)]
        if self._writer is not None:
            held.append((self._name, 0))
        for name, done in held:
            if name < after[0]:
                continue
            start = max(done, after[1]) if name == after[0] else done
            for batch, _ in read_changelog(self._folder / name, self._schema, start):
                yield self._in_schema(batch)

    def _in_schema(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if batch.schema == self._schema else self._from_rows(batch)

    def consumed(self) -> tuple[tuple[str, int], ...]:
        """(file name, offset) of everything this handle holds, for the commit that takes it in."""
        own = [(self._name, self._writer.end)] if self._writer is not None else []
        return (*own, *((name, end) for name, (end, _) in self._adopted.items()))

    def discard_own(self) -> None:
        """Remove this handle's file, but none that it adopted."""
        if self._writer is not None:
            self._writer.discard()
            self._writer = None

    def discard(self) -> None:
        """Remove the files: their records are committed."""
        self.discard_own()
        for name, (_, lock) in self._adopted.items():
            assert self._folder is not None
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()
            lock.close()
        self._adopted.clear()

    def close(self) -> None:
        """Give up the locks and leave the records to the next handle."""
        try:
            if self._writer is not None:
                self._writer.sync()
        finally:
            self.leave()

    def leave(self) -> None:
        """Like `close`, with nothing forced to the disk: in a forked child the files are the parent's."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for _, lock in self._adopted.values():
            lock.close()
        self._adopted.clear()
