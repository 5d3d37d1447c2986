"""Read the fields of one structure from front to end, without trusting a length or count in it.

A `FieldReader` is derived for each kind of structure: it makes the error that names the file. The functions here read
and write variable-length integers (LEB128: seven bits a byte, low bits first), wherever one of them stands alone.
Columns of many structures are read by ``column_cursor``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from struct import Struct
from typing import Protocol

NULL = -1  # the length of a byte array that is null
_I16 = Struct(">h")
_U16 = Struct(">H")
_I32 = Struct(">i")
_I64 = Struct(">q")
_MOST_VARINT_BYTES = 5
_MOST_VARLONG_BYTES = 10


class FieldReader(ABC):
    """A position ``at`` in ``data``, of which the bytes up to ``stop`` (default: all) may be read.

    Each method reads one field and moves the position behind it; numbers are big-endian. ``field`` names the value that
    is read. Every method raises what `error` makes, which names the offset in ``data``, what was found and what was
    expected.
    """

    __slots__ = ("at", "data", "stop")

    def __init__(self, data: bytes, at: int = 0, stop: int | None = None) -> None:
        self.data = data
        self.stop = len(data) if stop is None else max(0, min(stop, len(data)))
        self.at = at
        if not 0 <= at <= self.stop:
            raise self.error(f"found an offset outside of the {self.stop} bytes")

    @abstractmethod
    def error(self, problem: str, at: int | None = None) -> Exception:
        """The error for bytes ``at`` an offset, by default the position."""

    @property
    def left(self) -> int:
        """Bytes that may still be read."""
        return self.stop - self.at

    def take(self, size: int, field: str = "a value") -> bytes:
        """The next ``size`` bytes."""
        start = self._skip(size, field)
        return bytes(self.data[start : self.at])

    def skip(self, size: int, field: str = "a value") -> None:
        """Move behind the next ``size`` bytes."""
        self._skip(size, field)

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.take(self.left)

    def i8(self, field: str = "a byte") -> int:
        found = self.data[self._skip(1, field)]
        return found - 256 if found > 127 else found

    def u8(self, field: str = "a byte") -> int:
        return self.data[self._skip(1, field)]

    def i16(self, field: str = "an int16") -> int:
        number: int = _I16.unpack_from(self.data, self._skip(2, field))[0]
        return number

    def u16(self, field: str = "a uint16") -> int:
        number: int = _U16.unpack_from(self.data, self._skip(2, field))[0]
        return number

    def i32(self, field: str = "an int32") -> int:
        number: int = _I32.unpack_from(self.data, self._skip(4, field))[0]
        return number

    def i64(self, field: str = "an int64") -> int:
        number: int = _I64.unpack_from(self.data, self._skip(8, field))[0]
        return number

    def varint(self, field: str = "a varint") -> int:
        """A zig-zag variable-length int32."""
        start, number = self.at, 0
        for shift in range(0, 7 * _MOST_VARINT_BYTES, 7):
            found = self.u8(field)
            number |= (found & 0x7F) << shift
            if found <= 0x7F:
                break
        else:
            raise self.error(f"found {field} in more than {_MOST_VARINT_BYTES} bytes, expected a varint", start)
        if number >> 32:
            raise self.error(f"found {field} beyond 32 bits, expected a varint", start)
        return (number >> 1) ^ -(number & 1)

    def sized(self, field: str = "a value") -> bytes:
        """``length:int32 | bytes``, not null."""
        return self.take(self.i32(field), field)

    def nullable(self, field: str = "a value") -> bytes | None:
        """``length:int32 | bytes``, None for length -1."""
        length = self.i32(field)
        return None if length == NULL else self.take(length, field)

    def text(self, data: bytes, field: str = "a text") -> str:
        """``data``, which was read before, as UTF-8."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.error(f"found {field} {data[:24].hex()}, expected UTF-8") from error

    def count(self, number: int, least_bytes_each: int, field: str = "entries") -> int:
        """Return ``number`` if as many entries of at least ``least_bytes_each`` (positive) bytes can follow."""
        most = self.left // least_bytes_each
        if not 0 <= number <= most:
            raise self.error(f"found {number} {field}, expected 0 to {most} in the {self.left} bytes that are left")
        return number

    def end(self) -> None:
        """Check that no bytes are left."""
        if self.left:
            raise self.error(f"found {self.left} more bytes, expected the end")

    def _skip(self, size: int, field: str) -> int:
        """Move behind ``size`` bytes; return the position before."""
        start = self.at
        if not 0 <= size <= self.stop - start:
            raise self.error(f"found {field} of {size} bytes, expected 0 to the {self.stop - start} that are left")
        self.at = start + size
        return start


class ReadVarint(Protocol):
    """Reads an unsigned variable-length integer of at most 64 bits."""

    def __call__(self, data: bytes | memoryview, at: int, stop: int) -> tuple[int, int]:
        """(number, position behind it)."""


def varint_reader(fault: Callable[[int], Exception], most_bytes: int = _MOST_VARLONG_BYTES) -> ReadVarint:
    """The function that reads an integer of at most so many bytes.

    Where none ends before ``stop``, it raises what ``fault`` makes of the position at which reading ended.
    """

    def read(data: bytes | memoryview, at: int, stop: int) -> tuple[int, int]:
        number = shift = 0
        last = min(stop, at + most_bytes)
        while at < last:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                if number >> 64:
                    break
                return number, at
            shift += 7
        raise fault(at)

    return read


def varint_bytes(number: int) -> bytes:
    """Encode an unsigned integer."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
