"""The key-value store as a dictionary, and its order as a sorted list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from models.rows import Encode, KeyValueRow, LoggedRow, no_value_bytes


def serialized(prefix: Any) -> bytes:
    """A prefix that is bytes already."""
    assert isinstance(prefix, bytes), "a prefix of another type needs encode_prefix"
    return prefix


@dataclass
class KeyValueModel:
    """``encode(key)`` gives the bytes that order keys, ``encode_prefix`` those of the argument of ``prefix_scan``.

    Keys are never None; a value of None deletes. The changelog holds every write in order.
    """

    encode: Encode
    encode_value: Encode = no_value_bytes
    encode_prefix: Encode = serialized
    dropped_records: int = 0  # always: nothing is ever too late
    rows: dict[bytes, KeyValueRow] = field(default_factory=dict)
    log: list[KeyValueRow] = field(default_factory=list)

    def get(self, key: Any) -> Any:
        row = self.rows.get(self.encode(key))
        return None if row is None else row.value

    def put(self, key: Any, value: Any) -> None:
        self.log.append(KeyValueRow(key, value))
        self._write(key, value)

    def _write(self, key: Any, value: Any) -> None:
        if value is None:
            self.rows.pop(self.encode(key), None)
        else:
            self.rows[self.encode(key)] = KeyValueRow(key, value)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """The old value; the new one is written only where there was none (and then logged even if it is None)."""
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def put_all(self, rows: Iterable[tuple[Any, Any]]) -> None:
        for key, value in rows:
            self.put(key, value)

    def delete(self, key: Any) -> Any:
        """The old value. Logged also where there was none."""
        old = self.get(key)
        self.put(key, None)
        return old

    def range(self, low: Any, high: Any) -> list[KeyValueRow]:
        """Both ends inclusive, None an open end, ascending; ends the wrong way round give nothing."""
        return [
            self.rows[key]
            for key in sorted(self.rows)
            if (low is None or self.encode(low) <= key) and (high is None or key <= self.encode(high))
        ]

    def reverse_range(self, low: Any, high: Any) -> list[KeyValueRow]:
        return self.range(low, high)[::-1]

    def all(self) -> list[KeyValueRow]:
        return self.range(None, None)

    def reverse_all(self) -> list[KeyValueRow]:
        return self.all()[::-1]

    def prefix_scan(self, prefix: Any) -> list[KeyValueRow]:
        """Keys whose bytes start with the prefix's, ascending."""
        start = self.encode_prefix(prefix)
        return [self.rows[key] for key in sorted(self.rows) if key.startswith(start)]

    def approximate_num_entries(self) -> int:
        """The number of entries, exact here."""
        return len(self.rows)

    def restore(self, records: Iterable[tuple[Any, Any]]) -> None:
        """(key, value) in offset order: the last one wins, whatever its time. Nothing is logged."""
        for key, value in records:
            self._write(key, value)

    def wipe_and_restore(self) -> None:
        """Another instance of the store, restored from the changelog as one batch."""
        self.rows = {}
        self.restore(self.log)

    def changelog(self) -> list[LoggedRow]:
        return [LoggedRow(self.encode(k), None if v is None else self.encode_value(v)) for k, v in self.log]
