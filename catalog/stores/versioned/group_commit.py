"""Turns of the commits of one handle, which threads share: a commit takes in the writes of all threads that wait.

While one commit is on its way, other threads go on writing. The next commit takes all their writes at once, and the
threads that still wait for their turn then find that their writes are committed.
"""

from __future__ import annotations

import threading
from collections import deque

KEPT = 1_024  # more than threads wait for one commit


class CommitTurns:
    """The lock that a commit holds, and the versions of the last commits by the number of writes that they took in.

    Writes are numbered from 1 in the order of their acknowledgement.
    """

    def __init__(self) -> None:
        self.turn = threading.RLock()
        self._commits: deque[tuple[int, int]] = deque(maxlen=KEPT)

    @property
    def through(self) -> int:
        """Number of the last write that is committed; 0 if there is none."""
        return self._commits[-1][0] if self._commits else 0

    def note(self, through: int, version: int) -> None:
        """Record that the writes up to number ``through`` are in ``version``; the caller holds the turn."""
        self._commits.append((through, version))

    def version_of(self, write: int) -> int | None:
        """Return the version of the commit that took this write in; None if it is not committed yet."""
        return next((version for through, version in list(self._commits) if through >= write), None)
