"""An exported file has the rows that the page shows, with their types, and is downloaded once."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from support.command_line import run

import statestore
from statestore.connector.explorer import exports
from statestore.connector.explorer.app import application
from statestore.connector.explorer.guard import Guard
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.row_files import RowFiles

START = 1_714_550_000_000
TABLE = "a.b-c"
ROWS = 3_000
PORT = 4_000


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("exports") / "warehouse"
    catalog = statestore.connect(folder)
    value = {"price": "double", "at": "timestamp", "name": "string"}
    with catalog.create_store(TABLE, key={"id": "bigint"}, value=value) as store:
        for commit in range(2):
            for number in range(ROWS):
                price = None if number % 7 == 0 else float(number * 37 % 1000 + commit)
                at = datetime(2024, 5, 1, 1, number % 60, tzinfo=UTC)
                store.put(
                    number, {"price": price, "at": at, "name": "" if number % 2 else None}, timestamp=START + commit
                )
            store.commit()
    nested = {
        "tags": "array<string>",
        "marks": "map<string,bigint>",
        "pair": "struct<bytes:binary,times:array<struct<at:timestamp>>>",
    }
    with catalog.create_store("blobs", key={"id": "binary"}, value=nested) as store:
        pair = {"bytes": b"\x01", "times": [{"at": datetime(2024, 5, 1, tzinfo=UTC)}]}
        store.put(b"\xff\x00", {"tags": ["a", 'é,"x"'], "marks": {"k": 1}, "pair": pair}, timestamp=START)
        store.put(b"\x00", {"tags": [], "marks": {}, "pair": {"bytes": b"", "times": []}}, timestamp=START)
        store.put(b"", {"tags": None, "marks": None, "pair": None}, timestamp=START)
        store.commit()
    return str(folder)


@pytest.fixture
def client(warehouse: str, tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(application(OpenedPaths([warehouse], {}), RowFiles(tmp_path))) as found:
        yield found


def exported(client: TestClient, form: str, **given: Any) -> tuple[dict[str, Any], bytes]:
    response = client.get("/api/export", params={"table": TABLE, "form": form, **given})
    assert response.status_code == 200, response.text
    facts: dict[str, Any] = response.json()
    found = client.get(f"/download/{facts['ticket']}")
    assert found.status_code == 200 and int(found.headers["content-length"]) == len(found.content) == facts["bytes"]
    assert found.headers["content-disposition"] == f'attachment; filename="{facts["name"]}"'
    return facts, found.content


def read(form: str, content: bytes) -> pa.Table:
    if form == "parquet":
        return pq.read_table(io.BytesIO(content))
    if form == "arrow":
        return pa.ipc.open_file(content).read_all()
    options = pa_csv.ConvertOptions(
        strings_can_be_null=True, quoted_strings_can_be_null=False, timestamp_parsers=[pa_csv.ISO8601]
    )
    return pa_csv.read_csv(io.BytesIO(content), convert_options=options)


def truth(warehouse: str, **given: Any) -> pa.Table:
    return statestore.inspect(warehouse).table(TABLE).scan(**given).to_arrow()


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    return list(table.sort_by([("id", "ascending")]).to_pylist())


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_types_filters_and_moments(client: TestClient, warehouse: str, form: str) -> None:
    where = json.dumps([["price", ">", 500], ["id", "<", 2000]])
    facts, content = exported(client, form, version="1", where=where)
    expected = truth(warehouse, version=1, filter=[("price", ">", 500), ("id", "<", 2000)])
    found = read(form, content)
    assert found.schema.types == expected.schema.types and in_order(found) == in_order(expected)
    assert (facts["rows"], facts["name"]) == (len(expected), f"a.b-c-v1.{form}") and len(expected) > 400
    earlier = read(form, exported(client, form, as_of=str(START))[1])
    assert in_order(earlier) == in_order(truth(warehouse, as_of=START))


def test_sorted_rows_come_in_order(client: TestClient, warehouse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "CHUNK", 700)
    found = read("parquet", exported(client, "parquet", sort="-price")[1])
    prices = found["price"].to_pylist()
    expected = [each for each in truth(warehouse)["price"].to_pylist() if each is not None]
    assert prices == sorted(expected, reverse=True) + [None] * (ROWS - len(expected))


def test_csv_keeps_null_and_empty_text_apart(client: TestClient, warehouse: str) -> None:
    found = read("csv", exported(client, "csv")[1]).select(["id", "price", "name"])
    assert in_order(found) == in_order(truth(warehouse).select(["id", "price", "name"]))


def test_csv_has_lists_maps_and_binary_as_the_command_line_prints_them(client: TestClient, warehouse: str) -> None:
    rows = list(csv.DictReader(io.StringIO(exported(client, "csv", table="blobs")[1].decode())))
    printed = run("scan", warehouse, "blobs", "--format", "csv")
    wanted = list(csv.DictReader(io.StringIO(printed.out)))
    assert len(rows) == len(wanted) == 3
    for name in ("id", "tags", "marks"):
        assert sorted(row[name] for row in rows) == sorted(row[name] for row in wanted)
    texts = {row["id"]: (row["tags"], row["marks"], row["pair.bytes"], row["pair.times"]) for row in rows}
    assert texts["/wA="] == ('["a", "é,\\"x\\""]', '[["k", 1]]', "AQ==", '[{"at": "2024-05-01T00:00:00.000Z"}]')
    assert texts["AA=="] == ("[]", "[]", "", "[]") and texts[""] == ("", "", "", "")
    structs = {row["id"]: json.loads(row["pair"]) for row in wanted if row["pair"]}
    assert structs["/wA="] == {"bytes": "AQ==", "times": json.loads(texts["/wA="][3])}


def test_csv_of_a_comparison_has_the_changed_columns_as_json(client: TestClient) -> None:
    points = {"kind": "compare", "from_version": "1", "to_version": "2", "where": '[["id", "=", 1]]'}
    (row,) = csv.DictReader(io.StringIO(exported(client, "csv", **points)[1].decode()))
    assert row["_changed_columns"] == '["price"]'


def test_a_life_is_oldest_first(client: TestClient, warehouse: str) -> None:
    facts, content = exported(client, "parquet", kind="life", key="5")
    found = read("parquet", content)
    kept = statestore.inspect(warehouse).table(TABLE).history(key=5).to_arrow().sort_by("valid_from")
    assert found["price"].to_pylist() == kept["price"].to_pylist() and len(found) == 2
    assert found["_commit_version"].to_pylist() == [1, 2] and facts["name"] == "a.b-c-life.parquet"


def test_a_comparison(client: TestClient, warehouse: str) -> None:
    points = {"kind": "compare", "from_version": "0", "to_version": "1"}
    found = read("arrow", exported(client, "arrow", **points)[1])
    expected = statestore.inspect(warehouse).table(TABLE).diff(0, 1).to_arrow()
    assert found.schema == expected.schema and in_order(found) == in_order(expected)
    facts, content = exported(client, "csv", **points, where='[["price", "=", 38]]')
    flat = read("csv", content)
    assert flat.schema.names[:2] == ["_change", "id"] and "_new.price" in flat.schema.names
    assert set(flat["_new.price"].to_pylist()) == {38.0} and len(flat) == facts["rows"] > 1


def test_a_ticket_is_good_once_and_the_newest_are_kept(client: TestClient, tmp_path: Path) -> None:
    tickets = [client.get("/api/export", params={"table": TABLE, "form": "arrow"}).json()["ticket"] for _ in range(6)]
    assert len(list(tmp_path.glob("export-*"))) == exports.KEPT
    assert [client.get(f"/download/{each}").status_code for each in tickets] == [404, 404, 200, 200, 200, 200]
    assert client.get(f"/download/{tickets[-1]}").status_code == 404
    assert list(tmp_path.glob("export-*")) == []


def test_what_is_wrong_is_a_sentence_and_leaves_no_file(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**given: str) -> str:
        return str(client.get("/api/export", params={"table": TABLE, **given}).json()["error"])

    assert "expected one of parquet, csv, arrow" in refused(form="xls")
    assert "expected one of state, life, compare" in refused(form="csv", kind="all")
    monkeypatch.setattr(exports, "MAX_BYTES", 1_000)
    assert "take statestore export" in refused(form="csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "safe"),
    [("a\r\nX: y", "a_X_y"), ('"; rm', "rm"), ("../../etc", "etc"), ("☃", "table"), ("x" * 200, "x" * 80)],
)
def test_names_of_files_are_safe(name: str, safe: str) -> None:
    assert exports._safe(name) == safe


def test_a_download_needs_its_ticket_and_an_export_the_token(warehouse: str, tmp_path: Path) -> None:
    guarded = Guard(application(OpenedPaths([warehouse], {}), RowFiles(tmp_path)), "secret", PORT)
    with TestClient(guarded, base_url=f"http://127.0.0.1:{PORT}") as client:
        asked = {"table": TABLE, "form": "csv"}
        assert client.get("/api/export", params=asked).status_code == 403
        ticket = client.get("/api/export", headers={"x-statestore-token": "secret"}, params=asked).json()["ticket"]
        assert client.get("/download/guess").status_code == 404
        assert client.head(f"/download/{ticket}").status_code == 405  # the ticket is not used up
        assert client.get(f"/download/{ticket}", headers={"host": "evil.example"}).status_code == 421
        found = client.get(f"/download/{ticket}")
        assert found.status_code == 200 and found.headers["x-content-type-options"] == "nosniff"
