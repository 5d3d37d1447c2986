"""Ownership of a store by a handle on this machine: a handle becomes the owner, notices that another machine took over,
and records that it has closed the store.

Nothing is done for a store in a local directory: there the lock of the directory decides.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from statestore.catalog.commits.owners.overtaken_changelogs import overtaken_changelogs, set_aside, waiting_changelogs
from statestore.catalog.commits.owners.store_owners import (
    CLOSED,
    Ownership,
    end_ownership,
    fence,
    machine_of,
    newest_record,
    overtaken,
    refused,
    take_number,
)
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import local_root
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, InvalidInputError, StateStoreError

LOGGER = logging.getLogger("statestore")
ATTEMPTS = 10


class MachineOwner:
    """The ownership of one store by this machine, as one handle has it. All methods but `check_shared` are called with
    the lock of this machine, except where they say otherwise.

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
        machine = machine_of(self._root)
        for _ in range(ATTEMPTS):
            log_state = self._files.log_state()
            record = newest_record(self._storage)
            if record is not None and record.machine != machine:
                if record.event != CLOSED and not takeover:
                    raise refused(self._spec, record, self._kept(log_state))
                self._set_aside(log_state)
            ownership = take_number(self._storage, self._spec, machine, self._root, record)
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
                end_ownership(self._storage, self._spec, self._ownership, is_clean)
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
