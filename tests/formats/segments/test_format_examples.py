"""The example files of docs/format.md: written once, readable for ever.

``PYTHONPATH=tests python tests/formats/segments/test_format_examples.py``
writes them anew; only a new format version may need that.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.paths import DATA, DOCS
from support.stores.segment_tables import segment_table, store_schema

from statestore.formats.segments.closures import SCHEMA as CLOSURES
from statestore.formats.segments.closures import encode_closures, read_closures
from statestore.formats.segments.key_index import SCHEMA as INDEX
from statestore.formats.segments.key_index import KeyIndex, encode_index
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_columns import SYSTEM_TYPES
from statestore.formats.segments.segment_meta import (
    OPEN,
    ClosureSlice,
    FileRef,
    SegmentMeta,
    closure_slice_from_json,
    file_ref_from_json,
    segment_meta_from_json,
    to_json,
)
from statestore.formats.segments.segment_write import encode_segment
from statestore.formats.values.key_hash import hash_keys, key_groups_of

FOLDER = DATA / "format-1"
COMMIT = FOLDER / "references.json"

# Commit 1: A=a1@10, B=b1@12. Commit 2: A=a2@20. Commit 3, late: A=a9@15. Then everything is compacted. Milliseconds.
OPEN_ROWS: dict[str, Any] = {"k": ["B", "A"], "v": ["b1", "a2"], "starts": [12, 20], "ends": [None, None],
                             "added": [1, 2], "closed": [0, 0], "split": [False, False]}  # fmt: skip
CLOSED_ROWS: dict[str, Any] = {"k": ["A", "A"], "v": ["a1", "a9"], "starts": [10, 15], "ends": [15, 20],
                               "added": [1, 3], "closed": [3, 3], "split": [True, False]}  # fmt: skip
BELIEF_ROWS: dict[str, Any] = {"k": ["A"], "v": ["a1"], "starts": [10], "ends": [20],
                               "added": [1], "closed": [2], "split": [False], "dropped": [3]}  # fmt: skip
SEGMENTS = {"open": OPEN_ROWS, "closed": CLOSED_ROWS, "belief": BELIEF_ROWS}
LATE = {"open": [False, False], "closed": [False, True], "belief": [False]}


def _table(rows: dict[str, Any]) -> pa.Table:
    values = pa.table({"v": pa.array(rows["v"])})
    starts = [1000 * start for start in rows["starts"]]
    ends = [OPEN if end is None else 1000 * end for end in rows["ends"]]
    system = (rows["added"], rows["closed"], rows["split"], rows.get("dropped"))
    return segment_table(pa.array(rows["k"]), starts, ends, values, *system)


def _references() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(COMMIT.read_text())
    return found


def _data(ref: FileRef) -> pa.Buffer:
    return pa.py_buffer((FOLDER / ref.name).read_bytes())


@pytest.mark.parametrize("role", SEGMENTS)
def test_segment(role: str) -> None:
    """Today's reader reads the segment, finds nothing wrong, and sees the rows of the worked example."""
    meta = segment_meta_from_json(_references()[role])
    table = _table(SEGMENTS[role])
    segment = Segment(meta, _data(meta.file), store_schema(table))
    segment.verify_all()
    (batch,) = segment.batches(table.column_names, 0, segment.rows)
    assert batch.to_pydict() == table.to_pydict()


def test_index() -> None:
    """The key index finds the rows of A."""
    meta = segment_meta_from_json(_references()["closed"])
    assert meta.index is not None
    index = KeyIndex.open(meta.index, _data(meta.index))
    index.verify_all()
    (key_hash,) = hash_keys([pa.array(["A"])])
    assert index.find(int(key_hash)) == [0, 1]


def test_closures() -> None:
    """The slices of a closure file hold the closings of two segments."""
    first, second = (closure_slice_from_json(piece) for piece in _references()["closures"])
    assert [(piece.segment, piece.version) for piece in (first, second)] == [("open.arrow", 4), ("closed.arrow", 4)]
    assert [array.tolist() for array in read_closures(first, _data(first.file))] == [[0, 1], [30_000, 25_000]]
    assert [array.tolist() for array in read_closures(second, _data(second.file))] == [[1], [18_000]]


@pytest.mark.parametrize("role", SEGMENTS)
def test_statistics_are_still_the_same(role: str) -> None:
    """Writing the rows again gives the same statistics (the bytes may differ by Arrow version)."""
    old = segment_meta_from_json(_references()[role])
    new = _write_segment(role, FOLDER, save=False)
    assert old.open_rows is None  # the release that wrote the example did not count them
    assert replace(new, file=old.file, index=old.index, open_rows=None) == old
    assert file_ref_from_json(to_json(new.file)) == new.file


def test_every_statistic_and_column_is_documented() -> None:
    """docs/format.md names whatever a commit says about a file, and every column."""
    text = (DOCS / "format.md").read_text()
    names = [field.name for kind in (FileRef, SegmentMeta, ClosureSlice) for field in fields(kind)]
    assert [name for name in [*names, *SYSTEM_TYPES, *INDEX.names, *CLOSURES.names] if f"`{name}`" not in text] == []


def _write_segment(role: Any, folder: Path, save: bool = True) -> Any:
    table = _table(SEGMENTS[role])
    hashes = hash_keys([table.column("k").combine_chunks()])
    groups = key_groups_of(np.array([hashes.min(), hashes.max()]), 128).tolist()
    late = np.array(LATE[role])
    name = f"{role}.arrow"
    data, meta = encode_segment(
        name, table, role=role, tombstone=False, key_names=["k"], late=late, key_groups=(groups[0], groups[1])
    )
    index, ref = encode_index(f"{role}.index.arrow", hashes)
    if save:
        (folder / name).write_bytes(data)
        (folder / ref.name).write_bytes(index)
    return replace(meta, index=ref)


def _write_all(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    references: dict[str, Any] = {role: to_json(_write_segment(role, folder)) for role in SEGMENTS}
    parts = [
        ("open.arrow", 4, np.array([0, 1]), np.array([30_000, 25_000])),
        ("closed.arrow", 4, np.array([1]), np.array([18_000])),
    ]
    data, slices = encode_closures("closures.arrow", parts)
    (folder / "closures.arrow").write_bytes(data)
    references["closures"] = [to_json(piece) for piece in slices]
    COMMIT.write_text(json.dumps(references, indent=2) + "\n")


if __name__ == "__main__":
    _write_all(FOLDER)
