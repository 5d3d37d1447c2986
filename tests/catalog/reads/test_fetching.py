"""Requests are the cost of an object store: each kind of call has a budget of requests and of rounds of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.object_stores.doubles import memory_location
from support.object_stores.request_record import Record, recorded

from statestore.catalog.catalog import Catalog
from statestore.catalog.reads import segment_files
from statestore.catalog.stores.versioned.natural_versioned import NaturalVersionedStore
from statestore.formats.places.locations import Location

COMMITS = {"many_commits": 170, "large_commits": 12}


def rows(commit: int, count: int) -> pa.Table:
    """Changes of random keys among ten times as many, at the times of one commit."""
    numbers = np.random.default_rng(commit).integers(0, 10 * count, count)
    return pa.table(
        {
            "item": [f"item-{number:07d}" for number in numbers],
            "price": numbers / 7,
            "note": [f"note {number % 97}" for number in numbers],
            "timestamp": commit * 1_000 + np.arange(count) % 1_000,
        }
    )


def with_deletes(table: pa.Table) -> pa.Table:
    """Make each twentieth row a delete."""
    kinds = ["delete" if number % 20 == 0 else "insert" for number in range(table.num_rows)]
    return table.append_column("_change_type", [kinds])


def stored(commits: int, count: int) -> Location:
    """Return a warehouse with a store of so many commits of ``count`` rows."""
    location = memory_location()
    value = {"price": "double", "note": "string"}
    with Catalog(location).create_store("prices", key={"item": "string"}, value=value) as store:
        for commit in range(commits):
            store.put_all(rows(commit, count))
            store.commit()
    return location


@pytest.fixture(scope="module")
def many_commits() -> Location:
    return stored(COMMITS["many_commits"], 10)


@pytest.fixture(scope="module")
def large_commits() -> Location:
    return stored(COMMITS["large_commits"], 50_000)


@pytest.fixture(autouse=True)
def new_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without caches."""
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STATESTORE_LOCAL", str(tmp_path / "local"))
    segment_files._shared.clear()
    gc.collect()


COUNTS = {"many_commits": 10, "large_commits": 50_000}


@pytest.fixture(params=["many_commits", pytest.param("large_commits", marks=pytest.mark.slow)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def location(request: pytest.FixtureRequest, kind: str) -> Location:
    found: Location = request.getfixturevalue(kind)
    return found


@pytest.fixture
def opened(location: Location, kind: str) -> Iterator[tuple[NaturalVersionedStore, Record]]:
    """A store that was just opened on a new machine, and the record of the requests since."""
    with recorded() as record, Catalog(location).open_store("prices", auto_compact=False) as store:
        record.clear()
        yield store, record


def check(record: Record, rounds: int, requests: int | None = None) -> None:
    assert record.rounds <= rounds, str(record)
    assert requests is None or len(record) <= requests, str(record)


@pytest.mark.slow
def test_opening(location: Location, kind: str) -> None:
    with recorded() as record, Catalog(location).open_store("prices"):
        check(record, rounds=3, requests=70)


def test_a_point_read_as_of_a_moment(opened: tuple[NaturalVersionedStore, Record], kind: str) -> None:
    store, record = opened
    written = rows(2, COUNTS[kind]).to_pylist()
    for number, row in enumerate(written[:9:3]):
        newest = [other for other in written if other["item"] == row["item"]][-1]
        found = store.get(row["item"], as_of=2_999)
        assert found is not None
        assert found.value == {"price": newest["price"], "note": newest["note"]}
        check(record, rounds=4, requests=40 if number == 0 else 20)
        record.clear()


def test_a_point_read_of_a_key_that_is_not_there(opened: tuple[NaturalVersionedStore, Record]) -> None:
    store, record = opened
    assert store.get("item", as_of=2_500) is None
    check(record, rounds=4, requests=40)


def test_the_history_of_a_key(opened: tuple[NaturalVersionedStore, Record], kind: str) -> None:
    """The history is read as a table and as records."""
    store, record = opened
    item = rows(2, COUNTS[kind]).to_pylist()[0]["item"]
    expected: dict[int, float] = {}
    for commit in range(COMMITS[kind]):
        changes = rows(commit, COUNTS[kind])
        expected |= {row["timestamp"]: row["price"] for row in changes.filter(pc.field("item") == item).to_pylist()}
    found = store.history(key=item).read_all()
    check(record, rounds=4, requests=60)
    starts = [int(start.timestamp() * 1000 + 0.5) for start in found["valid_from"].to_pylist()]
    assert dict(zip(starts, found["price"].to_pylist(), strict=True)) == expected
    record.clear()
    versions = list(store.get_versions(item, ascending=True))
    check(record, rounds=1, requests=2)
    assert {version.valid_from: version.value["price"] for version in versions} == expected


@pytest.mark.slow
def test_the_history_of_a_key_fetches_single_rows_of_a_large_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = stored(1, 1_000_000)
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "other machine"))
    segment_files._shared.clear()
    gc.collect()
    with Catalog(location).open_store("prices", auto_compact=False) as store:
        assert store.history(key=rows(0, 1_000_000)["item"][0].as_py()).read_all().num_rows
        fetched = sum(copy.stat().st_blocks * 512 for copy in (tmp_path / "other machine").iterdir())
        stored_bytes = sum(meta.file.bytes + meta.index.bytes for meta in store._log_state.segments)
    assert fetched < stored_bytes / 3


