"""Values and keys that Flink 2.3 wrote are read as the job that wrote them knew them.

``stored_values.json.xz`` has rows of real savepoints as hexadecimal digits, with the values that the jobs recorded
beside them: a value state of every type, Avro records, and stored keys with their key groups.
"""

from __future__ import annotations

import datetime
import json
import lzma
import math
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from support.flink.value_model import column_of
from support.paths import DATA

from statestore.formats.flink.columns.key_bytes import encode, java_hash
from statestore.formats.flink.columns.key_hashes import hashed_as, java_hashes
from statestore.formats.flink.layouts.type_layouts import arrow_type
from statestore.formats.flink.serializers.flink_types import (
    ArrayOf,
    AvroOf,
    Basic,
    EnumOf,
    FlinkType,
    ListOf,
    Logical,
    MapOf,
    Nullable,
    PojoOf,
    PrimitiveArray,
    RowDataOf,
    RowOf,
    Shown,
    SortedLong,
    StringArray,
    TupleOf,
)
from statestore.formats.values.key_groups import murmur_of

INT, LONG, DOUBLE, STRING, BOOLEAN = map(Basic, ("int", "long", "double", "string", "boolean"))
POJO = PojoOf("StateGen$RegionKey", (("region", STRING), ("shard", INT)))
VALUES: dict[str, FlinkType] = {
    **{f"t_{name}": Basic(name) for name in ("boolean", "byte", "short", "int", "long", "float", "double", "char")},
    "t_string": STRING,
    "t_bigdec": Basic("bigdecimal"),
    "t_bigint": Basic("biginteger"),
    "t_localdate": Shown(Basic("local_date"), pa.string()),
    "t_localtime": Shown(Basic("local_time"), pa.string()),
    "t_localdatetime": Shown(Basic("local_date_time"), pa.string()),
    "t_instant": Shown(Basic("instant"), pa.string()),
    "t_sqldate": Basic("sql_date"),
    "t_sqltime": Basic("sql_time"),
    "t_sqltimestamp": Basic("sql_timestamp"),
    "t_date": Basic("date"),
    "t_bytes": PrimitiveArray("byte"),
    "t_intarray": PrimitiveArray("int"),
    "t_longarray": PrimitiveArray("long"),
    "t_doublearray": PrimitiveArray("double"),
    "t_stringarray": StringArray(),
    "t_objarray": ArrayOf(TupleOf((INT, STRING))),
    "t_enum": EnumOf("StateGen$Color", ("RED", "GREEN", "BLUE")),
    "t_list": ListOf(STRING),
    "t_map": MapOf(STRING, INT),
    "t_row": RowOf((LONG, STRING, DOUBLE, BOOLEAN), True),
    "t_nested": TupleOf((ListOf(TupleOf((STRING, LONG))), MapOf(INT, ListOf(DOUBLE)))),
    "t_pojo": PojoOf("StateGen$Address", (("city", STRING), ("zip", INT))),
}
SHOWN = {"t_localdate": pa.date32(), "t_localdatetime": pa.timestamp("ns"), "t_instant": pa.timestamp("ns")}
TUPLE = "org.apache.flink.api.java.tuple.Tuple"
KEYS: dict[str, FlinkType] = {
    "int": INT,
    "long": LONG,
    "string": STRING,
    "tuple": TupleOf((STRING, INT), class_name=f"{TUPLE}2"),
    "pojo": POJO,
    "row of string": RowDataOf(Logical("ROW", children=(Logical("STRING"),))),
    "row of bigint, boolean": RowDataOf(Logical("ROW", children=(Logical("BIGINT"), Logical("BOOLEAN")))),
}


@cache
def stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lzma.decompress((DATA / "flink" / "stored_values.json.xz").read_bytes()))
    return found


def read(kind: FlinkType, rows: list[str]) -> pa.Array:
    return column_of(kind, *map(bytes.fromhex, rows))


