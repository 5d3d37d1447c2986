"""Compacted copies of real checkpoints: rows that were deleted have left no trace in any file, the receipt included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.running_queries import opened, rows_of
from support.checkpoints.spark_state_fixtures import ARCHIVE, LOCAL, MORE, checkpoint_path, index, multiset
from support.checkpoints.stored_state import Stored, stored
from support.engines.toy_edits import tree
from support.parameters import mostly_slow
from support.plain_files import files_with

from statestore.catalog.edits.apply import apply_edit
from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.errors import NotFoundError
from statestore.formats.spark.checkpoint.checkpoint import open_checkpoint
from statestore.formats.spark.source import CheckpointSource

WINDOW, DISTINCT = 12, 6
"""Bytes of a trace, and how many of them differ: too many to be there by chance."""
REFUSED = ("spark4.3.0-limit__rkcl",)
EMPTY = ("spark4.0.5-groups__hdfs", "spark4.0.5-groups1__hdfs")
NAMES = [
    (name, archive) for archive in (ARCHIVE, MORE) for name in sorted(index(archive)) if name not in (*REFUSED, *EMPTY)
]
QUICK = [
    ("spark4.3.0-agg__hdfs", ARCHIVE),
    ("spark4.0.1-agg__rk2", ARCHIVE),
    ("spark4.3.0-agg__rkv2", ARCHIVE),
    ("spark4.3.0-agg__rkck", ARCHIVE),
    ("spark4.3.0-join__hdfs", ARCHIVE),
    ("spark4.3.0-twsttl__rk", ARCHIVE),
    ("spark4.3.0-names__hdfs", MORE),
]

COMPACT = EditOptions(settings={"compact": "true"})


def erasing(source: CheckpointSource) -> tuple[list[StateEdit], dict[str, pa.Table]]:
    """The edits that remove one key from all states that have it, and the rows that are left."""
    edits, left = [], {}
    chosen: Any = None
    for state in source.states():
        rows = rows_of(source, state)
        keys = rows["key"].to_pylist()
        chosen = keys[len(keys) // 2] if chosen is None and keys else chosen
        mine = pa.array([key == chosen for key in keys], pa.bool_())
        if not any(mine.to_pylist()):
            continue
        unit = rows.filter(mine)
        edits.append(StateEdit(state, ("key",), unit, unit.slice(0, 0)))
        left[state] = rows.filter(pa.compute.invert(mine))
    return edits, left


def windows(content: bytes) -> set[bytes]:
    found = {content[at : at + WINDOW] for at in range(len(content) - WINDOW + 1)}
    return {each for each in found if len(set(each)) >= DISTINCT}


def traces(path: Path, after: Stored) -> set[bytes]:
    """Parts of rows that a checkpoint had in late batches under keys that are not there any more, and no other row
    has."""
    found: set[bytes] = set()
    for batch in opened(path).checkpoint.batches[-3:]:
        try:
            before = stored(open_checkpoint(LOCAL, str(path), batch))
        except NotFoundError:  # a batch of which not all files are kept
            continue
        for place, rows in before.items():
            for key in rows.keys() - after[place].keys():
                found |= {key, rows[key][1]} | windows(key) | windows(rows[key][1])
    others = b"|".join(part for rows in after.values() for key, (_, value) in rows.items() for part in (key, value))
    return {each for each in found if len(each) >= WINDOW and each not in others}


@pytest.mark.parametrize(("name", "archive"), mostly_slow(NAMES, QUICK))
def test_a_deleted_key_leaves_no_trace(name: str, archive: Path, tmp_path: Path) -> None:
    path = checkpoint_path(name, archive)
    source, was = opened(path), tree(path)
    edits, left = erasing(source)
    newest = source.checkpoint.batch.batch_id
    statements = ("DELETE FROM state WHERE key = 'someone'",)
    receipt = apply_edit(source, newest, edits, tmp_path / "target", COMPACT, statements=statements)
    target = opened(tmp_path / "target")
    assert tree(path) == was
    assert {state: multiset(rows_of(target, state)) for state in left} == {k: multiset(v) for k, v in left.items()}
    assert target.checkpoint.batches == (newest,)
    assert all(list(target.kept(state)) == [newest] for state in target.states())
    searched = traces(path, stored(target.checkpoint))
    assert searched and files_with(path, searched), name
    assert files_with(tmp_path / "target", searched | {b"someone"}) == set()
    assert any("in no file of the target" in note for note in receipt.notes)


@pytest.mark.parametrize("name", ["spark4.3.0-agg__hdfs", "spark4.3.0-agg__rk", "spark4.3.0-agg__rkcl"])
def test_without_compaction_files_of_earlier_batches_have_the_rows(name: str, tmp_path: Path) -> None:
    """It is told with the name of the setting; and the search of the other tests finds what is there."""
    path = checkpoint_path(name)
    source = opened(path)
    edits, _ = erasing(source)
    receipt = apply_edit(source, source.checkpoint.batch.batch_id, edits, tmp_path / "target", EditOptions())
    assert files_with(tmp_path / "target", traces(path, stored(opened(tmp_path / "target").checkpoint)))
    assert any("--compact" in note for note in receipt.notes)
