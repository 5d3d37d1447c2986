"""UnsafeRows that are written a column at a time, against a model that writes them one by one."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checkpoints.unsafe_row_cases import CASES, array_of, every_kind, schema_of, value_of
from support.checkpoints.unsafe_row_model import row_bytes
from support.rocksdb.compiled_loops import compiled_or_not  # noqa: F401

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.bytes.byte_parts import joined_parts
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.spark.checkpoint.spark_schema import (
    CALENDAR_INTERVAL,
    LONG,
    STRING,
    VARIANT,
    ArrayOf,
    Field,
    SparkType,
    StructOf,
    arrow_type,
)
from statestore.formats.spark.rows.strict_rows import check_strictly
from statestore.formats.spark.rows.unsafe_row import decode_rows
from statestore.formats.spark.rows.unsafe_row_encoding import row_parts

pytestmark = pytest.mark.usefixtures("compiled_or_not")


def encoded(columns: list[pa.Array], schema: StructOf, rows: int) -> list[bytes]:
    found: list[bytes] = joined_parts(row_parts(columns, schema, rows), rows).copied().to_pylist()
    return found


def columns_of(stored: list[bytes], schema: StructOf) -> list[pa.Array]:
    """The columns of rows of the model."""
    found = decode_rows(cells_of(pa.array(stored, pa.binary())), schema)
    return [found.field(number) for number in range(len(schema.fields))]


@pytest.mark.parametrize(("kind", "values", "expected"), CASES, ids=[str(case[0])[:60] for case in CASES])
def test_every_type_with_nulls_between(kind: Any, values: list[Any], expected: list[Any] | None) -> None:
    """Columns are made of Python's values, except where Arrow takes no such value."""
    schema = schema_of("long", kind, "void", "string")
    rows = [row for value in values for row in ((1, value, None, "s"), (None, None, None, None))]
    stored = [row_bytes(row, schema) for row in rows]
    columns = columns_of(stored, schema)
    shown = [each for value in expected or values for each in (value, None)]
    made = pa.array(shown, arrow_type(schema.fields[1].type))
    assert encoded([columns[0], made, *columns[2:]], schema, len(rows)) == stored


@settings(deadline=None, max_examples=150)
@given(st.lists(every_kind, min_size=1, max_size=4), st.integers(0, 20), st.randoms(use_true_random=False))
def test_random_schemas_are_written_as_the_model_writes_them(
    types: list[SparkType], rows: int, rng: random.Random
) -> None:
    schema = StructOf(tuple(Field("c", kind) for kind in types))
    stored = [row_bytes(tuple(value_of(kind, rng) for kind in types), schema) for _ in range(rows)]
    columns = columns_of(stored, schema)
    assert encoded(columns, schema, rows) == stored
    begin = rng.randrange(rows + 1)
    count = rng.randrange(rows - begin + 1)
    parts = [column.slice(begin, count) for column in columns]
    found = encoded(parts, schema, count)
    assert found == stored[begin : begin + count]
    check_strictly(cells_of(pa.array(found, pa.binary())), schema)


def test_more_fields_than_a_word_of_null_bits() -> None:
    schema = schema_of(*["integer"] * 130)
    rows = [tuple(None if number % 3 == k else number for number in range(130)) for k in range(3)]
    stored = [row_bytes(row, schema) for row in rows]
    assert encoded(columns_of(stored, schema), schema, 3) == stored


def test_more_elements_than_a_word_of_null_bits() -> None:
    schema = schema_of(array_of("byte"), array_of("string"))
    values = [None if number % 7 == 3 else number % 100 for number in range(150)]
    texts = [None if value is None else "x" * (value % 17) for value in values]
    stored = [row_bytes((values[:n], texts[:n]), schema) for n in (0, 1, 63, 64, 65, 150)]
    assert encoded(columns_of(stored, schema), schema, 6) == stored


