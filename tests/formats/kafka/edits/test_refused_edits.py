"""Edits that no record can make, or that the application would not go on from: one error that says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from struct import pack
from typing import Any

import pyarrow as pa
import pytest
from support.kafka.applications import unpacked
from support.kafka.edits import (
    TOPIC,
    VERSION,
    Logged,
    edit_of,
    made_changelog,
    planned,
    records_in,
    rows_table,
    source_at,
    state_table,
    written,
)
from support.kafka.log_files import LogWriter
from support.kafka.serde_model import partition_of
from support.kafka.unpacked import stores_file

from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.engine import Source
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.kafka.changelog_source import ChangelogSource
from statestore.formats.kafka.edits.edited_store import check_editable

TABLE = {"kind": "timestamped-key-value", "keyserde": "string", "valueserde": "long"}
WINDOWS = {**TABLE, "kind": "timestamped-window", "windowsize": "1000", "retention": "5000"}
VERSIONS = {**TABLE, "kind": "versioned", "retention": "100"}
PLAIN: list[Logged] = [(0, 1000, b"a", pack(">q", 1)), (0, 2000, b"b", pack(">q", 2)), (0, 3000, b"c", pack(">q", 3))]


def window(key: bytes, start: int) -> bytes:
    return key + pack(">qi", start, 0)


IN_WINDOWS: list[Logged] = [
    (0, 1500, window(b"a", 1000), pack(">q", 1)),
    (0, 9500, window(b"a", 9000), pack(">q", 2)),
    (0, 6500, window(b"b", 6000), pack(">q", 3)),
]
OF_VERSIONS: list[Logged] = [
    (0, 1000, b"old", pack(">q", 0)),
    (0, 2000, b"a", pack(">q", 1)),
    (0, 2050, b"a", pack(">q", 2)),
    (0, 2060, b"gone", pack(">q", 3)),
    (0, 2080, b"gone", None),
]


def changed(table: pa.Table, **cells: Any) -> pa.Table:
    """The rows of a table with other cells."""
    for name, cell in cells.items():
        at = table.column_names.index(name)
        kind = table.field(at).type
        value = pa.array([cell] * len(table), pa.int64()) if pa.types.is_timestamp(kind) else pa.array([cell], kind)
        column = value.cast(kind) if len(value) == len(table) else pa.concat_arrays([value] * len(table))
        table = table.set_column(at, table.field(at), column)
    return table


def edit(source: Source, change: Callable[[pa.Table], tuple[pa.Table, pa.Table]], state: str = TOPIC) -> StateEdit:
    return edit_of(source, state, *change(state_table(source, state)))


def deletes(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    return table.slice(0, 1), table.slice(0, 0)


def repairs(**cells: Any) -> Callable[[pa.Table], tuple[pa.Table, pa.Table]]:
    return lambda table: (table.slice(0, 1), changed(table.slice(0, 1), **cells))


def adds(**cells: Any) -> Callable[[pa.Table], tuple[pa.Table, pa.Table]]:
    return lambda table: (table.slice(0, 0), changed(table.slice(0, 1), **cells))


# What is not known of the store


def test_a_kind_that_is_guessed_is_refused(tmp_path: Path) -> None:
    source = source_at(made_changelog(tmp_path, PLAIN))
    with pytest.raises(UnsupportedError, match=r"EDIT_UNSUPPORTED.*read by guess: give kind of the store"):
        planned(source, edit(source, deletes))


def test_unknown_serdes_do_not_hinder_a_delete_or_another_time(tmp_path: Path) -> None:
    """The bytes of the key, and of a value that stays, are those that are there."""
    source = source_at(made_changelog(tmp_path, PLAIN), kind="timestamped-key-value")
    plan = planned(source, edit(source, lambda t: (t.slice(0, 2), changed(t.slice(1, 1), timestamp=5_000_000))))
    written(plan, tmp_path / "target")
    found = {row["key"]: (row["value"], row["timestamp"]) for row in records_in(tmp_path / "target", TOPIC)}
    assert found[b"a"][0] is None
    assert found[b"b"] == (pack(">q", 2), 5000)


@pytest.mark.parametrize(
    ("options", "change", "named"),
    [
        ({"keyserde": "string"}, lambda value: repairs(value=value), "valueSerde"),
        ({"valueserde": "long"}, lambda value: adds(key="new", value=7), "keySerde"),
    ],
)
def test_a_serde_that_is_guessed_is_refused(
    tmp_path: Path, options: dict[str, str], change: Callable[[Any], Any], named: str
) -> None:
    source = source_at(made_changelog(tmp_path, PLAIN), kind="timestamped-key-value", **options)
    other = state_table(source, TOPIC)["value"][1].as_py()
    with pytest.raises(UnsupportedError, match=rf"EDIT_UNSUPPORTED.*read by guess: give {named}"):
        planned(source, edit(source, change(other)))


OPERATORS = ("window-duplicates", "headers-window-duplicates", "outer-join-buffer", "foreign-key-subscriptions",
             "grace-join-buffer", "suppression-buffer")  # fmt: skip


@pytest.mark.parametrize("kind", OPERATORS)
def test_stores_of_operators_are_refused(tmp_path: Path, kind: str) -> None:
    source = source_at(made_changelog(tmp_path, IN_WINDOWS), kind=kind)
    nothing = pa.table({"key": pa.array([], pa.binary())})
    with pytest.raises(UnsupportedError, match=rf"EDIT_UNSUPPORTED.*of kind {kind}.*input topics"):
        planned(source, edit_of(source, TOPIC, nothing, nothing))


def test_global_stores_and_inputs_as_changelogs_are_refused(tmp_path: Path) -> None:
    source = source_at(unpacked("orders") / "state" / "orders", stores_file("orders", tmp_path / "stores.toml"))
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*global store.*input topic"):
        planned(source, edit(source, deletes, "currencies"))
    writer = LogWriter()
    writer.append([(1000, b"a", pack(">q", 1), ())])
    writer.write(tmp_path / "log" / "orders-in-0")
    source = source_at(tmp_path / "log", **TABLE)
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*topic orders-in is no changelog but an input"):
        planned(source, edit(source, deletes, "orders-in"))


# What is not known of the records


def test_an_open_transaction_is_refused(tmp_path: Path) -> None:
    writer = LogWriter()
    writer.append([(1000, b"a", pack(">q", 1), ())])
    writer.append([(2000, b"a", pack(">q", 2), ())], producer=7, transactional=True)
    writer.write(tmp_path / f"{TOPIC}-0")
    source = source_at(tmp_path, **TABLE)
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*open transaction.*transaction.timeout.ms"):
        planned(source, edit(source, deletes))


def test_records_without_partitions_are_refused(tmp_path: Path) -> None:
    lines = [
        {"topic": TOPIC, "key": "a", "value": "1", "timestamp": 1000},
        {"topic": TOPIC, "key": "b", "value": "2", "timestamp": 1000},
    ]
    (tmp_path / f"{TOPIC}.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    source = source_at(
        tmp_path, kind="timestamped-key-value", keyserde="string", valueserde="string", recordtext="utf-8"
    )
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*no partition"):
        planned(source, edit(source, deletes))


def test_the_directory_of_a_running_application_is_refused(tmp_path: Path) -> None:
    source = source_at(
        unpacked("orders") / "running" / "orders", stores_file("orders", tmp_path / "s.toml"), allowunflushed="true"
    )
    nothing = state_table(source, "prices").slice(0, 0)
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*behind its changelog.*edit the changelog itself"):
        planned(source, edit_of(source, "prices", nothing, nothing))


def test_a_moment_before_the_end_is_refused(tmp_path: Path) -> None:
    source = source_at(made_changelog(tmp_path, PLAIN), **TABLE, untiltime="1970-01-01T00:01:00Z")
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*untilTime.*leave these options out"):
        planned(source, edit(source, deletes))


@pytest.mark.parametrize("topic", ["../shop-stock-changelog", "a b-changelog", "$(x)-changelog"])
def test_a_topic_that_kafka_cannot_have_is_refused(tmp_path: Path, topic: str) -> None:
    """The names of directories' topics come from a file, and become names of files."""
    source = source_at(made_changelog(tmp_path, PLAIN), **TABLE)
    assert isinstance(source, ChangelogSource)
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*which no topic of Kafka is called"):
        check_editable(replace(source._edited_store(TOPIC), topic=topic))


