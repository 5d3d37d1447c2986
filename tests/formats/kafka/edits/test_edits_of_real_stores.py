"""Edits of the stores of real applications: the records are those that a plain model writes, and make it so."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.kafka.applications import unpacked
from support.kafka.avro_model import encode
from support.kafka.edits import (
    TOPIC,
    edit_of,
    made_changelog,
    planned,
    records_in,
    source_at,
    state_table,
    unhexed,
    written,
)
from support.kafka.real_applications import application, form_of, plain_rows
from support.kafka.serde_model import bytes_of, partition_of, record_key
from support.kafka.store_answers import cases, the_store
from support.kafka.unpacked import is_on_disk, stores_file

from statestore.formats.edits import EditPlan
from statestore.formats.engine import Source
from statestore.formats.kafka.columns.record_encoders import ENCODED_FORMS
from statestore.formats.kafka.columns.store_kinds import KINDS

Row = dict[str, Any]
NEW = {pa.string(): '"new"', pa.binary(): b"new", pa.float32(): 1.5, pa.float64(): -2.5}
UUID = "00000000-0000-4000-8000-000000000001"


def is_edited(store: Row) -> bool:
    kind = KINDS[form_of(store).kind]
    is_global = store["kind"].startswith("global")
    return store["changelog"] is not None and kind.rows in ENCODED_FORMS and not kind.duplicates and not is_global


def changelogs() -> list[Any]:
    return cases(is_edited)


def directories() -> list[Any]:
    return cases(lambda store: is_edited(store) and is_on_disk(store))


def opened(name: str, folder: str, to: Path) -> Source:
    below = f"state/{name}" if folder == "state" else folder
    return source_at(unpacked(name) / below, stores_file(name, to / "stores.toml", everything=True))


def new_key(serde: str, kind: pa.DataType, partition: int, partitions: int) -> Any:
    """A key that the default partitioner puts into a partition."""
    forms = {pa.string(): '"new {}"', pa.binary(): "ff{:02x}"}
    text = "00000000-0000-4000-8000-0000000000{:02d}" if serde == "uuid" else forms.get(kind)
    for number in range(50, 90):
        cell: Any = number if text is None else text.format(number)
        cell = bytes.fromhex(cell) if kind == pa.binary() else cell
        data = bytes_of(serde, cell)
        if data is not None and partition_of(data, partitions) == partition:
            return cell
    raise AssertionError("no key is placed there")


def changed(table: pa.Table, number: int, name: str, cell: Any) -> pa.Table:
    """One row of a table with another cell."""
    at = table.column_names.index(name)
    return table.slice(number, 1).set_column(at, table.field(at), pa.array([cell], table.field(at).type))


def plain(table: pa.Table) -> Iterator[Row]:
    for batch in table.combine_chunks().to_batches():
        yield from plain_rows(batch)


def in_order(table: pa.Table) -> list[str]:
    return sorted(map(repr, plain(table)))


class Edited:
    """An edit of a store: the last live row is deleted, the first one changed, and a new one added beside it."""

    def __init__(self, source: Source, name: str, state: str, store: Row) -> None:
        self.source, self.state, self.form = source, state, form_of(store)
        self.partitions = application(name).truth["partitions"]
        log = application(name).changelogs[store["changelog"]]
        self.places = {unhexed(record["key"]): record["partition"] for record in log}
        rows = state_table(source, state)
        # A store that was upgraded does not know the times of old rows.
        order = [not row.get("expired") and row.get("timestamp", 0) is not None for row in plain(rows)]
        rows = pa.concat_tables([rows.filter(pa.array(order)), rows.filter(pa.array([not each for each in order]))])
        live = max(sum(order), 2)
        is_uuid = self.form.value_serde == "uuid"
        fresh = UUID if is_uuid else NEW.get(rows.schema.field("value").type, 99)
        self.gone, before = rows.slice(live - 1, 1), rows.slice(0, 1)
        self.repaired = changed(rows, 0, "value", fresh)
        [first] = plain(before)
        partition = self.places[record_key(self.form.key_serde, first)]
        key = new_key(self.form.key_serde, rows.schema.field("key").type, partition, self.partitions)
        self.new = changed(self.repaired, 0, "key", key)
        removed, added = pa.concat_tables([self.gone, before]), pa.concat_tables([self.repaired, self.new])
        self.edit = edit_of(source, state, removed, added)
        self.after = pa.concat_tables([added, rows.slice(1, live - 2), rows.slice(live)])

    def plan(self) -> EditPlan:
        return planned(self.source, self.edit, settings={"partitions": str(self.partitions)})


def checked(edited: Edited, store: Row, to: Path) -> None:
    """Compare the records of an edit with those of the model, and the state that they make with the edited rows."""
    start = time.time_ns() // 1_000_000
    plan = pickle.loads(pickle.dumps(edited.plan()))
    end = time.time_ns() // 1_000_000
    sizes = written(plan, to / "target")
    assert {path: (to / "target" / path).stat().st_size for path in sizes} == sizes
    records = records_in(to / "target", store["changelog"])

    places, partitions = edited.places, edited.partitions
    key_serde, value_serde = edited.form.key_serde, edited.form.value_serde
    [gone], [repaired], [new] = (list(plain(table)) for table in (edited.gone, edited.repaired, edited.new))
    user_key = bytes_of(key_serde, new["key"])
    assert user_key is not None
    wanted = {
        record_key(key_serde, gone): (places[record_key(key_serde, gone)], None),
        record_key(key_serde, repaired): (
            places[record_key(key_serde, repaired)],
            bytes_of(value_serde, repaired["value"]),
        ),
        record_key(key_serde, new): (partition_of(user_key, partitions), bytes_of(value_serde, new["value"])),
    }
    assert {record["key"]: (record["partition"], record["value"]) for record in records} == wanted
    assert len(records) == len(wanted)
    for record in records:
        row = {record_key(key_serde, each): each for each in (gone, repaired, new)}[record["key"]]
        kept = row.get("valid_from", row.get("timestamp") if record["value"] is not None else None)
        assert record["timestamp"] == kept if kept is not None else start <= record["timestamp"] <= end
        pairs = row.get("headers", []) if record["value"] is not None else []
        assert [[each["name"], each["value"]] for each in record["headers"]] == pairs

    target = pickle.loads(pickle.dumps(plan.opened(str(to / "target"))))
    assert in_order(state_table(target, edited.state)) == in_order(edited.after)
    assert target.states() == edited.source.states()
    assert target.info(edited.state).columns == edited.source.info(edited.state).columns


@pytest.mark.parametrize(("name", "store"), changelogs())
def test_a_changelog_is_edited(name: str, store: str, tmp_path: Path) -> None:
    found = the_store(name, store)
    checked(Edited(opened(name, "changelog", tmp_path), name, found["changelog"], found), found, tmp_path)


@pytest.mark.parametrize(("name", "store"), directories())
def test_a_directory_gets_records_for_its_changelogs(name: str, store: str, tmp_path: Path) -> None:
    found = the_store(name, store)
    checked(Edited(opened(name, "state", tmp_path), name, store, found), found, tmp_path)


def test_a_brokers_log_is_edited(tmp_path: Path) -> None:
    """The instructions have the offsets at which the topic must end still."""
    found = the_store("orders", "prices")
    edited = Edited(opened("orders", "log", tmp_path), "orders", found["changelog"], found)
    checked(edited, found, tmp_path)
    last: dict[int, int] = {}
    for record in application("orders").changelogs[found["changelog"]]:
        last[record["partition"]] = record["offset"]
    text = (tmp_path / "target" / "README.md").read_text("utf-8")
    assert f"--expect-end {found['changelog']}=" in text
    [told] = [line for line in text.splitlines() if "--expect-end" in line]
    ends = dict(each.split(":") for each in told.rpartition("=")[2].split(","))
    assert all(int(ends[f"{partition}"]) > offset for partition, offset in last.items())


def test_other_states_stay_as_they_are(tmp_path: Path) -> None:
    found = the_store("orders", "prices")
    source = opened("orders", "state", tmp_path)
    plan = Edited(source, "orders", "prices", found).plan()
    [note] = [note for note in plan.notes if "foreign keys" in note]
    assert "(order-customers-subscription-store)" in note
    written(plan, tmp_path / "target")
    target = plan.opened(str(tmp_path / "target"))
    for state in ("menu", "stock", "visits", "currencies"):
        assert in_order(state_table(target, state)) == in_order(state_table(source, state))


def test_an_edit_of_nothing_writes_no_record(tmp_path: Path) -> None:
    source = opened("orders", "state", tmp_path)
    for edits in ([], [edit_of(source, "prices", *[state_table(source, "prices").slice(0, 0)] * 2)]):
        plan = planned(source, *edits)
        assert list(plan.copied()) == [] and list(plan.parts()) == []
        folder = tmp_path / f"target-{len(edits)}"
        assert sorted(written(plan, folder)) == ["README.md", "produce.py"]
        target = plan.opened(str(folder))
        assert in_order(state_table(target, "prices")) == in_order(state_table(source, "prices"))


def test_values_with_a_schema_keep_the_ids_in_front_of_them(tmp_path: Path) -> None:
    """The rows are those of one topic with an Avro schema: one is repaired, one is new, both behind the topic's id."""
    schema: Any = {"type": "record", "name": "Item", "fields": [{"name": "qty", "type": "long"}]}
    (tmp_path / "item.avsc").write_text(json.dumps(schema))
    front = bytes.fromhex("000000002a")
    records = [(0, 1000, b"a", front + encode(schema, {"qty": 5})), (0, 2000, b"b", front + encode(schema, {"qty": 6}))]
    folder = made_changelog(tmp_path / "changelog", records)
    given = {"kind": "timestamped-key-value", "keyserde": "string", "valueserde": f"avro:{tmp_path}/item.avsc"}
    source = source_at(folder, **given)
    before = state_table(source, TOPIC)
    repaired = changed(before, 0, "value", {"qty": -300})
    new = changed(changed(before, 1, "key", "new"), 0, "value", {"qty": 2**40})
    edit = edit_of(source, TOPIC, before.slice(0, 1), pa.concat_tables([repaired, new]))
    plan = planned(source, edit, settings={"partitions": "1"})
    written(plan, tmp_path / "target")
    found = {each["key"]: each["value"] for each in records_in(tmp_path / "target", TOPIC)}
    assert found == {
        b"a": front + encode(schema, {"qty": -300}),
        b"new": front + encode(schema, {"qty": 2**40}),
    }
    seen = {
        row["key"]: row["value"]["qty"] for row in state_table(plan.opened(f"{tmp_path}/target"), TOPIC).to_pylist()
    }
    assert seen == {"a": -300, "b": 6, "new": 2**40}
