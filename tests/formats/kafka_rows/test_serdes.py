"""Kafka's built-in serdes: round trips, refusals, and columns that read as single values do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import few_or_many

from statestore.formats.errors import CorruptError, InvalidInputError, UnsupportedError
from statestore.formats.kafka_rows.list_serde import any_deserializer, any_serializer, decode_list, encode_list
from statestore.formats.kafka_rows.serdes import NAMES, arrow_type_of, deserializer, serde_of, serializer

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "String": st.text(),
    "Short": st.integers(-(2**15), 2**15 - 1),
    "Integer": st.integers(-(2**31), 2**31 - 1),
    "Long": st.integers(-(2**63), 2**63 - 1),
    "Float": st.floats(width=32, allow_nan=False),
    "Double": st.floats(allow_nan=False),
    "Boolean": st.booleans(),
    "UUID": st.uuids(),
    "ByteArray": st.binary(),
    "Bytes": st.binary(),
    "ByteBuffer": st.binary(),
    "Void": st.none(),
}


@pytest.mark.parametrize("name", NAMES)
@few_or_many(20, 100, data=st.data())
def test_values_come_back(name: str, data: st.DataObject) -> None:
    """Null is null, and a list of the values comes back with its nulls."""
    values = data.draw(st.lists(st.none() | VALUES[name], max_size=4))
    read, write = deserializer(name), serializer(name)
    assert [read(write(value)) for value in values] == values
    assert any_deserializer(f"List<{name}>")(any_serializer(f"List<{name}>")(values)) == values


def test_lists_of_lists_come_back() -> None:
    name, values = "List<List<Integer>>", [[1, None], [], None]
    assert any_deserializer(name)(any_serializer(name)(values)) == values
    assert any_deserializer(name)(any_serializer(name)(None)) is None


def test_every_nan_of_a_double_is_javas() -> None:
    for nan in (math.nan, -math.nan):
        assert serializer("Double")(nan) == bytes.fromhex("7ff8000000000000")


def test_names_are_found_in_any_case() -> None:
    assert serializer("lONG")(1) == bytes(7) + b"\x01"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("String", b"a"),
        ("String", "\ud800"),
        ("Short", 2**15),
        ("Integer", 2**31),
        ("Integer", 1.0),
        ("Integer", True),
        ("Long", -(2**63) - 1),
        ("Long", "1"),
        ("Float", 1e300),
        ("Double", "1"),
        ("Boolean", 1),
        ("UUID", "not a uuid"),
        ("UUID", 7),
        ("Bytes", "text"),
        ("Void", 0),
        ("List<Integer>", 1),
        ("List<Integer>", "12"),
        ("List<Integer>", ["1"]),
    ],
)
def test_a_value_of_another_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match="WRONG_VALUE"):
        any_serializer(name)(value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("String", "ff"),
        ("Short", "000000"),
        ("Integer", ""),
        ("Integer", "0000000000"),
        ("Long", "00000000000000"),
        ("Float", "00"),
        ("Double", "000000000000000000"),
        ("Boolean", ""),
        ("Boolean", "02"),
        ("Boolean", "0001"),
        ("UUID", b"123e4567e89b12d3a456426614174000".hex()),
        ("UUID", b"{123e4567-e89b-12d3-a456-42661417400}".hex()),
        ("UUID", b"123e4567-e89b-12d3-a456-42661417400g".hex()),
        ("UUID", "ff" * 36),
        ("Void", ""),
    ],
)
def test_bytes_that_are_no_value_are_refused(name: str, data: str) -> None:
    with pytest.raises(CorruptError, match=r"KAFKA_BYTES.*expected"):
        deserializer(name)(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("inner", "data"),
    [
        ("Integer", ""),
        ("Integer", "02" + "00" * 8),  # strategy
        ("Integer", "00ffffffff00000000"),  # negative null indexes
        ("Integer", "007fffffff00000000"),  # more null indexes than bytes
        ("Integer", "0000000001000000010000000100000000"),  # null index 1 of one entry
        ("Integer", "0000000001ffffffff0000000100000000"),  # negative null index
        ("Integer", "00000000007fffffff00000001"),  # more entries than bytes
        ("Integer", "0000000000ffffffff"),  # negative entries
        ("Integer", "00000000000000000100000001ff"),  # something behind the end
        ("Integer", "00000000000000000100"),  # cut off
        ("String", "0000000000000000010000000161"),  # fixed size, for which String has none
        ("String", "01ffffffff"),
        ("String", "017fffffff"),
        ("String", "0100000001fffffffe"),  # length -2
        ("String", "01000000010000000261"),
        ("String", "01000000010000000161ff"),
    ],
)
def test_bytes_that_are_no_list_are_refused(inner: str, data: str) -> None:
    with pytest.raises(CorruptError, match=rf"KAFKA_BYTES.*List<{inner}>.*expected"):
        any_deserializer(f"List<{inner}>")(bytes.fromhex(data))


@given(entries=st.lists(st.none() | st.binary(max_size=3), max_size=4))
def test_lists_of_byte_arrays_come_back(entries: list[bytes | None]) -> None:
    """Such lists are the rows of a list-value store."""
    assert decode_list(encode_list(entries)) == entries


@pytest.mark.parametrize("name", ["String", "Short", "Integer", "Long", "Float", "Double", "Boolean", "ByteArray"])
def test_column_types_have_serdes(name: str) -> None:
    assert serde_of(arrow_type_of(name)) == name


@pytest.mark.parametrize("kind", [pa.int8(), pa.date32(), pa.timestamp("us", "UTC"), pa.list_(pa.int32())])
def test_other_column_types_have_none(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedError, match=r"UNSUPPORTED_SERDE.*expected"):
        serde_of(kind)


@pytest.mark.parametrize("find", [serializer, deserializer, any_serializer, any_deserializer, arrow_type_of])
def test_unknown_names_are_refused(find: Callable[[str], object]) -> None:
    with pytest.raises(UnsupportedError, match=r"UNSUPPORTED_SERDE.*'Avro'"):
        find("Avro")
