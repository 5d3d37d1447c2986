"""Avro, Protobuf and JSON with a schema: values that other libraries wrote are encoded as these wrote them."""

from __future__ import annotations

import json
import lzma
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kafka.avro_answers import RECORDED, decoded, framed
from support.kafka.avro_model import SCHEMAS, encode, values_of
from support.kafka.protobuf_model import message_class, messages
from support.kafka.protobuf_model import serde as protobuf_serde
from support.properties import few_or_many

from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.kafka.columns.schema_encoders import Stored
from statestore.formats.kafka.columns.serde_columns import cell_serde
from statestore.formats.kafka.columns.serde_encoders import encoded
from statestore.formats.kafka.schemas.given_schemas import SchemaSet, set_as_text


def again(serde: str, cells: list[bytes | None], stored: Stored | None = None) -> list[bytes | None]:
    """Cells that were decoded, and encoded in their own places."""
    column = decoded(serde, cells)
    own = Stored(pa.array(cells, pa.binary())) if stored is None else stored
    found: list[bytes | None] = encoded(serde, column, "value", own).to_pylist()
    return found


@few_or_many(40, 400, st.data())
def test_avro_of_any_schema(data: st.DataObject) -> None:
    """The bytes are those of an encoder of single values."""
    schema = {"type": "record", "name": "Whole", "fields": [{"name": "part", "type": data.draw(SCHEMAS)}]}
    values = data.draw(st.lists(values_of(schema), max_size=6))
    cells: list[bytes | None] = [encode(schema, value) for value in values]
    assert again(f"avro-plain:{json.dumps(schema)}", cells) == cells
    framed_cells = [framed(cell, 9) for cell in cells if cell is not None]
    assert again(f"avro:{json.dumps(schema)}", [*framed_cells, None]) == [*framed_cells, None]


def avro_pairs() -> list[Any]:
    found: list[Any] = json.loads(lzma.decompress(RECORDED.read_bytes()))
    return found


def test_avro_that_its_own_library_wrote() -> None:
    """All values of the recorded schemas, by the schema of their writer; a null in it is a null."""
    count = 0
    for pair in avro_pairs():
        serde = f"avro-plain:{json.dumps(pair['writer'])}"
        cells: list[bytes | None] = [bytes.fromhex(text) for text in pair["values"]]
        valid = decoded(serde, cells).is_valid().to_pylist()
        wanted = [cell if has else None for cell, has in zip(cells, valid, strict=True)]
        assert again(serde, cells) == wanted, pair["writer"]
        count += sum(valid)
    assert count > 100


def test_unions_and_decimals_of_avro() -> None:
    kind = {"type": "fixed", "name": "F", "size": 16, "logicalType": "decimal", "precision": 38, "scale": 2}
    schema = ["null", "long", kind, {"type": "array", "items": ["string", "int"]}]
    cells: list[bytes | None] = [
        b"\x00",
        b"\x02\x01",
        b"\x04" + (-123).to_bytes(16, "big", signed=True),
        b"\x06" + b"\x04\x00\x02a\x02\x06\x00",
    ]
    serde = f"avro-plain:{json.dumps(schema)}"
    assert decoded(serde, cells)[2].as_py()["F"] == Decimal("-1.23")
    assert again(serde, cells) == [None, *cells[1:]]


@pytest.mark.parametrize("number", [0, 1, -1, 127, 128, -128, -129, 10**37, -(10**37)])
def test_decimals_of_avro_have_the_bytes_that_they_need(number: int) -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 38}
    digits = number.to_bytes(
        (number.bit_length() if number >= 0 else (number + 1).bit_length()) // 8 + 1, "big", signed=True
    )
    cells: list[bytes | None] = [bytes([2 * len(digits)]) + digits]
    assert again(f"avro-plain:{json.dumps(schema)}", cells) == cells


@pytest.mark.parametrize("name", ["shop.All", "old.All"])
@few_or_many(15, 150, st.data())
def test_protobuf_is_that_of_its_own_library(name: str, data: st.DataObject) -> None:
    found = data.draw(st.lists(messages(name), max_size=8))
    cells: list[bytes | None] = [each.SerializeToString() for each in found]
    assert again(protobuf_serde(name), cells) == cells
    front = bytes.fromhex("000000000b02") + bytes([2 * 2])  # the third message of its file
    behind = [front + cell for cell in cells if cell is not None]
    assert again(protobuf_serde(name, "protobuf"), [*behind]) == behind


