"""Marks of tables change with each version, and the overview asks for the facts of those that changed."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.flink.fixtures import fixture

import statestore
from statestore.connector.explorer import opened_paths
from statestore.connector.explorer.app import application
from statestore.connector.explorer.opened_paths import FOLLOWED, OpenedPaths
from statestore.connector.explorer.row_files import RowFiles

KEY: dict[str, Any] = {"item": "string"}


def client_of(*paths: Path, row_files: Path) -> TestClient:
    return TestClient(application(OpenedPaths([str(path) for path in paths], {}), RowFiles(row_files)))


def marks(client: TestClient) -> dict[str, str]:
    response = client.get("/api/marks")
    assert response.status_code == 200, response.text
    (found,) = response.json()
    assert found["error"] is None
    return dict(found["tables"])


def test_only_what_has_a_new_version_has_a_new_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = statestore.connect(tmp_path / "own")
    stores = {name: catalog.create_store(name, key=KEY, value={"price": "double"}) for name in ("a", "b")}
    for store in stores.values():
        store.put("x", 1.0, timestamp=1)
        store.commit()
    client = client_of(tmp_path / "own", row_files=tmp_path)
    (overview,) = client.get("/api/overview").json()
    before = marks(client)
    assert overview["marks"] == before and list(before) == ["a", "b"]
    stores["a"].put("y", 2.0, timestamp=2)
    stores["a"].commit()
    with monkeypatch.context() as patched:  # a look at the marks reads no more of the states
        patched.setattr(opened_paths, "summary_of", lambda *_: pytest.fail("a summary"))
        after = marks(client)
    assert after["b"] == before["b"] and after["a"] != before["a"]
    found = client.get("/api/tables", params={"names": '["a", "gone"]'}).json()
    assert [(each["store"], each["keys"], each["last"]) for each in found] == [("a", 2, 2)]
    (overview,) = client.get("/api/overview").json()
    assert found[0] == overview["tables"][0]
    # Another table of the same name and version, and a new one.
    stores["b"].close()
    catalog.drop_store("b")
    for name in ("b", "c"):
        with catalog.create_store(name, key=KEY, value={"price": "double"}) as store:
            store.put("x", 1.0, timestamp=1)
            store.commit()
    again = marks(client)
    assert again["a"] == after["a"] and again["b"] != after["b"] and list(again) == ["a", "b", "c"]
    stores["a"].close()


@pytest.mark.parametrize("names", ["nonsense", '{"a": 1}', "[1]"])
def test_names_that_are_none_are_refused(tmp_path: Path, names: str) -> None:
    statestore.connect(tmp_path / "own").create_store("a", key=KEY, value={"price": "double"}).close()
    response = client_of(tmp_path / "own", row_files=tmp_path).get("/api/tables", params={"names": names})
    assert response.status_code == 400 and "expected a JSON array of texts" in response.json()["error"]


def test_a_batch_changes_the_marks_of_all_its_states(tmp_path: Path) -> None:
    name = "spark4.3.0-chain__rkcl"
    checkpoint = shutil.copytree(checkpoint_path(name), tmp_path / name)
    last = max(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdigit())
    (checkpoint / "commits" / str(last)).rename(tmp_path / "later")
    client = client_of(checkpoint, row_files=tmp_path)
    before = marks(client)
    (tmp_path / "later").rename(checkpoint / "commits" / str(last))
    after = marks(client)
    assert set(before) == set(after) == {"state_0", "state_1"}
    assert all(before[each].startswith(f"{last - 1} of") and after[each].startswith(f"{last} of") for each in before)
    found = client.get("/api/tables", params={"names": json.dumps(list(after))}).json()
    assert [each["last"] for each in found] == [last, last]
    shutil.rmtree(checkpoint)
    (gone,) = client.get("/api/marks").json()
    assert str(checkpoint) in gone["error"] and gone["tables"] == {}
    assert client.get("/api/overview").json()[0]["marks"] is None


def test_snapshots_of_flink_have_marks(tmp_path: Path) -> None:
    client = client_of(fixture("rocksdb"), row_files=tmp_path)
    newest = {each["store"]: each["last"] for each in client.get("/api/overview").json()[0]["tables"]}
    assert {name: int(mark.split(" ")[0]) for name, mark in marks(client).items()} == newest and len(newest) > 20


def test_few_followed_tables_are_kept_open_for_many_pages(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path / "own")
    names = [f"s{number}" for number in range(2 * FOLLOWED)]
    for name in names:
        with catalog.create_store(name, key=KEY, value={"price": "double"}) as store:
            store.put("x", 1.0, timestamp=1)
            store.commit()
    found = OpenedPaths([str(tmp_path / "own")], {})
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda name: found.news(0, name), names * 5))
    assert {each["last"] for each in answers} == {1}
    assert len(found._watched) == FOLLOWED
    found.news(0, names[-1])
    assert list(found._watched)[-1] == (0, names[-1])
