"""Forty statements as the manuals of Delta and Iceberg have them: rows equal those of DuckDB and of plain Python."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, ParseException, UnsupportedOperationException
from pyspark.sql import functions as F
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.parameters import mostly_slow
from support.spark_release import RELEASE

import statestore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = tuple[Any, ...]
DAY = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


def at(hour: float) -> dt.datetime:
    return DAY + dt.timedelta(hours=hour)


# Records in the order of their commits: key, price (None: a delete), hour of the state time.
COMMITS: tuple[tuple[tuple[str, float | None, float], ...], ...] = (
    (("curry", 9.0, 8), ("dal", 5.0, 8), ("egg", 3.0, 8), ("naan", 2.0, 8)),
    (("curry", 10.5, 10), ("rice", 7.0, 12)),
    (("dal", 5.5, 9), ("egg", None, 11), ("curry", 9.5, 8)),  # late: the first and the last
    (("naan", 2.5, 13),),
)
CLICKS = ({"ann": 3, "bob": 1}, {"ann": 5, "cem": 2})


def intervals(version: int | None = None) -> list[Row]:
    """Every value with its interval, of the commits up to a version: item, price, hour from, hour to."""
    found: dict[str, dict[float, float | None]] = {}
    for commit in COMMITS[:version]:
        for key, price, hour in commit:
            found.setdefault(key, {})[hour] = price
    rows = []
    for key, values in found.items():
        hours = sorted(values)
        for start, end in zip(hours, [*hours[1:], None], strict=True):
            if values[start] is not None:
                rows.append((key, values[start], start, end))
    return rows


def prices(version: int | None = None, hour: float | None = None) -> dict[str, Any]:
    """The state of a version, or as of an hour."""
    rows = intervals(version)
    if hour is None:
        return {key: price for key, price, _, end in rows if end is None}
    return {key: price for key, price, start, end in rows if start <= hour and (end is None or end > hour)}


def of(state: dict[str, Any]) -> list[Row]:
    return list(state.items())


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("users")
    catalog = statestore.connect(folder)
    with catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
        for commit in COMMITS:
            for key, price, hour in commit:
                if price is None:
                    store.delete(key, timestamp=at(hour))
                else:
                    store.put(key, price, timestamp=at(hour))
            store.commit()
    window = {"retention": "30 days", "window_size": "1 h"}
    with catalog.create_store("visits", "window", key={"item": "string"}, value={"n": "int"}, **window) as store:
        for number in range(4):
            store.put("curry" if number % 2 else "naan", number, window_start=at(number))
        store.commit()
    sessions = catalog.create_store("sessions", "keyed", key={"user": "string"}, key_groups=4)
    with sessions as keyed, keyed.backend() as backend:
        clicks = backend.value_state("clicks", "int")
        for counts in CLICKS:
            for user, count in counts.items():
                backend.set_current_key(user)
                clicks.update(count)
            keyed.commit([backend.snapshot().result()])
    statestore.register(spark, folder, "lake")
    return str(folder)


FULL = [(key, price, at(start), None) for key, price, start, end in intervals() if end is None]
NOW, V1, V2, NINE_THIRTY = prices(), prices(1), prices(2), prices(hour=9.5)
HISTORY = [(k, p, at(a), None if b is None else at(b)) for k, p, a, b in intervals()]
# Spark's statement over catalog {c}; the rows; the same question in DuckDB, where it is spelled otherwise: "" where it
# has no such table.
READS: list[tuple[str, Iterable[Row], str | None]] = [
    ("SELECT * FROM {c}prices", FULL, None),
    ("SELECT item, price FROM {c}prices TIMESTAMP AS OF '2024-05-01 09:30:00Z'", of(NINE_THIRTY), None),
    ("SELECT item, price FROM {c}prices TIMESTAMP AS OF '2024-05-01T09:30:00.000Z'", of(NINE_THIRTY), None),
    ("SELECT item, price FROM {c}prices FOR SYSTEM_TIME AS OF '2024-05-01 09:30:00Z'", of(NINE_THIRTY), None),
    ("SELECT item, price FROM {c}prices FOR TIMESTAMP AS OF TIMESTAMP '2024-05-01 09:30:00Z'", of(NINE_THIRTY),
     "SELECT item, price FROM prices FOR TIMESTAMP AS OF '2024-05-01 09:30:00Z'"),
    ("SELECT item, price FROM {c}prices TIMESTAMP AS OF current_timestamp() - INTERVAL 1 HOUR", of(NOW),
     "SELECT item, price FROM prices"),
    ("SELECT item, price FROM {c}prices TIMESTAMP AS OF date_sub(current_date(), 1)", of(NOW),
     "SELECT item, price FROM prices"),
    ("SELECT item, price FROM {c}prices VERSION AS OF 1", of(V1), None),
    ("SELECT item, price FROM {c}prices VERSION AS OF '1'", of(V1), "SELECT item, price FROM prices VERSION AS OF 1"),
    ("SELECT item, price FROM {c}prices FOR VERSION AS OF 2", of(V2), None),
    ("SELECT item, price FROM {c}prices FOR SYSTEM_VERSION AS OF 2", of(V2),
     "SELECT item, price FROM prices VERSION AS OF 2"),
    ("SELECT count(*) FROM {c}prices TIMESTAMP AS OF '2024-05-01 07:00:00Z'", [(0,)], None),
    ("SELECT item, price, valid_from, valid_to FROM {c}prices.history", HISTORY,
     "SELECT item, price, valid_from, valid_to FROM history('prices')"),
    ("SELECT item, price FROM {c}prices.history VERSION AS OF 2 WHERE item = 'curry'",
     [("curry", 9.0), ("curry", 10.5)],
     ""),
    ("SELECT item, count(*) FROM {c}prices.changes WHERE _change_type = 'delete' GROUP BY item", [("egg", 1)],
     ""),
    ("SELECT version, operation FROM {c}prices.versions ORDER BY version DESC LIMIT 1", [(4, "write")],
     "SELECT version, operation FROM prices$versions ORDER BY version DESC LIMIT 1"),
    ("SELECT a.item, a.price AS old, b.price AS new FROM {c}prices TIMESTAMP AS OF '2024-05-01 09:30:00Z' a "
     "JOIN {c}prices b ON a.item = b.item WHERE a.price <> b.price",
     [(key, NINE_THIRTY[key], NOW[key]) for key in NINE_THIRTY.keys() & NOW if NINE_THIRTY[key] != NOW[key]], None),
    ("SELECT a.item FROM {c}prices VERSION AS OF 1 a LEFT ANTI JOIN {c}prices b ON a.item = b.item", [("egg",)],
     "SELECT a.item FROM prices VERSION AS OF 1 a ANTI JOIN prices b ON a.item = b.item"),
    ("SELECT coalesce(a.item, b.item), a.price AS old, b.price AS new FROM {c}prices VERSION AS OF 1 a "
     "FULL OUTER JOIN {c}prices VERSION AS OF 4 b ON a.item = b.item",
     [(key, V1.get(key), NOW.get(key)) for key in V1.keys() | NOW], None),
    ("SELECT item, price FROM {c}prices VERSION AS OF 4 EXCEPT SELECT item, price FROM {c}prices VERSION AS OF 1",
     set(of(NOW)) - set(of(V1)), None),
    ("SELECT item, price FROM {c}prices VERSION AS OF 4 INTERSECT SELECT item, price FROM {c}prices VERSION AS OF 1",
     set(of(NOW)) & set(of(V1)), None),
    ("WITH before AS (SELECT * FROM {c}prices TIMESTAMP AS OF '2024-05-01 09:30:00Z') SELECT sum(price) FROM before",
     [(sum(NINE_THIRTY.values()),)], None),
    ("SELECT item FROM {c}prices WHERE price > (SELECT avg(price) FROM {c}prices VERSION AS OF 1)",
     [(key,) for key, price in NOW.items() if price > sum(V1.values()) / len(V1)], None),
    ("SELECT item FROM {c}prices WHERE item IN (SELECT item FROM {c}visits)", [("curry",), ("naan",)], None),
    ("SELECT item, sum(price) FROM {c}prices GROUP BY ROLLUP (item)", [*of(NOW), (None, sum(NOW.values()))], None),
    ("SELECT item, rank() OVER (ORDER BY price DESC) FROM {c}prices",
     [(key, place) for place, (key, _) in enumerate(sorted(NOW.items(), key=lambda row: -row[1]), 1)], None),
    ("SELECT item, price - lag(price) OVER (PARTITION BY item ORDER BY valid_from) FROM {c}prices.history "
     "WHERE item = 'curry'", [("curry", None), ("curry", 1.0)],
     "SELECT item, price - lag(price) OVER (PARTITION BY item ORDER BY valid_from) FROM history('prices') "
     "WHERE item = 'curry'"),
    ("SELECT item, window_start, n FROM {c}visits WHERE window_start >= TIMESTAMP '2024-05-01 02:00:00Z'",
     [("naan", at(2), 2), ("curry", at(3), 3)], None),
    ("SELECT v.item, v.n, p.price FROM {c}visits v JOIN {c}prices VERSION AS OF 1 p ON v.item = p.item WHERE v.n > 1",
     [("naan", 2, 2.0), ("curry", 3, 9.0)], None),
    ("SELECT * FROM {c}sessions.clicks", [("ann", 5), ("bob", 1), ("cem", 2)], None),
    ("SELECT user, value FROM {c}sessions.clicks VERSION AS OF 1", of(CLICKS[0]), None),
    ("SELECT count(*), sum(value) FROM {c}sessions.clicks TIMESTAMP AS OF now()", [(3, 8)],
     "SELECT count(*), sum(value) FROM sessions.clicks"),
    ("SELECT a.user FROM {c}sessions.clicks a LEFT ANTI JOIN {c}sessions.clicks VERSION AS OF 1 b USING (user)",
     [("cem",)], "SELECT a.user FROM sessions.clicks a ANTI JOIN sessions.clicks VERSION AS OF 1 b USING (user)"),
]  # fmt: skip


def plain(rows: Iterable[Row]) -> list[str]:
    def cell(value: Any) -> Any:
        if isinstance(value, dt.datetime):
            return value.astimezone(dt.UTC).isoformat()
        return (
            round(float(value), 6)
            if isinstance(value, int | float | Decimal) and not isinstance(value, bool)
            else value
        )

    return sorted(repr(tuple(cell(value) for value in row)) for row in rows)


def asked(frame: DataFrame) -> list[str]:
    return plain(tuple(row.values()) for row in frame.toArrow().to_pylist())


@pytest.mark.parametrize(("statement", "rows", "duck"), mostly_slow(READS, 12))
def test_reads(spark: SparkSession, warehouse: str, statement: str, rows: Iterable[Row], duck: str | None) -> None:
    expected = plain(rows)
    assert asked(spark.sql(statement.format(c="lake."))) == expected
    if duck != "":
        found = statestore.sql(warehouse, (duck or statement).format(c=""))
        assert plain(tuple(row.values()) for row in found.to_pylist()) == expected


def test_a_version_after_the_name(spark: SparkSession, warehouse: str) -> None:
    statement = "SELECT item, price FROM lake.prices@v2"
    if RELEASE < (4, 3):  # Spark's own parser does not know it
        with pytest.raises(ParseException):
            spark.sql(statement)
    else:
        assert asked(spark.sql(statement)) == plain(of(V2))


def unnamed(row: Any) -> str:
    """A row as text without the names of fields: Spark's own source has two fields of one name."""
    return str(tuple(tuple(field) for field in row))


