"""News of tables that are written, the operators of jobs, and states without end."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from support.checkpoints.spark_state_fixtures import checkpoint_path

import statestore
from statestore.connector.explorer import limits
from statestore.connector.explorer.app import application
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.row_files import RowFiles
from statestore.formats.state_table import Query, StateTable

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
    monkeypatch.setattr(limits, "SECONDS", 0.2)
    monkeypatch.setattr(OpenedPaths, "table", lambda *_: Endless())
    client = client_of(tmp_path, row_files=tmp_path)
    first = client.get("/api/rows", params={"table": "endless"})
    assert pa.ipc.open_stream(first.content).read_all().schema.metadata[b"total"] == str(ROWS).encode()
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
