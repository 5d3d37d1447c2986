"""Rows that differ between a snapshot and an edit of it, against the rows of both as they are read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.flink.edited import planned, state_edit, written
from support.flink.fixtures import fixture, manifest
from support.flink.snapshot_reads import rows_of, source_at
from support.parameters import mostly_slow

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.errors import StateStoreError
from statestore.formats.flink.columns.value_bytes import plain_values
from statestore.formats.flink.differing_entries import _told_apart
from statestore.formats.flink.source import FlinkSource
from statestore.formats.flink.state_at import KeyedAt
from statestore.formats.values.without_pandas import arrow_bytes

RUNS = [("sql", 1), ("rocksdb", 2), ("rocksdb", 0), ("hashmap", 0), ("windows-rocksdb", 0), ("types-hashmap", 0)]


def bag(source: FlinkSource, batches: list[pa.RecordBatch], state: str) -> Counter[str]:
    names = [each for each in source.info(state).columns.names if each not in source.info(state).placement]
    return Counter(
        repr(row)
        for batch in batches
        for row in zip(*(plain_values(batch.column(name)) for name in names), strict=True)
    )


def of_first_key(rows: pa.Table) -> pa.Table:
    keys = [repr(each) for each in plain_values(rows["key"].combine_chunks())]
    return rows.filter(pa.array([key == keys[0] for key in keys]))


@pytest.mark.parametrize(("run", "place"), mostly_slow(RUNS, RUNS[:1]))
def test_pairs_differ_as_the_rows_do(run: str, place: int, tmp_path: Path) -> None:
    """Of states with rows less and of all others of their operators."""
    source = source_at(fixture(run) / manifest(run)["snapshots"][place]["path"])
    rows: dict[str, pa.Table] = {}
    for state in source.states():
        try:
            found = rows_of(source, state)
        except StateStoreError:
            continue
        if isinstance(source.at(state, source.newest(state)), KeyedAt) and found.num_rows:
            rows[state] = found
    keys = {
        state: [repr(each) for each in plain_values(found["key"].combine_chunks())] for state, found in rows.items()
    }
    gone = {
        state: each.filter(pa.array([key == keys[state][0] for key in keys[state]])) for state, each in rows.items()
    }
    edits = [state_edit(source, state, gone[state], gone[state].slice(0, 0)) for state in list(rows)[::2]]
    plan = planned(source, edits)
    target = written(plan, tmp_path / "target")
    compared = 0
    for state, found in rows.items():
        pairs = plan.differing_rows(state, source, target, found.schema.names)
        assert pairs is not None
        before, after = [], []
        for one, other in pairs:
            before += list(one)
            after += list(other)
        compared += sum(each.num_rows for each in before)
        old, new = (bag(source, each.to_batches(), state) for each in (found, rows_of(target, state)))
        assert bag(source, before, state) - bag(source, after, state) == old - new, state
        assert bag(source, after, state) - bag(source, before, state) == new - old, state
    assert compared == sum(each.removed.num_rows for each in edits) or "hashmap" in run


def test_an_entry_that_is_there_twice_is_not_taken_for_one() -> None:
    one, other = cells_of(arrow_bytes([b"a", b"a", b"b"])), cells_of(arrow_bytes([b"a", b"b", b"b"]))
    assert all(mask.all() for mask in _told_apart((one, one), (other, other)))
    single = cells_of(arrow_bytes([b"a", b"b", b"c"]))
    less = single.select(np.array([0, 2]))
    gone, come = _told_apart((single, single), (less, less))
    assert gone.tolist() == [False, True, False]
    assert come.tolist() == [False, False]


def test_other_key_groups_are_not_compared_so(tmp_path: Path) -> None:
    source = source_at(fixture("sql") / manifest("sql")["snapshots"][1]["path"])
    plan = planned(source, settings={"max_parallelism": "300"})
    target = written(plan, tmp_path / "target")
    keyed = [each for each in source.states() if isinstance(source.at(each, source.newest(each)), KeyedAt)]
    assert keyed
    assert all(plan.differing_rows(each, source, target, ("key",)) is None for each in keyed)
