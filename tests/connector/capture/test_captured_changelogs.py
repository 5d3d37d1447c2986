"""A changelog that is captured while it grows, is compacted and loses its beginning, against a model of its records."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import statestore
from statestore.catalog.capture.step import capture_next, table_of
from statestore.catalog.stores.versioned.captured_store import CapturedStore
from statestore.connector.capture.looks import SourceAt

TOPIC = "app-stock-changelog"
SETTINGS: dict[str, Any] = {"key_serde": "string", "value_serde": "long"}
RECORDS = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
START = 1_714_550_400_000
RETENTION = 40
PARTITIONS = 2


@dataclass(frozen=True)
class Made:
    """A record of the topic."""

    partition: int
    offset: int
    timestamp: int
    key: str
    value: int | None

    def row(self) -> dict[str, Any]:
        value = None if self.value is None else self.value.to_bytes(8, "big", signed=True)
        place = {"partition": self.partition, "offset": self.offset, "timestamp": self.timestamp}
        return {**place, "key": self.key.encode(), "value": value}


def commit_of(store: CapturedStore) -> int:
    """Return the commit that has the newest captured version."""
    captured = table_of(store).log_state().captured
    assert captured is not None
    return captured.commit


Key = tuple[str, int]
Interval = tuple[Key, int, int, int | None]


class Topic:
    """A topic whose records lie in one file, which is written anew."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.file, self.chance = folder / f"{TOPIC}.parquet", random.Random(seed)
        self.all: list[Made] = []
        self.there: list[Made] = []
        self.now = START

    def grow(self, count: int) -> None:
        for _ in range(count):
            self.now += self.chance.choice((0, 0, 1, 5))
            partition = self.chance.randrange(PARTITIONS)
            offset = sum(each.partition == partition for each in self.all)
            late = self.chance.choice((0, 0, 0, 3, 60))
            value = None if self.chance.random() < 0.25 else self.chance.randrange(-5, 5)
            made = Made(partition, offset, max(self.now - late, START), self.chance.choice("abcdefg"), value)
            self.all.append(made)
            self.there.append(made)
        self.write()

    def lose(self, kept: Any) -> None:
        self.there = [each for each in self.there if kept(each)]
        self.write()

    def compact(self, *, tombstones: bool) -> None:
        newest = {(each.partition, each.key): each for each in self.there}
        last = [[each for each in self.all if each.partition == number][-1] for number in range(PARTITIONS)]
        stays = [each for each in newest.values() if tombstones or each.value is not None or each in last]
        self.lose(lambda each: each in stays)

    def write(self) -> None:
        pq.write_table(pa.Table.from_pylist([each.row() for each in self.there], RECORDS), self.file)

    def capture(self, warehouse: Path, **settings: Any) -> statestore.Captures:
        found: statestore.Captures = statestore.capture(self.file.parent, warehouse, **SETTINGS, **settings)
        return found


def stream_times(records: Sequence[Made]) -> list[int]:
    newest: dict[int, int] = {}
    found = []
    for each in records:
        newest[each.partition] = max(newest.get(each.partition, -1), each.timestamp)
        found.append(newest[each.partition])
    return found


def writes(records: Sequence[Made], versioned: bool) -> dict[Key, dict[int, int | None]]:
    """The value of each key from each time on, None: none."""
    found: dict[Key, dict[int, int | None]] = {}
    for each, now in zip(records, stream_times(records), strict=True):
        if versioned and each.timestamp < now - RETENTION:
            continue
        found.setdefault((each.key, each.partition), {})[each.timestamp if versioned else now] = each.value
    return found


def intervals(records: Sequence[Made], versioned: bool) -> set[Interval]:
    found = set()
    for key, times in writes(records, versioned).items():
        ends = [*sorted(times)[1:], None]
        for start, end in zip(sorted(times), ends, strict=True):
            value = times[start]
            if value is not None:
                found.add((key, value, start, end))
    return found


def newest(records: Sequence[Made], versioned: bool) -> dict[Key, int]:
    return {key: value for key, value, _, end in intervals(records, versioned) if end is None}


def history(store: CapturedStore) -> set[Interval]:
    rows = store.history().read_all().to_pylist()
    ms = [{**row, "ends": row["valid_to"] and round(row["valid_to"].timestamp() * 1000)} for row in rows]
    return {
        ((row["key"], row["partition_id"]), row["value"], round(row["valid_from"].timestamp() * 1000), row["ends"])
        for row in ms
    }


def rows_of(store: CapturedStore, **asked: Any) -> dict[Key, int]:
    rows = store.scan(**asked).read_all().to_pylist()
    assert len({(row["key"], row["partition_id"]) for row in rows}) == len(rows)
    return {(row["key"], row["partition_id"]): row["value"] for row in rows}


def opened(warehouse: Path) -> CapturedStore:
    store = statestore.connect(warehouse).open_store(TOPIC)
    assert isinstance(store, CapturedStore)
    return store


