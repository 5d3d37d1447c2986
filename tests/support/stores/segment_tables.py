"""Tables with the columns of a segment, and segments made of them, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.compressed_write import Compression
from statestore.formats.segments.ipc_file import Batches, encode_file
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_columns import end_column, time_column
from statestore.formats.segments.segment_meta import OPEN, FileRef, Role, SegmentMeta
from statestore.formats.segments.segment_write import RowsOfBlock, encode_segment, write_blocks


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


def write_in_blocks(
    blocks: Sequence[pa.Table], role: Role = "closed", compression: Compression | None = None, paged: bool = False
) -> tuple[pa.Buffer, SegmentMeta]:
    """``write_blocks`` with one key column ``k`` and no late rows: the bytes of the file and its metadata."""
    written: list[pa.Buffer] = []

    def encode(name: str, schema: pa.Schema, batches: Batches) -> FileRef:
        data, ref = encode_file(name, schema, batches, paged=paged)
        written.append(data)
        return ref

    rows = [RowsOfBlock(table, np.zeros(table.num_rows, np.bool_)) for table in blocks]
    meta = write_blocks(
        encode,
        "segments/a.arrow",
        blocks[0].schema,
        rows,
        role=role,
        tombstone=False,
        key_names=["k"],
        compression=compression,
    )
    return written[0], meta


def opened_blocks(blocks: Sequence[pa.Table], compression: Compression | None) -> Segment:
    data, meta = write_in_blocks(blocks, compression=compression)
    return Segment(meta, data, store_schema(blocks[0]))


def typed_values(rows: int) -> pa.Table:
    """Columns of every kind of layout in an Arrow file, with nulls; they compress well."""
    numbers = range(rows)
    some = [number if number % 3 else None for number in numbers]
    return pa.table(
        {
            "flag": pa.array([None if n is None else n % 2 == 0 for n in some]),
            "small": pa.array([None if n is None else n % 100 for n in some], pa.int8()),
            "exact": pa.array([Decimal(number % 7) for number in numbers], pa.decimal128(30, 2)),
            "bytes": pa.array([None if n is None else b"ab" * (n % 4) for n in some], pa.binary()),
            "absent": pa.array([None] * rows, pa.string()),
            "list": pa.array([None if n is None else [1, None][: n % 3] for n in some], pa.list_(pa.int32())),
            "map": pa.array([[("a", n), ("b", None)][: n % 3] for n in numbers], pa.map_(pa.string(), pa.int64())),
            "nested": pa.array(
                [None if n is None else {"x": [{"y": str(n % 9)}]} for n in some],
                pa.struct([("x", pa.list_(pa.struct([("y", pa.string())])))]),
            ),
        }
    )


def table_of_all_types(rows: int, seed: int) -> pa.Table:
    """Rows with a column of each type that a store can have, with nulls and with none."""
    random = np.random.default_rng(seed)
    numbers = random.integers(-100, 100, rows)
    missing = random.random(rows) < 0.2
    texts = ["", "a", "ä" * 3, "text of some length", "x" * 33, "y" * 300]
    words = pa.array([texts[n] for n in random.integers(0, len(texts), rows)])
    typed = typed_values(rows)
    values = {f"typed_{name}": typed.column(name) for name in typed.column_names}
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32()):
        integers = pa.array(numbers, mask=missing).cast(pa.int32() if pa.types.is_date(kind) else kind)
        values[str(kind)] = integers.cast(kind)
    values["decimal"] = pa.array(numbers).cast(pa.decimal128(25, 2))
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.duration("us")):
        values[str(kind)] = pa.array(numbers, mask=missing).cast(kind)
    values["words"] = words
    values["some_words"] = pa.array(words.to_pylist(), mask=missing)
    keys = pa.array([f"key {number}" for number in range(rows)])
    starts = np.sort(random.integers(0, 10**9, rows))
    return segment_table(keys, starts, starts + 1, pa.table(values), np.ones(rows, np.int64))
