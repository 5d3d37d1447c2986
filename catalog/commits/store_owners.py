"""One writer of a live store among machines: a chain of create-only objects, and a fence in the log.

A lock of the operating system keeps the writers of one machine apart (`writer_lock`). A store in an object store has
also a chain of records ``owners/<20-digit number>.json``. The newest one says who owns the store: its ``event`` is
``opened``, ``closed`` (nothing of that owner is left to commit), or ``left`` (acknowledged writes wait in changelogs of
its machine). A put that creates only decides between two machines that want the next number.

A machine is a local directory, which has an id of its own. The owner's machine may open the store again at any time:
its lock was free, so the former process is dead, and its changelogs are here. Another machine is refused until the
newest record is ``closed``, unless it takes the store over.

The records decide who may begin to write. That nobody else goes on is decided by the log. An owner whose predecessor
did not close publishes a fence before it reads the log for the last time: a commit without content, whose transaction
is [`APPLICATION`, number]. The predecessor's next commit is for the version of the fence or an earlier one. So it is
there before the fence, and the new owner sees it; or it finds its version taken, reads the log again, and finds a fence
with a greater number than its own. No clock decides, and a commit costs no request more.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from statestore.catalog.commits.changelogs import overtaken_changelogs, set_aside, waiting_changelogs
from statestore.catalog.commits.claims import claim
from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.publish_commit import MAX_ATTEMPTS, after_publish, new_entry, too_many_conflicts
from statestore.catalog.commits.writer_state import writer_of
from statestore.catalog.log.entries import json_checksum, sealed_json, write_entry
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import LocalStorage, ObjectInfo, Storage, StorageExistsError, local_root
from statestore.catalog.log.store_spec import StoreSpec, identity_guard
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, InvalidInputError, NotFoundError, StateStoreError

MACHINE = "machine"
"""The file with the id of a local directory."""
OPENED, CLOSED, LEFT = "opened", "closed", "left"
KEPT_US = 7 * 86_400_000_000  # how long older records stay, by the clock of the object store
_FORMAT = 1
FOLDER = "owners/"
OWNER = re.compile(r"owners/[0-9]{20}\.json")
APPLICATION = "statestore.owner"
"""The application in the transaction of a fence; its batch is the number of the owner."""
LOGGER = logging.getLogger("statestore")
ATTEMPTS = 10


@dataclass(frozen=True)
class OwnerRecord:
    """One record of the chain. ``owner`` is the number of the record with which this owner began; ``time`` is in epoch
    microseconds, by the clock of the owner; ``id`` is unique."""

    number: int
    event: str
    owner: int
    id: str
    store: str
    machine: str
    directory: str
    host: str
    pid: int
    time: int

    def __str__(self) -> str:
        moment = datetime.fromtimestamp(self.time / 1_000_000, UTC).isoformat(timespec="seconds")
        return f"process {self.pid} of {self.host} (since {moment}, local directory {self.directory})"


@dataclass
class Ownership:
    """The right to write to a store, from record ``number`` on. ``seen``: the newest version that has no later
    fence."""

    number: int
    machine: str
    directory: Path
    seen: int

    def is_over(self, log_state: LogState) -> bool:
        """Return whether another owner has fenced this one up to a log state."""
        if log_state.version <= self.seen:
            return False
        for transaction in log_state.versions.transactions_after(self.seen):
            if transaction is not None and transaction[0] == APPLICATION and transaction[1] > self.number:
                return True
        self.seen = log_state.version
        return False


def _machine_of(directory: Path) -> str:
    """Return the id of a local directory, and make one where it has none."""
    local = LocalStorage(directory)
    with contextlib.suppress(StorageExistsError):
        if not local.exists(MACHINE):
            local.create(MACHINE, uuid.uuid4().hex.encode())
    return local.read(MACHINE).decode(errors="replace").strip()


def newest_record(storage: Storage) -> OwnerRecord | None:
    """Return the newest record of a store; None before its first owner."""
    while True:
        listed = _listed(storage)
        if not listed:
            return None
        try:
            return _read(storage, _number(listed[-1]))
        except NotFoundError:  # removed with older ones since it was listed
            continue


def is_here(record: OwnerRecord, directory: Path) -> bool:
    """Return whether a record is that of an owner with this local directory."""
    return LocalStorage(directory).exists(MACHINE) and record.machine == _machine_of(directory)


def _take_number(
    storage: Storage, spec: StoreSpec, machine: str, directory: Path, before: OwnerRecord | None
) -> Ownership | None:
    """Take the number after that of ``before``, the newest record; None if another owner has it."""
    number = 1 if before is None else before.number + 1
    record = _record(spec.store_id, number, OPENED, number, machine, directory)
    try:
        storage.create(_owner_name(number), _encoded(record), identity_guard(spec.store_id))
    except StorageExistsError:
        return None
    _remove_old(storage)
    return Ownership(number, machine, directory, -1)


def _end_ownership(storage: Storage, spec: StoreSpec, ownership: Ownership, is_clean: bool) -> None:
    """Record that an owner closed the store (``is_clean``), or left writes that wait for a commit.

    If a record was made since, the store was taken over, and nothing is recorded.
    """
    event, number = CLOSED if is_clean else LEFT, ownership.number + 1
    record = _record(spec.store_id, number, event, ownership.number, ownership.machine, ownership.directory)
    with contextlib.suppress(StorageExistsError):
        storage.create(_owner_name(number), _encoded(record))


def fence(files: SegmentFiles, number: int | None) -> LogState:
    """Publish a commit without content, after which no commit that is on its way can appear; return the log state.

    ``number``: of the new owner; None: the same owner waits for the outcome of its own commit. Raises
    CommitUnknownError if it is unknown whether the fence is there.
    """
    log_state: LogState | None = None
    transaction = None if number is None else (APPLICATION, number)
    with writer_of(files).publishing, claim(files.storage) as claimed:
        for _ in range(MAX_ATTEMPTS):
            log_state, _lease = files.log.leased(log_state)
            entry = new_entry(log_state, "compact", NewFiles(claimed), transaction=transaction)
            try:
                write_entry(files.storage, entry)
            except ConflictError:
                continue
            return after_publish(files.storage, log_state, entry)
    raise too_many_conflicts(files)


def refused(spec: StoreSpec, record: OwnerRecord, waiting: list[Path]) -> ConflictError:
    """Return the error for a machine that may not write; ``waiting``: its own changelogs that were not committed."""
    name = spec.name
    if record.event == LEFT:
        what = (
            f"store {name!r} was closed by {record} while writes that were acknowledged there were not committed; "
            "they exist only there. Open it there and commit, or give these writes up"
        )
    else:
        what = (
            f"store {name!r} is open for writing in {record}, or was when that process ended. Writes that were "
            "acknowledged there and are not committed exist only there. Close it there; if the process is dead, open "
            "the store there again; if the machine is lost, give these writes up"
        )
    how = f" with open_store({name!r}, takeover=True); read_only=True reads the committed state"
    return ConflictError(ErrorCode.STORE_LOCKED, f"{what}{how}{_kept_here(waiting)}")


def overtaken(spec: StoreSpec, record: OwnerRecord | None, directory: Path, waiting: list[Path]) -> ConflictError:
    """Return the error for an owner from which another machine has taken the store."""
    who = "another machine" if record is None else str(record)
    left = _kept_here(waiting) or "; no acknowledged write waited for a commit"
    return ConflictError(
        ErrorCode.STORE_LOCKED,
        f"store {spec.name!r} was taken over by {who}, so this handle (local directory {directory}) no longer owns it, "
        f"and its writes since its last commit were not published{left}",
    )


def _kept_here(waiting: list[Path]) -> str:
    if not waiting:
        return ""
    return (
        f"; writes that were acknowledged on this machine and not committed are in {', '.join(map(str, waiting))}. "
        "take_back() of a handle that owns the store adds them to it"
    )


def _record(store: str, number: int, event: str, owner: int, machine: str, directory: Path) -> OwnerRecord:
    now = time.time_ns() // 1000
    return OwnerRecord(
        number, event, owner, uuid.uuid4().hex, store, machine, str(directory), socket.gethostname(), os.getpid(), now
    )


def _encoded(record: OwnerRecord) -> bytes:
    return sealed_json({"format": _FORMAT, **asdict(record)})


def _read(storage: Storage, number: int) -> OwnerRecord:
    """Return a record. Raises NotFoundError. A damaged one is that of an unknown owner, which has not closed."""
    data = storage.read(_owner_name(number))
    try:
        return _decoded(number, data)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return OwnerRecord(number, OPENED, number, "", "", "", "unknown", "an unknown machine", 0, 0)


def _decoded(number: int, data: bytes) -> OwnerRecord:
    document = json.loads(data)
    fields: dict[str, Any] = document["commit"]
    if json_checksum(fields) != document["checksum"] or fields.pop("format") != _FORMAT:
        raise ValueError("not a record of this format")
    record = OwnerRecord(**fields)
    if record.number != number or record.event not in (OPENED, CLOSED, LEFT):
        raise ValueError(f"it is record {record.number} of event {record.event!r}")
    datetime.fromtimestamp(record.time / 1_000_000, UTC)
    return record


def _listed(storage: Storage) -> list[ObjectInfo]:
    return [item for item in storage.list(FOLDER) if OWNER.fullmatch(item.name)]


def _number(item: ObjectInfo) -> int:
    return int(item.name[len(FOLDER) : len(FOLDER) + 20])


def _remove_old(storage: Storage) -> None:
    """Remove records that no listing, however late, takes for the newest one."""
    with contextlib.suppress(StateStoreError, OSError):
        listed = _listed(storage)
        newest = max(item.modified_us for item in listed)
        old = [item.name for item in listed[:-1] if item.modified_us < newest - KEPT_US]
        storage.delete_many(old)


def _owner_name(number: int) -> str:
    return f"{FOLDER}{number:020d}.json"


class MachineOwner:
    """The ownership of one store by this machine, as one handle has it. All methods but `check_shared` are called with
    the lock of this machine, except where they say otherwise. Nothing is done for a store in a local directory: there
    the lock of the directory decides.

    ``root`` is the directory of the store on this machine. ``forget_tier`` makes the hot tier there be recreated the
    next time.
    """

    def __init__(self, files: SegmentFiles, root: Path, forget_tier: Callable[[], None]) -> None:
        self.is_shared = local_root(files.storage) is None
        self._files, self._storage, self._spec = files, files.storage, files.spec
        self._root, self._forget_tier = root, forget_tier
        self._ownership: Ownership | None = None
        self._error: ConflictError | None = None

    @property
    def is_owner(self) -> bool:
        return self._ownership is not None

    def check_shared(self) -> None:
        """Raise InvalidInputError INVALID_OPTION for a store in a local directory, which nobody can take over."""
        if not self.is_shared:
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"store {self._spec.name!r} is in a local directory, where the lock of a writer ends with its process; "
                "leave out takeover, which is for stores in object stores",
            )

    def own(self, takeover: bool = False) -> None:
        """Become the owner. Raises ConflictError STORE_LOCKED while another machine is, unless ``takeover``.

        The log has to be read after this: what the former owner committed is in it by then, and nothing more follows.
        """
        if not self.is_shared:
            return
        machine = _machine_of(self._root)
        for _ in range(ATTEMPTS):
            log_state = self._files.log.newest()
            record = newest_record(self._storage)
            if record is not None and record.machine != machine:
                if record.event != CLOSED and not takeover:
                    raise refused(self._spec, record, self._kept(log_state))
                self._set_aside(log_state)
            ownership = _take_number(self._storage, self._spec, machine, self._root, record)
            if ownership is None:
                continue
            ownership.seen = log_state.version  # the fence of a later owner is made after this record
            if record is not None and record.event != CLOSED:
                fence(self._files, ownership.number)
            self._ownership = ownership
            return
        raise ConflictError(
            ErrorCode.STORE_BUSY, f"store {self._spec.name!r}: other machines open and close it all the time; try again"
        )

    def is_over(self, log_state: LogState) -> bool:
        """Return whether another machine has taken the store over, by a log state that was read just now."""
        return self._ownership is not None and self._ownership.is_over(log_state)

    def lose(self, log_state: LogState) -> None:
        """Note that another machine has taken the store over, after the lock of this machine was given up."""
        waiting: list[Path] = []
        record = None
        with contextlib.suppress(StateStoreError, OSError):
            waiting = self._kept(log_state)
            record = newest_record(self._storage)
        self._error = overtaken(self._spec, record, self._root, waiting)

    def raise_if_lost(self) -> None:
        """Raise ConflictError STORE_LOCKED if another machine has taken the store over from this handle."""
        if self._error is not None:
            raise ConflictError(self._error.code, self._error.message)

    def settle(self) -> LogState:
        """Wait until no commit of this owner is on its way any more; return the newest log state."""
        return fence(self._files, None)

    def end(self, is_clean: bool) -> None:
        """Record that this handle closes the store, ``is_clean``: without anything that waits for a commit.

        A machine that cannot record it has to be overtaken by others, and need not be told.
        """
        if self._ownership is not None:
            try:
                _end_ownership(self._storage, self._spec, self._ownership, is_clean)
            except (StateStoreError, OSError) as error:
                LOGGER.warning("store %r: it could not be recorded that it was closed: %s", self._spec.name, error)

    def forget(self) -> None:
        """Own nothing any more, and record nothing; without the lock of this machine, too."""
        self._ownership = None

    def _kept(self, log_state: LogState) -> list[Path]:
        """Return the changelogs of this machine with writes that were not committed."""
        aside = overtaken_changelogs(self._storage, self._spec, log_state, self._root)
        return [*aside, *waiting_changelogs(self._storage, self._spec, log_state, self._root)]

    def _set_aside(self, log_state: LogState) -> None:
        waiting = waiting_changelogs(self._storage, self._spec, log_state, self._root)
        if waiting:
            self._forget_tier()  # first, because its position names the changelogs
            set_aside(self._root, waiting)
            LOGGER.warning(
                "store %r: writes that this machine acknowledged were not committed before another machine took the "
                "store over; they are in %s, and take_back() adds them",
                self._spec.name,
                ", ".join(map(str, self._kept(log_state))),
            )
