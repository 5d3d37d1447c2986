"""Every form of time travel in SQL gives, on DuckDB and on Spark, the rows of the Python API."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.parameters import mostly_slow
from support.reads_by_tasks import reads_by_tasks

import statestore
from statestore.formats.state_table import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRANGEST = "we\"ird; o'na`me -- x"
NAMES = ["prices", STRANGEST, "o'brien", "Ünï", "select", "1st", "a.b"]
COLUMNS = ["item", "price"]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two commits: curry at 1 s, then curry and naan at 2 s, and an older price of naan that came late."""
    folder = tmp_path_factory.mktemp("sql")
    for name in NAMES:
        with statestore.connect(folder).create_store(name, key={"item": "string"}, value={"price": "double"}) as store:
            store.put("curry", 1.0, timestamp=1000)
            store.commit()
            store.put("curry", 2.0, timestamp=2000)
            store.put("naan", 5.0, timestamp=2000)
            store.put("naan", 4.0, timestamp=500)
            store.commit()
    return str(folder)


def duck_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def spark_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def both(spark: SparkSession, warehouse: str, text: str, spark_text: str | None = None) -> list[list[str]]:
    """The statement's rows on each engine, sorted."""
    tables = [
        statestore.sql(warehouse, text),
        statestore.sql(warehouse, spark_text or text, spark=spark).toArrow(),
    ]
    return [plain(table) for table in tables]


def plain(table: pa.Table) -> list[str]:
    cells = [[str(cell) for cell in column.to_pylist()] for column in table.columns]
    return sorted(repr(list(row)) for row in zip(*cells, strict=True))


def truth(warehouse: str, ask: Callable[[Any], Any], name: str = "prices") -> list[str]:
    with statestore.connect(warehouse).open_store(name) as store:
        return plain(ask(store).read_all())


AT_ONE = "1970-01-01T00:00:01Z"
SNAPSHOTS: list[tuple[str, dict[str, Any]]] = [
    ("", {}),
    (f"TIMESTAMP AS OF '{AT_ONE}'", {"as_of": 1000}),
    ("TIMESTAMP AS OF TIMESTAMP '1970-01-01 00:00:01Z'", {"as_of": 1000}),
    ("TIMESTAMP AS OF 1000", {"as_of": 1000}),
    ("TIMESTAMP AS OF 500 + 500", {"as_of": 1000}),
    (f"FOR TIMESTAMP AS OF '{AT_ONE}'", {"as_of": 1000}),
    (f"FOR SYSTEM_TIME AS OF '{AT_ONE}'", {"as_of": 1000}),
    ("FOR SYSTEM_TIME AS OF TIMESTAMP '1970-01-01 01:00:01+01:00'", {"as_of": 1000}),
    (f"AT (TIMESTAMP => '{AT_ONE}')", {"as_of": 1000}),
    ("AT (TIMESTAMP => TIMESTAMP '1970-01-01 00:00:02Z' - INTERVAL '1' SECOND)", {"as_of": 1000}),
    ("TIMESTAMP AS OF current_timestamp - interval '1 hour'", {}),
    ("TIMESTAMP AS OF current_timestamp - interval '1' hour", {}),
    ("TIMESTAMP AS OF now()", {}),
    ("VERSION AS OF 1", {"version": 1}),
    ("VERSION AS OF '1'", {"version": 1}),
    ("VERSION AS OF 2 - 1", {"version": 1}),
    ("FOR VERSION AS OF 1", {"version": 1}),
    ("FOR SYSTEM_VERSION AS OF 1", {"version": 1}),
    ("AT (VERSION => 1)", {"version": 1}),
    ("VERSION AS OF 1 TIMESTAMP AS OF 999", {"version": 1, "as_of": 999}),
    ("TIMESTAMP AS OF 600 VERSION AS OF 2", {"version": 2, "as_of": 600}),
    ("AT (VERSION => 1) TIMESTAMP AS OF 1000", {"version": 1, "as_of": 1000}),
]


