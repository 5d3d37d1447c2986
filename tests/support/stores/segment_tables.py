"""Tables with the columns of a segment, and segments made of them, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import OPEN, Role, SegmentMeta
from statestore.formats.segments.segment_write import encode_segment, end_column, time_column


def segment_table(
    keys: pa.Array,
    starts: Sequence[int] | Ints,
    ends: Sequence[int] | Ints,
    values: pa.Table | None = None,
    added: Sequence[int] | Ints | None = None,
    closed: Sequence[int] | Ints | None = None,
    split: Sequence[bool] | None = None,
    dropped: Sequence[int] | None = None,
) -> pa.Table:
    """Key column ``k``, the value columns, and the system columns; ``dropped`` makes it a belief segment's."""
    zeros = [0] * len(keys)
    table = pa.table({"k": keys})
    for name in values.column_names if values is not None else ():
        table = table.append_column(name, values.column(name))  # type: ignore[union-attr]
    table = table.append_column("valid_from", time_column(np.asarray(starts, np.int64)))
    table = table.append_column("valid_to", end_column(np.asarray(ends, np.int64)))
    table = table.append_column("_added", pa.array(zeros if added is None else added, pa.int64()))
    table = table.append_column("_closed", pa.array(zeros if closed is None else closed, pa.int64()))
    table = table.append_column("_split", pa.array(split or [False] * len(keys), pa.bool_()))
    return table if dropped is None else table.append_column("_dropped", pa.array(dropped, pa.int64()))


def random_table(rows: int, seed: int = 0) -> pa.Table:
    """Rows in order of time, half of them open, with a double ``price`` that is null now and then."""
    random = np.random.default_rng(seed)
    starts = np.sort(random.integers(0, 10**12, rows))
    ends = np.where(random.random(rows) < 0.5, OPEN, starts + 1000)
    prices = pa.array(random.random(rows), mask=random.random(rows) < 0.1)
    keys = pa.array([f"item-{number}" for number in random.integers(0, rows, rows)])
    added = np.sort(random.integers(1, 9, rows))
    return segment_table(keys, starts, ends, pa.table({"price": prices}), added, added + (ends != OPEN))


def write(table: pa.Table, role: Role = "delta", **changes: Any) -> tuple[pa.Buffer, SegmentMeta]:
    """``encode_segment`` with the arguments that a test does not care about filled in."""
    arguments: dict[str, Any] = {
        "role": role,
        "tombstone": False,
        "key_names": ["k"],
        "late": np.zeros(table.num_rows, np.bool_),
        "key_groups": (0, 127),
    }
    return encode_segment("segments/a.arrow", table, **{**arguments, **changes})


def store_schema(table: pa.Table) -> pa.Schema:
    """The columns of this table as a store declares them: only values and ends may be null."""
    required = {"k", "valid_from", "_added", "_closed", "_split", "_dropped"}
    return pa.schema([field.with_nullable(field.name not in required) for field in table.schema])


def opened(table: pa.Table, role: Role = "delta", **changes: Any) -> Segment:
    data, meta = write(table, role, **changes)
    return Segment(meta, data, store_schema(table))