@pytest.mark.slow
def test_statements_over_a_checkpoint(
    spark: SparkSession, copy_for_spark: Callable[[str | Path], str], warehouse: str
) -> None:
    path = str(checkpoint_path("spark4.3.0-agg__hdfs"))
    copy = copy_for_spark(path)
    statestore.register(spark, path, "lake_query")
    newest = spark.sql("SELECT max(version) FROM lake_query.state.versions").collect()[0][0]
    for version in (newest - 1, newest):
        reader = spark.read.format("statestore").option("provider", "builtin").option("batchId", version)
        theirs = reader.load(copy).drop("partition_id")
        asof = f"SELECT * EXCEPT (partition_id) FROM lake_query.state VERSION AS OF {version}"
        assert sorted(map(unnamed, spark.sql(asof).collect())) == sorted(map(unnamed, theirs.collect()))
    changed = f"SELECT key FROM lake_query.state EXCEPT SELECT key FROM lake_query.state VERSION AS OF {newest - 1}"
    before = {str(row) for row in reader.option("batchId", newest - 1).load(copy).select("key").collect()}
    after = {str(row) for row in reader.option("batchId", newest).load(copy).select("key").collect()}
    assert {str(row) for row in spark.sql(changed).collect()} == after - before
    joined = "SELECT count(*) FROM lake_query.state s CROSS JOIN lake.prices VERSION AS OF 1 p"
    assert spark.sql(joined).first() == (len(after) * len(V1),)


