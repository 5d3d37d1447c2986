"""State of real checkpoints, cell by cell what Spark's own state source read from them.

Archives are laid out as ``spark_state_fixtures`` says. ``more_checkpoints.tar.xz`` has types, encodings and histories
of Spark 3.5.9, 4.0.5, 4.1.4 and 4.3.0 that the first archive lacks. Where Spark reads them wrongly or not at all, truth
is what the same query keeps where it can be read. In a name, "3.5.9to4.3.0" is a query that another version went on
with, and a 1 after the operation is an old format of its state.

``evolved_checkpoints.tar.xz`` has ``plain`` and ``ttl``, each of six batches in Avro whose variables evolved twice,
with timers and with times to live, and in ``truth.json`` the rows that Spark's own source read, as JSON: of each
variable as of each batch, and its change feed. Fields were added, removed and reordered, also within arrays and maps,
and numbers became wider. The last state has rows of all three schemas.

``deduplication_3.3.0.tar.xz`` has a checkpoint of Spark 3.3.0 for each provider: three batches of
``dropDuplicates(["k", "n"])`` over rows of k, n and v. Its schema file calls the whole row the value; stored is a null.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import (
    LOCAL,
    MORE,
    QUICK,
    answer,
    checkpoint_path,
    index,
    multiset,
    opened,
    truth,
    unpacked,
    view_of,
)
from support.parameters import mostly_slow, named
from support.paths import DATA

import statestore
from statestore.catalog.warehouse import open_table
from statestore.connector.options import query_of
from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.errors import CorruptError, NotFoundError, UnsupportedError
from statestore.formats.spark.checkpoint.checkpoint import open_checkpoint
from statestore.formats.spark.checkpoint.spark_schema import arrow_type, parse_schema, renamed
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.checkpoint.state_views import find_state_view
from statestore.formats.spark.feed_source import feed_schema
from statestore.formats.spark.providers.partition_load import open_partition, stored_rows
from statestore.formats.spark.rows.avro_row import value_decoder
from statestore.formats.spark.state_columns import may_lack_values
from statestore.formats.spark.state_rows import read_state, unsafe_columns
from statestore.formats.state_table import Query

NAMES = sorted(index())
SPARK_READS_WRONG = "join__rkj4"  # with joinSide: the last field of the key holds bytes of another one


def test_every_checkpoint_of_the_archive_is_read() -> None:
    assert {path.name for path in (unpacked() / "checkpoints").iterdir()} == set(NAMES)
    assert len(NAMES) == 41


@pytest.mark.parametrize("name", mostly_slow(NAMES, QUICK))
def test_state_equals_what_spark_read(name: str) -> None:
    """And reading leaves the checkpoint as it was."""
    reads = {key: read for key, read in index()[name]["reads"].items() if "error" not in read}
    assert reads
    before = digests(checkpoint_path(name))
    for key, read in reads.items():
        whole = SPARK_READS_WRONG not in name or "joinSide" not in read["options"]
        found, expected = answer(name, read["options"]), truth(read)
        assert found.num_rows == read["rows"], key
        assert multiset(found, last_key_field=whole) == multiset(expected, last_key_field=whole), key
    assert digests(checkpoint_path(name)) == before


def test_names_and_types_are_those_of_spark() -> None:
    for name in NAMES:
        at = cache(partial(opened, name))
        for key, read in index()[name]["reads"].items():
            if "error" not in read:
                found = view_of(at(read["options"].get("batchId")), read["options"])
                schema = feed_schema(found) if "readChangeFeed" in read["options"] else found.schema
                expected = parse_schema(json.dumps(read["schema"]))
                assert schema.names == list(expected.names), (name, key)
                assert schema.types == [arrow_type(field.type) for field in expected.fields], (name, key)


def test_what_spark_can_not_read_is_refused() -> None:
    """Change feeds of RocksDB without changelogs: there is nothing to read them from."""
    refused = [(name, read) for name in NAMES for read in index()[name]["reads"].values() if "error" in read]
    assert refused
    for name, read in refused:
        with named((name, read["options"])), pytest.raises(NotFoundError, match="no changelog of version 2"):
            answer(name, read["options"])


def test_operators_are_those_of_spark() -> None:
    for name in NAMES:
        checkpoint = opened(name)
        found = {
            (operator.operator_id, operator.name, store.name): (checkpoint.batches[0], checkpoint.batches[-1])
            for operator in checkpoint.operators
            for store in operator.stores
        }
        assert found == {
            (row["operatorId"], row["operatorName"], row["stateStoreName"]): (row["minBatchId"], row["maxBatchId"])
            for row in index()[name]["metadata"]
        }, name


def digests(folder: Path) -> dict[str, Any]:
    return {
        str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None)
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("name", mostly_slow(QUICK, 3))
def test_a_count_from_metadata_is_that_of_the_rows(name: str) -> None:
    for state in statestore.inspect(str(checkpoint_path(name))).tables():
        table = statestore.inspect(str(checkpoint_path(name))).table(state).table
        oldest, newest = table.kept_versions()
        for version in range(oldest, newest + 1):
            counted = table.count(Query(version=version))
            read = Query(version=version)
            rows = sum(batch.num_rows for split in table.splits(read) for batch in table.read(split, read))
            assert counted in (None, rows)


def test_a_batch_without_rows_still_has_its_columns() -> None:
    found = answer("spark4.3.0-twsttl__rkcl", {"operatorId": 0, "stateVarName": "val", "batchId": 0})
    assert found.schema.names == ["key", "value", "partition_id"]
    assert pa.types.is_struct(found.schema.field("key").type)


# More releases, types and encodings


NAMES_OF_MORE = sorted(index(MORE))
QUICK_MORE = ("spark3.5.9-join1__hdfs", "spark4.0.5-tws__rkav", "spark4.1.4-scala__rkcl")


def reads(name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = index(MORE)[name]["reads"]
    return found


def answer_of_more(name: str, options: dict[str, Any]) -> pa.Table:
    given = {key: str(value) for key, value in options.items()}
    table = open_table(checkpoint_path(name, MORE), given)
    query = query_of(given)
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    return pa.Table.from_batches(batches, table.schema(query))


def test_every_checkpoint_of_the_other_archive_is_read() -> None:
    assert [path.name for path in sorted((unpacked(MORE) / "checkpoints").iterdir())] == NAMES_OF_MORE
    assert len(NAMES_OF_MORE) == 25
    assert sum(len(reads(name)) for name in NAMES_OF_MORE) == 182


@pytest.mark.parametrize("name", mostly_slow([name for name in NAMES_OF_MORE if reads(name)], QUICK_MORE))
def test_state_of_other_releases_equals_what_spark_read(name: str) -> None:
    for key, read in reads(name).items():
        found, expected = answer_of_more(name, read["options"]), truth(read, MORE)
        assert found.num_rows == read["rows"], key
        assert found.column_names == expected.column_names, key
        assert multiset(found) == multiset(expected), key


def test_a_session_of_3_5_in_rocksdb_is_that_of_the_other_provider() -> None:
    """Spark 3.5 does not write how many columns of the key are its prefix; later readers fail, or show other bytes."""
    for key, read in reads("spark3.5.9-session__hdfs").items():
        found = answer_of_more("spark3.5.9-session__rkcl", read["options"])
        assert multiset(found) == multiset(truth(read, MORE)), key


@pytest.mark.parametrize("name", ["spark4.0.5-groups{}__hdfs", "spark4.1.4-scalagroups{}__hdfs"])
def test_timeouts_of_groups_in_format_1_are_whole(name: str) -> None:
    """Spark calls them integers but writes longs, and reads the lower half of each, or fails. Format 2 has the same
    state, one struct deeper."""
    for key, read in reads(name.format("")).items():
        old = answer_of_more(name.format("1"), read["options"])
        assert old.schema.field("value").type[-1].type == pa.int64()
        expected = {flattened(row): count for row, count in multiset(truth(read, MORE)).items()}
        assert multiset(old) == Counter(expected), key


def flattened(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The fields of groupState, then the timeout, in one struct."""
    value = row[-2]
    return (*row[:-2], None if value is None else (*value[0], value[1]), row[-1])


