"""The change logger of 2016 (Kafka's ``StoreChangeLogger``): batched changelog writes that keep a key's last value.

Keys wait in two sets, and when one of them holds more than the threshold everything is sent: a null for each removed
key, then each dirty key with the value that the store has at that moment. So the changelog's order is not that of the
puts, a value that was overwritten before is never logged, and a row that is gone by then is logged as a null.
"""

from __future__ import annotations

from collections.abc import Iterator

THRESHOLD = 100


class ChangeLogger:
    """The keys that wait to be sent."""

    def __init__(self) -> None:
        self._dirty: dict[bytes, None] = {}  # sets that keep their order
        self._removed: dict[bytes, None] = {}

    def add(self, row_key: bytes) -> bool:
        """The row was written; True if it is time to send."""
        self._dirty[row_key] = None
        self._removed.pop(row_key, None)
        return self._are_many()

    def delete(self, row_key: bytes) -> bool:
        """The row was removed; True if it is time to send."""
        self._removed[row_key] = None
        self._dirty.pop(row_key, None)
        return self._are_many()

    def waiting(self) -> Iterator[tuple[bytes, bool]]:
        """(row key, whether it was removed) of everything to send, in order; each waits until it was `sent`."""
        for row_key in list(self._removed):
            yield row_key, True
        for row_key in list(self._dirty):
            yield row_key, False

    def sent(self, row_key: bytes) -> None:
        """The row was logged."""
        self._removed.pop(row_key, None)
        self._dirty.pop(row_key, None)

    def _are_many(self) -> bool:
        return len(self._dirty) > THRESHOLD or len(self._removed) > THRESHOLD
