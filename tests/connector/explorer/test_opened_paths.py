"""Paths of the explorer: the places below a folder, and marks that change with each version of a table."""

from __future__ import annotations

import errno
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.command_line import run
from support.flink.fixtures import fixture

import statestore
from statestore.catalog.engines import places_below
from statestore.connector.explorer import opened_paths as places_module
from statestore.connector.explorer import server
from statestore.connector.explorer.app import application
from statestore.connector.explorer.opened_paths import FOLLOWED, OpenedPaths
from statestore.connector.explorer.row_files import RowFiles
from statestore.connector.explorer.server import opened_paths
from statestore.formats.notices import StateStoreWarning, notices_to

# Places below a folder

CHECKPOINT = "spark4.3.0-join__rkcl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a warehouse, a checkpoint and others that hold no state."""
    found = tmp_path_factory.mktemp("places")
    with statestore.connect(found / "stores").create_store("s", key={"k": "bigint"}, value={"v": "string"}) as store:
        store.put(1, "a", 1)
        store.commit()
    (found / "notes").mkdir()
    (found / "read.me").write_text("here")
    shutil.copytree(checkpoint_path(CHECKPOINT), found / "query")
    return found


def test_a_folder_stands_for_the_places_in_it(folder: Path) -> None:
    places = [str(folder / "query"), str(folder / "stores")]
    assert opened_paths([str(folder)], {}) == places
    assert opened_paths([places[1], str(folder)], {}) == [places[1], *places]


def test_a_place_stands_for_itself(folder: Path) -> None:
    for path in (folder / "stores", folder / "query", folder / "stores" / "s", folder / "notes", folder / "absent"):
        assert opened_paths([str(path)], {}) == [str(path)]


def test_an_error_names_what_can_be_opened(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(statestore.NotFoundError, match=r"NOTHING_HERE.*its folders .*: query, stores$"):
        statestore.inspect(folder)
    for name in "edcba":
        statestore.connect(tmp_path / name).create_store("s", key={"k": "bigint"}, value={"v": "string"}).close()
    with pytest.raises(statestore.NotFoundError, match=r": a, b, c and 2 more$"):
        statestore.inspect(tmp_path)


@pytest.fixture(scope="module")
def troubled(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of checkpoints, of which only those below two others can be read."""
    found = tmp_path_factory.mktemp("troubled")
    for name in ("team/jobs/good", "bad", "first", "stateless"):
        shutil.copytree(folder / "query", found / name)
    shutil.copytree(folder / "query", found / "team" / "jobs" / "good" / "other")
    next((found / "bad" / "state").rglob("schema")).unlink()
    shutil.rmtree(found / "first" / "commits")
    shutil.rmtree(found / "stateless" / "state")
    (found / "loop").symlink_to(found)
    return found


def test_places_are_found_several_folders_down_and_named_if_they_cannot_be_read(
    troubled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [str(troubled / name) for name in ("bad", "first", "stateless", "team/jobs/good")]
    with pytest.warns(StateStoreWarning, match="each with a path of its own: other"):
        assert opened_paths([str(troubled)], {}) == places
    with pytest.raises(statestore.NotFoundError, match=r"NOTHING_HERE.*: bad, first, stateless and 1 more$"):
        statestore.inspect(troubled)
    told = OpenedPaths(places, {}).overview()
    assert [place["error"] is None for place in told] == [False, False, False, True]
    assert "first batch is not committed" in told[1]["error"] and "keeps no state" in told[2]["error"]
    served: list[list[str]] = []

    class Served:
        url = "http://127.0.0.1/"

        def run(self, **_: object) -> None: ...

    def explorer(paths: list[str], *_: object) -> Served:
        served.append(paths)
        return Served()

    monkeypatch.setattr(server, "explorer", explorer)
    answer = run("explore", troubled, "--no-browser")
    assert (answer.code, served) == (0, [places])
    assert "bad is shown with its error: [SPARK_STATE_NOT_FOUND]" in answer.err
    assert f"not shown of {troubled / 'team/jobs/good'}, each with a path of its own: other" in answer.err
    assert run("explore", places[0], "--no-browser").code == 1


def test_folders_that_are_left_out_are_named_with_the_reason(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that nobody may list is one that the system refuses, because root may list all."""
    shutil.copytree(folder / "stores", tmp_path / "stores")
    (tmp_path / "a/b/c/d/e").mkdir(parents=True)
    (tmp_path / "shut").mkdir()
    listed = os.scandir

    def scandir(path: Path) -> Any:
        if Path(path).name == "shut":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(places_below, "os", SimpleNamespace(scandir=scandir))
    notices: list[str] = []
    with notices_to(notices.append):
        assert opened_paths([str(tmp_path)], {}) == [str(tmp_path / "stores")]
        monkeypatch.setattr(places_below, "MOST", 2)
        opened_paths([str(tmp_path)], {})
    said = f"the explorer of {tmp_path}: "
    assert notices == [
        f"{said}{tmp_path / 'shut'} was not looked at: Permission denied",
        f"{said}folders more than 4 folders down were not looked at, those in a/b/c/d; give their paths",
        f"{said}only the nearest 2 folders were looked at; give paths further down",
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "first",
            r"first batch is not committed \(it has metadata, offsets, .*state, and no folder commits; batch",
        ),
        ("stateless", r"has committed batch \d+ and keeps no state"),
    ],
)
def test_a_checkpoint_without_state_is_called_one(troubled: Path, name: str, said: str) -> None:
    with pytest.raises(statestore.NotFoundError, match=rf"NOTHING_HERE.*{said}"):
        statestore.inspect(troubled / name)


