"""Lives of keys and beliefs are those of a plain model and of the engine's truth, however the key is typed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.flink.fixtures import copied

import statestore
from statestore.catalog.engines.engine_table import EngineTable
from statestore.connector.explorer.app import application
from statestore.connector.explorer.key_life import FEW, life_of
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.row_files import RowFiles
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter

START = 1_714_550_000_000
# Commits of one key, as (second of state time, price or None for a delete).
WRITES: list[list[tuple[int, float | None]]] = [
    [(0, 1.0)],
    [(100, 2.0)],
    [(50, 1.5)],
    [(20, None)],
    [(200, 3.0), (10, 7.0)],
    [(100, 2.5)],
    [(70, 9.0)],
]
JOIN, TIMERS = "spark4.3.0-join__rkcl", "spark4.3.0-twsttl__rkcl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("lives")
    with statestore.connect(found / "own").create_store(
        "prices", key={"item": "string", "shop": "int"}, value={"price": "double"}
    ) as store:
        for number, commit in enumerate(WRITES):
            for second, price in commit:
                moment = START + second * 1000
                if price is None:
                    store.delete(("curry", 1), timestamp=moment)
                else:
                    store.put(("curry", 1), price, timestamp=moment)
            store.put(("curry", 2), float(number), timestamp=START + number * 1000)
            store.put(("rice, brown", 1), float(number), timestamp=START + number * 1000)
            store.commit()
    return found


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    places = [str(folder / "own"), *(str(checkpoint_path(name)) for name in (JOIN, TIMERS))]
    (folder / "row_files").mkdir()
    with TestClient(application(OpenedPaths(places, {}), RowFiles(folder / "row_files"))) as found:
        yield found


def asked(client: TestClient, question: str, table: str = "prices", place: int = 0, **given: Any) -> pa.Table:
    response = client.get(f"/api/{question}", params={"table": table, "place": place, **given})
    assert response.status_code == 200, response.text
    return pa.ipc.open_stream(response.content).read_all()


def believed(commits: list[list[tuple[int, float | None]]]) -> list[tuple[int, int | None, float]]:
    """Return the intervals of a key after some commits: a value is valid until the next one in state time."""
    newest: dict[int, float | None] = {}
    for commit in commits:
        newest.update(commit)
    order = sorted(newest)
    ends: list[int | None] = [*order[1:], None]
    return [(at, end, price) for at, end in zip(order, ends, strict=True) if (price := newest[at]) is not None]


def intervals(rows: pa.Table) -> list[tuple[int, int | None, float]]:
    columns = (rows["__from"].to_pylist(), rows["__to"].to_pylist(), rows["price"].to_pylist())
    return [
        (round((begin - START) / 1000), None if end is None else round((end - START) / 1000), float(price))
        for begin, end, price in zip(*columns, strict=True)
    ]


TYPED = [
    ("curry, 1", {("curry", "1")}),
    ("curry", {("curry", "1"), ("curry", "2")}),
    ('["curry", 2]', {("curry", "2")}),
    ('{"item": "curry"}', {("curry", "1"), ("curry", "2")}),
    ('{"item": "curry", "shop": 1}', {("curry", "1")}),
    ("cur*", {("curry", "1"), ("curry", "2")}),
    ('"rice, brown", 1', {("rice, brown", "1")}),
    ("rice*, 1", {("rice, brown", "1")}),
    ("curry, 3", set()),
]


def test_keys_and_their_beginnings_are_typed(client: TestClient) -> None:
    for typed, keys in TYPED:
        found = asked(client, "life", key=typed)
        assert set(zip(found["item"].to_pylist(), found["shop"].to_pylist(), strict=True)) == keys, typed


def test_a_key_that_is_none_is_refused(client: TestClient) -> None:
    for typed, said in (("curry, x", "'shop'"), ("curry, 1, 2", "3 parts"), ("[]", "0 parts")):
        response = client.get("/api/life", params={"table": "prices", "key": typed})
        assert response.status_code == 400 and said in response.json()["error"], typed


def test_a_life_is_that_of_the_model(client: TestClient) -> None:
    found = asked(client, "life", key="curry, 1")
    assert intervals(found) == believed(WRITES)
    assert found.schema.metadata[b"total"] == str(len(believed(WRITES))).encode()
    count = client.get("/api/life_count", params={"table": "prices", "key": "curry, 1"}).json()
    assert count == {"rows": len(believed(WRITES))}


def test_the_newest_versions_come_first_and_alone(tmp_path: Path) -> None:
    """A table has so many versions that the newest moments are tried first; those of one item are all old."""
    count = 2 * FEW
    times = [START + number for number in range(count)]
    items = ["old" if number < 500 else f"new {number % 7}" for number in range(count)]
    with statestore.connect(tmp_path / "own").create_store(
        "many", key={"item": "string", "shop": "int"}, value={"n": "bigint"}
    ) as store:
        shops = pa.array([number % 2 for number in range(count)], pa.int32())
        rows = pa.table({"item": items, "shop": shops, "n": range(count), "timestamp": times})
        for start in (0, FEW):
            store.put_all(rows.slice(start, FEW))
            store.commit()
        for beginning in ("old", "new 3", "new"):
            all_of_it = [number for number, item in enumerate(items) if item.startswith(beginning)]
            query = Query(filters=(Filter("item", "starts_with", beginning),))
            for limit in (1, 3, 100):
                found = life_of(store.table, query, limit, Limits())
                assert [int(number) for number in found["n"].to_pylist()] == all_of_it[-limit:], (beginning, limit)
                total = found.schema.metadata[b"total"]
                assert total == (b"500" if beginning == "old" else b""), (beginning, limit)


def test_beliefs_are_those_of_the_model(client: TestClient) -> None:
    found = asked(client, "beliefs", key="curry, 1")
    # The row of commit 2 was replaced, and commit 4 only deleted.
    assert found.schema.metadata[b"beliefs"] == b"1,2,3,4,5,6,7"
    assert (found.schema.metadata[b"commits"], found.schema.metadata[b"all"]) == (b"7", b"1")
    for version in range(1, len(WRITES) + 1):
        rows = found.filter(pa.compute.equal(found["__belief"], float(version)))
        assert intervals(rows) == believed(WRITES[:version]), version


def test_a_key_without_versions_was_believed_once(client: TestClient, tmp_path: Path) -> None:
    with statestore.connect(tmp_path / "own").create_store("s", key={"k": "string"}, value={"n": "bigint"}) as store:
        store.put("a", 1, timestamp=START)
        store.put("b", 1, timestamp=START)
        store.commit()
        store.delete("a", timestamp=START)
        store.commit()
    own = TestClient(application(OpenedPaths([str(tmp_path / "own")], {}), RowFiles(tmp_path)))
    assert asked(own, "life", "s", key="a").num_rows == 0
    found = asked(own, "beliefs", "s", key="a")
    assert found.schema.metadata[b"beliefs"] == b"1,2" and found["__belief"].to_pylist() == [1.0]
    # The first part of a key is no look-up, and the change feed answers.
    assert asked(own, "beliefs", "s", key="a*").schema.metadata[b"beliefs"] == b"1,2"


@pytest.mark.quick("1-left-True")
@pytest.mark.parametrize(("place", "name", "deletes"), [(1, "left", True), (2, "val", False)])
def test_beliefs_of_an_engine_are_all_batches_that_changed_the_key(
    client: TestClient, place: int, name: str, deletes: bool
) -> None:
    table = statestore.inspect(Path(client.get("/api/overview").json()[place]["path"])).open(name)
    first, last = table.kept_versions()
    states: dict[str, dict[int, list[str]]] = {}
    for version in range(first, last + 1):
        query = Query(version=version)
        for split in table.splits(query):
            for row in (row for batch in table.read(split, query) for row in batch.to_pylist()):
                states.setdefault(json.dumps(row["key"]), {}).setdefault(version, []).append(repr(row))
    found_deletes = False
    for key, of_key in list(states.items())[:4]:
        lists = {version: sorted(of_key.get(version, [])) for version in range(first - 1, last + 1)}
        expected = [version for version in range(first, last + 1) if lists[version] != lists[version - 1]]
        found = asked(client, "beliefs", name, place, where=json.dumps([["key", "=", json.loads(key)]]))
        assert found.schema.metadata[b"beliefs"] == ",".join(map(str, expected)).encode(), key
        found_deletes |= any(len(lists[version]) < len(lists[version - 1]) for version in expected)
    assert found_deletes == deletes


def test_where_changes_cannot_be_asked_the_answer_says_so(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(table: Any, query: Query) -> Any:
        if query.mode == "changes":
            raise NotFoundError(ErrorCode.VERSION_NOT_FOUND, "changes are not kept")
        return real(table, query)

    real = EngineTable.splits
    monkeypatch.setattr(EngineTable, "splits", refuse)
    key = json.dumps([["key", "=", {"field0": "key-00-", "field1": 0}]])
    found = asked(client, "beliefs", "left", 1, where=key)
    assert found.schema.metadata[b"all"] == b"" and found.schema.metadata[b"beliefs"] == b"0,2,3,5"


def test_the_sides_of_a_join_have_one_key(client: TestClient) -> None:
    where = json.dumps([["key", "=", {"field0": "key-00-", "field1": 0}]])
    for side in ("left", "right"):
        typed = asked(client, "life", side, 1, key="key-00-*")
        assert typed.num_rows and typed.to_pylist() == asked(client, "life", side, 1, where=where).to_pylist()
        as_text = json.dumps([["key", "=", typed["key"][0].as_py()]])  # as the page sends a cell
        assert typed.to_pylist() == asked(client, "life", side, 1, where=as_text).to_pylist()
        assert set(typed["key"].to_pylist()) == {'{"field0": "key-00-", "field1": 0}'}


def test_timers_of_a_key_have_their_times(client: TestClient) -> None:
    found = asked(client, "life", "timers", 2, key="[null, 12]")
    truth = statestore.inspect(Path(client.get("/api/overview").json()[2]["path"])).table("timers")
    expected = truth.history(key={"key": {"k": None, "id": 12}}).read_all()
    assert sorted(map(int, found["expiration_timestamp_ms"].to_pylist())) == sorted(
        expected["expiration_timestamp_ms"].to_pylist()
    )


def test_commits_have_watermarks_and_offsets(client: TestClient) -> None:
    found = asked(client, "versions", "left", 1, only="2,3")
    logs = [(checkpoint_path(JOIN) / "offsets" / batch).read_text().split("\n") for batch in ("2", "3")]
    assert found["offsets"].to_pylist() == ["\n".join(lines[2:]) for lines in logs]
    marks = [json.loads(lines[1])["batchWatermarkMs"] for lines in logs]
    times = found["stream_time"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    assert times.to_pylist() == marks
    own = asked(client, "versions", only="1,2")
    assert own["offsets"].to_pylist() == [None, None]


def test_a_life_goes_by_number_where_times_are_unknown(tmp_path: Path) -> None:
    folder = copied("rocksdb", tmp_path)
    for metadata in folder.rglob("_metadata"):
        os.utime(metadata, (1_700_000_000, 1_700_000_000))
    places = OpenedPaths([str(folder)], {})
    (tmp_path / "row_files").mkdir()
    with TestClient(application(places, RowFiles(tmp_path / "row_files"))) as client:
        found = asked(client, "life", "kv-long.balance", key="0")
        believed_of = asked(client, "beliefs", "kv-long.balance", key="0")
        copied_text = client.get("/api/copies", params={"table": "kv-long.balance", "kind": "life", "key": "0"}).text
    assert found.schema.metadata[b"timed"] == b""
    assert (found["__from"].to_pylist(), found["__to"].to_pylist()) == ([None, 3], [3, None])
    assert found["value"].to_pylist() == ["-30.0", "10.0"]
    assert believed_of.schema.metadata[b"timed"] == b""
    assert "valid_from" not in copied_text