def test_a_new_message_means_what_its_row_says() -> None:
    kind = message_class("shop.All")
    made = kind(own_int32=-1, own_uint64=2**64 - 1, list_bool=[True, False], a="x")
    serde = protobuf_serde("shop.All", "protobuf")
    sample = bytes.fromhex("000000000b0204") + made.SerializeToString()
    column = decoded(serde, [sample])
    (cell,) = encoded(serde, column, "value", Stored(None, sample)).to_pylist()
    assert cell == sample
    with pytest.raises(UnsupportedError, match=r"EDIT_UNSUPPORTED.*value: no value is stored whose id"):
        encoded(serde, column, "value")


def test_fields_that_a_schema_does_not_name_are_not_lost_silently() -> None:
    data = message_class("shop.All")(own_int32=7, b=3).SerializeToString()
    unknown = data + bytes.fromhex("f8ff7f05")
    serde = protobuf_serde("shop.All")
    column = decoded(serde, [unknown])
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*fields that message shop.All does not name"):
        encoded(serde, column, "value", Stored(pa.array([unknown])))
    assert encoded(serde, column, "value").to_pylist() == [data]


def test_values_of_several_schemas_get_that_of_the_reader() -> None:
    old: Any = {"type": "record", "name": "Item", "fields": [{"name": "id", "type": "int"}]}
    new: Any = {**old, "fields": [*old["fields"], {"name": "qty", "type": "int", "default": 1}]}
    schemas = {5: (json.dumps(old),), 6: (json.dumps(new),)}
    serde = f"avro:{set_as_text(SchemaSet(schemas, schemas[6], 6))}"
    cells: list[bytes | None] = [framed(b"\x02", 5), framed(b"\x04\x0e", 6)]
    assert again(serde, cells) == [framed(b"\x02\x02", 6), framed(b"\x04\x0e", 6)]


@pytest.mark.parametrize(
    ("serde", "cell", "expected"),
    [
        ("json-schema", "0000000007207b7d", "0000000007207b7d"),
        ("json-apicurio", "0000000000000000055b5d", "0000000000000000055b5d"),
        # A value that was compressed is written as it is.
        (
            "json-glue",
            "0305b7b4a7f09c964e4aa687fb5de9ef0c63789cab56ca53b25230ac05000a330236",
            "0300b7b4a7f09c964e4aa687fb5de9ef0c637b226e223a20317d",
        ),
    ],
)
def test_json_behind_ids(serde: str, cell: str, expected: str) -> None:
    assert again(serde, [bytes.fromhex(cell), None]) == [bytes.fromhex(expected), None]


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "C", "found C, expected one of A, B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"abc", "found 3 bytes, expected 2 bytes"),
        ("long", None, ""),
        (["int", "string"], {"int": 1, "string": "x"}, "one field that is not null"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}, {"a": None}, "value.a: found null"),
        ({"type": "array", "items": "int"}, [1, None], r"value\[\]: found null"),
    ],
)
def test_values_that_a_schema_has_not_are_refused(schema: Any, value: Any, message: str) -> None:
    serde = f"avro-plain:{json.dumps(schema)}"
    column = pa.array([value], cell_serde(serde).type)
    if value is None:
        assert encoded(serde, column, "value").to_pylist() == [None]
        return
    with pytest.raises(InvalidInputError, match=f"WRONG_VALUE.*{message}"):
        encoded(serde, column, "value")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("own_color", "GREEN", "shop.All|own_color: found GREEN"),
        ("own_uint32", -1, "0 to 4294967295"),
        ("own_int32", None, "own_int32: found null"),
    ],
)
def test_values_that_a_message_has_not_are_refused(field: str, value: Any, message: str) -> None:
    serde = protobuf_serde("shop.All")
    kind = cell_serde(serde).type
    row = decoded(serde, [b""])[0].as_py()
    with pytest.raises(InvalidInputError, match=f"WRONG_VALUE.*({message})"):
        encoded(serde, pa.array([{**row, field: value}], kind), "value")


@given(st.lists(st.booleans(), min_size=2, max_size=2, unique=True))
def test_members_of_a_oneof_exclude_each_other(order: list[bool]) -> None:
    serde = protobuf_serde("shop.All")
    row = decoded(serde, [b""])[0].as_py()
    both = {**row, "a": "x", "b": int(order[0])}
    with pytest.raises(InvalidInputError, match=r"WRONG_VALUE.*at most one of a, b, c"):
        encoded(serde, pa.array([both], cell_serde(serde).type), "value")
