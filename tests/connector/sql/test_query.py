"""`statestore.sql` on DuckDB: time travel in every spelling, several times in one statement, errors with a position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.in_memory_table import MemoryTable, MemoryWarehouse

from statestore.connector.sql import query as sql_module
from statestore.connector.sql.query import sql
from statestore.formats.errors import InvalidInputError, NotFoundError, UnsupportedError

V0 = [("curry", 8.0, 0, None), ("milk", 2.0, 1, None)]
V1 = [("curry", 8.0, 0, 5000), ("curry", 9.0, 5000, None), ("milk", 2.0, 1, None)]
NOW, EARLY = [("curry", 9.0), ("milk", 2.0)], [("curry", 8.0), ("milk", 2.0)]


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> dict[str, MemoryTable]:
    held = {name: MemoryTable(name, [V0, V1]) for name in ("prices", "orders", "prices$versions", "a b;--", 'q"t')}
    monkeypatch.setattr(sql_module, "for_statement", lambda path, options: MemoryWarehouse(held))
    return held


def rows(query: str, **options: Any) -> list[tuple[Any, ...]]:
    table = sql("warehouse", query, **options)
    assert isinstance(table, pa.Table)
    return sorted(zip(*table.to_pydict().values(), strict=True), key=repr)


SPELLINGS = [
    "TIMESTAMP AS OF '1970-01-01T00:00:03Z'",
    "TIMESTAMP AS OF '1970-01-01 01:00:03+01:00'",
    "TIMESTAMP AS OF 3000",
    "TIMESTAMP AS OF (3000)",
    "TIMESTAMP AS OF TIMESTAMP '1970-01-01 00:00:03+00'",
    "TIMESTAMP AS OF TIMESTAMPTZ '1970-01-01 00:00:03+00'",
    "TIMESTAMP AS OF TIMESTAMP '1970-01-01 00:00:04+00' - INTERVAL 1 SECOND",
    "TIMESTAMP AS OF to_timestamp(3)",
    "TIMESTAMP AS OF 1000 + 2000",
    "FOR SYSTEM_TIME AS OF '1970-01-01T00:00:03Z'",
    "FOR SYSTEM_TIME AS OF TIMESTAMP '1970-01-01 00:00:03+00'",
    "AT (TIMESTAMP => '1970-01-01T00:00:03Z')",
    "AT (TIMESTAMP => TIMESTAMPTZ '1970-01-01 00:00:03+00')",
    "VERSION AS OF 0",
    "VERSION AS OF '0'",
    "VERSION AS OF 1 - 1",
    "FOR VERSION AS OF 0",
    "FOR SYSTEM_VERSION AS OF 0",
    "AT (VERSION => 0)",
    "AT (VERSION => 1) TIMESTAMP AS OF 3000",
    "VERSION AS OF 1 TIMESTAMP AS OF '1970-01-01T00:00:03Z'",
]


def test_each_spelling_reads_the_past(tables: dict[str, MemoryTable]) -> None:
    for clause in SPELLINGS:
        assert rows(f"SELECT item, price FROM prices {clause}") == EARLY, clause
        assert rows(f"SELECT p.item, p.price FROM prices {clause} AS p WHERE p.price > 0") == EARLY, clause


def test_a_duckdb_alias_may_come_before_at(tables: dict[str, MemoryTable]) -> None:
    assert rows("SELECT p.item, p.price FROM prices p AT (VERSION => 0)") == EARLY


@pytest.mark.parametrize("time", ["current_timestamp - interval '1 hour'", "now()", "current_timestamp"])
def test_a_time_can_be_computed(tables: dict[str, MemoryTable], time: str) -> None:
    assert rows(f"SELECT item, price FROM prices TIMESTAMP AS OF {time}") == NOW


WITHOUT_ZONE = [
    "'2013-01-01T05:00:00'",
    "'2013-01-01'",
    "TIMESTAMP '2013-01-01 05:00:00'",
    "TIMESTAMPTZ '2013-01-01 05:00:00'",
    "TIMESTAMP '2013-01-01 05:00:00' + INTERVAL 1 HOUR",
    "make_timestamp(2013, 1, 1, 5, 0, 0)",
    "current_date",
    "concat('2013-01-01', 'T05:00:00')",
]


def test_a_time_without_a_zone_is_refused(tables: dict[str, MemoryTable]) -> None:
    for time in WITHOUT_ZONE:
        with pytest.raises(InvalidInputError, match="NAIVE_TIMESTAMP"):
            sql("warehouse", f"SELECT * FROM prices TIMESTAMP AS OF {time}")


def test_several_tables_at_several_times(tables: dict[str, MemoryTable]) -> None:
    query = """
        WITH old AS (SELECT * FROM prices VERSION AS OF 0)
        SELECT old.item, old.price, prices.price, (SELECT max(price) FROM orders AT (TIMESTAMP => 10))
        FROM old JOIN prices USING (item) WHERE item IN (SELECT item FROM prices TIMESTAMP AS OF 3000 WHERE price > 5)
    """
    table = sql("warehouse", query)
    assert [column.to_pylist() for column in table.columns] == [["curry"], [8.0], [9.0], [8.0]]


def test_a_common_table_expression_shadows_a_table(tables: dict[str, MemoryTable]) -> None:
    assert rows("WITH prices AS (SELECT 1 AS one) SELECT * FROM prices") == [(1,)]
    mixed = "WITH prices AS (SELECT item, price FROM prices VERSION AS OF 0) SELECT * FROM prices"
    assert rows(mixed) == EARLY
    again = "WITH orders AS (SELECT 1 AS one) SELECT one FROM orders, prices VERSION AS OF 0 WHERE item = 'milk'"
    assert rows(again) == [(1,)]


def test_time_travel_on_a_common_table_expression_is_refused(tables: dict[str, MemoryTable]) -> None:
    with pytest.raises(InvalidInputError, match="line 2, column 6: 'c' is defined by WITH"):
        sql("warehouse", "WITH c AS (FROM prices) SELECT *\nFROM c VERSION AS OF 0")


def test_a_column_can_be_qualified_by_the_table_name(tables: dict[str, MemoryTable]) -> None:
    assert rows("SELECT prices.item, prices.price FROM prices VERSION AS OF 0") == EARLY
    assert rows("SELECT x.a FROM prices VERSION AS OF 0 AS x(a, b)") == [("curry",), ("milk",)]


def test_names_with_any_character_round_trip(tables: dict[str, MemoryTable]) -> None:
    assert rows('SELECT item, price FROM "a b;--" VERSION AS OF 0') == EARLY
    assert rows('SELECT item, price FROM "a b;--"') == NOW
    assert rows('SELECT item, price FROM "q""t" TIMESTAMP AS OF 3000') == EARLY
    assert rows("SELECT item, price FROM prices$versions") == NOW
    assert rows('SELECT item, price FROM "PRICES$versions" VERSION AS OF 0') == EARLY


def test_ordinary_duckdb_sql_is_passed_on_as_written(tables: dict[str, MemoryTable]) -> None:
    assert rows("FROM prices SELECT item WHERE price > 5") == [("curry",)]
    assert rows("SELECT [x + 1 FOR x IN [1, 2]] AS l, {'a': 1}.a AS a, '{\"k\": 2}'::JSON->>'k' AS k") == [
        ([2, 3], 1, "2")
    ]
    assert rows("SELECT item FROM prices ASOF JOIN (SELECT 6.0 AS price) o ON prices.price >= o.price") == [("curry",)]
    assert rows("SUMMARIZE prices")[0][0] == "item"


def test_spark_spelling_is_understood_where_duckdb_does_not_read_it(tables: dict[str, MemoryTable]) -> None:
    assert rows("SELECT `item`, price FROM `a b;--` VERSION AS OF 0") == EARLY


def test_history_and_changes_take_a_range(tables: dict[str, MemoryTable]) -> None:
    assert len(rows("SELECT * FROM history('prices', 0, '1970-01-01T00:00:01Z') h WHERE h.price > 0")) == 3
    asked = tables["prices"].asked[0]
    assert (asked.mode, asked.start_time, asked.end_time) == ("history", 0, 1_000_000)
    assert "changes" in {_asked(tables, "changes('prices', 1, 4)").mode}
    assert _asked(tables, "changes('prices', 1, 4)").start_version == 1
    assert _asked(tables, "changes('prices', end_version => 4)").end_version == 4
    assert _asked(tables, "changes('prices', '1970-01-01T00:00:01Z')").start_time == 1_000_000
    assert _asked(tables, "changes('prices', start_time => 1000)").start_time == 1_000_000
    assert _asked(tables, "history('prices') VERSION AS OF 0").version == 0


def _asked(tables: dict[str, MemoryTable], source: str) -> Any:
    sql("warehouse", f"SELECT count(*) FROM {source}")
    return tables["prices"].asked[-1]


def test_show_stores_lists_the_tables(tables: dict[str, MemoryTable]) -> None:
    assert ("prices",) in rows("SHOW STORES;")
    assert ("prices$versions",) not in rows("show stores")


def test_a_key_filter_reaches_the_table(tables: dict[str, MemoryTable]) -> None:
    assert rows("SELECT p.price FROM prices VERSION AS OF 0 p JOIN orders o USING (item) WHERE p.item = 'milk'") == [
        (2.0,)
    ]
    assert {f.value for query in tables["prices"].asked for f in query.filters} == {"milk"}


@pytest.mark.parametrize(
    ("query", "error", "pattern"),
    [
        ("SELECT * FROM\n prise", NotFoundError, r"TABLE_NOT_FOUND\] line 2, column 2: no table 'prise'.*prices"),
        ("SELECT * FROM prise VERSION AS OF 1", NotFoundError, "TABLE_NOT_FOUND"),
        ("SELECT * FROM history('prise')", NotFoundError, "TABLE_NOT_FOUND"),
        ("SELECT * FROM prices VERSION AS OF 9", NotFoundError, "VERSION_NOT_FOUND"),
        ("SELECT * FROM prices VERSION AS OF 'x'", InvalidInputError, "INVALID"),
        ("SELECT * FROM prices VERSION AS OF price", InvalidInputError, "line 1, column 15.*constant"),
        ("SELECT * FROM prices VERSION AS OF (SELECT 1)", InvalidInputError, "constant"),
        ("SELECT * FROM prices TIMESTAMP AS OF nope()", InvalidInputError, "INVALID_TIME.*nope"),
        ("SELECT * FROM prices TIMESTAMP AS OF NULL", InvalidInputError, "INVALID_TIME"),
        ("SELECT * FROM prices FOR SYSTEM_TIME BETWEEN 1 AND 2", InvalidInputError, "history"),
        ("SELECT * FROM prices AT (VERSION => 1) VERSION AS OF 1", InvalidInputError, "two VERSION"),
        ("SELECT * FROM history('prices') WHERE", InvalidInputError, "INVALID_SQL.*line 1, column 33"),
        ("SELEC * FROM prices", InvalidInputError, "INVALID_SQL"),
        ("SELECT nope FROM prices", InvalidInputError, "INVALID_SQL.*nope"),
        ("SELECT 1; SELECT 2", InvalidInputError, "one SQL statement"),
        ("SELECT CAST(item AS INT) FROM prices", InvalidInputError, "INVALID_SQL"),
    ],
)
def test_a_wrong_statement_names_the_place(
    tables: dict[str, MemoryTable], query: str, error: type[Exception], pattern: str
) -> None:
    with pytest.raises(error, match=f"(?s){pattern}"):
        sql("warehouse", query)


@pytest.mark.parametrize(
    "query",
    ["SELECT * FROM '{file}'", "COPY prices TO '{file}'", "ATTACH '{file}' AS x", "SELECT * FROM read_csv('{file}')"],
)
def test_files_are_out_of_reach_unless_asked(tables: dict[str, MemoryTable], tmp_path: Path, query: str) -> None:
    file = tmp_path / "x.csv"
    file.write_text("a\n1\n")
    with pytest.raises(UnsupportedError, match="EXTERNAL_ACCESS_OFF"):
        sql("warehouse", query.format(file=file))
    assert rows(f"SELECT * FROM '{file}'", allow_external_access=True) == [(1,)]


def test_an_instance_in_memory_is_no_file_that_a_statement_may_write(
    tables: dict[str, MemoryTable], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB gives an instance access to a file with its name, which is :memory:."""
    monkeypatch.chdir(tmp_path)
    for query in ("COPY prices TO ':memory:'", "SELECT * FROM read_text(':memory:')"):
        with pytest.raises(UnsupportedError, match="EXTERNAL_ACCESS_OFF"):
            sql(str(tmp_path), query)
    assert list(tmp_path.iterdir()) == []


def test_the_configuration_is_locked(tables: dict[str, MemoryTable]) -> None:
    with pytest.raises(InvalidInputError, match="locked"):
        sql("warehouse", "SET enable_external_access = true")


def test_python_variables_are_not_tables(tables: dict[str, MemoryTable]) -> None:
    secret = pa.table({"a": [1]})
    with pytest.raises(NotFoundError, match="TABLE_NOT_FOUND"):
        sql("warehouse", "SELECT * FROM secret")
    assert secret.num_rows == 1


def test_an_empty_answer_keeps_its_columns_and_types(tables: dict[str, MemoryTable]) -> None:
    table = sql("warehouse", "SELECT * FROM prices TIMESTAMP AS OF 3000 WHERE item = 'none'")
    assert (table.num_rows, table.schema.names) == (0, ["item", "price", "valid_from", "valid_to"])
    assert table.schema.field("valid_from").type == pa.timestamp("us", "UTC")