ALIASES = ("", "p", "AS p")
ALIASED = [(clause, asked, alias) for clause, asked in SNAPSHOTS for alias in ALIASES]


def in_one_statement(selections: list[str]) -> str:
    """The rows of each selection with its number: a query of Spark takes longer than what it selects from."""
    parts = [f"SELECT {number} AS n, x.* FROM ({text}) AS x" for number, text in enumerate(selections)]
    return "\nUNION ALL ".join(parts)


def numbered(rows: list[list[str]]) -> list[str]:
    """The rows of the statement from those of each selection, as `plain` returns both."""
    return sorted(f"['{number}', {row[1:]}" for number, each in enumerate(rows) for row in each)


def test_snapshots_in_one_statement(spark: SparkSession, warehouse: str) -> None:
    selections, expected = [], []
    for number, (clause, asked) in enumerate(SNAPSHOTS):
        alias = ALIASES[number % 3]
        selections.append(f"SELECT {'p' if alias else 'prices'}.item, price FROM prices {clause} {alias}")
        expected.append(truth(warehouse, methodcaller("scan", columns=COLUMNS, **asked)))
    assert both(spark, warehouse, in_one_statement(selections)) == [numbered(expected)] * 2


@pytest.mark.slow
@pytest.mark.parametrize(("clause", "asked", "alias"), ALIASED)
def test_snapshots(spark: SparkSession, warehouse: str, clause: str, asked: dict[str, Any], alias: str) -> None:
    expected = truth(warehouse, lambda store: store.scan(columns=COLUMNS, **asked))
    prefix = "p." if alias else "prices."
    assert both(spark, warehouse, f"SELECT {prefix}item, price FROM prices {clause} {alias}") == [expected, expected]


FUNCTIONS: list[tuple[str, Callable[[Any], Any]]] = [
    ("history('prices')", lambda s: s.history(columns=COLUMNS)),
    ("history('prices', 600)", lambda s: s.history(start_time=600, columns=COLUMNS)),
    ("history('prices', 0, 700)", lambda s: s.history(start_time=0, end_time=700, columns=COLUMNS)),
    (
        f"history('prices', '{AT_ONE}', TIMESTAMP '{AT_ONE}')",
        lambda s: s.history(start_time=1000, end_time=1000, columns=COLUMNS),
    ),
    ("history('prices') VERSION AS OF 1", lambda s: s.history(version=1, columns=COLUMNS)),
    ("history('prices', end_time => 700)", lambda s: s.history(end_time=700, columns=COLUMNS)),
    ("changes('prices')", lambda s: s.changes(columns=COLUMNS)),
    ("changes('prices', 2)", lambda s: s.changes(start_version=2, columns=COLUMNS)),
    ("changes('prices', 0, 1)", lambda s: s.changes(start_version=0, end_version=1, columns=COLUMNS)),
    ("changes('prices', start_version => 2)", lambda s: s.changes(start_version=2, columns=COLUMNS)),
    (
        f"changes('prices', TIMESTAMP '{AT_ONE}', current_timestamp)",
        lambda s: s.changes(start_time=1000, columns=COLUMNS),
    ),
]


def test_functions(spark: SparkSession, warehouse: str) -> None:
    selections = [f"SELECT f.item, f.price FROM {call} AS f" for call, _ in FUNCTIONS]
    expected = numbered([truth(warehouse, ask) for _, ask in FUNCTIONS])
    assert both(spark, warehouse, in_one_statement(selections)) == [expected, expected]


