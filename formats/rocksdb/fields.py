"""Numbers and strings of RocksDB's records and small blocks, read in Python. No length in them is trusted."""

from __future__ import annotations

from dataclasses import dataclass

from statestore.formats.bytes.field_reader import varint_reader

_MAX_KEYS = 1 << 26


def masked(crc: int) -> int:
    """A CRC32C as RocksDB stores it."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class Malformed(Exception):
    """A field that goes beyond the end of its record; the reader of the file adds which file it is."""


varint = varint_reader(lambda at: Malformed(f"no number at byte {at}"))


@dataclass
class Fields:
    """A record that is read from front to end."""

    data: bytes
    at: int = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def varint(self) -> int:
        """An unsigned LEB128 number of at most 64 bits."""
        number, self.at = varint(self.data, self.at, len(self.data))
        return number

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise Malformed(f"{size} bytes wanted where {self.left} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def string(self) -> bytes:
        """Read a string: its length, then its bytes."""
        return self.take(self.varint())


def block_entries(block: bytes) -> list[tuple[bytes, bytes]]:
    """Keys and values of a plain metaindex or properties block, whose entries are few and share no bytes.

    Raises Malformed.
    """
    if len(block) < 4:
        raise Malformed(f"a block of {len(block)} bytes")
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * restarts
    if end < 0:
        raise Malformed(f"{restarts} restart points in a block of {len(block)} bytes")
    fields, key = Fields(block[:end]), b""
    entries = []
    left = _MAX_KEYS
    while fields.left:
        shared, own, size = fields.varint(), fields.varint(), fields.varint()
        if shared > len(key):
            raise Malformed(f"a key that shares {shared} bytes with one of {len(key)}")
        key = key[:shared] + fields.take(own)
        left -= len(key)
        if left < 0:
            raise Malformed(f"more than {_MAX_KEYS} bytes of keys")
        entries.append((key, fields.take(size)))
    return entries
