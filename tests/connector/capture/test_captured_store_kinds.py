"""Changelogs of real stores of every kind, captured in steps, against the records before each step."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.kafka.real_applications import Row, application, form_of, plain_rows, record_columns
from support.kafka.unpacked import unpack, write_stores_file
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
            names = list(right[0]) if right else []
            found = [{each: row[each] for each in names} for row in rows]
            assert counted(found) == counted(right) and len(rows) == len(right), (number, state.state)
            captured += state.versions
    assert captured > 2 * len(stores)


@pytest.mark.parametrize(("name", "state"), [("bookings", "rates"), ("orders", "stock"), ("orders", "menu")])
def test_the_directory_of_a_closed_application_is_one_version(tmp_path: Path, name: str, state: str) -> None:
    folder = unpack(name, tmp_path) / "state" / name
    settings = str(write_stores_file(application(name).stores(), tmp_path / "stores.toml", everything=True))
    for versions in (1, 0):
        done = statestore.capture(folder, tmp_path / "w", states=state, stores_file=settings)
        assert done.versions == versions
    store = next(each for each in application(name).stores() if each["name"] == state)
    records = application(name).changelogs[store["changelog"]]
    assert done.states[0].newest == len(records)
    with statestore.connect(tmp_path / "w").open_store(state, read_only=True) as captured:
        rows = renamed(captured.scan().read_all().to_batches(), captured.spec)
    right = live(store, records)
    assert counted([{each: row[each] for each in right[0]} for row in rows]) == counted(right)


@pytest.mark.parametrize(
    ("kind", "state", "error"),
    [
        ("running", "stock", "ROWS_NOT_FLUSHED.*capture the changelog"),
        ("state", "visits", "CAPTURE_UNSUPPORTED.*Capture the changelog"),
        ("state", "currencies", "CAPTURE_UNSUPPORTED.*capture its input topic"),
    ],
)
def test_what_a_directory_cannot_tell_is_refused(tmp_path: Path, kind: str, state: str, error: str) -> None:
    folder = unpack("orders", tmp_path) / kind / "orders"
    settings = str(write_stores_file(application("orders").stores(), tmp_path / "stores.toml", everything=True))
    with pytest.raises(statestore.StateStoreError, match=error):
        statestore.capture(folder, tmp_path / "w", states=state, stores_file=settings)


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
    assert spec.captured is not None
    own = [each for each in (*spec.key_names, *spec.value_names) if each not in spec.captured.hidden]
    rows = [row for batch in batches for row in plain_rows(batch)]
    return [{each.removeprefix("state_"): row[each] for each in own} for row in rows]


def counted(rows: list[Row]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True, default=str) for row in rows)
