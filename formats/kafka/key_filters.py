"""Filters on the columns of a store as bytes of row keys and as spans of segment times, so that less is read.

Both only leave out what cannot pass; the filters themselves are applied to decoded rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from statestore.formats.errors import StateStoreError
from statestore.formats.kafka.columns.serde_columns import cell_serde
from statestore.formats.kafka.columns.store_form import StoreForm, StoreKind
from statestore.formats.kafka_rows.serdes import serializer
from statestore.formats.values.filters import Filter, key_lookups, with_both_zeros
from statestore.formats.values.times import to_us

MOST_KEYS = 1000
"""Beyond this many keys, all rows are read. Ten of 200,000 keys take 13 ms, and 250 ms where all rows are read."""
_SEVERAL_BYTES = ("uuid",)
"""Serdes in which equal values have several forms: UUIDs may have upper-case letters."""
PARTITION = "partition_id"
_ASKABLE = ("plain", "window", "session", "time-ordered window", "time-ordered session", "versioned")


def placement_of(kind: StoreKind) -> tuple[str, ...]:
    """The columns that say where a row lies. So does the number of a duplicate: each instance of a store, and its
    changelog, counts by itself (``WindowKeySchema``, ``ChangeLoggingWindowBytesStore``)."""
    return (PARTITION, "sequence") if kind.duplicates else (PARTITION,)


def partitions_asked(filters: Sequence[Filter]) -> set[Any] | None:
    """The partitions to which filters limit an answer; None: all."""
    for item in filters:
        if item.column == PARTITION and item.op in ("=", "in"):
            return {item.value} if item.op == "=" else set(item.value)
    return None


def encoded_keys(form: StoreForm, kind: StoreKind, filters: Sequence[Filter]) -> list[bytes] | None:
    """The keys to which filters limit an answer, as the serde writes them, ascending; None: any key."""
    if kind.rows not in _ASKABLE or any(name in form.key_serde.lower() for name in _SEVERAL_BYTES):
        return None
    lookups = key_lookups(filters, ("key",))
    if lookups is None or len(lookups) > MOST_KEYS:
        return None
    try:
        lookups = with_both_zeros(lookups, [cell_serde(form.key_serde).type])
        if lookups is None or any(_has_nan(key) for (key,) in lookups):
            return None
        encode = serializer(form.key_serde)
        keys = {encode(key) for (key,) in lookups}
    except StateStoreError:  # a serde without a way back, or a value that it cannot have
        return None
    return sorted(key for key in keys if key is not None)


def _has_nan(key: Any) -> bool:
    """Return whether a key is or holds NaN, which has many forms: not every client writes Java's one."""
    return any(map(_has_nan, key)) if isinstance(key, list | tuple) else bool(key != key)


def time_bounds(rows: str, filters: Sequence[Filter]) -> tuple[int | None, int | None]:
    """The first and the last segment time (epoch milliseconds, inclusive) of rows that may pass; None: no bound.

    The segment time of a window is its start, that of a session is its end.
    """
    column = {"window": "window_start", "time-ordered window": "window_start"}.get(rows)
    column = "session_end" if rows.endswith("session") else column
    if column is None:
        return None, None
    lows, highs = [], []
    for item in filters:
        moment = _milliseconds(item.value)
        if moment is None:
            continue
        if item.column == column and item.op in ("=", ">", ">="):
            lows.append(moment)
        if item.column == column and item.op in ("=", "<", "<="):
            highs.append(moment + 1)
        if item.column == "session_start" and item.op in ("=", ">", ">="):
            lows.append(moment)
    return max(lows, default=None), min(highs, default=None)


def _milliseconds(value: Any) -> int | None:
    """The millisecond in which a moment lies; None for what is no moment."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return to_us(value, "a time in a filter") // 1000
