"""Guesses of a store's kind, from its place, its column families and a sample of its rows.

Nothing on disk names the kind. A guess comes with its evidence, and is certain only where place and families leave no
other kind. All others are suggestions: bytes of one kind can look like those of another.

    place       <task>/<store>/<store>.<start>: window or session; <task>/rocksdb/<store>: the others
    families    keyValueWithTimestamp: values with a timestamp (KIP-258); ...Headers: with headers (KIP-1271)
    rows        times in row keys that lie in the segment of their database; forms of values
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from statestore.formats.bytes.field_reader import NULL
from statestore.formats.errors import StateStoreError
from statestore.formats.kafka.columns.store_form import StoreForm
from statestore.formats.kafka.columns.store_kinds import stored_rows
from statestore.formats.kafka.stores.samples import Sample, StoreSamples
from statestore.formats.kafka.stores.serde_guesses import SerdeGuess, guess_serde
from statestore.formats.kafka_rows.byte_reader import Reader
from statestore.formats.kafka_rows.versioned_store import LATEST_SEGMENT, TIME, split_row_key

WINDOW_HEADERS, SESSION_HEADERS = "windowKeyValueWithHeaders", "sessionKeyValueWithHeaders"
HEADERS, TIMESTAMPED = "keyValueWithTimestampAndHeaders", "keyValueWithTimestamp"
YEAR = 366 * 24 * 3_600_000
_LATEST_TIME = 10_000 * YEAR
SUBSCRIPTIONS = ("-subscription-store", "SUBSCRIPTION-STATE-STORE")
"""Parts of the names that foreign-key joins give to their stores."""
_SEQUENCE = 4


Bytes = tuple[bytes, ...]


@dataclass(frozen=True)
class KindGuess:
    """A guess of a store's kind; ``kind`` is None where nothing can be said.

    ``evidence`` are sentences for users. ``certain``: no other kind of store has these files.

    ``keys`` and ``values`` are the users' keys and values in the sampled rows, without what a store of this kind adds,
    to guess serdes from. Two parts are the foreign and the primary keys of subscriptions, or the left and the right
    values of an outer join.
    """

    kind: str | None
    certain: bool
    evidence: tuple[str, ...]
    keys: tuple[Bytes, ...] = ((),)
    values: tuple[Bytes, ...] = ((),)

    def serdes(self) -> tuple[SerdeGuess, SerdeGuess]:
        """Guesses of the key's and the value's serde; two parts have two names with a slash between them."""
        return _joined(self.keys), _joined(self.values)


@dataclass(frozen=True)
class _Row:
    family: str
    start: int | None
    end: int | None
    key: bytes
    value: bytes

    def holds(self, time: int) -> bool:
        """Return whether a time can be in the row's segment."""
        assert self.start is not None
        end = self.start + YEAR if self.end is None else self.end
        return self.start <= time < end or (self.start == 0 and time >= 0 and self.end is None)


def detect_kind(found: StoreSamples) -> KindGuess:
    """Guess the kind of a store from its sample.

    Kinds are named as in `statestore.formats.kafka.columns.store_kinds`.
    """
    rows = [_Row(each.family, each.start, each.end, *row) for each in found.samples for row in each.rows]
    if not found.families:
        return KindGuess(None, False, ("no database of the store can be read",))
    guess = _segmented(found, rows) if found.segmented else _unsegmented(found, rows)
    return replace(guess, evidence=(*guess.evidence, *_families(found.families, found.samples)))


def _families(families: frozenset[str], samples: Sequence[Sample]) -> list[str]:
    with_rows = {sample.family for sample in samples}
    return [f"family {name} has {'rows' if name in with_rows else 'no rows'}" for name in sorted(families)]


# Un-segmented stores


