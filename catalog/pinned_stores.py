"""The stores of a warehouse as one statement, one transaction or one pinned warehouse reads them: each looked at once.

A store is looked at when the first of its tables is asked something: its state, its history, a metadata table, or one
state of a keyed store. All others of the store then have the same version. Stores have no commit in common, so two
stores of one warehouse are each at a version of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statestore.catalog.log.store_log import PinnedLog
    from statestore.formats.engine import Opening, Source


class OneOpening:
    """An opening whose source is opened once. It is pickled as the opening that it stands for."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._source: Source | None = None
        self._lock = threading.Lock()

    def open(self) -> Source:
        """Return the source, which is opened by the first call. Raises the errors of the opening."""
        with self._lock:
            if self._source is None:
                self._source = self._opening.open()
            return self._source

    def __reduce__(self) -> tuple[Callable[[Opening], Opening], tuple[Opening]]:
        return _itself, (self._opening,)


def _itself(opening: Opening) -> Opening:
    return opening


class PinnedStores:
    """The first look at each store, by the name of its folder. ``keeps_files``: as of `PinnedLog`."""

    def __init__(self, keeps_files: bool = False) -> None:
        self.keeps_files = keeps_files
        self._logs: dict[str, PinnedLog] = {}
        self._openings: dict[str, OneOpening] = {}
        self._lock = threading.Lock()

    def log(self, store: str) -> PinnedLog:
        """Return what is seen of the log of a store that is one table."""
        from statestore.catalog.log.store_log import PinnedLog  # an engine's state has no log

        with self._lock:
            return self._logs.setdefault(store, PinnedLog(self.keeps_files))

    def opening(self, store: str, opening: Opening) -> OneOpening:
        """Return the opening of a keyed store, ``opening`` at the first call."""
        with self._lock:
            return self._openings.setdefault(store, OneOpening(opening))
