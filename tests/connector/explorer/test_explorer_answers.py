"""Answers of the explorer over HTTP are those of a scan, a history and a difference."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import statestore
from statestore.connector.explorer import limits, pages, row_files
from statestore.connector.explorer.app import application
from statestore.connector.explorer.opened_paths import OpenedPaths, fields_of
from statestore.connector.explorer.row_files import RowFiles

ITEMS = 700
START = 1_714_550_000_000


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("explorer") / "warehouse"
    catalog = statestore.connect(folder)
    prices = catalog.create_store("prices", key={"item": "string", "shop": "int"}, value={"price": "double"})
    for commit in range(4):
        for number in range(commit, ITEMS, commit + 1):
            prices.put((f"i{number:04d}", number % 5), number * 1.5 + commit, timestamp=START + 1000 * commit)
        if commit == 3:
            prices.delete(("i0000", 0), timestamp=START + 3001)
        prices.commit()
    prices.close()
    catalog.create_store("blobs", key={"id": "binary"}, value={"n": "bigint"}).close()
    with catalog.open_store("blobs") as blobs:
        blobs.put(b"\xff\x00", 7, timestamp=START)
        blobs.commit()
    return str(folder)


@pytest.fixture
def client(warehouse: str, tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(application(OpenedPaths([warehouse], {}), RowFiles(tmp_path))) as found:
        yield found


def rows(client: TestClient, question: str = "rows", **given: Any) -> pa.Table:
    response = client.get(f"/api/{question}", params={"table": "prices", **given})
    assert response.status_code == 200, response.text
    return pa.ipc.open_stream(response.content).read_all()


def refused(client: TestClient, question: str, **given: Any) -> str:
    response = client.get(f"/api/{question}", params={"table": "prices", **given})
    assert response.status_code in (400, 404, 409)
    return str(response.json()["error"])


def texts(found: pa.Table) -> list[tuple[str, str, str]]:
    return [(row["item"], row["shop"], row["price"]) for row in found.to_pylist()]


def truth(warehouse: str, **given: Any) -> list[tuple[str, str, str]]:
    scanned = statestore.inspect(warehouse).table("prices").scan(**given)
    return [(row["item"], str(row["shop"]), json.dumps(row["price"])) for row in scanned.read_all().to_pylist()]


@pytest.mark.parametrize(
    "given", [{}, {"version": 2}, {"as_of": "2024-05-01T07:53:21Z"}, {"version": 1, "as_of": START}]
)
def test_pages_add_up_to_the_scan(client: TestClient, warehouse: str, given: dict[str, Any]) -> None:
    found: list[tuple[str, str, str]] = []
    while True:
        page = rows(client, **given, offset=len(found), limit=97)
        found += texts(page)
        if page.schema.metadata[b"last"] == b"1":
            break
    assert sorted(found) == sorted(truth(warehouse, **given)) and len(found) == len(set(found)) > 300
    assert client.get("/api/count", params={"table": "prices", **given}).json() == {"rows": len(found)}


def test_sorted_pages(client: TestClient, warehouse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is that of the values, not of their texts; nulls would come last; deep pages lie in a file."""
    monkeypatch.setattr(pages, "READ_AT_ONCE", 100)
    expected = sorted(truth(warehouse), key=lambda row: float(row[2]))
    up = [row for at in range(0, ITEMS, 200) for row in texts(rows(client, sort="price", offset=at, limit=200))]
    down = texts(rows(client, sort="-price", limit=50))
    assert [row[2] for row in up] == [row[2] for row in expected] and sorted(up) == sorted(expected)
    assert [row[2] for row in down] == [row[2] for row in reversed(expected[-50:])]
    unsorted = [row for at in range(0, ITEMS, 500) for row in texts(rows(client, offset=at, limit=500))]
    assert sorted(unsorted) == sorted(expected)


def test_a_copy_that_went_its_own_way_has_its_own_rows(tmp_path: Path) -> None:
    """Both have one identity and the same versions, and sorted rows come from files that are kept."""
    for name, price in (("one", 1.0), ("two", 2.0)):
        if name == "one":
            statestore.connect(tmp_path / "one").create_store("p", key={"k": "string"}, value={"n": "double"}).close()
            shutil.copytree(tmp_path / "one", tmp_path / "two")
        with statestore.connect(tmp_path / name).open_store("p") as store:
            store.put("a", price, timestamp=START)
            store.commit()
    places = OpenedPaths([str(tmp_path / name) for name in ("one", "two")], {})
    (tmp_path / "row_files").mkdir()
    with TestClient(application(places, RowFiles(tmp_path / "row_files"))) as client:
        found = [rows(client, table="p", sort="n", place=place)["n"].to_pylist() for place in (0, 1)]
    assert found == [["1.0"], ["2.0"]]


