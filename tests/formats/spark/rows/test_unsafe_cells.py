"""Stored rows that are passed on to Spark as they are: their bytes, and rows whose pointers lead out of them."""

from __future__ import annotations

import random
import struct

import numpy as np
import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import QUICK, checkpoint_path
from support.checkpoints.unsafe_row_model import row_bytes
from support.parameters import mostly_slow, named
from support.rocksdb.compiled_loops import compiled_or_not  # noqa: F401

import statestore
from statestore.catalog.engines.engine_table import EngineTable
from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.errors import CorruptError
from statestore.formats.spark.checkpoint.spark_schema import BINARY, LONG, STRING, ArrayOf, DecimalOf, Field, StructOf
from statestore.formats.spark.rows.unsafe_cells import is_checkable, unsafe_cells
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter

pytestmark = pytest.mark.usefixtures("compiled_or_not")

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