def test_intervals_that_spark_does_not_validate() -> None:
    """Spark reads such intervals in the change feed only: state is the last that was written for each key."""
    feed = multiset(truth(reads("spark4.1.4-interval__hdfs")["op0~feed"], MORE))
    last = {row[2]: row for row in sorted(feed, key=lambda row: int(row[0]))}
    state = multiset(answer_of_more("spark4.1.4-interval__hdfs", {"batchId": 5}))
    assert state == Counter(row[2:] for row in last.values())
    assert any("-2 days" in str(row) for row in state)


def test_names_that_structs_have_twice_get_a_number_at_any_depth() -> None:
    twice = [pa.field("x", pa.int64()), pa.field("X", pa.string())]
    rows = pa.StructArray.from_arrays(
        [pa.array(range(6)), pa.array(list("abcdef"))], fields=twice, mask=pa.array([False, True] + [False] * 4)
    )
    lists = pa.ListArray.from_arrays(pa.array([0, None, 2, 2, 6], pa.int32()), rows)
    keys = pa.array(list("ghijkl"))
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2, 2, 6], pa.int32()), keys, rows)
    nested = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3, 4], pa.int32()), lists)
    batch = pa.RecordBatch.from_arrays([rows[:4], lists, maps, nested], names=list("abcd"))
    for part in (batch, batch.slice(1, 2), batch.slice(0, 0)):
        found = renamed(part)
        found.validate(full=True)
        assert multiset(pa.table(found)) == multiset(pa.table(part))
    inside = [found.schema.field("a").type, found.schema.field("b").type.value_type]
    inside += [found.schema.field("c").type.item_type, found.schema.field("d").type.value_type.value_type]
    assert [[field.name for field in kind] for kind in inside] == [["x", "X_1"]] * 4


