"""A store of one text key `k` and one bigint value `v` against the model: rows in, rows out, every answer compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

import statestore
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter
from support.stores.layout_invariants import (
    layout_violations,
    pruning_violations,
    uniqueness_violations,
)
from support.stores.versioned_model import Model, Row

HORIZON = 24  # state times of tests are 0 … HORIZON - 1
INTERVAL = ("k", "v", "valid_from", "valid_to")
CHANGE = ("_commit_version", "valid_from", "k", "_change_type", "v")

Put = tuple[str, int | None, int]


def create(catalog: statestore.Catalog, name: str = "s", retention: int | None = None) -> VersionedStore:
    return catalog.create_store(name, key={"k": "string"}, value={"v": "bigint"}, history_retention=retention)


def as_table(rows: Sequence[Put]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([k for k, _, _ in rows], pa.string()),
            "v": pa.array([v for _, v, _ in rows], pa.int64()),
            "timestamp": pa.array([t for _, _, t in rows], pa.int64()),
            "_change_type": pa.array(["delete" if v is None else "insert" for _, v, _ in rows], pa.string()),
        }
    )


def rows_of(reader: pa.RecordBatchReader, *columns: str) -> list[Row]:
    """The answer's rows, times in epoch milliseconds."""
    return table_rows(reader.read_all(), *columns)


def table_rows(table: pa.Table, *columns: str) -> list[Row]:
    """The rows of a table, times in epoch milliseconds."""
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


def as_row(record: statestore.Record | None) -> Row | None:
    return None if record is None else tuple(record)


def check_answers(
    store: VersionedStore, model: Model, times: Iterable[int | None], versions: Iterable[int] | None = None
) -> None:
    """Check history and scans of all (or these) versions at these times, and the changes of every version."""
    times = list(times)
    for version in range(store.version + 1) if versions is None else versions:
        found = rows_of(store.history(version=version), *INTERVAL, "_commit_version")
        assert len(found) == len(set(found)) and set(found) == model.history(version), f"history at {version}"
        for time in times:
            found = rows_of(store.scan(version=version, as_of=time), *INTERVAL)
            assert len(found) == len(set(found)), f"version {version}, time {time}"
            assert set(found) == model.state_at(version, time), f"version {version}, time {time}"
    if versions is None:
        for key in "abcd":
            found = rows_of(store.history(key=key), *INTERVAL, "_commit_version")
            assert len(found) == len(set(found)) and set(found) == model.history(store.version, key), (
                f"history of {key}"
            )
        changed = sorted(rows_of(store.changes(start_version=0), *CHANGE))
        assert changed == model.changes(0, store.version)


def check_everything(store: VersionedStore, model: Model, step: int = 3) -> None:
    """Check all answers, at every ``step``-th state time, and the invariants of the layout."""
    check_points(store, model)
    times = range(-1, HORIZON + 1, step)
    check_answers(store, model, [None, *times])
    log_state = store._log_state
    assert layout_violations(store._files, log_state) == []
    for version in range(store.version + 1):
        assert uniqueness_violations(store._files, log_state, version) == []
        for time in times:
            assert pruning_violations(store._files, log_state, time * 1000, version) == []
        check_newest_first(store, model, version)
    check_changes(store, model)


def check_newest_first(store: VersionedStore, model: Model, version: int) -> None:
    """Check that the histories of keys are whole, and that the newest rows can be known before all are read."""
    for key in "abcd":
        query = Query(mode="history", version=version, filters=(Filter("k", "=", key),))
        expected = model.history(version, key)
        newest = sorted((row[2] for row in expected), reverse=True)
        for some in (1, 2):
            batches = store.table.newest_first(query, some)
            assert (batches is None) != store._files.is_local
            if batches is None:
                continue
            read: list[Row] = []
            for rows, rest in batches:
                read += table_rows(pa.Table.from_batches([rows]), *INTERVAL, "_commit_version")
                starts = sorted((row[2] for row in read), reverse=True)
                if rest is None or (len(starts) >= some and starts[some - 1] * 1000 >= rest):
                    assert starts[:some] == newest[:some], f"newest of {key} at {version}"
            assert len(read) == len(set(read)) and set(read) == expected, f"newest first of {key} at {version}"


def check_points(store: VersionedStore, model: Model) -> None:
    assert store.observed_stream_time == model.stream_time
    assert store.dropped_records == model.dropped
    many = list("dabca")
    for time in (None, *range(-1, HORIZON + 1)):
        answers = [model.get(key, time) for key in many]
        assert [as_row(record) for record in store.get_many(many, as_of=time)] == answers, f"as of {time}"
    for key in "abcd":
        assert as_row(store.get(key)) == model.get(key)
        for time in range(-1, HORIZON + 1):
            assert as_row(store.get(key, as_of=time)) == model.get(key, time), f"{key} as of {time}"
        if model.retention is None:
            expected = sorted((t, v) for t, v in model.current.get(key, {}).items() if v is not None)
            assert [(r.valid_from, r.value) for r in store.get_versions(key, ascending=True)] == expected


def check_changes(store: VersionedStore, model: Model) -> None:
    for first in range(0, store.version + 1):
        last = store.version if first % 2 else first
        found = sorted(rows_of(store.changes(start_version=first, end_version=last), *CHANGE))
        assert found == model.changes(first, last), f"changes {first} to {last}"
    for low, high in ((0, HORIZON), (5, 12), (7, 7)):
        found = sorted(rows_of(store.changes(start_time=low, end_time=high), *CHANGE))
        assert found == model.changes_by_time(low, high), f"changes from time {low} to {high}"
