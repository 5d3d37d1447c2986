"""Values of users become one canonical value, or are refused."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.values.canonical import ErrorPath, canonical, plain

STAMP, NAIVE, DURATION = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.duration("us")
MONEY = pa.decimal128(5, 2)
BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)
POINT = pa.struct([("x", pa.int64()), ("y", pa.int64())])
COUNTS = pa.map_(pa.string(), pa.int64())


class Colour(str, Enum):  # noqa: UP042  str() of it is not its value, unlike a StrEnum's
    RED = "red"


class NanoStamp(datetime):
    """A datetime that may be finer than a microsecond, like pandas' Timestamp."""

    nanosecond = 0


class NotATime(datetime):
    """A datetime unequal to itself, like pandas' NaT."""

    def __ne__(self, other: object) -> bool:
        return True


def _convert(kind: pa.DataType, value: object) -> Any:
    return canonical(ErrorPath(ErrorCode.WRONG_KEY, "k", kind))(value)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.string(), Colour.RED, "red"),
        (pa.string(), np.str_("Zürich"), "Zürich"),
        (pa.binary(), bytearray(b"\x00a"), b"\x00a"),
        (pa.binary(), memoryview(b"a"), b"a"),
        (pa.int8(), np.int64(-128), -128),
        (pa.int64(), np.uint8(255), 255),
        (pa.int64(), 2**63 - 1, 2**63 - 1),
        (pa.bool_(), np.True_, True),
        (pa.float64(), np.float32(0.5), 0.5),
        (pa.float64(), 2**60, 2.0**60),
        (pa.float32(), 0.1, float(np.float32(0.1))),
        (pa.float32(), math.inf, math.inf),
        (MONEY, 3, Decimal("3.00")),
        (MONEY, Decimal("1.5000"), Decimal("1.50")),
        (MONEY, Decimal("-0"), Decimal("0.00")),
        (MONEY, Decimal("-999.99"), Decimal("-999.99")),
        (pa.decimal128(38, 0), 10**38 - 1, Decimal(10**38 - 1)),
        (pa.date32(), np.datetime64("2020-01-01"), date(2020, 1, 1)),
        (STAMP, datetime(2020, 1, 1, 13, tzinfo=BERLIN), NOON),
        (STAMP, NanoStamp(2020, 1, 1, 10, tzinfo=timezone(timedelta(hours=-2))), NOON),
        (STAMP, datetime(2020, 10, 25, 2, 30, tzinfo=BERLIN, fold=1), datetime(2020, 10, 25, 1, 30, tzinfo=UTC)),
        (NAIVE, datetime(2020, 1, 1, fold=1), datetime(2020, 1, 1)),
        (NAIVE, np.datetime64("2020-01-01T12", "ns"), datetime(2020, 1, 1, 12)),
        (DURATION, timedelta(hours=-1), timedelta(hours=-1)),
        (pa.list_(pa.int64()), np.array([1, 2]), (1, 2)),
        (pa.list_(pa.list_(pa.int64())), [[1], [1, 2], None], ((1,), (1, 2), None)),
        (POINT, {"y": None, "x": 1}, (1, None)),
        (COUNTS, {"a": 1, "b": None}, (("a", 1), ("b", None))),
    ],
)
def test_accepted(kind: pa.DataType, value: object, expected: object) -> None:
    """The result is of a builtin type, in one form only."""
    found = _convert(kind, value)
    assert (type(found), repr(found)) == (type(expected), repr(expected))


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (pa.string(), b"a", "found bytes b'a', expected string"),
        (pa.string(), "\ud800", "lone surrogate"),
        (pa.binary(), "a", "found str"),
        (pa.int64(), True, "found bool True"),
        (pa.int64(), 1.0, "found float"),
        (pa.int8(), 128, "-128 to 127"),
        (pa.int64(), np.uint64(2**63), "the type holds"),
        (pa.bool_(), 1, "found int 1"),
        (pa.float64(), 2**53 + 1, "no exact"),
        (pa.float64(), 10**400, "too large"),
        (pa.float64(), True, "found bool"),
        (pa.float32(), 1e39, "32 bits"),
        (MONEY, 1.5, "Decimal or an int"),
        (MONEY, Decimal("1.001"), "more digits"),
        (MONEY, 1000, "more digits"),
        (MONEY, Decimal("NaN"), "found Decimal"),
        (MONEY, True, "found bool"),
        (pa.date32(), NOON, "found datetime"),
        (pa.date32(), "2020-01-01", "found str"),
        (STAMP, datetime(2020, 1, 1), "without a time zone"),
        (STAMP, 0, "found int"),
        (STAMP, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "outside the years"),
        (NAIVE, NOON, "with a time zone"),
        (NAIVE, NotATime(2020, 1, 1), "found NotATime"),
        (NAIVE, np.datetime64("NaT", "us"), "not a time"),
        (NAIVE, np.datetime64(1, "ns"), "finer"),
        (NAIVE, np.datetime64(10**15, "D"), "found datetime64"),
        (DURATION, 5, "timedelta"),
        (DURATION, timedelta.max, "too long"),
        (pa.list_(pa.int64()), "ab", "write a list"),
        (pa.list_(pa.int64()), [1, "b"], "'k[]': found str 'b'"),
        (POINT, {"x": 1}, "dict or tuple of x, y"),
        (POINT, {"x": 1, "y": "2"}, "'k.y'"),
        (COUNTS, {None: 1}, "'k{key}'"),
        (COUNTS, {"a": "b"}, "'k{value}'"),
        (COUNTS, [("a", 1), ("a", 2)], "each key once"),
        (COUNTS, [1], "list of pairs"),
        (pa.string(), 10**100, "..."),
    ],
)
def test_refused(kind: pa.DataType, value: object, words: str) -> None:
    """A value that would have to be guessed, or would lose digits, raises an error that names the position, the value
    and the expected type."""
    with pytest.raises(InvalidInputError) as caught:
        _convert(kind, value)
    assert caught.value.code == "WRONG_KEY"
    assert words in caught.value.message