PROPERTIES = "TBLPROPERTIES (key = 'item')"
T = "lake_writes.t"


@pytest.fixture
def writable(spark: SparkSession, tmp_path: Path) -> Path:
    statestore.register(spark, tmp_path, "lake_writes")
    spark.sql(f"CREATE TABLE {T} (item STRING, price DOUBLE) USING statestore {PROPERTIES}")
    spark.sql(f"INSERT INTO {T} VALUES ('curry', 9, {stamp(8)}), ('dal', 5, {stamp(8)}), ('egg', 3, {stamp(8)})")
    return tmp_path


def stamp(hour: int) -> str:
    return f"TIMESTAMP '2024-05-01 {hour:02d}:00:00Z'"


def state(spark: SparkSession, folder: Path, table: str = "t") -> dict[str, Any]:
    """The rows of the store in Python, which have to be those of Spark."""
    found = statestore.inspect(folder).table(table).scan(columns=["item", "price"]).read_all()
    rows = {row["item"]: row["price"] for row in found.to_pylist()}
    assert {row[0]: row[1] for row in spark.sql(f"SELECT item, price FROM lake_writes.{table}").collect()} == rows
    return rows


def frame(spark: SparkSession, hour: int, **rows: float) -> DataFrame:
    values = ", ".join(f"('{item}', {price}D, {stamp(hour)})" for item, price in rows.items())
    return spark.sql(f"SELECT * FROM VALUES {values} AS v(item, price, valid_from)")


