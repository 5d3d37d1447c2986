"""The stores that the campaign attacks, one for each kind, with numbered writes and the truth after some of them.

A write is a number: its row, its key and its time follow from it, and every fourth one is a delete. The right answer
after a list of writes is computed here from Kafka's rules, never by a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import statestore

Row = tuple[Any, ...]
Rows = list[Row]
COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
MINUTE = 60_000
FAR = 1 << 45  # milliseconds
KEYS = 5  # of versioned stores


def key_of(number: int) -> str:
    """The key that a write goes to in a versioned store."""
    return f"k{number % KEYS}"


def is_delete(number: int) -> bool:
    return number % 4 == 3


def moment(number: int) -> int:
    """Epoch milliseconds: ascending except for every seventh, which comes late, before another of its key."""
    return number * 1000 - (8_500 if number % 7 == 2 and number > 8 else 0)


@dataclass(frozen=True)
class Subject:
    """A kind of store with its options. ``write`` makes a numbered write; ``live`` are the rows by all ways to read an
    open store, ``table`` those of a version; ``expected`` is the right result of both after some writes."""

    name: str
    kind: str
    options: dict[str, Any]
    write: Callable[[Any, int], None]
    live: Callable[[Any], Rows]
    expected: Callable[[Sequence[int]], Rows]
    expected_table: Callable[[Sequence[int]], Rows]
    rows_of: Callable[[Iterable[dict[str, Any]]], Rows]
    bulk: Callable[[Sequence[int]], pa.Table]
    columns: dict[str, Any] = field(default_factory=lambda: COLUMNS)

    def create(self, root: Path, name: str = "s") -> Any:
        return statestore.connect(root).create_store(name, kind=self.kind, **self.columns, **self.options)

    def table(self, store: Any, version: int | None = None) -> Rows:
        """All rows with their intervals, or the current ones where the times are those of commits."""
        reader = store.scan(version=version) if self.kind == "key_value" else store.history(version=version)
        return self.rows_of(reader.read_all().to_pylist())

    def values(self, store: Any) -> set[int]:
        """The values that one way of reading finds, for a store that others write to meanwhile."""
        if self.kind == "versioned":
            return {row.value for n in range(KEYS) for row in store.get_versions(f"k{n}")}
        if self.kind == "session":
            return {row.value for row in store.fetch_range(None, None)}
        if self.kind == "join_window":
            return {row.value for n in range(KEYS) for row in store.fetch(f"k{n}", 0)}
        return {row.value for row in store.all()}


class WrongAnswer(AssertionError):
    """Raised when two ways to read one store disagree."""


def agreed(answers: dict[str, Any]) -> Any:
    """The common answer of all ways to read."""
    first = next(iter(answers.values()))
    for way, answer in answers.items():
        if answer != first:
            raise WrongAnswer(f"{next(iter(answers))} answers {first!r:.300}, {way} {answer!r:.300}")
    return first


# --- versioned ---


def _put_versioned(store: Any, number: int) -> None:
    if is_delete(number):
        store.delete(key_of(number), timestamp=moment(number))
    else:
        store.put(key_of(number), number, timestamp=moment(number))


def _versions(numbers: Iterable[int]) -> dict[str, dict[int, int | None]]:
    found: dict[str, dict[int, int | None]] = {}
    for number in numbers:
        found.setdefault(key_of(number), {})[moment(number)] = None if is_delete(number) else number
    return found


def _expected_versions(numbers: Sequence[int]) -> Rows:
    """(key, value, from, to) of each version of a value."""
    rows: Rows = []
    for key, versions in _versions(numbers).items():
        times = sorted(versions)
        for time, until in zip(times, [*times[1:], None], strict=True):
            if versions[time] is not None:
                rows.append((key, versions[time], time, until))
    return sorted(rows, key=repr)


def _live_versioned(store: Any) -> Rows:
    rows: Rows = []
    for number in range(KEYS):
        key = f"k{number}"
        versions = [(key, r.value, r.valid_from, r.valid_to) for r in store.get_versions(key)]
        newest, current = store.get(key), max(versions, key=lambda row: row[2], default=None)
        if current is not None and current[3] is not None:
            current = None
        got = None if newest is None else (key, newest.value, newest.valid_from, newest.valid_to)
        agreed({"the newest of get_versions": current, "get": got})
        rows += versions
    return sorted(rows, key=repr)


def _intervals(found: Iterable[dict[str, Any]]) -> Rows:
    def ms(value: Any) -> int | None:
        return None if value is None else round(value.timestamp() * 1000)

    return sorted(((r["k"], r["v"], ms(r["valid_from"]), ms(r["valid_to"])) for r in found), key=repr)


def _bulk_versioned(numbers: Sequence[int]) -> pa.Table:
    return pa.table(
        {
            "k": [key_of(n) for n in numbers],
            "v": pa.array(numbers, pa.int64()),
            "timestamp": [moment(n) for n in numbers],
            "_change_type": ["delete" if is_delete(n) else "insert" for n in numbers],
        }
    )


# --- key-value ---


def _pair_key(number: int) -> str:
    return f"k{number - 2 if is_delete(number) else number}"  # a delete removes what the write before last put


def _put_pair(store: Any, number: int) -> None:
    if is_delete(number):
        store.delete(_pair_key(number))
    else:
        store.put(_pair_key(number), number)


def _expected_pairs(numbers: Sequence[int]) -> Rows:
    found: dict[str, int] = {}
    for number in numbers:
        if is_delete(number):
            found.pop(_pair_key(number), None)
        else:
            found[_pair_key(number)] = number
    return sorted(found.items(), key=repr)


def _live_pairs(store: Any) -> Rows:
    every = [tuple(row) for row in store.all()]
    single = [(f"k{n}", value) for n in range(64) if (value := store.get(f"k{n}")) is not None]
    answers = {
        "all": sorted(every, key=repr),
        "range": sorted((tuple(row) for row in store.range(None, None)), key=repr),
        "reverse_all": sorted((tuple(row) for row in store.reverse_all()), key=repr),
        "get": sorted([row for row in every if int(row[0][1:]) >= 64] + single, key=repr),
    }
    rows: Rows = agreed(answers)
    return rows


def _bulk_pairs(numbers: Sequence[int]) -> pa.Table:
    return pa.table(
        {
            "k": [_pair_key(n) for n in numbers],
            "v": pa.array(numbers, pa.int64()),
            "_change_type": ["delete" if is_delete(n) else "insert" for n in numbers],
        }
    )


# --- windows and sessions: a row for each number, none is removed ---


def _names(numbers: Sequence[int]) -> list[str]:
    return [key_of(n) for n in numbers]


def _put_window(store: Any, number: int) -> None:
    store.put(key_of(number), number, number * MINUTE)


def _expected_windows(numbers: Sequence[int]) -> Rows:
    return sorted(((key_of(n), n, n * MINUTE) for n in set(numbers)), key=repr)


def _live_windows(store: Any) -> Rows:
    answers = {
        "all": store.all(),
        "backward_all": store.backward_all(),
        "fetch_all": store.fetch_all(0, FAR),
        "fetch_range": store.fetch_range(None, None, 0, FAR),
        "fetch": [row for n in range(KEYS) for row in store.fetch(f"k{n}", 0, FAR)],
    }
    rows: Rows = agreed({k: sorted(((r.key, r.value, r.start) for r in v), key=repr) for k, v in answers.items()})
    return rows


def _window_rows(found: Iterable[dict[str, Any]]) -> Rows:
    return sorted(((r["k"], r["v"], round(r["window_start"].timestamp() * 1000)) for r in found), key=repr)


def _bulk_windows(numbers: Sequence[int]) -> pa.Table:
    return pa.table(
        {"k": _names(numbers), "v": pa.array(numbers, pa.int64()), "window_start": [n * MINUTE for n in numbers]}
    )


def _put_joined(store: Any, number: int) -> None:
    store.put(key_of(number), number, number * 1000)


def _expected_joined(numbers: Sequence[int]) -> Rows:
    return sorted(((key_of(n), n, n * 1000) for n in numbers), key=repr)


def _live_joined(store: Any) -> Rows:
    found = [row for n in range(KEYS) for row in store.fetch(f"k{n}", 0)]
    return sorted(((r.key, r.value, r.start) for r in found), key=repr)


def _joined_rows(found: Iterable[dict[str, Any]]) -> Rows:
    return sorted(((r["k"], r["v"], round(r["event_time"].timestamp() * 1000)) for r in found), key=repr)


def _bulk_joined(numbers: Sequence[int]) -> pa.Table:
    return pa.table(
        {"k": _names(numbers), "v": pa.array(numbers, pa.int64()), "event_time": [n * 1000 for n in numbers]}
    )


def _put_session(store: Any, number: int) -> None:
    store.put(key_of(number), number * 1000, number * 1000 + 500, number)


def _live_sessions(store: Any) -> Rows:
    answers = {
        "fetch_range": store.fetch_range(None, None),
        "backward_fetch_range": store.backward_fetch_range(None, None),
        "fetch": [row for n in range(KEYS) for row in store.fetch(f"k{n}")],
        "find_sessions": [row for n in range(KEYS) for row in store.find_sessions(f"k{n}", 0, FAR)],
    }
    rows: Rows = agreed({k: sorted(((r.key, r.value, r.start) for r in v), key=repr) for k, v in answers.items()})
    return rows


def _session_rows(found: Iterable[dict[str, Any]]) -> Rows:
    return sorted(((r["k"], r["v"], round(r["session_start"].timestamp() * 1000)) for r in found), key=repr)


def _bulk_sessions(numbers: Sequence[int]) -> pa.Table:
    return pa.table(
        {
            "k": _names(numbers),
            "v": pa.array(numbers, pa.int64()),
            "session_start": [n * 1000 for n in numbers],
            "session_end": [n * 1000 + 500 for n in numbers],
        }
    )


def _versioned(name: str, options: dict[str, Any]) -> Subject:
    return Subject(
        name,
        "versioned",
        options,
        _put_versioned,
        _live_versioned,
        _expected_versions,
        _expected_versions,
        _intervals,
        _bulk_versioned,
    )


SUBJECTS = {
    subject.name: subject
    for subject in (
        _versioned("versioned", {}),
        _versioned("versioned_kafka", {"serde": "kafka", "history_retention": "365 days"}),
        Subject(
            "key_value",
            "key_value",
            {},
            _put_pair,
            _live_pairs,
            _expected_pairs,
            _expected_pairs,
            lambda found: sorted(((r["k"], r["v"]) for r in found), key=repr),
            _bulk_pairs,
        ),
        Subject(
            "window",
            "window",
            {"retention": "365 days", "window_size": "1 minute"},
            _put_window,
            _live_windows,
            _expected_windows,
            _expected_windows,
            _window_rows,
            _bulk_windows,
        ),
        Subject(
            "join_window",
            "join_window",
            {"retention": "365 days", "window_before": "1 hour", "window_after": "180 days"},
            _put_joined,
            _live_joined,
            _expected_joined,
            _expected_joined,
            _joined_rows,
            _bulk_joined,
        ),
        Subject(
            "session",
            "session",
            {"retention": "365 days"},
            _put_session,
            _live_sessions,
            _expected_joined,
            _expected_joined,
            _session_rows,
            _bulk_sessions,
        ),
    )
}


def rebuild_options(subject: Subject) -> dict[str, Any]:
    """The options that a rebuild needs to make the same kind of store."""
    return {name: value for name, value in subject.options.items() if name != "serde"}
