"""Jobs, news of tables that are written, states without end, and moments as they are typed."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.flink.fixtures import fixture
from support.kafka.unpacked import unpack

import statestore
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.explorer import limits
from statestore.connector.explorer.app import application, moment_of
from statestore.connector.explorer.limits import ASKED, Limits
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.row_files import RowFiles
from statestore.formats.errors import InvalidInputError
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.times import format_time

# News

ROWS = 1_000_000_000


def client_of(*paths: Path, row_files: Path) -> TestClient:
    return TestClient(application(OpenedPaths([str(path) for path in paths], {}), RowFiles(row_files)))


def news(client: TestClient, table: str) -> dict[str, Any]:
    response = client.get("/api/news", params={"table": table})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def shown(client: TestClient, table: str, **given: Any) -> list[dict[str, Any]]:
    response = client.get("/api/rows", params={"table": table, **given})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = pa.ipc.open_stream(response.content).read_all().to_pylist()
    return found


def test_a_commit_is_news_and_is_shown_from_then_on(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path / "own")
    store = catalog.create_store("prices", key={"item": "string"}, value={"price": "double"})
    store.put("a", 1.0, timestamp=1)
    store.commit()
    client = client_of(tmp_path / "own", row_files=tmp_path)
    assert [row["price"] for row in shown(client, "prices")] == ["1.0"]
    before = news(client, "prices")
    store.put("a", 2.0, timestamp=2)
    store.commit()
    # All questions of a page have answers of the state that it has seen.
    assert [row["price"] for row in shown(client, "prices", seen=before["last"])] == ["1.0"]
    assert client.get("/api/count", params={"table": "prices", "seen": before["last"]}).json() == {"rows": 1}
    after = news(client, "prices")
    assert after == {**before, "last": before["last"] + 1}
    assert [row["price"] for row in shown(client, "prices", seen=after["last"])] == ["2.0"]
    store.close()
    catalog.drop_store("prices")
    response = client.get("/api/news", params={"table": "prices"})
    assert response.status_code in (404, 409) and "gone" in response.json()["error"]
    catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}).close()
    assert news(client, "prices")["identity"] != before["identity"]


def test_a_batch_is_news_when_it_is_committed(tmp_path: Path) -> None:
    name = "spark4.3.0-agg__rkcl"
    checkpoint = shutil.copytree(checkpoint_path(name), tmp_path / name)
    later = tmp_path / "later"
    later.mkdir()
    batches = sorted(int(each.name) for each in (checkpoint / "commits").iterdir())
    for batch in batches[3:]:
        (checkpoint / "commits" / str(batch)).rename(later / str(batch))
    client = client_of(checkpoint, row_files=tmp_path)
    assert news(client, "state")["last"] == batches[2]
    for batch in batches[3:]:
        truth = shown(client, "state")
        (later / str(batch)).rename(checkpoint / "commits" / str(batch))
        assert shown(client, "state") == truth
        assert news(client, "state")["last"] == batch
        assert shown(client, "state", seen=batch - 1) == truth  # of a page that has no news yet
    whole = statestore.inspect(checkpoint).table("state").scan().read_all()
    assert len(shown(client, "state")) == min(len(whole), 500)
    shutil.rmtree(checkpoint)
    for question in ("news", "rows"):
        response = client.get(f"/api/{question}", params={"table": "state"})
        assert response.status_code in (404, 409, 500), question
        assert str(checkpoint) in response.json()["error"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("spark4.3.0-chain__rkcl", {"state_0": "stateStoreSave [0]", "state_1": "stateStoreSave [1]"}),
        ("spark4.3.0-join__rkcl", {"left": "symmetricHashJoin [0]", "right": "symmetricHashJoin [0]"}),
    ],
)
def test_states_have_their_operators(name: str, expected: dict[str, str], tmp_path: Path) -> None:
    (place,) = client_of(checkpoint_path(name), row_files=tmp_path).get("/api/overview").json()
    assert {each["store"]: each["operator"] for each in place["tables"]} == expected


@dataclass(frozen=True)
class Whole:
    """All rows of the table; their number is unknown until they are read."""

    rows: int | None = None


class Endless(StateTable):
    """A table of a billion rows, which are made as they are read."""

    name = identity = "endless"
    key_columns = row_key = ("k",)

    def pin(self) -> Endless:
        return self

    def kept_versions(self) -> tuple[int, int]:
        return 0, 0

    def versions(self) -> pa.Table:
        return pa.table({"version": [0]})

    def schema(self, query: Query) -> pa.Schema:
        names = query.columns or ("k", "v")
        return pa.schema([(name, pa.int64()) for name in names])

    def splits(self, query: Query) -> list[Whole]:
        return [Whole()]

    def count(self, query: Query) -> int | None:
        return None if query.filters else ROWS

    def read(self, split: Whole, query: Query) -> Iterator[pa.RecordBatch]:
        for start in itertools.count(step=1_000):
            column = pa.array(range(start, start + 1_000), pa.int64())
            kept = self.schema(query)
            yield pa.RecordBatch.from_arrays([column] * len(kept), schema=kept)


@pytest.mark.parametrize(
    ("question", "given"),
    [
        ("rows", {"sort": "-v"}),
        ("rows", {"offset": 900_000_000}),
        ("rows", {"where": '[["v", "<", "0"]]', "offset": 5_000}),
        ("count", {"where": '[["v", "<", "0"]]'}),
        ("life", {"key": "7"}),
        ("life_count", {"key": "7"}),
    ],
)
def test_a_billion_rows_end_in_a_sentence(
    question: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenedPaths, "table", lambda *_: Endless())
    client = client_of(tmp_path, row_files=tmp_path)
    first = client.get("/api/rows", params={"table": "endless"})
    assert pa.ipc.open_stream(first.content).read_all().schema.metadata[b"total"] == str(ROWS).encode()
    monkeypatch.setattr(limits, "SECONDS", 0.05)
    if question.startswith("life"):
        monkeypatch.setattr(Endless, "schema", lambda _, query: pa.schema(_columns(query)))
        monkeypatch.setattr(Endless, "read", _history)
    response = client.get(f"/api/{question}", params={"table": "endless", **given})
    assert response.status_code == 409 and response.json()["code"] == "EXPLORER_LIMIT"
    assert "narrow the question" in response.json()["error"]
    assert [each.name for each in tmp_path.iterdir()] == []


def _columns(query: Query) -> list[tuple[str, pa.DataType]]:
    moment = pa.timestamp("us", "UTC")
    kinds = {"valid_from": moment, "valid_to": moment}
    return [(name, kinds.get(name, pa.int64())) for name in query.columns or ("k", "v")]


def _history(table: Endless, split: Whole, query: Query) -> Iterator[pa.RecordBatch]:
    for start in itertools.count(step=1_000):
        numbers = pa.array(range(start, start + 1_000), pa.int64())
        kept = pa.schema(_columns(query))
        yield pa.RecordBatch.from_arrays([numbers.cast(field.type) for field in kept], schema=kept)


# Jobs: exactly the parts and edges that the files record

Asked = tuple[dict[str, Any], dict[str, str]]


def job_of(path: Path, row_files: Path, options: Mapping[str, str] | None = None) -> Asked:
    """Return the job, and the part that keeps each state."""
    client = TestClient(application(OpenedPaths([str(path)], options or {}), RowFiles(row_files)))
    response = client.get("/api/job")
    assert response.status_code == 200, response.text
    (place,) = client.get("/api/overview").json()
    return response.json(), {each["store"]: each["operator"] for each in place["tables"]}


@pytest.mark.parametrize("name", ["spark4.3.0-join__rkcl", "spark4.3.0-chain__rkcl", "spark4.3.0-agg__offv2"])
def test_sources_of_a_query_are_the_lines_of_its_log(tmp_path: Path, name: str) -> None:
    checkpoint = checkpoint_path(name)
    found, parts = job_of(checkpoint, tmp_path)
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda each: int(each.name)).name
    lines = (checkpoint / "offsets" / newest).read_text().rstrip("\n").split("\n")[2:]
    assert len(lines) == (2 if "join" in name else 1)
    positions = [line.removeprefix(f"{at}:") for at, line in enumerate(lines)]
    assert found["inputs"] == [
        {"name": f"source {at}", "detail": f"read up to {position}", "parts": []}
        for at, position in enumerate(positions)
    ]
    folders = sorted(each.name for each in (checkpoint / "state").iterdir())
    assert sorted({str(part).rpartition("[")[2].rstrip("]") for part in parts.values()}) == folders
    if "join" in name:
        assert parts == dict.fromkeys(("left", "right"), "symmetricHashJoin [0]")


def test_a_source_without_a_position_and_a_log_that_is_gone(tmp_path: Path) -> None:
    name = "spark4.3.0-join__rkcl"
    checkpoint = shutil.copytree(checkpoint_path(name), tmp_path / name)
    log = checkpoint / "offsets" / "6"
    log.write_text(log.read_text().rstrip("\n").rpartition("\n")[0] + "\n-\n")
    for checksum in checkpoint.rglob(".6.crc"):
        checksum.unlink()
    found, _ = job_of(checkpoint, tmp_path)
    assert [each["detail"] for each in found["inputs"]] == ['read up to {"logOffset":5}', "nothing read yet"]
    log.unlink()
    found, parts = job_of(checkpoint, tmp_path)
    assert found["inputs"] is None and set(parts) == {"left", "right"}


def described(topology: Path) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the sub-topology of each store, and the topics that each sub-topology reads."""
    stores: dict[str, str] = {}
    topics: dict[str, set[str]] = {}
    part = ""
    for line in topology.read_text().splitlines():
        if found := re.search(r"Sub-topology: (\d+)( for global store)?", line):
            part = "global stores" if found[2] else f"sub-topology {found[1]}"
        if found := re.search(r"Source: \S+ \(topics: \[(.*)\]\)", line):
            topics.setdefault(part, set()).update(found[1].split(", "))
        if found := re.search(r"\(stores: \[(.+)\]\)", line):
            stores.update(dict.fromkeys(found[1].split(", "), part))
    return stores, topics


