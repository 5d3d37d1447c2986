"""Binary rows of Flink SQL, and the arrays and maps inside them, written for one value.

All numbers are little-endian. A slot holds a value of at most 8 bytes, or an offset from the start of the whole and a
length (`statestore.formats.flink.columns.binary_rows` reads them). Source: ``BinaryRowWriter``, ``BinaryArrayWriter``
and ``BinaryMapData`` of ``org.apache.flink.table.data``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

from statestore.formats.flink.layouts.type_layouts import COMPACT_DIGITS, COMPACT_TIME, logical_type
from statestore.formats.flink.serializers.flink_types import MICRO_DIGITS, Logical, is_absent

_KIND_BITS = 8
_SHORT, _SLOT = 7, 8
_FORMS = {
    "BOOLEAN": "<?",
    "TINYINT": "<b",
    "SMALLINT": "<h",
    "INTEGER": "<i",
    "BIGINT": "<q",
    "FLOAT": "<f",
    "DOUBLE": "<d",
    "DATE": "<i",
    "YEAR_MONTH": "<i",
}
_IN_MILLIS = {"TIME": "<i", "DAY_TIME": "<q"}
_WIDTHS = {"BOOLEAN": 1, "TINYINT": 1, "SMALLINT": 2, "INTEGER": 4, "FLOAT": 4, "DATE": 4, "TIME": 4, "YEAR_MONTH": 4}
_DECIMAL_BYTES = 16
_EXACT = Context(prec=76, traps=[Inexact, InvalidOperation])


class NoBytesError(Exception):
    """A value for which no bytes are known; the message says why."""


def binary_row(kind: Logical, value: Any) -> bytes:
    """The bytes of a row, whose kind is insert. ``value`` has the fields by name. Raises NoBytesError."""
    if is_absent(kind) or any(map(is_absent, kind.children)):
        raise NoBytesError("a row with a view, whose content is a state of its own, cannot be written")
    names = [field.name for field in logical_type(kind)]
    if not isinstance(value, Mapping) or set(value) != set(names):
        raise NoBytesError(f"{value!r:.80} is no row of {', '.join(names)}")
    width = (len(names) + _KIND_BITS + 63) // 64 * 8
    cells = [value[name] for name in names]
    whole = _Written(bytearray(width + _SLOT * len(names)))
    for number, (child, cell) in enumerate(zip(kind.children, cells, strict=True)):
        if cell is None:
            _set_bit(whole.data, number + _KIND_BITS)
        else:
            whole.put(child, width + _SLOT * number, _SLOT, cell)
    return bytes(whole.data)


def binary_array(kind: Logical, values: Any) -> bytes:
    """The bytes of an array of values of a type: count | bits of nulls | slots | what is longer."""
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
        raise NoBytesError(f"{values!r:.80} is no array")
    header, width = 4 + (len(values) + 31) // 32 * 4, _WIDTHS.get(kind.root, _SLOT)
    whole = _Written(bytearray(_in_words(header + width * len(values))))
    whole.data[:4] = struct.pack("<i", len(values))
    for number, each in enumerate(values):
        if each is None:
            _set_bit(whole.data, 8 * 4 + number)
        else:
            whole.put(kind, header + width * number, width, each)
    return bytes(whole.data)


def binary_map(kind: Logical, value: Any) -> bytes:
    """The bytes of a map or multiset: size of the keys | array of keys | array of values."""
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise NoBytesError(f"{value!r:.80} is no map")
    pairs = [tuple(each.values()) if isinstance(each, Mapping) else each for each in value]
    keys = binary_array(kind.children[0], [key for key, _ in pairs])
    of_values = kind.children[1] if kind.root == "MAP" else Logical("INTEGER")
    return struct.pack("<i", len(keys)) + keys + binary_array(of_values, [each for _, each in pairs])


def _set_bit(data: bytearray, bit: int) -> None:
    data[bit >> 3] |= 1 << (bit & 7)


def _in_words(size: int) -> int:
    return -(-size // _SLOT) * _SLOT


class _Written:
    """A row or an array that is being written: fixed parts, and behind them what they point to."""

    def __init__(self, data: bytearray) -> None:
        self.data = data

    def put(self, kind: Logical, at: int, width: int, value: Any) -> None:
        if kind.root in ("STRING", "BYTES"):
            octets = compact(kind, value)
            if len(octets) <= _SHORT:
                self.data[at : at + _SLOT] = octets.ljust(_SHORT, b"\0") + bytes([0x80 | len(octets)])
            else:
                self._point(at, octets, len(octets))
        elif kind.root == "DECIMAL" and kind.precision > COMPACT_DIGITS:
            octets = decimal_bytes(unscaled(kind, value))
            self._point(at, octets.ljust(_DECIMAL_BYTES, b"\0"), len(octets))
        elif kind.root in ("TIMESTAMP", "TIMESTAMP_LTZ") and kind.precision > COMPACT_TIME:
            millis, nanos = moment_of(kind, value)
            self._point(at, struct.pack("<q", millis), nanos)
        elif kind.root in ("ROW", "ARRAY", "MAP", "MULTISET"):
            write = {"ROW": binary_row, "MAP": binary_map, "MULTISET": binary_map}.get(kind.root)
            octets = binary_array(kind.children[0], value) if write is None else write(kind, value)
            self._point(at, octets, len(octets))
        else:
            octets = compact(kind, value)
            self.data[at : at + len(octets)] = octets

    def _point(self, at: int, octets: bytes, number: int) -> None:
        """Append bytes; the slot has where they begin, and a number: their length, or nanoseconds."""
        self.data[at : at + _SLOT] = struct.pack("<q", len(self.data) << 32 | number)
        self.data += octets.ljust(_in_words(len(octets)), b"\0")


def compact(kind: Logical, value: Any) -> bytes:
    """The bytes of a value that has at most 8, or of a text or bytes, without frame. Raises NoBytesError."""
    root = kind.root
    try:
        if root == "STRING":
            return bytes(value.encode())
        if root == "BYTES" and isinstance(value, bytes):
            return value
        if root in _IN_MILLIS and value % 1000 == 0:
            return struct.pack(_IN_MILLIS[root], value // 1000)
        if root == "DECIMAL":
            return struct.pack("<q", unscaled(kind, value))
        if root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
            millis, nanos = moment_of(kind, value)
            if not nanos:
                return struct.pack("<q", millis)
        if root == "BOOLEAN" and not isinstance(value, bool):
            raise NoBytesError(f"{value!r:.80} is no boolean")
        if root in _FORMS:
            return struct.pack(_FORMS[root], value)
    except (struct.error, OverflowError, UnicodeEncodeError, TypeError, AttributeError):
        pass
    raise NoBytesError(f"{value!r:.80} cannot be written as SQL's {root}")


def decimal_bytes(number: int) -> bytes:
    """The fewest bytes of an integer, big-endian two's complement, as ``BigInteger.toByteArray``."""
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)


def unscaled(kind: Logical, value: Any) -> int:
    """The digits of a decimal as an integer. Raises NoBytesError for a value that does not fit its type."""
    if isinstance(value, Decimal) and value.is_finite():
        try:
            number = int(value.scaleb(kind.scale, _EXACT).to_integral_exact(context=_EXACT))
        except (Inexact, InvalidOperation):
            number = 10**kind.precision
        if abs(number) < 10**kind.precision:
            return number
    raise NoBytesError(f"{value!r:.80} is no DECIMAL({kind.precision}, {kind.scale})")


def moment_of(kind: Logical, value: Any) -> tuple[int, int]:
    """Milliseconds, and nanoseconds of the millisecond, of a number of the column's unit. Raises NoBytesError."""
    if not isinstance(value, int):
        raise NoBytesError(f"{value!r:.80} is no {kind.root}")
    unit = 1000 if kind.precision <= MICRO_DIGITS else 1
    nanos = value * unit
    return nanos // 10**6, nanos % 10**6
