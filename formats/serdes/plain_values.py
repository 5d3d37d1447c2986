"""Serde "natural", single values: functions made for one schema.

Most values are rows of exactly the Python types of their columns, without nulls; these are packed in one call. All
other values, wrong ones included, go through `ValueCodec` and `ValueLayout`, which raise the errors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from operator import itemgetter
from typing import Any

import pyarrow as pa

from statestore.formats.serdes.value_layout import Column, ValueLayout
from statestore.formats.values.canonical import ErrorPath, canonical
from statestore.formats.values.key_codec import ValueCodec

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]
Pick = Callable[[Any], Any]
Plain = tuple[type | None, Callable[[Any], Any]]  # the type of a plain value, and the function to its packed form

# Errors for a row that is not quite plain; the slow way then encodes or refuses it.
_NO_ROW: tuple[Any, ...] = ()
_NOT_PLAIN = (struct.error, TypeError, ValueError, OverflowError, KeyError)


def value_encoder(layout: ValueLayout, codec: ValueCodec) -> Encode:
    """A function from a user's value to bytes. It raises the errors of ``codec.normalize``."""
    normalize, encode = codec.normalize, layout.encode

    def slowly(value: Any) -> bytes:
        return encode(normalize(value))

    names, columns = codec.schema.names, layout.columns
    types = tuple([plain_type(column.kind) for column in columns])
    if not columns or None in types:
        return slowly
    tos = [_packable(name, column) for name, column in zip(names, columns, strict=True)]
    if len(columns) == 1:
        make = _encode_one_number if layout.numbers else _encode_one_text
        return make(layout, types[0], tos[0], slowly)
    if len(columns) > 2:
        return _encode_many(layout, names, types, tos, slowly)
    make_pair = (_encode_two_texts, _encode_number_and_text, _encode_two_numbers)[len(layout.numbers)]
    first, second = [column.position for column in (*layout.numbers, *layout.others)]
    return make_pair(
        layout,
        itemgetter(first, second),
        itemgetter(names[first], names[second]),
        (types[first], tos[first]),
        (types[second], tos[second]),
        slowly,
    )


def value_decoder(layout: ValueLayout, codec: ValueCodec) -> Decode:
    """A function from bytes to the value as users see it. It raises CorruptError ROW_CORRUPT."""
    to_user, decode = codec.to_user, layout.decode

    def slowly(data: bytes) -> Any:
        return to_user(decode(data))

    names, columns = codec.schema.names, layout.columns
    if not columns or any(plain_type(column.kind) is None for column in columns):
        return slowly
    backs = [bytes.decode if pa.types.is_string(column.kind) else column.back for column in columns]
    if len(columns) == 1:
        make = _decode_one_number if layout.numbers else _decode_one_text
        return make(layout, backs[0], slowly)
    if len(columns) > 2:
        return _decode_many(layout, names, backs, slowly)
    make_pair = (_decode_two_texts, _decode_number_and_text, _decode_two_numbers)[len(layout.numbers)]
    return make_pair(layout, names, backs, slowly)


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
        checked = canonical(ErrorPath("WRONG_VALUE", name, column.kind))
        return lambda value: to(checked(value))
    return to


def _encode_one_number(layout: ValueLayout, plain: type | None, to: Callable[[Any], Any], slowly: Encode) -> Encode:
    pack, full = layout.head.pack, layout.full
    if plain in (int, float, bool):

        def encode(value: Any) -> bytes:
            if type(value) is plain:
                try:
                    return pack(full, value)
                except _NOT_PLAIN:
                    pass
            return slowly(value)

        return encode

    return lambda value: pack(full, to(value)) if type(value) is plain else slowly(value)


def _encode_one_text(layout: ValueLayout, plain: type | None, to: Callable[[Any], bytes], slowly: Encode) -> Encode:
    pack, full = layout.head.pack, layout.full

    def encode(value: Any) -> bytes:
        if type(value) is plain:
            try:
                data = to(value)
                return pack(full, len(data)) + data
            except _NOT_PLAIN:
                pass
        return slowly(value)

    return encode


def _encode_two_numbers(
    layout: ValueLayout, by_position: Pick, by_name: Pick, left: Plain, right: Plain, slowly: Encode
) -> Encode:
    pack, full = layout.head.pack, layout.full
    (left_type, left_to), (right_type, right_to) = left, right

    def encode(value: Any) -> bytes:
        try:
            a, b = by_position(value) if type(value) is tuple else by_name(value) if type(value) is dict else _NO_ROW
            if type(a) is left_type and type(b) is right_type and len(value) == 2:
                return pack(full, left_to(a), right_to(b))
        except _NOT_PLAIN:
            pass
        return slowly(value)

    return encode


def _encode_number_and_text(
    layout: ValueLayout, by_position: Pick, by_name: Pick, number: Plain, text: Plain, slowly: Encode
) -> Encode:
    pack, full = layout.head.pack, layout.full
    (number_type, number_to), (text_type, text_to) = number, text

    def encode(value: Any) -> bytes:
        try:
            a, b = by_position(value) if type(value) is tuple else by_name(value) if type(value) is dict else _NO_ROW
            if type(a) is number_type and type(b) is text_type and len(value) == 2:
                data: bytes = text_to(b)
                return pack(full, number_to(a), len(data)) + data
        except _NOT_PLAIN:
            pass
        return slowly(value)

    return encode


