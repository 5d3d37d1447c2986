"""Reading what Java's ``DataOutput`` wrote, field by field, without trusting a length or count of the file.

All numbers are big-endian. Source: ``java.io.DataInput`` and ``org.apache.flink.core.memory.DataInputView``.
"""

from __future__ import annotations

from struct import Struct

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError

_I16 = Struct(">h")
_U16 = Struct(">H")
_I32 = Struct(">i")
_I64 = Struct(">q")


class DataInput:
    """A position ``at`` in ``data``, of which the bytes up to ``stop`` (default: all) may be read.

    Each method reads one field and moves the position behind it. ``path`` names the file in errors; ``field`` names the
    value that is read. Every method raises CorruptError FLINK_METADATA, which names the path, the offset in ``data``,
    what was found and what was expected.
    """

    __slots__ = ("at", "data", "path", "stop")

    def __init__(self, data: bytes, path: str, at: int = 0, stop: int | None = None) -> None:
        self.data = data
        self.path = path
        self.stop = len(data) if stop is None else max(0, min(stop, len(data)))
        self.at = at
        if not 0 <= at <= self.stop:
            raise self.error(f"found an offset outside of the {self.stop} bytes")

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

    def i64s(self, number: int, field: str = "int64 numbers") -> tuple[int, ...]:
        """The next ``number`` int64 numbers; the number itself is checked first."""
        size = 8 * self.count(number, 8, field)
        found: tuple[int, ...] = Struct(f">{number}q").unpack_from(self.data, self._skip(size, field))
        return found

    def boolean(self, field: str = "a boolean") -> bool:
        """One byte, 0 or 1. Java takes any other byte for true; Flink never writes one."""
        found = self.u8(field)
        if found > 1:
            raise self.error(f"found byte {found:#04x} for {field}, expected 0 or 1", self.at - 1)
        return found == 1

    def utf(self, field: str = "a text") -> str:
        """uint16 byte length | modified UTF-8: NUL is ``C0 80``, characters above U+FFFF are two surrogates."""
        start = self.at
        data = self.take(self.u16(f"the length of {field}"), field)
        if data.isascii():
            return data.decode("ascii")
        try:
            if max(data) >= 0xF0:
                raise UnicodeError("a sequence of four bytes")
            # ``C0 80`` occurs in UTF-8 only as NUL in Java's form. Surrogates are joined by the way over UTF-16.
            wide = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
            return wide.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeError as error:
            raise self.error(f"found {field} {data[:24].hex()}, expected modified UTF-8", start) from error

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

    def error(self, problem: str, at: int | None = None) -> CorruptError:
        """The error for bytes ``at`` an offset, by default the position."""
        return CorruptError(
            ErrorCode.FLINK_METADATA,
            f"{self.path}: at byte {self.at if at is None else at} of {self.stop}: {problem}; restore the file from a "
            "copy",
        )

    def _skip(self, size: int, field: str) -> int:
        """Move behind ``size`` bytes; return the position before."""
        start = self.at
        if not 0 <= size <= self.stop - start:
            raise self.error(f"found {field} of {size} bytes, expected 0 to the {self.stop - start} that are left")
        self.at = start + size
        return start
