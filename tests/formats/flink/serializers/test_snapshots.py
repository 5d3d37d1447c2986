"""Snapshots that Flink's serializers wrote, read as types, and damaged ones."""

from __future__ import annotations

import pytest
from support.flink.metadata_bytes import i32, utf
from support.flink.snapshot_bytes import (
    BASE,
    INT,
    LONG,
    RUNTIME,
    STRING,
    VERSIONS,
    composite,
    listed,
    mapped,
    optional_map,
    pojo,
    printed,
    snapshot,
    tupled,
)
from support.flink.value_model import decoded
from support.parameters import named

from statestore.formats.errors import CorruptError, StateStoreError, UnsupportedError
from statestore.formats.flink.serializers.flink_types import (
    VARIABLE,
    AvroOf,
    Basic,
    EnumOf,
    FlinkType,
    ListOf,
    MapOf,
    Nullable,
    Opaque,
    OptionOf,
    PojoOf,
    RowOf,
    TraversableOf,
    TtlOf,
    TupleOf,
    fixed_width,
)
from statestore.formats.flink.serializers.opaque_parts import opaque_part
from statestore.formats.flink.serializers.snapshots import read_proxied, read_snapshot
from statestore.formats.flink.serializers.type_names import shown
from statestore.formats.flink.snapshot.data_input import DataInput

INNER = "ROW(n INTEGER, s STRING, t TIMESTAMP(9))"
NOT = "(not decoded)"
TABLE = "org.apache.flink.table.runtime.typeutils."
SCALA = "org.apache.flink.api.scala.typeutils."
CEP = "org.apache.flink.cep.nfa."
EVENT = "tuple(id int, timestamp long)"
NODE = f"option(tuple(event_id {EVENT}, page string))"
MATCH = (
    f"tuple(state string, previous_node {NODE}, version int[], start_timestamp long, previous_timestamp long, "
    f"start_event option({EVENT}))"
)
EXPECTED = {
    "rowdata": "ROW(BOOLEAN, TINYINT, SMALLINT, INTEGER, BIGINT, FLOAT, DOUBLE, STRING, STRING, BYTES, BYTES, "
    "DECIMAL(30, 4), DATE, TIME, TIMESTAMP(3), TIMESTAMP_LTZ(6), YEAR_MONTH, DAY_TIME, ARRAY<INTEGER>, "
    f"MAP<STRING, ARRAY<BIGINT>>, MULTISET<STRING>, {INNER}, RAW(Kryo SerializerSnapshots$Thing))",
    "rowdata-row": f"ROW({INNER}, ARRAY<{INNER}>)",
    "rowdata-structured": "ROW(ROW(a INTEGER, b STRING))",
    "array": "ARRAY<DECIMAL(10, 2)>",
    "map": f"MAP<STRING, {INNER}>",
    "stringdata": "STRING",
    "decimal": "DECIMAL(20, 3)",
    "timestamp": "TIMESTAMP(9)",
    "timestamp3": "TIMESTAMP(3)",
    "raw": "string",
    "binaryrow": f"{TABLE}BinaryRowDataSerializer {NOT}",
    "linkedlist": "list(long)",
    "linkedlist-nomask": "list(long)",
    "sortedmap": "map(long, string)",
    "windowkey": "tuple(window long, key ROW(INTEGER))",
    "external": "ROW(INTEGER, ARRAY<STRING>)",
    "listview": "list(string)",
    "mapview": "map(string, long)",
    "nullawaremap": "map(nullable string, long)",
    "null": "void",
    "sqltimewindow": "time_window",
    "sqlcountwindow": "CountWindow",
    "sqlglobalwindow": "void",
    "either": "either(string, long)",
    "tuple0": "tuple0",
    "void": "void",
    "java": f"org.apache.flink.runtime.state.JavaSerializer {NOT}",
    "streamelement": "union(with_timestamp tuple(timestamp long, value string), without_timestamp string)",
    "union": "union(one string, two long)",
    "interval": "tuple(has_been_joined boolean, element string)",
    "timer": "timer(string, long)",
    "arraylist": "list(string)",
    "nullable": "nullable long",
    "lockable": "tuple(references int, element string)",
    "nodeid": NODE,
    "node": f"list(tuple(references int, edge tuple(target {NODE}, version int[])))",
    "eventid": "tuple(id int, timestamp long)",
    "nfastate": f"tuple(partial_matches list({MATCH}), completed_matches list({MATCH}))",
    "avro": "Avro org.apache.avro.generic.GenericRecord",
    "kryo": "Kryo SerializerSnapshots$Thing",
    "genericarray": "array(string)",
    "row": "row(string, long)",
    "set": "set(string)",
    "bitmap": "bytes",
    "variant": "VARIANT",
    "sortedlong": "long",
    "metasqn": "tuple(high_sqn long, size long)",
    "rowsqn": "tuple(first_sqn long, last_sqn long)",
    "sqnnode": "tuple(row ROW(INTEGER), sqn long, prev_sqn nullable long, next_sqn nullable long, "
    "next_sqn_for_record nullable long, timestamp long)",
    "scala-case": "case class scala.Tuple2(string, long)",
    "scala-option": "option(string)",
    "scala-either": "either(string, long)",
    "scala-unit": "unit",
    "copyablevalue": f"{RUNTIME}CopyableValueSerializer of org.apache.flink.types.LongValue {NOT}",
}
"""The text of each type, by the name that the Java program gave the serializer."""