# Variables in Avro whose schemas evolved twice


EVOLVED = DATA / "spark" / "evolved_checkpoints.tar.xz"
LAST = 5
VARIABLES = [(name, variable) for name in ("plain", "ttl") for variable in ("val", "lst", "mp", "timers")]
QUICK_VARIABLES = [("plain", "val"), ("plain", "timers"), ("ttl", "lst"), ("ttl", "mp")]


def evolved(name: str) -> Path:
    return unpacked(EVOLVED) / "evolved" / name


@cache
def evolved_truth() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads((evolved("truth.json")).read_text())
    return found


def expected_rows(name: str, variable: str, what: object) -> list[str]:
    return sorted(text(json.loads(row)) for row in evolved_truth()[f"{name}/{variable}/{what}"])


def text(row: Any) -> str:
    return json.dumps(plain_row(row), sort_keys=True)


def plain_row(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain_row(cell) for name, cell in value.items()}
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return {name: plain_row(cell) for name, cell in value}  # a map
    if isinstance(value, list):
        return [plain_row(each) for each in value]
    return value.isoformat() if isinstance(value, date) else value


def texts(rows: pa.Table) -> list[str]:
    return sorted(map(text, rows.to_pylist()))


@pytest.mark.parametrize(("name", "variable"), mostly_slow(VARIABLES, QUICK_VARIABLES))
def test_every_batch_has_the_rows_that_spark_read(name: str, variable: str) -> None:
    table = statestore.inspect(evolved(name)).table(variable)
    for batch in range(LAST + 1):
        assert texts(table.scan(version=batch).read_all()) == expected_rows(name, variable, batch), batch


@pytest.mark.parametrize(("name", "variable"), [each for each in VARIABLES if each[1] != "timers"])
def test_the_change_feed_is_that_of_spark(name: str, variable: str) -> None:
    options = {"stateVarName": variable, "readChangeFeed": "true", "changeStartBatchId": "0"}
    table, query = open_table(evolved(name), options), query_of(options)
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    assert texts(pa.Table.from_batches(batches)) == expected_rows(name, variable, "feed")


@pytest.mark.parametrize("variable", ["val", "lst", "mp"])
def test_histories_and_differences_cross_the_evolutions(variable: str) -> None:
    """All rows come in the columns of the newest schema, and those that are still valid are the newest state."""
    table = statestore.inspect(evolved("plain")).table(variable)
    columns = table.scan().read_all().column_names
    history = table.history().read_all()
    now = history.filter(history["valid_to"].is_null()).select(columns)
    assert texts(now) == expected_rows("plain", variable, LAST)
    changes = table.changes(start_version=2).read_all()
    assert set(changes["_commit_version"].to_pylist()) == set(range(2, LAST + 1))
    if variable == "val":
        diff = table.diff(start_version=1, end_version=LAST).read_all()
        assert {row["_new"]["value"]["tag"] for row in diff.to_pylist() if row["_new"]} == {"z"}


RANGES = [
    ("plain", "$eventTimers_timestampToKey", "timers", ("key", "k")),
    ("ttl", "$procTimers_timestampToKey", "timers", ("key", "k")),
    ("ttl", "$ttl_val", "val", ("elementKey", "k")),
    ("ttl", "$ttl_mp", "mp", ("elementKey", "key", "k")),
]


@pytest.mark.parametrize(("name", "family", "variable", "path"), RANGES)
def test_keys_that_are_ordered_by_time(name: str, family: str, variable: str, path: tuple[str, ...]) -> None:
    """Spark keeps an index by time beside each family with times: it has the same keys and times."""
    checkpoint = open_checkpoint(LOCAL, str(evolved(name)))
    view = find_state_view(checkpoint, 0, family)
    rows = [row for part in (0, 1) for batch in read_state(checkpoint, view, part) for row in batch.to_pylist()]
    found = sorted((at(row["key"], path), row["key"][view.family.key.names[0]]) for row in rows)
    shown = [json.loads(row) for row in evolved_truth()[f"{name}/{variable}/{LAST}"]]
    assert found == sorted((row["key"]["k"], moment_of(row)) for row in shown)


def at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value[name]
    return value


def moment_of(row: dict[str, Any]) -> int:
    held = row.get("value") or row.get("user_map_value") or {}
    return int(row.get("expiration_timestamp_ms") or held["ttlExpirationMs"])


