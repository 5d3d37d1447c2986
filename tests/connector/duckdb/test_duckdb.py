"""DuckDB views over StateTables: consistent, pruned, lazy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from support.in_memory_table import MemorySplit, MemoryTable

import statestore
from statestore.connector.duckdb import attach, kept_rows, reading
from statestore.connector.duckdb.arrow_dataset import read_pushed
from statestore.connector.duckdb.attach import check_names_differ, connect, create_view
from statestore.formats.errors import InvalidInputError
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter

FIRST = [("curry", 8.0, 0, None), ("milk", 2.0, 1, None)]
SECOND = [("curry", 8.0, 0, 5), ("curry", 9.0, 5, None), ("milk", 2.0, 1, None), ("rice", None, 6, None)]


@pytest.fixture(params=["source", "dataset"], autouse=True)
def scanned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB's own sources, or the dataset that every release can scan."""
    if request.param == "dataset":
        monkeypatch.setattr(attach, "ScanSource", None)


@pytest.fixture
def table() -> MemoryTable:
    return MemoryTable("prices", [FIRST, SECOND])


def attached(table: MemoryTable, query: Query | None = None) -> duckdb.DuckDBPyConnection:
    connection = connect()
    create_view(connection, table.name, table, query or Query())
    return connection


class MapTable(MemoryTable):
    """Each price as a map of two keys: 0.0 and the price."""

    def schema(self, query: Query) -> pa.Schema:
        kind = pa.map_(pa.float64(), pa.string())
        return pa.schema([field.with_type(kind) if field.name == "price" else field for field in super().schema(query)])

    def read(self, split: MemorySplit, query: Query) -> Iterator[pa.RecordBatch]:
        schema = self.schema(query)
        for batch in super().read(split, query):
            cells = {name: batch.column(name).to_pylist() for name in schema.names}
            if "price" in cells:
                cells["price"] = [[(0.0, "a"), (price, "b")] for price in cells["price"]]
            yield pa.RecordBatch.from_pydict(cells, schema)


@pytest.mark.parametrize(("price", "is_taken"), [(1.5, True), (-0.0, False), (0.0, False)])
def test_a_map_with_both_zeros_is_refused_by_the_name_of_its_column(price: float, is_taken: bool) -> None:
    connection = attached(MapTable("prices", [[("a", 2.0, 1, None), ("b", price, 1, None)]]))
    assert connection.sql("SELECT item FROM prices ORDER BY item").fetchall() == [("a",), ("b",)]
    if is_taken:
        assert connection.sql("SELECT price[1.5] FROM prices WHERE item = 'b'").fetchall() == [("b",)]
    else:
        with pytest.raises(Exception, match=r"UNSUPPORTED_TYPE.*column 'price' has a map with the keys 0.0 and -0.0"):
            connection.sql("SELECT price FROM prices").fetchall()


def test_a_view_shows_what_is_open_now(table: MemoryTable) -> None:
    rows = attached(table).sql("SELECT item, price FROM prices ORDER BY item").fetchall()
    assert rows == [("curry", 9.0), ("milk", 2.0), ("rice", None)]


def test_rows_behind_a_mask_are_filtered_by_duckdb(table: MemoryTable) -> None:
    rows = attached(table, Query(as_of=3000)).sql("SELECT item, price FROM prices ORDER BY item").fetchall()
    assert rows == [("curry", 8.0), ("milk", 2.0)]


def test_nothing_is_read_before_a_query(table: MemoryTable) -> None:
    attached(table)
    assert table.asked == []
    assert table.read_columns == []


def test_only_the_columns_a_query_needs_are_read(table: MemoryTable) -> None:
    attached(table).sql("SELECT sum(price) FROM prices").fetchall()
    assert set(table.read_columns) == {("price",)}


def test_counting_rows_reads_one_column(table: MemoryTable) -> None:
    assert attached(table).sql("SELECT count(*) FROM prices").fetchall() == [(3,)]
    assert all(columns is not None and len(columns) == 1 for columns in table.read_columns)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("item = 'milk'", (Filter("item", "=", "milk"),)),
        ("price > 1 AND item = 'milk'", (Filter("item", "=", "milk"),)),
        ("item >= 'd' AND lower(item) <> 'rice'", (Filter("item", ">=", "d"),)),
        ("item IS NOT NULL AND item <> 'curry'", None),
    ],
)
def test_filters_reach_the_table(table: MemoryTable, where: str, expected: tuple[Filter, ...] | None) -> None:
    rows = attached(table).sql(f"SELECT item FROM prices WHERE {where} ORDER BY item").fetchall()
    assert ("milk",) in rows
    assert ("curry",) not in rows
    assert all(query.filters for query in table.asked)
    if expected:
        assert {query.filters for query in table.asked} == {expected}


