"""Numbers in fewer bytes: differences from the least one, or from the one before, in as many bytes as they need.

docs/format.md specifies the bytes. Times, versions, counters and prices with few decimals take a quarter of their
bytes so, and are decoded in half of the time that Zstandard needs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.kernels.arrays import Ints

HEADER = struct.Struct("<BBB5xqq")  # bytes of each number, flags, decimals; base, unit
RUNNING, PACKED = 1, 2  # flags: numbers are differences from the one before; the bytes are one Zstandard frame
MOST_DECIMALS = 4
_SAMPLE = 64
_ZSTD = pa.Codec("zstd")
_MASK = (1 << 64) - 1
_EXACT = 1 << 53  # integers below are exact as floating point
_WHOLE = 8  # bytes of a number that is not coded

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Coded:
    """Coded numbers: value = (``base`` + ``unit`` · number) / 10^``decimals``, and the bytes of the numbers.

    The ``width`` bytes of a number are cut into pieces of four, two and one bytes, the lowest first. The first pieces
    of all numbers come first, then the second ones, and so on, each as little-endian unsigned integers.
    """

    width: int
    running: bool
    decimals: int
    base: int
    unit: int
    data: bytes

    def header(self, packed: bool) -> bytes:
        flags = RUNNING * self.running | PACKED * packed
        return HEADER.pack(self.width, flags, self.decimals, self.base, self.unit)


def encode(values: npt.NDArray[Any], may_run: bool = True) -> Coded | None:
    """Return integers of 32 or 64 bits, or doubles, in fewer bytes; at least one.

    None if that takes as many, or if the values would not be given back bit by bit. Numbers that run are differences
    from the one before, and take twice the time to decode.
    """
    decimals = 0
    if values.dtype == np.float64:
        found = _without_decimals(values)
        if found is None:
            return None
        decimals, integers = found
    else:
        integers = values.astype(np.int64, copy=False)
    base, most = int(integers.min()), int(integers.max())
    if most - base >= 1 << 56:
        return None
    numbers = integers - base
    running = may_run and bool((integers[1:] >= integers[:-1]).all())
    if running:
        numbers = np.diff(integers, prepend=integers[:1])
    unit = _unit(numbers)
    if unit > 1:
        numbers //= unit
    width = (int(numbers.max()).bit_length() + 7) // 8
    if width >= values.dtype.itemsize:
        return None
    numbers = numbers.astype("<i8", copy=False)
    data = b"".join(numbers.view(f"<u{size}")[at // size :: 8 // size].tobytes() for at, size in _pieces(width))
    return Coded(width, running, decimals, base, unit, data)


def _pieces(width: int) -> Iterator[tuple[int, int]]:
    """Yield (first byte, bytes) of each piece of a number."""
    at = 0
    for size in (4, 2, 1):
        if width & size:
            yield at, size
            at += size


def _without_decimals(values: Floats) -> tuple[int, Ints] | None:
    """Return how often ten has to be multiplied to make integers of all values, and these integers."""
    for decimals in range(MOST_DECIMALS + 1):
        if _as_integers(values[:_SAMPLE], decimals) is not None:
            integers = _as_integers(values, decimals)
            return None if integers is None else (decimals, integers)
    return None


def _as_integers(values: Floats, decimals: int) -> Ints | None:
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.rint(values * 10.0**decimals)
        if not bool((np.abs(scaled) < _EXACT).all()):  # nor numbers that are none
            return None
        integers = scaled.astype(np.int64)
    same = np.array_equal((integers / 10.0**decimals).view(np.int64), values.view(np.int64))
    return integers if same else None


def _unit(numbers: Ints) -> int:
    """Return a divisor of all numbers, which are not negative; the greatest one, or 1."""
    unit = int(np.gcd.reduce(numbers[-_SAMPLE:]))
    if unit <= 1:
        return 1
    return unit if bool((numbers // unit * unit == numbers).all()) else 1


class NumbersInPlace(NamedTuple):
    """Integers of 64 bits that are read one by one where they are stored: ``base`` + ``unit`` · number.

    ``data`` has the ``width`` bytes of each number as `Coded` has them; of 8 bytes, they are signed integers.
    """

    rows: int
    width: int
    base: int
    unit: int
    data: pa.Buffer

    @classmethod
    def of(cls, values: Ints) -> NumbersInPlace:
        """Return integers as they are."""
        return cls(len(values), _WHOLE, 0, 1, pa.py_buffer(values))

    @classmethod
    def packed(cls, values: Ints) -> NumbersInPlace:
        """Return integers in as few bytes as they need."""
        coded = encode(values, may_run=False) if len(values) else None
        if coded is None:
            return cls.of(values)
        return cls(len(values), coded.width, coded.base, coded.unit, pa.py_buffer(coded.data))

    def reader(self) -> Callable[[int], int]:
        """Return the function that reads one number; it does not look whether there is such a number."""
        views = [part.data for part, _ in self._parts()]
        if self.width == _WHOLE:
            return views[0].__getitem__
        base, unit = self.base, self.unit
        if len(views) == 1:
            numbers = views[0]
            return lambda row: base + unit * numbers[row]
        shifted = [(view, shift) for view, (_, shift) in zip(views, self._parts(), strict=True)]
        return lambda row: base + unit * sum(view[row] << shift for view, shift in shifted)

    def take(self, rows: Ints) -> Ints:
        """Return the numbers of these rows."""
        parts = self._parts()
        if self.width == _WHOLE:
            return parts[0][0][rows]
        found: Ints = np.zeros(len(rows), np.int64)
        for part, shift in parts:
            found |= part[rows].astype(np.int64) << shift
        return self.base + self.unit * found

    def _parts(self) -> list[tuple[npt.NDArray[Any], int]]:
        """Return the pieces of all numbers, and the bits by which each is shifted."""
        if self.width == _WHOLE:
            return [(np.frombuffer(self.data, np.int64, self.rows), 0)]
        return [
            (np.frombuffer(self.data, f"<u{size}", self.rows, at * self.rows), 8 * at)
            for at, size in _pieces(self.width)
        ]


def in_place(data: pa.Buffer, count: int) -> NumbersInPlace | None:
    """Return coded integers of 64 bits as they are stored; None where they run or are packed, or `decode` refuses them.

    Numbers that would not fit 64 bits are left to `decode`, too.
    """
    if data.size < HEADER.size:
        return None
    width, flags, decimals, base, unit = HEADER.unpack(data[: HEADER.size])
    stored = data.slice(HEADER.size)
    if flags or decimals or width >= _WHOLE or unit < 1 or stored.size != count * width:
        return None
    if base + unit * ((1 << 8 * width) - 1) >= 1 << 63:
        return None
    return NumbersInPlace(count, width, base, unit, stored)


def decode(data: pa.Buffer, kind: pa.DataType, count: int) -> pa.Buffer:
    """Return the values buffer of ``count`` numbers of a type from its coded bytes.

    Raises ValueError if the bytes are not what `encode` makes of so many numbers of the type.
    """
    if data.size < HEADER.size:
        raise ValueError(f"coded numbers have {data.size} bytes, expected at least {HEADER.size}")
    width, flags, decimals, base, unit = HEADER.unpack(data[: HEADER.size])
    item = kind.bit_width // 8
    is_double = pa.types.is_float64(kind)
    least = -(1 << (8 * item - 1))
    if (
        width >= item
        or flags > (RUNNING | PACKED)
        or unit < 1
        or decimals > (MOST_DECIMALS if is_double else 0)
        or not least <= base < -least
    ):
        raise ValueError(
            f"{width} bytes, flags {flags}, {decimals} decimals, base {base}, unit {unit} cannot be those of {kind}"
        )
    stored, length = data.slice(HEADER.size), count * width
    if flags & PACKED and length:
        stored = _ZSTD.decompress(stored, length)
    if stored.size != length:
        raise ValueError(f"{count} coded numbers have {stored.size} bytes, expected {length}")
    result = pa.allocate_buffer(item * count)  # by Arrow, which uses memory again that the system would take back
    numbers = np.frombuffer(result, "<u8") if item == 8 else np.empty(count, "<u8")
    _put(numbers, stored, width)
    if flags & RUNNING:
        np.cumsum(numbers, out=numbers)
    if unit > 1:
        numbers *= np.uint64(unit)
    if base:
        numbers += np.uint64(base & _MASK)
    if is_double:
        np.divide(numbers.view(np.int64), 10.0**decimals, out=numbers.view(np.float64))
    elif item < 8:
        np.frombuffer(result, f"<u{item}")[:] = numbers.astype(f"<u{item}")
    return result


def _put(numbers: npt.NDArray[np.uint64], stored: pa.Buffer, width: int) -> None:
    """Put numbers together from their pieces."""
    if width in (1, 2, 4):
        numbers[:] = np.frombuffer(stored, f"<u{width}")
        return
    numbers[:] = 0
    for at, size in _pieces(width):  # those of one piece end where the next begin
        pieces = np.frombuffer(stored, f"<u{size}", len(numbers), at * len(numbers))
        numbers.view(f"<u{size}")[at // size :: 8 // size] = pieces
