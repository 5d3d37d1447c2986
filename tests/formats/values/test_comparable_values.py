"""Every type of Arrow that a key of an engine may have can be hashed, compared and looked up."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statestore.catalog.reads.row_pairs import differences, keyed_rows, pairs
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.values.canonical import ErrorPath
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.comparison import compare, same_key
from statestore.formats.values.key_hash import hash_keys

WHEN = datetime(2026, 1, 2, 3, 4, 5, 678_000)
MICROS = pa.timestamp("us")
TYPES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.float32(), 1.5, -2.0),
    (pa.float64(), 1.5, float("inf")),
    (pa.time32("s"), time(1, 2, 3), time(4)),
    (pa.time32("ms"), time(1, 2, 3, 4000), time(4)),
    (pa.time64("us"), time(1, 2, 3, 4), time(4)),
    (pa.time64("ns"), time(1, 2, 3, 4), time(4)),
    (pa.timestamp("s"), WHEN.replace(microsecond=0), WHEN.replace(year=2020, microsecond=0)),
    (pa.timestamp("ms"), WHEN, WHEN.replace(day=9)),
    (pa.timestamp("us"), WHEN, WHEN.replace(day=9)),
    (pa.timestamp("ns"), WHEN, WHEN.replace(day=9)),
    (pa.date32(), date(2026, 1, 2), date(1969, 1, 2)),
    (pa.duration("ms"), timedelta(seconds=1), timedelta(days=-3)),
    (pa.decimal128(38, 5), Decimal("1.00001"), Decimal("-7.00000")),
    (pa.bool_(), True, False),
    (pa.binary(), b"\0\1", b""),
    (pa.string(), "a", "日本"),
    (pa.list_(pa.time32("ms")), [time(1)], [time(1), None]),
    (pa.struct([("a", pa.float64()), ("b", pa.timestamp("ns"))]), {"a": 0.5, "b": WHEN}, {"a": None, "b": WHEN}),
]
UNFILTERED: list[tuple[pa.DataType, Any, Any]] = [
    (pa.uint64(), 2**64 - 1, 1),
    (pa.binary(3), b"abc", b"abd"),
    (pa.decimal256(50, 2), Decimal("1.25"), Decimal(-4)),
    (pa.list_(pa.float32(), 2), [1.0, -0.0], [1.0, 2.0]),
    (pa.large_list(pa.time32("ms")), [time(1)], []),
    (pa.map_(pa.float64(), pa.time32("ms")), [(0.0, time(1)), (-0.0, time(2))], [(0.0, time(2)), (-0.0, time(1))]),
    (pa.month_day_nano_interval(), pa.MonthDayNano([1, 2, 3]), pa.MonthDayNano([1, 2, 4])),
]


@pytest.mark.parametrize(("kind", "one", "other"), TYPES + UNFILTERED, ids=str)
def test_rows_are_paired_by_keys_of_any_type(kind: pa.DataType, one: Any, other: Any) -> None:
    before = keyed_rows([pa.array([other, one, other], kind).slice(1)], [pa.array([1, 2])])
    after = keyed_rows([pa.array([other, one], kind)], [pa.array([2, 5])])
    left, right = pairs(before, after)
    assert sorted(zip(left.tolist(), right.tolist(), strict=True)) == [(0, 1), (1, 0)]
    changed = differences(before, after, left, right)[:, 0].tolist()
    assert sorted(zip(left.tolist(), changed, strict=True)) == [(0, True), (1, False)]


@pytest.mark.parametrize(("kind", "one", "other"), TYPES, ids=str)
def test_keys_of_any_type_are_found(kind: pa.DataType, one: Any, other: Any) -> None:
    path = ErrorPath(ErrorCode.WRONG_KEY, "key", kind)
    assert compare(pa.array([one, other, None], kind), "=", one, path).to_pylist() == [True, False, None]


def test_zeros_and_nans_are_keys_by_their_bits() -> None:
    odd = np.array([0x7FF8000000000001], np.int64).view(np.float64)[0]
    numbers = np.array([0.0, -0.0, np.nan, odd])
    assert len(set(hash_keys([comparable(pa.array(numbers), by_bits=True)]).tolist())) == 4
    assert len(set(hash_keys([comparable(pa.array(numbers))]).tolist())) == 2
    side = keyed_rows([pa.array(numbers)], [])
    left, right = pairs(side, side)
    assert left.tolist() == right.tolist() and len(left) == 4


def test_entries_of_maps_are_ordered_by_the_bits_of_their_keys() -> None:
    kind = pa.map_(pa.float64(), pa.int64())
    one, other = pa.array([[(0.0, 1), (-0.0, 2)]], kind), pa.array([[(-0.0, 2), (0.0, 1)]], kind)
    assert comparable(one).equals(comparable(other))
    assert not comparable(one).equals(comparable(pa.array([[(-0.0, 1), (0.0, 2)]], kind)))


def test_a_moment_with_nanoseconds_is_found_exactly() -> None:
    kind = pa.timestamp("ns")
    column = pa.array(np.array(["2026-01-01T00:00:00.000000001", "2026-01-01T00:00:00.000000002"], "M8[ns]"), kind)
    path = ErrorPath(ErrorCode.WRONG_KEY, "key", kind)
    asked = np.datetime64("2026-01-01T00:00:00.000000002", "ns")
    assert compare(column, "=", asked, path).to_pylist() == [False, True]
    with pytest.raises(InvalidInputError, match="finer than a microsecond"):
        compare(column.cast(MICROS, safe=False), "=", asked, ErrorPath(ErrorCode.WRONG_KEY, "key", MICROS))


def test_a_time_finer_than_its_column_is_refused() -> None:
    path = ErrorPath(ErrorCode.WRONG_KEY, "key", pa.time32("ms"))
    with pytest.raises(InvalidInputError, match="finer than the type"):
        compare(pa.array([time(1)], pa.time32("ms")), "=", time(1, 0, 0, 1), path)


def test_one_key_is_told_from_another_by_signs_of_zeros_and_entries_of_maps() -> None:
    kind = pa.struct([("x", pa.list_(pa.float32())), ("m", pa.map_(pa.float64(), pa.time64("us")))])
    keys = [
        {"x": [0.0, None], "m": [(0.0, time(1)), (2.5, None)]},
        {"x": [-0.0, None], "m": [(0.0, time(1)), (2.5, None)]},
        {"x": [0.0, None], "m": [(-0.0, time(1)), (2.5, None)]},
        {"x": None, "m": None},
        None,
    ]
    column = pa.array(keys, kind)
    path = ErrorPath(ErrorCode.WRONG_KEY, "key", kind)
    for number, key in enumerate(keys[:-1]):
        assert same_key(column, key, path).to_pylist() == [other == number for other in range(len(keys))]
    turned = {"x": [0.0, None], "m": {2.5: None, 0.0: time(1)}}
    assert same_key(column, turned, path).to_pylist() == [True, False, False, False, False]


def test_the_order_of_a_map_counts_where_two_keys_differ_in_it_alone() -> None:
    """RocksDB keeps two such keys of Flink, the heap keeps one."""
    kind = pa.struct([("m", pa.map_(pa.string(), pa.float64()))])
    ab, ba = {"m": [("a", 0.0), ("b", 2.0)]}, {"m": [("b", 2.0), ("a", 0.0)]}
    c: Any = {"m": []}

    def paired(old: list[Any], new: list[Any]) -> list[tuple[int, int]]:
        sides = (keyed_rows([pa.array(keys, kind)], []) for keys in (old, new))
        left, right = pairs(next(sides), next(sides))
        return sorted(zip(left.tolist(), right.tolist(), strict=True))

    assert paired([ab, ba, c], [c, ba, ab]) == [(0, 2), (1, 1), (2, 0)]
    assert paired([ba], [ab, ba]) == [(0, 1)]
    assert paired([ab, ba], [c, ba]) == [(1, 1)]
    assert paired([ab, c], [ba, c]) == [(0, 0), (1, 1)]  # one key of the heap, after a restore
