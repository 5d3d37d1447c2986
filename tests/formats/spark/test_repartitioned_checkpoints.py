"""Checkpoints whose state Spark 4.2.1 and 4.3.0 repartitioned: each batch has its own number of partitions.

``data/spark/repartitioned_checkpoints.tar.xz`` is laid out as ``spark_state_fixtures`` says. Queries ran
on 3 partitions, and a name tells what they are: ``agg`` counts and adds up by key, ``tws`` has variables and timers. A
read that Spark's own source refuses, or gets wrong, is not in the index.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pytest
from support.checkpoints.checkpoint_models import States, changes_of, history_of
from support.checkpoints.checkpoint_tables import (
    REST,
    TIME_OF_A_ROW,
    began,
    key_cells,
    micros,
    since,
    states_in_archive,
    states_of,
    tables,
)
from support.checkpoints.spark_state_fixtures import ARCHIVE, LOCAL, checkpoint_path, index, multiset, truth, unpacked
from support.command_line import run
from support.parameters import mostly_slow

import statestore
from statestore.catalog.reads.table import Table
from statestore.catalog.warehouse import open_table
from statestore.connector.options import query_of
from statestore.formats.errors import NotFoundError
from statestore.formats.spark.checkpoint.checkpoint import open_checkpoint
from statestore.formats.state_table import Query

REPARTITIONED = ARCHIVE.with_name("repartitioned_checkpoints.tar.xz")
NAMES = sorted(index(REPARTITIONED))
QUICK = ("agg__cl", "grow__cl", "keyless__f2", "interrupted__f2", "pws__cl")
GROUPS = ["abcdefgh", "aei", 1, "abz", 4, "ahy", "bb"]
"""The keys of each batch's rows, or the partitions that a batch made of the state."""
DATA_FILE = re.compile(r"(\d+)(_[0-9a-f-]+)?\.(delta|snapshot|zip|changelog)")


def path_of(name: str) -> Path:
    return checkpoint_path(name, REPARTITIONED)


def answer(path: Path, options: dict[str, Any]) -> pa.Table:
    given = {key: str(value) for key, value in options.items()}
    table, query = open_table(path, given), query_of(given)
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    return pa.Table.from_batches(batches, table.schema(query))


def states_in(name: str, shown: str = "state") -> States:
    return states_in_archive(path_of(name))[shown]


def without_place(states: States) -> States:
    """Rows without the partition, which is last."""
    found: States = {}
    for batch, rows in states.items():
        found[batch] = Counter()
        for row, count in rows.items():
            found[batch][row[:-1]] += count
    return found


def of_query(steps: list[Any], each: int = 10) -> States:
    """Rows (key, (count, sum)) after each batch, computed from the input: row i of the n-th input has the value 10 n +
    i, or with 1 in place of 10 all of its rows the value n."""
    found: States = {}
    counts: dict[str, tuple[int, int]] = {}
    inputs = 0
    for batch, step in enumerate(steps):
        if isinstance(step, str):
            for place, key in enumerate(step):
                count, total = counts.get(key, (0, 0))
                counts[key] = count + 1, total + each * inputs + place * (each > 1)
            inputs += 1
        found[batch] = Counter({((key,), value): 1 for key, value in counts.items()})
    return found


def test_the_archive_has_what_these_tests_are_of() -> None:
    assert [path.name for path in sorted((unpacked(REPARTITIONED) / "checkpoints").iterdir())] == NAMES
    assert len(NAMES) == COUNT
    assert sum(len(index(REPARTITIONED)[name]["reads"]) for name in NAMES) == READS


COUNT, READS = 22, 139


@pytest.mark.parametrize("name", mostly_slow(NAMES, QUICK))
def test_each_batch_is_what_spark_reads_of_it(name: str) -> None:
    """State and change feed, cell by cell, ``partition_id`` included."""
    for key, read in index(REPARTITIONED)[name]["reads"].items():
        assert multiset(answer(path_of(name), read["options"])) == multiset(truth(read, REPARTITIONED)), key


