"""Random histories against the plain-Python model: every answer at every state time and every version, together."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from versioned_model import Model, Row

import statestore
from statestore.catalog import compaction, maintenance, new_files
from statestore.catalog.invariants import (
    layout_violations,
    pruning_violations,
    uniqueness_violations,
)

DEEP = "STATESTORE_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("STATESTORE_EXAMPLES", "40"))
HORIZON = 24  # state times are 0 … HORIZON - 1

keys = st.sampled_from(["a", "b", "c"])
values = st.one_of(st.none(), st.integers(0, 9))
times = st.integers(0, HORIZON - 1)
puts = st.tuples(keys, values, times)
steps = st.one_of(
    st.tuples(st.just("put"), puts),
    st.tuples(st.just("put"), puts),
    st.tuples(st.just("put_all"), st.lists(puts, max_size=6)),
    st.tuples(st.just("write"), st.lists(puts, min_size=1, max_size=6)),
    st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("compact"), st.booleans()),
    st.tuples(st.just("reopen"), st.none()),
)


@pytest.fixture(autouse=True, scope="module")
def small_thresholds() -> Iterator[None]:
    """Thresholds for millions of rows, made small enough that a dozen rows reach every path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "SEAL_MIN_ROWS", 3)
        patch.setattr(compaction, "MINOR_DELTAS", 3)
        patch.setattr(compaction, "LATE_MIN_ROWS", 2)
        patch.setattr(compaction, "BELIEF_FILES", 2)
        patch.setattr(maintenance, "SEAL_MIN_ROWS", 3)
        patch.setattr(maintenance, "MINOR_DELTAS", 3)
        patch.setattr(new_files, "INDEX_MIN_ROWS", 4)
        yield


class Pair:
    """The store and the model, driven together."""

    def __init__(self, folder: str, retention: int | None, auto_compact: bool) -> None:
        self.catalog = statestore.connect(folder)
        self.catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"}, history_retention=retention)
        self.auto_compact = auto_compact
        self.model = Model(retention)
        self.store = self.catalog.open_store("s", auto_compact=auto_compact)

    def step(self, name: str, argument: Any) -> None:
        getattr(self, name)(argument)
        self.follow()

    def follow(self) -> None:
        """Versions that compactions took hold what the version before them held."""
        while len(self.model.states) <= self.store.version:
            self.model.same_again()
        assert len(self.model.states) == self.store.version + 1

    def put(self, argument: tuple[str, int | None, int]) -> None:
        assert tuple(self.store.put(argument[0], argument[1], timestamp=argument[2])) == self.model.put(*argument)

    def put_all(self, rows: list[tuple[str, int | None, int]]) -> None:
        accepted = sum(self.model.put(*row)[0] for row in rows)
        assert self.store.put_all(as_table(rows)) == (accepted, len(rows) - accepted)

    def write(self, rows: list[tuple[str, int | None, int]]) -> None:
        self.commit(None)
        self.follow()
        for row in rows:
            self.model.put(*row)
        self.store.write(as_table(rows))
        self.model.commit()

    def commit(self, _: None) -> None:
        if self.model.pending or self.store._dropped:
            self.model.commit()
        self.store.commit()

    def compact(self, full: bool) -> None:
        self.store.compact(full=full)

    def reopen(self, _: None) -> None:
        dropped = self.store._dropped
        self.store.close()
        self.store = self.catalog.open_store("s", auto_compact=self.auto_compact)
        self.model.dropped -= dropped  # refusals are recorded by the next commit of the handle that counted them


def as_table(rows: list[tuple[str, int | None, int]]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([k for k, _, _ in rows], pa.string()),
            "v": pa.array([v for _, v, _ in rows], pa.int64()),
            "timestamp": pa.array([t for _, _, t in rows], pa.int64()),
            "_change_type": pa.array(["delete" if v is None else "insert" for _, v, _ in rows], pa.string()),
        }
    )


def rows_of(reader: pa.RecordBatchReader, *columns: str) -> list[Row]:
    table = reader.read_all()
    table = table.cast(
        pa.schema([f.with_type(pa.int64()) if pa.types.is_timestamp(f.type) else f for f in table.schema])
    )
    cells = [
        [None if x is None else x // 1000 for x in table[c].to_pylist()]
        if c.startswith("valid_")
        else table[c].to_pylist()
        for c in columns
    ]
    return list(zip(*cells, strict=True))


def check_everything(pair: Pair) -> None:
    store, model = pair.store, pair.model
    check_points(pair)
    snapshot = store._snapshot
    assert layout_violations(store._files, snapshot) == []
    for version in range(store.version + 1):
        assert uniqueness_violations(store._files, snapshot, version) == []
        found = rows_of(store.history(version=version), "k", "v", "valid_from", "valid_to", "_commit_version")
        assert len(found) == len(set(found)) and set(found) == model.history(version), f"history at {version}"
        for time in [None, *range(-1, HORIZON + 1, 1 if DEEP else 3)]:
            found = rows_of(store.scan(version=version, as_of=time), "k", "v", "valid_from", "valid_to")
            assert len(found) == len(set(found)), f"version {version}, time {time}"
            assert set(found) == model.snapshot(version, time), f"version {version}, time {time}"
            if time is not None:
                assert pruning_violations(store._files, snapshot, time * 1000, version) == []
    check_changes(pair)


def check_points(pair: Pair) -> None:
    store, model = pair.store, pair.model
    assert store.observed_stream_time == model.stream_time
    assert store.dropped_records == model.dropped
    for key in "abcd":
        assert as_row(store.get(key)) == model.get(key)
        for time in range(-1, HORIZON + 1):
            assert as_row(store.get(key, as_of=time)) == model.get(key, time), f"{key} as of {time}"
        if model.retention is None:
            expected = sorted((t, v) for t, v in model.current.get(key, {}).items() if v is not None)
            assert [(r.valid_from, r.value) for r in store.get_versions(key, ascending=True)] == expected


def check_changes(pair: Pair) -> None:
    store, model = pair.store, pair.model
    names = ("_commit_version", "valid_from", "k", "_change_type", "v")
    for first in range(0, store.version + 1):
        last = store.version if first % 2 else first
        found = sorted(rows_of(store.changes(start_version=first, end_version=last), *names))
        assert found == model.changes(first, last), f"changes {first} to {last}"
    for low, high in ((0, HORIZON), (5, 12), (7, 7)):
        found = sorted(rows_of(store.changes(start_timestamp=low, end_timestamp=high), *names))
        assert found == model.changes_by_time(low, high), f"changes from time {low} to {high}"


def as_row(record: statestore.Record | None) -> Row | None:
    return None if record is None else tuple(record)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=1, max_size=40), st.sampled_from([None, None, 5, 0]), st.booleans())
def test_random_history(program: list[tuple[str, Any]], retention: int | None, auto_compact: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(folder, retention, auto_compact)
        for name, argument in program:
            pair.step(name, argument)
        check_points(pair)
        pair.step("commit", None)
        check_everything(pair)
        pair.step("compact", True)
        check_everything(pair)
        pair.store.close()
