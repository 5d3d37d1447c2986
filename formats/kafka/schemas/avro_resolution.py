"""Resolution of Avro schemas: how a value of its writer's schema becomes one of a reader's, before any value is read.

The rules are those of Avro's specification 1.12, "Schema Resolution", and where that leaves a choice those of
``org.apache.avro.Resolver``, which deserializers for Kafka use: fields are found by name or alias, a missing one has
the reader's default, numbers widen, bytes and strings are alike, an unknown symbol becomes the reader's default symbol,
and of a union the first branch of the type counts, else the first one to which the value can widen.

What cannot be resolved is a problem of the rows that have it, not of the schemas. Unlike in Avro's own libraries,
different logical types are such a problem: milliseconds would be shown as microseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, shown
from statestore.formats.kafka.schemas.avro_schema import AvroType, NoDefault

_MOST_PAIRS = 100_000
_WIDER = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",)}
_ALIKE = {"string": "bytes", "bytes": "string"}
_NUMBERS = {"float": "<f", "double": "<d"}


@dataclass(frozen=True)
class Same:
    """The bytes are those of a value of the reader's type ``kind``."""

    kind: AvroType


@dataclass(frozen=True)
class Widened:
    """A number of the type ``written``, which becomes one of the reader's type ``kind``."""

    written: AvroType
    kind: AvroType


@dataclass(frozen=True)
class Record:
    """Fields in the writer's order. ``places``: for each field of the reader its place there, or a default's bytes."""

    kind: AvroType
    parts: tuple[Plan, ...]
    places: tuple[int | bytes, ...]


@dataclass(frozen=True)
class Symbols:
    """An enum: for each symbol of the writer the reader's, None where it has none."""

    names: tuple[str | None, ...]


@dataclass(frozen=True)
class Blocks:
    """An array or a map of the reader's type ``kind``."""

    kind: AvroType
    part: Plan


@dataclass(frozen=True)
class FromUnion:
    """A branch of the writer's union: how each becomes a value of the reader's type."""

    column: pa.DataType
    branches: tuple[Plan, ...]


@dataclass(frozen=True)
class IntoUnion:
    """A value that is branch ``number`` of the reader's union ``kind``."""

    kind: AvroType
    number: int
    part: Plan


@dataclass(frozen=True)
class Problem:
    """A value that cannot be read, and why."""

    column: pa.DataType
    why: str


Plan = Same | Widened | Record | Symbols | Blocks | FromUnion | IntoUnion | Problem


def resolve(writer: AvroType, reader: AvroType) -> Plan:
    """Return how values of the writer become the reader's.

    Raises UnsupportedError UNSUPPORTED_SERDE for schemas of too many types, InvalidInputError WRONG_SCHEMA for a
    default that is no value of its field.
    """
    return _Resolver(reader).plan(writer, reader, "")


