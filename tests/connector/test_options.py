"""Each option of an engine means the same in every door: Spark's option, an argument of Python, a flag."""

from __future__ import annotations

import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from support.checkpoints.spark_state_fixtures import QUICK, checkpoint_path, index, multiset, truth
from support.command_line import run
from support.parameters import mostly_slow

import statestore
from statestore.catalog.warehouse import open_table
from statestore.connector.options import options_of_engines, query_of
from statestore.formats.engine_arguments import flag, python_name
from statestore.formats.engines import engines
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError
from statestore.formats.state_table import Query

pytestmark = pytest.mark.filterwarnings("ignore:.*no commit of it is there:statestore.StateStoreWarning")
AGGREGATION, JOIN, VARIABLES = "spark4.3.0-agg__rkcl", "spark4.3.0-join__rkcl", "spark4.3.0-twsttl__rkcl"
UNRECORDED, BEGUN = "no schema file", "no last commit"
TYPES = {"keyType": "k string", "valueType": "count bigint, sum bigint, sum_1 double, count_1 bigint, max string"}
SNAPSHOT = {"snapshotStartBatchId": 2, "snapshotPartitionId": 0}
FEED = {"changeStartBatchId": 1, "changeEndBatchId": 3}
# For each option a read of a checkpoint that uses it, and the name of Spark's own answer where one was recorded.
READS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "batchId": (AGGREGATION, {"batchId": 1}, "op0~b1"),
    "operatorId": (AGGREGATION, {"operatorId": 0, "batchId": 3}, "op0~b3"),
    "storeName": (JOIN, {"storeName": "left-keyToNumValues"}, "op0~last~left-keyToNumValues"),
    "joinSide": (JOIN, {"joinSide": "right", "batchId": 1}, "op0~b1~right"),
    "stateVarName": (VARIABLES, {"stateVarName": "mp"}, "op0~last~mp"),
    "readRegisteredTimers": (VARIABLES, {"readRegisteredTimers": True}, "op0~last~timers"),
    "flattenCollectionTypes": (
        VARIABLES,
        {"stateVarName": "lst", "flattenCollectionTypes": False},
        "op0~last~lst~noflat",
    ),
    "snapshotStartBatchId": (AGGREGATION, SNAPSHOT, None),
    "snapshotPartitionId": (AGGREGATION, {**SNAPSHOT, "snapshotPartitionId": 1}, None),
    "changeStartBatchId": (AGGREGATION, FEED, "op0~feed"),
    "changeEndBatchId": (AGGREGATION, FEED, "op0~feed"),
    "keyType": (UNRECORDED, TYPES, "op0~last"),
    "valueType": (UNRECORDED, {**TYPES, "batchId": 1}, "op0~b1"),
    "uncommitted": (BEGUN, {"uncommitted": True}, "op0~last"),
}
OPTIONS = [(engine.name, option) for engine in engines() for option in engine.options]
NAMES = [option.name for name, option in OPTIONS if name == "spark"]


@cache
def copies() -> tempfile.TemporaryDirectory[str]:
    """Copies of a checkpoint, one without schema files, and one that began a batch and did not commit it."""
    folder = tempfile.TemporaryDirectory()
    bare, begun = Path(folder.name) / UNRECORDED, Path(folder.name) / BEGUN
    for place in (bare, begun):
        shutil.copytree(checkpoint_path(AGGREGATION), place)
    for file in [*bare.rglob("schema"), *bare.rglob(".schema.crc")]:
        file.unlink()
    max((begun / "commits").glob("[0-9]*"), key=lambda file: int(file.name)).unlink()
    return folder


def place_of(checkpoint: str) -> Path:
    return Path(copies().name) / checkpoint if checkpoint in (UNRECORDED, BEGUN) else checkpoint_path(checkpoint)


@cache
def expected(name: str) -> pa.Table:
    """The answer to the options of Spark, which other tests compare with Spark's own source for all its reads."""
    checkpoint, options, recorded = READS[name]
    given = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}
    if "changeStartBatchId" in options:
        given["readChangeFeed"] = "true"
    table, query = open_table(place_of(checkpoint), given), query_of(given)
    found = pa.Table.from_batches([b for s in table.splits(query) for b in table.read(s, query)], table.schema(query))
    if recorded is not None:
        assert multiset(found) == multiset(
            truth(index()[AGGREGATION if checkpoint in (UNRECORDED, BEGUN) else checkpoint]["reads"][recorded])
        )
    assert found.num_rows
    return found


