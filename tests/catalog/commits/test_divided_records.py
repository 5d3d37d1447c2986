"""A commit of many records is resolved range by range: the same rows, one version, and no file where it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import statestore
from statestore.catalog.commits import divided_records, open_rows, publish_commit
from statestore.catalog.commits.divided_records import DividedRecords, needed
from statestore.catalog.stores.pending_writes import records_of
from statestore.catalog.upkeep import background_compaction
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StorageError

BUDGET = 200_000


def table(rows: int, keys: int, seed: int, first: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    names = [f"key-{key}" for key in random.integers(0, keys, rows).tolist()]
    changes = np.where(random.random(rows) < 0.1, "delete", "insert")
    times = first + np.arange(rows) - random.integers(0, 50, rows)
    return pa.table({"k": names, "v": np.arange(rows), "timestamp": times, "_change_type": changes})


def rows_of(store: statestore.VersionedStore) -> list[dict[str, Any]]:
    rows = store.history().read_all().drop_columns(["_commit_version"])
    listed: list[dict[str, Any]] = rows.sort_by([("k", "ascending"), ("valid_from", "ascending")]).to_pylist()
    return listed


@pytest.fixture
def _divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_rows, "MIN_KEYS", 100)
    monkeypatch.setattr(divided_records, "MEMORY", BUDGET)
    monkeypatch.setattr(background_compaction, "IDLE_SECONDS", 600.0)  # a slow machine is no pause


@pytest.mark.usefixtures("_divided")
@pytest.mark.quick("put_all")
@pytest.mark.parametrize("way", ["put_all", "write"])
def test_the_rows_are_those_of_small_commits(tmp_path: Path, way: str) -> None:
    catalog = statestore.connect(tmp_path)
    one, many = (catalog.create_store(name, key={"k": "string"}, value={"v": "bigint"}) for name in ("one", "many"))
    for number in range(3):
        data = table(3_000, 500, number, number * 3_000)
        if way == "write":
            one.write(data)
        else:
            one.put_all(data)
            one.commit()
        for first in range(0, 3_000, 500):
            many.write(data.slice(first, 500))
    assert one.version == 3
    segments = one._files.log.newest().segments
    assert sum(not meta.tombstone and meta.min_added == 3 for meta in segments) > 3
    assert rows_of(one) == rows_of(many)
    one.close()
    many.close()


def test_ranges_have_all_records_of_a_key_and_fit_the_budget(tmp_path: Path) -> None:
    with statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"}) as store:
        spec = store.spec
    columns = table(10_000, 2_000, 7).drop_columns(["_change_type"])
    times = columns["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    arrays = [columns["k"], columns["v"], times, pa.array(np.zeros(10_000, bool))]
    batches = pa.Table.from_arrays(arrays, schema=spec.record_schema()).to_batches(1_000)
    many = DividedRecords(tuple(batches), 1, lambda rows: records_of(spec, rows), BUDGET)
    ranges = list(many.ranges())
    assert 15 < len(ranges) < 60
    keys = [set(piece.keys[0].to_pylist()) for piece in ranges]
    assert sum(map(len, keys)) == len(set.union(*keys)) == len(set(columns["k"].to_pylist()))
    numbers = np.concatenate([piece.values[0].to_numpy() for piece in ranges])
    assert np.array_equal(np.sort(numbers), np.arange(10_000))
    assert all((np.diff(piece.values[0].to_numpy()) > 0).all() for piece in ranges)  # in order of arrival
    per_row = max(needed(batch) / batch.num_rows for batch in batches)
    assert max(map(len, ranges)) <= BUDGET / per_row * 1.05


@pytest.mark.usefixtures("_divided")
def test_a_failure_between_two_ranges_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"}) as store:
        for number in range(3):
            store.write(table(1_000, 500, number, number * 1_000))
        files = sorted((tmp_path / "s" / "segments").iterdir())
        before = rows_of(store)
        store.put_all(table(3_000, 500, 9, 3_000))
        calls = []

        def fail_later(*arguments: Any, **options: Any) -> Any:
            calls.append(arguments)
            if len(calls) == 4:
                raise StorageError(ErrorCode.DISK_FAILED, "no space left on device")
            return publish_commit.add_rows(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(divided_records, "add_rows", fail_later)
            with pytest.raises(StorageError):
                store.commit()
        assert sorted((tmp_path / "s" / "segments").iterdir()) == files
        assert rows_of(store) == before
        assert store.commit() == 4
        assert len(rows_of(store)) > len(before)