@pytest.mark.parametrize("name", ["agg__rk", "agg__cl", "agg__f2"])
def test_each_batch_is_what_the_query_had_counted(name: str) -> None:
    assert tables(path_of(name))["state"].table.kept_versions() == (0, 6)
    assert without_place(states_in(name)) == of_query(GROUPS, 1 if name == "agg__rk" else 10)


@pytest.mark.parametrize("name", mostly_slow(NAMES, ("agg__cl", "grow__cl")))
def test_rows_that_only_moved_are_no_changes(name: str) -> None:
    """History, changes and diff of a plain model that knows nothing of partitions."""
    path = path_of(name)
    for shown, table in tables(path).items():
        _, last = table.table.kept_versions()
        placed = states_in(name, shown)
        first = min(placed)
        states, cells = without_place(placed), key_cells(table)
        moments = {batch: time_of(path, batch, last) for batch in states}
        expected: Counter[Any] = Counter()
        for (*row, start, end), count in history_of(states).items():
            if end is None or moments[end] > moments[start]:  # else there is no moment in between
                expected[*row, moments[start], None if end is None else moments[end], start] += count
        assert bare(table.history().read_all(), "history") == expected, table.name
        changes: Counter[Any] = Counter()
        for (*row, batch, kind), count in changes_of(in_one_place(states), first + (first > 0), cells).items():
            changes[*row[:-1], moments[batch], moments[batch], batch, kind] += count
        assert bare(table.changes().read_all(), "changes") == changes, table.name
        for old in states:
            for new in {old + 1, last} & set(states):
                assert differing(table, old, new) == differing_rows(states[old], states[new], cells), (old, new)


def in_one_place(states: States) -> States:
    return {batch: Counter({(*row, 0): count for row, count in rows.items()}) for batch, rows in states.items()}


def time_of(path: Path, batch: int, last: int) -> int:
    """The time of a batch. A batch that began with its successor was never the newest: a repartition has the time of
    the batch before it."""
    return min(micros(began(path, number)) for number in range(batch, last + 1))


def bare(rows: pa.Table, mode: str) -> Counter[Any]:
    last = [*TIME_OF_A_ROW[mode], *REST[mode]]
    return multiset(rows.select([*(n for n in rows.column_names if n not in (*last, "partition_id")), *last]))


def differing(table: Table, old: int, new: int) -> Counter[str]:
    return Counter(table.diff(old, new).read_all()["_change"].to_pylist())


def differing_rows(old: Counter[Any], new: Counter[Any], cells: int | None) -> Counter[str]:
    gone, come = old - new, new - old
    if cells is None:
        return +Counter(removed=gone.total(), added=come.total())
    changed = {row[:1] for row in gone} & {row[:1] for row in come} if cells == 1 else None
    if changed is None:  # the column "key" alone does not distinguish rows of maps
        return +Counter(removed=gone.total(), added=come.total())
    return +Counter(removed=gone.total() - len(changed), added=come.total() - len(changed), changed=len(changed))


@pytest.mark.parametrize(
    "name",
    mostly_slow(["agg__rk", "agg__f2", "grow__cl", "tws__cl", "sess__cl", "twschecked__cl"], ["agg__rk", "grow__cl"]),
)
def test_the_partition_is_that_of_the_batch_that_wrote_the_row(name: str) -> None:
    for shown, table in tables(path_of(name)).items():
        states = states_in(name, shown)
        columns = [*table.schema.names, "_commit_version"]
        for row in rows_of(table.history().read_all().select(columns)):
            assert states[row[-1]][row[:-1]], (table.name, row)
        changes = table.changes().read_all()
        come = pc.is_in(changes["_change_type"], pa.array(["insert", "update_postimage"]))
        for row in rows_of(changes.filter(come).select(columns)):
            assert states[row[-1]][row[:-1]], (table.name, row)