def _encode_two_texts(
    layout: ValueLayout, by_position: Pick, by_name: Pick, left: Plain, right: Plain, slowly: Encode
) -> Encode:
    pack, full = layout.head.pack, layout.full
    (left_type, left_to), (right_type, right_to) = left, right

    def encode(value: Any) -> bytes:
        try:
            a, b = by_position(value) if type(value) is tuple else by_name(value) if type(value) is dict else _NO_ROW
            if type(a) is left_type and type(b) is right_type and len(value) == 2:
                first: bytes = left_to(a)
                second: bytes = right_to(b)
                return pack(full, len(first), len(second)) + first + second
        except _NOT_PLAIN:
            pass
        return slowly(value)

    return encode


def _encode_many(
    layout: ValueLayout, names: list[str], types: tuple[Any, ...], tos: list[Callable[[Any], Any]], slowly: Encode
) -> Encode:
    pack, full, by_name, width = layout.head.pack, layout.full, itemgetter(*names), len(names)
    numbers = [(column.position, tos[column.position]) for column in layout.numbers]
    others = [(column.position, tos[column.position]) for column in layout.others]

    def encode(value: Any) -> bytes:
        try:
            row = value if type(value) is tuple else by_name(value) if type(value) is dict else _NO_ROW
            if tuple(map(type, row)) == types and len(value) == width:
                cells = [to(row[position]) for position, to in others]
                packed = [to(row[position]) for position, to in numbers]
                return b"".join([pack(full, *packed, *map(len, cells)), *cells])
        except _NOT_PLAIN:
            pass
        return slowly(value)

    return encode


def _decode_one_number(layout: ValueLayout, back: Callable[[Any], Any], slowly: Decode) -> Decode:
    unpack, full = layout.head.unpack, layout.full
    if back is int or back is float:

        def decode(data: bytes) -> Any:
            try:
                bits, stored = unpack(data)
                if bits == full:
                    return stored
            except struct.error:
                pass
            return slowly(data)

        return decode

    def decode_as(data: bytes) -> Any:
        try:
            bits, stored = unpack(data)
        except struct.error:
            return slowly(data)
        return back(stored) if bits == full else slowly(data)

    return decode_as


def _decode_one_text(layout: ValueLayout, back: Callable[[bytes], Any], slowly: Decode) -> Decode:
    unpack_from, full, size = layout.head.unpack_from, layout.full, layout.head.size

    def decode(data: bytes) -> Any:
        try:
            bits, length = unpack_from(data)
            if bits == full and len(data) == size + length:
                return back(data[size:])
        except _NOT_PLAIN:
            pass
        return slowly(data)

    return decode


def _decode_two_numbers(
    layout: ValueLayout, names: list[str], backs: list[Callable[[Any], Any]], slowly: Decode
) -> Decode:
    unpack, full = layout.head.unpack, layout.full
    (left, right), (left_back, right_back) = names, backs

    def decode(data: bytes) -> Any:
        try:
            bits, a, b = unpack(data)
            if bits == full:
                return {left: left_back(a), right: right_back(b)}
        except struct.error:
            pass
        return slowly(data)

    return decode


def _decode_number_and_text(
    layout: ValueLayout, names: list[str], backs: list[Callable[[Any], Any]], slowly: Decode
) -> Decode:
    unpack_from, full, size = layout.head.unpack_from, layout.full, layout.head.size
    number, text = layout.numbers[0].position, layout.others[0].position
    number_name, text_name, number_back, text_back = names[number], names[text], backs[number], backs[text]
    number_first = number == 0

    def decode(data: bytes) -> Any:
        try:
            bits, stored, length = unpack_from(data)
            if bits == full and len(data) == size + length:
                if number_first:
                    return {number_name: number_back(stored), text_name: text_back(data[size:])}
                return {text_name: text_back(data[size:]), number_name: number_back(stored)}
        except _NOT_PLAIN:
            pass
        return slowly(data)

    return decode


def _decode_two_texts(
    layout: ValueLayout, names: list[str], backs: list[Callable[[Any], Any]], slowly: Decode
) -> Decode:
    unpack_from, full, size = layout.head.unpack_from, layout.full, layout.head.size
    (left, right), (left_back, right_back) = names, backs

    def decode(data: bytes) -> Any:
        try:
            bits, length, rest = unpack_from(data)
            middle = size + length
            if bits == full and len(data) == middle + rest:
                return {left: left_back(data[size:middle]), right: right_back(data[middle:])}
        except _NOT_PLAIN:
            pass
        return slowly(data)

    return decode


def _decode_many(layout: ValueLayout, names: list[str], backs: list[Callable[[Any], Any]], slowly: Decode) -> Decode:
    unpack_from, full, size = layout.head.unpack_from, layout.full, layout.head.size
    numbers = [(names[column.position], backs[column.position]) for column in layout.numbers]
    others = [(names[column.position], backs[column.position]) for column in layout.others]
    count, in_order = len(numbers), not others

    def decode(data: bytes) -> Any:
        try:
            bits, *head = unpack_from(data)
            at = size
            if bits == full and len(data) == at + sum(head[count:]):
                row = {} if in_order else dict.fromkeys(names)
                for (name, back), stored in zip(numbers, head, strict=False):
                    row[name] = back(stored)
                for (name, back), length in zip(others, head[count:], strict=True):
                    row[name] = back(data[at : at + length])
                    at += length
                return row
        except _NOT_PLAIN:
            pass
        return slowly(data)

    return decode
