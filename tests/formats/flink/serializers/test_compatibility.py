"""Which changes of a state's type Flink takes when it restores, as its snapshot classes decide."""

from __future__ import annotations

import json
from typing import Any

import pytest

from statestore.formats.flink.serializers.compatibility import compatibility, same_bytes
from statestore.formats.flink.serializers.flink_types import (
    AvroOf,
    Basic,
    EnumOf,
    FlinkType,
    ListOf,
    Logical,
    MapOf,
    MaskedListOf,
    Nullable,
    Opaque,
    PojoOf,
    RowDataOf,
    RowOf,
    TtlOf,
    TupleOf,
)
from statestore.formats.flink.serializers.type_names import KRYO

STRING, LONG, INT = Basic("string"), Basic("long"), Basic("int")
PERSON = PojoOf("x.P", (("age", INT), ("name", STRING)))
OLDER = PojoOf("x.P", (("age", LONG), ("name", STRING)))
TALLER = PojoOf("x.P", (("age", INT), ("height", INT), ("name", STRING)))
COLOR = EnumOf("x.C", ("RED", "GREEN"))
MORE = EnumOf("x.C", ("BLUE", "RED", "GREEN"))


def record(*fields: dict[str, Any], name: str = "R") -> AvroOf:
    return AvroOf("x.R", json.dumps({"type": "record", "name": name, "fields": list(fields)}))


N_INT, N_LONG = {"name": "n", "type": "int"}, {"name": "n", "type": "long"}
S, S_DEFAULT = {"name": "s", "type": "string"}, {"name": "s", "type": ["null", "string"], "default": None}
RENAMED = {"name": "m", "type": "int", "aliases": ["n"]}
TREE = {"name": "next", "type": ["null", "R"], "default": None}


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        (STRING, STRING, "as is"),
        (INT, LONG, "incompatible"),
        (PERSON, PERSON, "as is"),
        (PERSON, TALLER, "after migration"),
        (TALLER, PERSON, "after migration"),
        (PERSON, OLDER, "incompatible"),
        (PERSON, PojoOf("x.Q", PERSON.fields), "incompatible"),
        (ListOf(PERSON), ListOf(TALLER), "after migration"),
        (MapOf(STRING, PERSON), MapOf(STRING, OLDER), "incompatible"),
        (TupleOf((INT, PERSON)), TupleOf((INT, TALLER)), "after migration"),
        (COLOR, MORE, "as is"),
        (MORE, COLOR, "incompatible"),
        (PojoOf("x.P", (("c", COLOR),)), PojoOf("x.P", (("c", MORE),)), "as is"),
        (TupleOf((INT,)), TupleOf((INT, INT)), "incompatible"),
        (TupleOf((INT,)), TupleOf((INT,), ("named",)), "as is"),
        (TupleOf((INT,), class_name="a.T"), TupleOf((INT,), class_name="a.U"), "as is"),
        (TupleOf((INT,)), TupleOf((INT,), is_scala=True), "incompatible"),
        (LONG, Basic("long", "org.apache.flink.types.LongValue"), "incompatible"),
        (RowOf((INT,), False), RowOf((INT,), True), "after migration"),
        (RowOf((INT,), False), RowOf((LONG,), True), "incompatible"),
        (Nullable(INT, 4), Nullable(INT), "incompatible"),
        (Nullable(INT), INT, "incompatible"),
        (ListOf(INT), ListOf(INT, is_set=True), "incompatible"),
        (ListOf(INT), MaskedListOf(INT), "unknown"),
        (LONG, TtlOf(LONG), "unknown"),
        (TtlOf(LONG), TtlOf(INT), "incompatible"),
        (Opaque(KRYO, "x.A"), Opaque(KRYO, "x.A"), "unknown"),
        (Opaque(KRYO, "x.A"), Opaque(KRYO, "x.B"), "incompatible"),
        (Opaque("x.Own"), LONG, "unknown"),
        (RowDataOf(Logical("ROW", children=(Logical("INTEGER"),))), RowDataOf(Logical("ROW")), "incompatible"),
        (record(N_INT), record(N_INT), "as is"),
        (record(N_INT), record(N_LONG), "after migration"),
        (record(N_LONG), record(N_INT), "incompatible"),
        (record(N_INT), record(N_INT, S_DEFAULT), "after migration"),
        (record(N_INT), record(N_INT, S), "incompatible"),
        (record(N_INT, S), record(N_INT), "after migration"),
        (record(S), record(S_DEFAULT), "after migration"),
        (record(S_DEFAULT), record(S), "incompatible"),
        (record(N_INT), record(RENAMED), "after migration"),
        (record(N_INT), record(N_INT, name="Other"), "incompatible"),
        (record(N_INT, TREE), record(N_LONG, TREE), "after migration"),
        (AvroOf("x", "{"), AvroOf("x", "}"), "unknown"),
    ],
)
def test_a_change_has_the_outcome_of_flink(old: FlinkType, new: FlinkType, outcome: str) -> None:
    found = compatibility(old, new)
    assert found.outcome == outcome
    assert (found.reason == "") == (outcome == "as is")


def test_the_reason_names_the_place() -> None:
    assert same_bytes(PERSON, PERSON) is None
    assert same_bytes(PERSON, TALLER) == "after migration: field height added"
    assert same_bytes(MapOf(STRING, PERSON), MapOf(STRING, OLDER)) == "incompatible: value: field age: int became long"
    assert same_bytes(MORE, COLOR) == "incompatible: constants BLUE removed"
