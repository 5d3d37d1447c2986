"""State schema files: the column names and types of each store or column family, and how its keys are encoded.

    v1      utf "v1" | utf key | utf value
    v2      utf "v2" | chunks key | chunks value
    v3      utf "v3" | families:int32 | per family: utf name | id:int16 | chunks key | id:int16 | chunks value
            | chunks key encoder | chunks key of the user's map

A preview of Spark 4.0 wrote v3 without the two ids. Where no id comes next, the number of chunks does, which is small
and not 0; an id and that number begin with four bytes that are 0 or beyond 65,535.

A utf is ``size:uint16 | bytes``; chunks are ``count:int32 | utf*``, to be joined. All big-endian; schemas are JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from statestore.formats.errors import CorruptError
from statestore.formats.spark.checkpoint.spark_schema import StructOf, parse_schema
from statestore.formats.spark.checkpoint.state_errors import corrupt_file, unsupported
from statestore.formats.values.expansion import parse_json

Ordering = Literal["none", "prefix", "range", "timestamp-prefix", "timestamp-postfix"]

_ENCODERS: dict[str, Ordering] = {
    "NoPrefixKeyStateEncoderSpec": "none",
    "PrefixKeyScanStateEncoderSpec": "prefix",
    "RangeKeyScanStateEncoderSpec": "range",
    "TimestampAsPrefixKeyStateEncoderSpec": "timestamp-prefix",
    "TimestampAsPostfixKeyStateEncoderSpec": "timestamp-postfix",
}


@dataclass(frozen=True)
class KeyEncoder:
    """The encoding of a key's columns as bytes; ``ordinals`` are the columns by which a range key is ordered."""

    ordering: Ordering = "none"
    prefix_columns: int = 0
    ordinals: tuple[int, ...] = ()


@dataclass(frozen=True)
class FamilySchema:
    """The schema of a column family, or of a whole store (``name`` is "default").

    ``key_id`` and ``value_id`` are the ids that Avro rows have, None where a preview of Spark 4.0 wrote none.
    ``recorded`` is false where no schema file says this: users then may have given the types, and the columns in
    ``opaque`` are shown as stored.
    """

    name: str
    key: StructOf
    value: StructOf
    encoder: KeyEncoder = KeyEncoder()
    value_id: int | None = 0
    opaque: tuple[str, ...] = ()
    recorded: bool = True
    key_id: int | None = 0


def read_schema_file(data: bytes, path: str) -> tuple[FamilySchema, ...]:
    """Read the families of a schema file of any version, in its order.

    Raises CorruptError SPARK_STATE_FILE, naming ``path``; UnsupportedError SPARK_STATE_UNSUPPORTED for types and key
    encoders that are not known.
    """
    reader = _Reader(data, path)
    try:
        return _families(reader)
    except UnicodeDecodeError as error:
        raise corrupt_file(path, f"found text that is not UTF-8 before byte {reader.at}") from error


def _families(reader: _Reader) -> tuple[FamilySchema, ...]:
    version = reader.utf()
    if version == "v1":
        return (FamilySchema("default", reader.schema(reader.utf()), reader.schema(reader.utf())),)
    if version == "v2":
        return (FamilySchema("default", reader.schema(reader.chunks()), reader.schema(reader.chunks())),)
    if version != "v3":
        raise corrupt_file(reader.path, f"found version {version[:20]!r}, expected v1, v2 or v3")
    return tuple(_family(reader) for _ in range(reader.count(4)))


def _family(reader: _Reader) -> FamilySchema:
    name = reader.utf()
    has_ids = not 0 < reader.next_number(4) < 1 << 16
    key_id = reader.number(2) if has_ids else None
    key = reader.schema(reader.chunks())
    value_id, value = reader.number(2) if has_ids else None, reader.schema(reader.chunks())
    encoder = _encoder(reader.chunks(), reader.path)
    reader.chunks()  # the user's map key, which the key schema holds as well
    return FamilySchema(name, key, value, encoder, value_id, key_id=key_id)


def _encoder(text: str, path: str) -> KeyEncoder:
    try:
        found = parse_json(text)
        name = found["keyStateEncoderType"]
        columns, ordinals = int(found.get("numColsPrefixKey", 0)), tuple(map(int, found.get("orderingOrdinals", ())))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise corrupt_file(path, f"found key encoder {text[:80]!r}, expected JSON with keyStateEncoderType") from error
    if not isinstance(name, str) or name not in _ENCODERS:
        raise unsupported(f"{path}: key encoder {str(name)[:80]!r}; expected one of {', '.join(_ENCODERS)}")
    return KeyEncoder(_ENCODERS[name], columns, ordinals)


@dataclass
class _Reader:
    """A reader that returns one field after the other."""

    data: bytes
    path: str
    at: int = 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise corrupt_file(self.path, f"found a field of {size} bytes at byte {self.at} of {len(self.data)}")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), signed=True)

    def next_number(self, size: int) -> int:
        """Return the number that comes next, which stays to be read."""
        return int.from_bytes(self.data[self.at : self.at + size], signed=True)

    def count(self, least: int) -> int:
        """Read a count of entries of at least ``least`` bytes each."""
        found = self.number(4)
        if not 0 <= found <= (len(self.data) - self.at) // least:
            raise corrupt_file(self.path, f"found {found} entries at byte {self.at} of {len(self.data)}")
        return found

    def utf(self) -> str:
        return self.take(int.from_bytes(self.take(2))).decode("utf-8", "surrogatepass")

    def chunks(self) -> str:
        """Read chunks and join them.

        They are joined before decoding, because Java writes characters beyond 16 bits as halves.
        """
        halves = "".join([self.utf() for _ in range(self.count(2))])
        return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def schema(self, text: str) -> StructOf:
        try:
            return parse_schema(text)
        except CorruptError as error:
            raise corrupt_file(self.path, error.message) from error
