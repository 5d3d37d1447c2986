"""Rows that were decoded from records are encoded as these records again, of real stores and of any values."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kafka.real_applications import application, form_of, record_columns
from support.kafka.serde_model import NUMBERS, bytes_of
from support.kafka.store_answers import cases, the_store

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.kafka.columns.origins import Origin
from statestore.formats.kafka.columns.record_encoders import (
    ENCODED_FORMS,
    kept_headers,
    kept_timestamps,
    record_keys,
)
from statestore.formats.kafka.columns.serde_columns import cell_serde
from statestore.formats.kafka.columns.serde_encoders import encoded
from statestore.formats.kafka.columns.store_kinds import KINDS, logged_rows

ENCODED = cases(lambda store: store["changelog"] is not None and KINDS[form_of(store).kind].rows in ENCODED_FORMS)


@pytest.mark.parametrize(("name", "store"), ENCODED)
def test_records_of_real_stores_come_back_as_they_were(name: str, store: str) -> None:
    found = the_store(name, store)
    form = form_of(found)
    kind, records = KINDS[form.kind], application(name).changelogs[found["changelog"]]
    keys, values, timestamps, headers = record_columns(records)
    rows = logged_rows(form, keys, values, timestamps, headers)
    own = encoded(form.key_serde, rows.column("key"), "key")
    assert record_keys(kind, own, rows).equals(keys)
    assert encoded(form.value_serde, rows.column("value"), "value").equals(values)
    kept = kept_timestamps(kind, rows)
    assert kept is None or kept.tolist() == timestamps.to_pylist()
    if kind.headers:
        assert kept_headers(kind, rows).to_pylist() == headers.to_pylist()


def test_most_kinds_of_stores_are_encoded() -> None:
    assert {form_of(the_store(*case.values)).kind for case in ENCODED} >= {
        "key-value",
        "timestamped-key-value",
        "headers-key-value",
        "window",
        "timestamped-window",
        "session",
        "versioned",
        "time-ordered-timestamped-window",
    }


def values_of(serde: str) -> st.SearchStrategy[Any]:
    """Values that Kafka's serializer writes, as they are shown."""
    if serde.lower() in NUMBERS:
        half = 1 << NUMBERS[serde.lower()][1] - 1
        return st.integers(-half, half - 1)
    return {
        "String": st.text(),
        "Float": st.floats(width=32, allow_nan=False),
        "Double": st.floats(),
        "Boolean": st.booleans(),
        "UUID": st.uuids().map(str),
        "ByteArray": st.binary(),
        "json": st.one_of(st.integers(), st.text(), st.lists(st.integers())).map(json_text),
    }[serde]


def json_text(value: Any) -> str:
    return f" {json.dumps(value)}\n"


SERDES = ("String", "Short", "Integer", "Long", "Float", "Double", "Boolean", "UUID", "ByteArray", "json")


@pytest.mark.parametrize("serde", SERDES)
@given(data=st.data())
def test_values_are_encoded_as_kafka_writes_them(serde: str, data: st.DataObject) -> None:
    found = data.draw(st.lists(st.none() | values_of(serde), max_size=12))
    column = pa.array(found, cell_serde(serde).type)
    cells = encoded(serde, column, "value")
    assert cells.to_pylist() == [bytes_of(serde, value) for value in found]
    again = cell_serde(serde).decode(cells_of(cells), Origin("value", cells))
    assert encoded(serde, again, "value").equals(cells)


def test_void_and_lists_are_encoded() -> None:
    assert encoded("void", pa.nulls(2), "value").to_pylist() == [None, None]
    lists = pa.array([["a", None], [], None], pa.list_(pa.string()))
    assert encoded("List<String>", lists, "value").to_pylist() == [
        bytes.fromhex("01 00000002 00000001 61 ffffffff"),
        bytes.fromhex("01 00000000"),
        None,
    ]
    integers = pa.array([[7, None]], pa.list_(pa.int32()))
    assert encoded("list<integer>", integers, "value").to_pylist() == [
        bytes.fromhex("00 00000001 00000001 00000002 00000007")
    ]


@pytest.mark.parametrize("serde", ["time-windowed<string>", "session-windowed<long>"])
def test_keys_of_windows_come_back(serde: str) -> None:
    is_long = "long" in serde
    front = struct.pack(">q", -3) if is_long else "été".encode()
    key = front + (struct.pack(">qq", 9000, 1000) if is_long else struct.pack(">q", 5000))
    cells = pa.array([key, None, key], pa.binary())
    column = cell_serde(serde).decode(cells_of(cells), Origin("key", cells))
    assert encoded(serde, column, "key").equals(cells)


def test_rows_of_a_slice_are_those_of_the_slice() -> None:
    column = pa.array([1, None, 3, 4], pa.int64()).slice(1, 2)
    assert encoded("long", column, "value").to_pylist() == [None, struct.pack(">q", 3)]


@pytest.mark.parametrize(
    ("serde", "value", "kind"),
    [
        ("json", "{", pa.string()),
        ("uuid", "6F9619FF-8B86-D011-B42D-00CF4FC964FF", pa.string()),
        ("uuid", "no uuid", pa.string()),
    ],
)
def test_values_that_the_serde_cannot_have_are_refused(serde: str, value: str, kind: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match="WRONG_VALUE"):
        encoded(serde, pa.array([value], kind), "value")


@pytest.mark.parametrize("serde", ["List<json>", 'List<avro-plain:{"type": "string"}>', "time-windowed<json-schema>"])
def test_serdes_that_wrap_others_with_a_schema_are_named(serde: str) -> None:
    with pytest.raises(UnsupportedError, match=r"EDIT_UNSUPPORTED.*its values are read, and not written"):
        encoded(serde, pa.array(["x"]), "value")


def test_fractions_of_milliseconds_are_refused() -> None:
    rows = pa.record_batch({"window_start": pa.array([1500], pa.timestamp("us", "UTC"))})
    with pytest.raises(InvalidInputError, match=r"WRONG_VALUE.*whole milliseconds"):
        record_keys(KINDS["window"], pa.array([b"k"]), rows)
