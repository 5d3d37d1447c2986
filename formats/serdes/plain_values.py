"""Serde "natural", single values: functions made for one schema.

Most values are rows of exactly the Python types of their columns, some of them null. The functions for these are
written as source, without a loop over the columns, and compiled once for a schema, as ``dataclasses`` does: three times
as fast as a loop. The source holds numbers of columns only, and never a name of a user. All other values, wrong ones
included, go through `ValueCodec` and `ValueLayout`, which raise the errors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.serdes.value_layout import Column, ValueLayout
from statestore.formats.values.canonical import ErrorPath, canonical
from statestore.formats.values.key_codec import ValueCodec

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]

# Errors for a value that is not quite plain; the slow way then encodes, decodes or refuses it.
_NOT_PLAIN = (struct.error, TypeError, ValueError, OverflowError, KeyError)
_NOTHING = object()  # a cell of what is not a row; it has no type of a column and is not null
# Columns of a row whose null bits are looked up in a list. Without it, a get of a row with a null takes 3 times as
# long, a put of one 1.4 times.
MOST_WITH_NULLS = 8
_AS_THEY_ARE = (int, float, bool)  # types of values that are packed without a conversion

_ENCODE = """
def encode(value):
    try:
        {cells}
        if {plain}:
            {bytes}
            return {joined}{with_nulls}
    except NOT_PLAIN:
        pass
    return slowly(value)
"""
_ENCODE_NULLS = """
        if {plain}:
            {bytes}
            return {joined}"""
_CELLS_OF_A_ROW = """if type(value) is tuple:
            {row} = value
        elif type(value) is dict and len(value) == {count}:
            {row} = {by_name}
        else:
            {row} = {nothing}"""
_DECODE = """
def decode(data):
    try:
        {head} = {unpack}(data)
        if bits == full{whole}:
            {ends}
            return {value}{with_nulls}
    except NOT_PLAIN:
        pass
    return slowly(data)
"""
_DECODE_NULLS = """
        nulls = number_of(bits, 'little')
        if nulls <= most{whole}{empty}:
            {ends}
            return {value}"""


def value_encoder(layout: ValueLayout, codec: ValueCodec) -> Encode:
    """A function from a user's value to bytes. It raises the errors of ``codec.normalize``."""
    normalize, encode = codec.normalize, layout.encode

    def slowly(value: Any) -> bytes:
        return encode(normalize(value))

    types = [plain_type(column.kind) for column in layout.columns]
    if not types or None in types:
        return slowly
    known: dict[str, Any] = {"pack": layout.head.pack, "full": layout.full, "nothing": _NOTHING}
    for column, name, plain in zip(layout.columns, codec.schema.names, types, strict=True):
        i = column.position
        known |= {f"name{i}": name, f"type{i}": plain, f"to{i}": _packable(name, column)}
    indexes, others = range(len(types)), [column.position for column in layout.others]
    numbers = {
        column.position: f"cell{column.position}"
        if types[column.position] in _AS_THEY_ARE
        else f"to{column.position}(cell{column.position})"
        for column in layout.numbers
    }
    known |= {f"zero{column.position}": column.zero for column in layout.numbers}
    known["bits_of"] = [number.to_bytes(len(layout.full), "little") for number in range(1 << min(len(types), 8))]
    tail = [f"len(bytes{i})" for i in others]
    parts = [f"pack({', '.join(['full', *numbers.values(), *tail])})", *[f"bytes{i}" for i in others]]
    nullable = {i: f"zero{i} if cell{i} is None else {number}" for i, number in numbers.items()}
    bits = " | ".join([f"(cell{i} is not None) << {i}" for i in indexes])
    parts_with_nulls = [f"pack({', '.join([f'bits_of[{bits}]', *nullable.values(), *tail])})", *parts[1:]]
    row = "".join([f"cell{i}, " for i in indexes])
    by_row = _CELLS_OF_A_ROW.format(
        row=row,
        count=len(types),
        by_name="".join([f"value[name{i}], " for i in indexes]),
        nothing="nothing, " * len(types),
    )
    with_nulls = _ENCODE_NULLS.format(
        plain=" and ".join([f"(cell{i} is None or type(cell{i}) is type{i})" for i in indexes]),
        bytes="; ".join([f"bytes{i} = b'' if cell{i} is None else to{i}(cell{i})" for i in others]) or "pass",
        joined=_joined(parts_with_nulls),
    )
    source = _ENCODE.format(
        cells="cell0 = value" if len(types) == 1 else by_row,
        plain=" and ".join([f"type(cell{i}) is type{i}" for i in indexes]),
        bytes="; ".join([f"bytes{i} = to{i}(cell{i})" for i in others]) or "pass",
        joined=_joined(parts),
        with_nulls=with_nulls if 1 < len(types) <= MOST_WITH_NULLS else "",
    )
    return _compiled(source, "encode", slowly, known)


