"""Macros of an attached connection that read a table at a moment."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from statestore.catalog.catalog import connect
from statestore.connector.duckdb.attach import attach


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


@pytest.mark.parametrize(
    "source, rows",
    [
        ("prices_as_of('1970-01-01T00:00:03Z')", OLD),
        ("prices_as_of(TIMESTAMPTZ '1970-01-01 00:00:03+00')", OLD),
        ("prices_as_of('1970-01-01T00:00:09Z')", NEW),
        ("prices_at_version(1)", OLD),
        ("prices_at_version(2)", NEW),
        ("as_of('kv-string.count', '1970-01-01T00:00:03Z')", OLD),
        ('"kv-string.count_at_version"(1)', OLD),
        ("(FROM prices_at_version(1) EXCEPT FROM prices_at_version(2))", OLD),
    ],
)
def test_a_macro_reads_the_moment(
    attached: duckdb.DuckDBPyConnection, source: str, rows: list[tuple[str, float]]
) -> None:
    assert attached.sql(f"SELECT item, price FROM {source} ORDER BY item").fetchall() == rows
    assert attached.cursor().execute(f"SELECT count(*) FROM {source}").fetchall() == [(len(rows),)]


def test_parameters_and_joins_of_two_moments(attached: duckdb.DuckDBPyConnection) -> None:
    for version, rows in ((1, OLD), (2, NEW), (1, OLD)):
        text = "SELECT item, price FROM prices_at_version(?) ORDER BY item"
        assert attached.execute(text, [version]).fetchall() == rows
    attached.execute("PREPARE p AS SELECT item, price FROM prices_at_version($1) ORDER BY item")
    assert attached.execute("EXECUTE p(1)").fetchall() == OLD
    assert attached.execute("EXECUTE p(2)").fetchall() == NEW
    joined = "SELECT a.price, b.price FROM prices_at_version(1) a JOIN prices_at_version(2) b USING (item)"
    assert attached.sql(joined).fetchall() == [(8.0, 9.0)]


@pytest.mark.parametrize(
    "source, said",
    [
        ("prices_at_version(9)", "versions 0 to 2"),
        ("prices_as_of('1970-01-01T00:00:03')", "zone"),
        ("prices_as_of(TIMESTAMP '1970-01-01 00:00:03')", "zone"),
        ("prices_at_version(NULL)", "NULL"),
        ("at_version('nothing', 1)", "no table 'nothing'"),
        ("prices_at_version((SELECT 1))", "subqueries"),
        ("(VALUES (1)) v(x), prices_at_version(v.x)", "lateral"),
        ("__statestore.prices", "macro"),
    ],
)
def test_a_moment_that_cannot_be_read_is_an_error(attached: duckdb.DuckDBPyConnection, source: str, said: str) -> None:
    with pytest.raises(duckdb.Error, match=said):
        attached.sql(f"SELECT * FROM {source} WHERE {'true' if source.startswith('__') else 'false'}").fetchall()
