"""Rows of keys at moments of their own, found by look-ups, against the model, and what is read for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.stores.shared_hashes import share_hashes
from support.stores.versioned_checks import HORIZON
from support.stores.versioned_model import valid_at
from support.stores.versioned_pair import Pair, random_puts
from support.stores.versioned_pair import small_thresholds as small_thresholds

import statestore
from statestore.catalog.reads.lookup import lookup_table, point_lookup, rows_at_times, value_readers
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.formats.kernels import compiled_use
from statestore.formats.segments import segment_write
from statestore.formats.segments.segment import Segment
from statestore.formats.state_table import Query

PROGRAMS = int(os.environ.get("STATESTORE_EXAMPLES", "3"))
ADDED = ["v", "valid_from", "valid_to", "_commit_version"]
WAYS = ("arrays", "compiled", "compiled, one by one", "history")


@pytest.fixture
def join_by(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that lets joins find rows in one of the ways."""

    def choose(way: str) -> None:
        monkeypatch.setattr(rows_at_times, "ROWS_A_LOOKUP", 1 << 40 if way == "history" else 0)
        monkeypatch.setattr(rows_at_times, "is_loaded", lambda: "compiled" in way)
        monkeypatch.setattr(point_lookup, "BULK", 1 << 40 if way == "compiled, one by one" else 1)
        monkeypatch.setattr(lookup_table, "WARM_READS", 0)
        monkeypatch.setattr(lookup_table, "is_loaded", lambda: "compiled" in way)
        if "compiled" in way:
            monkeypatch.setattr(compiled_use, "_read_before", compiled_use._COLD_BYTES)
        else:
            monkeypatch.setattr(lookup_table, "load_if_it_pays", lambda size: None)

    monkeypatch.setattr(rows_at_times, "HELD_ROWS", 3)
    monkeypatch.setattr(segment_write, "COMPRESSED_BATCH_ROWS", 3)
    return choose


def truth(pair: Pair, version: int, key: str, time: int) -> dict[str, Any]:
    """The added columns for a left row; times in milliseconds."""
    found = valid_at(pair.model.states[version].get(key, {}), time)
    retention, clock = pair.model.retention, pair.model.stream_times[version]
    late = retention is not None and time < clock - retention
    if found is None or found[0] is None or (late and found[2] is not None):
        return dict.fromkeys(ADDED)
    value, start, end = found
    return dict(zip(ADDED, (value, start, end, pair.model.added[version][key, start]), strict=True))


def check(pair: Pair, random: np.random.Generator, keys: list[str]) -> None:
    asked = [(key, time) for key in [*keys, "z"] for time in range(-1, HORIZON + 2)]
    asked = [asked[number] for number in random.integers(0, len(asked), len(asked))]
    left = pa.table({"key": [key for key, _ in asked], "t": pa.array([time for _, time in asked], pa.int64())})
    newest = pair.store.version
    for version in {newest, int(random.integers(0, newest + 1))}:
        right = [truth(pair, version, *each) for each in asked]
        for how in ("left", "inner"):
            joined = statestore.asof_join(
                left, pair.store, on={"key": "k"}, left_time="t", how=how, columns=ADDED, version=version
            )
            expected = [
                {"key": key, "t": time, **row}
                for (key, time), row in zip(asked, right, strict=True)
                if how == "left" or row["v"] is not None
            ]
            assert [_in_milliseconds(row) for row in joined.to_pylist()] == expected


def _in_milliseconds(row: dict[str, Any]) -> dict[str, Any]:
    times = {name: row[name] and round(row[name].timestamp() * 1000) for name in ("valid_from", "valid_to")}
    return {**row, **times}


def run_program(folder: Path, seed: int, join_by: Any, steps: int) -> None:
    """Run a random program of late records, deletes and compactions, and join after some of its commits."""
    random = np.random.default_rng(seed)
    keys = ["a", "b", "c", "", "é"][: random.integers(1, 6)]
    pair = Pair(
        str(folder), int(random.integers(1, 12)) if random.random() < 0.3 else None, bool(random.random() < 0.5)
    )
    for step in range(steps):
        pair.step("put_all", random_puts(random, keys))
        pair.step("commit", None)
        chance = random.random()
        if chance < 0.3:
            pair.step("compact", bool(chance < 0.12))
        elif chance < 0.35:
            pair.step("reopen", None)
        if step == steps - 1 or random.random() < 0.3:
            for way in WAYS:
                join_by(way)
                check(pair, random, keys)
    pair.store.close()


