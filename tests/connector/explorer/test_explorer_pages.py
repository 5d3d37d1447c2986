"""Pages of rows over HTTP: those of a scan, a history and a difference, with short cells, and their progress."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import statestore
from statestore.connector.explorer import limits, pages, row_files
from statestore.connector.explorer.app import application
from statestore.connector.explorer.limits import ASKED, Limits, NobodyWaits
from statestore.connector.explorer.opened_paths import OpenedPaths, fields_of
from statestore.connector.explorer.pages import CELL, cell_text, count_of, cut_rows, shown_rows
from statestore.connector.explorer.row_files import RowFiles
from statestore.formats.engine import WholePart
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.filters import parse_filters
from statestore.formats.values.python_times import python_values

# Answers

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


# Texts of cells: the beginning of long values, without the memory of their ends

TEXTS = ["", "x", None, *("é" * size for size in (CELL - 1, CELL, CELL + 1, 9 * CELL))]
BYTES = [None, *(bytes(n % 251 for n in range(size)) for size in (0, 1, 2, 1498, 1499, 1500, 1501, CELL, 9 * CELL))]
COLUMNS = {
    "texts": pa.array(TEXTS),
    "large texts": pa.array(TEXTS, pa.large_string()),
    "binary": pa.array(BYTES),
    "fixed": pa.array([b"abcd", None], pa.binary(4)),
    "structs": pa.array([{"s": text, "in": {"b": b"z" * 7000, "n": 1}} for text in TEXTS] + [None]),
    "a slice": pa.array([None, *({"s": text} for text in TEXTS)]).slice(2, 4),
    "lists": pa.array([["x" * 3000], list("abc"), None]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_what_is_cut_before_is_what_the_text_lacks(name: str) -> None:
    """The truth is the text of the whole value."""
    column = COLUMNS[name]
    whole = [None if value is None else cell_text(value) for value in python_values(column)]
    for rows in (pa.table({"c": column}), pa.table({"c": pa.chunked_array([column.slice(0, 2), column.slice(2)])})):
        assert shown_rows(rows)["c"].to_pylist() == whole
    assert shown_rows(cut_rows(pa.record_batch({"c": column})))["c"].to_pylist() == whole


@dataclass(frozen=True)
class Wide:
    """A table whose rows are large: all of them have one buffer, of which each row is a copy when it is taken."""

    value: bytes = b"x" * (8 << 20)
    rows: int = 40

    def schema(self, query: Query) -> pa.Schema:
        return pa.schema([("b", pa.binary())])

    def splits(self, query: Query) -> list[WholePart]:
        return [WholePart()]

    def count(self, query: Query) -> int:
        return self.rows

    def read(self, split: WholePart, query: Query) -> Iterator[pa.RecordBatch]:
        for _ in range(self.rows):
            yield pa.record_batch({"b": pa.array([self.value])})


def test_a_page_of_large_values_does_not_keep_them() -> None:
    def no_file() -> Any:
        raise AssertionError

    before = pa.total_allocated_bytes()
    table = cast("StateTable", Wide())
    found = pages.page_of(table, Query(), None, 0, 30, no_file, Limits())
    assert found.rows.num_rows == 30
    assert pa.total_allocated_bytes() - before < 8 << 20


# The progress of a long read: a share of the rows, where their number is known


@dataclass(frozen=True)
class Part:
    rows: int | None
    batches: tuple[int, ...]  # the rows of each that pass the filters


class Parted:
    """A table in the given parts."""

    def __init__(self, *parts: Part) -> None:
        self.parts = parts

    def splits(self, query: Query) -> Sequence[Part]:
        return self.parts

    def read(self, split: Part, query: Query) -> Iterator[pa.RecordBatch]:
        for rows in split.batches:
            yield pa.record_batch({"k": pa.array(range(rows), pa.int64())})


def seen(*parts: Part) -> list[tuple[int, int | None]]:
    limits = Limits()
    table: Any = Parted(*parts)
    found = [(limits.looked, limits.of) for _ in limits.read(table, Query())]
    return [*found, (limits.looked, limits.of)]


def test_rows_of_a_read_are_counted_as_they_are_looked_at() -> None:
    assert seen(Part(5, (2, 3)), Part(4, (4,))) == [(2, 9), (5, 9), (9, 9), (9, 9)]


def test_rows_that_filters_leave_out_count_with_their_part() -> None:
    assert seen(Part(1000, (1,)), Part(500, ()), Part(500, (2,))) == [(1, 2000), (1502, 2000), (2000, 2000)]


def test_more_rows_than_a_part_has_are_no_more_than_all() -> None:
    assert seen(Part(3, (2, 2)), Part(1, (1,))) == [(2, 4), (3, 4), (4, 4), (4, 4)]


def test_an_unknown_part_makes_the_share_unknown() -> None:
    assert {of for _, of in seen(Part(5, (5,)), Part(None, (7, 7)))} == {None}


def test_a_store_knows_its_share_and_a_cancelled_read_ends(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path / "own")
    with catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
        for number in range(1_000):
            store.put(f"i{number}", float(number), timestamp=number)
        store.commit()
    table = statestore.inspect(tmp_path / "own").open("prices")
    limits = Limits()
    query = Query(filters=parse_filters([("price", ">=", 990.0)]))
    assert count_of(table, query, limits) == 10
    assert (limits.rows, limits.looked, limits.of) == (10, 1_000, 1_000)
    limits.gone.set()
    with pytest.raises(NobodyWaits):
        count_of(table, query, limits)


def test_the_page_asks_for_progress_by_the_name_of_its_question(tmp_path: Path) -> None:
    client = TestClient(application(OpenedPaths([str(tmp_path)], {}), RowFiles(tmp_path)))
    limits = Limits()
    ASKED["mine"] = limits
    limits.rows, limits.looked, limits.of = 3, 40, 100
    assert client.get("/api/progress", params={"ask": "mine"}).json() == {"rows": 3, "looked": 40, "of": 100}
    limits.of = None
    assert client.get("/api/progress", params={"ask": "mine"}).json() == {"rows": 3, "looked": 40, "of": None}
    assert client.get("/api/progress", params={"ask": "other"}).json() == {"rows": None, "looked": None, "of": None}
