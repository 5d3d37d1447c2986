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

from statestore.formats.errors import StateStoreError
from statestore.formats.kafka.buffers import decode_grace_buffered
from statestore.formats.kafka.joins import JOIN_PREFIX
from statestore.formats.kafka.stores.samples import Sample, StoreSamples
from statestore.formats.kafka_rows.list_serde import decode_list
from statestore.formats.kafka_rows.timestamped import decode_timestamped_headers, decode_with_headers
from statestore.formats.kafka_rows.versioned_store import LATEST_SEGMENT, TIME, decode_row, split_row_key

WINDOW_HEADERS, SESSION_HEADERS = "windowKeyValueWithHeaders", "sessionKeyValueWithHeaders"
HEADERS, TIMESTAMPED, DEFAULT = "keyValueWithTimestampAndHeaders", "keyValueWithTimestamp", "default"
YEAR = 366 * 24 * 3_600_000
_LATEST_TIME = 10_000 * YEAR
_SUBSCRIPTIONS = ("-subscription-store", "SUBSCRIPTION-STATE-STORE")
_SEQUENCE = 4


@dataclass(frozen=True)
class KindGuess:
    """A guess of a store's kind; ``kind`` is None where nothing can be said.

    ``evidence`` are sentences for users. ``certain``: no other kind of store has these files. ``keys`` and ``values``
    are the users' keys and values in the sampled rows, without what a store of this kind adds, for guesses of serdes.
    """

    kind: str | None
    certain: bool
    evidence: tuple[str, ...]
    keys: tuple[bytes, ...] = ()
    values: tuple[bytes, ...] = ()


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
    by_name = [part for part in _SUBSCRIPTIONS if part in found.store]
    newest = next((name for name in (HEADERS, TIMESTAMPED) if name in found.families), None)
    if newest is not None:
        if by_name and rows and all(_foreign_key_size(row.key) is not None for row in rows):
            return KindGuess(
                "foreign-key-subscriptions",
                False,
                (f"the name has {by_name[0]!r}", f"{len(rows)} of {len(rows)} sampled keys begin with a sized key"),
                tuple(row.key for row in rows),
                tuple(row.value for row in rows),
            )
        kind = "headers-key-value" if newest == HEADERS else "timestamped-key-value"
        keys, values = tuple(row.key for row in rows), tuple(map(_bare, rows))
        return KindGuess(kind, not by_name, (place, f"there is a family {newest}"), keys, values)
    versioned = _fitting(rows, _is_versioned)
    if rows and versioned == len(rows):
        return KindGuess(
            "versioned",
            False,
            (place, f"{versioned} of {len(rows)} sampled rows have the form of versions"),
            tuple(row.key[TIME.size :] for row in rows),
            tuple(value for row in rows for value in _version_values(row)),
        )
    joins = _fitting(rows, _is_outer_join)
    if rows and joins == len(rows):
        return KindGuess(
            "outer-join-buffer",
            False,
            (place, f"{joins} of {len(rows)} sampled rows have a time and a side in front of the key, and lists"),
            tuple(row.key[JOIN_PREFIX.size :] for row in rows),
            tuple(each[1:] for row in rows for each in decode_list(row.value) or () if each),
        )
    if not rows:
        return KindGuess(None, False, (place, "there are no rows to judge by"))
    evidence = (place, f"{len(rows)} sampled rows have the form of no other kind")
    return KindGuess("key-value", False, evidence, tuple(row.key for row in rows), tuple(row.value for row in rows))


def _foreign_key_size(key: bytes) -> int | None:
    size = int.from_bytes(key[:4], "big", signed=True) if len(key) >= 4 else -1
    return size if 0 <= size <= len(key) - 4 else None


def _is_versioned(row: _Row) -> bool:
    if len(row.key) < TIME.size:
        return False
    segment, _ = split_row_key(row.key)
    if segment == LATEST_SEGMENT:
        return len(row.value) >= TIME.size and -1 <= TIME.unpack_from(row.value)[0] < _LATEST_TIME
    if not 0 <= segment < _LATEST_TIME:
        return False
    try:
        decode_row(row.value)
    except StateStoreError:
        return False
    return True


def _version_values(row: _Row) -> list[bytes]:
    if split_row_key(row.key)[0] == LATEST_SEGMENT:
        return [row.value[TIME.size :]]
    return [value for _, value in decode_row(row.value).versions if value is not None]


