"""Segments of several blocks: each block is sorted by itself and has statistics of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from statestore.formats.errors import CorruptError, InvalidInputError, UnsupportedError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.ipc_file import Batches, encode_file
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_columns import end_column, time_column
from statestore.formats.segments.segment_meta import OPEN, FileRef, SegmentMeta, segment_meta_from_json, to_json
from statestore.formats.segments.segment_write import RowsOfBlock, write_blocks

TIMES = [(1_000, 5_000), (2_000, 4_000), (3_000, 5_000)], [(1_000, 9_000), (2_000, OPEN)]


def block(times: list[tuple[int, int]], late: int = 0) -> RowsOfBlock:
    starts, ends = (np.array(column, np.int64) for column in zip(*times, strict=True))
    count = len(times)
    table = pa.table(
        {
            "k": pa.array([f"{start}-{end}" for start, end in times]),
            "v": pa.array(range(count)),
            "valid_from": time_column(starts),
            "valid_to": end_column(ends),
            "_added": pa.array([1] * count),
            "_closed": pa.array([0 if end == OPEN else 2 for _, end in times]),
            "_split": pa.array([False] * count),
        }
    )
    return RowsOfBlock(table, np.arange(count) < late)


def written(*blocks: RowsOfBlock) -> tuple[pa.Buffer, SegmentMeta]:
    data: list[pa.Buffer] = []

    def write(name: str, schema: pa.Schema, batches: Batches) -> FileRef:
        encoded, ref = encode_file(name, schema, batches)
        data.append(encoded)
        return ref

    schema = block(TIMES[0]).table.schema
    meta = write_blocks(write, "segments/a.arrow", schema, blocks, role="closed", tombstone=False, key_names=["k"])
    return data[0], meta


def opened(data: pa.Buffer, meta: SegmentMeta) -> Segment:
    schema = block(TIMES[0]).table.schema
    required = {"k", "valid_from", "_added", "_closed", "_split"}
    return Segment(meta, data, pa.schema([field.with_nullable(field.name not in required) for field in schema]))


def test_each_block_has_the_statistics_of_its_rows() -> None:
    _, meta = written(block(TIMES[0], late=2), block(TIMES[1]))
    first, second = meta.blocks
    assert (first.rows, first.min_valid_from, first.max_valid_from) == (3, 1_000, 3_000)
    assert (first.min_valid_to, first.max_valid_to, first.late_added, first.last_closed) == (4_000, 5_000, 1, 2)
    assert (second.rows, second.min_valid_to, second.max_valid_to, second.late_added) == (2, 9_000, OPEN, 0)
    assert (meta.rows, meta.min_valid_to, meta.max_valid_to, meta.open_rows) == (5, 4_000, OPEN, 1)
    assert (meta.key_min, meta.key_max) == (("1000-5000",), ("3000-5000",))
    assert [(begin, found.rows) for begin, found in meta.spans()] == [(0, 3), (3, 2)]
    assert segment_meta_from_json(to_json(meta)) == meta


def test_rows_are_read_back_over_all_blocks() -> None:
    data, meta = written(block(TIMES[0]), block(TIMES[1]))
    segment = opened(data, meta)
    segment.verify_all()
    starts: Ints = segment.int64("valid_from")
    assert starts.tolist() == [1_000, 2_000, 3_000, 1_000, 2_000]
    assert segment.take("v", np.array([4, 0])).to_pylist() == [1, 0]


def test_rows_must_be_sorted_within_each_block() -> None:
    with pytest.raises(InvalidInputError, match="not sorted"):
        written(block(TIMES[0]), block(TIMES[1][::-1]))


def test_a_segment_needs_a_block() -> None:
    with pytest.raises(InvalidInputError, match="no rows"):
        written()


def test_borders_that_are_not_those_of_the_rows_are_damage() -> None:
    data, meta = written(block(TIMES[0]), block(TIMES[1]))
    first, second = meta.blocks
    moved = replace(meta, blocks=(replace(first, rows=4), replace(second, rows=1)))
    with pytest.raises(CorruptError, match="has 3 rows, the commit says 4"):
        opened(data, moved).verify_all()


def test_rows_that_are_not_sorted_are_damage() -> None:
    _, meta = written(block(TIMES[0]))
    first = meta.blocks[0]
    unsorted, other = written(block([(1_000, 5_000)]), block([(3_000, 5_000)]), block([(2_000, 4_000)]))
    claimed = replace(other, blocks=(replace(first, rows=3, batch_rows=1),))
    with pytest.raises(CorruptError, match="rows 0 to 3 are not sorted"):
        opened(unsorted, claimed).verify_all()


def test_a_file_with_blocks_is_not_taken_for_one_without() -> None:
    data, meta = written(block(TIMES[0]), block(TIMES[1]))
    with pytest.raises((CorruptError, UnsupportedError), match="segment/2"):
        opened(data, replace(meta, blocks=()))
