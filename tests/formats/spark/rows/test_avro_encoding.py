"""Rows that are written in Avro, against bytes by hand and against the reader."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checkpoints.avro_row_cases import AVRO, NULL, present, schema_of, text, zigzag
from support.checkpoints.unsafe_row_cases import PLAIN_NAMES, value_of
from support.checkpoints.unsafe_row_model import row_bytes
from support.rocksdb.compiled_loops import compiled_or_not  # noqa: F401

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.bytes.byte_parts import joined_parts, zig_zag_cells
from statestore.formats.errors import StateStoreError
from statestore.formats.spark.checkpoint.schema_files import KeyEncoder
from statestore.formats.spark.checkpoint.spark_schema import (
    LONG,
    STRING,
    ArrayOf,
    DecimalOf,
    Field,
    MapOf,
    SparkType,
    StructOf,
    named_type,
)
from statestore.formats.spark.rows.avro_encoding import ordering_parts, record_parts, with_id
from statestore.formats.spark.rows.avro_row import decode_key_rows, decode_ordering, decode_record
from statestore.formats.spark.rows.row_encoding import RowForm, decode_keys
from statestore.formats.spark.rows.row_framing import WrittenForm, key_parts
from statestore.formats.spark.rows.unsafe_row import decode_rows

pytestmark = pytest.mark.usefixtures("compiled_or_not")

# Avro's encoder writes one block, without its size.
SEVERAL_BLOCKS: list[Any] = [[1, -1, 9], [("", None), ("c", [])]]
SIZED = (zigzag(-1), zigzag(-2))
ONE_BLOCK = [
    case for case in AVRO if case[2] not in SEVERAL_BLOCKS and (isinstance(case[0], str) or case[1][:1] not in SIZED)
]


def records(columns: list[pa.Array], schema: StructOf, rows: int) -> list[bytes]:
    found: list[bytes] = joined_parts(record_parts(columns, schema, rows), rows).copied().to_pylist()
    return found


@pytest.mark.parametrize(("kind", "data", "expected"), ONE_BLOCK, ids=[f"{case[0]}"[:40] for case in ONE_BLOCK])
def test_every_type_with_nulls_between(kind: Any, data: bytes, expected: Any) -> None:
    schema = schema_of(a="long", b=kind, c="void", d="string")
    row = present(zigzag(1)) + present(data) + present(text("z"))
    stored = [row, NULL * 3, row]
    columns = decode_record(cells_of(pa.array(stored)), schema)
    assert records(columns, schema, 3) == stored
    assert records([column.slice(1, 2) for column in columns], schema, 2) == stored[1:]


@pytest.mark.parametrize("number", [0, -1, 1, 63, 64, -64, -65, 8191, 8192, 2**31, -(2**31), 2**63 - 1, -(2**63)])
def test_integers(number: int) -> None:
    assert zig_zag_cells(pa.array([number, 5]).to_numpy()).copied().to_pylist() == [zigzag(number), zigzag(5)]


LEAVES = [named_type(name) for name in PLAIN_NAMES if name not in ("variant", "interval", "time(6)")]
kinds: st.SearchStrategy[SparkType] = st.recursive(
    st.sampled_from([*LEAVES, DecimalOf(9, 2), DecimalOf(30, 4)]),
    lambda inner: (
        st.builds(ArrayOf, inner)
        | st.builds(MapOf, st.just(STRING), inner)
        | st.lists(inner, max_size=3).map(lambda ks: StructOf(tuple(Field("f", k) for k in ks)))
    ),
    max_leaves=5,
)


def holds_null_elements(kind: SparkType, value: Any) -> bool:
    """Return whether an array or map has a null that has no form in Avro."""
    if value is None:
        return False
    if isinstance(kind, StructOf):
        return any(holds_null_elements(field.type, part) for field, part in zip(kind.fields, value, strict=True))
    if isinstance(kind, ArrayOf | MapOf):
        element = kind.element if isinstance(kind, ArrayOf) else kind.value
        parts = value if isinstance(kind, ArrayOf) else [item for _, item in value]
        nested = isinstance(element, StructOf | ArrayOf | MapOf)
        return any((part is None and not nested) or holds_null_elements(element, part) for part in parts)
    return False


@settings(deadline=None, max_examples=120)
@given(st.lists(kinds, min_size=1, max_size=3), st.integers(0, 9), st.randoms(use_true_random=False))
def test_random_schemas_are_read_back(types: list[SparkType], count: int, rng: random.Random) -> None:
    schema = StructOf(tuple(Field("c", kind) for kind in types))
    rows = [tuple(value_of(kind, rng) for kind in types) for _ in range(count)]
    plain = decode_rows(cells_of(pa.array([row_bytes(row, schema) for row in rows], pa.binary())), schema)
    columns = [plain.field(number) for number in range(len(types))]
    if any(holds_null_elements(schema, row) for row in rows):
        with pytest.raises(StateStoreError, match=r"EDIT_REFUSED.*null in an array or map"):
            records(columns, schema, count)
        return
    found = decode_record(cells_of(pa.array(records(columns, schema, count), pa.binary())), schema)
    assert all(one.equals(other) for one, other in zip(found, columns, strict=True))


@pytest.mark.parametrize(
    "encoder",
    [KeyEncoder(), KeyEncoder("prefix", 1), KeyEncoder("range", ordinals=(1,)), KeyEncoder("range", ordinals=(1, 0))],
)
def test_keys(encoder: KeyEncoder) -> None:
    schema = StructOf((Field("n", LONG), Field("time", LONG), Field("s", STRING)))
    columns = [pa.array([1, -1, None]), pa.array([-(2**63), 5, 0]), pa.array(["a", None, ""])]
    written = WrittenForm(whole=with_id(3), part=record_parts, ordering=ordering_parts)
    read = RowForm(whole=decode_key_rows, part=decode_record, ordering=decode_ordering)
    stored = joined_parts(key_parts(columns, schema, encoder, written, 3), 3)
    found = decode_keys(stored, schema, encoder, read)
    assert [found.field(number).to_pylist() for number in range(3)] == [column.to_pylist() for column in columns]
    if encoder.ordering == "none":
        expected = b"\0\3\0" + present(zigzag(1)) + present(zigzag(-(2**63))) + present(text("a"))
        assert stored.cell(0) == expected


@pytest.mark.parametrize(("name", "value"), [("variant", (b"v", b"m")), ("time(6)", 5), ("interval", (1, 2, 3))])
def test_types_that_are_not_known_are_refused(name: str, value: Any) -> None:
    schema = StructOf((Field("c", named_type(name)),))
    column = decode_rows(cells_of(pa.array([row_bytes((value,), schema)])), schema).field(0)
    with pytest.raises(StateStoreError, match=r"EDIT_UNSUPPORTED.*in Avro"):
        records([column], schema, 1)
