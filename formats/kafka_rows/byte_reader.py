"""Reading Kafka's big-endian structures field by field, without trusting a length from the file.

This module reads the rare and nested forms (headers, positions, buffers). The modules of keys and of plain values
decode theirs with precompiled structs.
"""

from __future__ import annotations

from struct import Struct

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError

INT32 = Struct(">i")
INT64 = Struct(">q")
NULL = -1  # the length of a byte array that is null
MAX_VARINT_BYTES = 5


def corrupt(what: str, problem: str) -> CorruptError:
    """The error for bytes that do not have the binary form ``what``."""
    return CorruptError(
        ErrorCode.KAFKA_BYTES,
        f"{what}: {problem}; choose the store's kind and serdes, or restore the directory from a copy",
    )


def require(what: str, data: bytes, size: int) -> None:
    """Raise CorruptError KAFKA_BYTES if ``data`` is shorter than the fixed fields of ``what``."""
    if len(data) < size:
        raise corrupt(what, f"found {len(data)} bytes ({data[:24].hex()}), expected at least {size}")


def int32(number: int) -> bytes:
    return INT32.pack(number)


def int64(number: int) -> bytes:
    return INT64.pack(number)


def sized(data: bytes | None) -> bytes:
    """Encode ``length:int32 | bytes``; length -1 stands for None."""
    return INT32.pack(NULL) if data is None else INT32.pack(len(data)) + data


def varint(number: int) -> bytes:
    """Encode Kafka's zig-zag variable-length integer; ``number`` is an int32."""
    left = (number << 1) ^ (number >> 31)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


class Reader:
    """A position in ``data``. Each method reads one field and moves the position behind it.

    Every method raises CorruptError KAFKA_BYTES, which names ``what``, the position, the bytes found and the expected
    form.
    """

    def __init__(self, what: str, data: bytes) -> None:
        self.what = what
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int, field: str) -> bytes:
        """The next ``size`` bytes."""
        if not 0 <= size <= self.left:
            raise self.error(f"found {field} of {size} bytes, expected 0 to the {self.left} that are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def byte(self, field: str) -> int:
        """The next byte as a number from 0 to 255."""
        return self.take(1, field)[0]

    def int32(self, field: str) -> int:
        number: int = INT32.unpack(self.take(INT32.size, field))[0]
        return number

    def int64(self, field: str) -> int:
        number: int = INT64.unpack(self.take(INT64.size, field))[0]
        return number

    def varint(self, field: str) -> int:
        """A zig-zag variable-length int32."""
        start, raw = self.at, 0
        for shift in range(0, 7 * MAX_VARINT_BYTES, 7):
            found = self.byte(field)
            raw |= (found & 0x7F) << shift
            if found <= 0x7F:
                break
        else:
            raise self.error(f"found {field} in more than {MAX_VARINT_BYTES} bytes, expected a varint", start)
        if raw >> 32:
            raise self.error(f"found {field} beyond 32 bits, expected a varint", start)
        return (raw >> 1) ^ -(raw & 1)

    def count(self, field: str, each: int) -> int:
        """An int32 that counts entries of at least ``each`` bytes."""
        return self.checked_count(self.int32(field), field, each)

    def checked_count(self, number: int, field: str, each: int) -> int:
        """Return ``number`` if as many entries of at least ``each`` bytes can follow."""
        if not 0 <= number <= self.left // each:
            raise self.error(f"found {number} {field}, expected 0 to {self.left // each} in {self.left} bytes")
        return number

    def sized(self, field: str) -> bytes:
        """``length:int32 | bytes``, not null."""
        return self.take(self.int32(field), field)

    def nullable(self, field: str) -> bytes | None:
        """``length:int32 | bytes``, None for length -1."""
        length = self.int32(field)
        return None if length == NULL else self.take(length, field)

    def text(self, data: bytes, field: str) -> str:
        """``data`` as UTF-8."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.error(f"found {field} {data[:24].hex()}, expected UTF-8") from error

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.take(self.left, "rest")

    def end(self) -> None:
        """Check that no bytes follow."""
        if self.left:
            raise self.error(f"found {self.left} more bytes, expected the end")

    def error(self, problem: str, at: int | None = None) -> CorruptError:
        return corrupt(self.what, f"at byte {self.at if at is None else at} of {len(self.data)} {problem}")