def rows_of(table: pa.Table) -> list[Any]:
    return list(multiset(table))


@pytest.mark.parametrize("name", mostly_slow(["agg__rk", "agg__cl", "agg__f2", "agg__rf2"], ["agg__cl"]))
def test_keys_are_looked_up_where_their_batch_put_them(name: str) -> None:
    table = tables(path_of(name))["state"]
    for batch, rows in states_in(name).items():
        for key in "abcdefghiyz"[batch % 4 :: 4]:
            found = table.scan(version=batch, filter=("key.k", "=", key)).read_all()
            assert multiset(found) == Counter({row: 1 for row in rows if row[0] == (key,)}), (batch, key)
        whole: Any = table.table
        (split, *others) = whole.splits(Query(version=batch, filters=(filter_on("a"),)))
        placed = [row[-1] for row in rows if row[0] == ("a",)]
        assert not others and split.part.partitions[0] == placed[0]


def filter_on(key: str) -> Any:
    from statestore.formats.values.filters import Filter

    return Filter("key", "=", key, ("k",))


def test_the_past_of_a_key_goes_through_repartitions() -> None:
    for name in ("agg__rk", "agg__cl", "agg__f2"):
        table = tables(path_of(name))["state"]
        found = table.history(key={"k": "a"}).read_all().sort_by("_commit_version")
        told = [(r["_commit_version"], r["value"]["count"], r["partition_id"]) for r in found.to_pylist()]
        assert told == [(0, 1, 2), (1, 2, 2), (3, 3, 0), (5, 4, 2)]
        changes = table.changes(filter=("key.k", "=", "a")).read_all()
        assert Counter(changes["_commit_version"].to_pylist()) == {0: 1, 1: 2, 3: 2, 5: 2}


def test_the_feed_of_spark_goes_through_repartitions() -> None:
    """Its own source reads it up to the next repartition only."""
    for name in ("agg__cl", "agg__f2"):
        expected: Counter[Any] = Counter()
        for read in index(REPARTITIONED)[name]["reads"].values():
            if "readChangeFeed" in read["options"]:
                expected += multiset(truth(read, REPARTITIONED))
        feed = {"readChangeFeed": True, "changeStartBatchId": 0, "changeEndBatchId": 6}
        assert expected.total() == 18 and multiset(answer(path_of(name), feed)) == expected


def test_a_moment_has_the_partitions_of_its_batch() -> None:
    path = path_of("agg__cl")
    table, states = tables(path)["state"], states_in("agg__cl")
    for batch in (0, 2, 4, 5, 6):  # 1 and 3 began when the repartitions after them did
        assert multiset(table.scan(as_of=began(path, batch)).read_all()) == states[batch]


def test_partitions_share_a_read_only_where_rows_move_between_them() -> None:
    """From 3 to 6: what was in partition 1 is in 1 and 4."""
    table: Any = tables(path_of("grow__cl"))["state"].table
    assert [split.part.partition for split in table.splits(Query(mode="history"))] == [0, 1, 2]
    assert [split.part.partition for split in table.splits(Query(mode="changes", start_version=3))] == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]
    assert [split.part.partition for split in table.splits(Query(mode="history", version=1))] == [0, 1, 2]


def test_an_old_range_of_changes_has_the_partitions_it_had() -> None:
    table = tables(path_of("agg__cl"))["state"]
    states = in_one_place(without_place(states_in("agg__cl")))
    for first, last in ((0, 1), (1, 3), (3, 3), (2, 2), (4, 6)):
        rows = table.changes(start_version=first, end_version=last).read_all()
        whole = changes_of({batch: rows for batch, rows in states.items() if batch <= last}, first, 1)
        assert rows.num_rows == whole.total(), (first, last)