def test_every_option_has_a_case() -> None:
    assert set(READS) == set(NAMES)


@pytest.mark.parametrize("name", mostly_slow(NAMES, 2))
def test_the_doors_of_python(name: str) -> None:
    checkpoint, options, _ = READS[name]
    path, rows = str(place_of(checkpoint)), multiset(expected(name))
    arguments: Any = {python_name(key): value for key, value in options.items()}
    warehouse = statestore.inspect(path, **arguments)
    (table,) = warehouse.tables()
    assert multiset(warehouse.table(table).scan().read_all()) == rows
    assert multiset(statestore.sql(path, f'SELECT * FROM "{table}"', **arguments)) == rows
    assert multiset(statestore.attach(path, **arguments).sql(f'SELECT * FROM "{table}"').to_arrow_table()) == rows


@pytest.mark.quick("joinSide", "batchId")
@pytest.mark.parametrize("name", mostly_slow(NAMES, 3))
def test_flags(name: str) -> None:
    checkpoint, options, _ = READS[name]
    path, count = place_of(checkpoint), expected(name).num_rows
    flags: list[str] = []
    for key, value in options.items():
        off = f"--no-{flag(key).removeprefix('--')}"
        flags += [off if value is False else flag(key), *([] if isinstance(value, bool) else [str(value)])]
    (table,) = statestore.inspect(path, **{python_name(key): value for key, value in options.items()}).tables()
    scanned = run("scan", path, table, "--json", "--limit", "100000", *flags)
    asked = run("sql", path, f'SELECT count(*) AS n FROM "{table}"', "--json", *flags)
    filtered = run("scan", path, table, "--where", "true", "--json", "--limit", "100000", *flags)
    assert scanned.code == asked.code == filtered.code == 0, scanned.err
    assert len(scanned.rows) == len(filtered.rows) == count and asked.rows == [{"n": count}]
    assert sorted(map(str, scanned.rows)) == sorted(map(str, filtered.rows))


def test_spark_as_an_engine_of_sql(spark: SparkSession) -> None:
    """Options that select the state reach the scans that Spark runs."""
    for name in ("batchId", "joinSide", "changeStartBatchId"):
        checkpoint, options, _ = READS[name]
        path = str(checkpoint_path(checkpoint))
        arguments: Any = {python_name(key): value for key, value in options.items()}
        (table,) = statestore.inspect(path, **arguments).tables()
        frame = statestore.sql(path, f"SELECT * FROM `{table}`", spark=spark, **arguments)
        assert multiset(frame.toArrow()) == multiset(expected(name)), name


def test_every_command_that_reads_has_the_flags() -> None:
    path = checkpoint_path(AGGREGATION)
    at = ("--batch-id", "1")
    key = json.dumps(statestore.inspect(path, batch_id=1).table("state").scan().read_all()["key"][0].as_py())
    old = multiset(expected("batchId"))
    for command in (
        ("get", path, "state", key),
        ("history", path, "state", key),
        ("diff", path, "state", "--from", "0"),
        ("versions", path, "state"),
    ):
        found = run(*command, "--json", *at)
        assert found.code == 0 and found.rows, (command, found.err)
    assert len(run("scan", path, "state", "--json", *at).rows) == len(list(old.elements()))
    for refused in (run("inspect", path, *at), run("changes", path, "state", *at)):
        assert refused.code == 2 and "CONFLICTING_OPTIONS" in refused.err
    assert [row["store"] for row in run("inspect", path, "--operator-id", "0", "--json").rows] == ["state"]
    feed = run("inspect", path, "--change-start-batch-id", "1")
    assert feed.code == 2 and "STATE_SELECTION" in feed.err


def test_a_version_alone_selects_no_state() -> None:
    """The two sides of a join stay two tables, both as of that batch."""
    path = checkpoint_path(JOIN)
    found = statestore.inspect(path, batch_id=1)
    assert found.tables() == statestore.inspect(path).tables() == ["left", "right"]
    for side in found.tables():
        rows = multiset(found.table(side).scan().read_all())
        assert rows == multiset(truth(index()[JOIN]["reads"][f"op0~b1~{side}"]))
        whole = statestore.inspect(path).table(side)
        assert rows == multiset(whole.scan(version=1).read_all()) != multiset(whole.scan().read_all())
        history = found.table(side).history().read_all()
        assert multiset(history) == multiset(whole.history(version=1).read_all())
        assert found.table(side).table.kept_versions() == (0, 1)
        assert multiset(found.table(side).diff(0).read_all()) == multiset(whole.diff(0, 1).read_all())


