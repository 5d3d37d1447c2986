"""Avro values of one schema read by another: as Avro's own library reads them, and what is refused."""

from __future__ import annotations

import json
import lzma
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import strategies as st
from support.kafka.avro_answers import READER, RECORDED, decoded, differences, framed, serde_of
from support.kafka.avro_model import encode, varint
from support.kafka.avro_pairs import Pairs
from support.properties import few_or_many

from statestore.formats.errors import CorruptError, InvalidInputError

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


def cents(digits: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": scale}


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def pair(writer: Any, reader: Any) -> dict[str, Any]:
    return {"writer": record(a=writer), "reader": record(a=reader)}


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_values_are_those_that_avro_itself_reads(step: int) -> None:
    recorded = json.loads(lzma.decompress(RECORDED.read_bytes()))
    read = [len(answer) == 2 for each in recorded for answer in each["answers"]]
    assert len(recorded) == 250 and sum(read) > 600 and read.count(False) > 100
    for each in recorded[::step]:
        assert differences(each, each["answers"]) == [], each


@pytest.mark.parametrize(
    ("writer", "reader", "data", "value"),
    [
        ("long", MILLIS, varint(1500), datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        (MILLIS, "long", varint(1500), 1500),
        ("int", MILLIS, varint(1500), datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        ("int", {"type": "int", "logicalType": "date"}, varint(1), date(1970, 1, 2)),
        (MILLIS, ["null", MILLIS], varint(0), datetime(1970, 1, 1, tzinfo=UTC)),
        (["null", "long"], ["null", MILLIS, "string"], b"\2\0", {"long": datetime(1970, 1, 1, tzinfo=UTC)}),
        ("bytes", cents(4, 2), b"\2\x7b", Decimal("1.23")),
        (cents(4, 2), cents(9, 2), b"\2\x7b", Decimal("1.23")),
        (["int", "string", "null"], ["null", "string", "long"], b"\2\2a", {"string": "a"}),
        (["int", "string", "null"], ["null", "string", "long"], b"\0\2", {"long": 1}),
        (["int", "string", "null"], ["null", "string", "long"], b"\4", None),
        (["int", "string"], "int", b"\0\2", 1),
    ],
)
def test_logical_types_and_unions(writer: Any, reader: Any, data: bytes, value: Any) -> None:
    """In a struct, the branches that the value is not are null."""
    (found,) = decoded(serde_of(pair(writer, reader)), [framed(data)]).to_pylist()
    if isinstance(value, dict):
        value = dict.fromkeys(found["a"]) | value
    assert found == {"a": value}


@pytest.mark.parametrize(
    ("writer", "reader", "data", "why"),
    [
        (MILLIS, MICROS, b"\2", r"field a is long shown as timestamp\[ms.*for the reader long shown as timestamp\[us"),
        (cents(4, 2), cents(4, 1), b"\2\1", "field a is .*, for the reader"),
        ("string", "int", b"\2a", "field a is string, for the reader int"),
        (["int", "string"], "int", b"\2\2a", "field a is string, for the reader int"),
        (["null", "int"], "int", b"\0", "field a is null, for the reader int"),
        (
            {"type": "array", "items": "long"},
            {"type": "array", "items": "int"},
            b"\2\2\0",
            "field a is long, for the reader int",
        ),
    ],
)
def test_what_the_reader_cannot_have_is_refused(writer: Any, reader: Any, data: bytes, why: str) -> None:
    schemas = pair(writer, reader)
    with pytest.raises(InvalidInputError, match=f"WRONG_SCHEMA.*schema id 5 cannot be read by schema id 6: {why}.*"):
        decoded(serde_of(schemas), [framed(data)])


def test_rows_of_ids_in_any_order_keep_their_places() -> None:
    schemas = {"writer": record(a="int"), "reader": record(b="string", a="double")}
    schemas["reader"]["fields"][0]["default"] = "none"
    cells: list[bytes | None] = []
    expected: list[Any] = []
    for number in range(200):
        if number % 7 == 3:
            cells.append(None)
            expected.append(None)
        elif number % 3:
            cells.append(framed(encode(schemas["writer"], {"a": number})))
            expected.append({"b": "none", "a": float(number)})
        else:
            cells.append(framed(encode(schemas["reader"], {"b": str(number), "a": 0.5}), READER))
            expected.append({"b": str(number), "a": 0.5})
    assert decoded(serde_of(schemas), cells).to_pylist() == expected


def test_a_default_that_is_no_value_of_its_field_is_refused() -> None:
    schemas = {"writer": record(), "reader": record(a="int")}
    schemas["reader"]["fields"][0]["default"] = "text"
    with pytest.raises(InvalidInputError, match=r"WRONG_SCHEMA.*found the default 'text', expected a value of int"):
        decoded(serde_of(schemas), [framed(b"")])


def test_a_reader_without_a_default_is_refused_by_the_name_of_its_field() -> None:
    with pytest.raises(InvalidInputError, match=r"the reader's field 'b' has no default"):
        decoded(serde_of({"writer": record(a="int"), "reader": record(a="int", b="int")}), [framed(b"\2")])


BYTES = st.builds(
    lambda number, data: b"\0\0\0\0" + bytes([number]) + data, st.integers(4, 7), st.binary(max_size=20)
) | st.binary(max_size=8)


@few_or_many(30, 1000, cells=st.lists(BYTES, max_size=5), seed=st.integers(0, 10_000))
def test_any_bytes_are_read_or_refused(cells: list[bytes], seed: int) -> None:
    """By schemas of two ids, whatever they are."""
    try:
        decoded(serde_of(Pairs(seed).pair()), [*cells])
    except (CorruptError, InvalidInputError) as error:
        assert error.code in ("KAFKA_BYTES", "WRONG_SCHEMA")
