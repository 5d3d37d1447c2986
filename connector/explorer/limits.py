"""The limits of one question: its time, and that somebody still waits for the answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError

SECONDS = 60.0


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
