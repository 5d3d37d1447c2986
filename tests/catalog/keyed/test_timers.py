"""Timers of a keyed backend are found by time, and in a table by key, which comes after the time in their bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.keyed.keyed_backends import keyed_store, local

from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind
from statestore.connector.tracked.track import value_indexes
from statestore.formats.values.key_groups import key_groups


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_timers_of_a_key_in_a_table(kind: SnapshotKind, tmp_path: Path) -> None:
    store = keyed_store(tmp_path, {"k": "string"}, 16)
    keys, times = pa.array(["a", "b", "c", "b"]), np.array([5, 6, -7, 8])
    with store.backend(directory=local(tmp_path)) as backend:
        timers = backend.timer_state("idle")
        timers.set(key_groups([keys], 16), times, [keys])
        assert sorted(timers.due(6).times.tolist()) == [-7, 5]
        store.commit(backend.snapshot(kind).result())
    for key, expected in (("a", [5]), ("b", [6, 8]), ("c", [-7]), ("d", [])):
        found = store.scan("idle", filter=("k", "=", key)).read_all()
        assert found.column("_due").cast(pa.int64()).to_pylist() == expected


def test_each_key_with_timers_is_named_once(tmp_path: Path) -> None:
    store = keyed_store(tmp_path, {"k": "string"}, 4)
    keys, windows = pa.array(["a", "b", "a", "c", "b"]), pa.array([1, 1, 1, 2, 2])
    with store.backend(directory=local(tmp_path)) as backend:
        timers, plain = backend.timer_state("ends", namespace={"window": "bigint"}), backend.timer_state("plain")
        timers.set(key_groups([keys], 4), np.arange(5), [keys], [windows])
        plain.set(key_groups([keys], 4), np.arange(5), [keys])
        assert sorted(backend.keys("ends", 1)) == ["a", "b"]
        assert sorted(backend.keys("ends", 2)) == ["b", "c"]
        assert sorted(backend.keys("plain")) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("names", "key", "others"),
    [
        (["word", "n"], ["word"], (1,)),
        (["Word", "n"], ["word"], (1,)),
        (["a", "A", "n"], ["a"], (1, 2)),
        (["a", "b"], ["b", "a"], ()),
    ],
)
def test_what_is_no_key_is_the_value(names: list[str], key: list[str], others: tuple[int, ...]) -> None:
    assert value_indexes(pa.schema([(name, pa.string()) for name in names]), key) == others


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_timers_of_a_key_in_several_namespaces(kind: SnapshotKind, tmp_path: Path) -> None:
    store = keyed_store(tmp_path, {"k": "string"}, 16)
    keys, windows, times = pa.array(["a", "a", "b"]), pa.array([10, 20, 10]), np.array([5, 5, 7])
    with store.backend(directory=local(tmp_path)) as backend:
        timers = backend.timer_state("ends", namespace={"window": "bigint"})
        timers.set(key_groups([keys], 16), times, [keys], [windows])
        timers.remove_at(key_groups([keys[:1]], 16), times[:1], [keys[:1]], [windows[:1]])
        store.commit(backend.snapshot(kind).result())
    with store.backend(directory=local(tmp_path)) as backend:
        due = backend.timer_state("ends", namespace={"window": "bigint"}).due(6)
        assert [column.to_pylist() for column in (*due.keys, *due.namespaces)] == [["a"], [20]]
    table = store.scan("ends").read_all()
    assert table.column_names == ["_due", "k", "window", "value"]
    assert sorted(table.select(["k", "window"]).to_pylist(), key=str) == [
        {"k": "a", "window": 20},
        {"k": "b", "window": 10},
    ]
