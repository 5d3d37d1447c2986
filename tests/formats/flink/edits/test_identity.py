"""Snapshots copied without a change: they read cell by cell the same, and canonical streams have the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.archives import unpacked
from support.flink.edited import planned, written
from support.flink.fixtures import BACKEND_NAMES, MORE_NAMES, NAMES, fixture, manifest
from support.flink.snapshot_reads import rows_of, source_at, streams_of, tree_of
from support.parameters import mostly_slow
from support.paths import DATA

from statestore.formats.errors import NotFoundError, StateStoreError
from statestore.formats.flink.columns.value_bytes import plain_values
from statestore.formats.flink.snapshot.handles import EmptyHandle, InPlace, KeyGroupHandle, RelativeHandle
from statestore.formats.flink.source import FlinkSource

INCOMPLETE = "in-flight"  # without the files of records in flight
RUNS = [name for name in (*NAMES, *MORE_NAMES) if name != INCOMPLETE]
ALL = [(name, place) for name in RUNS for place in range(len(manifest(name)["snapshots"]))]
QUICK = [("rocksdb", 0), ("rocksdb", 2), ("hashmap", 0), ("sql", 0), ("merged-operator", 0)]


OTHERS = {
    **{"connectors": 2, "evolved": 2, "kinesis-consumer": 1, "python-states": 4, "scala-events": 2, "scala-numbers": 3},
    **{"sql-keys": 2, "sql-views": 3, "subclasses": 2},
}
"""Archives without facts about their snapshots, and the number of these."""
COPIED = [
    *ALL,
    *((name, place) for name in BACKEND_NAMES for place in range(len(manifest(name)["snapshots"]))),
    *((name, place) for name, count in OTHERS.items() for place in range(count)),
]


def folder_of(run: str, place: int) -> Path:
    if run in OTHERS:
        return sorted(unpacked(DATA / "flink" / f"{run}.tar.xz").rglob("_metadata"))[place].parent
    found: str = manifest(run)["snapshots"][place]["path"]
    return fixture(run) / found


def sorted_rows(rows: pa.Table) -> list[str]:
    """Rows as texts in one order, without the bytes that a stored entry has, which differ by the form."""
    names = [name for name in rows.schema.names if name != "stored_bytes"]
    columns = [plain_values(rows.column(name).combine_chunks()) for name in names]
    return sorted(map(repr, zip(*columns, strict=True)))


def states_of(source: FlinkSource) -> dict[str, Any]:
    """The rows of each state, or the code of the error of its read."""
    found: dict[str, Any] = {}
    for state in source.states():
        try:
            found[state] = sorted_rows(rows_of(source, state))
        except StateStoreError as error:
            found[state] = str(error.code)
    return found


@pytest.mark.parametrize(("run", "place"), mostly_slow(COPIED, [*QUICK, ("logged-generic", 0), ("evolved", 0)]))
def test_a_copy_reads_as_its_source(run: str, place: int, tmp_path: Path) -> None:
    folder = folder_of(run, place)
    whole = folder if run in OTHERS else fixture(run)
    source, before = source_at(folder), tree_of(whole)
    copy = written(planned(source), tmp_path / "target")
    assert states_of(copy) == states_of(source)
    assert tree_of(whole) == before
    streams = streams_of(copy.opened(copy.refs[-1][0]).metadata)
    assert all(isinstance(each, InPlace | RelativeHandle | EmptyHandle) for each in streams)


@pytest.mark.parametrize(("run", "place"), mostly_slow(ALL, QUICK))
def test_keyed_state_written_anew_has_the_same_rows(run: str, place: int, tmp_path: Path) -> None:
    source = source_at(folder_of(run, place))
    try:
        plan = planned(source, rewrite=True)
        copy = written(plan, tmp_path / "target", by_tasks=True)
    except StateStoreError as error:
        assert error.code in ("EDIT_UNSUPPORTED", "FLINK_OPAQUE", "FLINK_UNSUPPORTED"), error
        assert run in ("changelog", "opaque-hashmap", "custom-hashmap", "shapes-hashmap", "void-hashmap"), error
        return
    assert states_of(copy) == states_of(source)


@pytest.mark.parametrize("run", ["hashmap", "rocksdb", "sql"])
def test_a_canonical_savepoint_that_is_written_anew_has_the_same_streams(run: str, tmp_path: Path) -> None:
    """Of Flink 2.3, whose blocks are not compressed in these runs."""
    (facts,) = [each for each in manifest(run)["snapshots"] if each["kind"] == "savepoint-canonical"]
    source = source_at(fixture(run) / facts["path"])
    plan = planned(source, rewrite=True)
    written(plan, tmp_path / "target")
    old, new = source.opened(source.refs[-1][0]), source_at(tmp_path / "target").opened(source.refs[-1][0])
    for before, after in zip(old.metadata.operators, new.metadata.operators, strict=True):
        for mine, other in zip(before.subtasks, after.subtasks, strict=True):
            was, now = mine.managed_keyed, other.managed_keyed
            if not isinstance(was, KeyGroupHandle) or not isinstance(now, KeyGroupHandle):
                assert mine == other
                continue
            assert was.offsets == now.offsets
            assert old.files.read(was.stream) == new.files.read(now.stream)


def test_a_snapshot_without_its_files_is_not_copied(tmp_path: Path) -> None:
    source = source_at(folder_of(INCOMPLETE, 0))
    with pytest.raises(NotFoundError, match="FLINK_FILE_MISSING"):
        written(planned(source), tmp_path / "target")