def test_nanoseconds_are_refused() -> None:
    stamp = NanoStamp(2020, 1, 1, tzinfo=UTC)
    stamp.nanosecond = 1
    with pytest.raises(InvalidInputError, match="finer than a microsecond"):
        _convert(STAMP, stamp)


def test_every_nan_is_one_object() -> None:
    """Tuples that hold NaN are equal, because it is one object."""
    assert (_convert(pa.float64(), float("nan")),) == (_convert(pa.float32(), np.float32("nan")),)


@pytest.mark.parametrize("kind", [pa.uint8(), pa.list_(pa.dictionary(pa.int8(), pa.string()))])
def test_types_without_canonical_values(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedError, match="UNSUPPORTED_TYPE"):
        canonical(ErrorPath(ErrorCode.WRONG_KEY, "k", kind))


def test_a_column_of_nulls_has_no_other_value() -> None:
    """Find a key of type null, such as that of a global limit in Spark."""
    kind = pa.struct([("key", pa.null())])
    assert _convert(kind, {"key": None}) == (None,)
    with pytest.raises(InvalidInputError, match="no value but null"):
        _convert(kind, {"key": 1})


def test_plain_forms() -> None:
    """Structs become dicts, lists lists; maps what the caller wants. Keys of a dict stay hashable."""
    kind = pa.struct([("m", pa.map_(POINT, pa.list_(POINT))), ("n", pa.int64())])
    value = ((((1, 2), ((3, None),)),), 5)
    for make, expected in (
        (dict, {(1, 2): [{"x": 3, "y": None}]}),
        (list, [({"x": 1, "y": 2}, [{"x": 3, "y": None}])]),
    ):
        convert = plain(kind, make)
        assert convert is not None
        assert convert(value) == {"m": expected, "n": 5}
        assert convert(None) is None
    assert plain(pa.string(), dict) is None
