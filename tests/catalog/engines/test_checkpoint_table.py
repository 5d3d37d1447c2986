"""Checkpoints of Spark through Python, SQL, DuckDB and the command line; the truth is the rows that Spark read."""

from __future__ import annotations

import contextvars
import hashlib
import json
import pickle
import shutil
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.small_checkpoints import write_small_checkpoint
from support.checkpoints.spark_state_fixtures import QUICK, checkpoint_path, index, multiset, opened, truth
from support.command_line import run
from support.parameters import mostly_slow

import statestore
from statestore.catalog.engines.engine_table import EngineTable, PartSplit
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.report.figures import figures_of
from statestore.formats.places import reading_threads
from statestore.formats.spark import state_at, state_columns
from statestore.formats.spark.providers import partition_splits
from statestore.formats.spark.state_at import PartitionPart
from statestore.formats.state_table import Query, Split
from statestore.formats.values.filters import Filter

SPARK_READS_WRONG = "join__rkj4"
NAMES = sorted(name for name in index() if SPARK_READS_WRONG not in name)
AGGREGATION = "spark4.3.0-agg__rkcl"


def table_name(name: str, options: dict[str, Any]) -> str:
    """The name of the table that corresponds to options of Spark's source."""
    timers = "timers" if options.get("readRegisteredTimers") else None
    base = options.get("joinSide") or options.get("stateVarName") or timers or "state"
    return f"{base}_{options['operatorId']}" if len(opened(name).operators) > 1 else str(base)


def plain_reads(name: str) -> list[dict[str, Any]]:
    """Reads of whole states as users see them."""
    other = {"readChangeFeed", "storeName", "flattenCollectionTypes"}
    reads = index()[name]["reads"].values()
    return [read for read in reads if "error" not in read and not other & set(read["options"])]


@pytest.mark.quick("*aggmulti*")
@pytest.mark.parametrize("name", mostly_slow(NAMES, QUICK[1::2]))
def test_each_batch_is_a_version(name: str) -> None:
    found = statestore.inspect(checkpoint_path(name))
    reads = plain_reads(name)
    assert reads or "rkav" in name
    for read in reads:
        table = found.table(table_name(name, read["options"]))
        rows = table.scan(version=read["options"].get("batchId")).read_all()
        assert multiset(rows) == multiset(truth(read))


@pytest.mark.quick("*agg__hdfs", "*join__r*")
@pytest.mark.parametrize("name", mostly_slow(sorted(index()), QUICK))
def test_duckdb_reads_every_table(name: str) -> None:
    """Tables with several struct fields of one name are read, too, though DuckDB refuses such types."""
    path = str(checkpoint_path(name))
    connection = statestore.attach(path)
    for table in statestore.inspect(path).tables():
        count = len(connection.sql(f'SELECT * FROM "{table}"').fetchall())
        assert count == statestore.inspect(path).table(table).scan().read_all().num_rows


def test_sql_with_batches_and_moments() -> None:
    path = str(checkpoint_path(AGGREGATION))
    first = "SELECT key.k AS k, value.count AS n FROM state VERSION AS OF 2 ORDER BY k LIMIT 1"
    assert statestore.sql(path, first).to_pylist() == [{"k": "key-00-", "n": 2}]
    began = [opened(AGGREGATION, batch).batch.timestamp_ms or 0 for batch in range(3)]
    for moment, batch in ((began[1], 1), (began[2], 2), (began[2] - 1, 1)):
        texts = [
            f"SELECT sum(value.count) FROM state {c}" for c in (f"TIMESTAMP AS OF {moment}", f"VERSION AS OF {batch}")
        ]
        assert statestore.sql(path, texts[0]) == statestore.sql(path, texts[1])
    joined = (
        "SELECT count(*) FROM state VERSION AS OF 1 o JOIN state n ON o.key = n.key WHERE n.value.count > o.value.count"
    )
    assert statestore.sql(path, joined).column(0)[0].as_py() > 0


def test_partitions_that_are_filtered_out_are_not_read() -> None:
    table = statestore.inspect(checkpoint_path(AGGREGATION)).table("state").table
    assert isinstance(table, EngineTable)
    query = Query(filters=(Filter("partition_id", "=", 1),))
    splits = table.splits(query)
    assert [split.part for split in splits if isinstance(split, PartSplit)] == [PartitionPart(1)]
    again = pickle.loads(pickle.dumps(table))
    rows = pa.Table.from_batches(batch for split in again.splits(query) for batch in again.read(split, query))
    assert set(rows["partition_id"].to_pylist()) == {1}


