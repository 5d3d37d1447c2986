"""The changelogs of one store, in which acknowledged writes wait for their commit.

Each writing handle appends to one file and holds its lock. Writes that arrive while a commit takes that file in go to
another one. The next handle that opens the store adopts the files whose owners are gone. An acknowledged write is
therefore never lost and never applied twice: the commit that takes records in names the file and the offset up to which
it was read (`consumed_ends`). Where possible, the handle appends to the newest adopted file, so that a store has few
files.

Changelogs whose writes were not committed before another machine took the store over are never committed by themselves:
other writes were committed since, which they would undo. The next owner on this machine moves them from ``changelog/``
to ``overtaken/``, where `TierOwner.take_back` finds them. A rename keeps a file whole wherever it is interrupted, and
the log knows by its name how much of it was committed.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path

import pyarrow as pa

from statestore.catalog.commits.claims import at_gate
from statestore.catalog.log import log_state as log_states
from statestore.catalog.log.entries import read_entry
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage, make_directories, own_folder, sync_folder
from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.changelogs.changelog import Changelog, made_at, read_changelog, store_of
from statestore.formats.changelogs.changelog_writer import ChangelogWriter, try_adopt
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, StateStoreError, StorageError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.file_presence import names_in

LOGGER = logging.getLogger("statestore")
CHANGELOGS = "changelog"
SUFFIX = ".changelog"
OURS = re.compile(rf"\d{{20}}-[0-9a-f]{{32}}{re.escape(SUFFIX)}")

Committed = Callable[[Collection[str]], Mapping[str, int]]
OVERTAKEN = "overtaken"


class Changelogs:
    """The changelog of this handle and the changelogs that it adopted.

    ``root`` is the store's directory, None if the store is not local. ``from_rows`` makes a batch of ``schema`` from a
    batch of rows that were logged singly. ``version`` is the newest version of the store that the handle knows. New
    files record it, and they record ``store``, the identity of the store: files of another store, which its handles may
    have left after it was dropped, are never adopted. ``check`` is called before and after a file is created, and
    raises if the store was replaced.
    """

    def __init__(
        self,
        root: Path | None,
        schema: pa.Schema,
        from_rows: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda rows: rows,
        store: str = "",
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = None if root is None else root / CHANGELOGS
        self._schema = schema
        self._from_rows = from_rows
        self._store = store
        self._check = check
        self._writer: ChangelogWriter | None = None
        self._own_from = 0  # offset in the own file; earlier records were adopted
        self._adopted: dict[str, ChangelogWriter] = {}
        self._done: dict[str, int] = {}  # committed length of each adopted file
        self._floors: dict[str, tuple[int, int]] = {}  # minimum content of a file, see ``expect``
        self._sealed: set[str] = set()  # files of the commit that is on its way
        self._set_aside: dict[str, int] = {}  # own files that were sealed before the present one, like ``_own_from``
        self.version = -1

    def append(self, batch: pa.RecordBatch) -> None:
        """Acknowledge ``batch``: from now on it survives the end of this process, and after a sync the end of the
        machine.
        """
        if self._folder is not None:
            self.writer().append(batch)

    @property
    def is_local(self) -> bool:
        return self._folder is not None

    def writer(self) -> ChangelogWriter:
        """Return this handle's changelog and create it if there is none; it is valid until the next ``seal`` or
        ``discard``."""
        before = self._writer
        if before is None or (self._sealed and before.path.name in self._sealed):
            assert self._folder is not None
            self._check()
            with disk_errors("create", self._folder):
                self._folder.mkdir(exist_ok=True)
            self._resume()
            if self._writer is before:
                with disk_errors("create a changelog in", self._folder), at_gate(self._folder):
                    made = ChangelogWriter(self._folder / self._next_name(), self._schema, self.version, self._store)
                try:
                    self._check()  # another store may have taken this one's place in the folder
                except BaseException:
                    _remove(made)
                    raise
                if before is not None:
                    self._adopted[before.path.name] = before
                    self._set_aside[before.path.name] = self._own_from
                self._writer, self._own_from = made, 0
            assert self._writer is not None
            return self._writer
        return before

    def seal(self) -> None:
        """Keep the files as they are for the commit that begins now: later records go to another file.

        ``discard_sealed`` or ``unseal`` follows.
        """
        self._sealed = set(self._held())

    def unseal(self) -> None:
        """End a commit that was not made."""
        self._sealed = set()

    def _resume(self) -> None:
        """Continue the newest file if it was adopted: records are replayed in the order of the file names."""
        newest = max(self._names(), default="")
        file = None if newest in self._sealed else self._adopted.get(newest)
        if self._writer is None and file is not None and file.resume(self._schema):
            self._writer = self._adopted.pop(newest)
            self._own_from = file.end

    def _next_name(self) -> str:
        """Return a name that sorts after every existing changelog."""
        numbers = (name.partition("-")[0] for name in self._names())
        newest = max((int(number) for number in numbers if number.isdecimal()), default=0)
        return f"{max(time.time_ns(), newest + 1):020d}-{uuid.uuid4().hex}{SUFFIX}"

    def _names(self) -> list[str]:
        """Return the names of all existing changelogs of any owner, ascending."""
        if self._folder is None:
            return []
        return [name for name in names_in(self._folder) if OURS.fullmatch(name)]

    def sync(self) -> None:
        """Force everything that this handle holds to the disk."""
        self._resume()
        for file in self._held().values():
            file.sync()

    def adopt(self, committed: Committed) -> list[pa.RecordBatch]:
        """Return the acknowledged and uncommitted records of writers that are gone.

        ``committed`` returns the offsets up to which the log has the changelogs. It is called after the locks are
        taken, because a writer may commit until it gives up its lock. Raises CorruptError CHANGELOG_CORRUPT, after
        which no lock is held.
        """
        self.take_over(committed)
        try:
            batches = list(self.uncommitted()) if self._adopted else []
            self._resume()
            return batches
        except BaseException:
            self.close()
            raise

    def take_over(self, committed: Committed) -> None:
        """Hold the changelogs of writers that are gone, so that ``uncommitted`` reads them (see ``adopt``)."""
        try:
            for name in self._names():
                file = try_adopt(self._path(name))
                if file is None:
                    continue
                self._adopted[name] = file
                if self._is_foreign(file):
                    self._adopted.pop(name).close()
            if self._adopted:
                self._done |= {**dict.fromkeys(self._adopted, 0), **committed(list(self._adopted))}
            for name, file in list(self._adopted.items()):
                if file.size <= self._done[name]:  # the owner died after its commit and before the removal of the file
                    del self._adopted[name]
                    _remove(file)
        except BaseException:
            self.close()
            raise

    def _is_foreign(self, file: ChangelogWriter) -> bool:
        """Return whether the records belong to an earlier store at this location."""
        if not self._store:
            return False
        try:
            store = store_of(file.path)
        except (StateStoreError, FileNotFoundError):
            return False  # reading the file reports the damage
        if store in ("", self._store):
            return False
        LOGGER.warning("%s", foreign_note(str(file.path), store))
        return True

    def expect(self, name: str, synced: int, end: int) -> None:
        """Require that an adopted file holds whole frames up to ``end``; frames up to ``synced`` are on the disk."""
        self._floors[name] = synced, end

    def sizes(self) -> dict[str, int]:
        """Return the length of each file that this handle holds."""
        return {name: file.size for name, file in self._held().items()}

    def position(self) -> tuple[str, int]:
        """Return (name, end) of the newest changelog that this handle holds; ("", 0) if it holds none."""
        return max(self.consumed(), default=("", 0))

    def extents(self) -> tuple[tuple[str, int, int], ...]:
        """Return (name, length forced to the disk, length written) that each held changelog has at least."""
        floors = ((name, file, self._floors.get(name, (0, 0))) for name, file in self._held().items())
        return tuple((name, max(file.synced, synced), max(file.end, end)) for name, file, (synced, end) in floors)

    def uncommitted(self, after: tuple[str, int] = ("", 0)) -> Iterator[pa.RecordBatch]:
        """Yield all acknowledged and uncommitted records from the files, in order.

        ``after`` (name, offset): only records behind that offset. Raises CorruptError CHANGELOG_CORRUPT for damage, and
        for a file that holds less than was acknowledged.
        """
        for name, file in self._held().items():
            if name < after[0]:
                continue
            start = max(self._done.get(name, 0), after[1] if name == after[0] else 0)
            is_own = file is self._writer
            changelog = read_changelog(file.path, self._schema, start, file.end if is_own else None)
            try:
                for batch, _ in changelog:
                    yield self._in_schema(batch)
            except FileNotFoundError:
                raise _short(changelog, file.end) from None
            _, floor = self._floors.get(name, (0, 0))
            floor = max(file.end, floor)
            if changelog.end < floor:
                raise _short(changelog, floor)
            if not is_own:
                file.take_note(changelog)

    def _in_schema(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if batch.schema == self._schema else self._from_rows(batch)

    def consumed(self) -> tuple[tuple[str, int], ...]:
        """Return (file name, end) of every file that this handle holds, for the commit that takes the records in."""
        return tuple((name, file.end) for name, file in self._held().items())

    def mark_committed(self, committed: Mapping[str, int]) -> None:
        """Record up to which offset the log has the files that this handle continues."""
        own = {name: committed[name] for name in self._held() if name in committed}
        self._done |= own
        if self._writer is not None:  # committed records are never cut off: the log has their offsets
            self._own_from = max(self._own_from, own.get(self._writer.path.name, 0))

    def discard_own(self) -> None:
        """Remove the records that this handle wrote, but not those that it adopted."""
        for name, own_from in self._set_aside.items():
            if own_from:
                self._adopted[name].cut(own_from)
            else:
                _remove(self._adopted.pop(name))
        self._set_aside.clear()
        self._sealed = set()
        if self._writer is None:
            return
        if self._own_from:
            self._writer.cut(self._own_from)
            return
        try:
            self._writer.discard()
        except StorageError:
            self._writer.cut(0)
            self._writer.close()
        self._writer = None

    def discard(self) -> None:
        """Remove the files after their records are committed. A file that cannot be removed stays: the log names it."""
        for file in self._held().values():
            _remove(file)
        self._forget()

    def discard_sealed(self) -> None:
        """Remove the sealed files after their records are committed, like ``discard``; later records stay."""
        for name, file in self._held().items():
            if name in self._sealed:
                _remove(file)
                for of_file in (self._adopted, self._done, self._floors, self._set_aside):
                    of_file.pop(name, None)
                if file is self._writer:
                    self._writer = None
        self._sealed = set()

    def close(self) -> None:
        """Give up the locks and leave the records to the next handle.

        Raises StorageError if the writes of this handle cannot be forced to the disk; all locks are given up then, too.
        """
        try:
            for name in self._set_aside:
                self._adopted[name].sync()
            if self._writer is not None:
                self._writer.sync()
        finally:
            for file in self._held().values():
                file.close()
            self._forget()

    def leave(self) -> None:
        """Forget the files without changing them: in a forked child they belong to the parent."""
        for file in self._held().values():
            file.leave()
        self._forget()

    def _held(self) -> dict[str, ChangelogWriter]:
        """Return the files whose locks this handle holds, in the order of their names, which is the order of their
        records.
        """
        own = () if self._writer is None else (self._writer,)
        files = sorted((*self._adopted.values(), *own), key=attrgetter("path"))
        return {file.path.name: file for file in files}

    def _forget(self) -> None:
        self._writer = None
        self._adopted.clear()
        self._done.clear()
        self._floors.clear()
        self._sealed = set()
        self._set_aside.clear()

    def _path(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / name


def foreign_note(name: str, store: str) -> str:
    """Return the remark on a changelog that no handle of this store reads."""
    return (
        f"{name}: its records belong to another store (id {store}), which was dropped or replaced; "
        "vacuum removes the file"
    )


def _remove(file: ChangelogWriter) -> None:
    with contextlib.suppress(StorageError):
        file.discard()
    file.close()


def _short(changelog: Changelog, floor: int) -> CorruptError:
    return CorruptError(
        ErrorCode.CHANGELOG_CORRUPT,
        f"{changelog.path}: whole frames end at byte {changelog.end}, but {floor} bytes were acknowledged; "
        "restore the file from a copy, or close the store and move the file away to continue without "
        "its writes",
    )


def consumed_ends(storage: Storage, log_state: LogState, names: Iterable[str]) -> dict[str, int]:
    """Return the offset up to which each changelog is committed, for those that a commit up to ``log_state`` names.

    The log state keeps only the newest names. Where it may have forgotten a name, the log entries are read, newest
    first, back to the version at which the file was created. Raises NotFoundError or CorruptError for an entry that
    cannot be read.
    """
    named = log_state.changelogs
    asked = set(names)
    ends = {name: named[name] for name in asked & named.keys()}
    if len(named) < log_states.KEPT_CHANGELOGS:  # no name was forgotten yet
        return ends
    root = own_folder(storage)
    missing = {name: _made_at(root, name, log_state.version) for name in asked - ends.keys()}
    version = log_state.version
    while missing and version > min(missing.values()):
        for name, end in read_entry(storage, version).changelogs:
            if missing.pop(name, None) is not None:
                ends[name] = end
        version -= 1
    return ends


def _made_at(root: Path | None, name: str, newest: int) -> int:
    """Return the store's version at the creation of the changelog; -1 if the file does not record it."""
    if root is None:
        return -1
    try:
        version = made_at(root / CHANGELOGS / name)
    except (StateStoreError, FileNotFoundError):
        return -1
    return version if version <= newest else -1


