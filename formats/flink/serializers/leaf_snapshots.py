"""Serializer snapshots that have no others inside: of simple types, enums, Kryo, Avro and values of Flink SQL.

Source: the ``readSnapshot`` of each class, Flink 1.20 and 2.3.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from statestore.formats.flink.serializers.flink_types import (
    AvroOf,
    EnumOf,
    FlinkType,
    Logical,
    Opaque,
    TableValue,
)
from statestore.formats.flink.serializers.logical_types import UnknownLogicalType, read_logical_type
from statestore.formats.flink.serializers.snapshot_classes import CEP, PYTHON
from statestore.formats.flink.serializers.snapshot_input import SnapshotInput, optional_map
from statestore.formats.flink.snapshot.data_input import DataInput
from statestore.formats.flink.snapshot.java_objects import read_java_object

Reader = Callable[[SnapshotInput, str, int], FlinkType]
"""A function from the bytes behind a snapshot's class and version, the class and the version to the type.

Raises CorruptError FLINK_METADATA for damaged bytes, UnsupportedError FLINK_UNSUPPORTED for an unknown version.
"""


def simple_reader(kind: FlinkType) -> Reader:
    """The reader of a snapshot that says nothing besides its class (``SimpleTypeSerializerSnapshot``)."""

    def read(source: SnapshotInput, name: str, version: int) -> FlinkType:
        if version == 2:
            source.data.utf("the class of a serializer")
        elif version != 3:
            raise source.unsupported(name, version, "2 or 3")
        return kind

    return read


def read_enum(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """``EnumSerializerSnapshot``: the class and its constants."""
    if version not in (2, 3):
        raise source.unsupported(name, version, "2 or 3")
    class_name = source.class_name("the class of an enum")
    data = source.data
    number = data.count(data.i32("the number of constants of an enum"), 2, "constants of an enum")
    return EnumOf(class_name, tuple(data.utf("a constant of an enum") for _ in range(number)))


def read_kryo(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """``KryoSerializerSnapshot``: the class; what is registered with Kryo is stepped over."""
    if version not in (1, 2):
        raise source.unsupported(name, version, "1 or 2")
    class_name = source.class_name("the class of a Kryo serializer")
    for what in ("registrations of Kryo", "default serializers of Kryo", "default serializer classes of Kryo"):
        optional_map(source, what)
    return Opaque(serializer_of(name), class_name)


def read_generic(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """``GenericTypeSerializerSnapshot``: the class of the values, which write themselves."""
    return Opaque(serializer_of(name), source.class_name("the class of a value"))


def read_avro(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """``AvroSerializerSnapshot``: the class of the records and the schema that wrote them."""
    data = source.data
    if version == 1:
        return AvroOf("", data.utf("an Avro schema"))
    if version == 2:
        return AvroOf(data.utf("the class of an Avro record"), data.utf("an Avro schema"))
    if version != 3:
        raise source.unsupported(name, version, "1 to 3")
    return AvroOf(_string_value(data, "the class of an Avro record"), _string_value(data, "an Avro schema"))


def _string_value(data: DataInput, what: str) -> str:
    """A text of ``StringValue``: its UTF-16 length + 1, then its UTF-16 units, each a varint, low bits first."""
    size = _varint(data, what)
    if size == 0:
        raise data.error(f"found null for {what}")
    units = [_varint(data, what) for _ in range(data.count(size - 1, 1, f"characters of {what}"))]
    if units and max(units) > 0xFFFF:
        raise data.error(f"found no UTF-16 in {what}")
    try:
        return b"".join(unit.to_bytes(2, "big") for unit in units).decode("utf-16-be")
    except UnicodeDecodeError:
        raise data.error(f"found no UTF-16 in {what}") from None


def _varint(data: DataInput, what: str) -> int:
    number = shift = 0
    while True:
        part = data.u8(what)
        number |= (part & 0x7F) << shift
        if part < 0x80:
            return number
        shift += 7
        if shift > 28:
            raise data.error(f"found a number of more than 5 bytes in {what}")


def array_or_map_reader(root: str, parts: int) -> Reader:
    """The reader of the logical types of ``parts`` parts, then of their serializers, all Java objects."""

    def read(source: SnapshotInput, name: str, version: int) -> FlinkType:
        types: list[Logical] = []
        for _ in range(parts):
            with suppress(UnknownLogicalType):
                types.append(read_logical_type(source.data))
        for _ in range(parts):
            read_java_object(source.data)
        if len(types) < parts or name.startswith(PYTHON):
            return Opaque(serializer_of(name))
        return TableValue(Logical(root, children=tuple(types)))

    return read


def read_decimal_data(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """The digits and the scale of a ``DecimalDataSerializer``."""
    data = source.data
    precision, scale = data.i32("the precision of a decimal"), data.i32("the scale of a decimal")
    if not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise data.error(f"found a decimal of {precision} digits and scale {scale}", data.at - 8)
    return Opaque(serializer_of(name)) if name.startswith(PYTHON) else TableValue(Logical("DECIMAL", precision, scale))


def read_timestamp_data(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """The digits of a ``TimestampDataSerializer``."""
    precision = source.data.i32("the precision of a timestamp")
    if not 0 <= precision <= 9:
        raise source.data.error(f"found a timestamp of precision {precision}", source.data.at - 4)
    return Opaque(serializer_of(name)) if name.startswith(PYTHON) else TableValue(Logical("TIMESTAMP", precision))


def read_binary_row_data(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """A ``BinaryRowDataSerializer``, which does not say of which types its fields are."""
    source.data.i32("the number of fields of a row")
    return Opaque(serializer_of(name))


def serializer_of(snapshot_class: str) -> str:
    """The serializer's class, of its snapshot's class."""
    outer = snapshot_class.partition("$")[0] if not snapshot_class.startswith(CEP) else snapshot_class
    return outer.removesuffix("Snapshot")
