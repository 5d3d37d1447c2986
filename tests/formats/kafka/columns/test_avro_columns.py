"""Avro values as columns: schemas of any shape against single values, and values that another library wrote."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.kafka.avro_model import SCHEMAS, encode, values_of
from support.properties import few_or_many

from statestore.formats.errors import CorruptError, InvalidInputError, UnsupportedError
from statestore.formats.kafka.columns.serde_encoders import encoded
from statestore.formats.kafka.columns.store_kinds import StoreForm, row_schema, stored_rows
from statestore.formats.kafka.schemas.schema_files import with_schema

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "prices", "type": {"type": "map", "values": "double"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 3}},
        {"name": "ok", "type": "boolean"},
        {"name": "weight", "type": "float"},
    ],
}
# Written by fastavro 1.13.1.
WRITTEN = {
    "09000000000006fe1dc0e897d7b2e66388b602616263010000c03f": {
        "id": -5,
        "note": None,
        "tags": [],
        "prices": [],
        "state": "OPEN",
        "before": None,
        "total": Decimal("-1234.56"),
        "at": datetime(2024, 5, 1, 8, 0, 0, 500000, UTC),
        "day": date(2024, 5, 1),
        "code": b"abc",
        "ok": True,
        "weight": 1.5,
    },
    "80808080808080808001020ac3a974c3a90602610004626300040278000000000000f43f0279000000000000e0bf000202000201cf0f0100010"
    "200000080be": {
        "id": 2**62,
        "note": "été",
        "tags": ["a", "", "bc"],
        "prices": [("x", 1.25), ("y", -0.5)],
        "state": "PAID",
        "before": "OPEN",
        "total": Decimal("0.01"),
        "at": datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        "day": date(1969, 12, 31),
        "code": b"\0\1\2",
        "ok": False,
        "weight": -0.25,
    },
}


def decoded(serde: str, cells: list[bytes]) -> pa.Array:
    """The values of rows with keys k0, k1, ..."""
    keys = pa.array([b"k%d" % number for number in range(len(cells))], pa.binary())
    batch = stored_rows(StoreForm("key-value", value_serde=serde), "default", keys, pa.array(cells, pa.binary()))
    batch.validate(full=True)
    return batch["value"]


def framed(data: bytes, schema_id: int = 7) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + data


@few_or_many(30, 1000, data=st.data(), schema=SCHEMAS, blocks=st.integers(0, 2))
def test_values_of_any_schema(data: st.DataObject, schema: Any, blocks: int) -> None:
    """With and without the id of the schema in front, and with arrays in blocks of each kind."""
    values = data.draw(st.lists(values_of(schema), min_size=1, max_size=10))
    cells = [encode(schema, value, blocks) for value in values]
    text = json.dumps(schema)
    if isinstance(schema, list):  # a schema as a name is an object or a word
        text = json.dumps({"type": schema})
    assert decoded(f"avro-plain:{text}", cells).to_pylist() == values
    assert decoded(f"avro:{text}", [framed(cell) for cell in cells]).to_pylist() == values


def test_values_that_another_library_wrote() -> None:
    found = decoded(f"avro:{json.dumps(ORDER)}", [framed(bytes.fromhex(data)) for data in WRITTEN])
    assert found.to_pylist() == [*WRITTEN.values()]
    assert found.type.field("at").type == pa.timestamp("ms", "UTC")
    assert encoded(f"avro-plain:{json.dumps(ORDER)}", found, "value").to_pylist() == [*map(bytes.fromhex, WRITTEN)]


@few_or_many(30, 1000, schema=SCHEMAS, cells=st.lists(st.binary(max_size=20), max_size=5))
def test_any_bytes_are_read_or_refused(schema: Any, cells: list[bytes]) -> None:
    """Values that were read are written as they were, up to the blocks of arrays."""
    text = json.dumps({"type": schema})
    try:
        found = decoded(f"avro-plain:{text}", cells)
    except CorruptError as error:
        assert "a value of the given Avro schema" in error.message
        return
    again = [encode(schema, value) for value in found.to_pylist()]
    assert decoded(f"avro-plain:{text}", again).equals(found)


@pytest.mark.parametrize(
    ("schema", "data", "problem"),
    [
        ("long", "00000000", "behind 00 and the id of its schema.*avro-plain"),
        ("long", "0100000007" + "02", "behind 00 and the id of its schema"),
        ("long", "0000000007", "a value of the given Avro schema"),
        ("long", "0000000007" + "0202", "a value of the given Avro schema"),
        ("long", "0000000007" + "ff" * 9 + "02", "a value of the given Avro schema"),
        ("int", "0000000007" + "8080808010", "a value of the given Avro schema"),
        ("string", "0000000007" + "02ff", "a value of the given Avro schema"),
        ("boolean", "0000000007" + "02", "a value of the given Avro schema"),
        ("long", "0000000008" + "02", "schema id 7 as in the rows before"),
    ],
)
def test_other_bytes_are_refused(schema: str, data: str, problem: str) -> None:
    good = framed(encode(schema, {"long": 1, "int": 1, "string": "a", "boolean": True}[schema]))
    with pytest.raises(CorruptError, match=rf"KAFKA_BYTES.*the stored key 6b31 .*{problem}"):
        decoded(f'avro:"{schema}"', [good, bytes.fromhex(data), good])


@pytest.mark.parametrize(
    ("schema", "greatest"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1}, "9.9"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, "9" * 38),
    ],
)
def test_decimals_to_the_last_digit(schema: dict[str, Any], greatest: str) -> None:
    serde, digits = f"avro-plain:{json.dumps(schema)}", int(greatest.replace(".", ""))

    def cells(*numbers: int) -> list[bytes]:
        return [encode("bytes", number.to_bytes(16, "big", signed=True)) for number in numbers]

    assert decoded(serde, cells(digits, -digits)).to_pylist() == [Decimal(greatest), Decimal(f"-{greatest}")]
    for number in (digits + 1, -digits - 1):
        with pytest.raises(CorruptError, match="a value of the given Avro schema"):
            decoded(serde, cells(number))


def test_a_time_of_day_beyond_the_day_is_refused() -> None:
    serde = 'avro-plain:{"type": "int", "logicalType": "time-millis"}'
    assert str(decoded(serde, [encode("int", 86_399_999)])[0]) == "23:59:59.999000"
    with pytest.raises(CorruptError, match="a value of the given Avro schema"):
        decoded(serde, [encode("int", 86_400_000)])


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "{",
        "[]",
        '"text"',
        '{"type": "text"}',
        '{"type": "record", "name": "R"}',
        '{"type": "record", "name": "R", "fields": [{"type": "int"}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}',
        '{"type": "record", "fields": []}',
        '{"type": "enum", "name": "E"}',
        '{"type": "fixed", "name": "F", "size": -1}',
        '{"type": "array"}',
        '{"type": []}',
        '{"type": ["int", "int"]}',
        '{"type": ["int", ["null", "long"]]}',
        '{"type": ["int", {"type": "int", "logicalType": "date"}]}',
        '{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}',
    ],
)
def test_a_bad_schema_is_refused(schema: str) -> None:
    with pytest.raises((InvalidInputError, UnsupportedError), match=r"(WRONG_SCHEMA|UNSUPPORTED_SERDE).*expected"):
        row_schema(StoreForm("key-value", value_serde=f"avro:{schema}"))


def test_a_record_inside_itself_is_unsupported() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}
    with pytest.raises(UnsupportedError, match=r"UNSUPPORTED_SERDE.*as bytes"):
        row_schema(StoreForm("key-value", value_serde=f"avro:{json.dumps(schema)}"))


def test_unions_of_several_types_are_structs() -> None:
    """Of records with one name in two namespaces the second has a number."""
    records = [{"type": "record", "name": f"{space}.R", "fields": [{"name": "n", "type": "int"}]} for space in "ab"]
    schema = json.dumps({"type": ["null", "string", *records, {"type": "array", "items": "int"}]})
    cells = [b"\0", b"\2\2x", b"\4\4", b"\6\6", b"\x08\2\x08\0"]
    found = decoded(f"avro-plain:{schema}", cells)
    assert found.type.names == ["string", "R", "R_1", "array"]
    values: list[Any] = ["x", {"n": 2}, {"n": 3}, [4]]
    assert found.to_pylist() == [
        None,
        *(
            dict.fromkeys(found.type.names) | {name: value}
            for name, value in zip(found.type.names, values, strict=True)
        ),
    ]
    with pytest.raises(CorruptError, match="a value of the given Avro schema"):
        decoded(f"avro-plain:{schema}", [b"\x0a"])
    assert decoded('avro-plain:{"type": ["int"]}', [b"\0\2"]).to_pylist() == [1]


def test_names_are_found_in_their_namespaces() -> None:
    inner = {"type": "enum", "name": "E", "symbols": ["A"]}
    fields = [{"name": "a", "type": inner}, {"name": "b", "type": "E"}, {"name": "c", "type": "shop.E"}]
    schema = {"type": "record", "name": "R", "namespace": "shop", "fields": fields}
    assert decoded(f"avro-plain:{json.dumps(schema)}", [b"\0\0\0"]).to_pylist() == [{"a": "A", "b": "A", "c": "A"}]


def test_a_path_becomes_the_schema() -> None:
    read = {"a/b.avsc": b'{"type": "long"}'}.__getitem__
    assert with_schema("avro:a/b.avsc", read) == 'avro:{"type": "long"}'
    assert with_schema("avro-plain:a/b.avsc", read) == 'avro-plain:{"type": "long"}'
    for name in ('avro:{"type": "long"}', 'avro:"long"', "long"):
        assert with_schema(name, read) == name
