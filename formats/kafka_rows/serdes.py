"""Kafka's built-in serdes for single values (``org.apache.kafka.common.serialization``).

Numbers are big-endian, so in the order of bytes negative ones come after positive ones; text is UTF-8; a UUID is its
text of 36 characters. None is Kafka's null in both directions. ``List<…>`` is in
`statestore.formats.kafka_rows.list_serde`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error
from typing import Any
from uuid import UUID

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.kafka_rows.byte_reader import corrupt

Serialize = Callable[[Any], bytes | None]
Deserialize = Callable[[bytes | None], Any]

FORMS = {"Integer": ">i", "Long": ">q", "Short": ">h", "Float": ">f", "Double": ">d"}
RAW = ("ByteArray", "Bytes", "ByteBuffer")
NAMES = ("String", *FORMS, "Boolean", "UUID", *RAW, "Void")
UUID_LENGTH = 36
NAN = bytes.fromhex("7ff8000000000000")  # DoubleSerializer writes every NaN as this one; FloatSerializer keeps the bits

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

    ``name`` as in `NAMES`, in any case. Raises UnsupportedError UNSUPPORTED_SERDE for another name; the function
    raises InvalidInputError WRONG_VALUE for a value that is not of the serde's type or does not fit.
    """
    return _SERIALIZERS[serde_name(name)]


def deserializer(name: str) -> Deserialize:
    """Function from bytes to the value, None to None.

    Raises as `serializer`; the function raises CorruptError KAFKA_BYTES for bytes that are not a value of the serde.
    """
    return _DESERIALIZERS[serde_name(name)]


def serde_name(name: str) -> str:
    """The name of a serde in Kafka's spelling."""
    spelled = _BY_LOWER_NAME.get(name.lower())
    if spelled is None:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_SERDE, f"serde {name!r}; expected {', '.join(NAMES)} or List<…> of one of them"
        )
    return spelled


def serde_of(arrow_type: pa.DataType) -> str:
    """Name of the serde for a column of this type; UnsupportedError UNSUPPORTED_SERDE if Kafka has none."""
    serde = _BY_TYPE.get(arrow_type)
    if serde is None:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_SERDE,
            f"Kafka has no serde for a column of type {arrow_type}; expected {', '.join(map(str, _BY_TYPE))}",
        )
    return serde


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


def _string_of(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError as cause:
        raise corrupt("String", f"found {data[:24].hex()}, expected UTF-8") from cause


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


def _number_of(name: str) -> Deserialize:
    form = Struct(FORMS[name])
    size, unpack = form.size, form.unpack

    def read(data: bytes | None) -> Any:
        if data is None:
            return None
        if len(data) != size:
            raise corrupt(name, f"found {len(data)} bytes ({data[:24].hex()}), expected {size}")
        return unpack(data)[0]

    return read


def _boolean_to_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, bool):
        raise _wrong("Boolean", value)
    return b"\x01" if value else b"\x00"


def _boolean_of(data: bytes | None) -> bool | None:
    if data is None:
        return None
    if data not in (b"\x00", b"\x01"):
        raise corrupt("Boolean", f"found {data[:24].hex()} ({len(data)} bytes), expected 00 or 01")
    return data == b"\x01"


def _uuid_to_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        return str(value if isinstance(value, UUID) else UUID(value)).encode()
    except (ValueError, TypeError, AttributeError) as cause:
        raise _wrong("UUID", value) from cause


def _uuid_of(data: bytes | None) -> UUID | None:
    if data is None:
        return None
    try:
        uuid = UUID(data.decode("ascii"))
    except ValueError as cause:
        raise corrupt("UUID", f"found {data[:40]!r}, expected the text of a UUID") from cause
    if str(uuid).encode() != data.lower():
        raise corrupt("UUID", f"found {data[:40]!r}, expected {UUID_LENGTH} characters with four hyphens")
    return uuid


def _raw_to_bytes(value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _wrong("ByteArray", value)
    return bytes(value)


def _raw_of(data: bytes | None) -> bytes | None:
    return data


def _void_to_bytes(value: Any) -> None:
    if value is not None:
        raise _wrong("Void", value)


def _void_of(data: bytes | None) -> None:
    if data is not None:
        raise corrupt("Void", f"found {len(data)} bytes, expected null")


_SERIALIZERS: dict[str, Serialize] = {
    "String": _string_to_bytes,
    **{name: _number_to_bytes(name) for name in FORMS},
    "Boolean": _boolean_to_bytes,
    "UUID": _uuid_to_bytes,
    **dict.fromkeys(RAW, _raw_to_bytes),
    "Void": _void_to_bytes,
}
_DESERIALIZERS: dict[str, Deserialize] = {
    "String": _string_of,
    **{name: _number_of(name) for name in FORMS},
    "Boolean": _boolean_of,
    "UUID": _uuid_of,
    **dict.fromkeys(RAW, _raw_of),
    "Void": _void_of,
}