def test_a_scan_of_now(opened: tuple[NaturalVersionedStore, Record]) -> None:
    store, record = opened
    assert store.scan().read_all().num_rows
    check(record, rounds=4, requests=60)
    record.clear()
    assert store.scan().read_all().num_rows
    check(record, rounds=1, requests=2)


def test_a_scan_as_of_a_moment(opened: tuple[NaturalVersionedStore, Record]) -> None:
    store, record = opened
    assert store.scan(as_of=2_500).read_all().num_rows
    check(record, rounds=5, requests=60)


def test_the_change_feed(opened: tuple[NaturalVersionedStore, Record]) -> None:
    store, record = opened
    assert store.changes(start_version=store.version - 3).read_all().num_rows
    check(record, rounds=5, requests=80)


def test_a_commit(location: Location, kind: str) -> None:
    """100,000 rows with deletes. The first commit of a handle also reads open rows; the second has the budget."""
    with Catalog(location).open_store("prices", auto_compact=False) as store:
        store.put_all(with_deletes(rows(2_000, 100_000)))
        store.commit()
        store.put_all(with_deletes(rows(2_001, 100_000)))
        with recorded() as record:
            store.commit()
        assert len(record) > 0
        check(record, rounds=3, requests=6)


def test_a_commit_beside_another_writer(location: Location, kind: str) -> None:
    """A writer that is overtaken looks for newer versions again; nothing is lost."""
    catalog = Catalog(location)
    with catalog.open_store("prices", auto_compact=False) as store:
        before = store.put("mine", {"price": 1.0, "note": ""}, timestamp=3_000_000) and store.commit()
        segment_files._shared.clear()  # as in another process
        with catalog.open_store("prices", auto_compact=False) as other:
            other.put("theirs", {"price": 2.0, "note": ""}, timestamp=3_000_001)
            assert other.commit() == before + 1
        store.put("mine", {"price": 3.0, "note": ""}, timestamp=3_000_002)
        assert store.commit() == before + 2
        assert store.get("theirs").value["price"] == 2.0


def test_what_a_process_wrote_is_not_fetched_again(tmp_path: Path) -> None:
    with (
        recorded() as record,
        Catalog(memory_location()).create_store(
            "prices", key={"item": "string"}, value={"price": "double", "note": "string"}
        ) as store,
    ):
        store.put_all(rows(0, 1_000))
        store.commit()
        record.clear()
        assert store.scan().read_all().num_rows
        assert not [request for request in record.requests if "segments/" in request.key], str(record)