@pytest.mark.slow
@pytest.mark.parametrize("is_given", [False, True])
def test_sub_topologies_and_their_topics_are_those_of_the_application(tmp_path: Path, is_given: bool) -> None:
    orders = unpack("orders", tmp_path)
    topology = orders / "topology.txt"
    stores, topics = described(topology)
    found, parts = job_of(orders / "state" / "orders", tmp_path, {"topologyFile": str(topology)} if is_given else {})
    assert parts == {name: stores[name] for name in parts} and len(set(parts.values())) > 10
    edges = {(each["name"].removeprefix("topic "), part) for each in found["inputs"] for part in each["parts"]}
    real = {(topic, part) for part, read in topics.items() if part in parts.values() for topic in read}
    if is_given:
        assert edges == real
    else:  # a description has the names of inner topics without the application, and topics that nobody has read yet
        inner = {(f"orders-{topic}", part) for topic, part in real if "subscription" in topic}
        assert edges <= real | inner and len(edges) > 15
    assert found["words"] == ["sub-topology", "sub-topologies"]


def test_operators_without_a_state_are_told_from_those_that_keep_one(tmp_path: Path) -> None:
    found, parts = job_of(fixture("unaligned"), tmp_path)
    assert {str(part).split(" ")[0] for part in parts.values()} == {"kv-long"} and len(parts) == 5
    assert found["stateless"] == [
        "Sink: Writer (6282612473ec1fbe07994fcb4ecdc9be)",
        "src (Source: Custom Source, f362c87ffabe89c8a91fa7d0a523ba6c)",
    ]
    assert found["inputs"] is None and "not recorded" in found["unrecorded"]


