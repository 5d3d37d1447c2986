"""Macros of an attached connection that read a table at a moment."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.flink.fixtures import fixture
from support.parameters import mostly_slow

from statestore.catalog.catalog import connect
from statestore.catalog.warehouse import inspect, open_warehouse
from statestore.connector.duckdb.attach import attach
from statestore.connector.duckdb.moments import KEPT_BYTES, KEPT_READINGS, KeptReadings, _Moments
from statestore.connector.duckdb.reading import Reading
from statestore.connector.duckdb.transactions import Transactions
from statestore.formats.errors import InvalidInputError
from statestore.formats.state_table import Query


@pytest.fixture
def attached(tmp_path: Path) -> duckdb.DuckDBPyConnection:
    for name in ("prices", "kv-string.count"):
        store = connect(str(tmp_path)).create_store(
            name, kind="versioned", key={"item": "string"}, value={"price": "double"}
        )
        store.put("curry", 8.0, timestamp=0)
        store.commit()
        store.put("curry", 9.0, timestamp=5000)
        store.put("milk", 2.0, timestamp=6000)
        store.commit()
    return attach(str(tmp_path))


OLD, NEW = [("curry", 8.0)], [("curry", 9.0), ("milk", 2.0)]


def test_a_macro_reads_the_moment(attached: duckdb.DuckDBPyConnection) -> None:
    for source, rows in (
        ("prices_as_of('1970-01-01T00:00:03Z')", OLD),
        ("prices_as_of(TIMESTAMPTZ '1970-01-01 00:00:03+00')", OLD),
        ("prices_as_of('1970-01-01T00:00:09Z')", NEW),
        ("prices_at_version(1)", OLD),
        ("prices_at_version(2)", NEW),
        ("as_of('kv-string.count', '1970-01-01T00:00:03Z')", OLD),
        ('"kv-string.count_at_version"(1)', OLD),
        ("(FROM prices_at_version(1) EXCEPT FROM prices_at_version(2))", OLD),
    ):
        assert attached.sql(f"SELECT item, price FROM {source} ORDER BY item").fetchall() == rows, source
        assert attached.cursor().execute(f"SELECT count(*) FROM {source}").fetchall() == [(len(rows),)], source


@pytest.mark.usefixtures("attached")
def test_a_cursor_outlives_its_connection(tmp_path: Path) -> None:
    cursor = attach(str(tmp_path)).cursor()
    gc.collect()
    # These reads come first: DuckDB ends the process where it calls a function of a macro that is gone.
    assert cursor.execute('SELECT count(*) FROM "prices$versions"').fetchall() == [(3,)]
    assert cursor.execute("SELECT item, price FROM prices_as_of(3000)").fetchall() == OLD


@pytest.mark.usefixtures("attached")
def test_what_an_attached_connection_read_is_freed_with_it(tmp_path: Path) -> None:
    seen = list[weakref.ref[Reading]]()
    with pytest.MonkeyPatch.context() as patch:
        made = Reading.__init__

        def noted(self: Reading, *given: Any, **named: Any) -> None:
            made(self, *given, **named)
            seen.append(weakref.ref(self))

        patch.setattr(Reading, "__init__", noted)
        connection = attach(str(tmp_path))
        connection.execute("FROM prices_as_of(3000)").fetchall()
        cursor = connection.cursor()
        del connection
        cursor.execute('FROM "prices$versions"').fetchall()
    assert len(seen) > 3
    del cursor
    gc.collect()
    assert not [each for each in seen if each() is not None]


def test_parameters_and_joins_of_two_moments(attached: duckdb.DuckDBPyConnection) -> None:
    for version, rows in ((1, OLD), (2, NEW), (1, OLD)):
        text = "SELECT item, price FROM prices_at_version(?) ORDER BY item"
        assert attached.execute(text, [version]).fetchall() == rows
    for moment in ("1970-01-01T00:00:03Z", 3000, datetime.fromtimestamp(3, UTC)):
        assert attached.execute("SELECT item, price FROM prices_as_of(?)", [moment]).fetchall() == OLD
    attached.execute("PREPARE p AS SELECT item, price FROM prices_at_version($1) ORDER BY item")
    assert attached.execute("EXECUTE p(1)").fetchall() == OLD
    assert attached.execute("EXECUTE p(2)").fetchall() == NEW
    joined = "SELECT a.price, b.price FROM prices_at_version(1) a JOIN prices_at_version(2) b USING (item)"
    assert attached.sql(joined).fetchall() == [(8.0, 9.0)]


UNREADABLE = [
    ("prices_at_version(9)", "versions 0 to 2"),
    ("prices_as_of('1970-01-01T00:00:03')", "zone"),
    ("prices_as_of(TIMESTAMP '1970-01-01 00:00:03')", "zone"),
    ("prices_at_version(NULL)", "NULL"),
    ("at_version('nothing', 1)", "no table 'nothing'"),
    ("prices_at_version((SELECT 1))", "subqueries"),
    ("(VALUES (1)) v(x), prices_at_version(v.x)", "lateral"),
    ("prices_at_version(1.6)", "INVALID_VERSION.*1.6"),
    ("prices_at_version(true)", "INVALID_VERSION.*true"),
    ("as_of('prices', 3000, version := 1.6)", "INVALID_VERSION"),
    ("changes('prices', start_version := 0.6)", "INVALID_VERSION.*start_version"),
    ("changes('prices', start_version := 2, end_time := 3000)", "CONFLICTING_OPTIONS"),
    ("prices_as_of(TIMESTAMPTZ '0044-03-15 (BC) 00:00:00+00')", "TIME_OUT_OF_RANGE"),
    ("prices_as_of(TIMESTAMPTZ '20000-01-01 00:00:00+00')", "TIME_OUT_OF_RANGE"),
    ("prices_as_of(TIMESTAMPTZ 'infinity')", "INVALID_TIME.*infinity"),
    ("prices_as_of(NULL::TIMESTAMPTZ)", "NULL"),
    ("as_of(NULL, 3000)", "table_name is NULL"),
    ("as_of(1, 3000)", "no table '1'"),
    ("as_of('prices$versions', 3000)", "which has .*prices"),
]


def test_a_moment_that_cannot_be_read_is_an_error(attached: duckdb.DuckDBPyConnection) -> None:
    for source, said in UNREADABLE:
        with pytest.raises(duckdb.Error, match=said):
            attached.sql(f"SELECT * FROM {source} WHERE false").fetchall()


def test_history_changes_and_versions(attached: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    table = inspect(str(tmp_path)).table("prices")
    for macro, rows in [
        ("history('prices')", table.history()),
        ("history('PRICES', version := 1)", table.history(version=1)),
        ("history('prices', start_time := '1970-01-01T00:00:06Z')", table.history(start_time=6000)),
        ("history('prices', end_time := to_timestamp(3))", table.history(end_time=3000)),
        ("changes('prices')", table.changes()),
        ("changes('prices', start_version := 2, end_version := 2)", table.changes(start_version=2, end_version=2)),
        ("changes('prices', start_time := 6000)", table.changes(start_time=6000)),
        ("as_of('prices', '1970-01-01T00:00:09Z', version := 1)", table.scan(as_of=9000, version=1)),
        ("prices_as_of('1970-01-01T00:00:09Z', version := 1)", table.scan(as_of=9000, version=1)),
    ]:
        found = attached.sql(f"FROM {macro}").to_arrow_table()
        assert found.column_names == rows.schema.names, macro
        assert counted(found.to_pylist()) == counted(rows.read_all().to_pylist()), macro
    (versions,) = attached.sql("SELECT list(version ORDER BY version) FROM versions('prices')").fetchall()
    assert versions == ([0, 1, 2],)
    joined = "SELECT count(*) FROM history('prices') a JOIN changes('prices') b USING (item) WHERE a.price > 8"
    assert attached.sql(joined).fetchall() == [(3,)]


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(map(repr, rows))


def test_new_commits_and_moments_that_leave(attached: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A moment reads the newest version of it, and one that an expiry took is an error."""
    text = "SELECT item, price FROM prices_as_of('1970-01-01T00:00:03Z')"
    attached.execute(f"PREPARE p AS {text}")
    with connect(str(tmp_path)).open_store("prices") as store:
        store.put("late", 1.0, timestamp=2000)
        store.commit()
        for found in (attached.sql(text), attached.execute("EXECUTE p")):
            assert sorted(found.fetchall()) == [*OLD, ("late", 1.0)]
        store.expire(before=4000)
    for query in (text, "EXECUTE p"):
        with pytest.raises(duckdb.Error, match="TIME_NOT_KEPT"):
            attached.execute(query).fetchall()


