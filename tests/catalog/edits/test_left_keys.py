"""Notes about states that keep rows of keys which an edit removes from another state, against scans of all states."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.engines.toy_edits import write_source
from support.engines.toys import write_package
from support.flink.fixtures import fixture, manifest
from support.kafka.unpacked import stores_file, unpack

import statestore
from statestore.catalog.edits import left_keys

NOTE = re.compile(r"state (.*) has rows of (\d+) of the keys that are removed here, and keeps them; delete them there")

LONGER = {"window_start", "session_start", "buffer_time", "side"}
"""Columns of keys of windows, sessions, buffers and joins of Kafka Streams, after the key of a record."""


def left(notes: Any) -> dict[str, int]:
    """The states that notes name, and how many keys each of them keeps."""
    found = [NOTE.match(each) for each in notes]
    return {each[1]: int(each[2]) for each in found if each}


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Keys a, b and c are in each of the states toys, queues and totals; the last one follows from the first."""
    monkeypatch.syspath_prepend(write_package(tmp_path / "toys.zip"))
    yield write_source(tmp_path / "source")


TOYS = {
    "DELETE FROM queues WHERE k IN ('a', 'c')": {"toys": 2, "totals": 2},
    "DELETE FROM toys WHERE k = 'c'": {"queues": 1},
    "DELETE FROM toys WHERE k = 'c'; DELETE FROM queues WHERE k = 'c'": {},
    "DELETE FROM toys WHERE k = 'c'; DELETE FROM queues WHERE k = 'b'": {"queues": 1, "toys": 1, "totals": 1},
    "DELETE FROM toys WHERE k = 'a' AND field = 'x'": {},
    "DELETE FROM queues WHERE k = 'a' AND item IS NULL": {},
    "DELETE FROM toys WHERE k = 'a'; DELETE FROM queues WHERE k = 'a' AND item IS NULL": {"queues": 1},
    "DELETE FROM queues WHERE k = 'c'; INSERT INTO queues VALUES ('c', 1)": {},
    "DELETE FROM queues WHERE k = 'c'; INSERT INTO toys VALUES ('c', 'z', 1)": {"toys": 1, "totals": 1},
    "DELETE FROM queues WHERE k = 'c'; DELETE FROM toys WHERE k = 'c'; INSERT INTO toys VALUES ('c', 'z', 1)": {
        "toys": 1,
        "totals": 1,
    },
    "UPDATE toys SET n = 5; INSERT INTO queues VALUES ('d', 1)": {},
}


@pytest.mark.parametrize("text", TOYS)
def test_each_state_that_keeps_removed_keys_is_told_of(text: str, toys: Path, tmp_path: Path) -> None:
    with statestore.edit(toys, tmp_path / "target") as edit:
        edit.sql(text)
        assert left(edit.preview().notes) == TOYS[text]
    assert edit.receipt is not None and left(edit.receipt.notes) == TOYS[text]


def test_more_keys_than_are_searched_are_told_of(toys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_keys, "MOST_KEYS", 2)
    with statestore.edit(toys) as edit:
        edit.sql("DELETE FROM queues")
        [note] = edit.preview().notes
    assert note.startswith("rows of more than 2 keys are removed here") and note.endswith("for them: toys, totals")


def check_notes(
    place: Path, state: str, where: str, cell: Any, settings: Mapping[str, str] = {}, **options: Any
) -> dict[str, int]:
    """Delete a key from a state, and compare the notes with scans of all states; return what they tell."""
    tables = statestore.inspect(place, **options)
    expected = {}
    for name in tables:
        rows = tables[name].scan().to_arrow().to_pylist()
        if any(row.get("key") == cell and not row.keys() & LONGER for row in rows):
            expected[name] = 1
    assert expected.pop(state)
    with statestore.edit(place, settings=settings, **options) as edit:
        edit.sql(f'DELETE FROM "{state}" WHERE {where}')
        preview = edit.preview()
    assert preview.refused is None
    assert left(preview.notes) == expected
    longer = [name for name in tables if LONGER & set(tables[name].schema.names)]
    told = [each for each in preview.notes if "whose keys have more columns" in each]
    assert len(told) == min(len(longer), 1) and all("carts" in each and "stock" not in each for each in told)
    return expected


def test_states_of_all_operators_of_flink_are_searched() -> None:
    place = fixture("rocksdb-1.20") / manifest("rocksdb-1.20")["snapshots"][1]["path"]
    state = next(name for name in statestore.inspect(place) if name.endswith(".count"))
    found = check_notes(place, state, "key = 'user-9'", "user-9")
    assert state.replace(".count", ".sum") in found and not any("user-9" in name for name in found)
    assert len({name.split(".")[0] for name in found}) > 1


def test_variables_of_spark_are_searched() -> None:
    place = checkpoint_path("spark4.3.0-twsttl__rkcl")
    cell = statestore.inspect(place)["mp"].scan().to_arrow().to_pylist()[-1]["key"]
    names = [f"key.{name} IS NOT DISTINCT FROM {'NULL' if each is None else repr(each)}" for name, each in cell.items()]
    assert check_notes(place, "mp", " AND ".join(names), cell)


def test_stores_of_kafka_are_searched(tmp_path: Path) -> None:
    folder = unpack("orders", tmp_path / "kafka")
    stores = str(stores_file("orders", tmp_path / "stores.toml"))
    place = folder / "state" / "orders"
    assert check_notes(place, "stock", "key = 'a'", "a", {"partitions": "2"}, stores_file=stores)


def test_keys_of_structs_are_equal_whatever_their_fields_are_called() -> None:
    rows = pa.array([{"k": {"id": 1}}, None])
    kind = pa.struct([pa.field("user", pa.struct([pa.field("number", pa.int64(), nullable=False)]))])
    assert left_keys._shape(rows.type) == left_keys._shape(kind)
    assert left_keys._as(rows, kind).to_pylist() == [{"user": {"number": 1}}, None]