def as_arrow(truth: Any, kind: pa.DataType) -> Any:
    """The recorded form of a value, as the Arrow type has it."""
    if truth is None:
        return None
    if isinstance(truth, dict) and "$millis" in truth:
        millis = truth["$millis"]
        return millis * 1000 if kind.unit == "us" else millis // 1000 * 10**9 + truth["$nanos"]
    if isinstance(truth, dict) and "$bytes" in truth:
        return bytes.fromhex(truth["$bytes"])
    if isinstance(truth, dict) and "$map" in truth:
        return [(as_arrow(key, kind.key_type), as_arrow(item, kind.item_type)) for key, item in truth["$map"]]
    if pa.types.is_struct(kind):
        cells = truth.values() if isinstance(truth, dict) else truth
        names = truth if isinstance(truth, dict) else [field.name for field in kind]
        return {name: as_arrow(cell, kind.field(name).type) for name, cell in zip(names, cells, strict=True)}
    if pa.types.is_list(kind):
        return [as_arrow(each, kind.value_type) for each in truth]
    return truth


@pytest.mark.parametrize("state", VALUES)
def test_a_value_of_each_type_is_what_the_job_recorded(state: str) -> None:
    kind, rows = VALUES[state], stored()["values"][state]
    column = read(kind, [raw for raw, _ in rows])
    assert len(rows) > 4
    expected = pa.array([as_arrow(truth, arrow_type(kind)) for _, truth in rows], arrow_type(kind))
    assert column.equals(expected)


@pytest.mark.parametrize("state", SHOWN)
def test_times_are_those_of_their_texts(state: str) -> None:
    kind, rows = VALUES[state], stored()["values"][state]
    assert isinstance(kind, Shown)
    column = read(kind.value, [raw for raw, _ in rows])
    texts = pa.array([truth.removesuffix("Z") for _, truth in rows])
    assert column.cast(SHOWN[state]).equals(texts.cast(SHOWN[state]))


def test_avro_records_are_what_the_job_recorded() -> None:
    for state in stored()["avro"].values():
        kind = AvroOf("shop.Measurement", state["schema"])
        found = read(kind, [raw for raw, _ in state["rows"]])
        assert found.type.field("taken").type == pa.timestamp("ms", "UTC")
        for value, (_, truth) in zip(found.to_pylist(), state["rows"], strict=True):
            raw = value["raw"] and next((each for each in value["raw"].values() if each is not None), None)
            assert raw == as_arrow(truth["raw"], pa.binary())
            assert value["day"].isoformat() == truth["day"]
            assert value["taken"].isoformat(timespec="milliseconds") == truth["taken"].replace("Z", "+00:00")
            assert str(value["price"]) == truth["price"]
            assert value["labels"] == [tuple(pair) for pair in truth["labels"]["$map"]]
            for name in ("id", "place", "quality", "values", "ratio", "valid"):
                assert value[name] == truth[name]


@pytest.mark.parametrize("number", range(8))
def test_keys_are_encoded_and_hashed_as_flink_does(number: int) -> None:
    group = stored()["keys"][number]
    kind, most = KEYS[group["type"]], group["max_parallelism"]
    width = 1 if most <= 128 else 2
    for key_group, raw, key in group["rows"]:
        whole = bytes.fromhex(raw)
        found = encode(kind, key)
        assert found is not None and whole[width:].startswith(found)
        assert read(kind, [found.hex()]).to_pylist() == [key]
        assert int.from_bytes(whole[:width], "big") == key_group
        code = java_hash(kind, key)
        if group["type"].startswith("row"):
            assert code is None  # a row may be of several classes, of which Flink uses this one for keys
            (many,) = java_hashes(kind, read(hashed_as(kind), [found.hex()])).tolist()
            assert murmur_of(many) % most == key_group
        elif group["type"] == "pojo":
            assert code is None  # the user's class defines it
        else:
            assert code is not None and murmur_of(code) % most == key_group


