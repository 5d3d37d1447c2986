"""Bulk commits with hot keys, deletes, late, replaced and taken back records, against a model of single puts."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.stores.versioned_model import Model

import statestore
from statestore.catalog.commits import open_rows as index_module
from statestore.catalog.commits import record_timelines
from statestore.catalog.commits.claims import claim
from statestore.catalog.commits.version_ends import positions_among
from statestore.catalog.commits.writer_state import writer_of
from statestore.catalog.reads.belief import SegmentWithClosures
from statestore.catalog.upkeep.compaction_plan import Rewriting, Step
from statestore.catalog.upkeep.compaction_rules import DEFAULT
from statestore.catalog.upkeep.publish_compaction import _attempt
from statestore.formats.kernels import compiled_use

KEYS, ROWS, COMMITS = 300, 900, 7
USERS_OF_KERNELS = (
    "catalog.commits.open_row_lookup",
    "catalog.commits.open_rows",
    "catalog.commits.publish_commit",
    "catalog.commits.record_timelines",
    "catalog.commits.sorted_records",
    "catalog.commits.stored_rows",
    "formats.values.key_equality",
    "formats.values.xxh64",
)


@pytest.fixture(autouse=True)
def _small_commits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(index_module, "MIN_KEYS", 1)
    yield


def batch(random: np.random.Generator, number: int) -> list[tuple[str, int | None, int]]:
    """Rows of one commit: most in order of time, several at one time, hot keys among them."""
    keys = np.where(random.random(ROWS) < 0.5, np.minimum(random.zipf(1.3, ROWS), KEYS), random.integers(0, KEYS, ROWS))
    times = number * ROWS + np.arange(ROWS) // 3
    late = random.random(ROWS) < 0.02
    times = np.where(late, np.maximum(times - random.integers(0, 2 * ROWS, ROWS), 0), times)
    values = random.integers(0, 1000, ROWS)
    deleted = random.random(ROWS) < 0.06
    return [
        (f"key-{key}", None if dead else value, time)
        for key, value, time, dead in zip(*(c.tolist() for c in (keys, values, times, deleted)), strict=True)
    ]


def as_table(rows: list[tuple[str, Any, int]]) -> pa.Table:
    keys, values, times = zip(*rows, strict=True)
    kinds = ["delete" if value is None else "insert" for value in values]
    return pa.table({"k": keys, "v": pa.array(values, pa.int64()), "timestamp": times, "_change_type": kinds})


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_they_are_those_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, compiled: bool
) -> None:
    """With compactions of this process and of others between them; the index is built once."""
    loaded = compiled and importlib.import_module(compiled_use.COMPILED) is not None
    for module in USERS_OF_KERNELS:
        monkeypatch.setattr(f"statestore.{module}.is_loaded", lambda: loaded)
    paths: Counter[str] = Counter()
    for name in ("_go_on", "find_existing", "find_around", "replay"):
        monkeypatch.setattr(record_timelines, name, counted(paths, name, getattr(record_timelines, name)))

    random, model = np.random.default_rng(seed), Model()
    store = statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"})
    for number in range(COMMITS):
        rows = batch(random, number)
        store.write(as_table(rows))
        for row in rows:
            model.put(*row)
        if number in (3, 5):
            store.compact(full=True)
        if number == 5:
            index_module._noted.clear()  # as if another process had compacted
    assert paths["_go_on"] == COMMITS - 1 and all(paths[name] for name in ("find_existing", "find_around", "replay"))
    assert writer_of(store._files).bulk_commits == 2
    for time in [*random.integers(0, COMMITS * ROWS, 12).tolist(), COMMITS * ROWS]:
        rows = store.scan(columns=["k", "v"], as_of=time).read_all().to_pylist()
        found = {row["k"]: row["v"] for row in rows}
        assert len(found) == len(rows)
        expected = {key: model.get(key, time) for key in (f"key-{n}" for n in range(KEYS + 1))}
        assert found == {key: record[0] for key, record in expected.items() if record is not None}
    store.close()


def test_a_compaction_that_moves_no_open_row_leaves_the_index(tmp_path: Path) -> None:
    """One that only merges beliefs or ended rows; every key still has one open row after it."""
    rows = [(f"key-{number}", number, 0) for number in range(KEYS)]
    with statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"}) as store:
        for time in range(4):
            store.write(as_table([(key, value + time, time) for key, value, _ in rows]))
            if time == 1:
                store.compact(full=True)  # the index still has the numbers of the segments that are gone
                continue
            store.commit(transaction=("another", time))
            index_module.note_moves(store._files, store._log_state, {})
        found = store.scan(columns=["k", "v"]).read_all().to_pylist()
        assert sorted((row["k"], row["v"]) for row in found) == sorted((key, value + 3) for key, value, _ in rows)


def test_an_index_that_missed_a_compaction_does_not_follow_the_next_one(tmp_path: Path) -> None:
    """The second one moved open rows of a segment that the index does not know; no key may be taken for a new one."""
    groups = [[f"key-{number}" for number in range(KEYS)], [f"other-{number}" for number in range(KEYS)]]
    with statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"}) as store:
        for time, keys in enumerate(groups):
            store.write(as_table([(key, time, time) for key in keys]))
        first, second = (meta.name for meta in store._files.log.newest().segments)
        (merged,) = rewritten(store, {first})
        index_module._noted[store._files].clear()  # forgotten, as where too many rows were moved
        rewritten(store, {merged, second})
        store.write(as_table([(key, 2, 2) for keys in groups for key in keys]))
        found = store.scan(columns=["k", "v"]).read_all().to_pylist()
        assert sorted((row["k"], row["v"]) for row in found) == sorted((key, 2) for keys in groups for key in keys)


def rewritten(store: Any, names: set[str]) -> set[str]:
    """Rewrite these segments in one step of a compaction, and return the names of the new ones."""
    log_state = store._files.log.newest()
    chosen = tuple(SegmentWithClosures(meta) for meta in log_state.segments if meta.name in names)
    with claim(store._storage) as claimed:
        step = Step((Rewriting(chosen),), len(names) * KEYS)
        after = _attempt(store._files, log_state, step, DEFAULT, claimed, lambda: False)
    assert after is not None
    return {meta.name for meta in after.segments} - {meta.name for meta in log_state.segments}


def counted(calls: Counter[str], name: str, function: Any) -> Any:
    def count(*arguments: Any) -> Any:
        calls[name] += 1
        return function(*arguments)

    return count


def test_positions_among_pairs() -> None:
    random = np.random.default_rng(5)
    for size in (0, 1, 7, 200):
        pairs = sorted(zip(random.integers(0, 9, size).tolist(), random.integers(0, 30, size).tolist(), strict=True))
        wanted = [(int(group), int(time)) for group, time in random.integers(-1, 31, (50, 2))]
        columns = [np.array([pair[n] for pair in part], np.int64) for part in (pairs, wanted) for n in (0, 1)]
        expected = [sum(pair < one for pair in pairs) for one in wanted]
        assert positions_among(*columns).tolist() == expected