def test_inspect_tells_the_partitions_of_each_range_of_batches() -> None:
    (told,) = run("inspect", path_of("agg__f2"), "--json").rows
    assert told["partitions"] == [
        {"first_batch": 0, "last_batch": 1, "partitions": 3},
        {"first_batch": 2, "last_batch": 3, "partitions": 1},
        {"first_batch": 4, "last_batch": 6, "partitions": 4},
    ]
    assert (told["status"], told["health"]) == ("ok", ["3 partitions, from batch 2 on 1, from batch 4 on 4"])


PURGES = [
    ("agg__rk", 3, 2),
    ("agg__cl", 3, 2),
    ("agg__cl", 4, 4),
    ("agg__f2", 3, 2),
    ("agg__f2", 5, 4),
    ("tws__cl", 3, 2),
]


@pytest.mark.parametrize(("name", "below", "first"), mostly_slow(PURGES, PURGES[:5:2]))
def test_what_purging_left_is_read_on_either_side(name: str, below: int, first: int, tmp_path: Path) -> None:
    """Old partitions keep their files for ever, because they are never opened or cleaned up again."""
    path, whole = copied(name, tmp_path), states_in_archive(path_of(name))
    for file in path.glob("state/0/0/*"):
        found = DATA_FILE.fullmatch(file.name)
        if found is not None and int(found[1]) < below:
            file.unlink()
    for shown, table in tables(path).items():
        assert table.table.kept_versions() == (first, 6)
        states = since(whole[shown], first)
        assert states_of(table, first) == states
        assert rows_in(table.history()) == history_of(without_place(states)).total()
        with pytest.raises(NotFoundError, match="VERSION_NOT_FOUND"):
            table.scan(version=first - 1)


def rows_in(reader: Any) -> int:
    return int(reader.read_all().num_rows)


def copied(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(path_of(name), tmp_path / "checkpoint"))


@pytest.mark.parametrize("name", ["agg__cl", "agg__f2"])
def test_only_batches_before_a_repartition_are_left(name: str, tmp_path: Path) -> None:
    """A backup from before a repartition may contain the log of offsets of the unfinished repartition."""
    path = copied(name, tmp_path)
    for batch in range(2, 7):
        (path / "commits" / str(batch)).unlink()
    table = tables(path)["state"]
    assert table.table.kept_versions() == (0, 1)
    assert without_place(states_of(table)) == {batch: rows for batch, rows in of_query(GROUPS).items() if batch < 2}
    assert rows_in(table.history()) == 8 + 3


@pytest.mark.parametrize("name", ["agg__cl", "agg__f2", "grow__cl"])
def test_a_partition_of_the_batch_that_is_gone_is_told(name: str, tmp_path: Path) -> None:
    """A missing partition is reported also where fewer partitions than there are now would do."""
    path = copied(name, tmp_path)
    shutil.rmtree(path / "state" / "0" / "1")
    whole, table = tables(path_of(name))["state"], tables(path)["state"]
    for batch in states_in(name):
        if name != "grow__cl" and batch in (2, 3):  # of one partition
            assert table.scan(version=batch).read_all().equals(whole.scan(version=batch).read_all())
        else:
            with pytest.raises(NotFoundError, match=r"partition 1 of operator 0"):
                table.scan(version=batch).read_all()
    asked: list[Callable[[], Any]] = [table.history, table.changes, lambda: table.diff(2)]
    for ask in asked:
        with pytest.raises(NotFoundError, match=r"partition 1 of operator 0"):
            ask().read_all()


@pytest.mark.parametrize(("name", "lost"), [("agg__cl", 1), ("agg__cl", 3), ("grow__cl", 1), ("grow__cl", 2)])
def test_a_part_is_not_taken_for_the_whole_where_the_log_lost_a_batch(name: str, lost: int, tmp_path: Path) -> None:
    path = copied(name, tmp_path)
    (path / "offsets" / str(lost)).unlink()
    table, whole = tables(path)["state"], tables(path_of(name))["state"]
    expected = whole.scan(version=lost).read_all()
    try:
        found = table.scan(version=lost).read_all()
    except NotFoundError:
        return
    assert multiset(found) == multiset(expected)


