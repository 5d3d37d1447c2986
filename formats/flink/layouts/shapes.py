"""Shapes: how values lie in bytes, by the few forms that all serializers of Flink have, and the columns they become.

A `FlinkType` says what a value is; its shape (``type_layouts``) says how a reader steps over it. Shapes are compiled to
programs (``columns.programs``), which one loop runs over all records.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa

from statestore.formats.flink.serializers.flink_types import KryoOf, Logical
from statestore.formats.values.declared_types import COLUMN_METADATA
from statestore.formats.values.unique_names import unique_names

MOST_DIGITS = 38
"""Digits of the widest decimal column."""

SERIALIZER = b"statestore.serializer"
_COUNTED = ("counted", "masked", "packed")
TEXT_FORMS = ("millis or null", "instant", "sql timestamp", "local date", "local time", "local date time")
"""Forms of fixed values that may be shown as text, as Java writes them."""


@dataclass(frozen=True)
class Shape:
    """Base of all shapes. ``column`` is the type of the column; None: the value has none."""

    column: pa.DataType | None


@dataclass(frozen=True)
class Fixed(Shape):
    """``width`` bytes. ``form`` names their meaning (``columns.leaf_columns``), ``names`` the constants of an enum.

    ``ids`` are the numbers of the constants, where they are not 0, 1, 2.
    """

    width: int
    form: str
    names: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Text(Shape):
    """A string of ``StringSerializer``: varint of (UTF-16 units + 1), 0 for null | a varint for each unit.

    Without ``nullable``, the first varint is that of the units (``StringValueSerializer``).
    """

    nullable: bool = True


@dataclass(frozen=True)
class Sized(Shape):
    """n, an integer of ``counted_by`` bytes, 4 or 2 | n times ``unit`` bytes. n has no sign in 2 bytes. Of 8 bytes are
    two integers of 4, whose sum is n.

    ``form`` names the meaning of the bytes; ``logical`` is that of binary data of SQL. ``whose`` says in metadata whose
    bytes they are, where they are not decoded.
    """

    unit: int
    form: str
    logical: Logical | None = None
    counted_by: int = 4
    whose: str = ""


@dataclass(frozen=True)
class BigNumber(Shape):
    """int32 n | n - 4 bytes, if any; n of 0 is null. ``scaled``: then an int32, unless null."""

    scaled: bool


@dataclass(frozen=True)
class Repeated(Shape):
    """Entries. ``framing``: "counted" by an int32 before them, "joined" by bytes ``2C`` up to the end of the cell, or
    in Avro's "blocks", each a varlong of its entries before them, 0 at the end, "packed": int32 n | entries up to the
    end of the n bytes, or "masked": int32 n | a bit for each entry, most significant first, 1 for null | the other
    entries.

    If the column is a map, ``element`` is a `Struct` of key and value.
    """

    framing: str
    element: Shape


@dataclass(frozen=True)
class Framed(Shape):
    """int32 n | a value that has n bytes."""

    value: Shape


@dataclass(frozen=True)
class Optional(Shape):
    """A byte, 0 or 1 | the value, unless the byte is ``null_flag``: then ``padding`` bytes follow, or all that
    are left of the cell with -1.
    """

    value: Shape
    null_flag: int
    padding: int = 0


@dataclass(frozen=True)
class Struct(Shape):
    """Parts one after another. Those without a column have no field.

    ``order`` has the part of each field of the column, where they are in another order than the bytes.
    """

    parts: tuple[Shape, ...]
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class Masked(Shape):
    """``width`` bytes, most significant bit first: from bit ``first_bit`` a 1 for each part that is null | the other
    parts.
    """

    parts: tuple[Shape, ...]
    width: int
    first_bit: int


@dataclass(frozen=True)
class Branches(Shape):
    """A tag | the case that the tag selects. A case of None is null and has no bytes.

    ``tag`` is "either" (byte 1 for the first case, 0 for the second), "index" (int32), "byte" (one of ``tags``, which
    are in the order of the cases), or "pojo": byte 1 for the first case, 2 for the second, 4 and a class name for the
    case of one of ``names``, which follow, 8 and the byte i for the i-th case behind those.

    ``whose`` is the class of the first case of "pojo", for messages.

    ``fields`` has for each field of the column, in order, which field of which case it is: (case, field) pairs, field
    -1 for the whole case. Empty: the one case that is not null is the column itself.
    """

    tag: str
    cases: tuple[Shape | None, ...]
    fields: tuple[tuple[tuple[int, int], ...], ...] = ()
    names: tuple[str, ...] = ()
    tags: tuple[int, ...] = ()
    whose: str = ""


@dataclass(frozen=True)
class Cast(Shape):
    """A value in a column of another type."""

    value: Shape


@dataclass(frozen=True)
class Nulls(Shape):
    """A value without a column, in a column of nulls: lists, maps and records of Avro need one for each part."""

    value: Shape


@dataclass(frozen=True)
class Span(Shape):
    """The bytes of a value."""

    value: Shape


@dataclass(frozen=True)
class Rest(Shape):
    """All bytes that are left of the cell. ``whose`` says whose bytes they are, for messages and metadata."""

    whose: str


@dataclass(frozen=True)
class KryoValue(Shape):
    """An object of Kryo, with its class. ``kind`` says how it is read and shown."""

    kind: KryoOf


@dataclass(frozen=True)
class Routines(Shape):
    """A value in which a `Again` stands for one of ``bodies``, by name: records that contain themselves."""

    value: Shape
    bodies: tuple[tuple[str, Shape], ...]


@dataclass(frozen=True)
class Again(Shape):
    """A record inside of itself, shown as its bytes, because no column has its type. ``whose`` says so in metadata."""

    name: str
    whose: str


@dataclass(frozen=True)
class Unknown(Shape):
    """A case of `Branches` that cannot be decoded. ``remedy`` is the option that may help."""

    whose: str
    remedy: str = ""


@dataclass(frozen=True)
class Constant(Shape):
    """One byte that is the same in each value."""

    byte: int


@dataclass(frozen=True)
class LengthBefore(Shape):
    """The length of the value before in the fewest bytes, at least one, low byte first."""


def least_bytes(shape: Shape | None) -> int:
    """The fewest bytes that a value of a shape has."""
    if isinstance(shape, Fixed):
        return shape.width
    if isinstance(shape, Sized):
        return shape.counted_by
    if isinstance(shape, BigNumber) or (isinstance(shape, Repeated) and shape.framing in _COUNTED):
        return 4
    if isinstance(shape, Framed):
        return 4 + least_bytes(shape.value)
    if isinstance(shape, Struct):
        return sum(map(least_bytes, shape.parts))
    if isinstance(shape, Masked):
        return shape.width
    if isinstance(shape, (Cast, Nulls, Routines, Span)):
        return least_bytes(shape.value)
    if isinstance(shape, Branches):
        return 4 if shape.tag == "index" else 1
    return 0 if shape is None or isinstance(shape, (Rest, Unknown)) else 1  # also an object of Kryo


def field_of(name: str, shape: Shape) -> pa.Field:
    """The field of a column. Bytes that are not decoded say in their metadata whose they are."""
    inner: Shape | None = shape
    while isinstance(inner, (Optional, Cast, Branches, Framed)):
        inner = _only_case(inner) if isinstance(inner, Branches) else inner.value
    metadata = None
    if isinstance(inner, (Rest, Again)) or (isinstance(inner, Sized) and inner.whose):
        whose = inner.whose.encode("utf-8", "backslashreplace")
        for_spark = json.dumps({SERIALIZER.decode(): whose.decode()})
        metadata = {SERIALIZER: whose, COLUMN_METADATA: for_spark.encode()}
    return pa.field(name, shape.column, metadata=metadata)


def _only_case(shape: Branches) -> Shape | None:
    """The one case that is not null, if the column is that of the case."""
    return None if shape.fields else next((case for case in shape.cases if case is not None), None)


def with_column(shape: Shape) -> Shape:
    """The shape, with a column of nulls if it has none."""
    return Nulls(pa.null(), shape) if shape.column is None else shape


def struct_of(names: list[str], parts: tuple[Shape, ...]) -> pa.StructType:
    """The struct of the parts that have a column. Names that repeat, ignoring case, get numbers: f, f_1, f_2."""
    fields = [(name, part) for name, part in zip(names, parts, strict=True) if part.column is not None]
    new = unique_names([name for name, _ in fields])
    return pa.struct([field_of(name, part) for name, (_, part) in zip(new, fields, strict=True)])
