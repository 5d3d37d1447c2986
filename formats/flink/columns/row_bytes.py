"""Binary rows of Flink SQL written for one key (``BinaryRowWriter``)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from statestore.formats.flink.layouts.table_layouts import logical_type
from statestore.formats.flink.serializers.flink_types import Logical

_KIND_BITS = 8
_SHORT = 7
_INTEGERS = {"TINYINT": 1, "SMALLINT": 2, "INTEGER": 4, "BIGINT": 8}


def row_bytes(kind: Logical, value: Any) -> bytes | None:
    """The bytes of a row of integers, booleans and texts; None for other types and values.

    ``value`` is a dictionary, or a sequence of the fields in order.
    """
    names = [field.name for field in logical_type(kind)]
    if isinstance(value, Mapping):
        value = [value[name] for name in names] if set(value) == set(names) else None
    if not isinstance(value, (tuple, list)) or len(value) != len(names):
        return None
    width = (len(names) + _KIND_BITS + 63) // 64 * 8
    header, slots, behind = bytearray(width), b"", b""
    for number, (child, cell) in enumerate(zip(kind.children, value, strict=True)):
        if cell is None:
            bit = number + _KIND_BITS
            header[bit >> 3] |= 1 << (bit & 7)
            slots += bytes(8)
            continue
        raw = _slot(child, cell)
        if raw is None:
            return None
        if len(raw) <= _SHORT and child.root in ("STRING", "BYTES"):
            slots += raw.ljust(_SHORT, b"\0") + bytes([0x80 | len(raw)])
        elif child.root in ("STRING", "BYTES"):
            slots += struct.pack("<q", width + 8 * len(names) + len(behind) << 32 | len(raw))
            behind += raw + bytes(-len(raw) % 8)
        else:
            slots += raw.ljust(8, b"\0")
    return bytes(header) + slots + behind


def _slot(kind: Logical, value: Any) -> bytes | None:
    if kind.root in _INTEGERS and isinstance(value, int) and not isinstance(value, bool):
        width = _INTEGERS[kind.root]
        limit = 1 << (8 * width - 1)
        return value.to_bytes(width, "little", signed=True) if -limit <= value < limit else None
    if kind.root == "BOOLEAN" and isinstance(value, bool):
        return b"\1" if value else b"\0"
    if kind.root == "STRING" and isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            return None
    return value if kind.root == "BYTES" and isinstance(value, bytes) else None
