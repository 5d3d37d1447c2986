"""A running query removes and writes files of its checkpoint while it is read, here at exact moments."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path, multiset
from support.command_line import run
from support.parameters import mostly_slow

import statestore
from statestore.catalog.reads.table import Table
from statestore.formats.errors import NotFoundError
from statestore.formats.places.folder import Folder

HDFS, CHANGELOG, FORMAT_2 = "spark4.3.0-agg__hdfs", "spark4.3.0-agg__rkcl", "spark4.3.0-agg__rkv2"
NAMES = (HDFS, CHANGELOG, FORMAT_2)
LAST = 5


@pytest.fixture
def after_listing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], list[str]]:
    """A function that has something done once, right after a folder whose path ends so was listed."""
    list_entries = Folder.entries

    def prepare(folder: str, act: Callable[[], object]) -> list[str]:
        acted: list[str] = []

        def entries(self: Folder) -> list[Any]:
            found = list_entries(self)
            if self.path.endswith(folder) and not acted:
                acted.append(self.path)
                act()
            return found

        monkeypatch.setattr(Folder, "entries", entries)
        return acted

    return prepare


def copied(name: str, to: Path) -> Path:
    return Path(shutil.copytree(checkpoint_path(name), to / "checkpoint"))


def removal(path: Path, *files: str) -> Callable[[], None]:
    def remove() -> None:
        for file in files:
            (path / file).unlink()

    return remove


READS: dict[str, Callable[[Table], Any]] = {
    "versions": lambda table: table.versions().to_pylist()[-LAST:],
    "changes": lambda table: multiset(table.changes(start_version=3).read_all()),
    "scan": lambda table: multiset(table.scan().read_all()),
    "diff": lambda table: table.diff(start_version=3).read_all().num_rows,
    "as of now": lambda table: multiset(table.scan(as_of="2100-01-01T00:00:00Z").read_all()),
}
PURGES = [
    ("commits/0", "offsets/0"),
    ("offsets/0",),
    ("commits/0",),
    ("commits/0", "offsets/0", "commits/1", "offsets/1"),
]


@pytest.mark.parametrize("name", mostly_slow(NAMES, [CHANGELOG]))
@pytest.mark.parametrize("ask", READS)
@pytest.mark.parametrize("files", PURGES, ids=["both logs", "offsets first", "commits first", "two batches"])
def test_newer_batches_answer_when_the_oldest_is_purged(
    name: str, ask: str, files: tuple[str, ...], after_listing: Any, tmp_path: Path
) -> None:
    path = copied(name, tmp_path)
    expected = READS[ask](statestore.inspect(path).table("state"))
    table = statestore.inspect(path).table("state")
    acted = after_listing("/offsets", removal(path, *files))
    found = READS[ask](table)
    assert acted
    assert found == expected if ask != "versions" else found[-3:] == expected[-3:]


def test_a_purged_batch_is_left_out_of_listings(after_listing: Any, tmp_path: Path) -> None:
    path = copied(HDFS, tmp_path)
    after_listing("/offsets", removal(path, "commits/0", "offsets/0"))
    table = statestore.inspect(path).table("state")
    assert table.versions()["version"].to_pylist() == [1, 2, 3, 4, 5]


def test_a_purged_batch_that_is_asked_for_is_said_to_be_purged(after_listing: Any, tmp_path: Path) -> None:
    path = copied(HDFS, tmp_path)
    table = statestore.inspect(path).table("state")
    acted = after_listing("/offsets", removal(path, "commits/0", "offsets/0"))
    with pytest.raises(NotFoundError, match=r"expected one of 1 to 5|the query purged it"):
        table.scan(version=0).read_all()
    assert acted


@pytest.mark.parametrize("name", NAMES)
def test_the_next_batch_takes_the_place_of_the_newest(name: str, after_listing: Any, tmp_path: Path) -> None:
    """A query that keeps one batch removes it as it commits the next."""
    path = copied(name, tmp_path)
    logs = [f"{log}/{LAST}" for log in ("commits", "offsets")]
    for log in logs:
        (path / log).rename(path / f"{log}.next")

    def commit() -> None:
        for log in logs:
            (path / f"{log}.next").rename(path / log)
            (path / log).with_name(str(LAST - 1)).unlink()

    acted = after_listing("/offsets", commit)
    expected = multiset(statestore.inspect(checkpoint_path(name)).table("state").scan().read_all())
    assert multiset(statestore.inspect(path).table("state").scan().read_all()) == expected
    assert acted


@pytest.mark.parametrize(("name", "snapshot"), [(HDFS, "4.snapshot"), (CHANGELOG, "6.zip"), (FORMAT_2, "6_*.zip")])
def test_changes_that_a_snapshot_replaces_are_not_missed(
    name: str, snapshot: str, after_listing: Any, tmp_path: Path
) -> None:
    """Maintenance writes a snapshot and removes the changes before it, between the listing and the read."""
    path = copied(name, tmp_path)
    partition = path / "state/0/0"
    (file,) = partition.glob(snapshot)
    kept = file.rename(tmp_path / file.name)
    version = int(file.name.split(".")[0].split("_")[0])

    def maintain() -> None:
        kept.rename(file)
        for each in [*partition.glob("*.delta"), *partition.glob("*.changelog")]:
            if int(each.name.split(".")[0].split("_")[0]) <= version:
                each.unlink()

    acted = after_listing("/state/0/0", maintain)
    expected = multiset(statestore.inspect(checkpoint_path(name)).table("state").scan().read_all())
    table = statestore.inspect(path).table("state")
    assert not acted or file.exists()
    assert multiset(table.scan().read_all()) == expected
    assert acted


def test_what_is_gone_for_good_is_said_to_be(after_listing: Any, tmp_path: Path) -> None:
    path = copied(HDFS, tmp_path)
    after_listing("/state/0/0", removal(path, "state/0/0/6.delta"))
    with pytest.raises(NotFoundError, match="no file of version 6; batches 0 to 4 can be read now"):
        statestore.inspect(path).table("state").scan().read_all()


@pytest.mark.parametrize("looks", [1, 2])
@pytest.mark.parametrize("command", [("history", "key-06-éé"), ("scan",)], ids=["history", "scan"])
def test_a_query_that_goes_on_with_each_look(
    command: tuple[str, ...], looks: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It keeps one batch, and completes the next when so many listings have been made."""
    path, first, seen = copied(HDFS, tmp_path), LAST - 3, []
    for log in ("commits", "offsets"):
        for number in range(LAST + 1):
            file = path / log / str(number)
            if number < first:
                file.unlink()
            elif number > first:
                file.rename(file.with_suffix(".next"))
    list_entries = Folder.entries

    def entries(self: Folder) -> list[Any]:
        found = list_entries(self)
        if self.path.endswith("/commits"):
            seen.append(self.path)
            batch = first + len(seen) // looks
            if len(seen) % looks == 0 and batch <= LAST:
                for log in ("commits", "offsets"):
                    (path / log / f"{batch}.next").rename(path / log / str(batch))
                    (path / log / str(batch - 1)).unlink()
        return found

    monkeypatch.setattr(Folder, "entries", entries)
    name, *key = command
    assert run(name, path, "state", *key, "--json").rows == run(name, path, "state", *key, "--json").rows != []
    assert len(seen) >= 3 * looks