@pytest.mark.parametrize("name", ["skipped__cl", "skipped__f2"])
def test_a_batch_that_a_repartition_skipped_changed_nothing(name: str) -> None:
    """Its rows go in once more with a later batch, and the state that it left behind was thrown away."""
    table = tables(path_of(name))["state"]
    states = without_place(states_in(name))
    expected = of_query(["abcdefgh", "aei", 0, 0])
    assert states == expected
    assert set(table.changes().read_all()["_commit_version"].to_pylist()) == {0, 1}
    feed = {"readChangeFeed": True, "changeStartBatchId": 1, "changeEndBatchId": 3}
    assert answer(path_of(name), feed).num_rows == 3


@pytest.mark.parametrize("name", ["interrupted__f2", "interrupted__f2_before", "resumed__f2"])
def test_a_repartition_that_was_interrupted(name: str) -> None:
    """An interrupted repartition has not happened until it is repeated. A query that was made to continue without lost
    rows is reported, too."""
    table = tables(path_of(name))["state"]
    states = without_place(states_in(name))
    if name == "resumed__f2":
        assert [rows.total() for rows in states.values()] == [8, 9, 3, 6, 6]
        changes = table.changes(start_version=2, end_version=2).read_all()
        assert Counter(changes["_change_type"].to_pylist()) == {"delete": 6}
        # Its keys are in the partitions of before, whose number was another, and Spark itself does not find them.
        for row in table.scan().read_all().to_pylist():
            assert table.get(row["key"]) == row
            assert table.history(key=row["key"]).read_all().num_rows
        return
    expected = of_query(["abcdefgh", "aei", 2, "abz"])
    assert states == (expected if name == "interrupted__f2" else {batch: expected[batch] for batch in (0, 1)})


@pytest.mark.parametrize("name", ["keyless__cl", "keyless__f2"])
def test_a_state_without_keys_is_one_task_s_but_where_it_was_repartitioned(name: str) -> None:
    """Spark puts its row into partition 42 modulo their number and goes on with partition 0: the count was lost."""
    table = tables(path_of(name))["state"]
    batches = {batch: [(row[1][0], row[-1]) for row in rows] for batch, rows in states_in(name).items()}
    counts = [(8, 0), (11, 0), (11, 0), (14, 0), (14, 2), (3, 0), (5, 0)]
    assert batches == {batch: [row] for batch, row in enumerate(counts)}
    changes = table.changes().read_all()
    told = zip(changes["_commit_version"].to_pylist(), changes["_change_type"].to_pylist(), strict=True)
    assert [kind for batch, kind in told if batch == 5] == ["update_preimage", "update_postimage"]


def test_families_have_the_ids_of_their_batch() -> None:
    """A repartition numbers them anew, so that the bytes of one family are those of another before it."""
    checkpoint = open_checkpoint(LOCAL, str(path_of("tws__cl")))
    assert isinstance(LOCAL, pafs.LocalFileSystem) and checkpoint.operators[0].stores[0].has_families
    for name, table in tables(path_of("tws__cl")).items():
        ids = [0, 2, 4, 6]
        keys = {row["key"]["k"] for batch in ids for row in table.scan(version=batch).read_all().to_pylist()}
        assert keys == set("abcdefghiyz") or name in ("timers",)


def test_statements_and_views_show_the_partitions_of_the_version() -> None:
    path = str(path_of("agg__cl"))
    for batch, count in ((1, 3), (3, 1), (6, 4)):
        rows = statestore.sql(path, f"SELECT partition_id FROM state VERSION AS OF {batch}")
        assert {row["partition_id"] for row in rows.to_pylist()} <= set(range(count))
        files = statestore.sql(path, f'SELECT name FROM "state$segments" VERSION AS OF {batch}').to_pylist()
        assert {row["name"].split("/")[2] for row in files} == {str(number) for number in range(count)}
