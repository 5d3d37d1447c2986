"""Each text of "Copy as" runs, and has the rows that the page shows."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.command_line import run
from support.parameters import mostly_slow

import statestore
from statestore.connector.explorer.app import application
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.pages import shown_rows
from statestore.connector.explorer.row_files import RowFiles
from statestore.formats.state_table import Query
from statestore.formats.values.filters import OPERATORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = 1_714_550_000_000
HOSTILE = ["'", '"', "a\nb", "`id`", "$(id)", "${spark.app.name}", "é ☃ 𝄞", "\\' OR 1=1 --", "%_", "-x", "", "\t;", "*"]
TABLE = "p-r.i"
COLUMN = "n'\"` $x\n;--"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A warehouse in a folder of a hostile name, with hostile keys, columns and values, and nulls and NaN."""
    folder = tmp_path_factory.mktemp("copies") / "a b'\"$(id)`;\n☃"
    catalog = statestore.connect(folder)
    value = {COLUMN: "string", "price": "double", "cents": "decimal(10,2)", "at": "timestamp", "raw": "binary"}
    with catalog.create_store(TABLE, key={"item": "string", "shop": "int"}, value=value) as store:
        for commit in range(3):
            for number, text in enumerate(HOSTILE[commit:], commit):
                price = [1.5 * number + commit, float("nan"), None, float("inf")][number % 4]
                row = {
                    COLUMN: None if number % 5 == 4 else text,
                    "price": price,
                    "cents": Decimal(number * 100 + commit) / 100,
                    "at": datetime(2024, 5, 1, number, 30, 0, 123456, tzinfo=UTC),
                    "raw": text.encode(),
                }
                store.put((text, number % 3), row, timestamp=START + 1000 * commit)
            if commit == 2:
                store.delete((HOSTILE[0], 0), timestamp=START + 2500)
            store.commit()
    return str(folder)


@pytest.fixture(scope="module")
def row_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("row_files")


@pytest.fixture(scope="module")
def client(place: str, row_files: Path) -> Iterator[TestClient]:
    with TestClient(
        application(OpenedPaths([place, str(checkpoint_path("spark4.3.0-win__rkcl"))], {}), RowFiles(row_files))
    ) as it:
        yield it


def shown(client: TestClient, question: str, **given: Any) -> pa.Table:
    response = client.get(f"/api/{question}", params={"table": TABLE, **given})
    assert response.status_code == 200, response.text
    return pa.ipc.open_stream(response.content).read_all()


def texts(client: TestClient, **given: Any) -> dict[str, dict[str, str]]:
    response = client.get("/api/copies", params={"table": TABLE, **given})
    assert response.status_code == 200, response.text
    found: dict[str, dict[str, str]] = response.json()
    return found


def by_python(text: str, spark: Any = None) -> pa.Table:
    names: dict[str, Any] = {"spark": spark}
    exec(text, names)
    return names["rows"]


def by_command(text: str) -> list[dict[str, Any]]:
    program, command, *rest = shlex.split(text)
    answer = run(command, "--json", *rest)
    assert (program, answer.code) == ("statestore", 0), answer.err
    return answer.rows


def rows_of(found: pa.Table, columns: list[str]) -> list[tuple[Any, ...]]:
    """Return rows as the page shows them."""
    return list(zip(*(shown_rows(found)[name].to_pylist() for name in columns), strict=True))


def cells_of(found: list[dict[str, Any]], columns: list[str]) -> list[tuple[Any, ...]]:
    def cell(value: Any) -> Any:
        return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return [tuple(cell(row[name]) for name in columns) for row in found]


def alike(rows: list[tuple[Any, ...]], is_sorted: bool = False) -> list[tuple[Any, ...]]:
    return rows if is_sorted else sorted(rows, key=repr)


def check(client: TestClient, spark: Any = None, **given: Any) -> pa.Table:
    """Assert that all texts of a view of a state have the rows of the page; return those."""
    page = shown(client, "rows", **given)
    columns = page.schema.names
    expected = alike([tuple(row.values()) for row in page.to_pylist()], False)
    found = texts(client, kind="state", **given)
    python = by_python(found["python"]["text"])
    assert alike(rows_of(python, columns)) == expected, found["python"]["text"]
    command = found["cli"]["text"]
    assert alike(cells_of(by_command(command), columns)) == expected, command
    if "text" in found["sql"]:
        place = _place(client, given)
        sql = statestore.sql(place, found["sql"]["text"])
        assert alike(rows_of(sql, columns)) == expected, found["sql"]["text"]
        if given.get("sort"):
            name = str(given["sort"]).removeprefix("-")
            assert rows_of(sql, [name]) == rows_of(python, [name]) == [(each,) for each in page[name].to_pylist()]
    if spark is not None:
        rows = by_python(found["spark"]["text"], spark).toArrow()
        assert alike(rows_of(rows, columns)) == expected, found["spark"]["text"]
    return page


