"""Commits that the threads of one handle share: a commit takes in the writes of all threads that wait.

While one commit is on its way, other threads go on writing. The next commit takes all their writes at once, and the
threads that still wait for their turn then find that their writes are committed. A commit that fails raises in the
thread that made it; each thread that waited makes a commit of its own, with all that is pending by then.

A commit that raised an error may have taken place. The handle keeps the facts (`CommitAttempt`) until the outcome is
known.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from statestore.catalog.commits.changelogs import Changelogs
from statestore.catalog.commits.publish_commit import Change
from statestore.catalog.log.entries import entry_name, was_committed
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage
from statestore.formats.errors import CommitUnknownError

KEPT = 1_024  # more than threads wait for one commit

Mark = TypeVar("Mark", int, tuple[str, int])
"""The place of a write among all writes of a handle: its number, or its end in the changelogs."""


def has_consumed(log_state: LogState, consumed: tuple[tuple[str, int], ...]) -> bool:
    """Return whether commits up to a log state have taken in these changelogs, up to these ends."""
    return all(log_state.changelogs.get(name, -1) >= end for name, end in consumed)


@dataclass(frozen=True)
class CommitAttempt:
    """A commit whose outcome is unknown.

    ``consumed`` are the changelogs with the ends that the commit names. ``parts`` is the number of pending parts that
    it takes in. ``dropped`` is its count of refused records. ``commit_id`` is the id of its entry where that is known.
    """

    consumed: tuple[tuple[str, int], ...]
    parts: int = 0
    dropped: int = 0
    commit_id: str = ""

    def took_place(self, storage: Storage, newest: LogState) -> bool:
        """Return whether the log has the commit; if it has, the commit is durable after this call. Raises
        StorageError."""
        if self.consumed and has_consumed(newest, self.consumed):
            storage.settle(entry_name(newest.version))
            return True
        return bool(self.commit_id) and was_committed(storage, self.commit_id)


@dataclass(frozen=True)
class Taken(Generic[Mark]):
    """The writes up to ``through``, which one commit takes in."""

    through: Mark
    attempt: CommitAttempt
    change: Callable[[LogState], Change | None]


class SharedCommits(Generic[Mark]):
    """The turns of the commits of one handle.

    ``turn`` is the lock of the thread whose commit is on its way; it is taken before the lock of the writes.
    ``attempt`` is a commit that raised and may have taken place.
    """

    def __init__(self) -> None:
        self.turn = threading.RLock()
        self.attempt: CommitAttempt | None = None
        self._commits: deque[tuple[Mark, int]] = deque(maxlen=KEPT)

    def version_with(self, write: Mark, commit: Callable[[], int]) -> int:
        """Return the version that has all writes up to ``write``: that of a commit which another thread made while this
        one waited, or what ``commit`` returns.
        """
        is_pending = not self._commits or self._commits[-1][0] < write
        with self.turn:
            version = self._version_of(write) if is_pending else None
            return commit() if version is None else version

    def publish(
        self,
        writes: AbstractContextManager[Any],
        changelogs: Changelogs,
        take: Callable[[], Taken[Mark] | int],
        commit: Callable[[Callable[[LogState], Change | None]], LogState],
        forget: Callable[[Taken[Mark], LogState], None],
    ) -> LogState | int:
        """Commit what is pending, without the lock of the writes (``writes``) while the commit is on its way.

        ``take`` returns what the commit takes in; or the version to return if there is nothing to commit. ``forget``
        removes it from the pending writes. Both are called with the lock.
        """
        with self.turn:
            with writes:
                taken = take()
                if isinstance(taken, int):
                    return taken
                changelogs.seal()
                self.attempt = taken.attempt
            try:
                log_state = commit(taken.change)
            except BaseException as error:
                if isinstance(error, CommitUnknownError):
                    self.attempt = replace(taken.attempt, commit_id=error.commit)
                with writes:
                    changelogs.unseal()
                raise
            with writes:
                self.attempt = None
                forget(taken, log_state)
                self._commits.append((taken.through, log_state.version))
            return log_state

    def _version_of(self, write: Mark) -> int | None:
        """Return the version of the commit that took this write in; None if it is not committed yet."""
        version = None
        for through, made in reversed(self._commits):
            if through < write:
                break
            version = made
        return version
