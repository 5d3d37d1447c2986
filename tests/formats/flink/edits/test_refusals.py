"""Edits that are refused before anything is written, each with what to do, and what users are told of the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.flink.edited import planned, state_edit
from support.flink.fixtures import fixture, manifest
from support.flink.metadata_bytes import Operator, metadata, subtask
from support.flink.snapshot_reads import rows_of, source_at

from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.flink.source import FlinkSource


def source_of(run: str, place: int) -> FlinkSource:
    return source_at(fixture(run) / manifest(run)["snapshots"][place]["path"])


def removal(source: FlinkSource, state: str, rows: pa.Table | None = None) -> StateEdit:
    """An edit that removes the first row of a state."""
    first = rows_of(source, state).slice(0, 1) if rows is None else rows
    return state_edit(source, state, first, first.slice(0, 0))


def addition(source: FlinkSource, state: str) -> StateEdit:
    """An edit that adds the first row of a state, as if its key were new."""
    first = rows_of(source, state).slice(0, 1)
    return state_edit(source, state, first.slice(0, 0), first)


@pytest.mark.parametrize(
    ("run", "place", "state", "edit", "message"),
    [
        ("rocksdb", 2, "kv-pojo.latest", addition, "key group of keys of .* follows from a hash code"),
        ("changelog", 0, "", None, "changelog backend"),
        ("void-hashmap", 0, "", None, "lists of values without bytes"),
        ("opaque-hashmap", 0, "", None, "does not say where one ends|no known form"),
    ],
)
def test_state_that_cannot_be_edited(
    run: str, place: int, state: str, edit: Callable[[FlinkSource, str], StateEdit] | None, message: str
) -> None:
    source = source_of(run, place)
    if not state:
        found = [each for each in source.states() if source.info(each).kind.startswith("operator")]
        state = found[0] if found else ""
    edits = [] if edit is None else [edit(source, state)]
    with pytest.raises(UnsupportedError, match=rf"(?s)EDIT_UNSUPPORTED.*({message})"):
        planned(source, edits, rewrite=edit is None)


def test_an_edit_is_no_batch() -> None:
    source = source_of("rocksdb", 2)
    with pytest.raises(UnsupportedError, match=r"EDIT_UNSUPPORTED.*no batches"):
        source.edit_plan(source.refs[-1][0], [removal(source, "kv-string.count")], EditOptions(as_batch=True))


def test_rows_that_contradict_each_other() -> None:
    source = source_of("rocksdb", 2)
    rows = rows_of(source, "kv-string.count").slice(0, 1)
    twice = pa.concat_tables([rows, rows])
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*two rows key="):
        planned(source, [state_edit(source, "kv-string.count", twice, rows.slice(0, 0))])
    ttl = rows_of(source, "ttl.ttl-value").slice(0, 1)
    other = ttl.set_column(
        ttl.schema.names.index("last_access"), ttl.schema.field("last_access"), pa.nulls(1, pa.timestamp("us", "UTC"))
    )
    with pytest.raises(UnsupportedError, match=r"EDIT_UNSUPPORTED.*last_access is None"):
        planned(source, [state_edit(source, "ttl.ttl-value", ttl, other)])
    timers = rows_of(source, "timers.event_user-timers").slice(0, 1)
    moved = timers.set_column(2, "timestamp_ms", pc.add(timers["timestamp_ms"], 1))
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*give both, and the same moment"):
        planned(source, [state_edit(source, "timers.event_user-timers", timers, moved)])


def test_old_metadata_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "_metadata").write_bytes(metadata(Operator(uid="a", subtasks=[subtask(version=2)]), version=2))
    with pytest.raises(UnsupportedError, match=r"EDIT_UNSUPPORTED.*version 2 of the metadata"):
        planned(source_at(tmp_path))


def test_records_in_flight_are_told_of() -> None:
    notes = planned(source_of("in-flight", 0)).notes
    assert any("records in flight" in each for each in notes)
