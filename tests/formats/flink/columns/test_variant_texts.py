"""Variants that Flink 2.3.0 wrote, against the JSON that Flink itself makes of them.

``variants.json.xz`` has bytes of ``VariantSerializer`` as hexadecimal digits, each with ``Variant.toJson``. They are
random values of each type (``tests/engines/flink/sql/from-2/Variants.java``).
"""

from __future__ import annotations

import datetime
import json
import lzma
import re
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from support.flink.value_model import column_of, walking
from support.paths import DATA
from support.properties import few_or_many

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.errors import StateStoreError
from statestore.formats.flink.columns.faults import Beyond, Wrong
from statestore.formats.flink.columns.variant_texts import variant_texts
from statestore.formats.flink.serializers.flink_types import Logical, RowDataOf, TableValue, TupleOf

VARIANT = Logical("VARIANT")
METADATA = bytes((1, 1, 0, 1)) + b"a"
_MOMENT = re.compile(r"-?\d{4,}-\d\d-\d\dT\d\d:\d\d")


@cache
def written() -> list[tuple[bytes, str]]:
    found = json.loads(lzma.decompress((DATA / "flink" / "variants.json.xz").read_bytes()))
    return [(bytes.fromhex(raw), text) for raw, text in found]


def read(text: str) -> Any:
    return meant(json.loads(text, parse_float=Number, parse_int=Number))


class Number:
    """A number of JSON: the same as another one of the same value, or of the same double."""

    def __init__(self, text: str) -> None:
        self.value = Decimal(text)

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Number)
        return self.value == other.value or float(self.value) == float(other.value)

    def __repr__(self) -> str:
        return str(self.value)


def meant(value: Any) -> Any:
    """Texts of times as times: Java writes them with zeros that say nothing, or without."""
    if isinstance(value, list):
        return [meant(each) for each in value]
    if isinstance(value, dict):
        return {name: meant(each) for name, each in value.items()}
    if isinstance(value, str) and _MOMENT.match(value):
        return datetime.datetime.fromisoformat(value)
    return value


def alone(value: bytes, metadata: bytes = METADATA) -> list[str]:
    data = np.frombuffer(value + metadata, np.uint8)
    of_value = Cells(data, np.array([0]), np.array([len(value)]))
    of_metadata = Cells(data, np.array([len(value)]), np.array([len(metadata)]))
    found: list[str] = variant_texts(of_value, of_metadata).to_pylist()
    return found


@pytest.mark.parametrize("compiled", [False, True])
def test_variants_are_the_json_that_flink_makes_of_them(compiled: bool) -> None:
    with walking(compiled):
        column = column_of(TableValue(VARIANT), *(raw for raw, _ in written()))
    assert column.null_count == 0
    assert [read(text) for text in column.to_pylist()] == [read(text) for _, text in written()]


def test_variants_between_other_values() -> None:
    kind = TupleOf((TableValue(VARIANT), TableValue(Logical("STRING")), TableValue(VARIANT)))
    (one, first), (other, second) = written()[:2]
    row = column_of(kind, one + b"\0\0\0\1x" + other).to_pylist()[0]
    assert [read(row["f0"]), row["f1"], read(row["f2"])] == [read(first), "x", read(second)]


def test_variants_in_binary_rows() -> None:
    kind = Logical("ROW", children=(VARIANT, Logical("BIGINT")))
    rows, texts = [], []
    for raw, text in written()[:50]:
        size = int.from_bytes(raw[:4])
        held = raw[4:8] + raw[8 + size :] + raw[8 : 8 + size]
        row = bytes(8) + (24 << 32 | len(held)).to_bytes(8, "little") + (7).to_bytes(8, "little") + held
        rows.append(len(row).to_bytes(4) + row)
        texts.append(text)
    null = bytes((0, 1)) + bytes(22)
    rows.append(len(null).to_bytes(4) + null)
    found = column_of(RowDataOf(kind), *rows).to_pylist()
    assert [read(row["f0"]) for row in found[:-1]] == [read(text) for text in texts]
    assert found[-1] == {"f0": None, "f1": 0} and found[0]["f1"] == 7


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\0", "null"),
        (bytes((17 << 2,)) + (61_000_001).to_bytes(8, "little"), '"00:01:01.000001"'),
        (bytes((18 << 2,)) + (-1).to_bytes(8, "little", signed=True), '"1969-12-31T23:59:59.999999999Z"'),
        (bytes((19 << 2,)) + (1).to_bytes(8, "little"), '"1970-01-01T00:00:00.000000001"'),
        (bytes((20 << 2,)) + bytes(range(16)), '"00010203-0405-0607-0809-0a0b0c0d0e0f"'),
        (bytes((15 << 2,)) + (2).to_bytes(4, "little") + b"\xff\xfe", '"//4="'),
        (bytes((8 << 2, 5)) + (-12).to_bytes(4, "little", signed=True), "-0.00012"),
        (bytes((2, 0, 0)), "{}"),
        (bytes((2, 1, 0, 0, 1, 4)), '{"a":true}'),
    ],
)
def test_each_form_of_a_value(value: bytes, text: str) -> None:
    assert alone(value) == [text]


@pytest.mark.parametrize(
    ("value", "metadata"),
    [
        (b"", METADATA),
        (bytes((21 << 2,)), METADATA),  # a type that no release has
        (bytes((5 << 2, 0, 0)), METADATA),
        (bytes((3 << 2 | 1,)) + b"ab", METADATA),
        (bytes((16 << 2,)) + b"\xff\xff\xff\xff", METADATA),
        (bytes((2, 1, 1, 0, 1, 4)), METADATA),  # a name that the metadata has not
        (bytes((2, 1, 0, 0, 9, 4)), METADATA),
        (bytes((3, 200, 0)), METADATA),
        (bytes((3, 1, 9, 1, 0)), METADATA),
        (b"\0", b""),
        (b"\0", b"\2\0\0"),
        (b"\0", b"\1\xff\0"),
        (bytes((3, 3, 0, 0, 0, 6, 3, 2, 0, 0, 0)), METADATA),  # each element is the array's rest
    ],
)
def test_damaged_variants_are_refused(value: bytes, metadata: bytes) -> None:
    with pytest.raises(Wrong):
        alone(value, metadata)


def test_variants_within_one_another_without_end_are_refused() -> None:
    value = b"\0"
    for _ in range(1100):
        size = len(value).to_bytes(3, "little")
        value = bytes((3 | 2 << 2, 1)) + bytes(3) + size + value
    with pytest.raises(Beyond, match="levels"):
        alone(value)


@few_or_many(60, 400, st.data())
def test_damaged_bytes_are_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from(written()))[0])
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))]) if data.draw(st.booleans()) else bytes(raw)
    try:
        column_of(TableValue(VARIANT), cut)
    except StateStoreError as error:
        assert error.code in ("FLINK_ROW", "FLINK_UNSUPPORTED")
