"""Fields of structs that a statement reads: only these are decoded, and no answer changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path

import statestore
from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.connector.duckdb.attach import HAS_SOURCES
from statestore.connector.sql import sql_duckdb
from statestore.connector.sql.fields_of_statement import names_its_fields
from statestore.connector.sql.sql_statement import DuckDBSQL, parse
from statestore.formats.state_table import Query

pytestmark = pytest.mark.skipif(not HAS_SOURCES, reason="DuckDB 1 has no sources, which tell their scans")

CHECKPOINTS = ["spark4.3.0-agg__rk", "spark4.3.0-agg__hdfs"]
ROWS = [
    {
        "id": n,
        "v": None if n % 5 == 3 else {"a": n, "b": f"b{n % 3}", "c": None if n % 4 == 1 else {"d": n / 2, "e": "e"}},
    }
    for n in range(40)
]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store whose rows have structs, some of them null or with a null struct inside, and some of them replaced."""
    folder = str(tmp_path_factory.mktemp("structs"))
    catalog = statestore.connect(folder)
    value = {"v": "struct<a: bigint, b: string, c: struct<d: double, e: string>>"}
    with catalog.create_store("s", key={"id": "bigint"}, value=value) as store:
        for row in ROWS:
            store.put({"id": row["id"]}, {"v": {"a": -1, "b": "old", "c": None}}, timestamp=1)
        store.commit()
        for row in ROWS:
            store.put({"id": row["id"]}, {"v": row["v"]}, timestamp=2)
        store.commit()
    return folder


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Query]]:
    """The queries with which splits are read."""
    found: list[Query] = []
    for kind, name in ((EngineTable, "read"), (VersionedTable, "read"), (VersionedTable, "read_marked")):
        original = getattr(kind, name)

        def read(self: Any, split: Any, query: Query, original: Any = original) -> Any:
            found.append(query)
            return original(self, split, query)

        monkeypatch.setattr(kind, name, read)
    yield found


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_one_field_of_a_checkpoint_is_decoded_alone(name: str, queries: list[Query]) -> None:
    path = str(checkpoint_path(name))
    values = statestore.inspect(path).table("state").scan().read_all().to_pylist()
    queries.clear()
    found = statestore.sql(path, "SELECT sum(value.sum) AS total FROM state WHERE value.count > 1").to_pylist()
    kept = [row["value"]["sum"] for row in values if row["value"]["count"] > 1]
    assert found == [{"total": sum(each for each in kept if each is not None)}]
    assert {query.columns for query in queries} == {("value",)}
    assert {query.fields for query in queries} == {(("value", "count"), ("value", "sum"))}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_rows_are_counted_without_a_value(name: str, queries: list[Query]) -> None:
    """RocksDB state by its metadata, and other state by the column that costs nothing."""
    path = str(checkpoint_path(name))
    rows = statestore.inspect(path).table("state").scan().read_all().num_rows
    queries.clear()
    assert statestore.attach(path).execute("SELECT count(*) FROM state").fetchall() == [(rows,)]
    assert {query.columns for query in queries} == (set() if name.endswith("rk") else {("partition_id",)})
    queries.clear()
    statement = "SELECT count(*) FROM state WHERE partition_id >= 0"
    assert statestore.attach(path).execute(statement).fetchall() == [(rows,)]
    assert {query.columns for query in queries} == {("partition_id",)}


STATEMENTS: dict[str, tuple[tuple[str, ...], ...] | None] = {
    "SELECT sum(v.a) FROM s": (("v", "a"),),
    "SELECT v.A, V.c.D FROM s ORDER BY id": (("v", "a"), ("v", "c", "d")),
    "SELECT id FROM s WHERE v.a > 3 AND v.b LIKE 'b%' ORDER BY id": (("v", "a"), ("v", "b")),
    "SELECT v.a FROM s WHERE id IN (1, 3, 7) ORDER BY id": (("v", "a"),),
    "SELECT v.c FROM s ORDER BY id": (("v", "c"),),
    "SELECT x.v.a, y.v.b FROM s x JOIN s y ON x.id = y.id ORDER BY x.id": (("v", "a"), ("v", "b")),
    "SELECT q.w.a FROM (SELECT id, v AS w FROM s) q ORDER BY q.id": (("v", "a"),),
    "SELECT s.v.b, count(*), max(s.v.c.e) FROM s GROUP BY s.v.b ORDER BY 1": (("v", "b"), ("v", "c", "e")),
    "SELECT v.a FROM s VERSION AS OF 1 ORDER BY id": (("v", "a"),),
    "SELECT v.a FROM s WHERE v.b IS NULL AND false": None,
    "SELECT v.a, v IS NULL FROM s ORDER BY id": None,
    "SELECT v FROM s ORDER BY id": None,
    "SELECT * FROM s ORDER BY id": None,
    "SELECT typeof(v), v.a FROM s ORDER BY id": None,
    "SELECT t.y FROM (SELECT v.* FROM s) t(x, y, z) ORDER BY ALL": None,
    "SELECT struct_extract_at(v, 2), v.a FROM s ORDER BY id": None,
    "SELECT v.a FROM s UNION ALL SELECT v.a FROM s ORDER BY ALL": None,
    "SELECT id, count(*) FROM s GROUP BY id ORDER BY id": (),
}