def test_filters_on_other_columns_are_left_to_duckdb(table: MemoryTable) -> None:
    rows = attached(table).sql("SELECT item FROM prices WHERE price = 2.0 AND valid_to IS NULL").fetchall()
    assert rows == [("milk",)]
    assert {f.column for query in table.asked for f in query.filters} <= {"valid_to"}  # a dataset is asked for nulls


@pytest.mark.parametrize(
    "where",
    ["item = 'milk' OR price = 9", "item IN ('milk', 'curry')", "item LIKE 'm%'", "price IS NULL", "price = 9.0"],
)
def test_a_where_clause_means_the_same_as_on_an_arrow_table(table: MemoryTable, where: str) -> None:
    connection = attached(table)
    connection.register("plain", connection.sql("FROM prices").to_arrow_table())
    text = f"SELECT item, price FROM {{}} WHERE {where} ORDER BY item"
    assert connection.sql(text.format("prices")).fetchall() == connection.sql(text.format("plain")).fetchall()


def test_the_next_query_sees_a_new_commit(table: MemoryTable) -> None:
    connection = attached(table)
    relation = connection.sql("SELECT count(*) FROM prices")
    assert relation.fetchall() == [(3,)]
    table.commits.append([*SECOND, ("tea", 1.0, 7, None)])
    assert connection.sql("SELECT count(*) FROM prices").fetchall() == [(4,)]


def test_all_queries_of_a_transaction_see_one_commit(table: MemoryTable) -> None:
    connection = attached(table)
    connection.execute("BEGIN")
    connection.sql("SELECT item FROM prices").fetchall()
    table.commits.append([])
    assert connection.sql("SELECT count(*) FROM prices").fetchall() == [(3,)]
    connection.execute("COMMIT")
    assert connection.sql("SELECT count(*) FROM prices").fetchall() == [(0,)]


def test_both_sides_of_a_self_join_see_one_commit_while_others_write() -> None:
    class Writing(MemoryTable):
        """Commits one more row each time a plan is made."""

        def splits(self, query: Query) -> object:  # type: ignore[override]
            answer = super().splits(query)
            self.commits.append([*self.commits[-1], (f"item{len(self.commits)}", 1.0, 0, None)])
            return answer

    connection = attached(Writing("prices", [FIRST]))
    only_left = "SELECT * FROM prices l FULL JOIN prices r USING (item) WHERE l.price IS NULL OR r.price IS NULL"
    assert connection.sql(only_left).fetchall() == []


def test_views_are_visible_to_cursors_and_nothing_else_is(table: MemoryTable) -> None:
    connection = attached(table)
    assert connection.sql("SHOW TABLES").fetchall() == [("prices",)]
    assert connection.cursor().sql("SELECT count(*) FROM prices").fetchall() == [(3,)]


def test_prepared_statements_are_planned_anew(table: MemoryTable) -> None:
    connection = attached(table)
    connection.execute("PREPARE one AS SELECT price FROM prices WHERE item = $1")
    assert connection.execute("EXECUTE one('curry')").fetchall() == [(9.0,)]
    table.commits.append([("curry", 1.0, 0, None)])
    assert connection.execute("EXECUTE one('curry')").fetchall() == [(1.0,)]


def test_reading_without_filter_pushdown_is_an_error_not_a_wrong_answer(table: MemoryTable) -> None:
    connection = attached(table)
    connection.execute("PRAGMA disable_optimizer")
    with pytest.raises(duckdb.Error, match="FILTER_PUSHDOWN_OFF"):
        connection.sql("FROM prices").fetchall()


def test_an_error_of_the_table_is_told_by_duckdb(table: MemoryTable) -> None:
    with pytest.raises(duckdb.Error, match=r"\[VERSION_NOT_FOUND\] no version 7"):
        attached(table, Query(version=7)).sql("FROM prices").fetchall()


@pytest.mark.parametrize("name", ["prices$versions", 'a "b"; DROP', "x.y", "select", "Größe"])
def test_any_name_can_be_quoted(name: str) -> None:
    connection = attached(MemoryTable(name, [FIRST]))
    quoted = name.replace('"', '""')
    assert connection.sql(f'SELECT count(*) FROM "{quoted}"').fetchall() == [(2,)]


def test_times_print_in_utc_everywhere(table: MemoryTable) -> None:
    zone = attached(table).sql("SELECT current_setting('TimeZone')").fetchall()
    assert zone == [("UTC",)]


def test_names_that_differ_by_case_only_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="AMBIGUOUS_NAME"):
        check_names_differ(["prices", "Prices"])