def _joined(parts: list[str]) -> str:
    return " + ".join(parts) if len(parts) < 4 else f"b''.join(({', '.join(parts)}))"


def row_encoder(layout: ValueLayout, codec: ValueCodec) -> Callable[[tuple[Any, ...]], bytes]:
    """A function from a canonical row (``codec.normalize``) to bytes; it checks nothing again where that takes time."""
    if any(plain_type(column.kind) is None for column in layout.columns):
        return layout.encode
    encode = value_encoder(layout, codec)
    if len(layout.columns) != 1:
        return encode
    return lambda row: layout.encode(row) if row[0] is None else encode(row[0])


def value_decoder(layout: ValueLayout, codec: ValueCodec) -> Decode:
    """A function from bytes to the value as users see it. It raises CorruptError ROW_CORRUPT."""
    to_user, decode = codec.to_user, layout.decode

    def slowly(data: bytes) -> Any:
        return to_user(decode(data))

    if not layout.columns or any(plain_type(column.kind) is None for column in layout.columns):
        return slowly
    head = layout.head
    known: dict[str, Any] = {"unpack": head.unpack, "unpack_from": head.unpack_from, "full": layout.full}
    cells: dict[int, str] = {}
    for column in layout.numbers:
        i = column.position
        cells[i] = f"stored{i}" if column.back in _AS_THEY_ARE else f"back{i}(stored{i})"
    ends, end = [], str(head.size)
    for column in layout.others:
        i = column.position
        ends.append(f"end{i} = {end} + length{i}")
        cells[i] = f"back{i}(data[{end}:end{i}])"
        end = f"end{i}"
    for column, name in zip(layout.columns, codec.schema.names, strict=True):
        back = bytes.decode if pa.types.is_string(column.kind) else column.back
        known |= {f"name{column.position}": name, f"back{column.position}": back}
    stored = [f"stored{column.position}" for column in layout.numbers]
    lengths = [f"length{column.position}" for column in layout.others]
    row = ", ".join([f"name{i}: {cells[i]}" for i in sorted(cells)])
    nullable = ", ".join([f"name{i}: {cells[i]} if nulls & {1 << i} else None" for i in sorted(cells)])
    known |= {"number_of": int.from_bytes, "most": (1 << len(cells)) - 1}
    is_whole = f" and len(data) == {' + '.join([str(head.size), *lengths])}" if lengths else ""
    with_nulls = _DECODE_NULLS.format(
        whole=is_whole,
        empty="".join(
            [f" and (nulls & {1 << column.position} or not length{column.position})" for column in layout.others]
        ),
        ends="; ".join(ends) or "pass",
        value=f"{{{nullable}}}",
    )
    source = _DECODE.format(
        head=", ".join(["bits", *stored, *lengths]),
        unpack="unpack_from" if lengths else "unpack",
        whole=is_whole,
        ends="; ".join(ends) or "pass",
        value=cells[0] if len(cells) == 1 else f"{{{row}}}",
        with_nulls=with_nulls if 1 < len(cells) <= MOST_WITH_NULLS else "",
    )
    return _compiled(source, "decode", slowly, known)


def _compiled(source: str, name: str, slowly: Callable[[Any], Any], known: dict[str, Any]) -> Callable[[Any], Any]:
    """The function that the source defines, with these names."""
    found = {"slowly": slowly, "NOT_PLAIN": _NOT_PLAIN, **known}
    # The source has numbers of columns and code of this module only; names and data of users are values of ``known``.
    exec(compile(source, f"<{name} of a value>", "exec"), found)
    made: Callable[[Any], Any] = found[name]
    return made


def plain_type(kind: pa.DataType) -> type | None:
    """The Python type of canonical values; None for nested types."""
    types = pa.types
    for belongs, plain in (
        (types.is_string, str),
        (types.is_binary, bytes),
        (types.is_boolean, bool),
        (types.is_integer, int),
        (types.is_floating, float),
        (types.is_decimal, Decimal),
        (types.is_date, date),
        (types.is_timestamp, datetime),
        (types.is_duration, timedelta),
    ):
        if belongs(kind):
            return plain
    return None


def _packable(name: str, column: Column) -> Callable[[Any], Any]:
    """A function from a value of the plain type to its packed form."""
    to = column.to
    if plain_type(column.kind) in (Decimal, datetime, timedelta):
        # Not every value of these types can be stored: the zone, the digits and the length matter.
        checked = canonical(ErrorPath(ErrorCode.WRONG_VALUE, name, column.kind))
        return lambda value: to(checked(value))
    return to
