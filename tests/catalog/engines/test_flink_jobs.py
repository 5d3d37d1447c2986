"""Several snapshots of Flink jobs as versions of tables: numbers, times, states that come and go, files, the source."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import multiset
from support.command_line import run as command
from support.flink.fixtures import SQL_KEYS, copied, fixture, manifest, taken_us, truth
from support.flink.snapshot_reads import tree_of
from support.object_store import ObjectStore, object_store
from support.parameters import mostly_slow
from support.paths import DATA

import statestore
from statestore.catalog.reads.table import Table
from statestore.formats.values.filters import Filter, parse_filters
from statestore.formats.values.times import to_datetime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


JOB = "b1d1aedd435a0263c71fffd747f0fa48"


def together(folder: Path, *snapshots: tuple[str, int]) -> Path:
    """A folder with savepoints of several runs (name, checkpoint id), as if one job had taken them, in this order."""
    for number, (run, version) in enumerate(snapshots):
        (path,) = [
            each["path"]
            for each in manifest(run)["snapshots"]
            if each["checkpoint_id"] == version and each["kind"].startswith("savepoint")
        ]
        shutil.copytree(fixture(run) / path, folder / f"savepoint-abcdef-{number:012x}")
    return folder


def values(table: Any, **how: Any) -> dict[Any, Any]:
    rows = table.scan(columns=["key", "value"], **how).read_all()
    return dict(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))


def true_values(run: str, version: int, operator: str, state: str) -> dict[Any, Any]:
    (file,) = {each["truth"] for each in manifest(run)["snapshots"] if each["checkpoint_id"] == version}
    lines = [line for line in truth(run, file) if (line["operator"], line["state"]) == (operator, state)]
    return {line["key"]: line["value"] for line in lines}


def test_versions_are_checkpoint_ids_and_times_those_of_their_metadata() -> None:
    table = statestore.inspect(fixture("rocksdb")).table("kv-long.balance")
    for version in (2, 3, 5):
        expected = true_values("rocksdb", version, "kv-long", "balance")
        assert values(table, version=version) == expected
        assert values(table, as_of=to_datetime(taken_us(version))) == expected
        assert values(table, as_of=to_datetime(taken_us(version + 1) - 1)) == expected
    with pytest.raises(statestore.NotFoundError, match="TIME_NOT_KEPT"):
        values(table, as_of=to_datetime(taken_us(2) - 1))
    with pytest.raises(statestore.NotFoundError, match=r"VERSION_NOT_FOUND.*checkpoints 2 to 5"):
        values(table, version=1)


def test_the_list_of_versions_says_what_took_them() -> None:
    found = statestore.inspect(fixture("rocksdb")).table("kv-long.balance$versions").scan().read_all().to_pylist()
    assert [row["version"] for row in found] == [2, 3, 4, 5]
    assert [row["operation"] for row in found] == ["checkpoint", "checkpoint", "savepoint", "savepoint"]
    paths = {each["checkpoint_id"]: Path(each["path"]).name for each in manifest("rocksdb")["snapshots"]}
    assert {row["version"]: row["application"] for row in found} == paths
    assert [row["timestamp"] for row in found] == [to_datetime(taken_us(each)) for each in (2, 3, 4, 5)]


def test_times_that_are_not_in_the_order_of_the_ids_are_unknown(tmp_path: Path) -> None:
    folder = copied("rocksdb", tmp_path)
    older, newer = folder / JOB / "chk-2" / "_metadata", folder / JOB / "chk-3" / "_metadata"
    os.utime(older, ns=(taken_us(9) * 1000, taken_us(9) * 1000))
    table = statestore.inspect(folder).table("kv-long.balance")
    assert values(table, version=3) == true_values("rocksdb", 3, "kv-long", "balance")
    moment = to_datetime(taken_us(4))
    reads: list[Any] = [
        lambda: table.changes(start_time=moment),
        lambda: table.scan(as_of=moment),
        lambda: table.history(end_time=moment),
        lambda: table.history(columns=["key", "valid_to"]),
        lambda: table.history(filter=("valid_to", "is null")),
    ]
    for read in reads:
        with pytest.raises(statestore.NotFoundError, match=r"TIME_NOT_KEPT.*changes\(\) by start_version"):
            read()
    versions = statestore.inspect(folder).table("kv-long.balance$versions").scan().read_all()
    assert versions["timestamp"].to_pylist() == [None] * 4
    assert table.diff(2, 3).read_all().num_rows  # which needs no times
    os.utime(older, ns=(taken_us(2) * 1000, taken_us(2) * 1000))
    os.utime(newer, ns=(taken_us(2) * 1000, taken_us(2) * 1000))  # copied in one moment
    with pytest.raises(statestore.NotFoundError, match=r"TIME_NOT_KEPT.*cp -p"):
        statestore.inspect(folder).table("kv-long.balance").history(start_time=moment)


def test_changes_go_by_number_where_times_are_unknown(tmp_path: Path) -> None:
    folder = copied("rocksdb", tmp_path)
    for metadata in folder.rglob("_metadata"):
        os.utime(metadata, ns=(taken_us(2) * 1000, taken_us(2) * 1000))
    table = statestore.inspect(folder).table("kv-long.balance")
    rows = table.changes().read_all().to_pylist()
    assert {row["valid_from"] for row in rows} == {row["_commit_timestamp"] for row in rows} == {None}
    for version in (3, 4, 5):  # each state is that of the version before, and the changes
        state = true_values("rocksdb", version - 1, "kv-long", "balance")
        changed = [row for row in rows if row["_commit_version"] == version]
        for row in changed:
            if row["_change_type"] in ("update_preimage", "delete"):
                assert state.pop(row["key"]) == row["value"]
        state |= {row["key"]: row["value"] for row in changed if row["_change_type"] in ("update_postimage", "insert")}
        assert state == true_values("rocksdb", version, "kv-long", "balance")
        one = table.changes(start_version=version, end_version=version).read_all()
        assert one.num_rows == len(changed)
    with pytest.raises(statestore.NotFoundError, match=r"VERSION_NOT_FOUND.*those of 3 to 5 are kept"):
        table.changes(start_version=2, end_version=3)


def test_a_history_goes_by_number_where_times_are_unknown(tmp_path: Path) -> None:
    """It has no times at all: a null end of time would say that the row is still there."""
    folder = copied("rocksdb", tmp_path)
    for metadata in folder.rglob("_metadata"):
        os.utime(metadata, ns=(taken_us(2) * 1000, taken_us(2) * 1000))
    history = statestore.inspect(folder).table("kv-long.balance").history().read_all()
    assert history.column_names[-2:] == ["_commit_version", "_end_version"]
    assert {"valid_from", "valid_to"}.isdisjoint(history.column_names)
    rows = history.to_pylist()
    for version in (2, 3, 4, 5):
        valid = [row for row in rows if (row["_commit_version"] or 0) <= version < (row["_end_version"] or 6)]
        state = {row["key"]: row["value"] for row in valid}
        assert len(state) == len(valid)
        assert state == true_values("rocksdb", version, "kv-long", "balance")


def test_of_several_jobs_one_is_named() -> None:
    folder = fixture("upgrade-rocksdb")
    with pytest.raises(statestore.InvalidInputError, match=r"STATE_SELECTION.*25688f.*855dac.*option job"):
        statestore.inspect(folder).tables()
    for job, versions in (("855dac", [2, 3]), ("25688f1c0a0a1ac09cbb3141652120ce", [5, 6])):
        found = statestore.inspect(folder, job=job).table("subscribers.one$versions").scan().read_all()
        assert found["version"].to_pylist() == versions
    with pytest.raises(statestore.InvalidInputError, match=r"STATE_SELECTION.*'123'"):
        statestore.inspect(folder, job="123").tables()


def test_two_snapshots_with_one_checkpoint_id_are_refused(tmp_path: Path) -> None:
    folder = together(tmp_path, ("upgrade-rocksdb", 3), ("upgrade-hashmap", 3))
    with pytest.raises(statestore.InvalidInputError, match=r"STATE_SELECTION.*both have checkpoint id 3"):
        statestore.inspect(folder).tables()


def test_a_checkpoint_that_is_not_complete_is_left_out_and_named(tmp_path: Path) -> None:
    folder = copied("rocksdb", tmp_path)
    (folder / JOB / "chk-9").mkdir()
    (folder / JOB / "chk-9" / "0a0a0a0a-0000-0000-0000-000000000000").write_bytes(b"half of a file")
    found = statestore.inspect(folder)
    assert found.table("kv-long.balance$versions").scan().read_all()["version"].to_pylist() == [2, 3, 4, 5]
    assert any("chk-9" in each for each in found.summary("kv-long.balance").details)


def test_the_path_of_metadata_is_that_of_its_snapshot() -> None:
    folder = fixture("upgrade-rocksdb") / manifest("upgrade-rocksdb")["snapshots"][0]["path"]
    path, state = folder / "_metadata", "subscribers.by-name"
    assert statestore.inspect(path).tables() == statestore.inspect(folder).tables()
    found = statestore.inspect(path).table(state).scan().read_all()
    assert found == statestore.inspect(folder).table(state).scan().read_all() and found.num_rows
    assert statestore.sql(path, f'SELECT count(*) AS n FROM "{state}"')["n"].to_pylist() == [found.num_rows]
    assert list(map(repr, statestore.verify(path))) == list(map(repr, statestore.verify(folder)))


@pytest.mark.parametrize("options", [(), ("--uids", "a")], ids=["alone", "with options"])
def test_a_snapshot_without_metadata_is_told(options: Sequence[str], tmp_path: Path) -> None:
    (facts,) = [each for each in manifest("rocksdb")["snapshots"] if each["path"].endswith("chk-3")]
    job = copied("rocksdb", tmp_path / "job") / Path(facts["path"]).parent
    shutil.copytree(job / "chk-3", job / "chk-4")
    (job / "chk-4" / "_metadata").unlink()
    for verb in ("inspect", "verify")[: 1 if options else 2]:
        asked = command(verb, job / "chk-4", *options)
        assert asked.code and "chk-4 is a checkpoint of Flink that is not complete: it has no _metadata" in asked.err
        assert "complete beside it: chk-3" in asked.err


def test_a_state_that_came_later_has_no_rows_before(tmp_path: Path) -> None:
    folder = together(tmp_path, ("hashmap", 3), ("rocksdb", 4))
    opened = statestore.inspect(folder)
    assert "opaque.a-long" in opened.tables()
    table = opened.table("opaque.a-long")
    assert values(table) == true_values("rocksdb", 4, "opaque", "a-long")
    with pytest.raises(statestore.NotFoundError, match="VERSION_NOT_FOUND"):
        values(table, version=3)
    both = opened.table("kv-long.balance")
    assert values(both, version=3) == true_values("hashmap", 3, "kv-long", "balance")
    assert values(both, version=4) == true_values("rocksdb", 4, "kv-long", "balance")


def test_a_state_that_is_gone_is_still_in_the_older_snapshot(tmp_path: Path) -> None:
    folder = together(tmp_path, ("hashmap", 3), ("rocksdb", 4))
    older = statestore.inspect(folder / "savepoint-abcdef-000000000000")
    assert "win-slide-list.window-contents" in older.tables()
    assert older.table("win-slide-list.window-contents").scan().read_all().num_rows


def test_a_state_that_one_subtask_migrated_and_the_other_did_not(tmp_path: Path) -> None:
    """After the restart, ``users`` was used with key k0 alone, without ``age``, with ``score`` and a time to live."""
    shutil.unpack_archive(DATA / "flink" / "evolved.tar.xz", tmp_path)
    opened = statestore.inspect(tmp_path)
    table = opened.table("keep.users")
    new = {row.pop("key"): row for row in table.scan(filter=("position", "=", 0)).read_all().to_pylist()}
    names = {key: (row["value"]["name"], row["value"]["score"]) for key, row in new.items()}
    one = {"k1": ("n7", None), "k3": ("n2", None), "k6": ("n4", None)}
    other = {"k0": ("n8", 0.0), "k5": ("n6", None), "k7": ("n7", None)}
    assert names == one | other
    assert {key for key, row in new.items() if row["last_access"] is None} == set(one)
    gone = "missing-field-at-0"  # Flink's name for a field that the class no longer has
    assert {key: row["value"][gone] for key, row in new.items() if key in one} == {"k1": 88, "k3": 32, "k6": 89}
    assert " or " in opened.about("keep.users").facts["value_type"]
    found = table.diff(2, 4, columns=["last_access"]).read_all().to_pylist()
    assert {row["key"] for row in found if row["_change"] == "changed"} == {"k5", "k7"}


@pytest.mark.quick("upgrade-rocksdb")
@pytest.mark.parametrize("run", ["upgrade-rocksdb", "upgrade-hashmap"])
def test_a_pojo_that_gained_fields_is_compared_across(run: str, tmp_path: Path) -> None:
    table = statestore.inspect(together(tmp_path, (run, 3), (run, 6))).table("subscribers.one")
    old, new = (true_values(run, version, "subscribers", "one") for version in (3, 6))
    names = [field.name for field in table.schema.field("value").type]
    assert set(names) > {name for value in old.values() for name in value}
    assert values(table, version=3) == old
    assert values(table, version=6) == new
    filled = {key: {name: value.get(name) for name in names} for key, value in old.items()}
    differences = table.diff(3, 6).read_all().to_pylist()
    known = [key for key in {*filled, *new} if filled.get(key) != new.get(key)]
    assert {row["key"] for row in differences} == set(known)
    history = table.history().read_all().to_pylist()
    now = {row["key"]: row["value"] for row in history if row["valid_to"] is None}
    assert now == {key: {name: value.get(name) for name in names} for key, value in new.items()}
    compared = statestore.inspect(tmp_path / "savepoint-abcdef-000000000001").table("subscribers.one")
    assert compared.scan().read_all().num_rows == len(new)


def files_of(place: Path, state: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = statestore.inspect(place).table(f"{state}$segments").scan().read_all().to_pylist()
    return rows


@pytest.mark.parametrize("run", ["rocksdb", "file-merging"])
def test_files_in_other_folders_are_listed_where_they_are(run: str) -> None:
    (place,) = fixture(run).glob("*/chk-3")
    for state in ("kv-long.balance", "kv-long.history"):
        files = files_of(place, state)
        assert all((place / row["name"]).is_file() and row["bytes"] > 0 for row in files)
        assert any(row["name"].startswith("../") for row in files)
        assert {row["role"] for row in files} <= {"header", "table", "RocksDB file"}


def test_a_missing_file_is_listed_and_named_and_other_operators_are_read(tmp_path: Path) -> None:
    place = copied("rocksdb", tmp_path) / JOB / "chk-3"
    gone = place / next(row["name"] for row in files_of(place, "kv-long.balance") if row["role"] == "table")
    gone.unlink()
    opened = statestore.inspect(place)
    (missing,) = [row for row in files_of(place, "kv-long.balance") if row["role"] == "missing"]
    assert missing["name"].endswith(gone.name)
    summary = opened.summary("kv-long.balance")
    assert summary.damaged and any(gone.name in each for each in summary.problems)
    with pytest.raises(statestore.NotFoundError, match=f"FLINK_FILE_MISSING.*{gone.name}"):
        opened.table("kv-long.balance").scan().read_all()
    assert opened.table("kv-tuple.n").scan().read_all().num_rows
    assert not opened.summary("kv-tuple.n").damaged


@pytest.mark.quick("cut")
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_damaged_header_is_the_error_of_its_operator_only(damage: str, tmp_path: Path) -> None:
    place = copied("rocksdb", tmp_path) / JOB / "chk-3"
    (header, *_) = [place / row["name"] for row in files_of(place, "kv-long.balance") if row["role"] == "header"]
    header.unlink() if damage == "missing" else os.truncate(header, 100)
    opened = statestore.inspect(place)
    code = "FLINK_FILE_MISSING" if damage == "missing" else "FLINK_FILE"
    with pytest.raises(statestore.StateStoreError, match=code):
        opened.table("kv-long.balance").scan().read_all()
    assert opened.summary("kv-long.balance").damaged
    assert opened.table("kv-tuple.n").scan().read_all().num_rows
    assert not opened.summary("kv-tuple.n").damaged


def test_metadata_alone_lists_the_operators_with_what_is_missing(tmp_path: Path) -> None:
    whole = together(tmp_path / "whole", ("rocksdb", 5)) / "savepoint-abcdef-000000000000"
    alone = tmp_path / "alone" / "_metadata"
    alone.parent.mkdir()
    shutil.copy(whole / "_metadata", alone)
    before, opened = statestore.inspect(whole), statestore.inspect(alone)
    expected: dict[str, list[Any]] = {}
    for state in before.tables():
        facts = before.about(state).facts
        known = expected.setdefault(facts["operator"], [facts["parallelism"], None, set()])
        known[1] = facts.get("max_parallelism", known[1])
        if "operator" in before.about(state).kind or "broadcast" in before.about(state).kind:
            known[2].add(state.split(".", 1)[1])
    found = {each["operator"]: each for each in (opened.about(state).facts for state in opened.tables())}
    assert set(found) == set(expected)
    for operator, (parallelism, most, lists) in expected.items():
        facts = found[operator]
        assert facts["parallelism"] == parallelism and most in (None, facts["max_parallelism"])
        assert lists <= set(facts.get("operator_states", "").split(", "))
        assert "FLINK_FILE_MISSING" in facts["error"]
    for state in opened.tables():
        summary = opened.summary(state)
        assert summary.damaged and summary.bytes and all(row["role"] == "missing" for row in files_of(alone, state))
    with pytest.raises(statestore.NotFoundError, match="FLINK_FILE_MISSING"):
        opened.table(opened.tables()[0]).scan()


@pytest.mark.parametrize(
    ("run", "state", "facts"),
    [
        ("rocksdb", "kv-tuple.m", ("operator: kv-tuple", "max_parallelism: 128", "key_type: tuple", "map_key_type: ")),
        ("rocksdb", "ttl.ttl-map", ("time_to_live: rows that have expired are included",)),
        ("unaligned", "kv-long.balance", ("the checkpoint is unaligned",)),
    ],
)
def test_facts_of_a_state(run: str, state: str, facts: Sequence[str]) -> None:
    lines = command("inspect", fixture(run) / state).err.splitlines()
    for fact in facts:
        assert any(line.startswith(fact) for line in lines), (fact, lines)


@pytest.mark.parametrize("run", mostly_slow(["rocksdb", "hashmap", "heap-timers"], ["heap-timers"]))
def test_reads_leave_a_job_as_it_was(run: str, tmp_path: Path) -> None:
    folder = copied(run, tmp_path)
    before = tree_of(folder)
    opened = statestore.inspect(folder)
    for name in opened.tables()[:2]:
        table: Any = opened.table(name)
        first, last = table.table.kept_versions()
        for read in (table.scan(), table.history(), table.changes(), table.diff(first, last)):
            read.read_all()
        statestore.sql(str(folder), f'SELECT count(*) FROM "{name}$segments"')
    assert tree_of(folder) == before


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as found:
        yield found


READS: list[tuple[str, Sequence[str]]] = [
    ("rocksdb", ("kv-long.balance", "kv-string.attrs", "timers.event_user-timers")),
    ("hashmap", ("kv-long.balance", "kv-string.attrs")),
    ("operator-hashmap-snappy", ("rules.rules", "buffers.orders")),
]


@pytest.mark.parametrize(("run", "states"), mostly_slow(READS, READS[1:]))
def test_an_object_store_has_the_same_rows(run: str, states: Sequence[str], store: ObjectStore) -> None:
    for each in manifest(run)["snapshots"][-1:]:
        local = statestore.inspect(fixture(run) / each["path"])
        uri = store.upload(fixture(run), run).replace(f"/{run}", f"/{run}/{each['path']}", 1)
        remote = statestore.inspect(uri)
        assert remote.tables() == local.tables()
        for state in states:
            rows = multiset(local.table(state).scan().read_all())
            assert multiset(remote.table(state).scan().read_all()) == rows
            assert rows


# Keys of Flink SQL with both zeros, NaNs of two bits and nanoseconds: looked up, followed and joined one by one.

COUNTS = "GroupAggregate[5].accState"  # SELECT k_double, COUNT(*), MAX(k_time3) … GROUP BY k_double
DISTINCT = "GroupAggregate[11].accState"  # SELECT … GROUP BY k_ltz9, k_row
NEWEST = "Deduplicate[17].deduplicate-state"  # a row of a float, a LTZ(9), a duration and a map of doubles by k_float
# Rows of each key, by its bits, when each savepoint was taken: as the source of the job counted them.
OLD = {0: 3, 1: 3, 0x3FF8 << 48: 10, 0x7FF8 << 48: 3, 0x8000 << 48: 2, 0xFFF0 << 48: 1, 0xFFF8 << 48: 2}
NEW = {0: 7, 1: 3, 0x3FF8 << 48: 13, 0x7FF8 << 48: 7, 0x8000 << 48: 11, 0xFFF0 << 48: 5, 0xFFF8 << 48: 10}
AFTER = datetime(2026, 1, 1, 1, tzinfo=UTC)


def table(name: str) -> Table:
    return statestore.inspect(fixture(SQL_KEYS)).table(name)


def numbers(bits: Any) -> Any:
    return np.array(list(bits), np.uint64).view(np.float64)


def doubles(bits: Any) -> pa.Table:
    """Left rows with one key each, all of the same time."""
    keys = pa.StructArray.from_arrays([pa.array(numbers(bits))], names=["f0"])
    return pa.table({"k": keys, "t": pa.array([AFTER] * len(keys), pa.timestamp("us", "UTC"))})


@pytest.mark.quick("0", "9223372036854775808")
@pytest.mark.parametrize("bits", [key for key in NEW if np.isfinite(numbers([key])[0])])
def test_each_zero_is_a_key_of_its_own(bits: int) -> None:
    key = {"f0": float(numbers([bits])[0])}
    found = table(COUNTS).get({"key": key})
    assert found is not None and found["value"]["f0"] == NEW[bits]
    history = table(COUNTS).history(key={"key": key}).read_all().sort_by("_commit_version").to_pylist()
    counts = [OLD[bits], NEW[bits]] if OLD[bits] != NEW[bits] else [NEW[bits]]
    assert sorted(row["value"]["f0"] for row in history) == counts
    for text in (f'{{"f0": {key["f0"]!r}}}', repr(key["f0"])):
        asked = command("get", str(fixture(SQL_KEYS)), COUNTS, text, "--json")
        assert [row["value"]["f0"] for row in asked.rows] == [NEW[bits]]


def test_a_filter_finds_both_zeros_and_every_nan() -> None:
    for value, expected in ((0.0, [7, 11]), (float("nan"), [7, 10])):
        rows = table(COUNTS).scan(filter=("key", "=", {"f0": value})).read_all()
        assert sorted(row["f0"] for row in rows["value"].to_pylist()) == expected
    with pytest.raises(statestore.InvalidInputError, match=r"WRONG_KEY.*several rows"):
        table(COUNTS).get({"key": {"f0": float("nan")}})
    given = ("key", "is", {"f0": 0.0})
    assert parse_filters(given) == (Filter("key", "=", {"f0": 0.0}, exact=True),)
    assert parse_filters(("key", "is", None)) == (Filter("key", "is_null"),)
    assert table(COUNTS).scan(filter=given).read_all().num_rows == 1


@pytest.mark.parametrize("engine", ["arrow", "duckdb"])
def test_a_join_meets_the_key_of_the_same_bits(engine: str) -> None:
    left = doubles([*NEW, 0x7FF8 << 48 | 1])  # the last one is a NaN that no key is
    found = statestore.asof_join(left, table(COUNTS), on={"k": "key"}, left_time="t", how="left", engine=engine)
    assert [row and row["f0"] for row in found["value"].to_pylist()] == [*NEW.values(), None]
    none = statestore.asof_join(left[:0], table(COUNTS), on={"k": "key"}, left_time="t", how="left", engine=engine)
    assert none.schema == found.schema and none.num_rows == 0


def test_joined_values_that_duckdb_lacks_are_those_of_the_table() -> None:
    rows = table(NEWEST).scan().read_all()
    left = rows.select(["key"]).append_column("t", pa.array([AFTER] * len(rows), pa.timestamp("us", "UTC")))
    on: dict[str, Any] = {"on": "key", "left_time": "t", "columns": ["value"], "engine": "duckdb"}
    joined = statestore.asof_join(left, table(NEWEST), **on)
    assert str(joined["value"].to_pylist()) == str(rows["value"].to_pylist())  # in a text, NaN is NaN


def test_keys_with_nanoseconds_and_a_zone() -> None:
    keys = table(DISTINCT).scan(columns=["key"]).read_all()["key"].combine_chunks()
    assert keys.type.field("f0").type == pa.timestamp("ns", "UTC")
    for zero in (0.0, -0.0):
        key = {"f0": np.datetime64("2023-11-14T22:13:20.999999999"), "f1": {"x": zero, "y": "a"}}
        found = table(DISTINCT).get({"key": key})
        assert found is not None and str(found["key"]["f1"]["x"]) == str(zero)
        assert table(DISTINCT).history(key={"key": key}).read_all()["key"].to_pylist()[0] == found["key"]
    moment = np.datetime64("1969-12-31T23:59:59.000000001")
    rows = table(DISTINCT).scan(filter=("key.f0", "in", [moment])).read_all()
    assert rows.num_rows == table(DISTINCT).scan(filter=("key.f0", "=", moment)).read_all().num_rows > 0


@pytest.mark.slow
def test_a_join_in_spark_meets_the_key_of_the_same_bits(spark: SparkSession) -> None:
    left = spark.createDataFrame(doubles(NEW).append_column("n", pa.array(list(NEW.values()))))
    found = statestore.asof_join(left, table(COUNTS), on={"k": "key"}, left_time="t", columns=["value"])
    assert sorted((row.n, row.value.f0) for row in found.collect()) == sorted((n, n) for n in NEW.values())
