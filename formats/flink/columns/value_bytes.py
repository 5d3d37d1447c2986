"""Bytes of values that a user gives: the inverse of decoding, for the types of which it is certain.

A value is what `plain_values` makes of a column. Decoding shows less than the bytes may hold: the kind of a Row, a
subclass of a POJO. Such types have no bytes here, or those of the plain case, so who changes a stored value compares
what the old one is written as with what is stored.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.flink.columns.avro_bytes import avro_bytes
from statestore.formats.flink.columns.key_bytes import encode
from statestore.formats.flink.columns.program_writer import modified_utf8
from statestore.formats.flink.columns.written_rows import (
    NoBytesError,
    binary_array,
    binary_map,
    binary_row,
    compact,
    decimal_bytes,
    moment_of,
    unscaled,
)
from statestore.formats.flink.layouts.type_layouts import COMPACT_DIGITS, COMPACT_TIME, arrow_type, has_column
from statestore.formats.flink.serializers.flink_types import (
    REST_OF_CELL,
    VOID,
    ArrayOf,
    AvroOf,
    Basic,
    EitherOf,
    EnumOf,
    FlinkType,
    ListOf,
    Logical,
    MapOf,
    MaskedListOf,
    Nullable,
    OptionOf,
    PojoOf,
    PrimitiveArray,
    PythonValue,
    RawOf,
    RowDataOf,
    RowOf,
    Shown,
    SortedLong,
    StringArray,
    TableValue,
    TimerOf,
    TraversableOf,
    TryOf,
    TtlOf,
    TupleOf,
    UnionOf,
)
from statestore.formats.flink.serializers.type_names import shown

_NULL_LONG, _NULL_INT = -(2**63), -(2**31)
_NULL_DATE = struct.pack(">ih", _NULL_INT, -(2**15))
_NULL_TIME = struct.pack(">bhi", -128, -(2**15), _NULL_INT)
_SECOND, _DAY = 10**9, 86_400
_CONSTANTS = {0: 1, 1: 2, 10: 3}  # numbers that Java has one object of, which the serializer knows
_NULL = Basic("null_value")
_EPOCH = date(1970, 1, 1)
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400  # after which the calendar repeats


def plain_values(column: pa.Array) -> list[Any]:
    """The values of a column: dictionaries for structs, lists of pairs for maps, and integers in the column's unit for
    dates and times, of which Python's own may have neither the range nor the digits.
    """
    found: list[Any] = _without_times(column).to_pylist()
    return found


def _without_times(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_temporal(kind):
        return column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if not _has_times(kind):
        return column
    if column.offset:
        column = column.take(pa.array(np.arange(len(column))))
    mask = column.is_null() if column.null_count else None
    if pa.types.is_struct(kind):
        parts = [_without_times(column.field(number)) for number in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, names=[field.name for field in kind], mask=mask)
    offsets = pa.array(column.offsets.to_numpy())
    if pa.types.is_map(kind):
        entries = [_without_times(column.keys), _without_times(column.items)]
        pairs = pa.StructArray.from_arrays(entries, names=["key", "value"])
        lists = pa.ListArray.from_arrays(offsets, pairs, mask=mask)
        made = pa.map_(entries[0].type, entries[1].type)
        buffers = [lists.buffers()[0], lists.buffers()[1]]
        return pa.Array.from_buffers(made, len(lists), buffers, lists.null_count, children=[pairs])
    return pa.ListArray.from_arrays(offsets, _without_times(column.values), mask=mask)


def _has_times(kind: pa.DataType) -> bool:
    inner = any(_has_times(kind.field(number).type) for number in range(kind.num_fields))
    return inner or bool(pa.types.is_temporal(kind))


def value_bytes(kind: FlinkType, value: Any) -> bytes:
    """The bytes that Flink's serializer writes for a value.

    Raises NoBytesError for types that are not written, and for values that the type does not have.
    """
    write = _WRITERS.get(type(kind))
    if write is None:
        raise NoBytesError(f"values of {shown(kind)} cannot be written")
    return write(kind, value)


def _no_value(kind: FlinkType, value: Any) -> NoBytesError:
    return NoBytesError(f"{value!r:.80} is no value of {shown(kind)}")


# Values of the JDK


def _basic(kind: Basic, value: Any) -> bytes:
    special = _BASICS.get(kind.name)
    found = encode(kind, value) if special is None else special(value)
    if found is None:
        raise _no_value(kind, value)
    return found


def _text(value: Any) -> bytes | None:
    return b"\0" if value is None else encode(Basic("string"), value)


def _java_text(value: Any) -> bytes | None:
    octets = modified_utf8(value) if isinstance(value, str) else b""
    fits = isinstance(value, str) and len(octets) < 1 << 16
    return len(octets).to_bytes(2, "big") + octets if fits else None


def _nothing(octets: bytes) -> Callable[[Any], bytes | None]:
    return lambda value: octets if value is None else None


def _big_integer(value: Any) -> bytes | None:
    if value is None:
        return bytes(4)
    try:
        return _integer_bytes(int(value))
    except ValueError:
        return None


def _integer_bytes(number: int) -> bytes:
    if number in _CONSTANTS:
        return _CONSTANTS[number].to_bytes(4, "big")
    octets = decimal_bytes(number)
    return (len(octets) + 4).to_bytes(4, "big") + octets


def _big_decimal(value: Any) -> bytes | None:
    """A decimal of the text that ``BigDecimal.toString`` makes of it, from which its scale follows."""
    if value is None:
        return bytes(4)
    try:
        sign, digits, exponent = Decimal(value).as_tuple()
    except InvalidOperation:
        return None
    if not isinstance(exponent, int):
        return None
    number = int("".join(map(str, digits)) or "0") * (-1 if sign else 1)
    return _integer_bytes(number) + struct.pack(">i", -exponent)


def _millis(value: Any) -> bytes | None:
    if value is None:
        return struct.pack(">q", _NULL_LONG)
    return struct.pack(">q", value // 1000) if isinstance(value, int) and value % 1000 == 0 else None


def _instant(value: Any) -> bytes | None:
    if value is None:
        return struct.pack(">qi", _NULL_LONG, _NULL_INT)
    return struct.pack(">qi", value // _SECOND, value % _SECOND) if isinstance(value, int) else None


def _sql_timestamp(value: Any) -> bytes | None:
    if value is None:
        return struct.pack(">qi", _NULL_LONG, 0)
    return struct.pack(">qi", value // 10**6, value % _SECOND) if isinstance(value, int) else None


def _local_date(value: Any) -> bytes | None:
    if value is None:
        return _NULL_DATE
    if not isinstance(value, int):
        return None
    cycles, day = divmod(value, _CYCLE_DAYS)  # beyond the years of Python, too
    found = _EPOCH + timedelta(days=day)
    return struct.pack(">ibb", found.year + cycles * _CYCLE_YEARS, found.month, found.day)


def _local_time(value: Any) -> bytes | None:
    if value is None:
        return _NULL_TIME
    if not isinstance(value, int) or not 0 <= value < _DAY * _SECOND:
        return None
    second = value // _SECOND
    return struct.pack(">bbbi", second // 3600, second // 60 % 60, second % 60, value % _SECOND)


def _local_date_time(value: Any) -> bytes | None:
    if value is None:
        return _NULL_DATE + _NULL_TIME
    if not isinstance(value, int):
        return None
    day, time = _local_date(value // (_DAY * _SECOND)), _local_time(value % (_DAY * _SECOND))
    return None if day is None or time is None else day + time


def _time_window(value: Any) -> bytes | None:
    if not isinstance(value, Mapping):
        return None
    ends = [_millis(value[name]) for name in ("start", "end") if value[name] is not None]
    return b"".join(each for each in ends if each is not None) if len(ends) == 2 and None not in ends else None


_BASICS: Mapping[str, Callable[[Any], bytes | None]] = {
    "string": _text,
    "utf": _java_text,
    "biginteger": _big_integer,
    "bigdecimal": _big_decimal,
    "date": _millis,
    "sql_date": _millis,
    "sql_time": _millis,
    "sql_timestamp": _sql_timestamp,
    "local_date": _local_date,
    "local_time": _local_time,
    "local_date_time": _local_date_time,
    "instant": _instant,
    "null_value": _nothing(b""),
    "void": _nothing(b"\0"),
    "unit": _nothing(b"\0"),
    "tuple0": _nothing(b"\x2a"),
    "time_window": _time_window,
}


def _sorted_long(kind: SortedLong, value: Any) -> bytes:
    plain = _basic(Basic("long"), value)
    return bytes([plain[0] ^ 0x80]) + plain[1:]


def _enum(kind: EnumOf, value: Any) -> bytes:
    found = encode(kind, value)
    if found is None:
        raise _no_value(kind, value)
    return found


# Values that hold others


def _counted(values: Sequence[Any], parts: Iterable[bytes]) -> bytes:
    return len(values).to_bytes(4, "big") + b"".join(parts)


def _listed(kind: FlinkType, value: Any) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise _no_value(kind, value)
    return value


def _flagged(kind: FlinkType, value: Any, null_flag: int, padding: int = 0) -> bytes:
    """A byte that says whether the value is null | the value unless it is. A value of Java's ``Void`` is null."""
    if _is_null(kind, value):
        return bytes([null_flag]) + bytes(padding)
    return bytes([1 - null_flag]) + value_bytes(kind, value)