def _place(client: TestClient, given: dict[str, Any]) -> str:
    overview = client.get("/api/overview").json()
    return str(overview[int(given.get("place", 0))]["path"])


VALUES: dict[str, tuple[str, Any]] = {
    "=": (COLUMN, "a\nb"),
    "<=>": (COLUMN, None),
    "!=": (COLUMN, "$(id)"),
    "<": ("price", "9"),
    "<=": ("cents", "5.02"),
    ">": ("price", "4.5"),
    ">=": ("at", "2024-05-01T05:30:00.123456Z"),
    "in": (COLUMN, HOSTILE),
    "is_null": (COLUMN, None),
    "is_not_null": ("price", None),
    "starts_with": (COLUMN, "$"),
    "ends_with": (COLUMN, "`"),
    "contains": (COLUMN, "'"),
}


def condition(op: str, column: str, value: Any) -> str:
    return json.dumps([[column, op]] if op in ("is_null", "is_not_null") else [[column, op, value]])


@pytest.mark.parametrize("op", OPERATORS)
def test_each_operator(client: TestClient, op: str) -> None:
    assert 0 < len(check(client, where=condition(op, *VALUES[op]))) < 12


# All of them stand in the list of `in` of each language in every run, see `VALUES`.
@pytest.mark.parametrize("text", mostly_slow(HOSTILE, 3))
def test_hostile_values(client: TestClient, text: str) -> None:
    where = json.dumps([["item", "=", text], ["shop", "=", str(HOSTILE.index(text) % 3)]])
    assert len(check(client, where=where)) == (1 if text != HOSTILE[0] else 0)


def test_hostile_bytes(client: TestClient) -> None:
    found = check(client, where=condition("in", "raw", [_base64(text) for text in HOSTILE]))
    assert len(found) == len(HOSTILE) - 1  # the first one was deleted


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


VIEWS: list[dict[str, str]] = [
    {"version": "2", "as_of": str(START)},
    {},
    {"sort": "-at", "where": '[["price", ">=", "NaN"]]'},
    {"version": "1"},
    {"sort": COLUMN, "version": "2"},
    {"as_of": "2024-05-01T07:53:21Z"},
    {"where": '[["price", "in", ["NaN", "Infinity", 0]]]'},
    {"sort": "price"},
    {"sort": "-price"},
]


@pytest.mark.parametrize("given", mostly_slow(VIEWS, 2))
def test_moments_and_orders(client: TestClient, given: dict[str, str]) -> None:
    assert len(check(client, **given))


@pytest.mark.parametrize(
    "given",
    [{"where": '[["item", "=", "a\\nb"], ["shop", "=", 2]]'}, {"key": '{"item": "-x"}'}, {"key": "$*"}, {"key": "'"}],
)
def test_lives(client: TestClient, given: dict[str, str]) -> None:
    page = shown(client, "life", **given)
    columns = [name for name in page.schema.names if not name.startswith("__")]
    expected = [tuple(row) for row in zip(*(page[name].to_pylist() for name in columns), strict=True)]
    found = texts(client, kind="life", **given)
    assert expected and rows_of(by_python(found["python"]["text"]), columns) == expected
    assert rows_of(statestore.sql(_place(client, {}), found["sql"]["text"]), columns) == expected
    assert alike(cells_of(by_command(found["cli"]["text"]), columns)) == alike(expected)


POINTS = {"from_version": "1", "to_version": "3"}