def test_a_transaction_reads_one_version(attached: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    text = "SELECT item, price FROM prices_as_of('1970-01-01T00:00:03Z') ORDER BY item"
    attached.execute("BEGIN")
    assert attached.execute(text).fetchall() == OLD
    with connect(str(tmp_path)).open_store("prices") as store:
        store.put("late", 1.0, timestamp=2000)
        store.commit()
        store.compact(full=True)
    assert attached.execute(text).fetchall() == OLD
    attached.execute("COMMIT")
    assert attached.execute(text).fetchall() == [*OLD, ("late", 1.0)]


def test_a_moment_is_the_same_in_every_time_zone(attached: duckdb.DuckDBPyConnection) -> None:
    """Monrovia's clocks were 44 minutes and 30 seconds behind, which is no offset in the text of a time."""
    for zone in ("Europe/Berlin", "Asia/Kathmandu", "Africa/Monrovia", "America/New_York"):
        attached.execute(f"SET TimeZone = '{zone}'")
        for moment in ("to_timestamp(3)", "make_timestamptz(4999999)", "3000::USMALLINT", "3000::UBIGINT"):
            found = attached.sql(f"SELECT item, price FROM prices_as_of({moment})").fetchall()
            assert found == OLD, (zone, moment)
        assert attached.sql("FROM prices_as_of(make_timestamptz(-1))").fetchall() == []


def test_all_readings_of_a_transaction_are_of_one_version(attached: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A moment, range or view that the transaction reads for the first time after a commit is no newer than others."""
    cursor = attached.cursor()
    cursor.execute("BEGIN")
    assert cursor.execute("SELECT item, price FROM prices_as_of(3000)").fetchall() == OLD
    with connect(str(tmp_path)).open_store("prices") as store:
        store.put("late", 1.0, timestamp=2000)
        store.commit()
    for source, rows in [
        ("prices_as_of(3001)", 1),
        ("prices", 2),
        ("history('prices')", 3),
        ("changes('prices')", 4),
        ("changes('prices', start_version := 2)", 3),
        ("changes('prices', start_time := 0)", 4),
        ("versions('prices')", 3),
        ('"prices$versions"', 3),
    ]:
        assert cursor.execute(f"SELECT count(*) FROM {source}").fetchall() == [(rows,)], source
    cursor.execute("ROLLBACK")
    assert cursor.execute("SELECT count(*) FROM changes('prices', start_time := 0)").fetchall() == [(5,)]
    assert cursor.execute("SELECT count(*) FROM prices_as_of(3001)").fetchall() == [(2,)]


def test_copies_of_many_moments_have_one_bound() -> None:
    """The moments asked for last stay."""
    kept, made = KeptReadings(), []

    def ask(number: int) -> None:
        def make() -> Any:
            made.append(number)
            return SimpleNamespace(reading=SimpleNamespace(copied_bytes=KEPT_BYTES // 4))

        kept.get(("prices", Query(version=number)), make)

    for number in (*range(10), 9, 8, 7, 0):
        ask(number)
    assert made == [*range(10), 0]


def test_a_moment_with_other_columns_is_refused(attached: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    table = open_warehouse(str(tmp_path)).open("prices")
    moments = _Moments(Transactions(table), "state", KeptReadings())
    with pytest.raises(InvalidInputError, match=r"SCHEMA_CHANGED.*attach its path again"):
        moments.source(Query(version=1), pa.schema([("item", pa.string())]))


def test_macros_are_found_from_other_databases_and_schemas(attached: duckdb.DuckDBPyConnection) -> None:
    attached.execute("ATTACH ':memory:' AS __statestore; ATTACH ':memory:' AS other; CREATE SCHEMA mine")
    for used, prefix in (("other", "memory.main."), ("memory.mine", "main."), ("memory.main", "")):
        attached.execute(f"USE {used}")
        assert attached.execute(f"SELECT item, price FROM {prefix}prices_as_of(3000)").fetchall() == OLD
        assert attached.execute(f"SELECT count(*) FROM {prefix}versions('prices')").fetchall() == [(3,)]


def test_a_moment_needs_pushed_filters(attached: duckdb.DuckDBPyConnection) -> None:
    for disabled in ("filter_pushdown", "expression_rewriter"):
        attached.execute(f"SET disabled_optimizers = '{disabled}'")
        with pytest.raises(duckdb.Error, match=r"FILTER_PUSHDOWN_OFF.*'prices'"):
            attached.execute("FROM prices_as_of(3000)").fetchall()


def test_more_moments_in_one_query_than_are_kept(attached: duckdb.DuckDBPyConnection) -> None:
    """Readings that left memory are made again, also that of a statement that was prepared before."""
    attached.execute("PREPARE p AS SELECT item, price FROM prices_as_of(3000)")
    many = KEPT_READINGS + 10
    text = " UNION ALL ".join(f"SELECT * FROM prices_as_of({second * 1000})" for second in range(many))
    ((count,),) = attached.sql(f"SELECT count(*) FROM ({text})").fetchall()
    assert count == many + many - 6
    assert attached.execute("EXECUTE p").fetchall() == OLD


@pytest.mark.parametrize("name", mostly_slow(["spark4.3.0-agg__rkcl", "spark4.3.0-join__hdfs", "flink"], 3))
def test_states_of_engines(name: str) -> None:
    path = fixture("sql") if name == "flink" else checkpoint_path(name)
    connection = attach(str(path))
    for shown in inspect(path).tables()[:3]:
        table = inspect(path).table(shown)
        version = table.versions()["version"].to_pylist()[-2]
        for macro, rows in [
            (f"at_version('{shown}', {version})", table.scan(version=version)),
            (f"history('{shown}')", table.history()),
            (f"changes('{shown}')", table.changes()),
        ]:
            assert len(connection.sql(f"FROM {macro}").fetchall()) == rows.read_all().num_rows, macro
        with pytest.raises(duckdb.Error, match="CONFLICTING_OPTIONS"):
            connection.sql(f"FROM changes('{shown}', start_version := {version}, end_time := now())").fetchall()
        expected = table.scan(version=version, columns=list(table.schema.names[:1])).read_all().num_rows
        assert connection.sql(f'SELECT count(*) FROM "{shown}_at_version"({version})').fetchall() == [(expected,)]


def test_keyed_states_and_stores_with_the_names_of_macros(tmp_path: Path) -> None:
    catalog = connect(str(tmp_path))
    for name in ("history", "as_of", "changes"):
        with catalog.create_store(name, key={"item": "string"}, value={"price": "double"}) as store:
            store.put("curry", 8.0, timestamp=0)
            store.commit()
    for name in ("sessions", "__statestore", "__statestore_history"):
        with catalog.create_store(name, kind="keyed", key={"user": "string"}) as keyed, keyed.backend() as backend:
            clicks = backend.value_state("clicks", "bigint")
            for number in range(3):
                backend.set_current_key("ada")
                clicks.update(number)
                keyed.commit([backend.snapshot("full").result()])
    connection = attach(str(tmp_path))
    assert connection.sql("SELECT item FROM history").fetchall() == [("curry",)]
    assert connection.sql("SELECT item, price FROM history('history')").fetchall() == OLD
    assert connection.sql("SELECT item, price FROM as_of_as_of(now())").fetchall() == OLD
    for name in ("sessions", "__statestore", "__statestore_history"):
        assert connection.sql(f'SELECT value FROM "{name}.clicks_at_version"(2)').fetchall() == [(1,)]
    assert len(connection.sql("FROM history('sessions.clicks')").fetchall()) == 3