def _unsegmented(found: StoreSamples, rows: list[_Row]) -> KindGuess:
    place = "the database is under rocksdb/, where stores without segments are"
    named = [part for part in SUBSCRIPTIONS if part in found.store]
    newest = next((name for name in (HEADERS, TIMESTAMPED) if name in found.families), None)
    if newest is not None:
        decoded = _decoded("foreign-key-subscriptions", rows) if named else None
        if decoded is not None:
            evidence = (f"the name has {named[0]!r}", _all("subscriptions of a foreign-key join", rows))
            keys = (_cells(decoded, "foreign_key"), _cells(decoded, "primary_key"))
            return KindGuess("foreign-key-subscriptions", False, evidence, keys)
        kind = "headers-key-value" if newest == HEADERS else "timestamped-key-value"
        evidence = (place, f"there is a family {newest}")
        return KindGuess(kind, not named, evidence, (_keys(rows),), (tuple(map(_bare, rows)),))
    if not rows:
        return KindGuess(None, False, (place, "there are no rows to judge by"))
    decoded = _decoded("versioned", rows) if all(map(_may_be_version, rows)) else None
    if decoded is not None:
        evidence = (place, _all("rows of versions", rows))
        return KindGuess("versioned", False, evidence, (_user_keys(rows),), (_cells(decoded, "value"),))
    decoded = _decoded("outer-join-buffer", rows)
    if decoded is not None:
        evidence = (place, _all("lists of a join's values, with a time and a side in front of the key", rows))
        sides = list(zip(decoded.column("side").to_pylist(), decoded.column("value").to_pylist(), strict=True))
        values = tuple(tuple(value for found, value in sides if found == side and value) for side in ("left", "right"))
        return KindGuess("outer-join-buffer", False, evidence, (_cells(decoded, "key"),), values)
    evidence = (place, f"{len(rows)} sampled rows have the form of no other kind")
    return KindGuess("key-value", False, evidence, (_keys(rows),), (tuple(row.value for row in rows),))


def _decoded(kind: str, rows: Sequence[_Row]) -> pa.RecordBatch | None:
    """The rows as those of a kind of store, with keys and values as bytes; None: they are not all of this kind."""
    if not rows or len({row.family for row in rows}) > 1:
        return None
    keys, values = pa.array(_keys(rows), pa.binary()), pa.array([row.value for row in rows], pa.binary())
    try:
        return stored_rows(StoreForm(kind), rows[0].family, keys, values)
    except StateStoreError:
        return None


def _may_be_version(row: _Row) -> bool:
    """Return whether a key has a segment id in front, and a latest row a time."""
    if len(row.key) < TIME.size or len(row.value) < TIME.size:
        return False
    segment, _ = split_row_key(row.key)
    time = TIME.unpack_from(row.value)[0] if segment == LATEST_SEGMENT else segment
    return 0 <= time < _LATEST_TIME


def _user_keys(rows: Sequence[_Row]) -> Bytes:
    return tuple(row.key[TIME.size :] for row in rows)


def _keys(rows: Sequence[_Row]) -> Bytes:
    return tuple(row.key for row in rows)


def _cells(batch: pa.RecordBatch, column: str) -> Bytes:
    return tuple(cell for cell in batch.column(column).to_pylist() if cell is not None)


def _all(what: str, rows: Sequence[_Row]) -> str:
    return f"{len(rows)} of {len(rows)} sampled rows are {what}"


def _joined(parts: Sequence[Bytes]) -> SerdeGuess:
    guesses = [guess_serde(part) for part in parts]
    if len(guesses) == 1:
        return guesses[0]
    evidence = "; ".join(guess.evidence for guess in guesses)
    return SerdeGuess("/".join(guess.name for guess in guesses), evidence, all(guess.certain for guess in guesses))


# Segmented stores


def _segmented(found: StoreSamples, rows: list[_Row]) -> KindGuess:
    place = "the databases are segments of time, as those of window and session stores"
    held_back = _decoded("grace-join-buffer", rows) if all(row.start == 0 for row in rows) else None
    if held_back is not None:
        evidence = (place, _all("records that a join holds back, all in segment 0", rows))
        return KindGuess("grace-join-buffer", False, evidence, (_cells(held_back, "key"),), (_cells(held_back, "new"),))
    forms = {name: _fitting(rows, fits) for name, fits in _KEY_FORMS.items()}
    form, count = max(forms.items(), key=lambda each: each[1]) if rows else (None, 0)
    counted = () if form is None else (f"{count} of {len(rows)} sampled row keys {_MEANING[form]}",)
    families = found.families
    time_first = form in ("time-ordered window", "time-ordered session")
    base = [row for row in rows if not (time_first and row.key[:1] != b"\0")]
    keys = (tuple(_user_key(form, row.key) for row in base) if form is not None and count == len(rows) else (),)
    values = (tuple(map(_bare, base)),)
    if SESSION_HEADERS in families:
        if form == "time-ordered session":  # Kafka 4.3 writes bare aggregates into the family for headers
            bare = (tuple(row.value for row in base),)
            return KindGuess("time-ordered-headers-session", False, (place, *counted), keys, bare)
        return KindGuess("headers-session", False, (place, *counted), keys, values)
    if WINDOW_HEADERS in families:
        aggregates = (tuple(_bare(row, timestamped=True) for row in base),)
        return KindGuess("time-ordered-headers-window", True, (place, *counted), keys, aggregates)
    repeated = [row for row in base if form == "window" and row.key[-_SEQUENCE:] != bytes(_SEQUENCE)]
    numbered = (f"{len(repeated)} of them have a sequence number, so the store keeps duplicates",) if repeated else ()
    if HEADERS in families:
        kind = "headers-window-duplicates" if repeated else "headers-window"
        return KindGuess(kind, bool(repeated), (place, *counted, *numbered), keys, values)
    if TIMESTAMPED in families:
        return KindGuess("timestamped-window", True, (place, *counted), keys, values)
    if form is None or not count:
        return KindGuess(None, False, (place, "there are no rows to judge by", *counted))
    if form == "time-ordered window" and base and all(map(_has_timestamp, base)):
        evidence = (place, *counted, f"{len(base)} of {len(base)} values begin with a time near that of their key")
        aggregates = (tuple(row.value[8:] for row in base),)
        return KindGuess("time-ordered-timestamped-window", False, evidence, keys, aggregates)
    kinds = {"window": "window-duplicates" if repeated else "window", **_KINDS}
    return KindGuess(kinds[form], False, (place, *counted, *numbered), keys, values)