def test_filters_are_typed_by_their_columns(client: TestClient, warehouse: str) -> None:
    where = json.dumps([["shop", "=", "3"], ["price", ">", "900"]])
    expected = [row for row in truth(warehouse) if row[1] == "3" and float(row[2]) > 900]
    assert sorted(texts(rows(client, where=where))) == sorted(expected) != []
    assert len(rows(client, key='{"item": "i0007"}')) == 1
    assert rows(client, table="blobs", where='[["id", "=", "/wA="]]')["n"].to_pylist() == ["7"]
    assert "expected double" in refused(client, "rows", where='[["price", ">", "much"]]')
    assert "a JSON array of" in refused(client, "rows", where='{"price": 5}')
    assert "nothing" in refused(client, "rows", where='[["nothing", "=", "5"]]')


def test_the_life_of_a_key(client: TestClient, warehouse: str) -> None:
    found = rows(client, "life", key='{"item": "i0000", "shop": "0"}')
    assert found.schema.metadata[b"total"] == b"1"
    assert (found["__from"].to_pylist(), found["__to"].to_pylist()) == ([START], [START + 3001])
    later = rows(client, "life", where='[["item", "=", "i0011"], ["shop", "=", "1"]]')
    kept = statestore.inspect(warehouse).table("prices").history(key=("i0011", 1)).read_all().sort_by("valid_from")
    assert later["price"].to_pylist() == [json.dumps(each) for each in kept["price"].to_pylist()]
    assert later["__version"].to_pylist() == kept["_commit_version"].to_pylist()
    assert "type a key" in refused(client, "life")
    commits = rows(client, "versions", only="2,4")
    assert commits["version"].to_pylist() == ["2", "4"]


def test_the_difference_of_two_moments(client: TestClient, warehouse: str) -> None:
    found = rows(client, "diff", from_version=1, to_version=2)
    expected = statestore.inspect(warehouse).table("prices").diff(1, 2).read_all()
    kinds = expected["_change"].to_pylist()
    metadata = found.schema.metadata
    assert {kind: int(metadata[kind.encode()]) for kind in ("added", "changed", "removed")} == {
        kind: kinds.count(kind) for kind in ("added", "changed", "removed")
    }
    assert found["item"].to_pylist() == expected["item"].to_pylist()[:500]


def test_the_axis_of_versions_is_thinned(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows(client, "versions")
    assert whole["version"].to_pylist() == [0, 1, 2, 3, 4] and whole["commits"].to_pylist() == [1] * 5
    monkeypatch.setattr("statestore.connector.explorer.app.MARKS", 2)
    thin = rows(client, "versions")
    assert thin["version"].to_pylist() == [2, 4] and thin["commits"].to_pylist() == [3, 2]
    assert sum(thin["changes"].to_pylist()) == sum(each or 0 for each in whole["changes"].to_pylist())


def test_limits_end_in_a_sentence(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "MAX_SORTED", 10)
    assert "rows to sort" in refused(client, "rows", sort="price")
    monkeypatch.setattr(row_files, "MAX_BYTES", 10)
    assert "GiB" in refused(client, "rows", sort="price", version="2")
    monkeypatch.setattr(limits, "SECONDS", -1)
    assert "takes more than" in refused(client, "rows", version="3")


def test_the_rows_go_on_after_a_compaction_under_them(warehouse: str, tmp_path: Path) -> None:
    """The files of the pinned version are gone; the newest state has the same rows."""
    catalog = statestore.connect(tmp_path / "own")
    store = catalog.create_store("prices", key={"item": "string"}, value={"price": "double"})
    for number in range(3):
        store.put("a", float(number), timestamp=number)
        store.commit()
    places = OpenedPaths([str(tmp_path / "own")], {})
    with TestClient(application(places, RowFiles(tmp_path))) as client:
        assert rows(client, version=2)["price"].to_pylist() == ["1.0"]
        store.close()
        catalog.drop_store("prices")
        catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}).close()
        assert len(rows(client)) == 0
        catalog.drop_store("prices")
        assert "prices" in refused(client, "rows")


def test_the_overview_lists_what_can_be_read_and_what_cannot(client: TestClient, tmp_path: Path) -> None:
    (place,) = client.get("/api/overview").json()
    assert [(each["store"], each["first"], each["last"]) for each in place["tables"]] == [
        ("blobs", 0, 1),
        ("prices", 0, 4),
    ]
    with TestClient(application(OpenedPaths([str(tmp_path / "none")], {}), RowFiles(tmp_path))) as other:
        (place,) = other.get("/api/overview").json()
        assert place["tables"] == [] and "PATH_NOT_FOUND" in place["error"]
    assert "expected 0 to 0" in refused(client, "rows", place=3)
    assert "expected a whole number" in refused(client, "rows", offset="-1")


def test_filters_can_name_the_columns_and_the_fields_of_structs() -> None:
    inner = pa.struct([("a.b", pa.int64()), ("c", pa.struct([("d", pa.string())]))])
    schema = pa.schema([("k", inner), ("v", pa.list_(inner))])
    assert fields_of(schema) == ["k", "k.c", "k.c.d", "v"]
    # A column of that name is meant instead.
    assert fields_of(schema.append(pa.field("k.c", pa.int64()))) == ["k", "v", "k.c"]
