"""Coded numbers: the same bits as before, and nothing but an error or numbers from any bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.formats.segments.coded_numbers import (
    HEADER,
    PACKED,
    RUNNING,
    NumbersInPlace,
    decode,
    encode,
    in_place,
)

KINDS = {"int64": pa.int64(), "int32": pa.int32(), "float64": pa.float64()}
INT64 = st.integers(-(2**63), 2**63 - 1)


def decoded(values: npt.NDArray[Any], may_run: bool = True) -> bytes | None:
    """The values after coding and decoding, None if they were not coded; they take fewer bytes meanwhile."""
    coded = encode(values, may_run)
    if coded is None:
        return None
    assert len(coded.data) < values.nbytes
    packed = pa.Codec("zstd").compress(coded.data, asbytes=True)
    both: list[bytes] = [
        decode(pa.py_buffer(coded.header(is_packed) + data), KINDS[str(values.dtype)], len(values)).to_pybytes()
        for is_packed, data in ((False, coded.data), (bool(coded.data), packed if coded.data else b""))
    ]
    assert both[0] == both[1]
    return both[0]


@given(
    st.one_of(
        st.lists(INT64, min_size=1, max_size=50),
        st.builds(
            lambda base, unit, numbers: [base + unit * number for number in numbers],
            st.integers(-(2**60), 2**60),
            st.sampled_from([1, 3, 1000, 10**6]),
            st.lists(st.integers(0, 2**30), min_size=1, max_size=50),
        ),
    ),
    st.booleans(),
    st.booleans(),
)
def test_integers_come_back(numbers: list[int], ordered: bool, may_run: bool) -> None:
    values = np.array(sorted(numbers) if ordered else numbers, np.int64)
    found = decoded(values, may_run)
    assert found in (None, values.tobytes())
    if max(numbers) - min(numbers) < 2**24:
        assert found is not None


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=50), st.booleans())
def test_small_integers_come_back(numbers: list[int], ordered: bool) -> None:
    values = np.array(sorted(numbers) if ordered else numbers, np.int32)
    assert decoded(values) in (None, values.tobytes())


@given(
    st.one_of(
        st.lists(st.floats(), min_size=1, max_size=50),
        st.lists(st.integers(-(10**7), 10**7).map(lambda cents: cents / 100), min_size=1, max_size=50),
    )
)
def test_doubles_come_back_bit_by_bit(numbers: list[float]) -> None:
    """Also zero with a sign, infinite numbers and those that are none."""
    values = np.array(numbers)
    assert decoded(values) in (None, values.tobytes())


@pytest.mark.parametrize(
    ("values", "width"),
    [
        (np.full(1000, 17), 0),
        (1_700_000_000_000_000 + np.arange(1000) * 1000, 1),
        (1_700_000_000_000_000 + np.arange(1000)[::-1] * 10_000, 2),
        (np.arange(1000)[::-1] * 1.25, 2),
        (np.arange(1000)[::-1] * 100_003, 2),
        (np.array([0, 2**55, 5]), 7),
        (np.array([-(2**63), 2**63 - 1]), None),
        (np.array([0, 2**56]), None),
        (np.array([0.1 + 0.2]), None),
        (np.array([-0.0]), None),
        (np.array([np.nan]), None),
        (np.array([2.0**60, 1.0]), None),
    ],
)
def test_bytes_of_a_number(values: npt.NDArray[Any], width: int | None) -> None:
    coded = encode(values)
    assert (None if coded is None else coded.width) == width
    assert decoded(values) == (None if width is None else values.tobytes())


def test_numbers_that_do_not_run() -> None:
    times = np.arange(1000) * 1000
    assert (encode(times, True).running, encode(times, False).running) == (True, False)  # type: ignore[union-attr]
    assert decoded(times, False) == times.tobytes()


def _bytes(width: int = 1, flags: int = 0, decimals: int = 0, unit: int = 1, data: bytes = bytes(4)) -> pa.Buffer:
    return pa.py_buffer(HEADER.pack(width, flags, decimals, 5, unit) + data)


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (pa.py_buffer(b""), pa.int64(), "have 0 bytes, expected at least 24"),
        (pa.py_buffer(bytes(23)), pa.int64(), "have 23 bytes, expected at least 24"),
        (_bytes(width=8), pa.int64(), "8 bytes, flags 0, 0 decimals, base 5, unit 1 cannot be those of int64"),
        (_bytes(width=4), pa.int32(), "4 bytes"),
        (_bytes(width=255), pa.float64(), "255 bytes"),
        (_bytes(flags=4), pa.int64(), "flags 4"),
        (_bytes(decimals=1), pa.int64(), "1 decimals"),
        (_bytes(decimals=5), pa.float64(), "5 decimals"),
        (_bytes(unit=0), pa.int64(), "unit 0"),
        (_bytes(unit=-1), pa.int64(), "unit -1"),
        (_bytes(data=bytes(3)), pa.int64(), "4 coded numbers have 3 bytes, expected 4"),
        (_bytes(data=bytes(5)), pa.int64(), "have 5 bytes, expected 4"),
        (_bytes(width=0), pa.int64(), "have 4 bytes, expected 0"),
        (_bytes(width=0, flags=PACKED), pa.int64(), "have 4 bytes, expected 0"),
        (_bytes(flags=PACKED), pa.int64(), "ZSTD"),
        (_bytes(flags=PACKED, data=pa.Codec("zstd").compress(bytes(3), asbytes=True)), pa.int64(), "(?i)expected|ZSTD"),
        (_bytes(flags=PACKED, data=pa.Codec("zstd").compress(bytes(5), asbytes=True)), pa.int64(), "(?i)expected|ZSTD"),
    ],
)
def test_forged_bytes_are_refused(data: pa.Buffer, kind: pa.DataType, message: str) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        decode(data, kind, 4)


@given(st.binary(max_size=60), st.integers(0, 2 * RUNNING + PACKED), st.sampled_from([*KINDS.values()]))
def test_any_bytes_are_numbers_or_refused(data: bytes, flags: int, kind: pa.DataType) -> None:
    """Sums and products that are too great wrap around."""
    content = bytearray(data)
    if len(content) > 2:
        content[0], content[1], content[2] = content[0] % 8, flags % 4, 0
    try:
        found = decode(pa.py_buffer(bytes(content)), kind, 4)
    except (ValueError, OSError):
        return
    assert found.size == 4 * kind.bit_width // 8


def numbers_of(found: NumbersInPlace) -> list[int]:
    """The numbers one by one; those that are taken are the same."""
    rows = np.arange(found.rows)[::-1]
    read = found.reader()
    each = [read(row) for row in range(found.rows)]
    assert found.take(rows).tolist() == each[::-1]
    return each


@given(st.lists(st.integers(0, 2**55), min_size=1, max_size=50), st.integers(0, 55), st.integers(-(2**62), 2**62))
def test_numbers_are_read_where_they_are(numbers: list[int], bits: int, base: int) -> None:
    values = np.array([base + (number >> bits) for number in numbers], np.int64)
    assert numbers_of(NumbersInPlace.of(values)) == values.tolist()
    assert numbers_of(NumbersInPlace.packed(values)) == values.tolist()
    coded = encode(values, may_run=False)
    if coded is None:
        return
    stored = pa.py_buffer(coded.header(False) + coded.data)
    found = in_place(stored, len(values))
    if found is not None:
        assert numbers_of(found) == values.tolist()
        assert found.data.address == stored.address + HEADER.size
    else:
        assert coded.base + coded.unit * ((1 << 8 * coded.width) - 1) >= 2**63


@given(st.binary(max_size=60), st.integers(0, 2))
def test_any_bytes_are_numbers_in_place_as_they_are_decoded(data: bytes, flags: int) -> None:
    content = bytearray(data)
    if len(content) > 2:
        content[0], content[1], content[2] = content[0] % 9, flags % 2, 0
    found = in_place(pa.py_buffer(bytes(content)), 4)
    if found is not None:
        expected = decode(pa.py_buffer(bytes(content)), pa.int64(), 4)
        assert numbers_of(found) == np.frombuffer(expected, np.int64).tolist()