def test_what_does_not_go_with_a_version() -> None:
    table = statestore.inspect(checkpoint_path(AGGREGATION), batch_id=1).table("state")
    assert table.scan(version=0).read_all() is not None
    with pytest.raises(InvalidInputError, match=r"CONFLICTING_OPTIONS.*as of version 1.* not go with changes"):
        table.changes()
    with pytest.raises(InvalidInputError, match=r"CONFLICTING_OPTIONS.*as of version 1, and version 2"):
        table.scan(version=2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"batchId": 1}, "UNKNOWN_OPTION.*'batchId'; did you mean batch_id"),
        ({"operator": 1}, "UNKNOWN_OPTION.*'operator'; did you mean operator_id"),
        ({"zzz": 1}, "UNKNOWN_OPTION.*'zzz'; engines have batch_id, operator_id"),
        ({"batch_id": "1"}, "INVALID_OPTION.*batch_id is '1'; expected int"),
        ({"operator_id": True}, "INVALID_OPTION.*operator_id is True; expected int"),
        ({"read_registered_timers": 1}, "INVALID_OPTION.*expected bool"),
    ],
)
def test_other_arguments_are_refused(given: dict[str, Any], said: str) -> None:
    path = str(checkpoint_path(AGGREGATION))
    calls: dict[str, Any] = {"inspect": (path,), "attach": (path,), "sql": (path, "SELECT 1")}
    for call, arguments in calls.items():
        with pytest.raises(InvalidInputError, match=said):
            getattr(statestore, call)(*arguments, **given)


def test_a_store_has_none(tmp_path: Path) -> None:
    statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "int"}).close()
    with pytest.raises(
        InvalidInputError, match=r"STATE_SELECTION.*is no checkpoint of Structured Streaming; option batchId"
    ):
        statestore.inspect(tmp_path, batch_id=1)
    assert run("scan", tmp_path, "s", "--batch-id", "1").code == 2


def test_the_reference_lists_the_three_spellings() -> None:
    listed = {option.name: (option.python, option.command) for option in options_of_engines()}
    assert listed["snapshotStartBatchId"] == ("inspect(snapshot_start_batch_id=)", "--snapshot-start-batch-id")
    assert set(listed) >= set(NAMES)


def test_metadata_tables_of_selected_states_have_an_address() -> None:
    """Spark opens them by it: of a state by its name, as options and a suffix do not go together."""
    path = str(checkpoint_path("spark4.3.0-agg__rkcl"))
    found = statestore.inspect(path, operator_id=0)
    table = open_table(found.address("state$versions"))
    assert table.name == "state$versions"
    assert table.schema(Query()) == found.open("state$versions").schema(Query())


# The options of Spark's own state source, for every recorded read

CHECKPOINTS = sorted(index())
SPARK_READS_WRONG = "join__rkj4"  # with joinSide: the last field of the key holds bytes of another one


def read(name: str, options: dict[str, Any]) -> pa.Table:
    given = {key: str(value) for key, value in options.items()}
    table = open_table(checkpoint_path(name), given)
    query = query_of(given)
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    return pa.Table.from_batches(batches, table.schema(query))


@pytest.mark.parametrize("name", mostly_slow(CHECKPOINTS, sorted(QUICK)[::3]))
def test_options_mean_what_they_mean_to_spark(name: str) -> None:
    for key, asked in index()[name]["reads"].items():
        if "error" in asked:
            with pytest.raises(NotFoundError, match="no changelog of version 2"):
                read(name, asked["options"])
            continue
        whole = SPARK_READS_WRONG not in name or "joinSide" not in asked["options"]
        found, expected = read(name, asked["options"]), truth(asked)
        assert found.column_names == expected.column_names, key
        assert multiset(found, last_key_field=whole) == multiset(expected, last_key_field=whole), key


@pytest.mark.parametrize("name", ["spark4.3.0-agg__rkcl", "spark4.0.1-chain__rkcl", "spark4.3.0-agg__hdfs"])
def test_without_options_it_is_the_operator_at_the_sink(name: str) -> None:
    reads = index()[name]["reads"]
    assert multiset(read(name, {})) == multiset(truth(reads["op0~last"]))
    assert multiset(read(name, {"BATCHID": 3, "StoreName": "default"})) == multiset(truth(reads["op0~b3"]))


