"""Replay of changelogs: the rows of real stores, and random logs against a dictionary."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from struct import pack, unpack
from typing import Any

import pyarrow as pa
import pytest
from support.kafka.changelog_loops import changelog_loops
from support.kafka.log_files import Logged, LogWriter
from support.kafka.made_logs import MadeLog, changelog_log, prefix, random_records
from support.kafka.real_applications import APPLICATIONS, Row, application, form_of, plain_rows
from support.parameters import mostly_slow

from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.changelog_at import replayed
from statestore.formats.kafka.changelogs.record_log import LogMoment
from statestore.formats.kafka.columns.store_kinds import logged_rows
from statestore.formats.kafka.logs.log_directory import log_partitions
from statestore.formats.kafka.logs.log_reading import open_log

__all__ = ["changelog_loops"]


def rows_of(log: MadeLog, moment: LogMoment, **options: Any) -> list[dict[str, Any]]:
    return [row for batch in replayed([log], moment, **options) for row in batch.to_pylist()]


def model(records: list[Logged], moment: LogMoment, partition: int = 0) -> list[dict[str, Any]]:
    """A dictionary to which the records of the prefix are applied one by one."""
    table = {record.key: record for record in prefix(records, moment, partition) if record.key is not None}
    rows = [record for record in table.values() if record.value is not None]
    return [record.row(partition) for record in sorted(rows, key=lambda record: record.offset)]


@pytest.mark.parametrize("seed", mostly_slow(range(30), 6))
@pytest.mark.usefixtures("changelog_loops")
def test_a_prefix_gives_the_newest_record_of_each_key(seed: int) -> None:
    records = random_records(seed, gaps=True)
    log = MadeLog(records)
    for moment in (
        LogMoment(),
        *(LogMoment({0: offset}) for offset in range(-1, 80, 7)),
        *(LogMoment(time=time) for time in range(890, 1600, 33)),
        LogMoment({0: 20}, 1100),
        LogMoment({1: 3}),
    ):
        assert rows_of(log, moment) == model(records, moment), moment


@pytest.mark.parametrize("most", [1, 40, 300])
def test_more_keys_than_a_pass_holds(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes over ranges of hashes give each key once; nothing is held between the readings."""
    from statestore.formats.bytes import hash_passes, newest_of_keys
    from statestore.formats.kernels import compiled

    assert compiled
    for module in (hash_passes, newest_of_keys):
        monkeypatch.setattr(module, "is_loaded", lambda: True)
    monkeypatch.setattr(newest_of_keys, "FIRST_SLOTS", 16)
    records = [Logged(n, 1000 + n, b"key-%d" % (n % 700), b"%d" % n if n % 9 else None) for n in range(2000)]
    found = rows_of(MadeLog(records, piece=64), LogMoment(), most_keys=most, held_bytes=0)
    assert sorted(found, key=lambda row: int(row["offset"])) == model(records, LogMoment())


def test_a_late_record_within_the_prefix_belongs_to_it() -> None:
    """Stream time only grows: a record that is late does not end a prefix, nor does it reopen one."""
    records = [Logged(n, time, b"%d" % n, b"v") for n, time in enumerate([10, 30, 5, 30, 31, 7])]
    assert [row["offset"] for row in rows_of(MadeLog(records), LogMoment(time=30))] == [0, 1, 2, 3]
    assert [row["offset"] for row in rows_of(MadeLog(records), LogMoment(time=29))] == [0]
    assert rows_of(MadeLog(records), LogMoment(time=9)) == []


def test_offsets_of_a_file_without_offsets_are_refused() -> None:
    log = MadeLog([Logged(0, 1, b"k", b"v")], offsets=False)
    assert rows_of(log, LogMoment(time=5))[0]["offset"] is None
    with pytest.raises(InvalidInputError, match="column offset"):
        rows_of(log, LogMoment({0: 0}))


