"""UnsafeRows of every type against a model that writes them one by one, rows tampered with, and rows passed on."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checkpoints.spark_state_fixtures import QUICK, checkpoint_path, plain
from support.checkpoints.unsafe_row_cases import CASES, array_of, kinds, schema_of, value_of
from support.checkpoints.unsafe_row_model import row_bytes
from support.parameters import mostly_slow, named
from support.rocksdb.compiled_loops import compiled_or_not  # noqa: F401

import statestore
from statestore.catalog.engines.engine_table import EngineTable
from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.spark.checkpoint.spark_schema import (
    BINARY,
    LONG,
    STRING,
    ArrayOf,
    DecimalOf,
    Field,
    SparkType,
    StructOf,
    parse_schema,
)
from statestore.formats.spark.rows.unsafe_row import decode_rows, is_checkable, unsafe_cells
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter

pytestmark = pytest.mark.usefixtures("compiled_or_not")


def decoded(rows: list[tuple[Any, ...]], schema: StructOf) -> pa.StructArray:
    return decode_rows(cells_of(pa.array([row_bytes(row, schema) for row in rows], pa.binary())), schema)


@pytest.mark.parametrize(("kind", "values", "expected"), CASES, ids=[str(case[0])[:60] for case in CASES])
def test_every_type_with_nulls_between(kind: Any, values: list[Any], expected: list[Any] | None) -> None:
    schema = schema_of("long", kind, "void", "string")
    rows = [row for value in values for row in ((1, value, None, "s"), (None, None, None, None))]
    found = decoded(rows, schema)
    found.validate(full=True)
    wanted = [each for value in expected or values for each in (value, None)]
    assert found.field(1).to_pylist() == wanted
    assert found.field(0).to_pylist() == [1, None] * len(values)
    assert found.field(3).to_pylist() == ["s", None] * len(values)
    assert found.field(2).null_count == len(rows)


def test_more_fields_than_a_word_of_null_bits() -> None:
    schema = schema_of(*["integer"] * 130)
    row = tuple(None if number % 3 == 0 else number for number in range(130))
    assert list(decoded([row], schema)[0].as_py().values()) == list(row)


def test_a_row_without_fields() -> None:
    assert decoded([(), ()], schema_of()).to_pylist() == [{}, {}]


def test_names_may_repeat() -> None:
    schema = StructOf((Field("sum", STRING), Field("sum", STRING)))
    assert plain(decoded([("a", "b")], schema)) == [("a", "b")]


def test_bytes_that_are_not_text_are_shown_as_such() -> None:
    binary, text = StructOf((Field("c", BINARY),)), StructOf((Field("c", STRING),))
    rows = pa.array([row_bytes((b"a\xff",), binary), row_bytes((None,), binary)], pa.binary())
    assert decode_rows(cells_of(rows), text).field(0).to_pylist() == ["a�", None]


def test_a_slice_of_rows_is_read_from_its_own_start() -> None:
    schema = schema_of("string", "long")
    rows = pa.array([row_bytes((f"k{n}", n), schema) for n in range(9)], pa.binary())
    assert decode_rows(cells_of(rows.slice(4, 3)), schema).field(0).to_pylist() == ["k4", "k5", "k6"]


def hashable(value: Any) -> Any:
    return tuple(hashable(each) for each in value) if isinstance(value, list | tuple) else value


@settings(deadline=None, max_examples=40)
@given(st.lists(kinds, min_size=1, max_size=4), st.integers(0, 20), st.randoms(use_true_random=False))
def test_random_schemas_are_read_back(types: list[SparkType], rows: int, rng: random.Random) -> None:
    schema = StructOf(tuple(Field("c", kind) for kind in types))
    values = [tuple(value_of(kind, rng) for kind in types) for _ in range(rows)]
    found = decoded(values, schema)
    found.validate(full=True)
    assert plain(found) == [hashable(row) for row in values]


@settings(deadline=None, max_examples=60)
@given(st.lists(kinds, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_tampered_rows_are_refused_or_stay_valid(types: list[SparkType], rng: random.Random) -> None:
    schema = StructOf(tuple(Field("c", kind) for kind in types))
    rows = [bytearray(row_bytes(tuple(value_of(kind, rng) for kind in types), schema)) for _ in range(4)]
    for _ in range(rng.randrange(1, 4)):
        row = rng.choice(rows)
        at = rng.randrange(len(row))
        row[at] = rng.choice([0, 0x7F, 0x80, 0xFF, row[at] ^ (1 << rng.randrange(8))])
        if rng.random() < 0.1:
            del row[at:]
            row += b"\0"
    try:
        found = decode_rows(cells_of(pa.array([bytes(row) for row in rows], pa.binary())), schema)
    except CorruptError as error:
        assert error.code == "SPARK_STATE_ROW"
    else:
        found.validate()
        assert len(found) == 4


def test_values_that_overlap_are_refused_before_they_multiply() -> None:
    """Each element of an array claims all of it: nested, that would grow with the power of the depth."""
    kind = array_of(array_of(array_of("long")))
    schema = schema_of(kind)
    row = bytearray(row_bytes(([[[0] * 60]] * 30,), schema))
    for slot in range(30):
        at = 16 + 8 + 8 + 8 * slot
        row[at : at + 8] = np.array([len(row) - 16 - 240, 240], "<u4").tobytes()
    with pytest.raises(CorruptError, match="SPARK_STATE_ROW"):
        decode_rows(cells_of(pa.array([bytes(row)], pa.binary())), schema)


@pytest.mark.parametrize("kind", ["tensor(4326)", {"type": "cube"}, "decimal(39,2)", "object"])
def test_types_that_are_not_known_are_named(kind: Any) -> None:
    with pytest.raises(UnsupportedError, match="SPARK_STATE_UNSUPPORTED"):
        schema_of(kind)


@pytest.mark.parametrize(
    "text", ["", "7", "[]", '{"type":"struct"}', '"long"', "{" * 5000, '{"type":"struct","fields":[1]}']
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(CorruptError, match="SPARK_STATE_ROW"):
        parse_schema(text)


# Stored rows that are passed on to Spark as they are: their bytes, and rows whose pointers lead out of them


INNER = StructOf((Field("a", STRING), Field("n", LONG)))
SCHEMA = StructOf((Field("n", LONG), Field("s", STRING), Field("b", BINARY), Field("i", INNER)))
ROWS = [(1, "text", b"bytes", ("inside", 7)), (None, None, None, None), (3, "", b"", (None, None))]


def spans(rows: list[bytes]) -> Cells:
    return cells_of(pa.array(rows, pa.binary()))


def test_rows_are_passed_on_byte_by_byte() -> None:
    stored = [row_bytes(row, SCHEMA) for row in ROWS]
    assert unsafe_cells(spans(stored), SCHEMA).to_pylist() == stored
    found = spans(stored)
    order = np.array([2, 0])
    assert unsafe_cells(found.select(order), SCHEMA).to_pylist() == [stored[2], stored[0]]


@pytest.mark.parametrize("field", [1, 2, 3])
def test_a_pointer_out_of_its_row_is_refused(field: int) -> None:
    for size, offset in ((1 << 20, 40), (8, 1 << 30), (8, -8), (0xFFFFFFFF, 40), (80, 80)):
        stored = [bytearray(row_bytes(row, SCHEMA)) for row in ROWS]
        struct.pack_into("<Ii", stored[0], 8 + 8 * field, size, offset)
        with named((size, offset)), pytest.raises(CorruptError, match="SPARK_STATE_ROW"):
            unsafe_cells(spans([bytes(row) for row in stored]), SCHEMA)


def test_a_pointer_out_of_a_struct_within_a_row_is_refused() -> None:
    stored = bytearray(row_bytes(ROWS[0], SCHEMA))
    offset = struct.unpack_from("<Ii", stored, 8 + 8 * 3)[1]
    struct.pack_into("<Ii", stored, offset + 8, 8, 40)  # behind the struct
    with pytest.raises(CorruptError, match="SPARK_STATE_ROW"):
        unsafe_cells(spans([bytes(stored), bytes(64)]), SCHEMA)
    with pytest.raises(CorruptError, match="SPARK_STATE_ROW"):
        unsafe_cells(spans([row_bytes(ROWS[0], SCHEMA)[:32]]), SCHEMA)


def test_a_null_may_point_anywhere() -> None:
    stored = bytearray(row_bytes(ROWS[1], SCHEMA))
    struct.pack_into("<Ii", stored, 16, 1 << 20, 1 << 20)
    assert unsafe_cells(spans([bytes(stored)]), SCHEMA).to_pylist() == [bytes(stored)]


def test_types_whose_pointers_are_not_checked_are_not_passed_on() -> None:
    assert is_checkable(SCHEMA)
    assert not is_checkable(StructOf((*SCHEMA.fields, Field("l", ArrayOf(LONG)))))
    assert not is_checkable(StructOf((Field("i", StructOf((Field("l", ArrayOf(LONG)),))),)))
    assert not is_checkable(StructOf(()))
    wide = StructOf((Field("d", DecimalOf(38, 2)),))
    row = bytearray(16 + 24)
    struct.pack_into("<Ii", row, 8, 17, 16)
    with pytest.raises(CorruptError, match="decimal of 17"):
        unsafe_cells(spans([bytes(row)]), wide)


@pytest.mark.parametrize("name", mostly_slow(QUICK, 3))
def test_each_part_of_a_state_is_that_of_the_whole(name: str) -> None:
    """Fields, filters on fields and rows as stored, against a plain read of all columns."""
    chance = random.Random(name)
    for state in statestore.inspect(str(checkpoint_path(name))).tables():
        table = statestore.inspect(str(checkpoint_path(name))).table(state).table
        assert isinstance(table, EngineTable)
        schema = table.schema(Query())
        whole = rows_of(table, Query())
        held = table.unsafe_columns(Query())
        if held:
            stored = rows_of(table, Query(unsafe=held))
            assert stored.num_rows == whole.num_rows
            assert all(stored.schema.field(name).type == pa.binary() for name in held)
            others = [name for name in schema.names if name not in held]
            assert sorted(map(str, stored.select(others).to_pylist())) == sorted(
                map(str, whole.select(others).to_pylist())
            )
        for column in (field for field in schema if pa.types.is_struct(field.type)):
            names = [each.name for each in column.type]
            chosen = tuple(chance.sample(names, chance.randint(1, len(names))))
            kept = rows_of(table, Query(columns=(column.name,), fields=tuple((column.name, each) for each in chosen)))
            assert [each.name for each in kept.schema.field(0).type] == [each for each in names if each in chosen]
            expected = [_part(row, chosen) for row in whole.column(column.name).to_pylist()]
            assert sorted(map(str, kept.column(0).to_pylist())) == sorted(map(str, expected))
            present = Filter(column.name, "is_not_null", path=(chosen[0],))
            query = Query(columns=(column.name,), filters=(present,), unsafe=tuple({column.name} & set(held)))
            passing = sum((row or {}).get(chosen[0]) is not None for row in whole.column(column.name).to_pylist())
            assert rows_of(table, query).num_rows == passing


def _part(row: dict[str, object] | None, names: tuple[str, ...]) -> dict[str, object] | None:
    return None if row is None else {name: cell for name, cell in row.items() if name in names}


def rows_of(table: EngineTable, query: Query) -> pa.Table:
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    return pa.Table.from_batches(batches, schema=batches[0].schema) if batches else table.schema(query).empty_table()