def test_tasks_read_parts_of_a_large_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks with one thread each read parts of a partition; a reader that has all threads reads it whole."""
    monkeypatch.setattr(partition_splits, "_PART_BYTES", 1000)
    monkeypatch.setattr(state_at, "processors", lambda: 8)
    table = statestore.inspect(checkpoint_path("spark4.3.0-twsttl__rk")).table("lst").table

    def planned() -> tuple[Sequence[Split], Sequence[Split]]:
        reading_threads.limit_reading_threads(8)
        whole = table.splits(Query())
        with reading_threads.reading_in_tasks():
            return whole, table.splits(Query())

    whole, parts = contextvars.copy_context().run(planned)
    assert len(whole) == 2 < len(parts)
    batches = [pa.Table.from_batches(b for s in splits for b in table.read(s, Query())) for splits in (whole, parts)]
    assert batches[0].num_rows > 0 and multiset(batches[0]) == multiset(batches[1])


def test_chosen_columns_and_filters() -> None:
    table = statestore.inspect(checkpoint_path(AGGREGATION)).table("state")
    whole = table.scan().read_all()
    assert table.scan(columns=["value"]).read_all().equals(whole.select(["value"]))
    assert table.scan(columns=["partition_id", "key"]).read_all().equals(whole.select(["partition_id", "key"]))
    key = {"k": "key-00-"}
    found = table.scan(columns=["value"], filter=("key", "=", key)).read_all().to_pylist()
    assert found == [{"value": row["value"]} for row in whole.to_pylist() if row["key"] == key]


@pytest.mark.parametrize("changelogs", [False, True])
def test_values_are_not_decoded_where_only_keys_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changelogs: bool
) -> None:
    made = write_small_checkpoint(tmp_path / "checkpoint", 5, partitions=2, words=40, changelogs=changelogs)
    table = statestore.inspect(made.folder).table("state")
    names, feed = ["key"], ["key", "_change_type", "_commit_version"]
    whole = table.changes().read_all().select(feed).to_pylist()

    def refused(*_: object) -> None:
        raise AssertionError("decoded a value")

    monkeypatch.setattr(state_columns, "decode_values", refused)
    found = table.scan(columns=names).read_all()["key"].to_pylist()
    assert sorted(key["word"] for key in found) == sorted(made.state())
    assert len(table.scan(columns=()).read_all()) == len(found)
    assert table.changes(columns=feed).read_all().to_pylist() == whole
    with pytest.raises(AssertionError, match="decoded a value"):
        table.scan().read_all()


def test_joins_variables_and_several_operators_have_tables_of_their_own() -> None:
    def tables(name: str) -> list[str]:
        return statestore.inspect(checkpoint_path(name)).tables()

    assert tables("spark4.3.0-join__hdfs") == ["left", "right"]
    assert tables("spark4.3.0-chain__rkcl") == ["state_0", "state_1"]
    assert tables("spark4.3.0-twsno__rk") == ["lst", "mp", "timers", "val"]


def began(path: Path, batch: int) -> str:
    told = json.loads((path / "offsets" / str(batch)).read_text().splitlines()[1])["batchTimestampMs"]
    return text(datetime.fromtimestamp(told / 1000, UTC))


def test_the_command_line() -> None:
    path = checkpoint_path(AGGREGATION)
    (told,) = run("inspect", path, "--json").rows
    assert (told["store"], told["kind"], told["oldest_version"], told["version"]) == ("state", "stateStoreSave", 0, 5)
    assert (told["from"], told["to"]) == (began(path, 0), began(path, 5))
    files = [file for part in "01" for file in (path / "state/0" / part).rglob("*") if "_metadata" not in file.parts]
    assert told["bytes"] == sum(file.stat().st_size for file in files if file.is_file())
    (row,) = run("get", path, "state", '{"k": "key-00-"}', "--json").rows
    assert row["value"]["count"] == 4 and row["value"]["sum_1"] == -12.0
    assert run("scan", path, "state", "--limit", "2").err == "55 more rows; --limit 57 shows all\n"
    changes = run("diff", path, "state", "--from", "2", "--to", "3", "--json").rows
    assert {change["change"] for change in changes} == {"changed"}
    assert run("compact", path).code == 1


def test_variables_that_nothing_names_are_not_left_out(tmp_path: Path) -> None:
    path = Path(shutil.copytree(checkpoint_path("spark4.3.0-twsttl__rkcl"), tmp_path / "checkpoint"))
    shutil.rmtree(path / "state" / "0" / "_metadata")
    with pytest.raises(statestore.NotFoundError, match=r"SPARK_STATE_NOT_FOUND.*state/0/_metadata: nothing says"):
        statestore.inspect(path)


def test_metadata_tables_tell_of_batches_and_files(tmp_path: Path) -> None:
    path = Path(shutil.copytree(checkpoint_path(AGGREGATION), tmp_path / "checkpoint"))
    for version in (1, 2):  # as Spark cleans up: the first batches cannot be read any more
        for file in path.glob(f"state/0/*/{version}.*"):
            file.unlink()
    versions = statestore.sql(str(path), "DESCRIBE HISTORY state").to_pylist()
    assert [row["batch"] for row in versions] == [5, 4, 3, 2, 1, 0]
    assert [text(row["timestamp"]) for row in versions] == [began(path, batch) for batch in (5, 4, 3, 2, 1, 0)]
    written = [sum(file.stat().st_size for file in path.glob(f"state/0/*/{batch + 1}.*")) for batch in range(6)]
    assert [row["bytes"] for row in versions[::-1]] == written and written[:2] == [0, 0] and min(written[2:]) > 0
    connection = statestore.attach(str(path))
    told = connection.sql('SELECT version, readable FROM "state$snapshots" ORDER BY version').fetchall()
    kept = statestore.inspect(path).table("state").table.kept_versions()
    assert told == [(batch, kept[0] <= batch) for batch in range(6)] and kept[0] > 1
    columns = connection.sql('FROM "state$schema"').fetchall()
    assert [column[0::2] for column in columns] == [("key", "key"), ("value", "value"), ("partition_id", "value")]
    files = connection.sql('SELECT name, bytes FROM "state$segments"').fetchall()
    assert all((path / name).stat().st_size == size for name, size in files)
    for name in [str(file.relative_to(path)) for file in path.glob("state/0/?/**/*") if file.is_file()]:
        if name not in dict(files) and "_metadata" not in name:
            (path / name).unlink()
    assert statestore.sql(str(path), "SELECT count(*) FROM state").column(0)[0].as_py() > 0


def test_the_report_tells_what_batches_changed() -> None:
    """Against the states of all batches, each read by itself."""
    figures = figures_of(open_warehouse(checkpoint_path(AGGREGATION)).open("state").pin())
    table = statestore.inspect(checkpoint_path(AGGREGATION)).table("state")
    rows = [table.scan(version=batch).read_all().to_pylist() for batch in range(6)]
    states = [{row["key"]["k"] or "null": row["value"] for row in found} for found in rows]
    assert [point["keys"] for point in figures.growth] == [len(state) for state in states]
    written, ended = Counter[int](), Counter[int]()
    for batch, state in enumerate(states):
        before = states[batch - 1] if batch else {}
        written[batch] = sum(before.get(key) != value for key, value in state.items())
        ended[batch] = sum(state.get(key) != value for key, value in before.items())
    assert {bar["first"]: bar["count"] for bar in figures.churn if bar["change"] == "written"} == +written
    assert {bar["first"]: -bar["count"] for bar in figures.churn if bar["change"] == "ended"} == +ended
    assert sum(cell["rows"] for cell in figures.heat) == sum(written.values())
    key = figures.busiest[0]["key"]
    counts = [row["value"] for row in figures.lifelines[key] if row["column"] == "value.count"]
    seen = [state[key]["count"] for state in states if key in state]
    assert counts == [count for place, count in enumerate(seen) if not place or count != seen[place - 1]]
    assert "value.count" in figures.numeric


def text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


REFUSED: list[tuple[Any, str]] = [
    (lambda t: t.scan(version=99), "VERSION_NOT_FOUND.*0 to 5"),
    (lambda t: t.scan(as_of=0), "TIME_NOT_KEPT.*or later"),
    (lambda t: t.scan(columns=["nope"]), "COLUMN_NOT_FOUND.*key, value, partition_id"),
    (lambda t: t.scan(filter=("nope", "=", 1)), "COLUMN_NOT_FOUND"),
]


@pytest.mark.parametrize(("ask", "said"), REFUSED)
def test_what_is_refused(ask: Any, said: str) -> None:
    table = statestore.inspect(checkpoint_path(AGGREGATION)).table("state")
    with pytest.raises(statestore.StateStoreError, match=said):
        ask(table).read_all()


def test_a_folder_that_is_neither(tmp_path: Path) -> None:
    with pytest.raises(statestore.NotFoundError, match=r"NOTHING_HERE.*checkpoint"):
        statestore.inspect(tmp_path)
    assert isinstance(statestore.inspect(checkpoint_path(AGGREGATION)).table("state").table, EngineTable)


# `diff` of two batches of a checkpoint, applied to the rows of the one, gives the rows of the other: for all types.


def cells(row: dict[str, Any]) -> str:
    return str(sorted(row.items()))


@pytest.mark.quick("*join__hdfs", "*sess__rkcl")
@pytest.mark.parametrize("name", mostly_slow(sorted(index()), QUICK[::2]))
def test_the_difference_makes_one_batch_of_another(name: str) -> None:
    found = statestore.inspect(checkpoint_path(name))
    for table in map(found.table, found.tables()):
        first, last = table.table.kept_versions()
        states = {
            batch: Counter(cells(row) for row in table.scan(version=batch).read_all().to_pylist())
            for batch in (first, last - 1, last)
        }
        for old, new in ((first, last), (last - 1, last), (last, first)):
            rows = Counter(states[old])
            for change in table.diff(old, new).read_all().to_pylist():
                key = {name: value for name, value in change.items() if not name.startswith("_")}
                if change["_change"] != "added":
                    rows[cells(key | change["_old"])] -= 1
                if change["_change"] != "removed":
                    rows[cells(key | change["_new"])] += 1
                assert change["_old"] != change["_new"]
            assert min(rows.values(), default=0) >= 0 and +rows == states[new], table.table.name


@pytest.mark.parametrize("name", mostly_slow(sorted(index()), QUICK))
def test_inspect_names_the_types_of_every_state(name: str) -> None:
    """Types that stores of this project do not have are named, too: no state looks damaged for its types."""
    told = run("inspect", checkpoint_path(name), "--json").rows
    assert told and all((table["status"], table["health"]) == ("ok", []) for table in told)


@pytest.mark.quick("*dedup*", "*limit*")
@pytest.mark.parametrize("name", ["spark4.3.0-aggmulti__rkcl", "spark4.3.0-limit__rkcl", "spark4.3.0-dedup__hdfs"])
def test_reports_take_keys_that_stores_of_ours_can_not_have(name: str) -> None:
    """Floating-point numbers, and columns without a type."""
    figures = figures_of(open_warehouse(checkpoint_path(name)).open("state").pin())
    rows = statestore.inspect(checkpoint_path(name)).table("state").history().read_all().num_rows
    assert sum(cell["rows"] for cell in figures.heat) == rows > 0
    assert figures.busiest


# No read of a checkpoint changes a byte, name or time in it.


def state_of(folder: Path) -> dict[str, tuple[int, str]]:
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        found[str(path)] = (path.stat().st_mtime_ns, content)
    return found


@pytest.mark.parametrize(
    "name",
    mostly_slow(
        [
            "spark4.3.0-agg__hdfs",
            "spark4.3.0-join__rkj4",
            "spark4.3.0-sess__rkcl",
            "spark4.3.0-twsttl__rkv2",
            "spark4.0.1-chain__rkcl",
        ],
        ["spark4.3.0-sess__rkcl"],
    ),
)
def test_reads_leave_a_checkpoint_as_it_was(name: str, tmp_path: Path) -> None:
    path = checkpoint_path(name)
    before = state_of(path)
    found = statestore.inspect(path)
    connection = statestore.attach(str(path))
    for table in found.tables():
        rows = found.table(table).scan().read_all()
        assert connection.sql(f'SELECT count(*) FROM "{table}"').fetchall() == [(rows.num_rows,)]
        first, last = found.table(table).table.kept_versions()
        found.table(table).scan(version=first).read_all()
        found.table(table).history().read_all()
        found.table(table).changes().read_all()
        found.table(table).diff(first, last).read_all()
        statestore.sql(str(path), f'SELECT * FROM "{table}$segments"')
    assert run("inspect", path).code == 0
    assert run("report", path, "-o", tmp_path / "report.html").code == 0
    assert run("compact", path).code == run("vacuum", path).code == 1
    assert state_of(path) == before