@pytest.mark.parametrize("name", mostly_slow(NAMES, [STRANGEST]))
def test_any_name_goes_around(spark: SparkSession, warehouse: str, name: str) -> None:
    now = truth(warehouse, lambda s: s.scan(columns=COLUMNS), name)
    old = truth(warehouse, lambda s: s.scan(columns=COLUMNS, version=1), name)
    for clause, expected in (("", now), ("VERSION AS OF 1", old)):
        texts = (f"SELECT item, price FROM {quote(name)} {clause}" for quote in (duck_name, spark_name))
        assert both(spark, warehouse, *texts) == [expected, expected]
    history = truth(warehouse, lambda s: s.history(columns=COLUMNS), name)
    texts = (f"SELECT item, price FROM history('{q}')" for q in (name.replace("'", "''"), name.replace("'", "\\'")))
    assert both(spark, warehouse, *texts) == [history, history]
    texts = (f"SELECT count(*) FROM {quote(name + '$versions')}" for quote in (duck_name, spark_name))
    assert both(spark, warehouse, *texts) == [["['3']"], ["['3']"]]
    texts = (f"DESCRIBE HISTORY {quote(name)}" for quote in (duck_name, spark_name))
    assert [len(rows) for rows in both(spark, warehouse, *texts)] == [3, 3]
    assert statestore.attach(warehouse).sql(f"SELECT item, price FROM {duck_name(name)}").fetchall()


STATEMENTS: list[tuple[str, list[tuple[Any, ...]]]] = [
    (
        "SELECT a.price, b.price, c.price FROM prices VERSION AS OF 1 a, prices TIMESTAMP AS OF 600 b, prices c "
        "WHERE a.item = 'curry' AND b.item = 'naan' AND c.item = 'naan'",
        [(1.0, 4.0, 5.0)],
    ),
    (
        "WITH old AS (SELECT * FROM prices VERSION AS OF 1), x AS (SELECT item FROM old) "
        "SELECT item FROM prices WHERE item NOT IN (SELECT item FROM x)",
        [("naan",)],
    ),
    ("SELECT (SELECT sum(price) FROM prices TIMESTAMP AS OF 600) AS s, sum(price) AS n FROM prices", [(4.0, 7.0)]),
    ("SELECT item FROM (SELECT * FROM (SELECT * FROM prices AT (VERSION => 1)) i) o WHERE price = 1", [("curry",)]),
    (
        "SELECT price FROM prices VERSION AS OF 1 UNION ALL SELECT price FROM prices ORDER BY 1",
        [(1.0,), (2.0,), (5.0,)],
    ),
    (
        "SELECT now.item FROM prices now LEFT ANTI JOIN prices VERSION AS OF 1 old ON now.item = old.item",
        [("naan",)],
    ),
    ("SELECT version FROM prices$versions WHERE operation = 'write' OR version = 0 ORDER BY version DESC LIMIT 1", []),
    (
        "SELECT role, (SELECT count(*) FROM prices$snapshots), (SELECT count(*) > 0 FROM prices$segments) "
        "FROM prices$schema WHERE type = 'double'",
        [("value", 3, True)],
    ),
    ("SHOW STORES", [(name,) for name in NAMES]),
]


@pytest.mark.parametrize(("text", "expected"), mostly_slow(STATEMENTS, 5))
def test_statements(spark: SparkSession, warehouse: str, text: str, expected: list[tuple[Any, ...]]) -> None:
    found = both(spark, warehouse, text.replace("LEFT ANTI", "ANTI") if "ANTI" in text else text, text)
    assert found[0] == found[1]
    if expected:
        assert found[0] == sorted(repr([str(cell) for cell in row]) for row in expected)


def test_a_scan_in_spark_has_one_partition_a_split_and_pushes_filters(spark: SparkSession, warehouse: str) -> None:
    asked = "SELECT price FROM prices TIMESTAMP AS OF 2000"
    with reads_by_tasks():
        frame = statestore.sql(warehouse, f"{asked} WHERE item = 'curry'", spark=spark)
        plan = frame._jdf.queryExecution().executedPlan().toString()
        partitions = statestore.sql(warehouse, asked, spark=spark).rdd.getNumPartitions()
    assert not [line for line in plan.splitlines() if "Filter " in line and "item" in line and "curry" in line]
    with statestore.connect(warehouse).open_store("prices") as store:
        splits = store.table.splits(Query(as_of=2_000_000))
    assert partitions == len(splits) > 0