def test_keys_without_known_bytes_are_not_encoded() -> None:
    subclass = PojoOf("a.B", (), (), (("a.C", POJO),))
    for kind, key in [(LONG, 1 << 63), (INT, True), (STRING, 5), (subclass, {}), (ListOf(LONG), [1])]:
        assert encode(kind, key) is None
        assert java_hash(kind, key) is None


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        *[("float", 1.5, 1069547520), ("float", -2.25, -1072693248), ("float", 1.401298464324817e-45, 1)],
        *[("float", 3.4028234663852886e38, 2139095039), ("float", math.nan, 2143289344)],
        *[("float", math.inf, 2139095040), ("float", 16777216, 1266679808)],
        *[("double", 1.5, 1073217536), ("double", -2.25, -1073610752), ("double", 5e-324, 1)],
        *[("double", 1.7976931348623157e308, -2146435072), ("double", math.nan, 2146959360)],
        *[("double", -math.inf, -1048576), ("double", 0.1, -1507852285), ("double", 1e300, -164130400)],
        *[("double", 0.0, 0), ("double", -0.0, -(2**31)), ("float", 0.0, 0), ("float", -0.0, -(2**31))],
        *[("char", "a", 97), ("char", "\u20ac", 8364), ("char", "\0", 0), ("char", "\uffff", 65535)],
        *[("boolean", True, 1231), ("boolean", False, 1237)],
        *[("byte", -128, -128), ("byte", -1, -1), ("byte", 127, 127)],
        *[("short", -32768, -32768), ("short", -1, -1), ("int", -(2**31), -(2**31)), ("int", -1, -1)],
        *[("long", -(2**63), -(2**31)), ("long", -1, 0), ("long", 2**63 - 1, -(2**31)), ("long", 2**32, 1)],
        *[("long", -(2**32) - 1, 1), ("string", "", 0), ("string", "a", 97), ("string", "\0\0", 0)],
        *[("string", "polygenelubricants", -(2**31)), ("string", "h\u00e9\u20ac\U0001f600", 112798190)],
    ],
)
def test_hash_codes_are_those_of_java(name: str, value: Any, code: int) -> None:
    assert java_hash(Basic(name), value) == code & 0xFFFFFFFF


def test_hash_codes_of_tuples_are_those_of_flink() -> None:
    inner = TupleOf((DOUBLE, BOOLEAN), class_name=f"{TUPLE}2")
    outer = TupleOf((inner, STRING, Basic("byte")), ("a", "b", "c"), f"{TUPLE}3")
    assert java_hash(TupleOf((LONG,), class_name=f"{TUPLE}1"), (5,)) == 5
    assert java_hash(outer, {"a": (1.5, True), "b": "\u00e9", "c": -1}) == 488253765
    assert java_hash(outer, {"a": (0.0, True), "b": "\u00e9", "c": -1}) == ((1231 * 31) + 233) * 31 - 1


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (Basic("long", "org.apache.flink.types.LongValue"), 5),
        (Basic("string_value", "org.apache.flink.types.StringValue"), "a"),
        (TupleOf((LONG,)), (5,)),
        (TupleOf((LONG,), class_name="a.MyTuple"), (5,)),
        (TupleOf((LONG, LONG), class_name="scala.Tuple2", is_scala=True), (5, 6)),
        (TupleOf((Basic("long", "a.B"),), class_name=f"{TUPLE}1"), (5,)),
        (RowDataOf(Logical("ROW", children=(Logical("BIGINT"),))), (5,)),
        (RowOf((LONG,), True), (5,)),
        (EnumOf("a.E", ("RED",)), "RED"),
        (PrimitiveArray("byte"), b"a"),
        (SortedLong(), 5),
        (Nullable(LONG), 5),
        (Basic("float"), 0.1),
        (Basic("local_date"), datetime.date(2020, 1, 1)),
        (Basic("bigdecimal"), "1.0"),
        (Basic("void"), None),
        (Basic("time_window"), {"start": 0, "end": 1}),
    ],
)
def test_no_hash_code_is_told_where_the_class_of_a_key_is_not_certain(kind: FlinkType, key: Any) -> None:
    assert java_hash(kind, key) is None