def _is_outer_join(row: _Row) -> bool:
    if len(row.key) < JOIN_PREFIX.size:
        return False
    time, side = JOIN_PREFIX.unpack_from(row.key)
    if side > 1 or not 0 <= time < _LATEST_TIME:
        return False
    try:
        entries = decode_list(row.value)
    except StateStoreError:
        return False
    return bool(entries) and all(entry is not None and entry[:1] in (b"\0", b"\1") for entry in entries or ())


# Segmented stores


def _segmented(found: StoreSamples, rows: list[_Row]) -> KindGuess:
    place = "the databases are segments of time, as those of window and session stores"
    if rows and all(row.start == 0 and _is_grace_buffer(row) for row in rows):
        return KindGuess(
            "grace-join-buffer",
            False,
            (place, f"{len(rows)} of {len(rows)} sampled rows are records that a join holds back, all in segment 0"),
            tuple(row.key[9:-4] for row in rows),
            tuple(value for row in rows if (value := decode_grace_buffered(row.value).new) is not None),
        )
    forms = {name: _fitting(rows, fits) for name, fits in _KEY_FORMS.items()}
    form, count = max(forms.items(), key=lambda each: each[1]) if rows else (None, 0)
    counted = () if form is None else (f"{count} of {len(rows)} sampled row keys {_MEANING[form]}",)
    families = found.families
    time_first = form in ("time-ordered window", "time-ordered session")
    base = [row for row in rows if not (time_first and row.key[:1] != b"\0")]
    keys = tuple(_user_key(form, row.key) for row in base) if form is not None and count == len(rows) else ()
    values = tuple(map(_bare, base))
    if SESSION_HEADERS in families:
        if form == "time-ordered session":
            # Kafka 4.3 writes bare aggregates into the family for headers.
            bare = tuple(row.value for row in base)
            return KindGuess("time-ordered-headers-session", False, (place, *counted), keys, bare)
        return KindGuess("headers-session", False, (place, *counted), keys, values)
    if WINDOW_HEADERS in families:
        aggregates = tuple(_bare(row, timestamped=True) for row in base)
        return KindGuess("time-ordered-headers-window", True, (place, *counted), keys, aggregates)
    repeated = [row for row in base if form == "window" and row.key[-_SEQUENCE:] != bytes(_SEQUENCE)]
    numbered = (f"{len(repeated)} of them have a sequence number, so the store keeps duplicates",) if repeated else ()
    if HEADERS in families:
        kind = "headers-window-duplicates" if repeated else "headers-window"
        return KindGuess(kind, bool(repeated), (place, *counted, *numbered), keys, values)
    if TIMESTAMPED in families:
        return KindGuess("timestamped-window", True, (place, *counted), keys, values)
    if form is None:
        return KindGuess(None, False, (place, "there are no rows to judge by"))
    if form == "time-ordered window":
        timestamped = [row for row in base if _has_timestamp(row)]
        if base and len(timestamped) == len(base):
            evidence = (place, *counted, f"{len(base)} of {len(base)} values begin with a time near that of their key")
            return KindGuess(
                "time-ordered-timestamped-window", False, evidence, keys, tuple(row.value[8:] for row in base)
            )
        return KindGuess("time-ordered-window", False, (place, *counted), keys, values)
    kinds = {"session": "session", "time-ordered session": "time-ordered-session"}
    kind = kinds.get(form, "window-duplicates" if repeated else "window")
    return KindGuess(kind if count else None, False, (place, *counted, *numbered), keys, values)


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
_MEANING = {
    "time-ordered session": "begin with 00 and a session within the segment",
    "time-ordered window": "begin with 00 and a start within the segment",
    "session": "end in a session within the segment",
    "window": "end in a start within the segment",
}


def _is_grace_buffer(row: _Row) -> bool:
    if len(row.key) < 13 or row.key[0] != 0 or not 0 <= _time(row.key, 1) < _LATEST_TIME:
        return False
    try:
        decode_grace_buffered(row.value)
    except StateStoreError:
        return False
    return True


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
            return decode_timestamped_headers(row.value).value
        if row.family == SESSION_HEADERS:
            return decode_with_headers(row.value)[1]
    except StateStoreError:
        return row.value
    return row.value[8:] if row.family == TIMESTAMPED or timestamped else row.value


def _time(data: bytes, at: int) -> int:
    at += len(data) if at < 0 else 0
    return int.from_bytes(data[at : at + 8], "big", signed=True)


def _fitting(rows: Sequence[_Row], fits: Callable[[_Row], bool]) -> int:
    return sum(map(fits, rows))
