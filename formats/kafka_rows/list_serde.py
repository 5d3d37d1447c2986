"""Kafka's serde for lists, ``List<inner>`` (``ListSerializer``, KIP-466; 3.0 and later).

00 | nulls:int32 | null index:int32 * | n:int32 | entries     inner serde of a fixed size; n counts nulls too
01 | n:int32 | (length:int32, -1 for null | entry) *          any other inner serde
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka_rows.byte_reader import Reader, int32, sized
from statestore.formats.kafka_rows.serdes import (
    UUID_LENGTH,
    Deserialize,
    Serialize,
    deserializer,
    serde_name,
    serializer,
)

FIXED, VARIABLE = 0, 1
FIXED_SIZES = {"Short": 2, "Integer": 4, "Long": 8, "Float": 4, "Double": 8, "UUID": UUID_LENGTH}


def list_serializer(inner: str) -> Serialize:
    """Function from a sequence to its bytes, None to None. ``inner`` names a serde and may itself be ``List<…>``.

    Raises UnsupportedError UNSUPPORTED_SERDE; the function raises InvalidInputError WRONG_VALUE.
    """
    encode = any_serializer(inner)
    fixed = _list_inner(inner) is None and serde_name(inner) in FIXED_SIZES

    def write(values: Any) -> bytes | None:
        if values is None:
            return None
        if not isinstance(values, Sequence) or isinstance(values, str | bytes):
            raise InvalidInputError(
                ErrorCode.WRONG_VALUE, f"serde List<{inner}>: found {values!r:.60}, expected a list"
            )
        entries = [encode(value) for value in values]
        return _fixed_to_bytes(entries) if fixed else encode_list(entries)

    return write


def list_deserializer(inner: str) -> Deserialize:
    """Function from bytes to a list, None to None.

    It raises CorruptError KAFKA_BYTES for bytes that are not such a list.
    """
    decode, what = any_deserializer(inner), f"List<{inner}>"
    size = None if _list_inner(inner) is not None else FIXED_SIZES.get(serde_name(inner))

    def read(data: bytes | None) -> list[Any] | None:
        if data is None:
            return None
        return [decode(entry) for entry in _entries(Reader(what, data), size)]

    return read


def any_serializer(name: str) -> Serialize:
    """`serializer` with support for ``List<…>``."""
    inner = _list_inner(name)
    return serializer(name) if inner is None else list_serializer(inner)


def any_deserializer(name: str) -> Deserialize:
    """`deserializer` with support for ``List<…>``."""
    inner = _list_inner(name)
    return deserializer(name) if inner is None else list_deserializer(inner)


def encode_list(entries: Sequence[bytes | None]) -> bytes:
    """Encode a list of byte arrays, the value of list-value stores such as the buffer of an outer join."""
    return b"\x01" + int32(len(entries)) + b"".join(map(sized, entries))


def decode_list(data: bytes) -> list[bytes | None]:
    """Entries of a list of byte arrays. Raises CorruptError KAFKA_BYTES."""
    return _entries(Reader("list of byte arrays", data), None)


def _list_inner(name: str) -> str | None:
    is_list = name[:5].lower() == "list<" and name.endswith(">")
    return name[5:-1] if is_list else None


def _fixed_to_bytes(entries: list[bytes | None]) -> bytes:
    nulls = [index for index, entry in enumerate(entries) if entry is None]
    present = [entry for entry in entries if entry is not None]
    return b"".join((b"\x00", int32(len(nulls)), *map(int32, nulls), int32(len(entries)), *present))


def _entries(reader: Reader, size: int | None) -> list[bytes | None]:
    strategy = reader.u8("strategy")
    if strategy > VARIABLE:
        raise reader.error(f"found strategy {strategy}, expected {FIXED} or {VARIABLE}")
    found = _variable_entries(reader) if strategy == VARIABLE else _fixed_entries(reader, size)
    reader.end()
    return found


def _variable_entries(reader: Reader) -> list[bytes | None]:
    return [reader.nullable("entry") for _ in range(reader.count(reader.i32("entries"), 4, "entries"))]


def _fixed_entries(reader: Reader, size: int | None) -> list[bytes | None]:
    if size is None:
        raise reader.error("found entries of a fixed size, expected a length before each")
    nulls = {reader.i32("null index") for _ in range(reader.count(reader.i32("null indexes"), 4, "null indexes"))}
    number = reader.i32("entries")
    if nulls and not 0 <= min(nulls) <= max(nulls) < number:
        raise reader.error(f"found null indexes {min(nulls)} to {max(nulls)}, expected them below the {number} entries")
    reader.count(number - len(nulls), size, "entries that are not null")
    return [None if index in nulls else reader.take(size, "entry") for index in range(number)]
