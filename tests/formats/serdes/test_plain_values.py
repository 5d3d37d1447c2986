"""The functions made for one schema do what the general encoder and decoder do, for columns of any name and number."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.serdes.plain_values import value_decoder, value_encoder
from statestore.formats.serdes.value_layout import value_layout
from statestore.formats.values.key_codec import ValueCodec

PLAIN: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), -7),
    (pa.int8(), 7),
    (pa.float64(), 2.5),
    (pa.bool_(), True),
    (pa.string(), "aé"),
    (pa.binary(), b"\0a"),
    (pa.date32(), date(1900, 1, 2)),
    (pa.timestamp("us", tz="UTC"), datetime(2020, 1, 2, tzinfo=UTC)),
    (pa.duration("us"), timedelta(seconds=-3)),
    (pa.decimal128(9, 2), Decimal("-1.25")),
]
HOSTILE = ["value", "slowly", "'\"; raise", "{head}", "a\nb", "0", "None", "bits"]


def same_as_in_general(schema: pa.Schema, row: tuple[Any, ...]) -> bytes:
    layout, codec = value_layout(schema), ValueCodec(schema)
    encode, decode = value_encoder(layout, codec), value_decoder(layout, codec)
    expected = layout.encode(row)
    given = row if len(row) > 1 else row[0]
    assert encode(given) == expected == encode(dict(zip(schema.names, row, strict=True)))
    assert list(codec.normalize(decode(expected))) == list(row)
    if len(row) > 1:
        assert list(decode(expected).items()) == list(zip(schema.names, row, strict=True))
    for damaged in (expected[:-1], expected + b"x", b""):
        with pytest.raises(CorruptError, match="ROW_CORRUPT"):
            decode(damaged)
    return expected


@pytest.mark.parametrize(("kind", "value"), PLAIN, ids=lambda given: str(given))
def test_one_column(kind: pa.DataType, value: Any) -> None:
    same_as_in_general(pa.schema([("v", kind)]), (value,))


def test_each_pair_of_types_in_each_order() -> None:
    for (left, a), (right, b) in product(PLAIN, PLAIN):
        same_as_in_general(pa.schema([("a", left), ("b", right)]), (a, b))


def test_columns_of_any_name() -> None:
    schema = pa.schema([(name, PLAIN[number][0]) for number, name in enumerate(HOSTILE)])
    row = tuple(PLAIN[number][1] for number in range(len(HOSTILE)))
    assert same_as_in_general(schema, row)


def test_hundreds_of_columns() -> None:
    cells = PLAIN * 40
    schema = pa.schema([(f"c{number}", kind) for number, (kind, _) in enumerate(cells)])
    same_as_in_general(schema, tuple(value for _, value in cells))


def test_values_that_are_not_quite_plain() -> None:
    schema = pa.schema([("n", pa.int8()), ("t", pa.string())])
    layout, codec = value_layout(schema), ValueCodec(schema)
    encode = value_encoder(layout, codec)
    assert encode((None, "a")) == layout.encode((None, "a"))
    for wrong in ((128, "a"), (True, "a"), (1, "\ud800"), (1,), (1, "a", 2), {"n": 1}, {"n": 1, "T": "a"}, [1, "a"], 1):
        with pytest.raises(InvalidInputError, match=r"WRONG_VALUE|INVALID_TEXT|WRONG_SCHEMA"):
            encode(wrong)


def test_nulls_beside_each_type_in_each_place() -> None:
    for kind, value in PLAIN:
        schema = pa.schema([("a", kind), ("b", pa.string()), ("c", kind)])
        for bits in range(8):
            cells = (value, "b", value)
            same_as_in_general(schema, tuple(c if bits >> n & 1 else None for n, c in enumerate(cells)))


def test_what_is_no_row_is_not_taken_for_nulls() -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.string())])
    encode = value_encoder(value_layout(schema), ValueCodec(schema))
    for wrong in ({}, {"a": 1}, (None,), (None, None, None), None, [None, None], {"a": None, "c": None}):
        with pytest.raises(InvalidInputError, match="WRONG_VALUE"):
            encode(wrong)


def test_damaged_null_bits_are_refused() -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.string())])
    layout, codec = value_layout(schema), ValueCodec(schema)
    decode = value_decoder(layout, codec)
    good = layout.encode((None, "text"))
    assert decode(good) == {"a": None, "b": "text"}
    for bad in (b"\0" + good[1:], b"\4" + good[1:], good[:-1], good + b"x"):
        with pytest.raises(CorruptError):
            decode(bad)
