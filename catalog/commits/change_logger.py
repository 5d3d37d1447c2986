"""The change logger of 2016 (Kafka's ``StoreChangeLogger``): batched changelog writes that keep the last value of a
key.

Keys wait in two sets. When one set holds more keys than the threshold, both are sent: a null for each removed key, then
each dirty key with its current value in the store. Therefore the changelog does not have the order of the puts. A value
that was overwritten before it was sent is never logged, and a row that is gone by then is logged as a null.
"""

from __future__ import annotations

from collections.abc import Iterator

THRESHOLD = 100


class ChangeLogger:
    """The keys that wait to be sent."""

    def __init__(self) -> None:
        self._dirty: dict[bytes, None] = {}  # dicts serve as ordered sets
        self._removed: dict[bytes, None] = {}

    def add(self, row_key: bytes) -> bool:
        """Record that the row was written; return True if the waiting keys are due to be sent."""
        self._dirty[row_key] = None
        self._removed.pop(row_key, None)
        return self._are_many()

    def delete(self, row_key: bytes) -> bool:
        """Record that the row was removed; return True if the waiting keys are due to be sent."""
        self._removed[row_key] = None
        self._dirty.pop(row_key, None)
        return self._are_many()

    def waiting(self) -> Iterator[tuple[bytes, bool]]:
        """Yield (row key, whether the row was removed) of all waiting keys, in order. A key waits until `sent` is
        called.
        """
        for row_key in list(self._removed):
            yield row_key, True
        for row_key in list(self._dirty):
            yield row_key, False

    def sent(self, row_key: bytes) -> None:
        """Record that the row was logged."""
        self._removed.pop(row_key, None)
        self._dirty.pop(row_key, None)

    def _are_many(self) -> bool:
        return len(self._dirty) > THRESHOLD or len(self._removed) > THRESHOLD
