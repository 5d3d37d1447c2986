"""Applications, tasks and stores, found by the names of folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.kafka.applications import APPLICATIONS, folder_of, opened, raw, state, stores, truth, unpacked

from statestore.formats.errors import NotFoundError
from statestore.formats.kafka.directory.applications import Database, find_applications, recognises

FOLDERS = ("0_0", "1_0/rocksdb/a.b-c:d", "global/rocksdb/names")


def made(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).mkdir(parents=True)
    return root


@pytest.mark.parametrize("name", APPLICATIONS)
def test_every_store_and_database_of_a_real_application_is_found(name: str) -> None:
    application = state(name)
    found = {
        (partition.store, partition.task, partition.partition)
        for partition in application.partitions
        if partition.databases
    }
    expected = {
        (store["name"], part.get("task", "global"), part.get("partition"))
        for store in stores(name).values()
        for part in store["partitions"]
        if part.get("rows") or store["kind"] == "grace-join-buffer"
    }
    assert found == expected
    paths = {database.path for partition in application.partitions for database in partition.databases}
    assert paths == {path for path, _ in raw(name)}
    assert application.name == truth(name)["application_id"]
    assert application.process is not None
    assert application.problems == ()


def test_segments_are_in_the_order_of_their_times() -> None:
    (carts,) = [part for part in state("orders").partitions if (part.store, part.task) == ("carts", "7_1")]
    assert [database.start for database in carts.databases] == [1714550460000, 1714550520000, 1714550580000]
    assert carts.segmented
    assert (carts.subtopology, carts.partition) == (7, 1)


@pytest.mark.parametrize("below", ["", "orders", "orders/3_0", "orders/global", "orders/9_1"])
def test_a_state_dir_an_application_and_a_task_are_recognised(below: str) -> None:
    folder = folder_of(unpacked("orders") / "state" / below)
    assert recognises(folder)
    application = opened(Path(folder.path))
    assert application.name == "orders"
    task = below.partition("/")[2]
    assert {part.task for part in application.partitions} == (
        {task} if task else {p.task for p in state("orders").partitions}
    )


def test_a_task_is_read_with_its_application_name_and_process() -> None:
    application = opened(unpacked("orders") / "state" / "orders" / "2_1")
    assert application.process == state("orders").process
    assert application.tasks == ("2_1",)
    assert [(part.store, part.task) for part in application.partitions] == [("prices", "2_1")]


NOT_TASKS = (("commits", "state"), ("orders/1",), ("0-0",), ("1_0_0",), ("rocksdb/a",), ("x/y_0",), ())


@pytest.mark.parametrize("paths", [*NOT_TASKS, ("0_1", "data"), ("logs/2024_01",)])
def test_other_folders_are_not_recognised(tmp_path: Path, paths: tuple[str, ...]) -> None:
    made(tmp_path, *paths)
    folder = folder_of(tmp_path)
    assert not recognises(folder)
    if paths not in NOT_TASKS:
        return  # read as a task if a user names the engine
    with pytest.raises(NotFoundError, match="NOTHING_HERE"):
        find_applications(folder)


def test_recognising_lists_and_reads_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, *FOLDERS)
    (tmp_path / "kafka-streams-process-metadata").write_text("not JSON")

    def refuse(*_: object) -> None:
        raise AssertionError("a file was opened")

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr("os.open", refuse)
    assert recognises(folder_of(tmp_path))


def test_all_spellings_of_segments_and_all_places(tmp_path: Path) -> None:
    made(
        tmp_path / "app",
        "0_3/s.x-y:z/s.x-y:z.60000",
        "0_3/s.x-y:z/s.x-y:z:120000",
        "0_3/s.x-y:z/s.x-y:z-197001010003",
        "0_3/s.x-y:z/s.x-y:z.-60000",
        "0_3/s.x-y:z/other",
        "0_3/rocksdb/old-197001010002",
        "0_3/rocksdb/old-197001010001",
        "0_3/rocksdb/plain.1",
        "0_3/dropped",
        "__top__/1_0/rocksdb/inner",
        "global/rocksdb/names",
        "12_0",
        "2_0",
    )
    application = opened(tmp_path / "app")
    assert application.tasks == ("0_3", "2_0", "12_0", "global", "__top__/1_0")
    by_name = {partition.store: partition for partition in application.partitions}
    assert [(d.start, d.start_is_minute) for d in by_name["s.x-y:z"].databases] == [
        (-60000, False),
        (60000, False),
        (120000, False),
        (180000, True),
    ]
    assert "0_3/s.x-y:z/other has not the name of a segment" in by_name["s.x-y:z"].problems[0]
    assert by_name["old"].segmented
    assert [database.start for database in by_name["old"].databases] == [60000, 120000]
    assert by_name["plain.1"].databases == (Database("0_3/rocksdb/plain.1"),)
    assert by_name["dropped"].databases == ()
    assert (by_name["inner"].topology, by_name["inner"].subtopology) == ("top", 1)
    assert by_name["names"].is_global


def test_several_applications_of_a_state_dir(tmp_path: Path) -> None:
    made(tmp_path, "b/0_0/rocksdb/x", "a/1_1", "not-one/data")
    assert [application.name for application in find_applications(folder_of(tmp_path))] == ["a", "b"]
    assert recognises(folder_of(tmp_path))


def test_links_are_reported_and_not_followed(tmp_path: Path) -> None:
    secret = made(tmp_path / "elsewhere", "0_0/rocksdb/secret")
    app = made(tmp_path / "app", "0_0/rocksdb", "0_0/windows", "2_0")
    (app / "1_0").symlink_to(secret / "0_0")
    (app / "0_0" / "rocksdb" / "store").symlink_to(secret / "0_0" / "rocksdb" / "secret")
    (app / "0_0" / "windows" / "windows.0").symlink_to(secret)
    (app / "0_0" / "sessions").symlink_to(secret)
    (app / "2_0" / "rocksdb").symlink_to(secret / "0_0" / "rocksdb")
    application = opened(app)
    assert all(partition.databases == () for partition in application.partitions)
    assert {partition.store for partition in application.partitions} == {"store", "windows", "sessions"}
    assert all("not followed" in partition.problems[0] for partition in application.partitions)
    assert [problem.split(" ")[0] for problem in application.problems] == ["1_0", "2_0/rocksdb"]


def test_damaged_process_metadata_is_a_problem_and_hides_nothing(tmp_path: Path) -> None:
    made(tmp_path / "app", *FOLDERS)
    (tmp_path / "app" / "kafka-streams-process-metadata").write_text("not JSON")
    application = opened(tmp_path / "app")
    assert application.process is None
    assert "kafka-streams-process-metadata" in application.problems[0]
    assert len(application.partitions) == 2
