"""Types that a user gives for keys and values of a state."""

from __future__ import annotations

import pyarrow as pa
import pytest

from statestore.formats.errors import InvalidInputError
from statestore.formats.flink.serializers.declared import with_declared
from statestore.formats.flink.serializers.flink_types import (
    AvroOf,
    Basic,
    EnumOf,
    FlinkType,
    ListOf,
    Logical,
    MapOf,
    Nullable,
    Opaque,
    PojoOf,
    PrimitiveArray,
    RowDataOf,
    RowOf,
    Shown,
    StringArray,
    TtlOf,
    TupleOf,
)
from statestore.formats.flink.serializers.type_names import KRYO

STRING, LONG, INT = Basic("string"), Basic("long"), Basic("int")
PAIR = TupleOf((STRING, LONG))
NAMED = TupleOf((STRING, LONG), ("name", "n"))
TEXT = "struct<name: string, n: bigint>"
TEXT_ROW = Logical("ROW", children=(Logical("STRING"),))
ROW = Logical("ROW", children=(Logical("BIGINT"), Logical("DECIMAL", 12, 2)))
UTF = Basic("utf")
OWN = Opaque("com.x.OwnSnapshot")


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (PAIR, TEXT, NAMED),
        (ListOf(PAIR), f"array<{TEXT}>", ListOf(NAMED)),
        (MapOf(INT, Nullable(PAIR)), f"map<int, {TEXT}>", MapOf(INT, Nullable(NAMED))),
        (TtlOf(PAIR), TEXT, TtlOf(NAMED)),
        (RowOf((STRING, LONG), True), TEXT, RowOf((STRING, LONG), True, ("name", "n"))),
        (
            RowDataOf(ROW),
            "struct<id: bigint, price: decimal(12,2)>",
            RowDataOf(Logical("ROW", children=ROW.children, names=("id", "price"))),
        ),
        (
            PojoOf("x.P", (("a", PAIR), ("b", INT))),
            f"struct<b: int, a: {TEXT}>",
            PojoOf("x.P", (("a", NAMED), ("b", INT))),
        ),
    ],
)
def test_names_go_to_fields_without_names(kind: FlinkType, text: str, expected: FlinkType) -> None:
    assert with_declared(kind, text) == expected


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (STRING, "string"),
        (Basic("instant"), "timestamp"),
        (Basic("local_date_time"), "timestamp_ntz"),
        (Basic("local_date"), "date"),
        (Basic("biginteger"), "string"),
        (Basic("time_window"), "struct<start: timestamp, end: timestamp>"),
        (EnumOf("x.E", ("A",)), "string"),
        (PrimitiveArray("byte"), "binary"),
        (PrimitiveArray("int"), "array<int>"),
        (StringArray(), "array<string>"),
    ],
)
def test_the_type_that_the_bytes_have_changes_nothing(kind: FlinkType, text: str) -> None:
    assert with_declared(kind, text) == kind


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TEXT, NAMED),
        ("array<map<int, boolean>>", ListOf(MapOf(INT, Basic("boolean")))),
        ("utf", UTF),
        ("array<Utf>", ListOf(UTF)),
        ("map<utf, bigint>", MapOf(UTF, LONG)),
        (
            "struct<cents: bigint, currency: utf, text: string>",
            TupleOf((LONG, UTF, STRING), ("cents", "currency", "text")),
        ),
        ("struct<a: tinyint, b: smallint, c: float, d: double>", None),
        ("binary", PrimitiveArray("byte")),
        ("date", Basic("local_date")),
        ("timestamp", Basic("instant")),
        ("timestamp_ntz", Basic("local_date_time")),
        ("decimal(20,3)", Shown(Basic("bigdecimal"), pa.decimal128(20, 3))),
    ],
)
def test_a_users_serializer_is_read_as_flink_writes_the_type(text: str, expected: FlinkType | None) -> None:
    if expected is None:
        numbers = tuple(map(Basic, ("byte", "short", "float", "double")))
        expected = TupleOf(numbers, ("a", "b", "c", "d"))
    assert with_declared(OWN, text) == expected
    assert with_declared(ListOf(OWN), f"array<{text}>") == ListOf(expected)


def test_a_serializer_in_flinks_packages_of_which_the_snapshots_class_is_all_that_is_known_gets_a_type() -> None:
    """As those of tests and connectors do; of its own serializers statestore knows which it does not decode."""
    kind = Opaque("org.apache.flink.connector.x.SplitSerializer$SplitSerializerSnapshot")
    assert with_declared(kind, "bigint") == LONG


def test_times_may_be_shown_as_text_and_numbers_as_decimals() -> None:
    assert with_declared(Basic("instant"), "string") == Shown(Basic("instant"), pa.string())
    decimal = with_declared(Basic("bigdecimal"), "decimal(38,9)")
    assert decimal == Shown(Basic("bigdecimal"), pa.decimal128(38, 9))


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (INT, "bigint", r"found bigint, expected int"),
        (LONG, "int", r"found int, expected bigint"),
        (PAIR, "struct<name: string>", r"struct of 1 fields, expected 2"),
        (PAIR, "struct<n: string, N: bigint>", r"names that differ"),
        (PAIR, "struct<name: string, n: int>", r"at n: found int, expected bigint"),
        (ListOf(PAIR), "array<struct<name: string, n: int>>", r"at element\.n: found int"),
        (PAIR, "string", r"found string, expected tuple"),
        (ListOf(LONG), "bigint", r"expected list\(long\)"),
        (RowDataOf(ROW), "struct<a: bigint, b: decimal(12,3)>", r"at b: found decimal\(12,3\)"),
        (PojoOf("x.P", (("a", INT),)), "struct<b: int>", r"found fields b, expected a"),
        (AvroOf("x.P", '"int"'), "int", r"Avro's schema"),
        (Opaque(KRYO, "x.Thing"), "bigint", r"Kryo class x\.Thing depend on what the job registered"),
        (Opaque("org.apache.flink.runtime.state.JavaSerializer"), "bigint", r"not those of Flink's basic"),
        (OWN, "interval day to second", r"no basic serializer of Flink writes"),
        (STRING, "strng", r"did you mean"),
        (STRING, "utf", r"found utf, expected string"),
        (PAIR, "struct<name: utf, n: bigint>", r"at name: found utf, expected string"),
        (ListOf(LONG), "array<utf>", r"at element: found utf, expected bigint"),
        (LONG, "map<utf, array<utf>>", r"found map<utf,array<utf>>, expected bigint"),
        (Basic("instant"), "utf", r"found utf, expected timestamp"),
        (Basic("bigdecimal"), "utf", r"found utf, expected string"),
        (EnumOf("x.E", ("A",)), "utf", r"found utf, expected enum"),
        (StringArray(), "array<utf>", r"expected string\[\]"),
        (RowDataOf(TEXT_ROW), "struct<a: utf>", r"at a: found utf, expected STRING"),
        (Opaque(KRYO, "x.Thing"), "utf", r"Kryo class"),
        (OWN, "utf(3)", r"utf is written utf"),
        (OWN, "utf<int>", r"utf is written utf"),
        (OWN, "utff", r"did you mean utf"),
    ],
)
def test_a_type_that_does_not_fit_is_refused_with_its_place(kind: FlinkType, text: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"FLINK_TYPE.*{problem}") as raised:
        with_declared(kind, text)
    assert text in raised.value.message