def test_rows_without_fields() -> None:
    assert encoded([], StructOf(()), 2) == [b"", b""]
    schema = StructOf((Field("empty", StructOf(())),))
    stored = [row_bytes(((),), schema), row_bytes((None,), schema)]
    assert encoded(columns_of(stored, schema), schema, 2) == stored


def test_what_lies_under_nulls_is_not_written() -> None:
    """Arrow may have any values in fields of null structs, in null lists, and in null slots."""
    inner = StructOf((Field("s", STRING), Field("n", LONG)))
    schema = StructOf((Field("a", inner), Field("b", ArrayOf(LONG)), Field("c", STRING), Field("d", LONG)))
    valid = pa.py_buffer(np.packbits([True, False, True], bitorder="little"))
    fields = [pa.array(["x", "hidden", "y"]), pa.array([1, 99, 2])]
    structs = pa.StructArray.from_arrays(fields, ["s", "n"], mask=pa.array([False, True, False]))
    lists = pa.Array.from_buffers(
        pa.list_(pa.int64()),
        3,
        [valid, pa.py_buffer(np.array([0, 1, 3, 4], np.int32))],
        children=[pa.array([1, 8, 9, 2])],
    )
    hidden = pa.py_buffer(np.array([0, 1, 7, 8], np.int32))
    texts = pa.Array.from_buffers(pa.string(), 3, [valid, hidden, pa.py_buffer(b"xhiddeny")])
    numbers = pa.Array.from_buffers(pa.int64(), 3, [valid, pa.py_buffer(np.array([1, 99, 2]))])
    stored = [
        row_bytes(row, schema) for row in ((("x", 1), [1], "x", 1), (None, None, None, None), (("y", 2), [2], "y", 2))
    ]
    assert encoded([structs, lists, texts, numbers], schema, 3) == stored


def test_floating_numbers_keep_their_bits() -> None:
    schema = schema_of("double", "float")
    doubles = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x8000000000000000], "<u8").view("<f8")
    floats = np.array([0x7FC00001, 0xFFC00000, 0x80000000], "<u4").view("<f4")
    found = encoded([pa.array(doubles), pa.array(floats)], schema, 3)
    assert [row[8:16] for row in found] == [each.tobytes() for each in doubles]
    assert [row[16:24] for row in found] == [each.tobytes() + bytes(4) for each in floats]


NOT_NULL = StructOf((Field("n", LONG, nullable=False),))


@pytest.mark.parametrize(
    ("kind", "column", "error", "said"),
    [
        (STRING, pa.array(["a\ufffd"]), UnsupportedError, "U\\+FFFD"),
        (CALENDAR_INTERVAL, pa.array([pa.MonthDayNano([0, 0, 1001])]), InvalidInputError, "1001 nanoseconds"),
        (
            VARIANT,
            pa.StructArray.from_arrays([pa.array([b"v"]), pa.nulls(1, pa.binary())], ["value", "metadata"]),
            InvalidInputError,
            "field is null",
        ),
        (NOT_NULL, pa.array([{"n": None}], pa.struct([("n", pa.int64())])), InvalidInputError, "field n: found null"),
        (ArrayOf(STRING), pa.array([["b", "\ufffd"]]), UnsupportedError, "U\\+FFFD"),
    ],
)
def test_what_cannot_be_written_is_refused(
    kind: SparkType, column: pa.Array, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=f"EDIT_(UNSUPPORTED|REFUSED).*{said}"):
        row_parts([column], StructOf((Field("c", kind),)), len(column))


def test_decimals_at_their_limits() -> None:
    schema = schema_of("decimal(18,0)", "decimal(38,0)")
    wide = [0, 1, -1, 127, 128, -128, -129, 255, 256, 2**63, -(2**63), 2**64, 10**38 - 1, -(10**38) + 1]
    rows = [(Decimal(max(-(10**18) + 1, min(10**18 - 1, value))), Decimal(value)) for value in wide]
    stored = [row_bytes(row, schema) for row in rows]
    columns = [pa.array([row[n] for row in rows], pa.decimal128((18, 38)[n], 0)) for n in range(2)]
    assert encoded(columns, schema, len(rows)) == stored