@pytest.mark.parametrize(
    "given",
    [POINTS, {**POINTS, "from_as_of": str(START), "to_version": "2"}, {**POINTS, "where": '[["price", ">", 9]]'}],
)
def test_comparisons(client: TestClient, given: dict[str, str]) -> None:
    page = shown(client, "diff", **given).to_pylist()
    found = texts(client, kind="compare", **given)
    expected = sorted((row["_change"], row["item"], row["shop"]) for row in page)
    assert expected
    names = ["_change", "item", "shop"]
    assert sorted(rows_of(by_python(found["python"]["text"]), names)) == expected
    sql = statestore.sql(_place(client, {}), found["sql"]["text"])
    assert sorted(rows_of(sql, names)) == expected
    before = {
        (row["_change"], row["item"]): None if row["_old"] is None else json.loads(row["_old"])["cents"] for row in page
    }
    assert {
        (row["_change"], row["item"]): None if row["old_cents"] is None else str(row["old_cents"])
        for row in sql.to_pylist()
    } == before
    command = found["cli"]["text"]
    answer = by_command(command)
    if shlex.split(command)[1] == "diff":
        answer = [{"_change": row["change"], **row["key"]} for row in answer]
    assert sorted(cells_of(answer, names)) == expected


def test_a_checkpoint_of_spark(client: TestClient) -> None:
    (overview,) = client.get("/api/overview").json()[1:]
    for table in overview["tables"]:
        name = table["store"]
        page = check(client, place="1", table=name)
        first, last = table["first"], table["last"]
        check(client, place="1", table=name, version=str(first))
        keys = list(table["key"])
        cell = page[keys[0]][0].as_py()
        is_nested = page.schema.field(keys[0]).metadata[b"type"].startswith(b"struct")
        value = json.loads(cell) if is_nested else cell
        for op in ("=", "!=", "in", "<=>"):
            given = [value] if op == "in" else value
            assert len(check(client, place="1", table=name, where=json.dumps([[keys[0], op, given]])))
        points = {"place": "1", "table": name, "from_version": str(first), "to_version": str(last)}
        expected = sorted(shown(client, "diff", **points)["_change"].to_pylist())
        found = texts(client, kind="compare", **points)
        assert sorted(by_python(found["python"]["text"])["_change"].to_pylist()) == expected
        sql = statestore.sql(_place(client, {"place": 1}), found["sql"]["text"])
        assert sorted(sql["_change"].to_pylist()) == expected


def test_texts_that_a_language_cannot_hold(client: TestClient) -> None:
    assert (
        statestore.sql(_place(client, {}), texts(client, where='[["item", "=", "a\\u0000b"]]')["sql"]["text"]).num_rows
        == 0
    )
    response = client.get("/api/copies", params={"table": TABLE, "where": '[["price", ">", "much"]]'})
    assert response.status_code == 400 and "expected double" in response.json()["error"]
    assert (
        "expected one of state, life" in client.get("/api/copies", params={"table": TABLE, "kind": "x"}).json()["error"]
    )


@pytest.mark.slow
def test_in_a_session_of_spark(client: TestClient, spark: SparkSession, place: str) -> None:
    from statestore.connector.spark.session.register import register, unregister

    try:
        for given in ({}, {"version": "1"}, {"version": "2", "as_of": str(START)}, {"as_of": "2024-05-01T07:53:21Z"}):
            check(client, spark, **given)
        for op in OPERATORS:
            check(client, spark, where=condition(op, *VALUES[op]))
        for given in (POINTS, {**POINTS, "where": '[["price", ">", 9]]'}):
            expected = sorted(shown(client, "diff", **given)["_change"].to_pylist())
            rows = by_python(texts(client, kind="compare", **given)["spark"]["text"], spark).toArrow()
            assert sorted(rows["_change"].to_pylist()) == expected
        # Another path takes the name in the session, and then the first one again.
        for table in client.get("/api/overview").json()[1]["tables"]:
            check(client, spark, place="1", table=table["store"], version=str(table["first"]))
        rows = by_python(texts(client, kind="life", key="$*")["spark"]["text"], spark).toArrow()
        assert len(rows) == len(shown(client, "life", key="$*"))
    finally:
        unregister(spark)
        register(spark)  # the tests of one process share the session


def test_the_reach_of_filters(client: TestClient) -> None:
    table = statestore.inspect(_place(client, {})).table(TABLE).table
    assert table.lookup_columns[0] == ("item", "shop") and table.schema(Query()).names[:2] == ["item", "shop"]
    whole = '[["item", "=", "*"], ["shop", "=", 0]]'
    assert client.get("/api/reach", params={"table": TABLE, "where": whole}).json()["lookup"] is True
    found = client.get("/api/reach", params={"table": TABLE, "where": '[["price", ">", 1]]'}).json()
    assert found["lookup"] is False and found["all"] >= found["read"]