def read(data: bytes) -> FlinkType:
    """The type of a snapshot that is all of ``data``."""
    source = DataInput(data, "file")
    kind = read_snapshot(source)
    source.end()
    return kind


CASES = [(version, name) for version in VERSIONS for kind, name in printed(version) if kind == "SNAP"]


def test_each_serializer_was_written_by_a_version() -> None:
    assert {name for _, name in CASES} == set(EXPECTED)
    assert {name for version, name in CASES if version == "2.3.0"} == {each for each in EXPECTED if "scala" not in each}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_snapshot_of_flink_is_read_to_its_end(version: str) -> None:
    names = [name for each, name in CASES if each == version]
    found = {name: shown(read(printed(version)["SNAP", name][1])) for name in names}
    assert found == {name: EXPECTED[name] for name in names}


def test_the_class_of_a_tuple_is_known_where_its_snapshot_has_it() -> None:
    scala = read(printed("1.20.3")["SNAP", "scala-case"][1])
    assert isinstance(scala, TupleOf)
    assert (scala.class_name, scala.is_scala) == ("scala.Tuple2", True)
    of_flink = read(tupled(INT, STRING))
    assert isinstance(of_flink, TupleOf)
    assert (of_flink.class_name, of_flink.is_scala) == ("org.apache.flink.api.java.tuple.Tuple2", False)
    for name in ("windowkey", "interval", "lockable", "eventid", "metasqn"):
        other = read(printed("2.3.0")["SNAP", name][1])
        assert isinstance(other, TupleOf)
        assert other.class_name == ""


def test_a_length_is_variable_where_flink_says_so() -> None:
    for version, name in CASES:
        length, data = printed(version)["SNAP", name]
        kind = read(data)
        if opaque_part(kind) is None:
            assert (fixed_width(kind) == VARIABLE) == (length == -1), (version, name)


def test_an_avro_schema_is_read_as_text() -> None:
    found = read(printed("2.3.0")["SNAP", "avro"][1])
    assert isinstance(found, AvroOf) and '"doc":"ü中"' in found.schema


@pytest.mark.parametrize("places", [pytest.param(24, id="some"), pytest.param(150, id="many", marks=pytest.mark.slow)])
def test_cut_and_flipped_snapshots_give_errors_of_ours(places: int) -> None:
    for version, name in CASES:
        if version == "2.3.0":
            with named(name):
                check_damaged(printed(version)["SNAP", name][1], places)


