"""The batches that can be read, in every door: of damaged and of purged checkpoints, and while a query removes files.

Every door makes the one statement which batches can be read now, of the files as they are, and it is true.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints.checkpoint_tables import (
    began,
    counted,
    expected_changes,
    expected_history,
    key_cells,
    since,
    states_in_archive,
    states_of,
    tables,
)
from support.checkpoints.purged_checkpoints import purged
from support.checkpoints.spark_state_fixtures import checkpoint_path, multiset
from support.command_line import run
from support.parameters import mostly_slow, named

import statestore
from statestore.catalog.reads.table import Table
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.notices import StateStoreWarning
from statestore.formats.places.folder import Folder
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter

HDFS, ZIPS, CHANGELOG = "spark4.3.0-agg__hdfs", "spark4.3.0-agg__rk", "spark4.3.0-agg__rkcl"
FORMAT_2, FORMAT_2_ZIPS = "spark4.3.0-agg__rkv2", "spark4.0.1-agg__rk2"
BATCHES = range(6)
Damage = Callable[[Path], object]


def without(*names: str) -> Damage:
    """The removal of files of partition 0."""

    def damage(partition: Path) -> None:
        files = [file for name in names for file in partition.glob(name)]
        assert files, names
        for file in files:
            file.unlink()

    return damage


def cut(name: str) -> Damage:
    def damage(partition: Path) -> None:
        (file,) = partition.glob(name)
        file.write_bytes(file.read_bytes()[:-9])

    return damage


CASES: list[tuple[str, Damage, str]] = [
    (HDFS, without("6.delta"), "batches 0 to 4 can be read now"),
    (HDFS, without("6.delta", "2.delta"), "batches 0, 3 to 4 can be read now"),
    (HDFS, cut("6.delta"), "batches 0 to 4 can be read now"),
    (HDFS, without("1.delta", "4.snapshot"), "no batch can be read now"),
    (ZIPS, without("SSTs/*"), "no batch can be read now"),
    (ZIPS, without("6.zip"), "batches 0 to 4 can be read now"),
    (ZIPS, cut("6.zip"), "batches 0 to 4 can be read now"),
    (CHANGELOG, without("SSTs/*", "1.changelog"), "no batch can be read now"),
    (CHANGELOG, without("SSTs/*", "6.changelog"), "batches 0 to 4 can be read now"),
    (FORMAT_2, without("SSTs/*", "1_*.changelog"), "no batch can be read now"),
    (FORMAT_2_ZIPS, without("SSTs/*"), "no batch can be read now"),
    (FORMAT_2_ZIPS, cut("6_*.zip"), "batches 0 to 4 can be read now"),
]
IDS = [f"{name}-{number}" for number, (name, _, _) in enumerate(CASES)]


@pytest.mark.parametrize(("name", "damage", "statement"), CASES, ids=IDS)
@pytest.mark.quick(*(each for each in IDS if not each.endswith(("-3", "-5", "-8", "-10"))))
def test_every_door_says_the_same(name: str, damage: Damage, statement: str, tmp_path: Path) -> None:
    path = Path(shutil.copytree(checkpoint_path(name), tmp_path / "checkpoint"))
    damage(path / "state/0/0")
    table = statestore.inspect(path).table("state")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StateStoreWarning)
        readable = [number for number in BATCHES if can(table, number)]
    assert said(readable) == statement.replace(" and ", ", ")
    reads: list[Callable[[], Any]] = [
        lambda: table.scan().read_all(),
        lambda: table.get({"key": {"k": "no such key"}}, version=5),
        lambda: statestore.inspect(path).table("state").scan(version=5).read_all(),
    ]
    for read in reads:
        with pytest.raises((NotFoundError, CorruptError)) as raised:
            read()
        assert statement in str(raised.value).replace(" and ", ", ")
    snapshots = statestore.inspect(path).table("state$snapshots").scan().read_all().to_pylist()
    listed = [row["version"] for row in snapshots if row["readable"]]
    try:
        shown = " ".join(statestore.inspect(path).summary("state").problems)
    except NotFoundError as error:
        shown = str(error)
    assert (statement in shown.replace(" and ", ", ")) == (5 not in listed)
    # Only a read finds that bytes of changes are damaged.
    assert listed == ([*readable, 5] if "checkpoint/state/0/0/6.delta: " in str(raised.value) else readable)


def can(table: statestore.Table, number: int) -> bool:
    try:
        table.scan(version=number).read_all()
    except StateStoreError:
        return False
    return True


def said(readable: list[int]) -> str:
    """The statement in the words of a few cases."""
    if not readable:
        return "no batch can be read now"
    gap = next((n for n in range(1, len(readable)) if readable[n] != readable[n - 1] + 1), 0)
    ranges = [readable[:gap], readable[gap:]] if gap else [readable]
    texts = [f"{each[0]} to {each[-1]}" if len(each) > 1 else str(each[0]) for each in ranges]
    return f"batches {', '.join(texts)} can be read now"


def test_the_error_of_a_batch_that_is_not_there_says_so(tmp_path: Path) -> None:
    path = Path(shutil.copytree(checkpoint_path(HDFS), tmp_path / "checkpoint"))
    with pytest.raises(NotFoundError, match="no state of batch 9; batches 0 to 5 can be read now"):
        statestore.inspect(path).table("state").scan(version=9)


# Checkpoints that were cleaned up: kept batches are listed and read, others are refused, in every door


JOIN = "spark4.3.0-join__hdfs"


PURGES = [
    (HDFS, 2, 0, 3),  # a delta is left without those before it
    (CHANGELOG, 3, 3, 3),
    (FORMAT_2, 3, 0, 2),
    (ZIPS, 6, 5, 5),
    (HDFS, 4, 4, 4),
    (JOIN, 4, 0, 3),
    (HDFS, 4, 0, 3),
    (ZIPS, 1, 2, 2),
    ("spark4.3.0-twsttl__rkv2", 4, 2, 3),
]


@pytest.mark.parametrize(("name", "below", "logs_below", "first"), mostly_slow(PURGES, PURGES[:4]))
def test_purged_batches_are_told_and_the_others_read(
    name: str, below: int, logs_below: int, first: int, tmp_path: Path
) -> None:
    path = purged(name, tmp_path, below, logs_below)
    whole = states_in_archive(checkpoint_path(name))
    for shown, table in list(tables(path).items())[:2]:
        last = table.table.kept_versions()[1]
        assert table.table.kept_versions() == (first, last)
        states = since(whole[shown], first)
        assert states_of(table, first) == states
        assert counted(table.history().read_all(), "history") == expected_history(path, states)
        expected = expected_changes(path, states, first + 1, key_cells(table))
        assert counted(table.changes().read_all(), "changes") == expected
        before = began(checkpoint_path(name), first) - timedelta(milliseconds=1)
        check_refusals(table, before, first, last)
        for clause in (f"VERSION AS OF {first - 1}", f"TIMESTAMP AS OF '{before.isoformat()}'"):
            with pytest.raises(NotFoundError, match=r"(VERSION_NOT_FOUND|TIME_NOT_KEPT)\] line 1, column 16: "):
                statestore.sql(str(path), f'SELECT * FROM  "{shown}" {clause}')
        assert run("scan", path, shown, "--version", str(first - 1)).code == 1
        told = [row for row in run("inspect", path, "--json").rows if row["store"] == shown]
        assert [(row["oldest_version"], row["version"], row["status"]) for row in told] == [(first, last, "ok")]


def check_refusals(table: Table, before: datetime, first: int, last: int) -> None:
    """Check that batches and moments before the first kept batch are refused."""
    kept = f"{first} to {last}"
    after = f"{first + 1} to {last}" if first < last else "none"
    read = f"VERSION_NOT_FOUND.*{f'batches {kept}' if first < last else f'batch {first}'} can be read"
    refused: list[tuple[str, Callable[[], Any]]] = [
        (read, lambda: table.scan(version=first - 1)),
        (read, lambda: table.history(version=first - 1)),
        ("TIME_NOT_KEPT.*or later, asked for", lambda: table.scan(as_of=before)),
        (f"TIME_NOT_KEPT.*keeps batches {kept} and history from", lambda: table.history(start_time=before)),
        (f"VERSION_NOT_FOUND.*{after}", lambda: table.changes(start_version=first)),
        (f"TIME_NOT_KEPT.*keeps batches {kept} and changes after", lambda: table.changes(start_time=before)),
        (read, lambda: table.diff(first - 1)),
    ]
    for said, ask in refused:
        with pytest.raises(NotFoundError, match=said):
            ask()


def test_a_batch_that_can_be_read_is_read_though_newer_ones_are_damaged(tmp_path: Path) -> None:
    path = purged(HDFS, tmp_path, 0)
    (path / "state" / "0" / "1" / "5.delta").unlink()
    table = tables(path)["state"]
    expected = tables(checkpoint_path(HDFS))["state"]
    assert table.scan(version=3).read_all().equals(expected.scan(version=3).read_all())
    for ask in (table.scan, table.history, table.changes):
        with pytest.raises(NotFoundError, match="SPARK_STATE_NOT_FOUND"):
            ask().read_all()
    with pytest.raises(NotFoundError, match="batches 0 to 3 can be read now"):
        table.scan(version=4)
    found = run("inspect", path)
    assert found.code == 1 and "damaged" in found.out


COPIES = [(HDFS, "state", 1), (CHANGELOG, "state", 1), (JOIN, "left", 1), ("spark4.3.0-twsttl__rkcl", "val", 0)]


@pytest.mark.parametrize(
    ("name", "shown", "gone"),
    mostly_slow(COPIES, COPIES[:3]),
)
def test_a_copy_without_a_partition_is_not_the_whole_state(name: str, shown: str, gone: int, tmp_path: Path) -> None:
    path = purged(name, tmp_path, 0)
    shutil.rmtree(path / "state" / "0" / str(gone))
    table, said = tables(path)[shown], rf"SPARK_STATE_NOT_FOUND.*partition {gone} of operator 0.*only the partitions"
    asked: list[Callable[[], Any]] = [
        table.scan,
        table.history,
        table.changes,
        lambda: table.scan(version=2),
        lambda: table.scan(filter=("partition_id", "in", [0, 1])),
        lambda: table.diff(0),
        lambda: statestore.sql(str(path), f'SELECT * FROM "{shown}"'),
    ]
    for ask in asked:
        with pytest.raises(NotFoundError, match=said):
            ask()
    there = ("partition_id", "=", 1 - gone)
    expected = tables(checkpoint_path(name))[shown].scan(filter=there).read_all()
    assert table.scan(filter=there).read_all().equals(expected)
    assert {row["status"] for row in run("inspect", path, "--json").rows} == {"damaged"}


def test_batches_whose_times_are_gone_are_read_by_their_number(tmp_path: Path) -> None:
    """The log of offsets may be cleaned up further than that of commits: history and changes begin where times do."""
    path = purged(CHANGELOG, tmp_path, 0)
    for batch in (0, 1):
        (path / "offsets" / str(batch)).unlink()
    table, whole = tables(path)["state"], tables(checkpoint_path(CHANGELOG))["state"]
    assert table.scan(version=1).read_all().equals(whole.scan(version=1).read_all())
    states = states_of(table, 2)
    assert counted(table.history().read_all(), "history") == expected_history(path, states)
    assert counted(table.changes().read_all(), "changes") == expected_changes(path, states, 3, 1)
    refused: list[tuple[str, Callable[[], Any]]] = [
        ("TIME_NOT_KEPT.*or later", lambda: table.scan(as_of=began(checkpoint_path(CHANGELOG), 1))),
        ("VERSION_NOT_FOUND.*those of 3 to 5", lambda: table.changes(start_version=2)),
    ]
    for said, ask in refused:
        with pytest.raises(NotFoundError, match=said):
            ask()


def test_a_time_that_is_none_is_told(tmp_path: Path) -> None:
    """Changes by version need none. A history, and changes by time, would show a batch at another time."""
    path = purged(CHANGELOG, tmp_path, 0)
    log = path / "offsets" / "3"
    version, document, *rest = log.read_text().split("\n")
    table = tables(path)["state"]
    for moment in (10**30, True, "1", None):
        log.write_text("\n".join([version, json.dumps(json.loads(document) | {"batchTimestampMs": moment}), *rest]))
        said = r"SPARK_STATE_NOT_FOUND.*offsets/3: no time of the batch"
        with named(moment), pytest.raises(NotFoundError, match=said):
            table.history()
        with named(moment), pytest.raises(NotFoundError, match=said):
            table.changes(start_time=began(path, 1))
    assert table.scan(version=3).read_all().num_rows == table.scan().read_all().num_rows == 57
    changes = tables(checkpoint_path(CHANGELOG))["state"].changes().read_all().to_pylist()
    unknown = {"valid_from": None, "_commit_timestamp": None}
    expected = [row | unknown if row["_commit_version"] == 3 else row for row in changes]
    assert sorted(map(str, table.changes().read_all().to_pylist())) == sorted(map(str, expected))
    assert run("inspect", path).code == 0


def test_a_damaged_log_hides_no_moment_after_it(tmp_path: Path) -> None:
    path = purged(CHANGELOG, tmp_path, 0)
    table, whole = tables(path)["state"], tables(checkpoint_path(CHANGELOG))["state"]
    (path / "offsets" / "1").write_text("v1\n{")
    for batch in (2, 4, 5):
        moment = began(checkpoint_path(CHANGELOG), batch)
        assert table.scan(as_of=moment).read_all().equals(whole.scan(as_of=moment).read_all())
    with pytest.raises(CorruptError, match="offsets/1"):
        table.scan(as_of=began(checkpoint_path(CHANGELOG), 1))


QUERIES = [
    Query(),
    Query(mode="history"),
    Query(mode="changes"),
    Query(filters=(Filter("key", "=", {"k": "key-00-"}),)),
    Query(mode="history", filters=(Filter("key", "=", "key-00-", ("k",)),)),
]


@pytest.mark.parametrize("gone", ["state/0/0", "state"])
@pytest.mark.parametrize("name", [HDFS, CHANGELOG, "spark4.3.0-agg__rkv2"])
def test_files_that_go_while_they_are_read_are_told(name: str, gone: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    shutil.copytree(checkpoint_path(name), path)
    table = tables(path)["state"].table
    plans = [table.splits(query) for query in QUERIES]
    shutil.rmtree(path / gone)
    for query, splits in zip(QUERIES, plans, strict=True):
        with pytest.raises(NotFoundError, match=r"SPARK_STATE_NOT_FOUND.*reading up to batch 5 of .*can be read now"):
            _ = [batch for split in splits for batch in table.read(split, query)]


def test_a_plan_is_of_one_view_of_the_logs(tmp_path: Path) -> None:
    """A planned read is executed as planned, even if the logs that it was planned from are gone by then."""
    path = tmp_path / "checkpoint"
    shutil.copytree(checkpoint_path(CHANGELOG), path)
    table = tables(path)["state"].table
    plans = [table.splits(query) for query in QUERIES]
    expected = [
        sum(b.num_rows for s in splits for b in table.read(s, q)) for q, splits in zip(QUERIES, plans, strict=True)
    ]
    for log in ("commits", "offsets"):
        shutil.rmtree(path / log)
    found = [
        sum(b.num_rows for s in splits for b in table.read(s, q)) for q, splits in zip(QUERIES, plans, strict=True)
    ]
    assert found == expected and min(found) > 0


def test_views_of_files_that_are_gone_say_so(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    shutil.copytree(checkpoint_path(CHANGELOG), path)
    connection = statestore.attach(str(path))
    assert connection.sql("SELECT count(*) FROM state").fetchall() == [(57,)]
    shutil.rmtree(path / "state" / "0" / "1")
    shutil.rmtree(path / "state" / "0" / "0")
    with pytest.raises(Exception, match="SPARK_STATE_NOT_FOUND"):
        connection.sql("SELECT count(value.sum) FROM state").fetchall()


# A running query removes and writes files of its checkpoint while it is read, here at exact moments


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
REMOVED_LOGS = [
    ("commits/0", "offsets/0"),
    ("offsets/0",),
    ("commits/0",),
    ("commits/0", "offsets/0", "commits/1", "offsets/1"),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ask", READS)
@pytest.mark.parametrize("files", REMOVED_LOGS, ids=["both logs", "offsets first", "commits first", "two batches"])
@pytest.mark.quick("both logs-*rkcl", "two batches-*rkcl")
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
    while len(seen) < 3 * looks:
        assert run(name, path, "state", *key, "--json").rows
    assert run(name, path, "state", *key, "--json").rows == run(name, path, "state", *key, "--json").rows != []
