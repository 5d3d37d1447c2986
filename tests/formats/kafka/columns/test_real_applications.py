"""Columns of three applications' stores and changelogs equal what the stores of the real Kafka Streams answered."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from support.kafka import buffers
from support.kafka.real_applications import (
    APPLICATIONS,
    application,
    data,
    form_of,
    raw_columns,
    record_columns,
)
from support.kafka.store_answers import cases, expected, missing, the_store

from statestore.formats.kafka.columns.store_kinds import (
    KINDS,
    logged_rows,
    logged_schema,
    row_schema,
    stored_rows,
)

BUFFERS = ("grace-join-buffer", "suppression-buffer")

STORES = cases(lambda store: True)
VERSIONED = cases(lambda store: store["kind"] == "versioned")
LOGGED = cases(lambda store: store["changelog"] is not None)
BUFFERED = cases(lambda store: store["kind"] in BUFFERS)


@pytest.mark.parametrize(("name", "store"), STORES)
def test_stored_rows_hold_all_that_the_store_answers(name: str, store: str) -> None:
    """Expired rows may lie beside them; in kinds without retention there is nothing else."""
    found, app = the_store(name, store), application(name)
    kind = KINDS[form_of(found).kind]
    if kind.changelog_only or found["kind"] == "in-memory-key-value":
        assert not [place for place in app.raw if place[1] == store]
        return
    for part in found["partitions"]:
        rows = app.stored(found, part.get("task", "global"))
        wanted = [expected(found, row) for row in part.get("rows", [])]
        open_rows = [row for row in rows if row["valid_to"] is None] if kind.has_past else rows
        assert missing(open_rows, wanted) == Counter()
        if not kind.segmented and not kind.has_past:
            assert len(rows) == len(wanted)


def test_all_rows_on_disk_belong_to_a_store() -> None:
    for name in APPLICATIONS:
        app = application(name)
        families = {store["name"]: KINDS[form_of(store).kind].families for store in app.stores()}
        assert not [place for place in app.raw if place[2] not in families[place[1]]]


@pytest.mark.parametrize("name", APPLICATIONS)
def test_schemas_are_those_of_the_rows(name: str) -> None:
    for (task, store, family), rows in application(name).raw.items():
        form = form_of(the_store(name, store))
        for each in (rows, []):
            assert stored_rows(form, family, *raw_columns(each)).schema == row_schema(form), (task, store, family)


@pytest.mark.parametrize(
    ("name", "store"), [case for case in STORES if "menu" in str(case.id) or "tariffs" in str(case.id)]
)
def test_versions_are_those_of_the_engine(name: str, store: str) -> None:
    """Kafka does not answer about times before its history; what lies on disk is shown."""
    found, app = the_store(name, store), application(name)
    asked = 0
    for part in found["partitions"]:
        rows = app.stored(found, part["task"])
        assert missing(rows, part["versions"]) == Counter()
        oldest = part["observed_stream_time"] - found["history_retention_ms"]
        for question in part["as_of"]:
            time = question["as_of"]
            answers = [
                {"value": row["value"], "valid_from": row["valid_from"]}
                for row in rows
                if row["key"] == question["key"] and row["valid_from"] <= time
                if row["valid_to"] is None or time < row["valid_to"]
            ]
            if question["answer"] is not None or time >= oldest:
                asked += 1
                assert answers == ([] if question["answer"] is None else [question["answer"]])
    assert asked > 50


@pytest.mark.parametrize(("name", "store"), LOGGED)
def test_changelogs_end_in_what_the_store_answers(name: str, store: str) -> None:
    found, app = the_store(name, store), application(name)
    records = app.changelogs[found["changelog"]]
    form = form_of(found)
    kind = KINDS[form.kind]
    rows = app.logged(found)
    assert [*rows[0]] == logged_schema(form).names
    assert [row["tombstone"] for row in rows] == [records[row["record"]]["value"] is None for row in rows]
    assert {row["record"] for row in rows} == set(range(len(records)))
    last = {(record["partition"], record["key"]): number for number, record in enumerate(records)}
    if kind.has_past:  # every version is a record of its own
        last = {(number, ""): number for number in range(len(records))}
    kept = set(last.values())
    state = [row for row in rows if row["record"] in kept and not row["tombstone"]]
    for part in found["partitions"]:
        own = [row for row in state if records[row["record"]]["partition"] == part["partition"]]
        wanted = [expected(found, row) for row in part.get("rows", [])]
        known = [row for row in wanted if row.get("timestamp", 0) is not None]
        assert missing(own, known) == Counter()
        # A store that was upgraded does not know the time of an old row; its changelog does.
        unknown = [{name: row[name] for name in row if name != "timestamp"} for row in wanted if row not in known]
        assert missing(own, unknown) == Counter()
    if found["kind"] == "grace-join-buffer":
        stored = [row for part in found["partitions"] for row in app.stored(found, part["task"])]
        names = row_schema(form).names
        assert missing(stored, [{name: row[name] for name in names} for row in state]) == Counter()
        assert len(stored) == len(state)


@pytest.mark.parametrize(("name", "store"), BUFFERED)
def test_buffered_changes_are_those_of_the_model(name: str, store: str) -> None:
    """With raw bytes as keys and values, so that only the buffer's own form is compared."""
    found, app = the_store(name, store), application(name)
    records = app.changelogs[found["changelog"]]
    form = form_of(found)
    raw = type(form)(form.kind)
    batch = logged_rows(raw, *record_columns(records)).to_pylist()
    assert len(batch) == len(records)
    changes = 0
    for row, record in zip(batch, records, strict=True):
        value = data(record["value"])
        if value is None:
            assert row["tombstone"] and row["new"] is None and row["topic"] is None
            continue
        grace = found["kind"] == "grace-join-buffer"
        model = buffers.decode_grace_buffered(value) if grace else buffers.decode_buffered(value, 3)
        assert model.context is not None
        assert (row["prior"], row["old"], row["new"]) == (model.prior, model.old, model.new)
        assert (row["topic"], row["partition"], row["offset"]) == (
            model.context.topic,
            model.context.partition,
            model.context.offset,
        )
        assert milliseconds(row["timestamp"]) == model.context.timestamp
        assert tuple((header["name"], header["value"]) for header in row["headers"]) == model.context.headers
        if not grace:
            assert milliseconds(row["buffer_time"]) == model.buffer_time
        changes += 1
    assert changes > 10


def milliseconds(time: Any) -> int:
    found: int = pa.scalar(time, pa.timestamp("ms", "UTC")).value
    return found
