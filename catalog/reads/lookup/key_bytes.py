"""The bytes of a key as compiled code compares them with a row, and the bytes of which the key's hash is made."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from xxhash import xxh64_intdigest

# Raised for a key that cannot be of the store.
NO_KEY = (UnicodeEncodeError, OverflowError, KeyError, struct.error)

BytesOf = Callable[[Any], tuple[bytes, bytes] | None]
_LENGTH = struct.Struct("<q").pack


def bytes_form(key: pa.Schema) -> BytesOf | None:
    """Return the function that makes the bytes of a key as users give it, and those of which its hash is made.

    A number has 8 bytes. In a key of several columns the length of text, also of 8 bytes, comes before it. The function
    returns None for a key in another form, and raises NO_KEY for what is no key of the store. None: compiled code does
    not find keys of these columns.
    """
    members = [_member(field.type) for field in key]
    if None in members:
        return None
    if len(members) > 1:
        return _of_several(tuple(key.names), [member for member in members if member is not None])
    ((kind, to_bytes),) = (member for member in members if member is not None)

    def of_one(asked: Any) -> tuple[bytes, bytes] | None:
        if type(asked) is not kind:
            return None
        form = to_bytes(asked)
        return form, form

    return of_one


def _of_several(names: tuple[str, ...], members: list[tuple[type, Callable[[Any], bytes]]]) -> BytesOf:
    kinds = [kind for kind, _ in members]
    count = len(members)
    pack = struct.Struct(f"<{count}Q").pack
    is_number = [kind is int for kind in kinds]

    def of_several(asked: Any) -> tuple[bytes, bytes] | None:
        if len(asked) != count if type(asked) is tuple or type(asked) is dict else True:
            return None
        cells = asked if type(asked) is tuple else [asked[name] for name in names]
        if [*map(type, cells)] != kinds:
            return None
        parts = [to_bytes(cell) for (_, to_bytes), cell in zip(members, cells)]  # noqa: B905 - as many as there are
        hashes = pack(*map(xxh64_intdigest, parts))
        pieces = [
            part if number else _LENGTH(len(part)) + part
            for number, part in zip(is_number, parts)  # noqa: B905
        ]
        return b"".join(pieces), hashes

    return of_several


def _member(kind: pa.DataType) -> tuple[type, Callable[[Any], bytes]] | None:
    """Return the type of the cells of a column and the function that makes the bytes of one."""
    if pa.types.is_string(kind):
        return str, str.encode
    if pa.types.is_binary(kind):
        return bytes, bytes
    if not pa.types.is_signed_integer(kind):
        return None
    pack, bound = struct.Struct("<q").pack, 1 << kind.bit_width - 1

    def of_narrow(number: int) -> bytes:
        if not -bound <= number < bound:
            raise OverflowError
        return pack(number)

    return int, pack if kind.bit_width == 64 else of_narrow
