"""Rows of states whose keys or values say nothing, by bytes as Flink writes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from support.flink.value_model import encoded, int64, record, text

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.flink.columns.decoding import decode_records
from statestore.formats.flink.serializers.backend_header import KeyedStateHeader, StateKind
from statestore.formats.flink.serializers.flink_types import (
    VOID,
    Basic,
    FlinkType,
    ListOf,
    MapOf,
    Opaque,
    PojoOf,
    TryOf,
    TtlOf,
    TupleOf,
)
from statestore.formats.flink.streams.keyed_columns import KeyGroups, framed_rows, heap_rows, record_kinds
from statestore.formats.flink.streams.state_form import KeyedForm, Typed, form_of
from statestore.formats.kernels.arrays import Bytes

STRING, LONG = Basic("string"), Basic("long")
GROUP = b"\5"
PLACED = {"key_group": 5}


def form(kind: StateKind, value: FlinkType, key: FlinkType = LONG) -> KeyedForm:
    return form_of(KeyedStateHeader("s", kind, VOID, value, {}), key, Typed({}, "state s"))


def framed(form: KeyedForm, *entries: tuple[bytes, bytes]) -> list[dict[str, Any]]:
    """Rows of entries of RocksDB, without their sizes."""
    keys, values = (cells_of(pa.array(each, pa.binary())) for each in zip(*entries, strict=True))
    rows = framed_rows(form, keys, values, KeyGroups(0, 9, 1), form.schema.names, "state s")
    rows.validate(full=True)
    found: list[dict[str, Any]] = rows.drop_columns(["stored_bytes"]).to_pylist()
    return found


def stepped(form: KeyedForm, data: bytes, count: int) -> list[dict[str, Any]]:
    """Rows of records of a heap snapshot."""
    kinds = record_kinds(form)
    octets: Bytes = pa.array(list(data), pa.uint8()).to_numpy()
    records = decode_records(kinds, octets, 0, len(data), count, [True] * 3, "state s", True)
    assert records.at == len(data)
    found: list[dict[str, Any]] = heap_rows(form, records, 5, form.schema.names).to_pylist()
    return [{name: cell for name, cell in row.items() if name != "stored_bytes"} for row in found]


@pytest.mark.parametrize("value", [b"\1\0", b"\0\0", b"\1"])
def test_a_map_to_void_is_its_keys_in_rocksdb(value: bytes) -> None:
    tags = form("map", MapOf(STRING, VOID))
    assert framed(tags, (GROUP + int64(7) + b"\0" + text("x"), value)) == [{"key": 7, "map_key": "x", **PLACED}]
    assert tags.row_key == ("key", "map_key")


def test_a_map_to_void_is_its_keys_in_a_heap_snapshot() -> None:
    kind = MapOf(STRING, VOID)
    data = b"\0" + int64(7) + encoded(kind, [("x", None), ("y", None)]) + b"\0" + int64(8) + encoded(kind, [])
    assert stepped(form("map", kind), data, 2) == [{"key": 7, "map_key": each, **PLACED} for each in "xy"]


def test_a_list_of_void_is_its_positions() -> None:
    marks = form("list", ListOf(VOID))
    rows = [{"key": 7, "position": each, **PLACED} for each in (0, 1)]
    assert framed(marks, (GROUP + int64(7) + b"\0", b"\0,\0")) == rows
    assert stepped(marks, b"\0" + int64(7) + encoded(ListOf(VOID), [None, None]), 1) == rows


def test_a_void_value_with_a_time_to_live_is_its_last_access() -> None:
    flag = form("value", TtlOf(VOID))
    (row,) = framed(flag, (GROUP + int64(7) + b"\0", int64(1_500) + b"\0"))
    assert row.pop("last_access").timestamp() == 1.5
    assert row == {"key": 7, **PLACED}


def test_a_void_key_is_a_column_of_nulls() -> None:
    one = form("value", LONG, key=VOID)
    assert framed(one, (GROUP + b"\0\0", int64(3))) == [{"key": None, "value": 3, **PLACED}]
    assert stepped(one, record([VOID, VOID, LONG], [None, None, 3]), 1) == [{"key": None, "value": 3, **PLACED}]


def test_what_a_try_has_thrown_ends_a_value_and_no_element_of_a_list() -> None:
    attempt = TryOf(STRING, Opaque("KryoSerializer", "java.lang.Throwable"))
    for found in (form("value", attempt), form("value", TtlOf(attempt)), form("map", MapOf(LONG, attempt))):
        assert found.element == attempt and not found.whole
    found = form("list", ListOf(attempt))
    assert found.element == attempt.failure and found.whole


PLAN = Opaque("KryoSerializer", "job.Plan")
ORDER = PojoOf("job.Order", (("a", Basic("int")), ("np", PLAN), ("z", STRING)))


def test_fields_before_one_that_cannot_be_decoded_are_read() -> None:
    # Values that Flink 1.20 wrote of such a POJO, the second with a null there.
    rest = "00570100ce04018101006a6176612e7574696c2e41727261794c6973f4010303018261020a0000067332327933"
    values = [bytes.fromhex("02003d8bd0a0" + rest), bytes.fromhex("0200ae8059cb01000573643163")]
    found = form("value", ORDER)
    assert [name for name, _ in found.element.fields] == ["a", "np_and_behind"]  # type: ignore[attr-defined]
    column = found.schema.field("value").type.field("np_and_behind")
    assert column.type == pa.binary()
    assert column.metadata[b"statestore.serializer"] == b"KryoSerializer of job.Plan"
    rows = framed(found, *[(GROUP + int64(each) + b"\0", value) for each, value in enumerate(values)])
    assert [row["value"] for row in rows] == [
        {"a": 1032573088, "np_and_behind": bytes.fromhex(rest)},
        {"a": -1367320117, "np_and_behind": bytes.fromhex("01000573643163")},
    ]


def test_a_time_to_live_and_a_null_stand_beside_fields_before_one_that_cannot_be_decoded() -> None:
    found = form("value", TtlOf(ORDER))
    values = [int64(1_500) + b"\2\0" + bytes(4) + b"\1\1", int64(1_500) + b"\1"]
    rows = framed(found, *[(GROUP + int64(each) + b"\0", value) for each, value in enumerate(values)])
    assert [row["value"] for row in rows] == [{"a": 0, "np_and_behind": b"\1\1"}, None]
    assert {row["last_access"].timestamp() for row in rows} == {1.5}


def test_fields_before_one_that_cannot_be_decoded_are_read_in_the_last_field_and_in_tuples_and_maps() -> None:
    pair = TupleOf((LONG, PLAN, STRING))
    around = form("map", MapOf(LONG, TupleOf((LONG, pair))))
    (row,) = framed(around, (GROUP + int64(7) + b"\0" + int64(1), b"\0" + int64(2) + int64(3) + b"rest"))
    assert row["map_value"] == {"f0": 2, "f1": {"f0": 3, "f1_and_behind": b"rest"}}
    (row,) = framed(around, (GROUP + int64(7) + b"\0" + int64(1), b"\1"))
    assert row["map_value"] is None


def test_a_value_is_bytes_as_a_whole_where_the_place_of_its_parts_is_not_known() -> None:
    first = PojoOf("job.First", (("a", PLAN), ("b", LONG)))
    base = PojoOf("job.Order", ORDER.fields, registered=(("job.Sub", PojoOf("job.Sub", ORDER.fields)),))
    for kind in (first, base, ListOf(ORDER)):
        assert form("value", kind).schema.field("value").type == pa.binary()
    elements = form("list", ListOf(ORDER))
    assert elements.whole and elements.schema.field("value").type == pa.binary()