class _Resolver:
    """Plans by pair of types, with the aliases of one reader."""

    def __init__(self, reader: AvroType) -> None:
        self._plans: dict[tuple[int, int], Plan] = {}
        self._kept: list[AvroType] = []
        self._names: dict[str, str] = {}
        self._fields: dict[str, dict[str, str]] = {}
        self._seen: set[int] = set()
        self._note_aliases(reader)

    def _note_aliases(self, kind: AvroType) -> None:
        if id(kind) in self._seen:
            return
        self._seen.add(id(kind))
        self._kept.append(kind)
        self._names.update(dict.fromkeys(kind.aliases, kind.name))
        for name, field in zip(kind.names, kind.fields, strict=False):
            self._fields.setdefault(kind.name, {}).update(dict.fromkeys(field.aliases, name))
        for part in kind.parts:
            self._note_aliases(part)

    def _name(self, writer: AvroType) -> str:
        """The full name of a writer's type, by the reader's aliases."""
        return self._names.get(writer.name, writer.name)

    def _has_short_name(self, writer: AvroType, reader: AvroType) -> bool:
        """Return whether two types have one name, each in whatever namespace."""
        return self._name(writer).rpartition(".")[2] == reader.name.rpartition(".")[2]

    def plan(self, writer: AvroType, reader: AvroType, where: str) -> Plan:
        """Return the plan of a pair; ``where`` is the field, for messages."""
        key = id(writer), id(reader)
        if key not in self._plans:
            if len(self._plans) >= _MOST_PAIRS:
                raise UnsupportedError(
                    ErrorCode.UNSUPPORTED_SERDE,
                    f"Avro schemas with more than {_MOST_PAIRS} pairs of types to compare; read the values as bytes",
                )
            self._kept += (writer, reader)  # so that no other type gets the id of one that is gone
            self._plans[key] = self._new_plan(writer, reader, where)
        return self._plans[key]

    def _new_plan(self, writer: AvroType, reader: AvroType, where: str) -> Plan:
        if writer.is_union:
            return self._from_union(writer, reader, where)
        if reader.is_union:
            number = self._branch(writer, reader, where)
            if number is None:
                return _problem(writer, reader, where)
            return IntoUnion(reader, number, self.plan(writer, reader.branches[number], where))
        written, read = writer.base, reader.base
        if written is not writer and read is not reader and not _same_logical(writer, reader):
            return _problem(writer, reader, where)
        if written.form != read.form:
            if read.form in _WIDER.get(written.form, ()):
                return Widened(written, reader)
            return Same(reader) if _ALIKE.get(written.form) == read.form else _problem(writer, reader, where)
        if read.form == "record":
            return self._record(writer, reader, where)
        if read.form in ("array", "map"):
            part = self.plan(writer.parts[0], reader.parts[0], where)
            return Same(reader) if isinstance(part, Same) else Blocks(reader, part)
        if read.form == "enum":
            return self._enum(writer, reader, where)
        if read.form == "fixed" and (writer.size != reader.size or not self._has_short_name(writer, reader)):
            return _problem(writer, reader, where)
        return Same(reader)

    def _enum(self, writer: AvroType, reader: AvroType, where: str) -> Plan:
        if not self._has_short_name(writer, reader):
            return _problem(writer, reader, where)
        if writer.names == reader.names:
            return Same(reader)
        return Symbols(tuple(name if name in reader.names else reader.default for name in writer.names))

    def _record(self, writer: AvroType, reader: AvroType, where: str) -> Plan:
        aliases = self._fields.get(self._name(writer), {})
        own = set(writer.names)
        parts: list[Plan] = []
        at: dict[str, int] = {}
        for place, (written, kind) in enumerate(zip(writer.names, writer.parts, strict=True)):
            renamed = aliases.get(written, written)
            name = written if written != renamed and renamed in own else renamed
            if name in reader.names and name not in at:
                at[name] = place
                path = f"{where}.{name}" if where else name
                parts.append(self.plan(kind, reader.parts[reader.names.index(name)], path))
            else:
                parts.append(Same(kind))
        places: list[int | bytes] = []
        for name, kind, field in zip(reader.names, reader.parts, reader.fields, strict=True):
            if name in at:
                places.append(at[name])
            elif field.default is NoDefault:
                why = f"the reader's field {f'{where}.{name}' if where else name!r} has no default, and is not there"
                return Problem(reader.column, why)
            else:
                places.append(encoded(kind, field.default))
        same = all(isinstance(part, Same) for part in parts) and places == list(range(len(parts)))
        return Same(reader) if same else Record(reader, tuple(parts), tuple(places))

    def _from_union(self, writer: AvroType, reader: AvroType, where: str) -> Plan:
        equal = reader.is_union and self._alike(writer, reader)
        plans: list[Plan] = []
        for number, branch in enumerate(writer.branches):
            if equal:
                plans.append(IntoUnion(reader, number, self.plan(branch, reader.branches[number], where)))
            else:
                plans.append(self.plan(branch, reader, where))
        if equal and all(isinstance(plan, IntoUnion) and isinstance(plan.part, Same) for plan in plans):
            return Same(reader)
        return FromUnion(reader.column, tuple(plans))

    def _alike(self, writer: AvroType, reader: AvroType) -> bool:
        """Return whether two types have one form to the last part, so that branches have their places in common."""
        if writer.is_union or reader.is_union:
            written, read = writer.branches, reader.branches
            both = writer.is_union and reader.is_union and len(written) == len(read)
            return both and all(map(self._alike, written, read))
        if writer.base.form != reader.base.form or writer.size != reader.size:
            return False
        same = self._has_short_name(writer, reader) and writer.names == reader.names
        return same and all(map(self._alike, writer.parts, reader.parts))

    def _branch(self, writer: AvroType, union: AvroType, where: str) -> int | None:
        """The branch of the reader's union that a value of the writer becomes."""
        form, shape = writer.base.form, None
        for number, branch in enumerate(union.branches):
            if branch.base.form != form:
                continue
            if not writer.name or self._name(writer) == branch.name:
                return number
            named = shape is None or self._has_short_name(writer, branch)
            if form == "record" and named and self._fits(writer, branch, where):
                shape = number
        if shape is not None:
            return shape
        for number, branch in enumerate(union.branches):
            if branch.base.form in (*_WIDER.get(form, ()), _ALIKE.get(form)):
                return number
        return None

    def _fits(self, writer: AvroType, branch: AvroType, where: str) -> bool:
        """Return whether a record has fields that become those of another one."""
        plan = self.plan(writer, branch, where)
        if isinstance(plan, Record):
            return not any(isinstance(part, Problem) for part in plan.parts)
        return not isinstance(plan, Problem)