def test_stores_of_our_own_belong_to_no_job(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path / "own")
    catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}).close()
    client = TestClient(application(OpenedPaths([str(tmp_path / "own")], {}), RowFiles(tmp_path)))
    assert client.get("/api/job").json() is None
    assert "expected 0 to 0" in client.get("/api/job", params={"place": "1"}).json()["error"]


# Versions and times as they are typed, and the progress of a question


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> StateTable:
    folder = tmp_path_factory.mktemp("moments")
    with statestore.connect(folder).create_store("s", key={"k": "string"}, value={"n": "bigint"}) as store:
        for number in range(3):
            store.put("a", number, timestamp=number)
            store.commit()
    return open_warehouse(folder).pin().open("s")


def times(table: StateTable) -> list[int]:
    found: list[int] = table.versions()["timestamp"].cast(pa.int64()).to_pylist()
    return found


@pytest.mark.parametrize(
    ("typed", "version", "as_of"),
    [
        ("2", 2, ""),
        (" latest ", 3, ""),
        ("1@1970-01-01T00:00:00.001Z", 1, "1970-01-01T00:00:00.001Z"),
        ("latest@5ms", 3, "1970-01-01T00:00:00.005Z"),
        ("2999-01-01T00:00Z", 3, ""),
        ("2999-01-01 00:00 UTC", 3, ""),
    ],
)
def test_versions_and_times_are_typed(table: StateTable, typed: str, version: int, as_of: str) -> None:
    assert moment_of(table, typed) == {"version": version, "as_of": as_of, "note": ""}


def test_a_time_is_the_newest_version_by_then(table: StateTable) -> None:
    for version, moment in enumerate(times(table)):
        newest = max(number for number, each in enumerate(times(table)) if each <= moment)
        assert moment_of(table, format_time(moment))["version"] == newest >= version
    early = moment_of(table, "1971-01-01T00:00Z")
    assert early["version"] == 0 and "nothing is kept" in early["note"]


@pytest.mark.parametrize(
    ("typed", "said"), [("9", "0 to 3"), ("nonsense", "nonsense"), ("9@2024-01-01T00:00Z", "0 to 3")]
)
def test_what_is_no_moment_is_refused(table: StateTable, typed: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        moment_of(table, typed)


def test_rows_are_counted_while_a_question_is_answered() -> None:
    limits = Limits()
    ASKED["one"] = limits

    def batches() -> Iterator[Any]:
        for size in (3, 4):
            yield pa.record_batch({"n": pa.array(range(size))})

    seen = [ASKED["one"].rows for _ in limits.watched(batches())]
    assert seen == [3, 7]
    del limits
    assert "one" not in ASKED