@pytest.mark.parametrize("shared", [False, True])
def test_each_row_is_that_of_its_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, join_by: Any, shared: bool
) -> None:
    if shared:
        share_hashes(monkeypatch)
    for seed in range(PROGRAMS):
        run_program(tmp_path / str(seed), seed + 1_000 * shared, join_by, 8)


@pytest.mark.slow
def test_each_row_is_that_of_its_moment_in_long_programs(tmp_path: Path, join_by: Any) -> None:
    for seed in range(3 * PROGRAMS):
        run_program(tmp_path / str(seed), 10_000 + seed, join_by, 8 + seed % 23)


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A store of 3,000 versions of 300 keys in blocks of compressed batches, which tests only read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_write, "COMPRESSED_BATCH_ROWS", 16)
        catalog = statestore.connect(tmp_path_factory.mktemp("prices"))
        with catalog.create_store(
            "prices", key={"item": "string"}, value={"price": "bigint", "note": "string"}
        ) as store:
            for commit in range(10):
                numbers = np.arange(300)
                table = pa.table(
                    {
                        "item": [f"item-{n:03d}" for n in numbers],
                        "price": numbers + 1_000 * commit,
                        "note": [f"note {n}" for n in numbers],
                        "timestamp": 1_000 * commit + numbers,
                    }
                )
                store.put_all(table)
                store.commit()
            store.compact(full=True)
            yield store


def read_by(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, int]]:
    """Return the set to which each read adds the column and the number of the batch that it needs."""
    read: set[tuple[str, int]] = set()
    column = Segment._column

    def watched(self: Segment, number: int, position: int, for_few: bool = False) -> Any:
        read.add((self.schema.names[position], number))
        return column(self, number, position, for_few)

    monkeypatch.setattr(Segment, "_column", watched)
    return read


def test_a_join_of_few_rows_reads_their_batches_only(
    prices: Any, monkeypatch: pytest.MonkeyPatch, join_by: Any
) -> None:
    join_by("arrays")
    left = pa.table({"item": ["item-007", "item-200", "none"], "at": [5_500, 2_100, 5_500]})
    statestore.asof_join(left, prices, on="item", left_time="at")
    read = read_by(monkeypatch)
    joined = statestore.asof_join(left, prices, on="item", left_time="at", columns=["price"])
    assert joined["price"].to_pylist() == [5_007, 1_200]
    assert {name for name, _ in read} <= {"item", "price"}
    assert len(read) <= 2 * 2  # for each of the two rows


def test_past_versions_and_many_rows_read_the_history(prices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look-ups know the newest version alone, and cost more than a read of a history that has fewer rows."""
    table: VersionedTable = prices.table
    query = Query(mode="history", columns=("price",), version=prices.version)
    few, many = (pa.array(["item-007"] * count) for count in (3, 30_000))
    assert rows_at_times.rows_at_times(table, [few], np.full(3, 5_500_000), query) is not None
    assert (
        rows_at_times.rows_at_times(
            table, [few], np.full(3, 5_500_000), Query(mode="history", version=prices.version - 1)
        )
        is None
    )
    monkeypatch.setattr(point_lookup, "reads_pay", lambda reads, more: False)
    assert rows_at_times.rows_at_times(table, [many], np.full(30_000, 5_500_000), query) is None


def test_values_are_gathered_by_column(prices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_readers, "user_reader", lambda *_: pytest.fail("a value was read row by row"))
    left = pa.table({"item": [f"item-{n:03d}" for n in range(300)], "at": pa.array([9_999] * 300, pa.int64())})
    joined = statestore.asof_join(left, prices, on="item", left_time="at")
    assert joined["price"].to_pylist() == [n + 9_000 for n in range(300)]