def _same_logical(writer: AvroType, reader: AvroType) -> bool:
    if pa.types.is_decimal(writer.column) and pa.types.is_decimal(reader.column):
        return bool(writer.column.scale == reader.column.scale)
    return bool(writer.column == reader.column)


def _problem(writer: AvroType, reader: AvroType, where: str) -> Problem:
    here, there = _words(writer), _words(reader)
    return Problem(reader.column, f"{f'field {where} is ' if where else 'it is '}{here}, for the reader {there}")


def _words(kind: AvroType) -> str:
    logical = f" shown as {kind.column}" if kind.base is not kind else ""
    return f"{kind.shown}{logical}"


def encoded(kind: AvroType, default: Any) -> bytes:
    """Return the bytes of a field's default, which stands in its schema as JSON. Raises InvalidInputError."""
    written = _encoded(kind, default)
    if written is None:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"Avro schema: found the default {shown(default)}, expected a value of {kind.shown}; correct the schema",
        )
    return written


def _encoded(kind: AvroType, value: Any) -> bytes | None:
    """The bytes of a JSON value; None: it is none of the type."""
    form = kind.base.form
    if kind.is_union:
        for number, branch in enumerate(kind.branches):
            found = _encoded(branch, value)
            if found is not None:
                return varint(number) + found
        return None
    if form == "null":
        return b"" if value is None else None
    if form == "boolean":
        return bytes([value]) if isinstance(value, bool) else None
    if form in ("int", "long"):
        limit = 1 << (31 if form == "int" else 63)
        whole = isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
        return varint(value) if whole else None
    if form in _NUMBERS:
        return _number(_NUMBERS[form], value)
    if form == "string":
        return _sized(value.encode()) if isinstance(value, str) else None
    if form in ("bytes", "fixed"):
        data = _latin(value)
        if data is None or form == "bytes":
            return None if data is None else _sized(data)
        return data if len(data) == kind.size else None
    if form == "enum":
        return varint(kind.names.index(value)) if value in kind.names else None
    if form == "record":
        return _fields(kind, value) if isinstance(value, dict) else None
    if form == "map" and isinstance(value, dict):
        return _entries(kind, [(_sized(name.encode()), one) for name, one in value.items()])
    if form == "array" and isinstance(value, list):
        return _entries(kind, [(b"", one) for one in value])
    return None


def _entries(kind: AvroType, entries: list[tuple[bytes, Any]]) -> bytes | None:
    """The bytes of entries, each with the bytes of its name in front."""
    parts = [(name, _encoded(kind.parts[0], one)) for name, one in entries]
    if any(part is None for _, part in parts):
        return None
    return (varint(len(parts)) if parts else b"") + b"".join(name + (part or b"") for name, part in parts) + b"\0"


def _fields(kind: AvroType, value: Mapping[str, Any]) -> bytes | None:
    found = b""
    for name, part, field in zip(kind.names, kind.parts, kind.fields, strict=True):
        one = _encoded(part, value.get(name, field.default))
        if one is None:
            return None
        found += one
    return found


def _number(form: str, value: Any) -> bytes | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return struct.pack(form, value)
    except (OverflowError, struct.error):
        return None


def _latin(value: Any) -> bytes | None:
    try:
        return value.encode("latin-1") if isinstance(value, str) else None
    except UnicodeEncodeError:
        return None


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def varint(number: int) -> bytes:
    """Return a number of 64 bits as a zig-zag varint."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])
