"""Bulk commits of real size with compaction in the background, against all events of the stream sorted by numpy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import statestore
from statestore.catalog.commits import divided_records, open_rows
from statestore.catalog.upkeep import compaction_rules
from statestore.catalog.upkeep.background_compaction import background_of
from statestore.catalog.upkeep.compaction_rules import Rules

Ints = npt.NDArray[np.int64]
NEVER = 2**62


class Stream:
    """Events in order of arrival, each with its number as the value: hot keys, deletes, late and replaced records.

    A step of time has ten milliseconds. Events start at the first, late ones between two of them; a replaced record is
    followed at once by another of its key and time. No delete meets a value of its time, so that order decides nothing.
    """

    def __init__(self, keys: int, events: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.names = pa.array([f"key-{number:07d}-{'x' * (number % 13)}" for number in range(keys)])
        ranks = (keys ** random.random(events)).astype(np.int64) - 1
        self.key = np.where(random.random(events) < 0.5, ranks, random.integers(0, keys, events))
        self.deleted = random.random(events) < 0.03
        arrival = np.arange(events)
        back = random.integers(1, events // 20, events)
        is_late = random.random(events) < 0.01
        self.time = np.where(is_late, np.maximum(arrival - back, 0) * 10 + random.integers(1, 10, events), arrival * 10)
        again = 1 + np.flatnonzero(random.random(events - 1) < 0.01)
        self.key[again], self.time[again] = self.key[again - 1], self.time[again - 1]
        self.deleted[again] = self.deleted[again - 1] = False

    def table(self, first: int, stop: int) -> pa.Table:
        events = np.arange(first, stop)
        changes = pa.array(np.where(self.deleted[events], "delete", "insert"))
        names = self.names.take(pa.array(self.key[events]))
        return pa.table({"k": names, "v": events, "timestamp": self.time[events], "_change_type": changes})

    def rows(self, count: int) -> tuple[Ints, Ints, Ints]:
        """Return (event, start, end) of all versions after the first ``count`` events, by event."""
        key, time = self.key[:count], self.time[:count]
        order = np.lexsort((np.arange(count), time, key))
        same_key = np.append(key[order][1:] == key[order][:-1], False)
        following = np.append(time[order][1:], NEVER)
        counts = ~(same_key & (following == time[order]))  # the last event of each key and time
        order = order[counts]
        key, time = key[order], time[order]
        ends = np.where(np.append(key[1:] == key[:-1], False), np.append(time[1:], NEVER), NEVER)
        values = ~self.deleted[order]
        event, start, end = order[values], time[values], ends[values]
        by_event = np.argsort(event)
        return event[by_event], start[by_event], end[by_event]

    def check(self, table: pa.Table, expected: tuple[Ints, Ints, Ints]) -> None:
        """Compare rows with those expected: each once, with its key and its interval."""
        event = table["v"].to_numpy()
        order = np.argsort(event)
        assert np.array_equal(event[order], expected[0])
        assert table["k"].combine_chunks().equals(self.names.take(pa.array(self.key[event])))
        for name, times in zip(("valid_from", "valid_to"), expected[1:], strict=True):
            found = table[name].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).fill_null(NEVER).to_numpy()
            assert np.array_equal(found[order], times)


@dataclass(frozen=True)
class Size:
    keys: int
    commits: int
    rows: int
    every: int


def check_everything(store: statestore.VersionedStore, stream: Stream, versions: dict[int, int]) -> None:
    """Compare the newest moment, past moments, an old version and the whole history; ``versions``: events by commit."""
    count = max(versions.values())
    event, start, end = rows = stream.rows(count)
    stream.check(store.scan().read_all(), tuple(column[end == NEVER] for column in rows))
    for share in (0.03, 0.4, 0.93, 0.999):
        moment = int(count * 10 * share)
        alive = (start <= moment) & (moment < end)
        stream.check(store.scan(as_of=moment).read_all(), (event[alive], start[alive], end[alive]))
    stream.check(store.history().read_all(), rows)
    version = sorted(versions)[len(versions) // 2]
    event, start, end = rows = stream.rows(versions[version])
    stream.check(store.scan(version=version).read_all(), tuple(column[end == NEVER] for column in rows))


def run(folder: Path, size: Size, seed: int) -> None:
    stream = Stream(size.keys, size.commits * size.rows, seed)
    store = statestore.connect(folder).create_store("s", key={"k": "string"}, value={"v": "bigint"})
    versions: dict[int, int] = {}
    for number in range(1, size.commits + 1):
        store.put_all(stream.table((number - 1) * size.rows, number * size.rows))
        versions[store.commit()] = number * size.rows
        if number % 2:  # the next commit comes after the compaction, otherwise during it
            background_of(store._files).finish()
        if number % size.every == 0:
            check_everything(store, stream, versions)
    assert store.version > len(versions)  # it was compacted meanwhile
    assert store.metrics()["failed_compaction"] is None
    store.close()
    with statestore.connect(folder).open_store("s") as reopened:
        check_everything(reopened, stream, versions)


@pytest.mark.parametrize("memory", [divided_records.MEMORY, 300_000], ids=["whole", "divided"])
def test_small_commits_with_eager_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int) -> None:
    monkeypatch.setattr(divided_records, "MEMORY", memory)
    monkeypatch.setattr(open_rows, "MIN_KEYS", 500)
    rules = Rules(small_store=2_000, small_fan_in=3, fan_in=2, tier_rows=512, block_rows=1_024)
    monkeypatch.setattr(compaction_rules, "DEFAULT", rules)
    run(tmp_path, Size(keys=2_000, commits=9, rows=1_500, every=3), seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("size", [Size(60_000, 60, 20_000, 6), Size(250_000, 30, 100_000, 5)], ids=str)
def test_real_commits_with_compaction_as_delivered(tmp_path: Path, size: Size) -> None:
    run(tmp_path, size, seed=size.commits)
