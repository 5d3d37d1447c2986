"""Reading one element that a connector wrote, field by field, without trusting a length or count in it.

Source: ``org.apache.flink.core.io.SimpleVersionedSerialization``, ``org.apache.flink.types.StringValue``.
"""

from __future__ import annotations

import json
from typing import Any

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.flink.snapshot.data_input import DataInput

_MOST_LENGTH_BYTES = 5
_MOST_MILLISECONDS = 253_402_300_800_000
"""The year 10000: no connector writes such times, and dates of Python end there."""
_JAVA_OBJECT = b"\xac\xed\x00\x05"


class ElementInput(DataInput):
    """A `DataInput` of an element; ``path`` names the state. Every method raises CorruptError FLINK_ROW."""

    __slots__ = ()

    def error(self, problem: str, at: int | None = None) -> CorruptError:
        """The error for bytes ``at`` an offset of the element, by default the position."""
        return CorruptError(
            ErrorCode.FLINK_ROW,
            f"{self.path}: at byte {self.at if at is None else at} of {self.stop}: {problem}; restore the file from a "
            "copy, or correct the type given for the state (binary shows the bytes)",
        )

    def inner(self, data: bytes) -> ElementInput:
        """The input of bytes that were taken from this one."""
        return ElementInput(data, self.path)

    def versioned(self, versions: range, what: str) -> tuple[int, ElementInput]:
        """``version:int32 | length:int32 | bytes``: the version, which is one of ``versions``, and the bytes."""
        version = self.i32(f"the version of {what}")
        if version not in versions:
            raise self.error(
                f"found version {version} of {what}, expected {versions.start} to {versions.stop - 1}", self.at - 4
            )
        return version, self.inner(self.sized(what))

    def entries(self, least: int, what: str) -> range:
        """``count:int32``, of entries with at least ``least`` bytes each."""
        return range(self.count(self.i32(f"the number of {what}"), least, what))

    def magic(self, expected: int, what: str) -> None:
        found = self.i32(f"the magic number of {what}") & 0xFFFFFFFF
        if found != expected:
            raise self.error(f"found 0x{found:08X}, expected the magic number 0x{expected:08X} of {what}", self.at - 4)

    def at_least(self, least: int, number: int, what: str) -> int:
        """``number``, which was just read. Raises where it is less than ``least``."""
        if number < least:
            raise self.error(f"found {number} for {what}, expected {least} or more")
        return number

    def epoch_millis(self, what: str) -> int:
        """A time in epoch milliseconds, as microseconds."""
        found = self.i64(what)
        if not 0 <= found < _MOST_MILLISECONDS:
            raise self.error(f"found {found} for {what}, expected milliseconds from 1970 to 9999", self.at - 8)
        return found * 1000

    def java_object(self, what: str) -> bytes:
        """``length:int32 | bytes``, of an object that Java serialized, which stays bytes."""
        return self.as_java_object(self.sized(what), what)

    def as_java_object(self, data: bytes, what: str) -> bytes:
        """``data``, which was just read. Raises where it is no object that Java serialized."""
        if not data.startswith(_JAVA_OBJECT):
            raise self.error(f"found {what} {data[:8].hex()}, expected an object of Java")
        return data

    def json(self, text: str, what: str, start: int) -> Any:
        """The value of JSON that ``text`` is, which was read from ``start`` on. All texts in it are Unicode."""
        try:
            found = json.loads(text)
            json.dumps(found, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise self.error(f"found {what} {text[:24]!r}, expected JSON", start) from error
        return found

    def flink_string(self, what: str) -> str | None:
        """A text of ``StringValue``: a length plus one, then UTF-16 units in seven bits a byte; None for length 0."""
        start = self.at
        length = self._low_bits_first(what)
        if not length:
            return None
        units = [self._low_bits_first(what) for _ in range(self.count(length - 1, 1, f"characters of {what}"))]
        try:
            wide = b"".join(unit.to_bytes(2, "little") for unit in units)
            return wide.decode("utf-16-le")
        except (OverflowError, UnicodeError) as error:
            raise self.error(f"found {what} that is no text", start) from error

    def nullable_string(self, what: str) -> str | None:
        """``is there:boolean``, then a text of ``StringValue``."""
        if not self.boolean(f"whether there is {what}"):
            return None
        found = self.flink_string(what)
        if found is None:
            raise self.error(f"found no {what}, expected a text")
        return found

    def _low_bits_first(self, what: str) -> int:
        number = 0
        for shift in range(0, 7 * _MOST_LENGTH_BYTES, 7):
            octet = self.u8(what)
            number |= (octet & 0x7F) << shift
            if octet < 0x80:
                return number
        raise self.error(f"found {what} with a number in more than {_MOST_LENGTH_BYTES} bytes")
