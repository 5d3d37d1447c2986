"""Reading Kafka's big-endian structures field by field, without trusting a length from the file.

This module reads the rare and nested forms (headers, positions, buffers). The modules of keys and of plain values
decode theirs with precompiled structs.
"""

from __future__ import annotations

from struct import Struct

from statestore.formats.bytes.field_reader import NULL, FieldReader, varint_bytes
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError

INT32 = Struct(">i")
INT64 = Struct(">q")


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
    return varint_bytes((number << 1) ^ (number >> 31))


class Reader(FieldReader):
    """A `FieldReader` of bytes that have the binary form ``what``.

    Every method raises CorruptError KAFKA_BYTES, which names ``what``, the position, the bytes found and the expected
    form.
    """

    __slots__ = ("what",)

    def __init__(self, what: str, data: bytes) -> None:
        self.what = what
        self.data, self.at, self.stop = data, 0, len(data)

    def error(self, problem: str, at: int | None = None) -> CorruptError:
        return corrupt(self.what, f"at byte {self.at if at is None else at} of {len(self.data)} {problem}")
