"""The limits of one question: a deadline, and cancellation when the client has gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.state_table import Query, StateTable

SECONDS = 60.0
SECONDS_BETWEEN = 0.05  # in which those who wait look whether somebody waits for them


class NobodyWaits(Exception):
    """The page went on to another question, so the answer is not needed."""


ASKED: WeakValueDictionary[str, Limits] = WeakValueDictionary()
"""Questions that are being answered, by the names that pages gave them."""


@dataclass
class Limits:
    """The limits of one question. ``gone`` is set, by another thread, when nobody waits any more."""

    seconds: float = field(default_factory=lambda: SECONDS)
    gone: threading.Event = field(default_factory=threading.Event)
    begun: float = field(default_factory=time.monotonic)
    rows: int = 0  # that were read so far
    looked: int = 0  # rows that were looked at so far, of all of the read
    notices: list[str] = field(default_factory=list)  # why rows of the answer may not be current (`formats.notices`)
    of: int | None = None  # all rows that the read looks at; None: unknown, or there are several reads

    def check(self) -> None:
        """Raise NobodyWaits, or UnsupportedError EXPLORER_LIMIT if the time is over."""
        if self.gone.is_set():
            raise NobodyWaits
        if time.monotonic() - self.begun > self.seconds:
            raise UnsupportedError(
                ErrorCode.EXPLORER_LIMIT,
                f"the answer takes more than {self.seconds:g} seconds; narrow the question with a key or a filter, or "
                "ask it with statestore scan or statestore sql, which have no limit",
            )

    def heard(self, notices: Iterable[str]) -> None:
        """Add notices, each once."""
        self.notices += [each for each in dict.fromkeys(notices) if each not in self.notices]

    def are_passed(self) -> bool:
        """Return whether `check` would raise an error."""
        return self.gone.is_set() or time.monotonic() - self.begun > self.seconds

    def watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches as long as the limits hold."""
        self.check()
        for batch in batches:
            self.rows += batch.num_rows
            yield batch
            self.check()

    def batches(self, table: StateTable, query: Query) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a query as long as the limits hold, also where the splits before had no rows."""
        for split in table.splits(query):
            yield from self.watched(iter(table.read(split, query)))

    def read(self, table: StateTable, query: Query) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a query as long as the limits hold, for a question that reads nothing else.

        ``looked`` and ``of`` are then its progress. Rows that filters leave out count when their split has been read.
        """
        return self.watched(self._looked_at(table, query))

    def _looked_at(self, table: StateTable, query: Query) -> Iterator[pa.RecordBatch]:
        splits = table.splits(query)
        bounds = [split.rows for split in splits]
        known = [each for each in bounds if each is not None]
        self.of = sum(known) if len(known) == len(bounds) else None
        before = 0
        for split, bound in zip(splits, bounds, strict=True):
            self.check()
            seen = 0
            for batch in table.read(split, query):
                seen += batch.num_rows
                self.looked = before + min(seen, bound or 0)
                yield batch
            before += bound or 0
            self.looked = before