def test_schemas_of_attempts_that_failed_are_not_those_of_rows(tmp_path: Path) -> None:
    """A failed attempt leaves a file whose new schema has the id that the next attempt gives to another one."""
    copy = shutil.copytree(evolved("plain"), tmp_path / "copy")
    schemas = copy / "state" / "0" / "_stateSchema" / "default"
    (second,) = schemas.glob("2_*")
    (schemas / "2_00000000-failed").write_bytes(second.read_bytes().replace(b'"tag"', b'"gat"'))
    table = statestore.inspect(copy).table("val")
    assert texts(table.scan().read_all()) == expected_rows("plain", "val", LAST)


def test_an_unknown_schema_is_named() -> None:
    checkpoint = open_checkpoint(LOCAL, str(evolved("plain")))
    view = find_state_view(checkpoint, 0, "val")
    source = open_partition(checkpoint, view.store, 0, view.family.name)
    (rows,) = pa.Table.from_batches(stored_rows(source, lambda stored: stored.batch)).combine_chunks().to_batches()
    values = cells_of(rows.column("value")).behind(1, "a value", corrupt_row)
    with pytest.raises(CorruptError, match="Avro schema id 2, expected one of \\[0\\]"):
        value_decoder({0: view.family.value})(values, view.family.value)


# Schema files that say more than the rows hold, and schemas without ids


DEDUPLICATION = DATA / "spark" / "deduplication_3.3.0.tar.xz"
NEW_KEYS = ([("a", 1), ("b", 2)], [("c", None), ("d", 4)], [(None, 5)])  # of each batch
EVERY_KEY = [key for keys in NEW_KEYS for key in keys]


def deduplication(provider: str) -> Path:
    return unpacked(DEDUPLICATION) / "deduplication" / provider


def keys_of(rows: list[dict[str, object]]) -> list[str]:
    return sorted(str(tuple(row["key"].values())) for row in rows if isinstance(row["key"], dict))


@pytest.mark.parametrize("provider", ["hdfs", "rocksdb"])
def test_keys_are_whole_where_no_values_were_stored(provider: str) -> None:
    table = statestore.inspect(deduplication(provider)).table("state")
    for batch in range(3):
        rows = table.scan(version=batch).read_all().to_pylist()
        assert keys_of(rows) == sorted(map(str, EVERY_KEY[: 2 * (batch + 1)]))
        assert all(row["value"] is None for row in rows)  # not a row of nulls, which a row could be
    history = table.history().read_all().to_pylist()
    assert keys_of(history) == sorted(map(str, EVERY_KEY))
    changes = table.changes().read_all().to_pylist()
    assert [row["_commit_version"] for row in sorted(changes, key=lambda row: row["_commit_version"])] == [
        0,
        0,
        1,
        1,
        2,
    ]
    assert table.get({"k": "a", "n": 1}) == {"key": {"k": "a", "n": 1}, "value": None, "partition_id": 0}


@pytest.mark.parametrize("provider", ["hdfs", "rocksdb"])
def test_spark_gets_no_row_that_is_shorter_than_its_schema(provider: str) -> None:
    checkpoint = open_checkpoint(LOCAL, str(deduplication(provider)))
    assert "value" not in unsafe_columns(checkpoint, find_state_view(checkpoint, 0))


def test_other_operators_have_their_values() -> None:
    for name in ("spark4.3.0-agg__hdfs", "spark4.3.0-dedup__hdfs", "spark4.3.0-sess__rkcl", "spark4.3.0-fmgws__hdfs"):
        checkpoint = open_checkpoint(LOCAL, str(checkpoint_path(name)))
        assert not may_lack_values(find_state_view(checkpoint, 0))


@pytest.mark.parametrize(
    ("name", "said"), [("spark4.3.0-twsttl__rk", None), ("spark4.3.0-twsttl__rkav", "Avro rows without ids")]
)
def test_a_preview_of_spark_4_wrote_schemas_without_ids(name: str, said: str | None, tmp_path: Path) -> None:
    path = Path(shutil.copytree(checkpoint_path(name), tmp_path / "checkpoint"))
    for file in (path / "state/0/_stateSchema/default").iterdir():
        # Cut at each id, which is 0, before one chunk of JSON.
        parts = re.split(rb"\x00\x00(?=\x00\x00\x00\x01..\{)", file.read_bytes(), flags=re.DOTALL)
        assert len(parts) > 2 and len(parts) % 2 == 1
        file.write_bytes(b"".join(parts))
    expected, found = statestore.inspect(checkpoint_path(name)), statestore.inspect(path)
    assert found.tables() == expected.tables()
    for table in expected.tables():
        if said is None:
            assert multiset(found.table(table).scan().read_all()) == multiset(expected.table(table).scan().read_all())
        else:
            with pytest.raises(UnsupportedError, match=said):
                found.table(table).scan().read_all()
