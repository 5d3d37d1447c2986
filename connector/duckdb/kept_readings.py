"""The readings of moments that are kept for the next query, as many as there is room for.

A moment that is asked for again after its reading left is read anew. Nothing else depends on what is kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from statestore.connector.duckdb.kept_rows import COPIED_BYTES
from statestore.connector.duckdb.scan_source import ScanSource
from statestore.formats.state_table import Query

KEPT_READINGS = 64
KEPT_BYTES = 4 * COPIED_BYTES  # of copies for all of them


class KeptReadings:
    """The readings of all tables of a connection, the one asked for last at the end."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, Query], ScanSource] = OrderedDict()
        self._lock = threading.Lock()  # macros are bound by the threads of all cursors

    def get(self, key: tuple[str, Query], make: Callable[[], ScanSource]) -> ScanSource:
        """The reading of a table's moment, which ``make`` makes if none is kept."""
        with self._lock:
            found = self._kept.get(key)
        made = make() if found is None else found  # without the lock, because metadata may be read
        with self._lock:
            source = self._kept.setdefault(key, made)
            self._kept.move_to_end(key)
            copied = sum(each.reading.copied_bytes for each in self._kept.values())
            while len(self._kept) > 1 and (len(self._kept) > KEPT_READINGS or copied > KEPT_BYTES):
                copied -= self._kept.popitem(last=False)[1].reading.copied_bytes
        return source