# Rows that do not fit


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda t: (changed(t.slice(0, 1), value=9), t.slice(0, 0)), "is not there as the edit has it"),
        (lambda t: (changed(t.slice(0, 1), key="x"), t.slice(0, 0)), "key = 'x' is not there"),
        (adds(value=8), "key = 'a' is there already"),
        (lambda t: (t.slice(0, 1), pa.concat_tables([t.slice(0, 1)] * 2)), "adds 2 rows with one key"),
        (repairs(value=None), "null value"),
        (repairs(timestamp=None), "found timestamp null"),
        (repairs(timestamp=-5_000), "found timestamp null or before 1970"),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, change: Any, problem: str) -> None:
    source = source_at(made_changelog(tmp_path, PLAIN), **TABLE)
    with pytest.raises(InvalidInputError, match=rf"EDIT_REFUSED.*{problem}"):
        planned(source, edit(source, change), settings={"partitions": "1"})


def test_a_key_in_two_partitions_is_deleted_and_not_changed(tmp_path: Path) -> None:
    folder = made_changelog(tmp_path, [*PLAIN, (1, 1000, b"a", pack(">q", 1))])
    source = source_at(folder, **TABLE)
    rows = state_table(source, TOPIC)
    both = rows.filter(pa.compute.equal(rows["key"], "a"))
    assert len(both) == 2
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*several times: partition 0 as 61, partition 1 as 61"):
        planned(source, edit_of(source, TOPIC, both, changed(both.slice(0, 1), value=5)))
    written(planned(source, edit_of(source, TOPIC, both, both.slice(0, 0))), tmp_path / "target")
    found = [(row["partition"], row["key"], row["value"]) for row in records_in(tmp_path / "target", TOPIC)]
    assert found == [(0, b"a", None), (1, b"a", None)]


