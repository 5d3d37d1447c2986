"""Views of metadata tables on an attached connection: one source for each kind, tables opened when they are named."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import statestore
from statestore.catalog import store_tables
from statestore.catalog.describe.metadata_table import TABLES
from statestore.connector.duckdb import attach, metadata_views, scan_source
from statestore.formats.state_table import StateTable

NAMES = ("bread", "tea", 'it\'s "so"')


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("metadata") / "warehouse"
    catalog = statestore.connect(root)
    for count, name in enumerate(NAMES, 1):
        with catalog.create_store(name, key={"item": "string"}, value={"price": "double"}) as store:
            for number in range(count):
                store.put(f"item {number}", {"price": 1.5}, timestamp=1000)
                store.commit()
    return root


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def test_each_view_has_the_rows_of_its_own_table(warehouse: Path) -> None:
    connection, tables = statestore.attach(str(warehouse)), statestore.inspect(warehouse)
    for name in tables.metadata_tables():
        found = connection.sql(f"FROM {quoted(name)}").to_arrow_table().to_pylist()
        assert found == tables.table(name).scan().read_all().to_pylist() and found, name
        assert connection.execute(f"SELECT count(*) FROM {quoted(name)}").fetchall() == [(len(found),)]


def test_tables_are_opened_when_they_are_named(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection makes one source for each kind of metadata table, and opens the table that a query names."""
    sources: list[object] = []
    opened: list[tuple[str, str]] = []

    def registered(connection: duckdb.DuckDBPyConnection, source: scan_source.ScanSource) -> object:
        sources.append(source)
        return scan_source.registered(connection, source)

    def metadata_of(table: StateTable, suffix: str) -> object:
        opened.append((table.name, suffix))
        return store_tables.metadata_of(table, suffix)

    monkeypatch.setattr(metadata_views, "registered", registered)
    monkeypatch.setattr(attach, "metadata_of", metadata_of)
    connection = statestore.attach(str(warehouse))
    assert len(sources) == len(TABLES) and len(opened) <= len(TABLES)  # those that tell DuckDB the columns
    opened.clear()
    connection.execute('SELECT max(version) FROM "tea$versions"').fetchall()
    connection.execute('FROM "tea$versions"').fetchall()
    assert opened == [("tea", "versions")]


def test_views_of_one_query_read_one_version_of_each_table(warehouse: Path) -> None:
    both = 'SELECT t.version, b.version FROM "tea$versions" t LEFT JOIN "bread$versions" b USING (version) ORDER BY 1'
    assert statestore.attach(str(warehouse)).execute(both).fetchall() == [(0, 0), (1, 1), (2, None)]


def test_a_view_stays_when_others_are_dropped(warehouse: Path) -> None:
    connection = statestore.attach(str(warehouse))
    for name in ("bread", *(f"bread${suffix}" for suffix in TABLES)):
        connection.execute(f"DROP VIEW {quoted(name)}")
    assert connection.cursor().execute('SELECT count(*) FROM "tea$versions"').fetchall() == [(3,)]


def test_without_the_pushdown_of_filters_nothing_of_another_table_is_read(warehouse: Path) -> None:
    connection = statestore.attach(str(warehouse))
    connection.execute("PRAGMA disable_optimizer")
    with pytest.raises(duckdb.Error, match="FILTER_PUSHDOWN_OFF"):
        connection.execute('FROM "tea$versions"').fetchall()
    connection.execute("PRAGMA enable_optimizer; SET default_collation = 'NOCASE'")
    assert len(connection.execute('FROM "tea$versions"').fetchall()) == 3
