"""In an object store every byte is fetched: compaction compresses there what it leaves as it is on a local disk."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.object_stores.doubles import memory_location
from support.object_stores.request_record import recorded

from statestore.catalog.catalog import Catalog
from statestore.catalog.reads import segment_files
from statestore.catalog.stores.versioned.natural_versioned import NaturalVersionedStore
from statestore.formats.places.locations import Location

COMMITS, ROWS, KEYS = 6, 20_000, 30_000
VALUE = {"price": "double", "note": "string"}


def rows(commit: int) -> pa.Table:
    numbers = np.random.default_rng(commit).integers(0, KEYS, ROWS)
    return pa.table(
        {
            "item": [f"item-{number:07d}" for number in numbers],
            "price": numbers / 7,
            "note": [f"{number:064x}" for number in (numbers.astype(object) + 1) * 0x9E3779B97F4A7C15**3],
            "timestamp": commit * ROWS + np.arange(ROWS),
        }
    )


def created(location: Location | Path) -> NaturalVersionedStore:
    """Return a new store whose handle does not compact by itself."""
    catalog = Catalog(location)
    catalog.create_store("prices", key={"item": "string"}, value=VALUE).close()
    store: NaturalVersionedStore = catalog.open_store("prices", auto_compact=False)
    return store


def stored(location: Location | Path, compacted: bool = True) -> None:
    with created(location) as store:
        for commit in range(COMMITS):
            store.put_all(rows(commit))
            store.commit()
        if compacted:
            store.compact(full=True)


@pytest.fixture(autouse=True)
def new_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STATESTORE_LOCAL", str(tmp_path / "local"))


@pytest.mark.slow
def test_open_rows_are_compressed_in_objects_alone(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    found = {}
    for name, place in (("objects", memory_location()), ("disk", tmp_path / "warehouse")):
        stored(place)
        with Catalog(place).open_store("prices", read_only=True) as store:
            answers = [
                sorted(
                    store.scan(as_of=moment, columns=["item", "price", "valid_from"]).read_all().to_pylist(), key=str
                )
                for moment in (ROWS // 2, COMMITS * ROWS // 2, None)
            ]
            segments = store.table.files().log.newest().segments
        roles = {m.role: m.file.bytes / m.rows for m in segments}
        found[name] = answers, roles
    assert found["objects"][0] == found["disk"][0]
    objects, disk = found["objects"][1], found["disk"][1]
    assert objects["open"] < disk["open"] * 2 / 3
    assert objects["closed"] == pytest.approx(disk["closed"], rel=0.1)


def test_commits_points_and_the_feed_go_on_over_compressed_open_rows() -> None:
    location = memory_location()
    stored(location)
    with Catalog(location).open_store("prices", auto_compact=False) as store:
        newest = rows(COMMITS).to_pylist()
        store.put_all(rows(COMMITS))
        store.commit()
        price = {row["item"]: row["price"] for row in newest}
        found = {row["item"]: row["price"] for row in store.scan(columns=["item", "price"]).read_all().to_pylist()}
        assert price.items() <= found.items()
        last = store.get(newest[-1]["item"])
        assert last is not None
        assert last.value == {"price": newest[-1]["price"], "note": newest[-1]["note"]}
        assert store.changes(start_version=store.version).read_all().num_rows >= len(price)


def test_a_plan_fetches_only_closures_of_segments_that_it_need_not_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = memory_location()
    stored(location, compacted=False)
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "other"))
    segment_files._shared.clear()
    gc.collect()
    with Catalog(location).open_store("prices", read_only=True) as store, recorded() as record:
        segments = {meta.file.name for meta in store.table.files().log.newest().segments}
        record.clear()
        store.scan(as_of=COMMITS * ROWS)  # only planned
        assert not [r for r in record.requests if any(name in r.key for name in segments)], str(record)


def test_compressed_rows_are_fetched_in_few_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    location = memory_location()
    stored(location)
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "other"))
    segment_files._shared.clear()
    gc.collect()
    with Catalog(location).open_store("prices", read_only=True) as store, recorded() as record:
        record.clear()
        assert store.scan(as_of=COMMITS * ROWS * 9 // 10).read_all().num_rows
        assert record.rounds <= 3, str(record)  # the ends of the files, batches that the moment cuts, and others