@pytest.mark.parametrize(("name", "batch"), [("spark4.3.0-agg__hdfs", 3), ("spark4.3.0-agg__rkcl", 2)])
def test_a_state_built_on_an_older_snapshot_is_that_partition_of_the_same(name: str, batch: int) -> None:
    whole = read(name, {"operatorId": 0})
    for partition in set(whole["partition_id"].to_pylist()):
        found = read(name, {"snapshotStartBatchId": batch, "snapshotPartitionId": partition})
        assert multiset(found) == multiset(whole.filter(pc.equal(whole["partition_id"], partition)))


def test_a_snapshot_that_is_not_there_is_named() -> None:
    with pytest.raises(NotFoundError, match=r"snapshot 2 of .* expected 0 or one of \[4\]"):
        read("spark4.3.0-agg__hdfs", {"snapshotStartBatchId": 1, "snapshotPartitionId": 0})


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (AGGREGATION, {"batchId": "-1"}, "batchId is -1"),
        (AGGREGATION, {"batchId": "x"}, "batchId is 'x'"),
        (AGGREGATION, {"batchId": 99}, "batchId is 99.* 0 to 5"),
        (AGGREGATION, {"operatorId": 7}, "operatorId is 7.* operators 0"),
        (AGGREGATION, {"operatorId": -7}, "operatorId is -7"),
        (AGGREGATION, {"storeName": ""}, "storeName is empty"),
        (AGGREGATION, {"storeName": "other"}, "storeName is 'other'.* has default"),
        (AGGREGATION, {"joinSide": "both"}, "joinSide is 'both'; expected left, right or none"),
        (AGGREGATION, {"joinSide": "left"}, "is no stream-stream join"),
        (AGGREGATION, {"stateVarName": "v"}, "stateVarName is 'v'"),
        (AGGREGATION, {"readRegisteredTimers": "true"}, "keeps no timers"),
        (AGGREGATION, {"readRegisteredTimers": "perhaps"}, "readRegisteredTimers is 'perhaps'"),
        (AGGREGATION, {"snapshotStartBatchId": 1}, "snapshotPartitionId is missing"),
        (AGGREGATION, {"snapshotPartitionId": 0}, "snapshotStartBatchId is missing"),
        (AGGREGATION, {"snapshotStartBatchId": 3, "snapshotPartitionId": 0, "batchId": 2}, "snapshotStartBatchId is 3"),
        (AGGREGATION, {"snapshotStartBatchId": 0, "snapshotPartitionId": 77}, "snapshotPartitionId is 77"),
        (AGGREGATION, {"readChangeFeed": "true", "changeEndBatchId": 1}, "changeStartBatchId is missing"),
        (AGGREGATION, {"changeStartBatchId": 1}, "needs readChangeFeed=true"),
        (AGGREGATION, {"readChangeFeed": "true", "changeStartBatchId": -1}, "changeStartBatchId is -1"),
        (
            AGGREGATION,
            {"readChangeFeed": "true", "changeStartBatchId": 2, "changeEndBatchId": 1},
            "changeEndBatchId is 1; expected at least",
        ),
        (AGGREGATION, {"readChangeFeed": "true", "changeStartBatchId": 9}, "changeStartBatchId is 9"),
        (AGGREGATION, {"readChangeFeed": "true", "changeStartBatchId": 1, "batchId": 1}, "batchId does not go with"),
        (JOIN, {"readChangeFeed": "true", "changeStartBatchId": 1, "joinSide": "left"}, "joinSide does not go with"),
        (JOIN, {"joinSide": "left", "storeName": "left-keyToNumValues"}, "exclude each other"),
        (JOIN, {"operatorId": 0}, "joinSide is missing"),
        (VARIABLES, {"operatorId": 0}, "stateVarName is missing"),
        (VARIABLES, {"stateVarName": "nosuch"}, "stateVarName is 'nosuch'; the state variables .* are "),
        (VARIABLES, {"stateVarName": "v", "readRegisteredTimers": "true"}, "exclude each other"),
        (AGGREGATION, {"batchId": 1, "versionAsOf": 1}, "exclude each other"),
        (AGGREGATION, {"batchId": 1, "timestampAsOf": "2024-01-01T00:00:00Z"}, "exclude each other"),
    ],
)
def test_what_can_not_be_followed_is_refused(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(StateStoreError, match=said):
        read(name, options)


def test_a_store_has_no_batches_to_select(tmp_path: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"STATE_SELECTION.*no checkpoint"):
        open_table(tmp_path, {"batchId": "1"})