@pytest.mark.parametrize(("statement", "fields"), STATEMENTS.items())
def test_a_statement_has_the_answer_that_whole_structs_have(
    warehouse: str,
    queries: list[Query],
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    fields: tuple[tuple[str, ...], ...] | None,
) -> None:
    found = statestore.sql(warehouse, statement)
    assert {path for query in queries for path in query.fields} == set(fields or ())
    monkeypatch.setattr(sql_duckdb, "names_its_fields", lambda tree: False)
    whole = statestore.sql(warehouse, statement)
    assert found.schema == whole.schema
    assert found.to_pylist() == whole.to_pylist()


def test_fields_are_those_of_the_rows_that_were_written(warehouse: str) -> None:
    found = statestore.sql(warehouse, "SELECT id, v.a AS a, v.b AS b, v.c.d AS d FROM s ORDER BY id").to_pylist()
    expected = []
    for row in ROWS:
        v: Any = row["v"] or {"a": None, "b": None, "c": None}
        expected.append({"id": row["id"], "a": v["a"], "b": v["b"], "d": v["c"] and v["c"]["d"]})
    assert found == expected


def test_texts_that_several_paths_have_are_all_of_them(tmp_path: Path) -> None:
    """A plan names the field ``y`` of ``x`` as it names a column ``x.y``."""
    catalog = statestore.connect(tmp_path)
    value = {"x": "struct<y: bigint, z: bigint>", "x.y": "bigint"}
    with catalog.create_store("s", key={"id": "bigint"}, value=value) as store:
        store.put({"id": 1}, {"x": {"y": 2, "z": 3}, "x.y": 4}, timestamp=1)
        store.commit()
    asked = 'SELECT s.x.y AS a, s."x.y" AS b FROM s'
    assert statestore.sql(str(tmp_path), asked).to_pylist() == [{"a": 2, "b": 4}]
    assert statestore.sql(str(tmp_path), 'SELECT s."x.y" AS b FROM s').to_pylist() == [{"b": 4}]
    assert statestore.sql(str(tmp_path), "SELECT s.x.z AS z FROM s").to_pylist() == [{"z": 3}]


@pytest.mark.parametrize(
    ("statement", "by_name"),
    [
        ("SELECT sum(v.a), count(*) FROM s WHERE v.b = 'x' GROUP BY id HAVING max(v.a) > 1 LIMIT 3", True),
        ("SELECT v.* FROM s", False),
        ("SELECT v['a'] FROM s", False),
        ("SELECT v[1] FROM s", False),
        ("SELECT row_number() OVER (ORDER BY v.a) FROM s", False),
        ("WITH t AS (SELECT v FROM s) SELECT t.v.a FROM t", False),
        ("SELECT json_extract(v, '$.a') FROM s", False),
        ("SELECT CAST(v AS VARCHAR), v.a FROM s", False),
        ("SELECT unnest(v) FROM s", False),
        ("SELECT x FROM s t(x, y)", False),
        ("FROM s", False),
    ],
)
def test_only_statements_that_know_fields_by_name_are_looked_at(statement: str, by_name: bool) -> None:
    assert names_its_fields(parse(statement, DuckDBSQL)) == by_name


def test_tables_without_structs_are_not_planned_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("plain", key={"id": "bigint"}, value={"n": "bigint"}) as store:
        store.put_all(pa.table({"id": [1, 2], "n": [3, 4], "timestamp": [1, 1]}))
        store.commit()
    monkeypatch.setattr("statestore.connector.sql.fields_of_statement._scans", lambda root: pytest.fail("planned"))
    assert statestore.sql(str(tmp_path), "SELECT sum(n) AS n FROM plain").to_pylist() == [{"n": 7}]