def check_damaged(data: bytes, places: int) -> None:
    for at in range(0, len(data), max(1, len(data) // places)):
        with pytest.raises(StateStoreError, match="FLINK_"):
            read(data[:at])
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        try:
            read(bytes(damaged))
        except StateStoreError as error:
            assert error.code in ("FLINK_METADATA", "FLINK_UNSUPPORTED")


def test_old_versions_have_other_layouts() -> None:
    row = f"{RUNTIME}RowSerializer$RowSerializerSnapshot"
    assert read(snapshot(f"{BASE}LongSerializer$LongSerializerSnapshot", 2, utf("x"))) == Basic("long")
    assert read(composite(row, LONG, version=2)) == RowOf((Basic("long"),), False)
    assert read(composite(row, LONG, version=3)) == RowOf((Basic("long"),), True)
    assert read(composite(row, LONG, version=4, outer=b"\0")) == RowOf((Basic("long"),), False)
    avro = "org.apache.flink.formats.avro.typeutils.AvroSerializerSnapshot"
    assert read(snapshot(avro, 1, utf('"int"'))) == AvroOf("", '"int"')
    assert read(snapshot(avro, 2, utf("x.Y") + utf('"int"'))) == AvroOf("x.Y", '"int"')


@pytest.mark.parametrize(
    "data",
    [
        snapshot(f"{BASE}LongSerializer$LongSerializerSnapshot", 4),
        snapshot(f"{RUNTIME}PojoSerializerSnapshot", 3),
        composite(f"{BASE}ListSerializerSnapshot", LONG, version=2),
        snapshot("org.apache.flink.formats.avro.typeutils.AvroSerializerSnapshot", 4),
    ],
)
def test_versions_to_come_are_refused(data: bytes) -> None:
    with pytest.raises(UnsupportedError, match=r"FLINK_UNSUPPORTED.*found version"):
        read(data)


def test_frames_of_flink_before_its_snapshots_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"found version 1 .*1\.16"):
        read_proxied(DataInput(i32(1) + LONG, "f"))
    assert read_proxied(DataInput(i32(2) + LONG, "f")) == Basic("long")


def test_a_pojo_keeps_fields_and_subclasses_in_order() -> None:
    base = {"b": STRING, "a": listed(LONG)}
    data = pojo("x.P", base, {"x.R2": INT, "x.R1": LONG}, {"x.U": pojo("x.U", {"c": INT})})
    found = read(data)
    assert isinstance(found, PojoOf)
    assert [name for name, _ in found.fields] == ["b", "a"]
    assert [name for name, _ in found.registered] == ["x.R2", "x.R1"]
    assert found.unregistered == (("x.U", PojoOf("x.U", (("c", Basic("int")),))),)
    assert shown(found) == "POJO x.P(b string, a list(long)) with subclasses x.R2, x.R1, x.U"


def test_a_field_whose_class_is_gone_keeps_its_type() -> None:
    body = utf("x.P") + optional_map([("missing-field-at-0", None, LONG)]) + optional_map([]) + optional_map([])
    assert read(snapshot(f"{RUNTIME}PojoSerializerSnapshot", 2, body)) == PojoOf(
        "x.P", (("missing-field-at-0", Basic("long")),)
    )


def test_a_field_of_another_serializer_is_opaque_within_its_frame() -> None:
    own = snapshot("x.OwnSnapshot", 1, b"what it is \xff\xff")
    found = read(pojo("x.P", {"a": own, "b": LONG, "c": listed(own)}))
    assert isinstance(found, PojoOf)
    assert found.fields[:2] == (("a", Opaque("x.OwnSnapshot")), ("b", Basic("long")))
    assert opaque_part(found.fields[2][1]) == Opaque("x.OwnSnapshot")


def test_many_fields_of_other_serializers_end_in_bounded_work() -> None:
    """Each frame has room for thousands of lengths; beyond the bound a field is opaque without a further look."""
    own = listed(snapshot("x.OwnSnapshot", 1, bytes(3000)))
    found = read(pojo("x.P", {f"f{number}": own for number in range(30)}))
    assert isinstance(found, PojoOf) and len(found.fields) == 30
    assert {opaque_part(kind) is not None for _, kind in found.fields} == {True}


def test_an_enum_has_its_constants() -> None:
    body = utf("x.Color") + i32(2) + utf("RED") + utf("GREEN")
    found = read(snapshot(f"{BASE}EnumSerializer$EnumSerializerSnapshot", 3, body))
    assert found == EnumOf("x.Color", ("RED", "GREEN")) and fixed_width(found) == 4


def test_an_enumeration_of_scala_has_constants_with_numbers() -> None:
    body = utf("x.Color$") + i32(2) + utf("RED") + i32(5) + utf("GREEN") + i32(-1)
    found = read(snapshot(f"{SCALA}ScalaEnumSerializerSnapshot", 3, body))
    assert found == EnumOf("x.Color$", ("RED", "GREEN"), (5, -1)) and fixed_width(found) == 4
    with pytest.raises(CorruptError, match="a number of two constants"):
        read(snapshot(f"{SCALA}ScalaEnumSerializerSnapshot", 3, body[:-4] + i32(5)))


PAIR = composite(f"{SCALA}ScalaCaseClassSerializerSnapshot", STRING, INT, version=2, outer=utf("scala.Tuple2"))
OTHER = composite(f"{SCALA}ScalaCaseClassSerializerSnapshot", STRING, INT, version=2, outer=utf("x.Pair"))


@pytest.mark.parametrize(
    ("types", "element", "expected"),
    [
        ("Seq[Int], Int, Seq[Int]", INT, "collection(int)"),
        ("scala.collection.BitSet, Int, scala.collection.BitSet", INT, "collection(int)"),
        ("Map[String,Int], (String, Int), Map[String,Int]", PAIR, "map(string, int)"),
        (
            "scala.collection.mutable.LinkedHashMap[String,Int], (String, Int), scala.collection.mutable.LinkedHashMap",
            PAIR,
            "map(string, int)",
        ),
        (
            "Seq[(String, Int)], (String, Int), Seq[(String, Int)]",
            PAIR,
            "collection(case class scala.Tuple2(string, int))",
        ),
        ("Set[Map[String,Int]], Map[String,Int], Set[Map[String,Int]]", INT, "collection(int)"),
        ("x.RoadMap[x.Pair], x.Pair, x.RoadMap[x.Pair]", OTHER, "collection(case class x.Pair(string, int))"),
    ],
)
def test_the_code_of_a_collection_of_scala_says_whether_it_is_a_map(types: str, element: bytes, expected: str) -> None:
    outer = utf(f"implicitly[scala.collection.generic.CanBuildFrom[{types}]]")
    assert shown(read(composite(f"{SCALA}TraversableSerializerSnapshot", element, version=2, outer=outer))) == expected


def test_what_a_try_has_thrown_does_not_keep_values_from_being_read() -> None:
    kryo = snapshot(f"{RUNTIME}kryo.KryoSerializerSnapshot", 2, utf("java.lang.Throwable") + 3 * optional_map([]))
    found = read(composite(f"{SCALA}ScalaTrySerializerSnapshot", STRING, kryo, version=2))
    assert shown(found) == "try(string)" and opaque_part(found) is None
    for around in (TtlOf(found), OptionOf(found), Nullable(found)):
        assert opaque_part(around) is None
    for kind in (ListOf(found), TraversableOf(found), TupleOf((found, Basic("int"))), MapOf(Basic("int"), found)):
        assert opaque_part(kind) is None  # each value tells its end


def test_nesting_ends_at_64_levels() -> None:
    data = LONG
    for _ in range(63):
        data = listed(data)
    read(data)
    with pytest.raises(CorruptError, match="nested deeper than 64"):
        read(listed(data))


@pytest.mark.parametrize("name", ["", "1x", "a b", "a..b", "a;", "a/b", ".a", "a.", "a\n"])
def test_a_name_that_no_class_has_is_damage(name: str) -> None:
    with pytest.raises(CorruptError, match="expected the name of a Java class"):
        read(snapshot(name))


def test_an_unknown_class_alone_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"x\.Own, version 9"):
        read(snapshot("x.Own", 9))


