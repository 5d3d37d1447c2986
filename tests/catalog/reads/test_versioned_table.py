"""A plan looks once for the newest version of a store, and what reads its splits looks for nothing."""

from __future__ import annotations

import gc
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support.object_stores.doubles import memory_location
from support.object_stores.request_record import Record, recorded

import statestore
from statestore.catalog.catalog import Catalog
from statestore.catalog.log.leases import leased_versions
from statestore.catalog.reads import segment_files
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.catalog.warehouse import open_table, open_warehouse
from statestore.formats.errors import NotFoundError
from statestore.formats.state_table import Query, StateTable


def rows(first: int) -> pa.Table:
    keys = range(first, first + 100)
    return pa.table({"k": keys, "v": [float(key) for key in keys], "timestamp": [1_000 + first] * 100})


def filled(catalog: Catalog, name: str = "s") -> VersionedStore:
    store: VersionedStore = catalog.create_store(name, key={"k": "bigint"}, value={"v": "double"})
    store.write(rows(0))
    return store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[VersionedStore]:
    with filled(statestore.connect(tmp_path)) as found:
        yield found


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A warehouse in an object store on a new machine, with a store."""
    for name in ("CACHE", "LOCAL"):
        monkeypatch.setenv(f"STATESTORE_{name}", str(tmp_path / name))
    found = Catalog(memory_location())
    filled(found).close()
    segment_files._shared.clear()
    gc.collect()
    return found


def not_of_data(record: Record) -> list[str]:
    return [f"{request.kind} {request.key}" for request in record.requests if "segments/" not in request.key]


def table_of(store: VersionedStore) -> VersionedTable:
    assert isinstance(store.table, VersionedTable)
    return store.table


def keys_of(table: VersionedTable) -> set[int]:
    query = Query(columns=("k",))
    return {
        key for split in table.splits(query) for batch in table.read(split, query) for key in batch["k"].to_pylist()
    }


def ask_everything(table: VersionedTable) -> None:
    query = Query()
    assert table.splits(query) and table.hashed_splits(query, 2)
    assert table.count(query) == 100 and table.extremes(query, "valid_from")
    assert table.kept_versions() == (0, 1) and table.change_start() == 0
    assert table.versions().num_rows == 2 and table.lookup_floor(1) is None
    assert table.splits(Query(mode="changes"))


def test_questions_of_a_plan_ask_nothing_of_the_store(catalog: Catalog) -> None:
    with catalog.open_store("s") as store, recorded() as record:
        table = table_of(store).for_plan()
        record.clear()
        ask_everything(table)
        assert not_of_data(record) == []
        ask_everything(table_of(store))
        assert len(not_of_data(record)) > 2, "a table of no plan looks each time"


def test_who_reads_a_split_asks_nothing_of_the_store(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(columns=("k", "v"))
    with catalog.open_store("s") as store:
        planned = store.table.for_plan()
        sent = pickle.dumps((planned.for_tasks(), planned.splits(query)))
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "of the task"))
    segment_files._shared.clear()
    with recorded() as record:
        table, splits = pickle.loads(sent)
        assert sum(batch.num_rows for split in splits for batch in table.read(split, query)) == 100
        assert len(record) and not_of_data(record) == []


def test_a_store_is_opened_by_one_round_without_a_listing_of_its_place(catalog: Catalog) -> None:
    place = catalog.location.at("s")
    with recorded() as record:
        assert open_table(place.uri).name == "s"
        assert record.rounds == 1 and len(record) == 2, str(record)
        record.clear()
        assert open_table(f"{place.uri}$versions").name == "s$versions"
        assert record.rounds == 1 and len(record) == 2, str(record)


def test_the_stores_of_a_warehouse_are_described_once(catalog: Catalog) -> None:
    filled(statestore.connect(catalog.location.uri), "t").close()  # which marks the place as a warehouse
    catalog.object_storage("notes").create("log/text", b"no store")
    with recorded() as record:
        tables = open_warehouse(catalog.location.uri).pin()
        assert tables.tables() == ["s", "t"] and tables.open("t").name == "t"
    asked = Counter(request.key for request in record.requests if "store.json" in request.key)
    assert asked == {"warehouse/s/store.json": 1, "warehouse/t/store.json": 1, "warehouse/notes/store.json": 1}
    assert record.rounds <= 4, str(record)
    catalog.drop_store("t")
    again = open_warehouse(catalog.location.uri)
    assert again.tables() == ["s"] and tables.tables() == ["s", "t"]
    with pytest.raises(NotFoundError, match="STORE_REPLACED"):
        tables.open("t").splits(Query())


def test_a_plan_has_one_version(store: VersionedStore) -> None:
    planned = table_of(store).for_plan()
    store.write(rows(100))
    assert keys_of(planned) == set(range(100)) and planned.kept_versions() == (0, 1)
    assert keys_of(table_of(store)) == set(range(200)) and store.table.kept_versions() == (0, 2)
    assert keys_of(planned.for_plan()) == set(range(200))


def test_what_a_plan_saw_stays_in_its_process(store: VersionedStore) -> None:
    planned = table_of(store).for_plan()
    store.write(rows(100))
    assert planned.for_tasks() == pickle.loads(pickle.dumps(planned)) == store.table
    assert pickle.loads(pickle.dumps(planned)).kept_versions() == (0, 2)
    assert len(pickle.dumps(planned)) == len(pickle.dumps(store.table))


def test_files_stay_while_a_plan_exists(store: VersionedStore, tmp_path: Path) -> None:
    planned = table_of(store).for_plan()
    store.write(rows(0))
    store.compact(full=True)
    store.vacuum()
    assert leased_versions(tmp_path / "s") == {1} and keys_of(planned) == set(range(100))
    del planned
    assert leased_versions(tmp_path / "s") == set()


def test_a_plan_of_a_store_that_was_replaced_is_refused(catalog: Catalog) -> None:
    table = open_table(catalog.location.at("s").uri)
    catalog.drop_store("s")
    with pytest.raises(NotFoundError, match="STORE_REPLACED"):
        table.for_plan()
    filled(catalog).close()
    with pytest.raises(NotFoundError, match="STORE_REPLACED"):
        table.for_plan()
    assert open_table(catalog.location.at("s").uri).for_plan().kept_versions() == (0, 1)


def test_a_store_leaves_no_way_to_a_default() -> None:
    """A default in place of a member that was renamed would only be slower, which no test of answers would show."""
    members = {name for name in dir(StateTable) if not name.startswith("_")}
    same = {
        "lookup_columns",
        "one_zero",
        "placement_columns",
        "check_resumable",
        "unsafe_columns",
        "difference_filters",
        "differing",
    }
    assert members - vars(VersionedTable).keys() == same
