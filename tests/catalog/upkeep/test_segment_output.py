"""Files that a compaction writes: when loops are loaded, how blocks are cut, and what is compressed."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.object_stores.doubles import memory_location
from support.object_stores.request_record import recorded

from statestore.catalog.catalog import Catalog
from statestore.catalog.reads import segment_files
from statestore.catalog.stores.versioned.natural_versioned import NaturalVersionedStore
from statestore.catalog.upkeep import compaction_rules
from statestore.catalog.upkeep.closure_folding import Numbers
from statestore.catalog.upkeep.compaction import _by_starts
from statestore.catalog.upkeep.compaction_rules import Rules
from statestore.formats.kernels import compiled_use
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.locations import Location


def test_loops_are_loaded_when_enough_rows_were_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_use, "_rewritten_before", 0)
    loaded: list[str] = []
    monkeypatch.setattr(compiled_use, "is_loaded", lambda: bool(loaded))
    monkeypatch.setattr("importlib.import_module", loaded.append)
    assert not compiled_use.rewrites_pay(3_999_999)
    assert loaded == []
    assert compiled_use.rewrites_pay(1)
    assert loaded == [compiled_use.COMPILED]


# In an object store, blocks of ended rows are cut by their starts, too, so that an old moment is in one place.

BLOCK_KEYS, BLOCK_COMMITS = 5_000, 16


def versions(rows: int, keys: int) -> tuple[Ints, Ints, Ints]:
    """Return key, start and end of ended versions; some end at their own start, where another one begins."""
    random = np.random.default_rng(5)
    key = random.integers(0, keys, rows)
    start = np.sort(random.integers(0, rows // 2, rows))
    order = np.lexsort((start, key))
    key, start = key[order], start[order]
    ended = np.flatnonzero(key[1:] == key[:-1])
    return key[ended], start[ended], start[ended + 1]


@pytest.mark.parametrize(("rows", "count"), [(40_000, 24), (3_000, 300), (20, 12), (9, 1), (1, 1)])
def test_blocks_by_starts_keep_all_rows_and_the_order_of_each_key(rows: int, count: int) -> None:
    key, start, end = versions(2 * rows, rows // 4 + 1)
    ends_first = np.argsort(end, kind="stable").astype(np.int32)
    blocks = [block for block in np.array_split(ends_first, count) if len(block)]
    found = _by_starts(start, blocks, Rules())
    assert all(len(block) for block in found)
    assert len(found) <= 4 * len(blocks) + 1
    placed = np.concatenate(found)
    assert np.array_equal(np.sort(placed), np.sort(ends_first))
    place = np.empty(len(placed), np.int64)
    place[placed] = np.arange(len(placed))
    block_of = np.repeat(np.arange(len(found)), [len(block) for block in found])[place]
    same = key[1:] == key[:-1]  # rows are sorted by key and start
    assert (block_of[1:][same] >= block_of[:-1][same]).all()


def test_an_old_moment_is_in_few_places() -> None:
    _, start, end = versions(80_000, 10_000)
    blocks = np.array_split(np.argsort(end, kind="stable").astype(np.int32), 24)
    moment = int(np.quantile(start, 0.24))

    def cost(blocks: Sequence[Numbers]) -> tuple[int, int]:
        """Return the ranges of rows and the rows of whole batches that a read as of the moment needs."""
        ranges, rows, at, behind = 0, 0, 0, -1
        for block in blocks:
            if end[block].max() > moment and start[block].min() <= moment:
                begun = int((start[block] <= moment).sum())
                needed = min(-(-begun // 256) * 256, len(block))
                ranges, rows, behind = ranges + (at != behind), rows + needed, at + needed
            at += len(block)
        return ranges, rows

    (before, rows_before), (after, rows_after) = cost(blocks), cost(_by_starts(start, blocks, Rules()))
    assert after <= before // 2
    assert rows_after < rows_before


def test_whole_blocks_come_with_those_that_a_moment_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_rules, "DEFAULT", Rules(block_rows=4_096))
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STATESTORE_LOCAL", str(tmp_path / "local"))
    catalog = Catalog(memory_location())
    catalog.create_store("prices", key={"item": "bigint"}, value={"price": "double", "note": "string"}).close()
    random = np.random.default_rng(7)
    expected: dict[int, float] = {}
    with catalog.open_store("prices", auto_compact=False) as store:
        for commit in range(BLOCK_COMMITS):
            keys = random.permutation(BLOCK_KEYS)[: BLOCK_KEYS // 2 + 500]
            numbers = random.random(len(keys))
            notes = [random.bytes(40).hex() for _ in numbers]
            times = commit * BLOCK_KEYS + np.arange(len(keys))
            store.put_all(pa.table({"item": keys, "price": numbers, "note": notes, "timestamp": times}))
            store.commit()
            if commit <= BLOCK_COMMITS // 2:
                expected.update(zip(keys.tolist(), numbers.tolist(), strict=True))
        store.compact(full=True)
        (closed,) = [m for m in store.table.files().log.newest().segments if m.role == "closed"]
    assert closed.file.tail_checksum  # it has a page table
    ends = [block.min_valid_to for block in closed.blocks]
    assert ends != sorted(ends)  # there are slices of starts
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "other"))
    segment_files._shared.clear()
    gc.collect()
    with catalog.open_store("prices", read_only=True) as store, recorded() as record:
        record.clear()
        answer = store.scan(as_of=(BLOCK_COMMITS // 2 + 1) * BLOCK_KEYS - 1, columns=["item", "price"]).read_all()
        assert dict(zip(answer["item"].to_pylist(), answer["price"].to_pylist(), strict=True)) == expected
        assert record.rounds <= 3, str(record)  # the ends of the files, then all batches of closed rows, then others


# In an object store every byte is fetched: compaction compresses there what it leaves as it is on a local disk.

NOTE_COMMITS, NOTE_ROWS, NOTE_KEYS = 6, 20_000, 30_000
VALUE = {"price": "double", "note": "string"}


def rows(commit: int) -> pa.Table:
    numbers = np.random.default_rng(commit).integers(0, NOTE_KEYS, NOTE_ROWS)
    return pa.table(
        {
            "item": [f"item-{number:07d}" for number in numbers],
            "price": numbers / 7,
            "note": [f"{number:064x}" for number in (numbers.astype(object) + 1) * 0x9E3779B97F4A7C15**3],
            "timestamp": commit * NOTE_ROWS + np.arange(NOTE_ROWS),
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
        for commit in range(NOTE_COMMITS):
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
                for moment in (NOTE_ROWS // 2, NOTE_COMMITS * NOTE_ROWS // 2, None)
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
        newest = rows(NOTE_COMMITS).to_pylist()
        store.put_all(rows(NOTE_COMMITS))
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
        store.scan(as_of=NOTE_COMMITS * NOTE_ROWS)  # only planned
        assert not [r for r in record.requests if any(name in r.key for name in segments)], str(record)


def test_compressed_rows_are_fetched_in_few_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    location = memory_location()
    stored(location)
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "other"))
    segment_files._shared.clear()
    gc.collect()
    with Catalog(location).open_store("prices", read_only=True) as store, recorded() as record:
        record.clear()
        assert store.scan(as_of=NOTE_COMMITS * NOTE_ROWS * 9 // 10).read_all().num_rows
        assert record.rounds <= 3, str(record)  # the ends of the files, batches that the moment cuts, and others