def test_only_asked_columns_are_made() -> None:
    log = MadeLog([Logged(0, 1, b"k", b"v")])
    assert [batch.to_pylist() for batch in replayed([log], columns=("value", "key"))] == [
        [{"value": b"v", "key": b"k"}]
    ]


@pytest.mark.usefixtures("changelog_loops")
def test_aborted_puts_are_never_seen(tmp_path: Path) -> None:
    written = LogWriter()
    for number, commit in enumerate([True, False, True, False]):
        written.append([(1000 + number, b"k", b"%d" % number, ())], producer=1, transactional=True)
        written.end(1, commit)
    log = open_log(log_partitions(written.write(tmp_path / "t-0"))[0])
    assert [batch.to_pylist()[0]["value"] for batch in replayed([log])] == [b"2"]
    at_first = list(replayed([log], LogMoment({0: 3}), columns=("value",)))
    assert [batch.to_pylist() for batch in at_first] == [[{"value": b"0"}]]


# Real applications

NOT_ASKED = ("grace-join-buffer", "suppression-buffer")  # such stores answer no queries
SPECIAL = ("outer-join-buffer", "foreign-key-subscriptions", "versioned")
REPLAYED = [
    pytest.param(name, store["name"], id=f"{name}-{store['name']}")
    for name in APPLICATIONS
    for store in application(name).stores()
    if store["changelog"] is not None and store["kind"] not in (*NOT_ASKED, *SPECIAL)
]


def visible(store: dict[str, Any], part: dict[str, Any], row: Row) -> bool:
    """What a store still shows: windows by start and sessions by end, against its own stream time."""
    retention = store.get("retention_ms")
    if retention is None:
        return True
    time = row["session_end"] if "session" in store["kind"] else row["window_start"]
    grace = 1 if "session" in store["kind"] or "time-ordered" not in store["kind"] else 0
    return bool(time >= part["observed_stream_time"] - retention + grace)


@pytest.mark.parametrize(("name", "store"), REPLAYED)
def test_replay_gives_the_rows_of_the_real_store(name: str, store: str) -> None:
    found = next(each for each in application(name).stores() if each["name"] == store)
    for part in found["partitions"]:
        batches = list(replayed([changelog_log(name, found["changelog"], part["partition"])]))
        rows = [
            row
            for batch in batches
            for row in plain_rows(logged_rows(form_of(found), *_columns(batch)))
            if visible(found, part, row)
        ]
        assert not any(row["tombstone"] for row in rows)
        assert comparable(found, rows, part["rows"]) == comparable(found, part["rows"], part["rows"])


def _columns(batch: pa.RecordBatch) -> tuple[Any, ...]:
    return tuple(batch.column(name) for name in ("key", "value", "timestamp", "headers"))


def comparable(store: dict[str, Any], rows: list[Row], truth: list[Row]) -> Counter[str]:
    """Key, window and value, timestamp and headers where the store keeps them.

    A store that was upgraded in place does not know the timestamps and headers of old rows, which its changelog has:
    they are -1 and absent in the truth, and are not compared.
    """
    kind = "session" if "session" in store["kind"] else "window"
    unknown = {_place(kind, row) for row in truth if row.get("timestamp") == -1}
    found: Counter[str] = Counter()
    for row in rows:
        place = _place(kind, row)
        value = unpack(">f", pack(">f", row["value"]))[0] if store["value_serde"] == "float" else row["value"]
        kept = place not in unknown
        timed = kept and kind == "window" and ("timestamped" in store["kind"] or "headers" in store["kind"])
        headed = kept and "headers" in store["kind"]
        found[repr((place, value, row["timestamp"] if timed else None, row["headers"] if headed else None))] += 1
    return found


def _place(kind: str, row: Row) -> str:
    bounds = [row.get(f"{kind}_{bound}", row.get(bound)) for bound in ("start", "end")]
    return repr((row["key"], bounds))