def _is_null(kind: FlinkType, value: Any) -> bool:
    """Return whether a value is null, and not one of a type that has no column."""
    if isinstance(kind, Nullable) and not has_column(kind):
        return _is_null(kind.value, value)
    return value is None and (kind in (VOID, _NULL) or has_column(kind))


def _array(kind: PrimitiveArray, value: Any) -> bytes:
    if kind.element == "byte" and isinstance(value, bytes):
        return len(value).to_bytes(4, "big") + value
    if kind.element == "char" and isinstance(value, str):
        units = value.encode("utf-16-be", "surrogatepass")
        return (len(units) // 2).to_bytes(4, "big") + units
    element = Basic(kind.element)
    return _counted(_listed(kind, value), (_basic(element, each) for each in value))


def _texts(kind: StringArray, value: Any) -> bytes:
    return _counted(_listed(kind, value), (_basic(Basic("string"), each) for each in value))


def _list(kind: ListOf, value: Any) -> bytes:
    if kind.is_set:
        return _counted(_listed(kind, value), (_flagged(kind.element, each, 1) for each in value))
    return _counted(_listed(kind, value), (value_bytes(kind.element, each) for each in value))


def _masked(kind: MaskedListOf, value: Any) -> bytes:
    bits = np.packbits(np.array([each is None for each in _listed(kind, value)], bool)).tobytes()
    return _counted(value, [bits, *(value_bytes(kind.element, each) for each in value if each is not None)])


def _map(kind: MapOf, value: Any) -> bytes:
    pairs = _listed(kind, value)
    return _counted(pairs, (value_bytes(kind.key, key) + _flagged(kind.value, each, 1) for key, each in pairs))


def _presence(kind: ArrayOf, value: Any) -> bytes:
    return _counted(_listed(kind, value), (_flagged(kind.element, each, 0) for each in value))


def _traversable(kind: TraversableOf, value: Any) -> bytes:
    if kind.is_map and isinstance(kind.element, TupleOf):
        of_key, of_value = kind.element.fields
        pairs = (b"\1" + value_bytes(of_key, key) + value_bytes(of_value, each) for key, each in _listed(kind, value))
        return _counted(value, pairs)
    return _counted(_listed(kind, value), (_flagged(kind.element, each, 0) for each in value))


def _option(kind: OptionOf, value: Any) -> bytes:
    return _flagged(kind.value, value, 0)


def _nullable(kind: Nullable, value: Any) -> bytes:
    return _flagged(kind.value, value, 1, 0 if kind.padding == REST_OF_CELL else kind.padding)


def _shown(kind: Shown, value: Any) -> bytes:
    if kind.column != arrow_type(kind.value):
        raise NoBytesError(f"values that are shown as {kind.column} cannot be written; read without that type")
    return value_bytes(kind.value, value)


def _members(kind: FlinkType, parts: Sequence[FlinkType], value: Any) -> list[Any]:
    """The value of each part; None for one that has no column."""
    if not isinstance(value, Mapping):
        raise _no_value(kind, value)
    names = iter([field.name for field in arrow_type(kind)])
    return [value[next(names)] if has_column(part) else None for part in parts]


def _tuple(kind: TupleOf, value: Any) -> bytes:
    return b"".join(map(value_bytes, kind.fields, _members(kind, kind.fields, value)))


def _row(kind: RowOf, value: Any) -> bytes:
    cells = _members(kind, kind.fields, value)
    nulls = [_is_null(part, cell) for part, cell in zip(kind.fields, cells, strict=True)]
    mask = np.packbits(np.array([False] * (2 if kind.kind_bits else 0) + nulls, bool)).tobytes()
    filled = zip(kind.fields, cells, nulls, strict=True)
    return mask + b"".join(value_bytes(part, cell) for part, cell, is_null in filled if not is_null)


def _pojo(kind: PojoOf, value: Any) -> bytes:
    """A value of the class itself. Of a subclass are those with a value in a field that the class does not have."""
    if value is None:
        return b"\1"
    if not isinstance(value, Mapping):
        raise _no_value(kind, value)
    parts, cells = [part for _, part in kind.fields], iter(value.values())  # those of the class come first
    written = [_flagged(part, next(cells) if has_column(part) else None, 1) for part in parts]
    if any(not has_column(part) and part != VOID for part in parts):
        raise NoBytesError(f"a field of {kind.class_name} has no column")
    if any(cell is not None for cell in cells):
        raise NoBytesError(f"a value of a subclass of {kind.class_name} cannot be written")
    return b"\2" + b"".join(written)


def _either(kind: EitherOf, value: Any) -> bytes:
    if not isinstance(value, Mapping) or (value.get("left") is None) is (value.get("right") is None):
        raise NoBytesError(f"{value!r:.80} is no value of {shown(kind)}: one of left and right must be null")
    if value["left"] is not None:
        return b"\1" + value_bytes(kind.left, value["left"])
    return b"\0" + value_bytes(kind.right, value["right"])


def _union(kind: UnionOf, value: Any) -> bytes:
    """The tag of the one case that has a value | that value."""
    shown_cases = [(tag, each) for tag, _, each in kind.cases if has_column(each)]
    cells = list(value.values()) if isinstance(value, Mapping) else []
    given = [(case, cell) for case, cell in zip(shown_cases, cells, strict=False) if cell is not None]
    if len(given) != 1:
        raise NoBytesError(f"{value!r:.80} has values of {len(given)} cases, expected one")
    (((tag, case), cell),) = given
    return bytes([tag]) + value_bytes(case, cell)


def _try(kind: TryOf, value: Any) -> bytes:
    if not isinstance(value, Mapping) or value["failure"] is not None or value["success"] is None:
        raise NoBytesError(f"{value!r:.80} is no success, and what was thrown cannot be written")
    return b"\1" + value_bytes(kind.value, value["success"])


def _ttl(kind: TtlOf, value: Any) -> bytes:
    accessed = _millis(value["last_access"])
    if value["last_access"] is None or accessed is None:
        raise NoBytesError(f"last_access is {value['last_access']}; give a timestamp of whole milliseconds")
    return accessed + value_bytes(kind.value, value.get("value"))


def _timer(kind: TimerOf, value: Any) -> bytes:
    parts = zip((kind.key, kind.namespace), ("key", "namespace"), strict=True)
    return _sorted_long(SortedLong(), value["timestamp"]) + b"".join(
        value_bytes(part, value.get(name)) for part, name in parts
    )


# Values of Flink SQL


def _row_data(kind: RowDataOf, value: Any) -> bytes:
    return _sized(binary_row(kind.row, value))


def _sized(octets: bytes) -> bytes:
    return len(octets).to_bytes(4, "big") + octets


def _table_value(kind: TableValue, value: Any) -> bytes:
    logical = kind.kind
    if value is None:
        raise _no_value(kind, value)
    if logical.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        millis, nanos = moment_of(logical, value)
        return struct.pack(">q", millis) + (b"" if logical.precision <= COMPACT_TIME else nanos.to_bytes(4, "big"))
    if logical.root == "DECIMAL":
        number = unscaled(logical, value)
        return struct.pack(">q", number) if logical.precision <= COMPACT_DIGITS else _sized(decimal_bytes(number))
    return _sized(_table_bytes(logical, value))


def _table_bytes(kind: Logical, value: Any) -> bytes:
    if kind.root == "ROW":
        return binary_row(kind, value)
    if kind.root == "ARRAY":
        return binary_array(kind.children[0], value)
    if kind.root in ("MAP", "MULTISET"):
        return binary_map(kind, value)
    if kind.root in ("STRING", "BYTES"):
        return compact(kind, value)
    raise NoBytesError(f"values of SQL's {kind.root} cannot be written")


def _framed(kind: RawOf | PythonValue, value: Any) -> bytes:
    return _sized(value_bytes(kind.value, value))


_WRITERS: Mapping[type[FlinkType], Callable[[Any, Any], bytes]] = {
    Basic: _basic,
    SortedLong: _sorted_long,
    EnumOf: _enum,
    PrimitiveArray: _array,
    StringArray: _texts,
    ListOf: _list,
    MaskedListOf: _masked,
    MapOf: _map,
    ArrayOf: _presence,
    TraversableOf: _traversable,
    OptionOf: _option,
    Nullable: _nullable,
    Shown: _shown,
    TupleOf: _tuple,
    RowOf: _row,
    PojoOf: _pojo,
    EitherOf: _either,
    TtlOf: _ttl,
    TimerOf: _timer,
    RowDataOf: _row_data,
    TableValue: _table_value,
    AvroOf: avro_bytes,
    UnionOf: _union,
    TryOf: _try,
    RawOf: _framed,
    PythonValue: _framed,
}
