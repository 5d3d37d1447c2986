"""Ranges of row keys that hold all rows of one key, or of one span of times, in each form of row keys.

    plain                  key
    window                 key | start:int64 | sequence:int32
    session                key | end:int64 | start:int64
    time-ordered window    00 | start:int64 | key | sequence:int32
    time-ordered session   00 | end:int64 | start:int64 | key
    grace buffer           as time-ordered window
    outer-join buffer      timestamp:int64 | side:1 | key
    subscription           length:int32 | foreign key | primary key

Times are epoch milliseconds. A range may hold rows of other keys, too, where keys differ in length: `rows_of_key`
leaves these out. A versioned store has a range in each of its segments: see `read_versioned`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.kafka_rows.versioned_store import TIME
from statestore.formats.kafka_rows.window_keys import BASE_PREFIX, MAX_TIME
from statestore.formats.rocksdb.key_ranges import KeyRange, successor
from statestore.formats.values.without_pandas import arrow_scalar

_MOST_BYTES = 2**31 - 1
_AROUND: dict[str, tuple[int, int]] = {
    "plain": (0, 0),
    "window": (0, 12),
    "session": (0, 16),
    "time-ordered window": (9, 4),
    "grace buffer": (9, 4),
    "time-ordered session": (17, 0),
    "outer-join buffer": (9, 0),
}
"""Bytes before and behind the key in a row key."""
_TIME_FIRST = ("time-ordered window", "time-ordered session", "grace buffer")


def key_range(form: str, key: bytes, first: int = 0, last: int = MAX_TIME) -> KeyRange:
    """The range of row keys with all rows of an encoded key, whose segment time is from ``first`` to ``last``.

    The segment time is the start of a window or the end of a session; both bounds are inclusive and count only where
    row keys have one. ``key`` of a subscription is the foreign key. Raises KeyError for an unknown form.
    """
    if form == "subscription":
        prefix = len(key).to_bytes(4, "big") + key
        return KeyRange(prefix, successor(prefix))
    front, back = _AROUND[form]
    if form == "plain":
        return KeyRange(key, key + b"\0")
    if form in ("window", "session"):
        low, high = TIME.pack(max(first, 0)), TIME.pack(last)
        if first <= 0:  # a negative time sorts behind all others
            return KeyRange(key + low, successor(key + b"\xff" * back))
        return KeyRange(key + low, successor(key + high + b"\xff" * (back - 8)) if last >= 0 else key + low)
    if form in _TIME_FIRST:
        return KeyRange(BASE_PREFIX, b"\x01", front - 1, key)
    return KeyRange(b"", None, front, key)


def begins_with_key(form: str) -> bool:
    """Return whether row keys of a form begin with the key, so that the range of a key has few other rows."""
    return form in ("plain", "window", "session", "subscription")


def time_range(form: str, first: int, last: int) -> KeyRange:
    """The range of row keys with all rows whose segment time is from ``first`` to ``last``, inclusive.

    Only time-ordered forms have their rows in order of time; of others, the range has all rows. Index rows are left
    out.
    """
    if form not in _TIME_FIRST:
        return KeyRange()
    low = BASE_PREFIX + TIME.pack(max(first, 0)) if first > 0 else BASE_PREFIX
    if first <= 0 or last < 0:  # a negative time sorts behind all others
        return KeyRange(low, b"\x01")
    return KeyRange(low, successor(BASE_PREFIX + TIME.pack(last)))


def disjoint_ranges(ranges: Sequence[KeyRange]) -> list[KeyRange]:
    """Ranges with the same keys, ascending, of which no two share a key.

    Ranges that overlap become one without a hole: the ranges of two keys do where one is the beginning of the other,
    and in time-ordered forms always.
    """
    found: list[KeyRange] = []
    for within in sorted((each for each in ranges if not each.empty), key=lambda each: each.first or b""):
        last = found[-1] if found else None
        if last is None or (last.stop is not None and last.stop <= (within.first or b"")):
            found.append(within)
        elif last != within:
            stop = None if last.stop is None or within.stop is None else max(last.stop, within.stop)
            found[-1] = KeyRange(last.first, stop)
    return found


def rows_of_keys(form: str, rows: pa.RecordBatch, keys: Collection[bytes]) -> pa.RecordBatch:
    """The rows of exactly these encoded keys, as `rows_of_key`."""
    if len(keys) == 1:
        return rows_of_key(form, rows, next(iter(keys)))
    if form == "subscription":
        parts = [rows_of_key(form, rows, key) for key in sorted(set(keys))]
        (joined,) = pa.Table.from_batches(parts, rows.schema).combine_chunks().to_batches() or [rows.slice(0, 0)]
        return joined
    front, back = _AROUND[form]
    stored = rows.column(0)
    inner = pc.binary_slice(stored, front, -back if back else _MOST_BYTES)
    kept = pc.and_(
        pc.greater_equal(pc.binary_length(stored), front + back),
        pc.is_in(inner, value_set=pa.array(sorted(set(keys)), pa.binary())),
    )
    if form in _TIME_FIRST:
        kept = pc.and_(kept, pc.equal(pc.binary_slice(stored, 0, 1), _scalar(BASE_PREFIX)))
    return rows.filter(kept)


def rows_of_key(form: str, rows: pa.RecordBatch, key: bytes) -> pa.RecordBatch:
    """The rows of exactly this encoded key among rows (key, value) of this form; index rows are left out.

    ``key`` of a subscription is the foreign key.
    """
    stored = rows.column(0)
    if form == "subscription":
        prefix = len(key).to_bytes(4, "big") + key
        return rows.filter(pc.equal(pc.binary_slice(stored, 0, len(prefix)), _scalar(prefix)))
    front, back = _AROUND[form]
    # Without a stop, pyarrow fails where a key is shorter than ``front`` + 1 bytes.
    inner = pc.binary_slice(stored, front, -back if back else _MOST_BYTES)
    kept = pc.and_(
        pc.equal(pc.binary_length(stored), arrow_scalar(len(key) + front + back, pa.int32())),
        pc.equal(inner, _scalar(key)),
    )
    if form in _TIME_FIRST:
        kept = pc.and_(kept, pc.equal(pc.binary_slice(stored, 0, 1), _scalar(BASE_PREFIX)))
    return rows.filter(kept)


def _scalar(data: bytes) -> pa.BinaryScalar:
    return arrow_scalar(data, pa.binary())
