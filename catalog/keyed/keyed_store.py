"""A keyed store: backends for its tasks, and the snapshots that the tasks commit together."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, cast

import pyarrow as pa

from statestore.catalog.commits.publish_commit import writer_name
from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.rows.state_spec import widest
from statestore.catalog.keyed.snapshots.commit_lock import commit_lock
from statestore.catalog.keyed.snapshots.snapshot_log import (
    SnapshotEntry,
    SnapshotLog,
    check_complete,
    commit_time,
    newer_log,
    publish,
    was_committed,
)
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotPart
from statestore.catalog.keyed.snapshots.stored_files import check_there, checked
from statestore.catalog.keyed.snapshots.unneeded_files import remove_unneeded
from statestore.catalog.keyed.tables.keyed_metadata import entries_table
from statestore.catalog.keyed.tables.keyed_source import KeyedOpening, keyed_table
from statestore.catalog.log.entries import entry_name
from statestore.catalog.log.storage import LocalStorage, Storage, own_folder
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.segment_files import shared_files
from statestore.catalog.reads.shown import Facts, ShowsItself, columns_of, listed, store_title
from statestore.catalog.reads.table import Table
from statestore.catalog.stores.store_handle import check_transaction
from statestore.catalog.upkeep.vacuum import Unneeded
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    ReadOnlyError,
    StateStoreError,
    StorageError,
)
from statestore.formats.segments.segment_meta import FileRef
from statestore.formats.values.times import duration_ms

if TYPE_CHECKING:
    from statestore.catalog.log.storage_objects import ObjectStorage

_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def _of_state(
    read: Callable[Concatenate[Table, _Arguments], _Answer],
) -> Callable[Concatenate[Any, str, _Arguments], _Answer]:
    """Return a read of `Table` as a method of a store that has tables by the names of states."""

    def read_state(store: Any, state: str, *args: _Arguments.args, **given: _Arguments.kwargs) -> _Answer:
        return read(store.table(state), *args, **given)

    itself, *others = inspect.signature(read).parameters.values()
    state = inspect.Parameter("state", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="str")
    functools.update_wrapper(read_state, read)
    read_state.__qualname__ = f"KeyedStore.{read.__name__}"  # Python's own error for a call without the state says it
    read_state.__signature__ = inspect.Signature([itself, state, *others])  # type: ignore[attr-defined]
    return read_state  # type: ignore[return-value]  # may be called with state= by name, too


class KeyedStore(ShowsItself):
    """Handle of a store of kind "keyed".

    Each task opens a `backend` on its key groups, all on the same version. Their snapshots become a version together,
    by `commit`. Every version is a table for each state (`table`). The rules are those of Flink's
    ``RocksDBKeyedStateBackend`` and ``SharedStateRegistry``.
    """

    def __init__(self, storage: Storage, spec: StoreSpec, *, read_only: bool = False) -> None:
        self.spec = spec
        self.read_only = read_only
        self._storage = storage
        self._files = shared_files(storage, spec)
        self._log = SnapshotLog(())
        self._attempt: tuple[int, tuple[SnapshotPart, ...]] | None = None  # a commit whose outcome is unknown
        self._settled = False
        self._closed = False

    # Tasks

    def backend(
        self,
        key_groups: range | None = None,
        *,
        version: int | None = None,
        directory: str | Path | None = None,
    ) -> KeyedBackend:
        """Open a backend for some key groups, all by default.

        The backend has the rows of the newest snapshot (or of ``version``; 0: none) for these groups, regardless of how
        many tasks wrote it. ``directory`` is for its local files (default: the system's temporary directory); files
        that killed processes left there are removed.

        Raises NotFoundError VERSION_NOT_FOUND or SNAPSHOT_FILE_MISSING, CorruptError SEGMENT_CORRUPT,
        InvalidInputError INVALID_KEY_GROUPS.
        """
        self._check_writable()
        groups = range(self.spec.key_groups) if key_groups is None else key_groups
        if (
            not isinstance(groups, range)
            or not groups
            or groups.step != 1
            or groups.start < 0
            or groups.stop > self.spec.key_groups
        ):
            raise InvalidInputError(
                ErrorCode.INVALID_KEY_GROUPS,
                f"key groups {key_groups!r}; expected a range within range(0, {self.spec.key_groups})",
            )
        while True:
            entry = self._read().snapshot(version)
            parts = [] if entry is None else [h for h in entry.parts if _overlap(h.key_groups, groups)]
            base = None if entry is None else entry.version
            try:
                return KeyedBackend.opened(self.spec, groups, self._storage, base, parts, directory)
            except NotFoundError:
                if base is None or base in self._read().kept_snapshots():
                    raise  # a discarded snapshot: retry with the newest one, or refuse the version

    def task_groups(self, tasks: int) -> list[range]:
        """Return the key groups of each of ``tasks`` tasks, divided as Flink divides them
        (``KeyGroupRangeAssignment``).
        """
        return task_groups(self.spec.key_groups, tasks)

    # Snapshots

    def commit(
        self,
        handles: SnapshotPart | Iterable[SnapshotPart],
        *,
        transaction: tuple[str, int] | None = None,
        outputs: Sequence[FileRef] = (),
        base: int | None = None,
    ) -> int:
        """Commit the parts of all tasks as one snapshot; return its version.

        If the ``transaction`` (application, number) was committed before, that version is returned, and the files of
        the given parts are removed. ``outputs`` are files that the snapshot's batch made beside the state; they are
        kept with the snapshot, and at least until the next commit of the same application. ``base`` is the version with
        which all backends began (0: none). It must still be the newest snapshot, so that no snapshot of another writer
        is lost.

        Raises InvalidInputError INCOMPLETE_SNAPSHOT, INCOMPATIBLE_STATE or INVALID_TRANSACTION, ConflictError
        BASE_OVERTAKEN, BASE_DISCARDED or, in an object store for files that are half a day old, SNAPSHOT_TOO_OLD,
        NotFoundError SNAPSHOT_FILE_MISSING, CommitUnknownError COMMIT_UNKNOWN.
        """
        self._check_writable()
        parts, transaction = _parts(handles), check_transaction(transaction)
        check_complete(parts, self.spec.key_groups)
        widest(spec for part in parts for spec in part.states)
        new = [file.name for part in parts for file in part.files().values()] + [file.name for file in outputs]
        while True:
            log = self._read()
            if (made := self._made_before(log, parts)) is not None:
                return made
            if transaction is not None and (before := log.transaction(transaction)) is not None:
                self._remove_if_possible(new)
                return before
            self._check_base(log, base)
            self._settle()
            with self._files.log.or_replaced(), commit_lock(self._storage, alone=False):
                self._check_files(log, parts, outputs)
                version = log.newest + 1
                entry = SnapshotEntry(
                    version, commit_time(log), "snapshot", writer_name(), transaction, parts, outputs=tuple(outputs)
                )
                self._attempt = version, parts
                published = publish(self._storage, log, entry, self.spec.store_id)
                self._attempt = None
            if published is not None:
                self._log = published
                self._remove_if_possible(set(log.files()) - set(published.files()))  # outputs of the previous batch
                return version

    def discard(self, version: int) -> None:
        """Remove a snapshot and all files that no other snapshot names.

        Raises NotFoundError VERSION_NOT_FOUND, which lists the kept versions.
        """
        self._check_writable()
        while True:
            log = self._read()
            entry = log.snapshot(_checked_version(version))
            if entry is None:
                raise InvalidInputError(
                    ErrorCode.INVALID_VERSION, "version 0 is the empty store; it cannot be discarded"
                )
            new = SnapshotEntry(log.newest + 1, commit_time(log), "discard", writer_name(), None, (), version)
            published = publish(self._storage, log, new, self.spec.store_id)
            if published is not None:
                self._log = published
                self._remove_if_possible(set(log.files()) - set(published.files()))
                return

    def discard_files(self, handles: Iterable[SnapshotPart], outputs: Iterable[FileRef] = ()) -> None:
        """Remove the files of parts that will not be committed, except those that a kept snapshot names."""
        self._check_writable()
        self._remove([name for part in handles for name in part.files()] + [file.name for file in outputs])

    def retained(self) -> list[int]:
        """Return the versions of the kept snapshots, oldest first."""
        self._check_open()
        return list(self._read().kept_snapshots())

    def versions(self) -> pa.Table:
        """Return one row per version, oldest first: time, operation, writer, transaction, bytes.

        The columns are those of the metadata table ``$versions``. Discarding a snapshot is a version of its own; the
        bytes of a discarded snapshot are null. `retained` has the versions that can be read.
        """
        self._check_open()
        return entries_table(self._read())

    def transaction_version(self, transaction: tuple[str, int]) -> int | None:
        """Return the version that committed a transaction; None if no version did."""
        self._check_open()
        checked = check_transaction(transaction)
        return None if checked is None else self._read().transaction(checked)

    def was_committed(self, commit: str) -> bool:
        """Return whether the commit with this id took place; the id is the ``commit`` attribute of a
        `CommitUnknownError`.

        A True is durable. Raises InvalidInputError INVALID_COMMIT for a value that is not such an id.
        """
        self._check_open()
        self._read()
        return was_committed(self._storage, commit)

    def outputs(self, version: int) -> list[Path]:
        """Return the output files of a snapshot's batch, after they were compared with their checksums.

        Outputs are kept with their snapshot; those of the last batch of each application are always kept. Of a store in
        an object store, the paths are those of copies on this machine (`connect(…, local=…)`), which stay as long as
        the outputs. Raises NotFoundError VERSION_NOT_FOUND or SNAPSHOT_FILE_MISSING, CorruptError SEGMENT_CORRUPT.
        """
        self._check_open()
        version = _checked_version(version)
        if isinstance(self._storage, LocalStorage):
            return [checked(self._storage, file) for file in self._read().outputs(version)]
        from statestore.catalog.keyed.snapshots.output_copies import output_copies

        storage = cast("ObjectStorage", self._storage)
        return output_copies(storage, self.own_folder(), self.spec.store_id, self._read, version)

    def files(self) -> Storage:
        """Return the storage of the store's files for other processes: it has no directory of this machine."""
        storage = self._storage
        return storage if isinstance(storage, LocalStorage) else cast("ObjectStorage", storage).elsewhere()

    def own_folder(self) -> Path:
        """Return the directory for what writers of this machine keep, such as locks: the store's own if it is local."""
        folder = own_folder(self._storage, make=True)
        assert folder is not None  # the storage of a place always has one
        return folder

    # Reads

    def states(self, version: int | None = None) -> list[str]:
        """Return the names of the states that a snapshot has, by default the newest one. Raises NotFoundError
        VERSION_NOT_FOUND.
        """
        self._check_open()
        entry = self._read().snapshot(version)
        return [] if entry is None else sorted({spec.name for part in entry.parts for spec in part.states})

    def table(self, state: str) -> Table:
        """Return a state as a table of every kept version.

        Its columns are the key, the namespace, the key of a map or the position of an element, and the value. A read of
        the table raises NotFoundError STATE_NOT_FOUND for an unknown state.
        """
        self._check_open()
        opening = KeyedOpening(self._storage, self.spec)
        return Table(keyed_table(opening, self.spec, state), isinstance(self._storage, LocalStorage))

    scan = _of_state(Table.scan)
    get = _of_state(Table.get)
    history = _of_state(Table.history)
    changes = _of_state(Table.changes)
    diff = _of_state(Table.diff)

    # Upkeep

    def vacuum(self, older_than: int | timedelta | str = "7 days", dry_run: bool = False) -> list[Unneeded]:
        """Remove files that no kept snapshot names and that are at least ``older_than`` old, such as those of killed
        tasks.

        With ``dry_run`` the files are only listed. With ``older_than`` 0 no snapshot may be under way. In an object
        store, which has no locks, ``older_than`` is at least a day, unless the files are only listed: commits there
        refuse files of half a day. Raises InvalidInputError INVALID_DURATION.
        """
        self._check_writable()
        age_us = (duration_ms(older_than, "older_than") or 0) * 1000
        with self._files.log.or_replaced():
            return remove_unneeded(self._storage, self.spec.store_id, age_us, dry_run)

    def close(self) -> None:
        """Close the handle; backends that were opened with it stay open. Safe to call twice."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def name(self) -> str:
        return self.spec.name

    # Internals

    def _about(self) -> tuple[str, Facts]:
        title = store_title(self.spec, self._storage)
        if self._closed:
            return title, [("closed", "open it again with open_store")]
        facts = [*columns_of(self.spec), ("key groups", str(self.spec.key_groups))]
        try:
            log = self._read() if isinstance(self._storage, LocalStorage) else self._log
        except StateStoreError as error:
            return title, [*facts, ("cannot be read", str(error))]
        kept = log.kept_snapshots()
        if not kept:
            return title, facts
        newest = kept[max(kept)]
        states = sorted({spec.name for part in newest.parts for spec in part.states})
        return title, [*facts, ("snapshots", listed([str(version) for version in kept])), ("states", listed(states))]

    def _read(self) -> SnapshotLog:
        self._log = newer_log(self._storage, self.spec.store_id, self._log)
        return self._log

    def _settle(self) -> None:
        """Force the store's directories to the disk: their creator may have died before doing so."""
        if not self._settled:
            self._storage.settle(entry_name(0))
            self._settled = True

    def _made_before(self, log: SnapshotLog, parts: tuple[SnapshotPart, ...]) -> int | None:
        """Return the version of an earlier attempt to commit these parts, if that attempt raised although it took
        place.
        """
        if self._attempt is None or self._attempt[1] != parts:
            return None
        version = self._attempt[0]
        if version > log.newest or log.entries[version - 1].parts != parts:
            return None
        self._storage.settle(entry_name(version))
        self._attempt = None
        return version

    def _check_base(self, log: SnapshotLog, base: int | None) -> None:
        newest = max(log.kept_snapshots(), default=0)
        if base is not None and newest != base:
            raise ConflictError(
                ErrorCode.BASE_OVERTAKEN,
                f"this snapshot of store {self.spec.name!r} builds on version {base}, but {newest} is "
                "the newest now: another writer committed or discarded a snapshot; begin again from "
                "the newest",
            )

    def _check_files(self, log: SnapshotLog, parts: Sequence[SnapshotPart], outputs: Sequence[FileRef]) -> None:
        """Check that new files exist, and that a kept snapshot needs every file that a part names again.

        A file that no kept snapshot needs was removed, or will be. The log decides and not the directory, so that a
        discard between this check and the commit shows as a version that is taken.
        """
        needed, forsaken = log.files(), log.forsaken()
        for part in parts:
            for name in part.files():
                if name in forsaken or (name in part.reused and name not in needed):
                    raise ConflictError(
                        ErrorCode.BASE_DISCARDED,
                        f"{name} of store {self.spec.name!r} is no longer needed: the snapshot that "
                        "had it was discarded; take a new one, and confirm each with notify_complete",
                    )
        new = [file for part in parts for file in part.files().values() if file.name not in part.reused]
        check_there(self._storage, [*new, *outputs])

    def _remove(self, names: Iterable[str]) -> None:
        needed = self._read().files()
        self._storage.delete_many([name for name in names if name not in needed])

    def _remove_if_possible(self, names: Iterable[str]) -> None:
        """Remove files where disk or object store permit it; vacuum removes the others later."""
        with contextlib.suppress(StorageError, InvalidInputError):
            self._remove(names)

    def _check_writable(self) -> None:
        self._check_open()
        if self.read_only:
            raise ReadOnlyError(
                ErrorCode.READ_ONLY,
                f"store {self.spec.name!r} was opened with read_only=True; to write, open it without read_only",
            )

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidInputError(
                ErrorCode.STORE_CLOSED,
                f"this handle on store {self.spec.name!r} was closed; open it again with open_store",
            )


def _parts(parts: Any) -> tuple[SnapshotPart, ...]:
    """Return one part, or the parts of all tasks, as a tuple. Raises InvalidInputError INCOMPLETE_SNAPSHOT."""
    if isinstance(parts, SnapshotPart):
        return (parts,)
    if not isinstance(parts, Iterable):
        raise InvalidInputError(
            ErrorCode.INCOMPLETE_SNAPSHOT,
            f"found {parts!r}; expected the parts of all tasks, as snapshot(…).result() returns them",
        )
    return tuple(parts)


def _checked_version(version: Any) -> int:
    if type(version) is not int:
        raise InvalidInputError(
            ErrorCode.INVALID_VERSION, f"version is {version!r}; expected an int, the version of a snapshot"
        )
    return version


def _overlap(left: range, right: range) -> bool:
    return left.start < right.stop and right.start < left.stop


def task_groups(key_groups: int, tasks: Any) -> list[range]:
    """Return the key groups of each of ``tasks`` tasks. Raises InvalidInputError INVALID_KEY_GROUPS."""
    if type(tasks) is not int or not 1 <= tasks <= key_groups:
        raise InvalidInputError(
            ErrorCode.INVALID_KEY_GROUPS,
            f"{tasks!r} tasks; expected 1 to {key_groups}, the number of key groups",
        )
    edges = [-(-number * key_groups // tasks) for number in range(tasks + 1)]
    return [range(first, stop) for first, stop in itertools.pairwise(edges)]