@pytest.mark.slow
def test_inserts_and_overwrites(spark: SparkSession, writable: Path) -> None:
    new = "EXCEPT (valid_to)"
    steps: list[tuple[str | Callable[[], Any], dict[str, Any]]] = [
        (f"INSERT INTO {T} (price, item, valid_from) VALUES (1, 'fig', {stamp(9)})", {"fig": 1.0}),
        (f"INSERT INTO {T} BY NAME SELECT {stamp(10)} AS valid_from, 'fig' AS item, 2D AS price", {"fig": 2.0}),
        (f"INSERT INTO {T} SELECT item, price * 2, {stamp(11)} FROM {T} VERSION AS OF 1 WHERE item = 'dal'",
         {"dal": 10.0}),
        (lambda: frame(spark, 12, ham=4).writeTo(T).append(), {"ham": 4.0}),
        (lambda: frame(spark, 12, jam=5).write.insertInto(T), {"jam": 5.0}),
        (lambda: frame(spark, 12, kiwi=6).write.mode("append").saveAsTable(T), {"kiwi": 6.0}),
        (lambda: frame(spark, 12, leek=7).write.format("statestore").mode("append").saveAsTable(T), {"leek": 7.0}),
        (f"DELETE FROM {T} AS d WHERE d.item IN ('leek', 'kiwi', 'jam')", {"leek": None, "kiwi": None, "jam": None}),
        (f"MERGE INTO {T} t USING (SELECT * {new} FROM {T} VERSION AS OF 1 UNION ALL SELECT 'mint', 8D, {stamp(13)}) s "
         "ON t.item = s.item WHEN NOT MATCHED THEN INSERT *", {"mint": 8.0}),
    ]  # fmt: skip
    expected = {"curry": 9.0, "dal": 5.0, "egg": 3.0}
    for number, (step, change) in enumerate(steps, 2):
        spark.sql(step) if isinstance(step, str) else step()
        expected = {key: value for key, value in (expected | change).items() if value is not None}
        assert state(spark, writable) == expected, step
        assert spark.sql(f"SELECT max(version) FROM {T}.versions").first() == (number,), step
    replaced: list[str | Callable[[], Any]] = [
        f"INSERT OVERWRITE {T} SELECT item, price, {stamp(14)} FROM {T} VERSION AS OF 1",
        lambda: frame(spark, 15, **V1).write.mode("overwrite").insertInto(T),
        lambda: frame(spark, 16, **V2).writeTo(T).overwrite(F.lit(True)),
        f"TRUNCATE TABLE {T}",
    ]
    results = [{"curry": 9.0, "dal": 5.0, "egg": 3.0}, V1, V2, {}]
    for replacing, rows in zip(replaced, results, strict=True):
        spark.sql(replacing) if isinstance(replacing, str) else replacing()
        assert state(spark, writable) == rows, replacing
    past = spark.sql(f"SELECT item, price FROM {T} TIMESTAMP AS OF '2024-05-01 15:30:00Z'").collect()
    assert {row[0]: row[1] for row in past} == V1


