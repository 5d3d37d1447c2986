"""Types that users give for states of PyFlink."""

from __future__ import annotations

import pyarrow as pa
import pytest

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.flink.layouts.type_layouts import arrow_type
from statestore.formats.flink.serializers.flink_types import (
    ArrayOf,
    Basic,
    ListOf,
    Logical,
    MapOf,
    Opaque,
    PrimitiveArray,
    PythonBytes,
    PythonLeaf,
    PythonValue,
    RowOf,
    TableValue,
    TupleOf,
)
from statestore.formats.flink.serializers.python_types import of_state, python_entry, python_value
from statestore.formats.flink.serializers.type_names import shown

TEXT, INT = TableValue(Logical("STRING")), Basic("int")


def test_a_struct_is_a_row_or_with_fields_that_are_not_null_a_tuple() -> None:
    assert python_value("struct<a: string, b: int>").value == RowOf((TEXT, INT), True, ("a", "b"))
    assert python_value("struct<a: string not null, b: int NOT NULL>").value == TupleOf((TEXT, INT), ("a", "b"))
    inner = python_value("struct<a: struct<b: int> not null>").value
    assert inner == TupleOf((RowOf((INT,), True, ("b",)),), ("a",))


def test_an_array_has_marks_of_nulls_unless_its_elements_are_not_null() -> None:
    assert python_value("array<int>").value == ArrayOf(INT)
    assert python_value("array<int not null>").value == PrimitiveArray("int")
    assert python_value("array<string not null>").value == ListOf(TEXT)
    assert python_value("map<string, array<int>>").value == MapOf(TEXT, ArrayOf(INT))


def test_times_of_sql_have_a_precision() -> None:
    assert python_value("timestamp_ntz") == python_value("timestamp_ntz(3)") == python_value("timestamp_ntz(0)")
    assert python_value("timestamp_ltz(6)").value == TableValue(Logical("TIMESTAMP_LTZ", 6))
    assert python_value("timestamp").value == Basic("instant")
    assert arrow_type(python_value("timestamp_ntz(6)")) == pa.timestamp("us")
    assert arrow_type(python_value("timestamp_ltz(3)")) == pa.timestamp("us", "UTC")


def test_a_type_of_a_map_is_that_of_keys_and_values() -> None:
    assert python_entry("map<bigint, pickle>") == (
        PythonValue(Basic("long")),
        PythonValue(PythonLeaf("pickle", pa.binary())),
    )
    assert python_entry("int") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("array<tinyint not null>", "give binary"),
        ("struct<a: int not null, b: int>", "only some fields"),
        ("struct<a: int, A: int>", "names that differ"),
        ("struct<>", "fields none"),
        ("duration", "no coder of PyFlink writes"),
        ("timestamp_ntz(10)", "timestamp_ntz is written timestamp_ntz"),
        ("int not null", "'not null' is out of place"),
        ("map<int not null, int>", "cannot be said here"),
        ("utf", "'utf' is not a type"),
    ],
)
def test_other_types_are_refused_by_name(text: str, found: str) -> None:
    with pytest.raises(InvalidInputError, match=found) as caught:
        python_value(text)
    assert caught.value.code == ErrorCode.FLINK_TYPE


def test_only_byte_arrays_in_states_with_the_prefix_are_of_python() -> None:
    octets = PrimitiveArray("byte")
    assert of_state("python-state-a", octets) == PythonBytes()
    assert of_state("state-a", octets) == octets
    assert of_state("python-state-a", PrimitiveArray("int")) == PrimitiveArray("int")
    assert of_state("python-state-a", Opaque("a.B")) == Opaque("a.B")


def test_types_of_python_have_names() -> None:
    assert shown(PythonBytes()) == "bytes of a coder of PyFlink (not decoded)"
    assert shown(python_value("struct<a: pickle, b: decimal(3,1)>")) == "row(a pickle, b decimal)"