def test_columns_that_are_missing_are_named(tmp_path: Path) -> None:
    source = source_at(made_changelog(tmp_path, PLAIN), **TABLE)
    rows = state_table(source, TOPIC).select(["key", "value"])
    with pytest.raises(InvalidInputError, match=r"WRONG_SCHEMA.*no column timestamp"):
        planned(source, edit_of(source, TOPIC, rows, rows.slice(0, 0)))


# Where a new key belongs


def placed(count: int, number: int = 60, turned: int = 0) -> list[Logged]:
    keys = [b"key-%d" % at for at in range(number)]
    return [((partition_of(key, count) + turned) % count, 1000, key, pack(">q", 1)) for key in keys]


def test_keys_of_another_partitioner_are_refused(tmp_path: Path) -> None:
    source = source_at(made_changelog(tmp_path, placed(3, turned=1)), **TABLE)
    wanted = edit(source, adds(key="new"))
    for settings in ({}, {"partitions": "3"}):
        with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*default partitioner.*put an input record"):
            planned(source, wanted, settings=settings)


def test_the_number_of_partitions_is_never_guessed(tmp_path: Path) -> None:
    source = source_at(made_changelog(tmp_path, placed(1, 1)), **TABLE)
    wanted = edit(source, adds(key="new"))
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*may have 1 or \d+ partitions.*option partitions"):
        planned(source, wanted)
    for text in ("0", "x", "-1", str(1 << 31)):
        with pytest.raises(InvalidInputError, match=r"INVALID_OPTION.*partitions"):
            planned(source, wanted, settings={"partitions": text})


def test_many_keys_show_where_a_new_one_belongs(tmp_path: Path) -> None:
    source = source_at(made_changelog(tmp_path, placed(5)), **TABLE)
    written(planned(source, edit(source, adds(key="new"))), tmp_path / "target")
    [found] = records_in(tmp_path / "target", TOPIC)
    assert (found["partition"], found["key"]) == (partition_of(b"new", 5), b"new")


def test_an_edit_is_no_batch(tmp_path: Path) -> None:
    source = source_at(made_changelog(tmp_path, PLAIN), **TABLE)
    with pytest.raises(UnsupportedError, match=r"EDIT_UNSUPPORTED.*no batches"):
        source.edit_plan(VERSION, [edit(source, deletes)], EditOptions(as_batch=True))


def test_a_state_is_edited_once(tmp_path: Path) -> None:
    source = source_at(made_changelog(tmp_path, PLAIN), **TABLE)
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*two edits"):
        planned(source, edit(source, deletes), edit(source, deletes))


# What the application would drop


