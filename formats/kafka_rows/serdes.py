"""Kafka's built-in serdes for single values (``org.apache.kafka.common.serialization``).

Numbers are big-endian, so in the order of bytes negative ones come after positive ones; text is UTF-8; a UUID is its
text of 36 characters. None is Kafka's null. `statestore.formats.kafka.columns.serde_columns` reads whole columns of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, error
from typing import Any
from uuid import UUID

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.kafka_rows.byte_reader import int32, sized

Serialize = Callable[[Any], bytes | None]

FORMS = {"Integer": ">i", "Long": ">q", "Short": ">h", "Float": ">f", "Double": ">d"}
RAW = ("ByteArray", "Bytes", "ByteBuffer")
NAMES = ("String", *FORMS, "Boolean", "UUID", *RAW, "Void")
UUID_LENGTH = 36
NAN = bytes.fromhex("7ff8000000000000")  # DoubleSerializer writes every NaN as this one; FloatSerializer keeps the bits

# Lists (``ListSerializer``, KIP-466; 3.0 and later):
#
#     00 | nulls:int32 | null index:int32 * | n:int32 | entries     inner serde of a fixed size; n counts nulls too
#     01 | n:int32 | (length:int32, -1 for null | entry) *          any other inner serde

FIXED, VARIABLE = 0, 1
FIXED_SIZES = {"Short": 2, "Integer": 4, "Long": 8, "Float": 4, "Double": 8, "UUID": UUID_LENGTH}

_BY_LOWER_NAME = {name.lower(): name for name in NAMES}
_BY_TYPE = {
    pa.string(): "String",
    pa.int16(): "Short",
    pa.int32(): "Integer",
    pa.int64(): "Long",
    pa.float32(): "Float",
    pa.float64(): "Double",
    pa.bool_(): "Boolean",
    pa.binary(): "ByteArray",
}


def serializer(name: str) -> Serialize:
    """Function from a value to its bytes, None to None.

    ``name`` as in `NAMES`, in any case, or ``List<…>`` of such a name. Raises UnsupportedError UNSUPPORTED_SERDE for
    another name; the function raises InvalidInputError WRONG_VALUE for a value that is not of the serde's type or does
    not fit.
    """
    inner = _list_inner(name)
    return _SERIALIZERS[serde_name(name)] if inner is None else _list_serializer(inner)


def serde_name(name: str) -> str:
    """The name of a serde in Kafka's spelling."""
    spelled = _BY_LOWER_NAME.get(name.lower())
    if spelled is None:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_SERDE, f"serde {name!r}; expected {', '.join(NAMES)} or List<…> of one of them"
        )
    return spelled


def arrow_type_of(name: str) -> pa.DataType:
    """The column type that holds the values of a serde; UUIDs as text, Void as null."""
    wanted_serde = serde_name(name)
    if wanted_serde == "Void":
        return pa.null()
    wanted_serde = {"UUID": "String", "Bytes": "ByteArray", "ByteBuffer": "ByteArray"}.get(wanted_serde, wanted_serde)
    return next(kind for kind, serde in _BY_TYPE.items() if serde == wanted_serde)


def _wrong(name: str, value: Any) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.WRONG_VALUE,
        f"serde {name}: found {value!r:.60} ({type(value).__name__}), expected a value of that type",
    )


def _string_to_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _wrong("String", value)
    try:
        return value.encode()
    except UnicodeEncodeError as cause:
        raise _wrong("String", value) from cause


def _number_to_bytes(name: str) -> Serialize:
    pack = Struct(FORMS[name]).pack

    def write(value: Any) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, bool):
            raise _wrong(name, value)
        try:
            return pack(value)
        except (error, OverflowError, TypeError) as cause:
            raise _wrong(name, value) from cause

    def write_double(value: Any) -> bytes | None:
        return NAN if value != value else write(value)

    return write_double if name == "Double" else write


def _boolean_to_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, bool):
        raise _wrong("Boolean", value)
    return b"\x01" if value else b"\x00"


def _uuid_to_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        return str(value if isinstance(value, UUID) else UUID(value)).encode()
    except (ValueError, TypeError, AttributeError) as cause:
        raise _wrong("UUID", value) from cause


def _raw_to_bytes(value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _wrong("ByteArray", value)
    return bytes(value)


def _void_to_bytes(value: Any) -> None:
    if value is not None:
        raise _wrong("Void", value)


def _list_serializer(inner: str) -> Serialize:
    encode = serializer(inner)
    fixed = _list_inner(inner) is None and serde_name(inner) in FIXED_SIZES

    def write(values: Any) -> bytes | None:
        if values is None:
            return None
        if not isinstance(values, Sequence) or isinstance(values, str | bytes):
            raise InvalidInputError(
                ErrorCode.WRONG_VALUE, f"serde List<{inner}>: found {values!r:.60}, expected a list"
            )
        entries = [encode(value) for value in values]
        return _fixed_to_bytes(entries) if fixed else _variable_to_bytes(entries)

    return write


def _list_inner(name: str) -> str | None:
    is_list = name[:5].lower() == "list<" and name.endswith(">")
    return name[5:-1] if is_list else None


def _fixed_to_bytes(entries: list[bytes | None]) -> bytes:
    nulls = [index for index, entry in enumerate(entries) if entry is None]
    present = [entry for entry in entries if entry is not None]
    return b"".join((b"\x00", int32(len(nulls)), *map(int32, nulls), int32(len(entries)), *present))


def _variable_to_bytes(entries: list[bytes | None]) -> bytes:
    return b"\x01" + int32(len(entries)) + b"".join(map(sized, entries))


_SERIALIZERS: dict[str, Serialize] = {
    "String": _string_to_bytes,
    **{name: _number_to_bytes(name) for name in FORMS},
    "Boolean": _boolean_to_bytes,
    "UUID": _uuid_to_bytes,
    **dict.fromkeys(RAW, _raw_to_bytes),
    "Void": _void_to_bytes,
}