@pytest.mark.slow
def test_new_tables(spark: SparkSession, writable: Path) -> None:
    """From a query, like another table, and by the statement that SHOW CREATE TABLE states."""
    past = f"{T} TIMESTAMP AS OF '2024-05-01 08:30:00Z'"
    start = {"curry": 9.0, "dal": 5.0, "egg": 3.0}
    spark.sql(f"INSERT INTO {T} VALUES ('curry', 10, {stamp(9)})")
    spark.sql(f"CREATE TABLE lake_writes.a USING statestore {PROPERTIES} AS SELECT * EXCEPT (valid_to) FROM {past}")
    assert state(spark, writable, "a") == start
    kind = "TBLPROPERTIES (key = 'item', kind = 'key_value')"
    spark.sql(f"CREATE TABLE lake_writes.b {kind} AS SELECT item, price FROM {past}")
    assert state(spark, writable, "b") == start
    frame(spark, 9, fig=1).writeTo("lake_writes.c").using("statestore").tableProperty("key", "item").create()
    assert state(spark, writable, "c") == {"fig": 1.0}
    window = "TBLPROPERTIES (key = 'item', kind = 'window', retention = '9 days', window_size = '1 h')"
    spark.sql(f"CREATE TABLE lake_writes.d {window} AS SELECT item, price, valid_from AS window_start FROM {T}")
    assert state(spark, writable, "d") == start | {"curry": 10.0}


OPTIONS = (
    "history_retention = '1 h'",
    "kind = 'key_value', key_groups = '7'",
    "kind = 'session', retention = '1 h'",
    "kind = 'window', retention = '1 h', window_size = '1 min', retain_duplicates = 'true', time_ordered = 'true'",
    "kind = 'join_window', retention = '1 h', window_before = '1 min', num_segments = '4', batched_changelog = 'true'",
)


@pytest.mark.parametrize("options", mostly_slow(OPTIONS, 9))
def test_show_create_table_makes_the_same_store(spark: SparkSession, writable: Path, options: str) -> None:
    spark.sql(f"CREATE TABLE lake_writes.one (item STRING, n INT) TBLPROPERTIES (key = 'item', {options})")
    shown = spark.sql("SHOW CREATE TABLE lake_writes.one").collect()[0][0]
    spark.sql(shown.replace("lake_writes.one", "lake_writes.two"))
    made = ["one", "two"]
    if spark.version >= "4.2":
        spark.sql("CREATE TABLE lake_writes.three LIKE lake_writes.one")
        made.append("three")
    specs = []
    for name in made:
        with statestore.connect(writable).open_store(name) as store:
            spec = store.spec
        specs.append((spec.kind, spec.key, spec.value, spec.history_retention, spec.key_groups, spec.windowing))
    assert all(spec == specs[0] for spec in specs)


