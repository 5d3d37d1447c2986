"""Values written by a plain model of Flink's serializers come back as columns, compiled or not."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.flink.value_model import (
    ORIGIN,
    cells,
    decoded,
    encoded,
    in_each_way,
    int32,
    int64,
    record,
    text,
    types,
    values,
    walking,
)
from support.properties import few_or_many

from statestore.formats.errors import CorruptError, StateStoreError, UnsupportedError
from statestore.formats.flink.columns import decoding
from statestore.formats.flink.columns.decoding import Records, decode_cells, decode_records
from statestore.formats.flink.columns.program_writer import program_of
from statestore.formats.flink.layouts.type_layouts import arrow_field, arrow_type
from statestore.formats.flink.serializers.flink_types import (
    REST_OF_CELL,
    Basic,
    EnumOf,
    FlinkType,
    Joined,
    LengthOf,
    ListOf,
    MapOf,
    Nullable,
    Opaque,
    PojoOf,
    Prefix,
    PrimitiveArray,
    RowOf,
    Shown,
    TraversableOf,
    TryOf,
    TtlOf,
    TupleOf,
)
from statestore.formats.kernels import compiled_use, flink_steps

STRING, LONG, INT, VOID = Basic("string"), Basic("long"), Basic("int"), Basic("void")


each_way = pytest.fixture(in_each_way, params=[False, True], ids=["plain", "compiled"])


def outcome(kinds: list[FlinkType], rows: list[bytes], compiled: bool) -> Any:
    with walking(compiled):
        try:
            found = decode_cells(kinds, cells(*rows), [True] * len(kinds), ORIGIN)
            return [None if column is None else column.to_string(window=1000) for column in found]
        except StateStoreError as error:
            return str(error)


def records(kinds: list[FlinkType], data: bytes, count: int, last: bool, at: int = 0) -> Records:
    return decode_records(kinds, np.frombuffer(data, np.uint8), at, len(data), count, [True] * len(kinds), ORIGIN, last)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[FlinkType], list[list[Any]]]:
    kinds = draw(st.lists(types, min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*map(values, kinds)).map(list), min_size=1, max_size=4))
    return kinds, rows


@few_or_many(12, 80, tables(), st.booleans())
def test_framed_values_come_back(table: tuple[list[FlinkType], list[list[Any]]], compiled: bool) -> None:
    kinds, rows = table
    with walking(compiled):
        found = decode_cells(kinds, cells(*[record(kinds, row) for row in rows]), [True] * len(kinds), ORIGIN)
    for number, (kind, column) in enumerate(zip(kinds, found, strict=True)):
        assert column is not None
        column.validate(full=True)
        assert column.equals(pa.array([row[number] for row in rows], arrow_type(kind)))


@few_or_many(10, 60, tables(), st.booleans(), st.integers(1, 40))
def test_values_without_frames_come_back_across_cuts_of_the_data(
    table: tuple[list[FlinkType], list[list[Any]]], compiled: bool, step: int
) -> None:
    kinds, rows = table
    whole = b"".join(record(kinds, row) for row in rows)
    parts: list[Records] = []
    at = end = left = 0
    left = len(rows)
    with walking(compiled):
        while left:
            end = min(end + step, len(whole))
            parts.append(records(kinds, whole[:end], left, end == len(whole), at))
            at, left = parts[-1].at, left - parts[-1].rows
    assert at == len(whole)
    for number, kind in enumerate(kinds):
        column = pa.concat_arrays([part.columns[number] for part in parts])
        assert column.equals(pa.array([row[number] for row in rows], arrow_type(kind)))


@few_or_many(8, 60, tables(), st.booleans(), st.booleans(), st.integers(1, 40))
def test_records_begin_where_the_model_wrote_them(
    table: tuple[list[FlinkType], list[list[Any]]], compiled: bool, want: bool, step: int
) -> None:
    kinds, rows = table
    written = [record(kinds, row) for row in rows]
    whole = np.frombuffer(b"".join(written), np.uint8)
    wanted = [want] * len(kinds)
    starts: list[int] = []
    at = end = 0
    with walking(compiled):
        while len(starts) < len(rows):
            end = min(end + step, len(whole))
            last, left = end == len(whole), len(rows) - len(starts)
            found = decode_records(kinds, whole, at, end, left, wanted, ORIGIN, last, positions=True)
            assert found.starts is not None
            assert len(found.starts) == found.rows
            plain = decode_records(kinds, whole, at, end, left, wanted, ORIGIN, last)
            assert (plain.columns, plain.rows, plain.at, plain.starts) == (found.columns, found.rows, found.at, None)
            starts += found.starts.tolist()
            at = found.at
    assert np.diff([*starts, at]).tolist() == [len(each) for each in written]
    assert starts[0] == 0


def test_no_records_begin_nowhere() -> None:
    found = decode_records([LONG], np.zeros(8, np.uint8), 0, 8, 0, [True], ORIGIN, True, positions=True)
    assert found.starts is not None
    assert (found.starts.tolist(), found.columns) == ([], [pa.array([], pa.int64())])


@few_or_many(20, 120, tables(), st.data())
def test_damaged_bytes_have_the_same_outcome_compiled_and_not(
    table: tuple[list[FlinkType], list[list[Any]]], data: st.DataObject
) -> None:
    kinds, rows = table
    damaged = [bytearray(record(kinds, row)) for row in rows]
    for each in damaged:
        if each and data.draw(st.booleans()):
            each[data.draw(st.integers(0, len(each) - 1))] = data.draw(st.integers(0, 255))
        if data.draw(st.integers(0, 3)) == 0:
            del each[data.draw(st.integers(0, len(each))) :]
    plain = outcome(kinds, [bytes(each) for each in damaged], False)
    compiled = outcome(kinds, [bytes(each) for each in damaged], True)
    assert plain == compiled


def test_columns_that_are_not_wanted_are_stepped_over(each_way: bool) -> None:
    kinds = [STRING, ListOf(LONG), LONG]
    row = record(kinds, ["né", [1, 2], 7])
    assert decode_cells(kinds, cells(row), [False, False, True], ORIGIN)[2] == pa.array([7])
    assert decode_cells(kinds, cells(row), [False, False, True], ORIGIN)[:2] == [None, None]


def test_cells_are_not_looked_at_where_nothing_is_wanted(each_way: bool) -> None:
    assert decode_cells([LONG, VOID], cells(b"short"), [False, True], ORIGIN) == [None, None]


def test_null_cells_are_null_rows(each_way: bool) -> None:
    assert decoded(TupleOf((LONG, STRING)), None, int64(4) + text("a")) == [None, {"f0": 4, "f1": "a"}]


def test_no_cells_have_typed_columns(each_way: bool) -> None:
    assert decode_cells([LONG, STRING], cells(), [True, False], ORIGIN) == [pa.array([], pa.int64()), None]


def test_a_long_list_has_room(each_way: bool) -> None:
    numbers = list(range(200_000))
    row = int32(len(numbers)) + np.array(numbers, ">i8").tobytes()
    assert decoded(ListOf(LONG), int32(0), row, int32(1) + int64(5)) == [[], numbers, [5]]


def test_strings_of_all_planes_become_utf8(each_way: bool) -> None:
    told = ["", "plain", "é", "€uro", "😀", "a😀é€", "\0", None]
    assert decoded(STRING, *map(text, told)) == told


def test_a_string_value_of_flink_has_its_own_length(each_way: bool) -> None:
    told = ["sä€38", "", "n" * 300]
    rows = [bytes.fromhex("0573e401ac413338"), b"\0", b"\xac\2" + b"n" * 300]
    assert decoded(Basic("string_value"), *rows) == told
    with pytest.raises(CorruptError, match="FLINK_ROW"):
        decoded(Basic("string_value"), b"\xff\xff\xff\xff\x07")
    with pytest.raises(CorruptError, match="FLINK_ROW"):
        decoded(Basic("string_value"), b"\x80\x80\x80\x80\x08")


@pytest.mark.parametrize(("nothing", "raw"), [(VOID, b"\0"), (Basic("null_value"), b"")])
def test_values_that_say_nothing_are_nulls_in_lists_and_maps(nothing: FlinkType, raw: bytes, each_way: bool) -> None:
    assert decoded(ListOf(nothing), int32(3) + 3 * raw, int32(0)) == [[None, None, None], []]
    assert decoded(ListOf(nothing, is_set=True), int32(2) + b"\1\0" + raw) == [[None, None]]
    entries = text("a") + b"\1" + text("b") + b"\0" + raw
    assert decoded(MapOf(STRING, nothing), int32(2) + entries, int32(0)) == [[("a", None), ("b", None)], []]
    assert decoded(RowOf((nothing, LONG), False), b"\0" + raw + int64(5), b"\x80" + int64(6)) == [{"f1": 5}, {"f1": 6}]
    assert decode_cells([nothing, LONG], cells(raw + int64(7)), [True, True], ORIGIN) == [None, pa.array([7])]


def test_joined_elements_without_bytes_are_refused() -> None:
    """Flink reads one less of them than it wrote."""
    assert decoded(Joined(VOID), b"\0,\0") == [[None, None]]
    with pytest.raises(UnsupportedError, match=r"FLINK_UNSUPPORTED.*op.*values without bytes"):
        decode_cells([Joined(Basic("null_value"))], cells(b",,"), [True], ORIGIN)


def test_a_null_value_of_flink_has_no_bytes(each_way: bool) -> None:
    nothing = Basic("null_value")
    assert decoded(TupleOf((nothing, LONG, nothing)), int64(5)) == [{"f1": 5}]
    assert arrow_type(nothing) == pa.null()


def test_a_lone_surrogate_is_refused_by_name(each_way: bool) -> None:
    lone = b"\2" + bytes([0x80, 0xB0, 0x03])  # D800
    with pytest.raises(UnsupportedError, match=r"FLINK_UNSUPPORTED.*op.*lone surrogate d800.*0280b003"):
        decoded(STRING, text("fine"), lone, text("fine"))


def test_surrogates_of_two_strings_are_no_pair(each_way: bool) -> None:
    high, low = b"\2" + bytes([0x80, 0xB0, 0x03]), b"\2" + bytes([0x80, 0xB8, 0x03])
    with pytest.raises(UnsupportedError, match="lone surrogate"):
        decoded(STRING, high, low)


def test_a_pojo_has_the_fields_of_its_subclasses(each_way: bool) -> None:
    plain = PojoOf("a.Base", (("name", STRING),))
    longer = PojoOf("a.Longer", (("more", LONG), ("name", STRING)))
    other = PojoOf("a.Outer$Other", (("more", STRING), ("name", STRING)))
    kind = PojoOf("a.Base", plain.fields, (("a.Outer$Other", other),), (("a.Longer", longer),))
    name = b"\0" + text("n")
    rows = [
        b"\1",
        b"\2" + name,
        b"\4\0\x08a.Longer\2\0" + int64(5) + name,
        b"\x08\0\2\0" + text("o") + name,
        b"\4\0\x08a.Longer\1",
    ]
    assert decoded(kind, *rows) == [
        None,
        {"name": "n", "more": None, "Other.more": None},
        {"name": "n", "more": 5, "Other.more": None},
        {"name": "n", "more": None, "Other.more": "o"},
        None,
    ]


def test_an_unknown_subclass_is_opaque(each_way: bool) -> None:
    kind = PojoOf("a.Base", (("name", STRING),))
    with pytest.raises(UnsupportedError, match=r"FLINK_OPAQUE.*op.*a\.Sub"):
        decoded(kind, b"\4\0\5a.Sub\2")
    with pytest.raises(UnsupportedError, match=r"FLINK_OPAQUE.*op.*a\.Sub"):
        records([kind], b"\4\0\5a.Sub\2", 1, True)


def test_an_opaque_subclass_does_not_keep_others_from_being_read(each_way: bool) -> None:
    opaque = PojoOf("a.Sub", (("bytes", Opaque("KryoSerializer", "a.K")), ("name", STRING)))
    kind = PojoOf("a.Base", (("name", STRING),), (), (("a.Sub", opaque),))
    assert decoded(kind, b"\2\0" + text("n")) == [{"name": "n"}]
    with pytest.raises(UnsupportedError, match=r"FLINK_OPAQUE.*op.*a\.Sub.*KryoSerializer of a\.K"):
        decoded(kind, b"\4\0\5a.Sub\2\0abc")


def test_opaque_bytes_are_binary_at_the_end_of_a_frame(each_way: bool) -> None:
    kind = TupleOf((LONG, Opaque("KryoSerializer", "a.B")))
    assert decoded(kind, int64(1) + b"abc", int64(2)) == [{"f0": 1, "f1": b"abc"}, {"f0": 2, "f1": b""}]
    (_, inner) = arrow_field("v", kind).type
    assert inner.metadata[b"statestore.serializer"] == b"KryoSerializer of a.B"
    assert arrow_field("v", Opaque("K")).metadata[b"statestore.serializer"] == b"K"


def test_what_a_try_has_thrown_is_binary_where_a_frame_ends_it(each_way: bool) -> None:
    kind = TryOf(STRING, Opaque("KryoSerializer", "java.lang.Throwable"))
    rows = [b"\1" + text("done"), b"\0thrown"]
    assert decoded(kind, *rows) == [{"success": "done", "failure": None}, {"success": None, "failure": b"thrown"}]
    found = records([kind], rows[0] * 3, 3, True)
    assert found.columns[0] is not None and found.columns[0].field("success").to_pylist() == ["done"] * 3
    with pytest.raises(UnsupportedError, match=r"FLINK_OPAQUE.*op.*KryoSerializer of java\.lang\.Throwable"):
        records([kind], b"".join(rows), 2, True)


def test_a_number_that_no_constant_of_scala_has_is_refused(each_way: bool) -> None:
    kind = EnumOf("x.Color$", ("RED", "GREEN"), (5, -1))
    assert decoded(kind, int32(-1), int32(5)) == ["GREEN", "RED"]
    for number in (0, 1, -2, 6, 2**31 - 1, -(2**31)):
        with pytest.raises(CorruptError, match="FLINK_ROW"):
            decoded(kind, int32(number))


def test_an_entry_of_a_map_of_scala_is_marked_as_present(each_way: bool) -> None:
    kind = TraversableOf(TupleOf((LONG, STRING)), True)
    assert decoded(kind, int32(1) + b"\1" + int64(5) + text("five")) == [[(5, "five")]]
    with pytest.raises(CorruptError, match="FLINK_ROW"):
        decoded(kind, int32(1) + b"\0" + int64(5) + text("five"))


def test_opaque_bytes_before_others_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"FLINK_OPAQUE.*op.*KryoSerializer of a\.B"):
        decoded(TupleOf((Opaque("KryoSerializer", "a.B"), LONG)), b"")
    with pytest.raises(UnsupportedError, match=r"FLINK_OPAQUE.*op.*KryoSerializer"):
        records([Opaque("KryoSerializer")], b"", 1, True)


def test_stored_keys_have_lengths_between_ambiguous_parts(each_way: bool) -> None:
    kinds: list[FlinkType] = [Prefix(2), STRING, LengthOf(), STRING, LengthOf()]
    long = "n" * 300
    row = b"\3\4" + text("key") + b"\4" + text(long) + bytes([302 & 255, 302 >> 8])
    found = decode_cells(kinds, cells(row), [True] * 5, ORIGIN)
    assert found == [pa.array([0x304], pa.int32()), pa.array(["key"]), None, pa.array([long]), None]
    with pytest.raises(CorruptError, match="FLINK_ROW"):
        decode_cells(kinds, cells(row[:-1] + b"\2"), [True] * 5, ORIGIN)


def test_joined_elements_may_hold_the_byte_that_joins(each_way: bool) -> None:
    comma = 0x2C2C2C2C2C2C2C2C
    assert decoded(Joined(LONG), int64(comma) + b"," + int64(1), int64(2)) == [[comma, 1], [2]]
    for wrong in (b"", int64(1) + b",", int64(1) + b";" + int64(1)):
        with pytest.raises(CorruptError, match="FLINK_ROW"):
            decoded(Joined(LONG), wrong)


def test_a_null_in_a_map_state_may_have_bytes_behind_it(each_way: bool) -> None:
    assert decoded(Nullable(STRING, REST_OF_CELL), b"\1\0", b"\1", b"\0" + text("a")) == [None, None, "a"]


def test_a_damaged_cell_is_named_with_its_bytes(each_way: bool) -> None:
    with pytest.raises(
        CorruptError, match=r"FLINK_ROW.*op.*found 7 bytes left, expected at least 8.*in bytes 00{13}$|00"
    ):
        decoded(LONG, int64(1), bytes(7), int64(1))
    with pytest.raises(CorruptError, match=r"1 bytes behind the value.*in bytes 0000000000000001ff;"):
        decoded(LONG, int64(1), int64(1) + b"\xff")
    with pytest.raises(CorruptError, match=r"enum.*in bytes 00000002;"):
        decoded(EnumOf("E", ("A", "B")), int32(1), int32(0), int32(2), int32(0))


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (ListOf(LONG), int32(2**31 - 1)),
        (ListOf(LONG), int32(-1)),
        (ListOf(TupleOf(())), int32(2**30)),
        (MapOf(STRING, LONG), int32(2**31 - 1)),
        (PrimitiveArray("long"), int32(2**29) + bytes(8)),
        (STRING, b"\xff\xff\xff\xff\x07"),
        (STRING, b"\xff\xff\xff\xff\xff\xff"),
        (Basic("biginteger"), int32(2**31 - 1)),
        (Basic("boolean"), b"\2"),
        (Nullable(LONG), b"\2" + int64(0)),
        (VOID, b"\1"),
        (Basic("local_date"), int32(2023) + bytes([2, 29])),
        (Basic("local_time"), bytes([24, 0, 0]) + int32(0)),
        (Basic("instant"), int64(0) + int32(10**9)),
    ],
)
def test_impossible_bytes_are_refused_before_memory_is_taken(each_way: bool, kind: FlinkType, raw: bytes) -> None:
    with pytest.raises(CorruptError, match="FLINK_ROW"):
        decode_cells([kind, LONG], cells(raw + int64(0)), [True, True], ORIGIN)


@pytest.mark.parametrize(
    ("kind", "raw", "shown"),
    [
        (Basic("instant"), int64(2**40) + int32(5000), "+36812-02-20T00:36:16.000005Z"),
        (Basic("date"), int64(2**62), "+146140482-04-24T15:36:27.904Z"),
        (Basic("local_date_time"), int32(-2024) + b"\2\x1d\1\2\0" + int32(0), "-2024-02-29T01:02"),
        (Basic("local_date"), int32(99_999_999) + b"\1\1", "+99999999-01-01"),
    ],
)
def test_times_beyond_the_column_are_refused_and_shown_as_text(
    each_way: bool, kind: FlinkType, raw: bytes, shown: str
) -> None:
    with pytest.raises(UnsupportedError, match=r"FLINK_UNSUPPORTED.*op.*fits.*give the type string"):
        decoded(kind, raw)
    assert decoded(Shown(kind, pa.string()), raw) == [shown]


def test_the_edges_of_nanoseconds_fit(each_way: bool) -> None:
    first, last = -(2**63), 2**63 - 1
    (column,) = decode_cells(
        [Basic("instant")],
        cells(*[int64(edge // 10**9) + int32(edge % 10**9) for edge in (first + 1, last)]),
        [True],
        ORIGIN,
    )
    assert column is not None
    assert column.view(pa.int64()).to_pylist() == [first + 1, last]


def test_the_time_of_access_comes_last_in_its_column() -> None:
    assert [field.name for field in arrow_type(TtlOf(STRING))] == ["value", "last_access"]


def test_names_of_fields_are_unique() -> None:
    kind = RowOf((LONG, LONG, LONG), False, ("a", "A", "a_1"))
    assert [field.name for field in arrow_type(kind)] == ["a", "A_1", "a_1_1"]


def test_a_type_may_not_be_nested_without_end() -> None:
    kind: FlinkType = LONG
    for _ in range(70):
        kind = ListOf(kind)
    with pytest.raises(UnsupportedError, match=r"FLINK_UNSUPPORTED.*nested deeper"):
        arrow_type(kind)


def test_the_last_data_may_not_end_before_the_records(each_way: bool) -> None:
    data = encoded(LONG, 1) + encoded(LONG, 2) + b"\0"
    found = records([LONG], data, 3, False)
    assert (found.rows, found.at, found.columns) == (2, 16, [pa.array([1, 2])])
    first = records([LONG], data, 3, True)
    with pytest.raises(CorruptError, match="FLINK_ROW"):
        records([LONG], data, 3 - first.rows, True, first.at)


# Values of fixed width, which are stepped over all at once


def step_by_step(*asked: Any) -> Any:
    return replace(program_of(*asked), is_straight=False)


keys = st.binary(min_size=8, max_size=8).map(lambda key: b"\1" + key + b"\0")


@few_or_many(25, 100, st.lists(st.one_of(keys, keys, st.binary(max_size=12))))
def test_values_of_fixed_width_are_taken_and_refused_as_step_by_step(rows: list[bytes]) -> None:
    kinds: list[FlinkType] = [Prefix(1), LONG, VOID]
    found = outcome(kinds, rows, False)
    with mock.patch.object(decoding, "program_of", step_by_step):
        assert found == outcome(kinds, rows, False)


@few_or_many(15, 60, st.lists(st.binary(max_size=6)))
def test_the_rest_behind_a_fixed_width_is_taken_and_refused_as_step_by_step(rows: list[bytes]) -> None:
    kinds: list[FlinkType] = [Prefix(2), Opaque("shop.Money")]
    found = outcome(kinds, rows, False)
    with mock.patch.object(decoding, "program_of", step_by_step):
        assert found == outcome(kinds, rows, False)


def test_small_batches_count_together_for_the_compiled_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, decoding._KERNELS, raising=False)
    monkeypatch.setattr(decoding, "_stepped_plainly", 0)
    monkeypatch.setattr(compiled_use, "is_loaded", lambda: True)
    batch = decoding._WORTH_BYTES * 2 // 5
    assert [decoding._is_compiled(batch) for _ in range(4)] == [False, False, True, True]


def test_each_step_has_a_number_of_its_own() -> None:
    lines = Path(flink_steps.__file__).read_text("utf-8").partition("TAG_EITHER")[0].splitlines()
    numbers = [line.partition(" = ")[2].partition(" ")[0] for line in lines if " = " in line]
    assert len(numbers) == len(set(numbers)) > 25