REFUSED: list[tuple[str, str]] = [
    ("SELECT *\n  FROM prices VERSION AS OF 9", r"VERSION_NOT_FOUND\] line 2, column 8: .*0 to 2"),
    ("SELECT * FROM changes('prices', 7)", r"VERSION_NOT_FOUND\] line 1, column 15: .*0 to 2"),
    ("SELECT * FROM prices TIMESTAMP AS OF 'yesterday'", r"INVALID_TIME\] line 1, column 15: .*yesterday"),
    ("SELECT *\nFROM prise", r"TABLE_NOT_FOUND\] line 2, column 6: .*did you mean 'prices'"),
    ("DESCRIBE HISTORY prise", r"TABLE_NOT_FOUND\] line 1, column 18: .*prices"),
    ("SELECT item,\n  cost FROM prices VERSION AS OF 1", r"INVALID_SQL\] line 2, column 3: .*cost"),
    ("SELECT item, cost FROM prices", r"INVALID_SQL\] line 1, column 14: .*cost"),
    ("SELECT item FROM prices VERSION AS OF 1 WHERE", r"INVALID_SQL\] line 1, column 4\d: .*WHERE"),
    ("SELECT * FROM prices FOR SYSTEM_TIME BETWEEN 1 AND 2", r"INVALID_SQL\] line 1, column 15: .*history\('prices'"),
    ("INSERT INTO prices VALUES ('x', 1)", r"READ_ONLY\] line 1, column 13: .*put_all"),
    ("DELETE FROM prices WHERE item = 'x'", r"READ_ONLY\] line 1, column 13: "),
    ("DROP TABLE prices", r"READ_ONLY\] line 1, column 12: "),
]


def test_refusals_name_the_place(spark: SparkSession, warehouse: str) -> None:
    for text, said in REFUSED:
        for session in (None, spark):
            with pytest.raises(statestore.StateStoreError, match=said) as caught:
                statestore.sql(warehouse, text, session)
            assert "__statestore" not in str(caught.value), text


def test_times_before_the_kept_range(spark: SparkSession, tmp_path: Path) -> None:
    with statestore.connect(tmp_path).create_store(
        "prices", key={"item": "string"}, value={"price": "double"}
    ) as store:
        for time in (1000, 2000, 3000):
            store.put("curry", float(time), timestamp=time)
            store.commit()
        store.expire(before=2500)
    text = "SELECT * FROM prices TIMESTAMP AS OF 1500"
    for session in (None, spark):
        with pytest.raises(statestore.NotFoundError, match=r"TIME_NOT_KEPT\] line 1, column 15: .*00:00:02.500Z"):
            statestore.sql(str(tmp_path), text, session)


KEPT_BY_NOBODY = [
    "CREATE TABLE kept AS SELECT 1 AS one",
    "CREATE TEMP TABLE kept AS SELECT 1 AS one",
    "CREATE VIEW kept AS SELECT 1 AS one",
    "CREATE MACRO kept() AS 1",
    "CREATE TABLE kept AS PIVOT prices ON item USING sum(price)",
    "SET VARIABLE kept = 1",
    "USE memory",
    "ATTACH ':memory:' AS kept",
    "BEGIN",
    "PREPARE kept AS SELECT 1",
]


@pytest.mark.parametrize("allow", mostly_slow([False, True], 2))
def test_a_statement_whose_effect_would_end_with_it_is_refused(warehouse: str, allow: bool) -> None:
    for text in KEPT_BY_NOBODY:
        with pytest.raises(statestore.ReadOnlyError, match=r"READ_ONLY\] [A-Z]+ would have no effect: .*WITH name AS"):
            statestore.sql(warehouse, text, allow_external_access=allow)


def test_statements_that_answer_something_do(warehouse: str) -> None:
    reads = "DESCRIBE prices", "SHOW TABLES", "SUMMARIZE prices", "EXPLAIN SELECT 1", "VALUES (1)"
    for text in (*reads, "PIVOT prices ON item USING sum(price)", "PRAGMA database_list", "CALL pragma_version()"):
        assert statestore.sql(warehouse, text).num_rows > 0
