"""A store's metadata as tables: their contents at the newest version and at older ones, through Python and SQL."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import statestore
from statestore.catalog.describe.metadata_table import TABLES
from statestore.catalog.log import log_checkpoint
from statestore.catalog.log.entries import CommitEntry, read_entry
from statestore.catalog.log.storage import Storage
from statestore.catalog.warehouse import open_table, open_warehouse
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.filters import Filter

SUFFIXES = sorted(TABLES)
KEY = {"item": "string"}
VALUE = {"price": "decimal(10,2)", "tags": "array<string>", "at": "timestamp", "n": "bigint", "x": "double"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    with statestore.connect(folder).create_store("prices", key=KEY, value=VALUE, history_retention=5_000) as store:
        nothing = dict.fromkeys(VALUE)
        store.put("curry", nothing, 1_000)
        store.put("milk", nothing, 2_000)
        store.commit()
        store.put("curry", nothing, 9_000)
        store.put("milk", None, 8_000)
        assert not store.put("rice", nothing, 3_999).accepted
        store.commit()
        store.put("rice", nothing, 9_500)
        store.commit(transaction=("app", 7))
    return folder


@pytest.fixture
def warehouse(tmp_path: Path, template: Path) -> Path:
    return shutil.copytree(template, tmp_path, dirs_exist_ok=True)


def rows(warehouse: Path, suffix: str, **question: Any) -> list[dict[str, Any]]:
    table, query = open_table(warehouse / f"prices${suffix}"), Query(**question)
    splits = table.splits(query)
    batches = [batch for split in splits for batch in table.read(split, query)]
    found: list[dict[str, Any]] = pa.Table.from_batches(batches, schema=table.schema(query)).to_pylist()
    if not query.filters:
        assert sum(split.rows or 0 for split in splits) == len(found)
    return found


def picked(found: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in found]


def ms(found: list[dict[str, Any]], name: str) -> list[int | None]:
    return [None if row[name] is None else round(row[name].timestamp() * 1000) for row in found]


def test_versions_has_a_row_for_each_commit(warehouse: Path) -> None:
    found = rows(warehouse, "versions")
    assert picked(found, "version", "operation", "rows", "tombstones", "closed", "dropped", "application", "batch") == [
        (0, "create", 0, 0, 0, 0, None, None),
        (1, "write", 2, 0, 0, 0, None, None),
        (2, "write", 1, 1, 2, 1, None, None),
        (3, "write", 1, 0, 0, 0, "app", 7),
    ]
    assert ms(found, "stream_time") == [None, 2_000, 9_000, 9_500]
    times = ms(found, "timestamp")
    assert times == sorted(times, key=lambda time: time or 0)
    assert all(row["writer"] for row in found)
    assert [row["bytes"] > 0 for row in found] == [False, True, True, True]


def test_versions_equals_what_the_store_answers(warehouse: Path) -> None:
    with statestore.connect(warehouse).open_store("prices") as store:
        assert store.versions().to_pylist() == rows(warehouse, "versions")


def test_segments_names_the_files_that_are_read(warehouse: Path) -> None:
    found = rows(warehouse, "segments")
    folder = warehouse / "prices"
    assert all((folder / row["name"]).stat().st_size == row["bytes"] for row in found)
    assert sum(row["rows"] for row in found if not row["tombstones"] and row["role"] != "belief") == 4
    assert sum(row["rows"] for row in found if row["tombstones"]) == 1
    assert all(row["first_commit"] <= row["last_commit"] for row in found)
    assert [row for row in found if row["min_valid_from"] > row["max_valid_from"]] == []
    assert sum(row["pending_closures"] for row in found) == 2
    assert {row["max_valid_to"] for row in found} == {None}, "an open row has no end"


def test_snapshots_says_what_can_still_be_read(warehouse: Path) -> None:
    assert picked(rows(warehouse, "snapshots"), "version", "readable") == [(v, True) for v in range(4)]
    with statestore.connect(warehouse).open_store("prices") as store:
        store.expire()  # keeps state from 4,500 on: version 1 knew of nothing later than 2,000
        oldest = store.scan(version=1).read_all().num_rows
    assert oldest == 2
    assert picked(rows(warehouse, "snapshots"), "version", "readable") == [(v, v >= 1) for v in range(5)]
    assert picked(rows(warehouse, "snapshots", version=3), "readable") == [(True,)] * 4


def test_schema_is_spelled_as_in_create_store(warehouse: Path) -> None:
    expected = [(name, kind, "key") for name, kind in KEY.items()]
    expected += [(name, kind, "value") for name, kind in VALUE.items()]
    assert picked(rows(warehouse, "schema"), "column", "type", "role") == expected


def test_an_older_version_is_read_as_it_was(warehouse: Path) -> None:
    assert picked(rows(warehouse, "versions", version=1), "version") == [(0,), (1,)]
    assert rows(warehouse, "segments", version=0) == []
    first = rows(warehouse, "segments", version=1)
    assert [(row["rows"], row["pending_closures"]) for row in first] == [(2, 0)]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_columns_and_filters(warehouse: Path, suffix: str) -> None:
    names = TABLES[suffix].names
    last, first = names[-1], names[0]
    assert rows(warehouse, suffix, columns=(last, first)) == [
        {last: row[last], first: row[first]} for row in rows(warehouse, suffix)
    ]
    chosen = rows(warehouse, suffix)[0]
    expected = [row for row in rows(warehouse, suffix) if row[first] == chosen[first]]
    assert rows(warehouse, suffix, filters=(Filter(first, "=", chosen[first]),)) == expected
    assert rows(warehouse, suffix, filters=(Filter(first, "is_null"),), columns=(last,)) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("version", [-1, 4, 10**30])
def test_a_version_that_is_not_there(warehouse: Path, suffix: str, version: int) -> None:
    with pytest.raises(NotFoundError, match=r"VERSION_NOT_FOUND.*'prices'.*versions 0 to 3"):
        rows(warehouse, suffix, version=version)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("question", "error", "code"),
    [
        ({"columns": ("nonsense",)}, NotFoundError, "COLUMN_NOT_FOUND"),
        ({"filters": (Filter("nonsense", "=", 1),)}, NotFoundError, "COLUMN_NOT_FOUND"),
        ({"mode": "history"}, InvalidInputError, "INVALID_OPTION"),
        ({"mode": "changes"}, InvalidInputError, "INVALID_OPTION"),
        ({"as_of": 0}, InvalidInputError, "INVALID_OPTION"),
    ],
)
def test_wrong_questions(
    warehouse: Path, suffix: str, question: dict[str, Any], error: type[Exception], code: str
) -> None:
    """Wrong questions are refused, also about a table that is empty at the version of the question."""
    for version in (None, 0):
        with pytest.raises(error, match=rf"{code}.*prices\${suffix}"):
            rows(warehouse, suffix, version=version, **question)


def test_a_filter_value_of_the_wrong_type(warehouse: Path) -> None:
    for version in (None, 0):
        with pytest.raises(InvalidInputError, match="INVALID_FILTER"):
            rows(warehouse, "segments", version=version, filters=(Filter("rows", "=", "many"),))


def test_it_is_a_table_like_others(warehouse: Path) -> None:
    found = open_warehouse(warehouse)
    assert sorted(found.metadata_tables()) == [f"prices${suffix}" for suffix in SUFFIXES]
    table = pickle.loads(pickle.dumps(found.open("prices$versions")))
    assert (table.name, table.key_columns, table.kept_versions()) == ("prices$versions", (), (0, 3))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_sql_answers_the_same(warehouse: Path, suffix: str) -> None:
    assert statestore.sql(str(warehouse), f"SELECT * FROM prices${suffix}").to_pylist() == rows(warehouse, suffix)
    counted = statestore.sql(str(warehouse), f"SELECT count(*) AS n FROM prices${suffix} VERSION AS OF 1")
    assert counted.to_pylist() == [{"n": len(rows(warehouse, suffix, version=1))}]


# Metadata of one version after another: each entry of the log is replayed once, in any order with one answer.

VERSIONS = 60


@pytest.fixture(scope="module")
def many_versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("warehouse")
    catalog = statestore.connect(folder)
    with catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
        for version in range(VERSIONS):
            store.put(f"item{version % 7}", float(version), timestamp=1_700_000_000_000 + version)
            store.commit()
    return folder


def segments(table: StateTable, version: int) -> pa.Table:
    query = Query(version=version)
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    return pa.Table.from_batches(batches, table.schema(query))


def test_versions_in_order_replay_each_entry_once(many_versions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_warehouse(many_versions).open("prices$segments")
    newest = table.kept_versions()[1]
    read: list[int] = []

    def counted(storage: Storage, version: int) -> CommitEntry:
        read.append(version)
        return read_entry(storage, version)

    monkeypatch.setattr(log_checkpoint, "read_entry", counted)
    for version in range(0, newest + 1, 5):
        segments(table, version)
    assert 0 < len(read) <= newest + 1


def test_the_order_of_the_versions_changes_no_answer(many_versions: Path) -> None:
    table = open_warehouse(many_versions).open("prices$segments")
    for version in (3, 40, 40, 7, 59, 0, 20):
        assert segments(table, version) == segments(open_warehouse(many_versions).open("prices$segments"), version)


def test_a_store_that_was_dropped_has_no_metadata(many_versions: Path, tmp_path: Path) -> None:
    shutil.copytree(many_versions, tmp_path / "copy")
    table = open_warehouse(tmp_path / "copy").open("prices$segments")
    segments(table, 10)
    statestore.connect(tmp_path / "copy").drop_store("prices")
    with pytest.raises(NotFoundError):
        segments(table, 10)
