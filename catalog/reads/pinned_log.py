"""The state of a store's log that a statement, a transaction or a pinned warehouse reads: looked at once, shared.

All tables that are made of one store for such a reader share one `PinnedLog`: the rows, the history, the changes and
the metadata. It is empty until one of them is asked something, so that a reader who names ten stores and reads one of
them looks at one log.
"""

from __future__ import annotations

import threading

from statestore.catalog.log.leases import Lease
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.segment_files import SegmentFiles

Seen = tuple[LogState, Lease | None]


class PinnedLog:
    """The newest state of a log at the first look.

    ``keeps_files``: the state has a lease, so its files stay as long as this object exists, which therefore must not
    outlive a statement. Without it nothing is kept, and reads are planned on the newest files.
    """

    def __init__(self, keeps_files: bool = False) -> None:
        self.keeps_files = keeps_files
        self._seen: Seen | None = None
        self._lock = threading.Lock()

    def log_state(self, files: SegmentFiles, known: Seen | None = None) -> LogState:
        """Return the state. ``known`` is what the caller has just seen: nobody looks again for the first state.

        Raises NotFoundError STORE_REPLACED.
        """
        with self._lock:
            if self._seen is None:
                if self.keeps_files:
                    self._seen = files.leased()
                else:
                    self._seen = (files.log_state() if known is None else known[0]), None
            return self._seen[0]

    def leased(self, files: SegmentFiles) -> Seen:
        """Return the state with its lease, which only a pin that keeps files has."""
        assert self.keeps_files, "a pin without a lease"
        self.log_state(files)
        assert self._seen is not None
        return self._seen
