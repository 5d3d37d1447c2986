"""Options that an error suggests for maps of SQL with null keys: each reads the state of which the error tells."""

from __future__ import annotations

import re

import pytest
from support.flink.binary_maps import map_of_sql
from support.flink.value_model import column_of

from statestore.formats.flink.columns.faults import NullMapKeyError
from statestore.formats.flink.flink_settings import settings_of
from statestore.formats.flink.serializers.backend_header import KeyedStateHeader
from statestore.formats.flink.serializers.flink_types import (
    VOID,
    Basic,
    FlinkType,
    Logical,
    MapOf,
    RowDataOf,
    TableValue,
)
from statestore.formats.flink.streams.operator_rows import OperatorForm
from statestore.formats.flink.streams.state_form import KeyedForm, Typed, form_of
from statestore.formats.flink.suggested_types import with_option

STATE = "Join[74].left-records"
COUNTS = TableValue(Logical("MAP", children=(Logical("STRING"), Logical("INTEGER"))))
BYTES = map_of_sql(("a", 1), (None, -2))
ENTRIES = [{"key": "a", "value": 1}, {"key": None, "value": -2}]


def keyed(key: FlinkType, value: FlinkType, **declared: str) -> KeyedForm:
    header = KeyedStateHeader("left-records", "map", VOID, MapOf(key, value), {})
    return form_of(header, Basic("long"), Typed(declared, STATE))


def refusal(kind: FlinkType) -> NullMapKeyError:
    with pytest.raises(NullMapKeyError) as raised:
        column_of(kind, BYTES)
    return raised.value


def option_of(error: Exception) -> dict[str, str]:
    """The types by column that the suggested option gives for the state."""
    found = re.search(r"; give --type '([^']*)'$", str(error))
    assert found is not None
    (state,) = (types := settings_of({"type": found[1]}).types)
    assert state == STATE
    return dict(types[state])


@pytest.mark.parametrize(("key", "value"), [(COUNTS, Basic("int")), (Basic("int"), COUNTS)])
def test_a_map_in_the_keys_or_the_values_of_a_map_state(key: FlinkType, value: FlinkType) -> None:
    column = "map_key" if key is COUNTS else "map_value"
    given = option_of(with_option(refusal(COUNTS), STATE, keyed(key, value)))
    assert given == {column: "array<struct<key:string,value:int>>"}
    form = keyed(key, value, **given)
    kind = form.map_key if key is COUNTS else form.element
    assert kind is not None
    assert column_of(kind, BYTES).to_pylist() == [ENTRIES]


def test_a_map_in_both_is_given_for_both() -> None:
    given = option_of(with_option(refusal(COUNTS), STATE, keyed(COUNTS, COUNTS)))
    assert given == dict.fromkeys(("map_key", "map_value"), "array<struct<key:string,value:int>>")


def test_the_whole_type_of_a_row_is_given_with_all_its_maps() -> None:
    parts = (
        COUNTS.kind,
        *map(Logical, ("TIME", "VARIANT", "DAY_TIME")),
        *(Logical(root, digits) for root in ("TIMESTAMP", "TIMESTAMP_LTZ") for digits in (3, 9)),
        Logical("DECIMAL", 30, 5),
        Logical("ARRAY", children=(Logical("MULTISET", children=(Logical("DATE"),)),)),
        Logical("MAP", children=(Logical("BIGINT"), COUNTS.kind)),
    )
    row = RowDataOf(Logical("ROW", children=parts))
    given = option_of(with_option(refusal(COUNTS), STATE, keyed(row, Basic("int"))))
    counts = "array<struct<key:string,value:int>>"
    expected = (
        f"f0:{counts},f1:time,f2:string,f3:interval day to second,f4:timestamp_ntz,f5:timestamp_ntz(9),f6:timestamp,"
        f"f7:timestamp(9),f8:decimal(30,5),f9:array<array<struct<key:date,value:int>>>,"
        f"f10:array<struct<key:bigint,value:{counts}>>"
    )
    assert given == {"map_key": f"struct<{expected}>"}
    assert keyed(row, Basic("int"), **given).map_key is not None


def test_broadcast_state_and_elements_of_an_operator() -> None:
    for form, column in (
        (OperatorForm("x", "BROADCAST", Basic("int"), COUNTS), "map_key"),
        (OperatorForm("x", "BROADCAST", COUNTS, Basic("int")), "map_value"),
        (OperatorForm("x", "SPLIT_DISTRIBUTE", COUNTS), "value"),
    ):
        assert list(option_of(with_option(refusal(COUNTS), STATE, form))) == [column]
