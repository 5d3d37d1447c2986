"""Protobuf messages as columns, against Protobuf's own library."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.kafka.protobuf_model import descriptors, message_class, messages, plain, serde
from support.properties import few_or_many

from statestore.formats.errors import CorruptError, InvalidInputError, UnsupportedError
from statestore.formats.kafka.columns.store_kinds import StoreForm, row_schema, stored_rows
from statestore.formats.kafka.schemas.schema_files import shown_serde, with_schema

ALL = ("shop.All", "old.All")


def decoded(name: str, data: list[bytes | None], prefix: str = "protobuf-plain") -> list[Any]:
    form = StoreForm("key-value", "bytes", serde(name, prefix))
    keys = pa.array([b"k%d" % number for number in range(len(data))], pa.binary())
    column = stored_rows(form, "default", keys, pa.array(data, pa.binary())).column("value")
    assert column.type == row_schema(form).field("value").type
    column.validate(full=True)
    return [None if row is None else ordered(name, row) for row in column.to_pylist()]


def ordered(message: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row with its maps in the order of keys, which Protobuf does not define, and bytes in one of their forms."""
    found = dict(row)
    for name in {"prices", "by_number"} & set(row):
        found[name] = sorted(row[name], key=lambda entry: entry[0])
    if row.get("itself") is not None:
        found["itself"] = message_class(message).FromString(row["itself"]).SerializeToString(deterministic=True)
    return found


def parsed(name: str, data: bytes) -> dict[str, Any]:
    return plain(message_class(name).FromString(data))


def test_the_columns_of_a_schema() -> None:
    kinds = {
        each.name: str(each.type) for each in row_schema(StoreForm("key-value", "bytes", serde("shop.All")))[1].type
    }
    assert kinds["own_uint64"] == "decimal128(20, 0)"
    assert kinds["own_uint32"] == kinds["own_int64"] == "int64"
    assert kinds["list_color"] == "list<item: string>"
    assert kinds["prices"] == "map<string, double>"
    assert kinds["itself"] == "binary"


@pytest.mark.parametrize("name", ALL)
@few_or_many(10, 100, st.data())
def test_messages_mean_what_the_library_says(name: str, data: st.DataObject) -> None:
    """Also parts that are written one after the other, which Protobuf merges."""
    parts = st.lists(messages(name), min_size=1, max_size=3)
    rows = data.draw(st.lists(st.none() | parts, max_size=14))
    written = [None if row is None else b"".join(part.SerializeToString() for part in row) for row in rows]
    assert decoded(name, written) == [None if each is None else parsed(name, each) for each in written]


@few_or_many(12, 500, st.lists(messages("shop.All"), max_size=12))
def test_unknown_fields_are_skipped(rows: list[Any]) -> None:
    written = [row.SerializeToString() for row in rows]
    assert decoded("shop.Few", written) == [parsed("shop.Few", each) for each in written]


@pytest.mark.parametrize("name", ALL)
@few_or_many(8, 120, st.lists(st.binary(max_size=24), max_size=6))
def test_any_bytes_are_a_message_or_an_error(name: str, rows: list[bytes]) -> None:
    for row in rows:
        try:
            found = decoded(name, [row])
        except CorruptError as error:
            assert "KAFKA_BYTES" in str(error)
            continue
        many = decoded(name, [row] * 9)  # another way to the same answer
        assert repr(many) == repr(found * 9)
        assert repr(found) == repr([parsed(name, row)])


def test_packed_or_not_is_the_same() -> None:
    """A list is read in both forms, mixed, whatever the schema says."""
    for name in ALL:
        one = bytes.fromhex("e80205")  # 45: list_int32, varint 5
        packed = bytes.fromhex("ea0203960107")
        (found,) = decoded(name, [one + packed + one])
        assert found["list_int32"] == parsed(name, one + packed + one)["list_int32"] == [5, 150, 7, 5]


def test_confluents_prefix() -> None:
    written = message_class("shop.Part")(amount=-3).SerializeToString()
    cases = [("shop.Part", "00000000070202"), ("shop.First", "000000000700"), ("shop.First", "00000000090200")]
    for name, prefix in cases:
        body = written if name == "shop.Part" else b""
        assert decoded(name, [bytes.fromhex(prefix) + body], "protobuf") == [parsed(name, body)]
    nested = bytes.fromhex("00000000010404")  # two indexes: message 2, then its last one
    for last in ("02", "06"):  # with and without the entries of maps before it
        assert decoded("shop.All.Last", [nested + bytes.fromhex(last)], "protobuf") == [{"x": 0}]


@pytest.mark.parametrize("prefix", ["", "00", "0000000007", "010000000700", "00000000070206", "000000000706020202"])
def test_another_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(CorruptError, match=r"KAFKA_BYTES.*value of the row with the stored key 6b30"):
        decoded("shop.Part", [bytes.fromhex(prefix)], "protobuf")


def test_a_wrong_message_names_its_row() -> None:
    right = message_class("shop.Part")(amount=1, notes=["a"]).SerializeToString()
    for wrong in ("08", "0a05aa", "1201ff", "0b0c", "00", "12ffffffffffffffffff01"):
        for before in (0, 12):
            with pytest.raises(CorruptError, match=rf"stored key {(b'k%d' % before).hex()}.*found {wrong}.*shop.Part"):
                decoded("shop.Part", [*[right] * before, bytes.fromhex(wrong), right])


def test_a_schema_that_cannot_be_read() -> None:
    read = {"shop.desc": descriptors(), "text": b"syntax = 'proto3';"}.__getitem__
    for name, found in (
        ("shop.desc", "found no message"),
        ("text#shop.All", "descriptor set"),
        ("shop.desc#shop.Al", "no message 'shop.Al'"),
    ):
        with pytest.raises(InvalidInputError, match=rf"WRONG_SCHEMA.*{found}"):
            row_schema(StoreForm("key-value", "bytes", with_schema(f"protobuf:{name}", read)))
    whole = with_schema("Session-Windowed<protobuf:shop.desc#shop.All>", read)
    assert with_schema(whole, read) == whole
    assert shown_serde(whole) == "Session-Windowed<protobuf:shop.All>"


def test_schemas_without_end_are_refused() -> None:
    from google.protobuf import descriptor_pb2

    found = descriptor_pb2.FileDescriptorSet()
    file = found.file.add(name="a.proto", syntax="proto3")
    for level in range(30):
        message = file.message_type.add(name=f"M{level}")
        for number in (1, 2, 3):
            message.field.add(name=f"f{number}", number=number, label=1, type=11, type_name=f".M{level + 1}")
    file.message_type.add(name="M30")
    with pytest.raises(UnsupportedError, match=r"UNSUPPORTED_SERDE.*more than 10000 types"):
        row_schema(StoreForm("key-value", "bytes", with_schema("protobuf:a#M0", lambda _: found.SerializeToString())))
    file.syntax = "editions"
    with pytest.raises(UnsupportedError, match=r"UNSUPPORTED_SERDE.*editions"):
        row_schema(StoreForm("key-value", "bytes", with_schema("protobuf:a#M0", lambda _: found.SerializeToString())))
