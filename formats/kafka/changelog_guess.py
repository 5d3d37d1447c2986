"""Guesses of the kind and the serdes of a store from records of its changelog.

Key-value, timestamped and versioned stores log the same form, and windows always have a sequence number, so a guess is
about the form of keys (spec of ``WindowKeySchema``, ``SessionKeySchema``, ``TimestampedKeyAndJoinSideSerializer``):

    window              key | start:int64 | sequence:int32      a start near the record's timestamp
    session             key | end:int64 | start:int64           both near it
    outer-join buffer   timestamp:int64 | side:1 | key          side 0 or 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct

from statestore.formats.kafka.changelogs.record_log import RecordLog
from statestore.formats.kafka.stores.kind_detection import KindGuess

SAMPLED = 512
_TIME, _SEQUENCE = Struct(">q"), Struct(">i")
_DAY = 86_400_000
_NEAR = 3_660 * _DAY
_MOST_SEQUENCE = 1 << 24


@dataclass(frozen=True)
class _Record:
    key: bytes
    value: bytes | None
    timestamp: int

    def is_near(self, at: int) -> bool:
        """Return whether eight bytes of the key are a time of the record's years."""
        (time,) = _TIME.unpack_from(self.key, at if at >= 0 else len(self.key) + at)
        return bool(self.timestamp - _NEAR < time <= self.timestamp + _DAY and time >= 0)


def guess_logged(logs: Iterable[RecordLog]) -> KindGuess:
    """Guess the kind of the store behind a changelog, from its first records."""
    sample = [record for log in logs for record in _sample(log)]
    if not sample:
        return KindGuess(None, False, ("the changelog has no record with a key",))
    for kind, meaning, fits, cut in _FORMS:
        if all(map(fits, sample)):
            if kind == "timestamped-window" and any(_sequence(record) for record in sample):
                kind, meaning = "window-duplicates", f"{meaning}, with sequence numbers"
            return _guess(kind, f"{len(sample)} of {len(sample)} sampled keys {meaning}", sample, cut)
    evidence = f"keys of {len(sample)} sampled records are not those of windows, sessions or outer joins"
    return _guess("timestamped-key-value", evidence, sample, lambda key: key)


def _guess(kind: str, evidence: str, sample: list[_Record], cut: Callable[[bytes], bytes]) -> KindGuess:
    keys = tuple(dict.fromkeys(cut(record.key) for record in sample))
    values = tuple(dict.fromkeys(record.value for record in sample if record.value is not None))
    return KindGuess(kind, False, (evidence,), (keys,), (values,))


def _sample(log: RecordLog) -> Iterable[_Record]:
    """The first SAMPLED records of a log, those with a key. A source is free to cut its records into lots."""
    wanted = SAMPLED
    for records in log.read():
        chosen = records.first(wanted).batch(("key", "value", "timestamp"))
        for key, value, timestamp in zip(*(column.to_pylist() for column in chosen.columns), strict=True):
            if key is not None:
                yield _Record(key, value, timestamp)
        wanted -= len(chosen)
        if wanted <= 0:
            return


def _sequence(record: _Record) -> int:
    number: int = _SEQUENCE.unpack_from(record.key, len(record.key) - 4)[0]
    return number


def _is_window(record: _Record) -> bool:
    return len(record.key) >= 12 and record.is_near(-12) and 0 <= _sequence(record) < _MOST_SEQUENCE


def _is_session(record: _Record) -> bool:
    if len(record.key) < 16 or not (record.is_near(-8) and record.is_near(-16)):
        return False
    end, start = (_TIME.unpack_from(record.key, len(record.key) - back)[0] for back in (16, 8))
    return bool(start <= end)


def _is_outer_join(record: _Record) -> bool:
    return len(record.key) >= 9 and record.is_near(0) and record.key[8] in (0, 1)


_FORMS: tuple[tuple[str, str, Callable[[_Record], bool], Callable[[bytes], bytes]], ...] = (
    ("session", "end in the bounds of a session near the record's time", _is_session, lambda key: key[:-16]),
    ("timestamped-window", "end in the start of a window near the record's time", _is_window, lambda key: key[:-12]),
    ("outer-join-buffer", "begin with a time near the record's and a side", _is_outer_join, lambda key: key[9:]),
)