PAIR = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int32()))])
PUSHED = pa.schema([("k", pa.int64()), ("s", pa.string()), ("v", pa.float64()), ("r", PAIR), ("pin", pa.int64())])
K, S, V, R, PIN = (ds.field(name) for name in PUSHED.names)
EITHER = (Filter("k", "in", (1, 2)), Filter("s", "in", ("x", "y")))
EITHER_KEY = (Filter("k", "in", (1, 2, 3)),)


@pytest.mark.parametrize(
    ("expression", "filters", "complete"),
    [
        ((K == 1) & (PIN == 7), (Filter("k", "=", 1),), True),
        ((K > 1) & (K <= 3) & (PIN == 7), (Filter("k", ">", 1), Filter("k", "<=", 3)), True),
        (S.isin(["a", "b"]) & (PIN == 7), (Filter("s", "in", ("a", "b")),), True),
        (S.isin(["a", None]) & (PIN == 7), (), False),
        (R.isin(pa.array([{"a": 1, "b": [2]}], PAIR)) & (PIN == 7), (Filter("r", "in", ((1, (2,)),)),), True),
        (((K == 1) | (K == 3) | K.isin([5])) & (PIN == 7), (Filter("k", "in", (1, 3, 5)),), True),
        (K.is_null() & V.is_valid() & (PIN == 7), (Filter("k", "is_null"), Filter("v", "is_not_null")), True),
        (((K == 1) | (S == "x")) & (PIN == 7) & (V == 2.0), (Filter("v", "=", 2.0),), False),
        ((((K == 1) & (S == "x")) | ((S == "y") & (K == 2))) & (PIN == 7), EITHER, False),
        ((((K == 1) & (V > 2.0)) | (K == 2) | ((K == 3) & (K > V))) & (PIN == 7), EITHER_KEY, False),
        ((S == 5) & (PIN == 7), (), False),
    ],
)
def test_a_pushed_expression_is_read_back(
    expression: ds.Expression, filters: tuple[Filter, ...], complete: bool
) -> None:
    pushed = read_pushed(expression, PUSHED, "pin")
    assert (pushed.pin, pushed.filters, pushed.complete) == (7, filters, complete)


def test_plans_of_one_version_are_bounded(tmp_path: Path) -> None:
    with statestore.connect(tmp_path).create_store("s", key={"k": "bigint"}, value={"v": "bigint"}) as store:
        for key in range(20):
            store.put(key, key, timestamp=key)
        store.commit()
        read = reading.Reading(store.table, Query())
        for key in range(reading.KEPT_PLANS + 5):
            filters = (Filter("k", "=", key),)
            expected = [key] if key < 20 else []
            assert read.scan(1 + key % 3, filters, ["v"], False).read_all()["v"].to_pylist() == expected
        assert len(read._pins) == 3
        assert {len(state.plans) for state in read._pins.values()} == {reading.KEPT_PLANS}


@pytest.mark.local_files
def test_columns_that_are_made_are_copied_at_once_and_numbers_when_read_again(tmp_path: Path) -> None:
    with statestore.connect(tmp_path).create_store("s", key={"k": "bigint"}, value={"v": "bigint"}) as store:
        for commit in range(2):
            for key in range(20 - commit):
                store.put(key, key, timestamp=commit * 1000 + key)
            store.commit()
        read = reading.Reading(store.table, Query())
        rows = {
            columns: [read.scan(1, (), [kept_rows.MARKS, *columns], True).read_all().num_rows for _ in range(3)]
            for columns in (("v",), ("valid_to",), ("k", "v"), ("v", "valid_to"))
        }
        # 19 of 39 rows are dead; ends are made, of live rows only.
        assert rows == {
            ("v",): [39, 20, 20],
            ("valid_to",): [20] * 3,
            ("k", "v"): [39, 20, 20],
            ("v", "valid_to"): [20] * 3,
        }
        assert read._last_marked is not None
        assert list(read._last_marked.live_columns.kept(["k", "v", "valid_to"])) == ["k", "v", "valid_to"]


@pytest.mark.local_files
def test_copies_of_live_rows_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kept_rows, "COPIED_BYTES", 300)
    with statestore.connect(tmp_path).create_store("s", key={"k": "bigint"}, value={"v": "bigint"}) as store:
        for commit in range(2):
            for key in range(20 - 10 * commit):
                store.put(key, key, timestamp=commit * 1000 + key)
            store.commit()
        read = reading.Reading(store.table, Query())
        rows = {
            columns: [read.scan(1, (), [kept_rows.MARKS, *columns], True).read_all().num_rows for _ in range(4)]
            for columns in (("v",), ("k", "v"), ("k",))
        }
        # 20 rows of 9 bytes are copied, 20 of 17 bytes are too many, and so are another 20 of 9.
        assert rows == {("v",): [30, 20, 20, 20], ("k", "v"): [30] * 4, ("k",): [30] * 4}
