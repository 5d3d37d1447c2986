"""Values that the coders of PyFlink wrote, against the values that they were given.

``python_coders.json.xz`` was written by ``tests/engines/flink/python/coder_values.py``; PyFlink 2.1.0 and 1.20.5 write
the same file.
"""

from __future__ import annotations

import json
import lzma
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.flink.python_truth import agree, plain
from support.flink.value_model import ORIGIN, cells, column_of, in_each_way, int32, walking
from support.paths import DATA
from support.properties import few_or_many

from statestore.formats.errors import CorruptError, StateStoreError, UnsupportedError
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.layouts.type_layouts import arrow_field, arrow_type
from statestore.formats.flink.serializers.flink_types import (
    Basic,
    FlinkType,
    Joined,
    PythonBytes,
    PythonElements,
    PythonValue,
    TtlOf,
)
from statestore.formats.flink.serializers.python_types import DEFAULT_MAP_KEY, python_value

each_way = pytest.fixture(in_each_way, params=[False, True], ids=["plain", "compiled"])


@cache
def written() -> list[tuple[PythonValue, list[bytes], list[Any]]]:
    """For each type its values: as bytes, and as they were given to the coder."""
    found = json.loads(lzma.decompress((DATA / "flink" / "python_coders.json.xz").read_bytes()))
    pairs = [(python_value(each["type"]), zip(*each["values"], strict=True)) for each in found]
    return [(kind, [bytes.fromhex(digits) for digits in raw], list(values)) for kind, (raw, values) in pairs]


def framed(octets: bytes) -> bytes:
    return int32(len(octets)) + octets


def read(kind: FlinkType, *rows: bytes) -> pa.Array:
    (column,) = decode_cells([kind], cells(*rows), [True], ORIGIN)
    assert column is not None
    return column


def test_values_are_those_that_the_coders_were_given() -> None:
    assert len(written()) == 90
    for kind, raw, wanted in written():
        with walking(True):
            compiled = column_of(kind, *map(framed, raw))
        with walking(False):
            assert column_of(kind, *map(framed, raw)).equals(compiled)
        found = plain(compiled)
        assert all(map(agree, found, wanted)), (kind, found, wanted)


def test_elements_of_one_blob_come_apart(each_way: bool) -> None:
    for kind, raw, wanted in written():
        (all_of_them, some, none) = column_of(
            PythonElements(kind.value), *map(framed, [b"".join(raw), b"".join(raw[3:5]), b""])
        )
        assert agree(plain(all_of_them.values), wanted)
        assert agree(plain(some.values), wanted[3:5])
        assert none.as_py() == []


def test_blobs_of_a_list_state_are_joined(each_way: bool) -> None:
    kind = Joined(TtlOf(PythonElements(python_value("string").value)))
    packs = [bytes(8) + framed(framed(b"a,b") + framed(b",")), bytes(8) + framed(framed(b""))]
    (found,) = column_of(kind, b",".join(packs)).to_pylist()
    assert [pack["value"] for pack in found] == [["a,b", ","], [""]]


@few_or_many(40, 400, st.data())
def test_damaged_values_are_other_values_or_refused_the_same_compiled_and_not(data: st.DataObject) -> None:
    kind, raw, _ = data.draw(st.sampled_from(written()))
    single = data.draw(st.booleans())
    octets = bytearray(data.draw(st.sampled_from(raw)) if single else b"".join(raw))
    for _ in range(data.draw(st.integers(0, 3))):
        if octets:
            octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del octets[data.draw(st.integers(0, len(octets))) :]
    row = framed(bytes(octets)) + data.draw(st.sampled_from([b"", b"", b"\0"]))
    outcomes = []
    for compiled in (False, True):
        with walking(compiled):
            try:
                found = read(kind if single else PythonElements(kind.value), row)
                found.validate(full=True)
                outcomes.append(found.to_string())
            except StateStoreError as error:
                outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_no_value_is_read_from_a_part_of_its_bytes(each_way: bool) -> None:
    for kind, raw, _ in written()[::4]:
        for octets in raw[:2]:
            for cut in range(len(octets)):
                with pytest.raises(StateStoreError, match=r"state 'x' of operator 'op': found .*, expected"):
                    read(kind, framed(octets[:cut]))
            with pytest.raises(StateStoreError, match="found"):
                read(kind, framed(octets + b"\0"))


@pytest.mark.parametrize(
    ("text", "octets", "found"),
    [
        ("int", bytes(8), "found 4 bytes behind the value within its bytes of PyFlink, expected none"),
        ("bigint", bytes(4), "found 4 bytes left, expected at least 8"),
        ("boolean", b"\2", "found a byte that is no boolean"),
        ("string", framed(b"\xff"), "found text that is not UTF-8"),
        ("pickle", framed(b"\x80\x09."), "found bytes that are no pickle"),
        ("pickle", framed(b"abcd"), "found bytes that are no pickle"),
        ("decimal(5,2)", framed(b"1.234"), "found a number that does not fit the decimal"),
        ("decimal(5,2)", framed(b"12345"), "found a number that does not fit the decimal"),
        ("decimal(5,2)", framed(b"NaN"), "found text that is no decimal number"),
        ("decimal(5,2)", framed(b"1E999999"), "found a number that does not fit the decimal"),
        ("time", int32(86_400_000), "found a time beyond the day"),
        ("struct<a: int>", b"\0\0", "expected at least 4"),
        ("array<int>", int32(2**31 - 1), "expected at least 2147483647"),
        ("array<int not null>", int32(-1), "found count -1, expected 0 or more"),
    ],
)
def test_bytes_that_no_value_of_the_type_has_are_refused_by_name(
    each_way: bool, text: str, octets: bytes, found: str
) -> None:
    with pytest.raises(CorruptError, match=r"correct the type given for the state") as caught:
        read(python_value(text), framed(octets))
    assert found in str(caught.value)
    assert framed(octets).hex() in str(caught.value)


def test_a_blob_does_not_reach_into_the_next_value(each_way: bool) -> None:
    kinds = [python_value("string"), Basic("int")]
    with pytest.raises(CorruptError, match="4 bytes before that of the value"):
        decode_cells(kinds, cells(int32(4) + int32(4) + b"abcd"), [True, True], ORIGIN)


def test_a_negative_length_is_refused(each_way: bool) -> None:
    with pytest.raises(CorruptError, match="found count -2"):
        read(python_value("int"), int32(-2) + bytes(4))


@pytest.mark.parametrize("octets", [b"", b"a\0", b"\x1f", b"a\x7f"])
def test_keys_without_a_type_must_be_plain_text(each_way: bool, octets: bytes) -> None:
    assert column_of(DEFAULT_MAP_KEY, framed(framed("d0 é".encode()))).to_pylist() == ["d0 é"]
    with pytest.raises(CorruptError, match="expected text, or a type that is given for it"):
        read(DEFAULT_MAP_KEY, framed(framed(octets)))


def test_bytes_without_a_type_and_pickles_say_whose_they_are() -> None:
    assert column_of(PythonBytes(), framed(b"\1\2")).to_pylist() == [b"\1\2"]
    fields = [arrow_field("value", kind) for kind in (PythonBytes(), python_value("pickle"), python_value("binary"))]
    assert [field.metadata and field.metadata[b"statestore.serializer"] for field in fields] == [
        b"a coder of PyFlink",
        b"pickle of Python",
        None,
    ]


def test_a_list_of_values_without_bytes_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="values without bytes"):
        arrow_type(PythonElements(Basic("null_value")))