def live(table: pa.Table) -> pa.Table:
    return table.filter(pa.compute.equal(table["window_start"].cast(pa.int64()), 9_000_000))


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        ({"window_start": 3_000_000, "window_end": 4_000_000}, "has expired: its stream time is 9000"),
        ({"window_start": 12_000_000, "window_end": 13_000_000}, "later than the stream time 9000"),
        ({"key": "new", "window_end": 9_500_000}, "window_end in a row than window_start and 1000 ms"),
        ({"key": "new", "expired": None}, "expired true or null"),
        ({"window_start": -1_000_000, "window_end": 0}, "expected 0 or more"),
    ],
)
def test_windows_that_would_go_at_once_are_refused(tmp_path: Path, cells: dict[str, Any], problem: str) -> None:
    source = source_at(made_changelog(tmp_path, IN_WINDOWS), **WINDOWS)
    with pytest.raises(InvalidInputError, match=rf"EDIT_REFUSED.*{problem}"):
        planned(
            source, edit(source, lambda t: (t.slice(0, 0), changed(live(t), **cells))), settings={"partitions": "1"}
        )


def test_late_windows_are_written_where_they_are_allowed(tmp_path: Path) -> None:
    source = source_at(made_changelog(tmp_path, IN_WINDOWS), **WINDOWS)
    late = edit(source, lambda t: (t.slice(0, 0), changed(live(t), window_start=3_000_000, window_end=4_000_000)))
    plan = planned(source, late, settings={"partitions": "1"}, allow_late=True)
    written(plan, tmp_path / "target")
    assert [row["key"] for row in records_in(tmp_path / "target", TOPIC)] == [window(b"a", 3000)]


def test_a_fraction_of_a_millisecond_is_refused(tmp_path: Path) -> None:
    source = source_at(made_changelog(tmp_path, PLAIN), **TABLE)
    with pytest.raises(InvalidInputError, match=r"WRONG_VALUE.*whole milliseconds"):
        planned(source, edit(source, repairs(timestamp=1_500)))


# Versions


def versions(tmp_path: Path, **options: str) -> Source:
    return source_at(made_changelog(tmp_path, OF_VERSIONS), **{**VERSIONS, **options})


def row_of(source: Source, key: str) -> pa.Table:
    rows = state_table(source, TOPIC)
    return rows.filter(pa.compute.equal(rows["key"], key))


def test_versioned_stores_need_their_retention(tmp_path: Path) -> None:
    options = {name: value for name, value in VERSIONS.items() if name != "retention"}
    source = source_at(made_changelog(tmp_path, OF_VERSIONS), **options)
    with pytest.raises(UnsupportedError, match=r"EDIT_UNSUPPORTED.*option retention"):
        planned(source, edit_of(source, TOPIC, row_of(source, "a"), row_of(source, "a").slice(0, 0)))


@pytest.mark.parametrize(
    ("key", "time", "problem"),
    [
        ("a", 2040, "has a version or a delete at 2050 ms"),
        ("old", 1000, "ignores versions from before 1980 ms"),
        ("gone", 2070, "has a version or a delete at 2080 ms"),
        ("new", 1979, "ignores versions from before 1980 ms"),
    ],
)
def test_versions_that_would_not_be_the_newest_are_refused(tmp_path: Path, key: str, time: int, problem: str) -> None:
    source = versions(tmp_path)
    there = row_of(source, key)
    fresh = rows_table(source, TOPIC, [{"key": key, "value": 9, "valid_from": time}])
    with pytest.raises(InvalidInputError, match=rf"EDIT_REFUSED.*{problem}"):
        planned(source, edit_of(source, TOPIC, there, fresh), settings={"partitions": "1"})


def test_a_version_goes_at_its_time_or_the_first_that_is_accepted(tmp_path: Path) -> None:
    """The store of the changelog has seen 2080 and keeps 100 ms of history."""
    source = versions(tmp_path)
    removed = pa.concat_tables([row_of(source, "a"), row_of(source, "old")])
    added = rows_table(
        source,
        TOPIC,
        [{"key": "gone", "value": 8, "valid_from": 2080}, {"key": "late", "value": 9, "valid_from": 3000}],
    )
    plan = planned(source, edit_of(source, TOPIC, removed, added), settings={"partitions": "1"})
    written(plan, tmp_path / "target")
    found = [(row["timestamp"], row["key"], row["value"]) for row in records_in(tmp_path / "target", TOPIC)]
    assert found == [
        (1980, b"old", None),
        (2050, b"a", None),
        (2080, b"gone", pack(">q", 8)),
        (3000, b"late", pack(">q", 9)),
    ]
    assert any("earlier versions stay" in note for note in plan.notes)
    assert any("1 deleted versions are older" in note for note in plan.notes)
    left = state_table(plan.opened(str(tmp_path / "target")), TOPIC)
    assert sorted(left["key"].to_pylist()) == ["gone", "late"]