@pytest.mark.parametrize("versioned", [False, True])
def test_each_capture_is_the_log_until_then(tmp_path: Path, versioned: bool) -> None:
    """Also its past, at the times of the records, though some come late."""
    settings = {"kind": "versioned", "retention": RETENTION} if versioned else {"kind": "key-value"}
    topic = Topic(tmp_path / "t", 3 + versioned)
    topic.file.parent.mkdir()
    lengths, commits = [], []
    for count in (1, 40, 0, 3, 1, 80, 7):
        topic.grow(count)
        done = topic.capture(tmp_path / "w", **settings)
        assert done.versions == (1 if count else 0)
        (state,) = done.states
        assert state.missing == () and state.newest == len(topic.all)
        if count:
            lengths.append(len(topic.all))
            commits.append(commit_of(opened(tmp_path / "w")))
    store = opened(tmp_path / "w")
    assert history(store) == intervals(topic.all, versioned)
    for length, commit in zip(lengths, commits, strict=True):
        assert rows_of(store, version=commit) == newest(topic.all[:length], versioned)
    topic.capture(tmp_path / "w2", **settings)
    assert history(opened(tmp_path / "w2")) == history(store)


@pytest.mark.parametrize("tombstones", [True, False])
def test_compaction_between_captures_leaves_a_gap_and_no_wrong_state(tmp_path: Path, tombstones: bool) -> None:
    """Also of keys whose tombstones are gone."""
    for seed in range(8):
        folder, warehouse = tmp_path / f"t{seed}", tmp_path / f"w{seed}"
        folder.mkdir()
        topic = Topic(folder, seed)
        topic.grow(50)
        topic.capture(warehouse, kind="key-value")
        topic.grow(60)
        topic.compact(tombstones=tombstones)
        topic.grow(4)
        (state,) = topic.capture(warehouse, kind="key-value").states
        assert state.missing == ((51, 113),)
        store = opened(warehouse)
        assert rows_of(store) == newest(topic.all, False)
        before = commit_of(store) - 1
        assert rows_of(store, version=before) == newest(topic.all[:50], False)


def test_a_late_record_that_compaction_left_ends_no_version(tmp_path: Path) -> None:
    """Compaction keeps the newest record by offset, which is not the version that holds."""
    folder = tmp_path / "t"
    folder.mkdir()
    topic = Topic(folder, 1)
    topic.all = [Made(0, 0, START + 10, "a", 1), Made(0, 1, START + 10, "b", 2), Made(1, 0, START, "c", 3)]
    topic.there = topic.all
    topic.write()
    settings = {"kind": "versioned", "retention": RETENTION}
    topic.capture(tmp_path / "w", **settings)
    topic.all = [*topic.all, Made(0, 2, START + 5, "a", None), Made(0, 3, START + 20, "b", None)]
    topic.all = [*topic.all, Made(0, 4, START + 30, "d", 4)]
    topic.there = [each for each in topic.all if (each.partition, each.offset) in ((0, 2), (0, 4), (1, 0))]
    topic.write()
    (state,) = topic.capture(tmp_path / "w", **settings).states
    assert state.missing == ((4, 5),)
    assert rows_of(opened(tmp_path / "w")) == newest(topic.all, True) == {("a", 0): 1, ("c", 1): 3, ("d", 0): 4}


def test_records_removed_after_their_capture_are_no_gap(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    topic = Topic(folder, 1)
    topic.grow(50)
    topic.capture(tmp_path / "w", kind="key-value")
    taken = set(topic.all)
    topic.grow(20)
    topic.lose(lambda each: each not in taken)
    (state,) = topic.capture(tmp_path / "w", kind="key-value").states
    assert state.missing == ()
    assert history(opened(tmp_path / "w")) == intervals(topic.all, False)


def test_a_capture_that_opened_the_topic_before_another_one_captured_more(tmp_path: Path) -> None:
    """The slower one goes on from there, and commits nothing twice."""
    folder = tmp_path / "t"
    folder.mkdir()
    topic = Topic(folder, 1)
    topic.grow(20)
    topic.capture(tmp_path / "w", kind="key-value")
    topic.grow(5)
    selected = {"keySerde": "string", "valueSerde": "long", "kind": "key-value"}
    slower = SourceAt(str(folder), selected).open()
    assert slower.at(TOPIC, slower.newest(TOPIC)).schema.names
    topic.grow(30)
    topic.capture(tmp_path / "w", kind="key-value")
    store = opened(tmp_path / "w")
    assert capture_next(store, slower) is None
    topic.grow(1)
    topic.capture(tmp_path / "w", kind="key-value")
    assert history(opened(tmp_path / "w")) == intervals(topic.all, False)


def test_a_topic_that_was_made_anew_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    topic = Topic(folder, 1)
    topic.grow(50)
    topic.capture(tmp_path / "w", kind="key-value")
    topic.all, topic.there = [], []
    topic.grow(30)
    with pytest.raises(statestore.ConflictError, match=r"CAPTURE_CONFLICT.*made anew"):
        topic.capture(tmp_path / "w", kind="key-value")
