"""Pushed filters, aggregates, limits and orders give the rows that Spark computes from the same rows in its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.parameters import mostly_slow, thinned
from support.reads_by_tasks import reads_by_tasks
from support.rows_read import RowsRead

import statestore
from statestore.connector.spark.session.register import PUSHDOWN_CONF

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ROWS = r"""
    SELECT int(id) AS k,
        CASE id % 5 WHEN 0 THEN '' WHEN 1 THEN 'ab ' WHEN 2 THEN 'é🎉\uFFFD' WHEN 3 THEN NULL ELSE 'Ab' END AS v,
        CAST('99999999999999999999999999.9' || (id % 10) AS DECIMAL(28,2)) AS d,
        CAST(id AS DECIMAL(10,3)) AS e,
        if(id = 7, NULL, 9223372036854775807 - id) AS l,
        CASE id WHEN 2 THEN float('nan') WHEN 4 THEN NULL WHEN 5 THEN float('-0.0') WHEN 7 THEN 0.1F ELSE 0F END AS f,
        if(id = 3, double('nan'), double(id) - 2) AS g,
        if(id = 1, NULL, DATE '9999-12-31' - int(id)) AS dt,
        if(id = 5, NULL, TIMESTAMP '9999-12-30 18:59:59.999999Z') AS ts,
        TIMESTAMP_NTZ '0001-01-01 00:00:00' AS tn,
        if(id = 9, NULL, id % 2 = 0) AS b,
        if(id % 2 = 0, X'ff00', X'') AS bin,
        named_struct('a', int(id), 'b', named_struct('c', if(id = 1, NULL, 'x'), 'd', double('nan'))) AS st,
        array(1, NULL) AS ar, map('a', 1) AS m, tinyint(-128) AS ti, int(id) AS rows, int(-id) AS `count`,
        int(id * 2) AS `a.b``c`
    FROM range(20)
