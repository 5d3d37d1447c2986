"""Commits that raised an error and may have taken place: the facts that a handle keeps until the outcome is known."""

from __future__ import annotations

from dataclasses import dataclass

from statestore.catalog.log.entries import entry_name, was_committed
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage


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