def _is_window(row: _Row) -> bool:
    return len(row.key) >= 12 and row.holds(_time(row.key, -12))


def _is_session(row: _Row) -> bool:
    return len(row.key) >= 16 and _is_session_at(row, -16)


def _is_time_ordered_window(row: _Row) -> bool:
    if len(row.key) < 13:
        return False
    if row.key[0] == 1:
        return row.value == b"" and row.holds(_time(row.key, -12))
    return row.key[0] == 0 and row.holds(_time(row.key, 1))


def _is_time_ordered_session(row: _Row) -> bool:
    if len(row.key) < 17:
        return False
    if row.key[0] == 1:
        return row.value == b"" and _is_session_at(row, -16)
    return row.key[0] == 0 and _is_session_at(row, 1)


def _is_session_at(row: _Row, at: int) -> bool:
    """Return whether end and start at a byte of the key are a session in the segment, of at most a year."""
    at += len(row.key) if at < 0 else 0
    end, start = _time(row.key, at), _time(row.key, at + 8)
    return 0 <= start <= end and end - start <= YEAR and row.holds(end)


_KEY_FORMS: dict[str, Callable[[_Row], bool]] = {
    # In this order: of two forms that fit as many keys, the first is taken.
    "time-ordered session": _is_time_ordered_session,
    "time-ordered window": _is_time_ordered_window,
    "session": _is_session,
    "window": _is_window,
}
_KINDS = {
    "session": "session",
    "time-ordered session": "time-ordered-session",
    "time-ordered window": "time-ordered-window",
}
_MEANING = {
    "time-ordered session": "begin with 00 and a session within the segment",
    "time-ordered window": "begin with 00 and a start within the segment",
    "session": "end in a session within the segment",
    "window": "end in a start within the segment",
}


def _has_timestamp(row: _Row) -> bool:
    return len(row.value) >= 8 and abs(_time(row.value, 0) - _time(row.key, 1)) <= YEAR


def _user_key(form: str, key: bytes) -> bytes:
    if form == "window":
        return key[:-12]
    if form == "session":
        return key[:-16]
    return key[9:-4] if form == "time-ordered window" else key[17:]


def _bare(row: _Row, *, timestamped: bool = False) -> bytes:
    """The user's value in a row's value, by its family; ``timestamped``: so are values in family default."""
    try:
        if row.family in (HEADERS, WINDOW_HEADERS):
            return _behind_headers(row.value, timestamp=True)
        if row.family == SESSION_HEADERS:
            return _behind_headers(row.value)
    except StateStoreError:
        return row.value
    return row.value[8:] if row.family == TIMESTAMPED or timestamped else row.value


def _behind_headers(data: bytes, timestamp: bool = False) -> bytes:
    """The value behind ``length:varint | headers``, and a timestamp, in front (KIP-1271). Raises KAFKA_BYTES.

    headers      count:varint | (key length:varint | key | value length:varint, -1 for null | value)*, or nothing
    """
    reader = Reader("value with headers", data)
    headers = Reader("headers", reader.take(reader.varint("length of headers"), "headers"))
    if headers.left:
        for _ in range(headers.count(headers.varint("count"), 2, "headers")):
            headers.text(headers.take(headers.varint("length of a header's key"), "header key"), "header key")
            length = headers.varint("length of a header's value")
            headers.take(0 if length == NULL else length, "header value")
        headers.end()
    if timestamp:
        reader.i64("timestamp")
    return reader.rest()


def _time(data: bytes, at: int) -> int:
    at += len(data) if at < 0 else 0
    return int.from_bytes(data[at : at + 8], "big", signed=True)


def _fitting(rows: Sequence[_Row], fits: Callable[[_Row], bool]) -> int:
    return sum(map(fits, rows))
