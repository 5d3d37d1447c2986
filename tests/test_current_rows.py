"""The index of open rows changes no answer: random bulk commits with it, without it, and against the model."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from versioned_model import Model

import statestore
from statestore.catalog import current_rows as module
from statestore.catalog.current_rows import CurrentRows
from statestore.catalog.row_state import newest_ends, views_of
from statestore.formats.key_hash import hash_keys
from statestore.formats.segment_meta import OPEN

KEYS = [f"k{number}" for number in range(12)]
ROWS = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.integers(0, 9), st.integers(0, 60)), max_size=12)
STEPS = st.lists(st.tuples(st.sampled_from(["write"] * 6 + ["compact", "foreign"]), ROWS), max_size=10)


@pytest.fixture(autouse=True)
def _small_commits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "MIN_KEYS", 1)
    yield


def as_table(rows: list[tuple[str, Any, int]]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([key for key, _, _ in rows], pa.string()),
            "v": pa.array([value for _, value, _ in rows], pa.int64()),
            "timestamp": pa.array([time for _, _, time in rows], pa.int64()),
            "_change_type": ["delete" if value is None else "insert" for _, value, _ in rows],
        }
    )


def listed(found: CurrentRows) -> list[tuple[int, str, int]]:
    names = [found.names[number] for number in found.segment]
    return sorted(zip(found.hashes.tolist(), names, found.row.tolist(), strict=True))


def open_rows(store: statestore.VersionedStore) -> list[tuple[int, str, int]]:
    """(key hash, segment, row) of every open row, by reading them all."""
    files, snapshot = store._files, store._files.snapshot()
    found = []
    for view in views_of(snapshot.segments, snapshot.closures):
        if view.meta.role != "belief":
            rows = np.flatnonzero(newest_ends(files, view) == OPEN)
            keys = [files.segment(view.meta).column_array("k").take(pa.array(rows))]
            found += [(h, view.meta.name, row) for h, row in zip(hash_keys(keys).tolist(), rows.tolist(), strict=True)]
    return sorted(found)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_commits_with_the_index_are_those_of_the_model(steps: list[tuple[str, list[tuple[str, Any, int]]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        catalog = statestore.connect(Path(folder) / "w")
        store = catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"})
        store._files.bulk_commits = 1
        model = Model()
        for what, rows in steps:
            if what == "compact":
                store.compact(full=True)
                continue
            if what == "foreign":  # as by another process: the index knows nothing of it
                kept, store._files.current = store._files.current, None
            store.write(as_table(rows))
            if what == "foreign":
                store._files.current = kept
            for row in rows:
                model.put(*row)
            found = store._files.current
            if isinstance(found, CurrentRows) and found.version == store._files.snapshot().version:
                assert listed(found) == open_rows(store)
        for key in KEYS:
            assert as_tuple(store.get(key)) == model.get(key)
            for time in range(0, 61, 7):
                assert as_tuple(store.get(key, as_of=time)) == model.get(key, time)
        store.close()


def as_tuple(record: statestore.Record | None) -> tuple[Any, ...] | None:
    return None if record is None else tuple(record)


def test_keys_that_share_a_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys in four hashes: the index gives up, or compares the keys."""
    from statestore.catalog import new_files, resolve

    def colliding(columns: Any) -> Any:
        return hash_keys(columns) % np.uint64(4)

    monkeypatch.setattr(resolve, "hash_keys", colliding)
    monkeypatch.setattr(new_files, "hash_keys", colliding)
    store = statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"})
    store._files.bulk_commits = 1
    for round_ in range(4):
        store.write(as_table([(key, round_, round_ * 10) for key in KEYS[round_ * 3 : round_ * 3 + 3]]))
    store.write(as_table([(key, 9, 50) for key in KEYS]))
    rows = store.scan(columns=["k", "v"]).read_all().to_pylist()
    assert sorted((row["k"], row["v"]) for row in rows) == sorted((key, 9) for key in KEYS)
    store.close()


def test_the_index_is_carried_on(tmp_path: Path) -> None:
    """A store that only this process writes builds it once."""
    store = statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"})
    built = []
    for round_ in range(6):
        store.write(as_table([(key, round_, round_ * 10 + 5) for key in KEYS[: 6 + round_]]))
        built.append(store._files.bulk_commits)
        assert open_rows(store)
    store.write(as_table([("k0", 1, 3), ("k1", None, 70)]))
    assert built == [1, 2, 2, 2, 2, 2] and store._files.bulk_commits == 2
    found = store._files.current
    assert isinstance(found, CurrentRows)
    assert listed(found) == open_rows(store)
    store.close()