REFUSED: dict[str, tuple[type[Exception], str]] = {
    "UPDATE {t} SET price = 1 WHERE item = 'dal'":
        (AnalysisException, r"\[UNSUPPORTED_STATEMENT\] UPDATE or MERGE of lake_writes.t: a store takes whole rows"),
    "MERGE INTO {t} t USING (TABLE {t}) s ON t.item = s.item WHEN MATCHED THEN UPDATE SET price = s.price":
        (AnalysisException, r"\[UNSUPPORTED_STATEMENT\] UPDATE or MERGE of lake_writes.t"),
    "MERGE INTO {t} t USING (TABLE {t}) s ON t.item = s.item WHEN MATCHED THEN DELETE":
        (UnsupportedOperationException, r"does not support MERGE"),
    "CREATE TABLE lake_writes.n USING statestore {p} AS SELECT * FROM {t}":
        (AnalysisException, r"\[WRONG_SCHEMA\] the query has valid_to, .*EXCEPT \(valid_to\), or name"),
    "CREATE TABLE lake_writes.n USING statestore {p} AS SELECT item, price FROM {t}":
        (AnalysisException, r"\[WRONG_SCHEMA\] the query has no column valid_from"),
    "CREATE TABLE lake_writes.n TBLPROPERTIES (key = 'item', kind = 'key_value') AS SELECT * FROM {t}":
        (AnalysisException, r"\[WRONG_SCHEMA\] the query has valid_from, valid_to, which a key_value table"),
    "CREATE TABLE lake_writes.n TBLPROPERTIES (key = 'item', kind = 'session', retention = '1 h') AS "
    "SELECT item, price FROM {t}": (AnalysisException, r"no column session_start and no session_end, which the rows"),
    "CREATE TABLE lake_writes.n (item STRING, v VARIANT) {p}": (AnalysisException, r"\[UNSUPPORTED_TYPE\] column 'v'"),
    "CREATE TABLE lake_writes.n AS SELECT 1 AS a": (AnalysisException, r"\[MISSING_OPTION\] .*tableProperty\('key'"),
    "INSERT INTO {t} SELECT * FROM {t}": (AnalysisException, r"TOO_MANY_DATA_COLUMNS"),
    "INSERT INTO {t} REPLACE WHERE item = 'a' SELECT 'a', 5D, now()": (AnalysisException, r"overwrite by filter"),
    "ALTER TABLE {t} SET TBLPROPERTIES ('history_retention' = '1 day')": (AnalysisException, r"are permanent"),
    "ALTER TABLE {t} ADD COLUMN m INT": (AnalysisException, r"\[UNSUPPORTED_STATEMENT\]"),
    "ANALYZE TABLE {t} COMPUTE STATISTICS": (AnalysisException, r"ANALYZE TABLE"),
    "TRUNCATE TABLE {t}.history": (AnalysisException, r"does not support truncates"),
    "DESCRIBE HISTORY {t}": (AnalysisException, r"TABLE_OR_VIEW_NOT_FOUND"),
    "RESTORE TABLE {t} TO VERSION AS OF 1": (ParseException, r"RESTORE"),
    "OPTIMIZE {t}": (ParseException, r"OPTIMIZE"),
    "VACUUM {t}": (ParseException, r"VACUUM"),
    "CALL lake_writes.system.rollback_to_snapshot('t', 1)": (AnalysisException, r"does not support procedures"),
    "SELECT * FROM {t} VERSION AS OF 99": (AnalysisException, r"\[VERSION_NOT_FOUND\]"),
    "CREATE VIEW lake_writes.v AS SELECT * FROM {t}": (AnalysisException, r"does not support views"),
}  # fmt: skip


@pytest.mark.slow
def test_refusals_are_errors_of_spark_and_change_nothing(spark: SparkSession, writable: Path) -> None:
    before = state(spark, writable)
    for statement, (kind, said) in REFUSED.items():
        with pytest.raises(kind, match=said) as raised:
            spark.sql(statement.format(t=T, p=PROPERTIES))
        shown = str(raised.value)
        assert "Traceback" not in shown and "py4j" not in shown.lower(), statement
    assert state(spark, writable) == before
    assert [path.name for path in writable.iterdir()] == ["t"]
    assert spark.sql(f"SELECT max(version) FROM {T}.versions").first() == (1,)


def test_spark_s_own_catalog_takes_no_table_of_this_package(spark: SparkSession, writable: Path) -> None:
    rows = frame(spark, 9, fig=1)
    writes: list[Callable[[], Any]] = [
        lambda: rows.writeTo("plain_t").using("statestore").create(),
        lambda: rows.writeTo("spark_catalog.default.plain_t").using("arrow_statestore").createOrReplace(),
        lambda: rows.write.format("statestore").saveAsTable("plain_t"),
        lambda: rows.write.saveAsTable("plain_t", format="statestore", mode="append"),
    ]
    for write in writes:
        with pytest.raises(statestore.UnsupportedError, match=r"\[SESSION_CATALOG\] .*plain_t would be a table"):
            write()
    assert not spark.catalog.tableExists("plain_t")


@pytest.mark.slow
def test_descriptions(spark: SparkSession, writable: Path) -> None:
    def first(statement: str) -> list[Any]:
        return [row[0] for row in spark.sql(statement).collect()]

    assert first(f"SHOW COLUMNS IN {T}") == ["item", "price", "valid_from", "valid_to"]
    assert spark.sql(f"SHOW TBLPROPERTIES {T} ('key')").collect()[0][1] == "item"
    assert spark.sql(f"SHOW TBLPROPERTIES {T} ('kind')").collect()[0][1] == "versioned"
    spark.sql(f"CACHE TABLE {T}")
    spark.sql(f"INSERT INTO {T} VALUES ('fig', 1, {stamp(9)})")
    assert spark.sql(f"SELECT count(*) FROM {T}").first() == (4,)
    spark.sql(f"REFRESH TABLE {T}")
    spark.sql(f"UNCACHE TABLE {T}")
    assert spark.table(T).count() == 4
    assert spark.read.option("versionAsOf", 1).table(T).count() == 3
