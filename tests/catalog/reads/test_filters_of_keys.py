"""Scans and histories of keys that a filter names, against the model, and what is read for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.stores.shared_hashes import share_hashes
from support.stores.versioned_checks import HORIZON, INTERVAL, rows_of
from support.stores.versioned_pair import Pair, random_puts
from support.stores.versioned_pair import small_thresholds as small_thresholds

import statestore
from statestore.catalog.reads import scan
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.segments import segment_write
from statestore.formats.segments.segment import Segment

PROGRAMS = int(os.environ.get("STATESTORE_EXAMPLES", "3"))


def check(pair: Pair, random: np.random.Generator, keys: list[str]) -> None:
    newest = pair.store.version
    for version in {newest, int(random.integers(0, newest + 1))}:
        named = [key for key in [*keys, "z"] if random.random() < 0.6]
        named += named[:1]
        only = ("k", "in", named)
        for time in random.integers(-1, HORIZON + 1, 4).tolist():
            found = rows_of(pair.store.scan(as_of=time, version=version, filter=only), *INTERVAL)
            assert sorted(found) == sorted(row for row in pair.model.state_at(version, time) if row[0] in named)
        low, high = sorted(random.integers(0, HORIZON, 2).tolist())
        expected = [row for row in pair.model.history(version) if row[0] in named]
        found = rows_of(pair.store.history(version=version, filter=only), *INTERVAL, "_commit_version")
        assert sorted(found) == sorted(expected)
        some = pair.store.history(version=version, filter=[only, ("v", ">", 3)], start_time=low, end_time=high)
        kept = [row[:4] for row in expected if row[1] > 3 and row[2] <= high and (row[3] is None or row[3] > low)]
        assert sorted(rows_of(some, *INTERVAL)) == sorted(kept)


def run_program(folder: Path, seed: int, steps: int) -> None:
    """Run a random program of late records, deletes and compactions, and ask for keys after some of its commits."""
    random = np.random.default_rng(seed)
    keys = ["a", "b", "c", "", "é"][: random.integers(1, 6)]
    pair = Pair(str(folder), None, bool(random.random() < 0.5))
    for step in range(steps):
        pair.step("put_all", random_puts(random, keys))
        pair.step("commit", None)
        chance = random.random()
        if chance < 0.3:
            pair.step("compact", bool(chance < 0.12))
        if step == steps - 1 or random.random() < 0.3:
            check(pair, random, keys)
    pair.store.close()


@pytest.mark.parametrize("chunk", [2, 1 << 17])
def test_rows_of_named_keys_are_those_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(segment_write, "COMPRESSED_BATCH_ROWS", 3)
    monkeypatch.setattr(scan, "CHUNK_ROWS", chunk)
    if chunk == 2:
        share_hashes(monkeypatch)
    for seed in range(PROGRAMS):
        run_program(tmp_path / str(seed), seed, 8)


@pytest.mark.slow
def test_rows_of_named_keys_are_those_of_the_model_in_long_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "CHUNK_ROWS", 2)
    for seed in range(3 * PROGRAMS):
        run_program(tmp_path / str(seed), 10_000 + seed, 8 + seed % 23)


def test_of_a_hot_key_the_row_of_the_moment_is_taken_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each index is looked into once, however many blocks have rows of the key."""
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("prices", key={"item": "string"}, value={"price": "bigint"}) as store:
        for commit in range(4):
            rows = np.arange(100 * commit, 100 * commit + 100)
            store.put_all(pa.table({"item": ["hot", "warm"] * 50, "price": rows, "timestamp": rows}))
            store.commit()
        store.compact(full=True)
        segments = statestore.sql(str(tmp_path), 'SELECT count(*) AS n FROM "prices$segments"')["n"][0].as_py()
        looked: list[str] = []
        taken: list[tuple[tuple[str, ...], int]] = []
        match, take = SegmentFiles.match, Segment.take_columns

        def watched(self: SegmentFiles, meta: Any, hashes: Any) -> Any:
            looked.append(meta.name)
            return match(self, meta, hashes)

        def taking(self: Segment, names: Any, rows: Any) -> Any:
            taken.append((tuple(names), len(rows)))
            return take(self, names, rows)

        monkeypatch.setattr(SegmentFiles, "match", watched)
        monkeypatch.setattr(Segment, "take_columns", taking)
        found = store.scan(as_of=250, filter=("item", "in", ["hot", "warm"]), columns=["item", "price"]).read_all()
    assert sorted(found["price"].to_pylist()) == [249, 250]
    assert len(looked) <= 2 * segments  # once for blocks whose rows all belong to the moment, once for others
    assert sum(rows for names, rows in taken if "price" in names) == 2