def test_a_huge_number_of_parts_is_not_made() -> None:
    data = snapshot(f"{BASE}ListSerializerSnapshot", 3, i32(911108, 1) + i32(1333245, 1, 2**31 - 1))
    with pytest.raises(CorruptError, match="2147483647 nested serializers"):
        read(data)


def test_the_number_of_nested_serializers_must_be_that_of_the_class() -> None:
    with pytest.raises(CorruptError, match="found 1 nested serializers"):
        read(composite(f"{BASE}MapSerializerSnapshot", LONG))
    assert shown(read(tupled(mapped(INT, STRING)))) == "tuple(map(int, string))"


def test_a_tuple_with_a_field_without_bytes_has_no_fixed_length() -> None:
    long = Basic("long")
    assert fixed_width(TupleOf((long, Basic("null_value")))) == VARIABLE
    assert fixed_width(TupleOf((long, Basic("void")))) == 9
    assert fixed_width(TupleOf((long, TupleOf((long, Basic("string")))))) == VARIABLE


def test_an_element_of_a_stream_in_a_tuple_may_be_a_watermark() -> None:
    """Tuples as SQL's look-ups keep them that wait for an answer: the record, and the watermark before it."""
    element = printed("2.3.0")["SNAP", "streamelement"][1]
    kind = read(tupled(element, element))
    union = "union(with_timestamp tuple(timestamp long, value string), without_timestamp string, watermark long)"
    assert shown(kind) == f"tuple({union}, {union})"
    record = b"\0" + (7).to_bytes(8, "big") + b"\3ab"
    (row,) = decoded(kind, record + b"\2" + (-5).to_bytes(8, "big", signed=True))
    assert row["f0"] == {
        "with_timestamp": {"timestamp": 7, "value": "ab"},
        "without_timestamp": None,
        "watermark": None,
    }
    assert row["f1"] == {"with_timestamp": None, "without_timestamp": None, "watermark": -5}
    with pytest.raises(CorruptError, match="FLINK_ROW"):
        decoded(kind, record + b"\3" + bytes(8))
    assert "watermark" not in shown(read(element))