def waiting_changelogs(storage: Storage, spec: StoreSpec, log_state: LogState, root: Path) -> list[Path]:
    """Return the changelogs of this machine with writes of the store that no commit has taken in, oldest first."""
    return _waiting(storage, spec, log_state, root / CHANGELOGS)


def overtaken_changelogs(storage: Storage, spec: StoreSpec, log_state: LogState, root: Path) -> list[Path]:
    """Return the changelogs that were set aside, and have such writes."""
    return _waiting(storage, spec, log_state, root / OVERTAKEN)


def set_aside(root: Path, changelogs: list[Path]) -> None:
    """Move changelogs aside. The position of the hot tier, which names them, has to be removed before."""
    _move(changelogs, root / OVERTAKEN)


def take_back(root: Path, changelogs: list[Path]) -> None:
    """Move changelogs back that were set aside; the next owner adopts them, into a tier that is made anew."""
    _move(changelogs, root / CHANGELOGS)


def _move(changelogs: list[Path], folder: Path) -> None:
    with disk_errors("move changelogs to", folder):
        make_directories(folder)
        for path in changelogs:
            path.rename(folder / path.name)
        sync_folder(folder)
        sync_folder(changelogs[0].parent)


def _waiting(storage: Storage, spec: StoreSpec, log_state: LogState, folder: Path) -> list[Path]:
    paths = [folder / name for name in sorted(names_in(folder)) if OURS.fullmatch(name)]
    paths = [path for path in paths if _is_of(path, spec)]
    done = consumed_ends(storage, log_state, [path.name for path in paths]) if paths else {}
    return [path for path in paths if _has_rows(path, done.get(path.name, 0))]


def _is_of(path: Path, spec: StoreSpec) -> bool:
    try:
        return store_of(path) in ("", spec.store_id)
    except FileNotFoundError:
        return False
    except StateStoreError:  # reading the file reports the damage
        return True


def _has_rows(path: Path, done: int) -> bool:
    try:
        return any(batch.num_rows for batch, _ in read_changelog(path, None, done))
    except FileNotFoundError:  # committed in the meantime
        return False
    except StateStoreError:
        return True
