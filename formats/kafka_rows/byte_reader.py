"""Reading Kafka's big-endian structures field by field, without trusting a length from the file.

This module reads the rare and nested forms (headers, positions). Keys and values are read in whole columns.
"""

from __future__ import annotations

from struct import Struct

from statestore.formats.bytes.field_reader import NULL, FieldReader
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


def int32(number: int) -> bytes:
    return INT32.pack(number)


def sized(data: bytes | None) -> bytes:
    """Encode ``length:int32 | bytes``; length -1 stands for None."""
    return INT32.pack(NULL) if data is None else INT32.pack(len(data)) + data


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
