"""Entries of a zip file by their names, without an index of all.

A jar with all that a job needs has 50,000 entries and 200 MB. Its directory is read once, and searched for the bytes of
a name; an index of the same directory takes half a second. Nothing is extracted to a disk.
Source: PKWARE's APPNOTE, 4.3.7 "Local file header", 4.3.12 "Central directory structure" and 4.3.14 to 4.3.16.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct

ReadAt = Callable[[int, int], bytes]
"""Reads so many bytes from an offset on."""

_END, _END_64, _LOCATOR_64, _ENTRY, _LOCAL = b"PK\5\6", b"PK\6\6", b"PK\6\7", b"PK\1\2", b"PK\3\4"
_END_FIELDS = Struct("<4sHHHHIIH")
_END_64_FIELDS = Struct("<4sQHHIIQQQQ")
_LOCATOR_FIELDS = Struct("<4sIQI")
_ENTRY_FIELDS = Struct("<4sHHHHHHIIIHHHHHII")
_LOCAL_FIELDS = Struct("<4sHHHHHIIIHH")
_LONGEST_COMMENT = (1 << 16) - 1
_MOST_DIRECTORY_BYTES = 256 << 20
_IN_64_BITS = (1 << 32) - 1
_STORED, _DEFLATED = 0, 8


class NotZip(Exception):
    """Bytes that no zip file has; the text says what was found."""


@dataclass(frozen=True)
class ZipEntry:
    """An entry: ``local`` is the offset of its header, ``size`` that of its content, ``stored_size`` as stored."""

    name: str
    method: int
    is_encrypted: bool
    checksum: int
    stored_size: int
    size: int
    local: int


@dataclass(frozen=True)
class ZipDirectory:
    """The directory of a zip file, in front of which ``shift`` bytes stand that its offsets do not count."""

    data: bytes
    shift: int

    def find(self, name: str, folders: tuple[str, ...] = ("",)) -> ZipEntry | None:
        """The entry of a name in the first of some folders that has it."""
        wanted = name.encode(errors="surrogatepass")
        prefixes = [folder.encode() for folder in folders]
        found: dict[int, ZipEntry] = {}
        at = self.data.find(wanted)
        while at >= 0:
            for place, prefix in enumerate(prefixes):
                if place not in found and (entry := self._entry(at - len(prefix), prefix + wanted)) is not None:
                    found[place] = entry
            if 0 in found:
                break
            at = self.data.find(wanted, at + 1)
        return found[min(found)] if found else None

    def entries(self, suffix: str) -> Iterator[ZipEntry]:
        """The entries whose names end so, up to the first that has no form of an entry."""
        at, ending = 0, suffix.encode()
        while at + _ENTRY_FIELDS.size <= len(self.data) and self.data[at : at + 4] == _ENTRY:
            name_size, extra_size, comment_size = _ENTRY_FIELDS.unpack_from(self.data, at)[10:13]
            begin = at + _ENTRY_FIELDS.size
            name = self.data[begin : begin + name_size]
            if name.endswith(ending) and (entry := self._entry(begin, name)) is not None:
                yield entry
            at = begin + name_size + extra_size + comment_size

    def _entry(self, at: int, name: bytes) -> ZipEntry | None:
        """The entry whose name begins at a position, None where none of this name does."""
        start = at - _ENTRY_FIELDS.size
        if start < 0:
            return None
        (sign, _, _, flags, method, _, _, checksum, stored, size, name_size, extra_size, _, _, _, _, local) = (
            _ENTRY_FIELDS.unpack_from(self.data, start)
        )
        if sign != _ENTRY or name_size != len(name) or self.data[at : at + len(name)] != name:
            return None
        if _IN_64_BITS in (stored, size, local):
            extra = self.data[at + len(name) : at + len(name) + extra_size]
            stored, size, local = _from_extra(extra, stored, size, local)
        text = name.decode(errors="replace")
        return ZipEntry(text, method, bool(flags & 1), checksum, stored, size, local + self.shift)


def _from_extra(extra: bytes, stored: int, size: int, local: int) -> tuple[int, int, int]:
    """The sizes and the offset of an entry, those of 64 bits from its extra fields."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = int.from_bytes(extra[at : at + 2], "little"), int.from_bytes(extra[at + 2 : at + 4], "little")
        if kind == 1:
            part = extra[at + 4 : at + 4 + length]
            numbers = [int.from_bytes(part[each : each + 8], "little") for each in range(0, len(part) - 7, 8)]
            size = numbers.pop(0) if size == _IN_64_BITS and numbers else size
            stored = numbers.pop(0) if stored == _IN_64_BITS and numbers else stored
            local = numbers.pop(0) if local == _IN_64_BITS and numbers else local
            break
        at += 4 + length
    return stored, size, local


def read_directory(read_at: ReadAt, size: int) -> ZipDirectory:
    """Read the directory of a zip file of ``size`` bytes. Raises NotZip."""
    first = max(0, size - _END_FIELDS.size - _LONGEST_COMMENT)
    tail = read_at(first, size - first)
    at = tail.rfind(_END, 0, max(len(tail) - _END_FIELDS.size + len(_END), 0))
    if at < 0:
        raise NotZip("no end of a zip file's directory")
    _, _, _, _, _, length, offset, _ = _END_FIELDS.unpack_from(tail, at)
    end = first + at  # of the directory, where nothing stands between
    if at >= _LOCATOR_FIELDS.size and tail[at - _LOCATOR_FIELDS.size :][:4] == _LOCATOR_64:
        end -= _LOCATOR_FIELDS.size + _END_64_FIELDS.size
        record = read_at(end, _END_64_FIELDS.size) if end >= 0 else b""
        if len(record) < _END_64_FIELDS.size or record[:4] != _END_64:
            raise NotZip("a directory in another form than that of jars")
        *_, length, offset = _END_64_FIELDS.unpack(record)
    shift = end - length - offset
    if shift < 0 or length > _MOST_DIRECTORY_BYTES:
        raise NotZip(f"a directory of {length} bytes at byte {offset} of {size}")
    data = read_at(end - length, length)
    if len(data) != length or (length and data[:4] != _ENTRY):
        raise NotZip(f"no directory at byte {end - length}")
    return ZipDirectory(data, shift)


def read_entry(read_at: ReadAt, entry: ZipEntry, most: int) -> bytes:
    """The content of an entry, of at most so many bytes. Raises NotZip."""
    if entry.is_encrypted or entry.method not in (_STORED, _DEFLATED):
        raise NotZip("an entry that is encrypted, or compressed in another way than jars are")
    if max(entry.size, entry.stored_size) > most:
        raise NotZip(f"{max(entry.size, entry.stored_size)} bytes, more than {most}")
    header = read_at(entry.local, _LOCAL_FIELDS.size)
    if len(header) < _LOCAL_FIELDS.size or header[:4] != _LOCAL:
        raise NotZip(f"no header of an entry at byte {entry.local}")
    *_, name_size, extra_size = _LOCAL_FIELDS.unpack(header)
    data = read_at(entry.local + len(header) + name_size + extra_size, entry.stored_size)
    if entry.method == _DEFLATED:
        try:
            data = zlib.decompressobj(-15).decompress(data, entry.size + 1)
        except zlib.error as error:
            raise NotZip(f"compressed bytes that are damaged ({error})") from error
    if len(data) != entry.size or zlib.crc32(data) != entry.checksum:
        raise NotZip(f"{len(data)} bytes of another length or checksum than that of {entry.size} bytes")
    return data
