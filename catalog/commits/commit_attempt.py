"""Commits that raised, and may have taken place: what a handle remembers of one until it knows."""

from __future__ import annotations

from dataclasses import dataclass

from statestore.catalog.log.entries import entry_name, was_committed
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage


@dataclass(frozen=True)
class CommitAttempt:
    """``consumed`` are the changelogs with the ends that the commit names, ``parts`` the number of pending parts that
    it takes in, ``dropped`` its count of refused records, ``commit_id`` the id of its entry where that is known."""

    consumed: tuple[tuple[str, int], ...]
    parts: int = 0
    dropped: int = 0
    commit_id: str = ""

    def took_place(self, storage: Storage, newest: LogState) -> bool:
        """Whether the log has the commit; if it has, the commit is durable now. Raises StorageError."""
        if self.consumed and all(newest.changelogs.get(name, -1) >= end for name, end in self.consumed):
            storage.settle(entry_name(newest.version))
            return True
        return bool(self.commit_id) and was_committed(storage, self.commit_id)
