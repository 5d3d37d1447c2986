"""State that the writers of a store in this process share between commits: their turns, and the index of open rows.

Readers need none of it, so it is not part of `SegmentFiles`, with which it lives and ends.
"""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from statestore.catalog.commits.open_row_lookup import OpenRows
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.places.rocksdb_forks import leave_in_forks


class WriterState:
    """The state of all handles of one store that write."""

    def __init__(self) -> None:
        # Held while a commit resolves and publishes its rows, and while a compaction publishes a step: a bulk commit
        # that lost the race for a version would have to resolve its rows again.
        self.publishing = threading.RLock()
        # The last commit of this process in an object store took the version that it expected. The next one does not
        # look for a newer version before, because its put of the entry finds one.
        self.is_alone = False
        self.bulk_commits = 0  # since the store was opened, or since the index was given up
        self.index: OpenRows | None = None  # of open rows; None while a commit has it (``open_rows``)
        self._lock = threading.Lock()
        leave_in_forks(self._in_fork)

    def exchange_index(self, index: OpenRows | None) -> OpenRows | None:
        """Exchange the index of open rows; the caller that takes one has it alone."""
        with self._lock:
            previous, self.index = self.index, index
        return previous

    def _in_fork(self) -> None:
        """Replace the locks in a forked child: a thread that the child does not have may have held them."""
        self.publishing, self._lock = threading.RLock(), threading.Lock()
        leave_in_forks(self._in_fork)


_states: WeakKeyDictionary[SegmentFiles, WriterState] = WeakKeyDictionary()


def writer_of(files: SegmentFiles) -> WriterState:
    """Return the state of the writers of a store in this process."""
    found = _states.get(files)
    return _states.setdefault(files, WriterState()) if found is None else found
