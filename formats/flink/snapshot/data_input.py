"""Reading what Java's ``DataOutput`` wrote, field by field, without trusting a length or count of the file.

All numbers are big-endian. Source: ``java.io.DataInput`` and ``org.apache.flink.core.memory.DataInputView``.
"""

from __future__ import annotations

from struct import Struct

from statestore.formats.bytes.field_reader import FieldReader
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError


class DataInput(FieldReader):
    """A `FieldReader` of a file of a snapshot; ``path`` names the file in errors.

    Every method raises CorruptError FLINK_METADATA, which names the path, the offset in ``data``, what was found and
    what was expected.
    """

    __slots__ = ("path",)

    def __init__(self, data: bytes, path: str, at: int = 0, stop: int | None = None) -> None:
        self.path = path
        super().__init__(data, at, stop)

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
        return self.modified_utf8(self.take(self.u16(f"the length of {field}"), field), field, start)

    def modified_utf8(self, data: bytes, field: str, start: int) -> str:
        """The text of ``data``, which was read from ``start`` on, in the form of `utf`."""
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

    def note(self, start: int, found: object) -> None:
        """Take notice of a value that was just read, whose bytes begin at ``start``; by default nothing is done."""

    def error(self, problem: str, at: int | None = None) -> CorruptError:
        """The error for bytes ``at`` an offset, by default the position."""
        return CorruptError(
            ErrorCode.FLINK_METADATA,
            f"{self.path}: at byte {self.at if at is None else at} of {self.stop}: {problem}; restore the file from a "
            "copy",
        )