"""


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """``pushed.t``, and the same rows as the view ``memory``."""
    statestore.register(spark, tmp_path_factory.mktemp("pushed"), "pushed")
    create = "CREATE TABLE pushed.t USING statestore TBLPROPERTIES (key = 'k', key_groups = '4')"
    spark.sql(f"{create} AS SELECT *, TIMESTAMP '2024-05-01 09:00:00Z' AS valid_from FROM ({ROWS}) WHERE k < 11")
    spark.sql(f"INSERT INTO pushed.t SELECT *, TIMESTAMP '2024-05-01 10:00:00Z' FROM ({ROWS}) WHERE k >= 11")
    rows = spark.sql(ROWS)
    spark.createDataFrame(rows.collect(), rows.schema).createOrReplaceTempView("memory")
    yield
    spark.catalog.dropTempView("memory")


def answer(spark: SparkSession, statement: str, table: str) -> list[str] | str:
    try:
        return [repr(tuple(row)) for row in spark.sql(statement.format(t=table)).collect()]
    except PySparkException as error:
        return str(error.getCondition())


def check(spark: SparkSession, statement: str, ordered: bool = False) -> None:
    """Ask rows in memory, rows that the driver reads, and rows that tasks read."""
    expected = answer(spark, statement, "memory")
    here = answer(spark, statement, "pushed.t")
    with reads_by_tasks():
        tasks = answer(spark, statement, "pushed.t")
    for found in (here, tasks):
        if ordered or isinstance(expected, str) or isinstance(found, str):
            assert found == expected, statement
        else:
            assert sorted(found) == sorted(expected), statement


CONDITIONS = [
    "v = 'ab '", "v = 'Ab'", "v = 'AB' COLLATE UTF8_LCASE", "v COLLATE UTF8_LCASE IN ('AB', 'x')", "v = ''",
    "v <=> NULL", "v <> 'Ab'", "v IN ('Ab', NULL)", "v NOT IN ('Ab', NULL)", "v NOT IN ('Ab')", "v LIKE 'A%'",
    "v LIKE '%b'", "v LIKE '%b%'", r"v LIKE '%\uFFFD'", "contains(v, CAST(X'FF' AS STRING))",
    "endswith(v, CAST(X'FF' AS STRING))", "v = CAST(X'FF' AS STRING)", "v LIKE 'é🎉%'", "v LIKE 'A_'", "v > 'Ab'",
    "v < 'é'", "g = double('nan')", "g > 5", "g = -0.0D", "g <=> double('nan')", "g <> double('nan')",
    "g IN (double('nan'), 1)", "f = 0", "f = 0.1F", "f = float('-0')", "f >= 0", "f <= 0", "f > 0", "f <> 0",
    "NOT (f > 0)",
    "f IN (0.0, 1)", "f = 0.1", "l = 9223372036854775807", "l > 9223372036854775806", "l >= 9223372036854775808",
    "l = 9.223372036854775807E18D", "l > 9223372036854775806.5", "k > 2147483648", "k > 2.5", "k = '3'",
    "k IN (1, 2, 99999999999)", "k BETWEEN 3 AND 5", "ti < -128", "ti = -129", "ti <> 1000",
    "d = 99999999999999999999999999.91", "d > 99999999999999999999999999.955", "d < 1e40", "e = 3.0001",
    "e < 3.00000000000000001", "e IN (1, 2.5, 3.000)", "dt = DATE '9999-12-31'", "dt > '9999-12-20'",
    "dt < TIMESTAMP '9999-12-20 05:00:00'", "ts = TIMESTAMP '9999-12-30 18:59:59.999999Z'", "ts > '2024'",
    "date(ts) = '9999-12-30'", "tn = TIMESTAMP_NTZ '0001-01-01 00:00:00'", "tn < TIMESTAMP '0001-01-02'", "b",
    "NOT b", "b <=> false", "b IS NOT TRUE", "b <> true", "bin = X'ff00'", "bin > X'00'", "bin IN (X'')", "st.a = 3",
    "st.b.c = 'x'", "st.b.c IS NULL", "st.b.d = double('nan')",
    "st = named_struct('a', 3, 'b', named_struct('c', 'x', 'd', double('nan')))", "ar = array(1, NULL)", "m['a'] = 1",
    "k IN (1, 2) OR v = 'Ab'", "(k > 3 AND k < 5) OR (k > 7 AND k < 9)", "NOT (k > 3 AND b)", "k > e", "k = NULL",
    "k IS DISTINCT FROM 3", "v ILIKE 'AB%'", "isnan(g)", "k = (SELECT max(k) FROM {t})", "rows = 3 AND `count` < 0",
    "`a.b``c` = 6", "`A.B``C` IN (2, 4)", "K = 3 AND V IS NULL", "(k = 1 AND g < 5) OR k IN (7, 9) OR k = 15",
    "k = 3 OR k IS NULL", "g = 1 OR g = double('nan') OR g = -2", "(st.a = 3 AND st.b.c = 'x') OR (st.a = 1 AND b)",
    "(st.a = 3 AND st.b.d = double('nan')) OR st.a = 4", "NOT (k = 3 OR k = 4)", "v = 'Ab' OR v = NULL",
]  # fmt: skip
ANSWERS = [
    "SELECT sum(d), min(d), max(d) FROM {t}", "SELECT avg(d), avg(e), sum(e) FROM {t}", "SELECT sum(l) FROM {t}",
    "SELECT b, avg(l) FROM {t} GROUP BY b", "SELECT try_avg(l), count(l) FROM {t}", "SELECT try_sum(l) FROM {t}",
    "SELECT b, sum(d) FROM {t} GROUP BY b", "SELECT min(l), max(l), count(l) FROM {t}",
    "SELECT min(g), max(g), sum(g), avg(f), max(f) FROM {t}",
    "SELECT min(dt), max(dt), min(ts), max(ts), min(tn), min(b), max(b), min(bin), max(bin), sum(ti) FROM {t}",
    "SELECT b, max(f), min(g), max(g) FROM {t} GROUP BY b", "SELECT bin, b, v, count(*) FROM {t} GROUP BY ALL",
    "SELECT v, count(*), count(l), min(dt), sum(e) FROM {t} GROUP BY v", "SELECT f, count(*) FROM {t} GROUP BY f",
    "SELECT max(st.a), sum(st.a), min(st.b.c) FROM {t}", "SELECT st.b.c, count(*) FROM {t} GROUP BY st.b.c",
    "SELECT sum(rows), sum(`count`), max(`a.b``c`) FROM {t}", "SELECT `count`, sum(rows) FROM {t} GROUP BY `count`",
    "SELECT count(*) FILTER (WHERE k > 3), sum(k) FILTER (WHERE b), sum(k) FROM {t}",
    "SELECT count(DISTINCT b), sum(DISTINCT ti), count(DISTINCT v, b) FROM {t}",
    "SELECT count(DISTINCT k), count(*), max(st.a) FROM {t}", "SELECT count(DISTINCT k) FROM {t} WHERE k > 3 AND b",
    "SELECT b, count(DISTINCT k) FROM {t} GROUP BY b", "SELECT count(DISTINCT k), sum(DISTINCT ti) FROM {t}",
    "SELECT b, v, sum(k), grouping_id() FROM {t} GROUP BY CUBE(b, v)", "SELECT b, count(*) FROM {t} GROUP BY ROLLUP(b)",
    "SELECT b, count(*) AS c FROM {t} GROUP BY 1 HAVING c > 9", "SELECT 1 FROM {t}", "SELECT k FROM {t} LIMIT 0",
    "SELECT sum(k), max(k), count(*) FROM {t} WHERE k < 0", "SELECT b, sum(k) FROM {t} WHERE k < 0 GROUP BY b",
    "SELECT count(*) FROM (SELECT k FROM {t} LIMIT 7 OFFSET 4)", "SELECT count(1), count(b), count(b, v) FROM {t}",
    "SELECT count(*) FROM (SELECT k FROM {t} WHERE k + 1 > 3 LIMIT 7)",
    "SELECT count(*) FROM {t} TABLESAMPLE (3 ROWS)", "SELECT count(*) FROM {t} TABLESAMPLE (100 PERCENT)",
    "SELECT a.k FROM {t} a LEFT SEMI JOIN {t} b ON a.k = b.k + 1 AND b.b",
    "SELECT k FROM {t} WHERE k NOT IN (SELECT k + 15 FROM {t})",
    "SELECT (SELECT max(k) FROM {t}), (SELECT min(k) FROM {t}), (SELECT count(*) FROM {t})",
    "SELECT a.k, b.k FROM {t} a FULL JOIN {t} b ON a.k = b.k + 5", "SELECT m['a'], ar[0], st.b.d, st.a FROM {t}",
    "SELECT a.v FROM {t} a JOIN {t} b ON a.k = b.k WHERE b.e = 3", "SELECT posexplode(ar), k FROM {t}",
    "SELECT k, (SELECT max(u.e) FROM {t} u WHERE u.k < t.k) FROM {t} t", "SELECT st.b FROM {t} WHERE st.a = 3",
    "SELECT b, b, sum(k), sum(k) FROM {t} GROUP BY b", "SELECT sum(k) + sum(k), count(*) + 1, min(-k) FROM {t}",
    "SELECT sum(k) FROM (SELECT k FROM {t} ORDER BY k LIMIT 10)", "SELECT b FROM {t} GROUP BY b",
]  # fmt: skip
FIRST = [
    "SELECT k FROM {t} WHERE k % 7 = 6 ORDER BY k LIMIT 2", "SELECT k FROM {t} ORDER BY k LIMIT 2 OFFSET 3",
    "SELECT k, g FROM {t} ORDER BY g DESC, k LIMIT 3", "SELECT k, f FROM {t} ORDER BY f, k DESC LIMIT 19",
    "SELECT k FROM {t} ORDER BY f DESC NULLS FIRST, k DESC LIMIT 3",
    "SELECT k FROM {t} ORDER BY f NULLS LAST, k LIMIT 9",
    "SELECT k FROM {t} ORDER BY v COLLATE UTF8_LCASE, k LIMIT 9", "SELECT k FROM {t} ORDER BY bin, dt DESC, k LIMIT 6",
    "SELECT k FROM {t} ORDER BY d, k LIMIT 6", "SELECT k FROM {t} ORDER BY st.a DESC LIMIT 3",
    "SELECT k FROM {t} WHERE v IS NOT NULL ORDER BY v DESC, k LIMIT 6", "SELECT b FROM {t} ORDER BY k LIMIT 3",
    "SELECT k FROM (SELECT * FROM {t} ORDER BY k LIMIT 10) WHERE k > 5 ORDER BY k",
    "SELECT k FROM {t} ORDER BY k OFFSET 17",
    "SELECT rows FROM {t} ORDER BY `count` LIMIT 2",
    "SELECT b, sum(k) AS x FROM {t} GROUP BY b ORDER BY x DESC LIMIT 2",
]  # fmt: skip


@pytest.mark.parametrize("condition", mostly_slow(CONDITIONS, 46))
def test_conditions(spark: SparkSession, tables: None, condition: str) -> None:
    check(spark, f"SELECT k FROM {{t}} WHERE {condition}")


@pytest.mark.quick("SELECT avg(d)*")
@pytest.mark.parametrize("statement", mostly_slow(ANSWERS, ANSWERS[:2] + ANSWERS[3:4]))
def test_answers(spark: SparkSession, tables: None, statement: str) -> None:
    check(spark, statement)


@pytest.mark.parametrize("statement", mostly_slow(FIRST, FIRST[:1]))
def test_first_rows(spark: SparkSession, tables: None, statement: str) -> None:
    check(spark, statement, ordered=True)


@pytest.mark.slow
def test_without_ansi_sums_wrap_and_averages_do_not(spark: SparkSession, tables: None) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        for statement in thinned(ANSWERS[:12], 4):
            check(spark, statement)
        for condition in (
            "k = '3'",
            "v = 3",
            "l = '9223372036854775807'",
            "l + 1 > 0",
            "ti = 128",
            "cast(l AS INT) = 1",
        ):
            check(spark, f"SELECT k FROM {{t}} WHERE {condition}")
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_with_pushdown_switched_off_nothing_is_pushed(spark: SparkSession, tables: None) -> None:
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "false")
    try:
        frame = spark.sql("SELECT k FROM pushed.t WHERE e = 3")
        assert frame.collect() == [(3,)]
    finally:
        spark.conf.set(setting, "true")


def test_different_keys_are_counted_as_rows_are(
    spark: SparkSession, tables: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = RowsRead(monkeypatch)
    with reads_by_tasks():  # what metadata does not have is read by tasks
        frame = spark.sql("SELECT count(DISTINCT k) FROM pushed.t")
        assert [tuple(row) for row in counted.of(frame.collect)] == [(20,)]
        assert "LocalTableScan" in str(frame._jdf.queryExecution().executedPlan().toString())
        assert counted.rows == 0


@pytest.mark.slow
def test_keys_that_are_structs_are_looked_up(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are those of Spark's own comparison, also of the key whose field is null."""
    path = checkpoint_path("spark4.3.0-agg__hdfs")
    statestore.register(spark, str(path), name="by_struct")
    names = [row["key"]["k"] for row in statestore.inspect(path).table("state").scan().read_all().to_pylist()]
    one, other, *_ = [name for name in names if name]
    counted = RowsRead(monkeypatch)
    for condition, is_lookup in (
        (f"key = named_struct('k', '{one}')", True),
        (f"key <=> named_struct('k', '{one}')", True),
        (f"key IN (named_struct('k', '{one}'), named_struct('k', '{other}'))", True),
        ("key = named_struct('k', CAST(NULL AS STRING))", True),
        (f"key = named_struct('k', '{one}') OR key = named_struct('k', '{other}')", True),
        (f"key.k = '{one}' OR key.k IN ('{other}')", True),
        (f"(key.k = '{one}' AND partition_id >= 0) OR key.k = '{other}'", True),
        (f"key <> named_struct('k', '{one}')", False),
    ):
        frame = spark.sql(f"SELECT key FROM by_struct.state WHERE {condition} ORDER BY key")
        found = counted.of(frame.collect)
        assert (0 < counted.rows < len(names)) is is_lookup, condition
        spark.conf.set(PUSHDOWN_CONF, "false")
        try:
            again = spark.sql(f"SELECT key FROM by_struct.state WHERE {condition} ORDER BY key").collect()
        finally:
            spark.conf.set(PUSHDOWN_CONF, "true")
        assert found == again != [], condition