def test_a_query_that_has_just_begun_is_called_one(tmp_path: Path) -> None:
    """Spark writes the id first. Some releases make the folder of the log of commits before there is a commit."""
    (tmp_path / "metadata").write_text('{"id":"5b0a7a4e-3b5c-4b0e-9b1c-3f6a2f6f7a10"}')
    with pytest.raises(statestore.NotFoundError, match=r"NOTHING_HERE.*planned no batch yet"):
        statestore.inspect(tmp_path)
    for name in ("commits", "offsets", "state"):
        (tmp_path / name).mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n{}")
    with pytest.raises(statestore.NotFoundError, match=r"SPARK_STATE_NOT_FOUND.*no committed batch .batch 0 was begun"):
        statestore.inspect(tmp_path)


def test_a_checkpoint_in_the_folder_of_another_is_named(troubled: Path) -> None:
    answer = run("inspect", troubled / "team" / "jobs" / "good")
    assert answer.code == 0 and "not shown, each with a path of its own: other" in answer.err
    with statestore.connect(troubled / "w").create_store("s", key={"k": "bigint"}, value={"v": "string"}):
        assert statestore.inspect(troubled / "w").beside() == []


def test_engines_that_have_begun_and_hold_nothing(tmp_path: Path) -> None:
    job = tmp_path / "flink" / ("0123456789abcdef" * 2)
    for name in ("shared", "taskowned", "chk-1"):
        (job / name).mkdir(parents=True)
    for path in (job, job.parent):
        with pytest.raises(statestore.NotFoundError, match=r"FLINK_FILE_MISSING.*completed no snapshot"):
            statestore.inspect(path)
    (tmp_path / "kafka" / "app" / "0_0").mkdir(parents=True)
    (tmp_path / "kafka" / "app" / "kafka-streams-process-metadata").write_text('{"processId": "x"}')
    answer = run("inspect", tmp_path / "kafka")
    assert answer.code == 0 and "holds no state yet" in answer.err


# Marks of tables

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
        patched.setattr(places_module, "summary_of", lambda *_: pytest.fail("a summary"))
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
