"""Changelogs of real stores of every kind, captured in steps, against the records before each step."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.kafka.real_applications import Row, application, form_of, plain_rows, record_columns
from support.kafka.unpacked import write_stores_file
from support.parameters import mostly_slow

import statestore
from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.kafka.columns.store_kinds import KINDS, logged_rows

STEPS = (0.4, 0.7, 1.0)


@pytest.mark.parametrize("name", mostly_slow(("ledger", "orders", "bookings"), quick=("ledger",), each=True))
def test_every_kind_of_store_is_captured(tmp_path: Path, name: str) -> None:
    stores = {each["changelog"]: each for each in application(name).stores() if each["changelog"] is not None}
    source, warehouse = tmp_path / "topics", tmp_path / "w"
    settings = write_stores_file(application(name).stores(), tmp_path / "stores.toml", everything=True)
    captured = 0
    for number, step in enumerate(STEPS):
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        for topic, records in application(name).changelogs.items():
            if topic in stores:
                lines = map(json.dumps, records_until(records, step))
                source.joinpath(f"{topic}.jsonl").write_text("\n".join(lines) + "\n")
        done = statestore.capture(source, warehouse, stores_file=str(settings))
        catalog = statestore.connect(warehouse)
        for state in done.states:
            with catalog.open_store(state.store, read_only=True) as store:
                rows = renamed(store.scan().read_all().to_batches(), store.spec)
            right = live(stores[state.state], records_until(application(name).changelogs[state.state], step))
            names = [each for each in right[0]] if right else []
            found = [{each: row[each] for each in names} for row in rows]
            assert counted(found) == counted(right) and len(rows) == len(right), (number, state.state)
            captured += state.versions
    assert captured > 2 * len(stores)


def records_until(records: list[Row], step: float) -> list[Row]:
    return records[: round(len(records) * step)]


def live(store: dict[str, Any], records: list[Row]) -> list[Row]:
    """The rows of the newest record of each key; of a versioned store, the newest by time of those that it took."""
    form = form_of(store)
    newest: dict[Any, Row] = {}
    stream_times: dict[int, int] = {}
    for record in records:
        if record["key"] is None:
            continue
        number, place = record["partition"], (record["partition"], record["key"])
        now = stream_times[number] = max(stream_times.get(number, -1), record["timestamp"])
        if KINDS[form.kind].has_past:
            late = record["timestamp"] < now - store["history_retention_ms"]
            if late or (place in newest and newest[place]["timestamp"] > record["timestamp"]):
                continue
        newest[place] = record
    there = [record for record in newest.values() if record["value"] is not None]
    if not there:
        return []
    rows = plain_rows(logged_rows(form, *record_columns(there)))
    return [{name: cell for name, cell in row.items() if name not in ("tombstone", "record")} for row in rows]


def renamed(batches: list[Any], spec: StoreSpec) -> list[Row]:
    """The rows of a captured store with the columns' own names."""
    own = [each for each in (*spec.key_names, *spec.value_names) if each not in spec.captured.hidden]
    rows = [row for batch in batches for row in plain_rows(batch)]
    return [{each.removeprefix("state_"): row[each] for each in own} for row in rows]


def counted(rows: list[Row]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True, default=str) for row in rows)
