"""Edits of checkpoints of the changelog backend, whose keyed state becomes that of canonical savepoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.flink.edited import planned, state_edit, written
from support.flink.fixtures import fixture, manifest
from support.flink.snapshot_reads import rows_of, source_at
from support.parameters import mostly_slow

from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.flink.columns.value_bytes import plain_values
from statestore.formats.flink.edits import key_group_runs
from statestore.formats.flink.snapshot.handles import KeyGroupHandle
from statestore.formats.flink.source import FlinkSource
from statestore.formats.flink.state_at import KeyedAt

RUNS = [
    ("logged-windows-1.20", 1),
    ("logged-hashmap-snappy", 0),
    ("logged-hashmap-snappy", 2),
    ("logged-rocksdb", 0),
    ("logged-rocksdb", 1),
]


def source_of(run: str, place: int) -> FlinkSource:
    return source_at(fixture(run) / manifest(run)["snapshots"][place]["path"])


def shown(source: FlinkSource) -> dict[str, list[str]]:
    """The rows of each state as texts, or the code of the error of its read."""
    found: dict[str, list[str]] = {}
    for state in source.states():
        try:
            rows = rows_of(source, state)
        except StateStoreError as error:
            found[state] = [str(error.code)]
            continue
        names = [name for name in rows.schema.names if name not in ("stored_bytes", "key_group")]
        columns = [plain_values(rows.column(name).combine_chunks()) for name in names]
        found[state] = sorted(map(repr, zip(*columns, strict=True)))
    return found


@pytest.mark.parametrize(("run", "place"), mostly_slow(RUNS, RUNS[:1]))
def test_what_was_logged_is_in_the_target(
    run: str, place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its first row of each state, and with other key groups; entries are brought into order in a file."""
    source = source_of(run, place)
    before = shown(source)
    copy = written(planned(source), tmp_path / "copy", by_tasks=True)
    assert shown(copy) == before
    handles = [
        task.managed_keyed for each in copy.opened(copy.refs[-1][0]).metadata.operators for task in each.subtasks
    ]
    assert all(each is None or isinstance(each, KeyGroupHandle) for each in handles)
    edits = []
    for state, rows in before.items():
        at = source.at(state, source.newest(state))
        if len(rows) > 1 and isinstance(at, KeyedAt) and at.form.kind != "list":
            first = rows_of(source, state).slice(0, 1)
            edits.append(state_edit(source, state, first, first.slice(0, 0)))
    assert len(edits) > 3
    monkeypatch.setattr(key_group_runs, "MOST", 1000)
    moved = written(planned(source, edits, settings={"max_parallelism": "300"}), tmp_path / "moved")
    after = shown(moved)
    for edit in edits:
        assert set(after[edit.state]) < set(before[edit.state])
        at = source.at(edit.state, source.newest(edit.state))
        if not (isinstance(at, KeyedAt) and at.form.kind == "timers"):  # which follow the rows of their key
            assert len(after[edit.state]) == len(before[edit.state]) - 1
    others = before.keys() - {edit.state for edit in edits}
    assert {state: after[state] for state in others} == {state: before[state] for state in others}


def test_a_backend_that_has_materialized_nothing_is_refused() -> None:
    """Its keys' serializer is in no file, but a canonical savepoint begins with it."""
    with pytest.raises(UnsupportedError, match=r"EDIT_UNSUPPORTED.*changelog backend and was not materialized yet"):
        planned(source_of("logged-generic", 0), settings={"max_parallelism": "300"})
