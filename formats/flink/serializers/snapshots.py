"""Serializer snapshots as Flink's types: one reader per snapshot class, found by the class's name.

Source: the ``readSnapshot`` of each class, Flink 1.20 and 2.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.serializers.flink_types import (
    VOID,
    ArrayOf,
    AvroOf,
    Basic,
    EnumOf,
    FlinkType,
    KryoOf,
    ListOf,
    Logical,
    MapOf,
    MaskedListOf,
    Nullable,
    Opaque,
    OptionOf,
    PojoOf,
    RawOf,
    RowDataOf,
    RowOf,
    TableValue,
    TraversableOf,
    TupleOf,
)
from statestore.formats.flink.serializers.logical_types import UnknownLogicalType, read_logical_type
from statestore.formats.flink.serializers.snapshot_classes import (
    BASE,
    CEP,
    COMPOSITE,
    LEGACY_COMPOSITE,
    PYTHON,
    RUNTIME,
    SCALA,
    SIMPLE,
    SINK,
    STATE,
    TABLE,
    TYPEUTILS,
    in_tuple,
)
from statestore.formats.flink.serializers.snapshot_input import (
    Entry,
    OutOfGuesses,
    SnapshotInput,
    UnknownClass,
    nested_count,
    optional_map,
    outer_snapshot,
)
from statestore.formats.flink.serializers.unknown_lengths import all_parses
from statestore.formats.flink.snapshot.data_input import DataInput
from statestore.formats.flink.snapshot.java_objects import read_java_object

Reader = Callable[[SnapshotInput, str, int], FlinkType]
"""A function from the bytes behind a snapshot's class and version, the class and the version to the type.

Raises CorruptError FLINK_METADATA for damaged bytes, UnsupportedError FLINK_UNSUPPORTED for an unknown version.
"""


def read_snapshot(data: DataInput) -> FlinkType:
    """The type that a snapshot at the position of ``data`` stands for; ``data`` is moved behind it.

    Raises CorruptError FLINK_METADATA for damaged bytes, UnsupportedError FLINK_UNSUPPORTED for a version that is not
    known and for an unknown class: the end of its snapshot cannot be told here (`read_backend_header` can).
    """
    return _alone(data, snapshot)


def read_proxied(data: DataInput) -> FlinkType:
    """Like `read_snapshot`, for a snapshot behind the number 2 (``TypeSerializerSnapshotSerializationProxy``)."""
    return _alone(data, proxied_snapshot)


def snapshot(source: SnapshotInput) -> FlinkType:
    """The type of the next snapshot: utf class name | int32 version | body.

    Raises as `read_snapshot` does, and `UnknownClass` for an unknown class whose length is not guessed.
    """
    with source.deeper():
        name = source.class_name()
        version = source.data.i32("the version of a serializer snapshot")
        reader = _READERS.get(name)
        if reader is not None:
            return reader(source, name, version)
        source.guessed_body(name, version)
        return Opaque(name)  # its own class is all that is known: which serializer it stands for is code


def proxied_snapshot(source: SnapshotInput) -> FlinkType:
    """int32 2 | a snapshot."""
    version = source.data.i32("the version of a serializer snapshot's frame")
    if version == 1:
        raise source.unsupported("frame", version, "2; the state was written by Flink 1.16 or older")
    if version != 2:
        raise source.data.error(f"found version {version} of a snapshot's frame, expected 2", source.data.at - 4)
    return snapshot(source)


def _alone(data: DataInput, parse: Callable[[SnapshotInput], FlinkType]) -> FlinkType:
    try:
        return parse(SnapshotInput(data))
    except UnknownClass as unknown:
        raise UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED,
            f"{data.path}: serializer snapshot {unknown.name}, version {unknown.version}, is not one of Flink's, so "
            "nothing behind it can be read; read the state's other operators, or use one of Flink's serializers",
        ) from None


# Snapshots that have no others inside: of simple types, enums, Kryo, Avro and values of Flink SQL


def _simple_reader(kind: FlinkType) -> Reader:
    """The reader of a snapshot that says nothing besides its class (``SimpleTypeSerializerSnapshot``)."""

    def read(source: SnapshotInput, name: str, version: int) -> FlinkType:
        if version == 2:
            source.data.utf("the class of a serializer")
        elif version != 3:
            raise source.unsupported(name, version, "2 or 3")
        return kind

    return read


def _read_enum(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """``EnumSerializerSnapshot``: the class and its constants."""
    if version not in (2, 3):
        raise source.unsupported(name, version, "2 or 3")
    class_name = source.class_name("the class of an enum")
    data = source.data
    number = data.count(data.i32("the number of constants of an enum"), 2, "constants of an enum")
    return EnumOf(class_name, tuple(data.utf("a constant of an enum") for _ in range(number)))


def _read_scala_enum(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """``ScalaEnumSerializerSnapshot``: the class of the ``Enumeration``, and its constants with their numbers."""
    if version not in (2, 3):
        raise source.unsupported(name, version, "2 or 3")
    class_name = source.class_name("the class of an enumeration")
    data = source.data
    number = data.count(data.i32("the number of constants of an enumeration"), 6, "constants of an enumeration")
    found = [(data.utf("a constant of an enumeration"), data.i32("a constant's number")) for _ in range(number)]
    ids = tuple(each for _, each in found)
    if len(set(ids)) < number:
        raise data.error(f"found a number of two constants in enumeration {class_name}, expected numbers that differ")
    return EnumOf(class_name, tuple(constant for constant, _ in found), ids)


def _read_kryo(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """``KryoSerializerSnapshot``: the class, and what is registered with Kryo.

    A job's serializer for all subclasses of a class or an interface of the JDK or of Scala makes it unknown how these
    are written.
    """
    if version not in (1, 2):
        raise source.unsupported(name, version, "1 or 2")
    class_name = source.class_name("the class of a Kryo serializer")
    found = optional_map(source, "registrations of Kryo")
    registrations = tuple((each.name, _has_serializer(source.data, each)) for each in found)
    given = [*optional_map(source, "default serializers of Kryo")]
    given += optional_map(source, "default serializer classes of Kryo")
    if any(each.name.startswith(("java.", "scala.", "[")) for each in given):
        return Opaque(_serializer_of(name), class_name)
    return KryoOf(_serializer_of(name), class_name, registrations=registrations, has_defaults=bool(given))


def _has_serializer(data: DataInput, registration: Entry) -> bool:
    """Whether a job gave a serializer for a class: utf class | int32 0 where it did not."""
    if registration.value is None:
        return True  # written by a job that did not have the class
    start, stop = registration.value
    inner = DataInput(data.data, data.path, start, stop)
    inner.utf("a class that is registered with Kryo")
    return inner.i32("how a class is registered with Kryo") != 0


def _read_generic(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """``GenericTypeSerializerSnapshot``: the class of the values, which write themselves."""
    return Opaque(_serializer_of(name), source.class_name("the class of a value"))


def _read_avro(source: SnapshotInput, name: str, version: int) -> FlinkType:
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


def _array_or_map_reader(root: str, parts: int) -> Reader:
    """The reader of the logical types of ``parts`` parts, then of their serializers, all Java objects."""

    def read(source: SnapshotInput, name: str, version: int) -> FlinkType:
        types: list[Logical] = []
        for _ in range(parts):
            with suppress(UnknownLogicalType):
                types.append(read_logical_type(source.data))
        for _ in range(parts):
            read_java_object(source.data)
        if len(types) < parts or name.startswith(PYTHON):
            return Opaque(_serializer_of(name))
        return TableValue(Logical(root, children=tuple(types)))

    return read


def _read_decimal_data(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """The digits and the scale of a ``DecimalDataSerializer``."""
    data = source.data
    precision, scale = data.i32("the precision of a decimal"), data.i32("the scale of a decimal")
    if not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise data.error(f"found a decimal of {precision} digits and scale {scale}", data.at - 8)
    return Opaque(_serializer_of(name)) if name.startswith(PYTHON) else TableValue(Logical("DECIMAL", precision, scale))


def _read_timestamp_data(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """The digits of a ``TimestampDataSerializer``."""
    precision = source.data.i32("the precision of a timestamp")
    if not 0 <= precision <= 9:
        raise source.data.error(f"found a timestamp of precision {precision}", source.data.at - 4)
    return Opaque(_serializer_of(name)) if name.startswith(PYTHON) else TableValue(Logical("TIMESTAMP", precision))


def _read_binary_row_data(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """A ``BinaryRowDataSerializer``, which does not say of which types its fields are."""
    source.data.i32("the number of fields of a row")
    return Opaque(_serializer_of(name))


def _serializer_of(snapshot_class: str) -> str:
    """The serializer's class, of its snapshot's class."""
    outer = snapshot_class.partition("$")[0] if not snapshot_class.startswith(CEP) else snapshot_class
    return outer.removesuffix("Snapshot")


# Snapshots with others inside


def _nothing(data: DataInput, version: int) -> None:
    return None


def _nested(source: SnapshotInput, name: str, number: int | None = None) -> tuple[FlinkType, ...]:
    found = nested_count(source)
    if number is not None and found != number:
        raise source.data.error(f"found {found} nested serializers in {name}, expected {number}", source.data.at - 4)
    return tuple(snapshot(source) for _ in range(found))


def _composite(newest: int, number: int, make: Callable[[tuple[FlinkType, ...]], FlinkType]) -> Reader:
    def read(source: SnapshotInput, name: str, version: int) -> FlinkType:
        outer_snapshot(source, name, version, newest, _nothing)
        return make(_nested(source, name, number))

    return read


def _legacy(make: Callable[[tuple[FlinkType, ...]], FlinkType]) -> Reader:
    def read(source: SnapshotInput, name: str, version: int) -> FlinkType:
        if version != 2:
            raise source.unsupported(name, version, "2")
        is_array = name.startswith(BASE)
        if is_array:
            source.class_name("the class of an array's elements")
        return make(_nested(source, name, 1 if is_array else 2))

    return read


def _tuple(source: SnapshotInput, name: str, version: int) -> FlinkType:
    class_name = outer_snapshot(source, name, version, 2, lambda data, _: data.utf("the class of a tuple"))
    fields = tuple(map(in_tuple, _nested(source, name)))
    return TupleOf(fields, class_name=class_name, is_scala=name.startswith(SCALA))


_SCALA_MAP = re.compile(r"CanBuildFrom\[(\w+\.)*\w*Map\[|Factory\[.*\), (\w+\.)*\w*Map\[", re.DOTALL)


def _traversable(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """A collection of Scala: the code that makes it, which names its type, and the element."""
    code = outer_snapshot(source, name, version, 2, lambda data, _: data.utf("the code of a Scala collection"))
    (element,) = _nested(source, name, 1)
    is_pair = isinstance(element, TupleOf) and element.class_name == "scala.Tuple2"
    return TraversableOf(element, is_pair and _SCALA_MAP.search(code) is not None)


def _generic_array(source: SnapshotInput, name: str, version: int) -> FlinkType:
    outer_snapshot(source, name, version, 1, lambda data, _: data.utf("the class of an array's elements"))
    return ArrayOf(*_nested(source, name, 1))


def _nullable(source: SnapshotInput, name: str, version: int) -> FlinkType:
    padding = outer_snapshot(source, name, version, 2, lambda data, _: data.i32("the padding of a null"))
    if not 0 <= padding <= 65_536:
        raise source.data.error(f"found a padding of {padding} bytes for a null, expected 0 to 65536")
    (value,) = _nested(source, name, 1)
    return Nullable(value, padding)


def _row(source: SnapshotInput, name: str, version: int) -> FlinkType:
    def kind_bits(data: DataInput, outer: int) -> bool:
        return data.boolean("whether rows have a kind") if outer >= 4 else outer == 3

    has_kind = outer_snapshot(source, name, version, 4, kind_bits)
    return RowOf(_nested(source, name), has_kind)


def _linked_list(source: SnapshotInput, name: str, version: int) -> FlinkType:
    def null_mask(data: DataInput, outer: int) -> bool:
        return data.boolean("whether a list has a mask of nulls") if outer >= 3 else outer == 2

    has_mask = outer_snapshot(source, name, version, 3, null_mask)
    (element,) = _nested(source, name, 1)
    return MaskedListOf(element) if has_mask else ListOf(element)


def _pattern_state(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """``NFAStateSerializerSnapshot``: the matches of a pattern that have begun, and those that are complete."""

    def previous_timestamp(data: DataInput, outer: int) -> bool:
        return data.boolean("whether matches have the time before") if outer >= 2 else False

    has_previous = outer_snapshot(source, name, version, 2, previous_timestamp)
    dewey_number, node_id, event_id = _nested(source, name, 3)
    times = ("start_timestamp", "previous_timestamp")[: 1 + has_previous]
    match = TupleOf(
        (Basic("string"), node_id, dewey_number, *(Basic("long") for _ in times), OptionOf(event_id)),
        ("state", "previous_node", "version", *times, "start_event"),
    )
    return TupleOf((ListOf(match), ListOf(match)), ("partial_matches", "completed_matches"), f"{CEP}NFAState")


def _two_phase_commit(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """``TwoPhaseCommitSinkFunction``: the transaction of a sink, those that are to be committed, the user's context."""

    def nullable(data: DataInput, outer: int) -> bool:
        return data.boolean("whether a transaction may be null") if outer >= 4 else outer == 3

    may_be_null = outer_snapshot(source, name, version, 4, nullable)
    handle, context = _nested(source, name, 2)
    held = TupleOf((handle, Basic("long")), ("transaction", "started_ms"))
    pending = OptionOf(held) if may_be_null else held
    parts = pending, ListOf(held), OptionOf(context)
    return TupleOf(parts, ("pending", "to_commit", "context"), f"{SINK}TwoPhaseCommitSinkFunction$State")


def _pojo(source: SnapshotInput, name: str, version: int) -> FlinkType:
    if version != 2:
        raise source.unsupported(name, version, "2")
    class_name = source.class_name("the class of a POJO")
    fields = optional_map(source, "fields of a POJO")
    registered = optional_map(source, "registered subclasses of a POJO")
    unregistered = optional_map(source, "unregistered subclasses of a POJO")
    return PojoOf(
        class_name,
        tuple((each.name, _framed(source, each)) for each in fields),
        tuple((each.name, _framed(source, each)) for each in registered),
        tuple((each.name, _framed(source, each)) for each in unregistered),
    )


def _framed(source: SnapshotInput, entry: Entry) -> FlinkType:
    """The snapshot in a frame of an optional map. The frame shows where an unknown class ends."""
    if entry.value is None:
        return Opaque("")  # Flink restored the state without the class of the field
    start, stop = entry.value
    found: FlinkType | None = None
    try:
        for kind, at, guessed in all_parses(snapshot, source.data, start, stop, source.budget, source.depth):
            if at != stop:
                if guessed:
                    continue
                raise source.data.error(f"found {stop - at} bytes behind the serializer of {entry.name}", at)
            if found is not None and found != kind:
                return Opaque(_first_class(source, start, stop))
            found = kind
    except OutOfGuesses:  # the frame shows the end all the same
        found = None
    return found if found is not None else Opaque(_first_class(source, start, stop))


def _first_class(source: SnapshotInput, start: int, stop: int) -> str:
    return SnapshotInput(DataInput(source.data.data, source.data.path, start, stop)).class_name()


def _row_data(source: SnapshotInput, name: str, version: int) -> FlinkType:
    data = source.data
    number = data.count(data.i32("the number of fields of a row"), 6, "fields of a row")
    types: list[Logical] = []
    unknown = False
    for _ in range(number):
        try:
            types.append(read_logical_type(data))
        except UnknownLogicalType:
            unknown = True
    nested = _nested(source, name, number)
    if unknown or name.startswith(PYTHON):
        return Opaque(_serializer_of(name))
    return RowDataOf(Logical("ROW", children=tuple(map(_with_raw, types, nested))))


def _with_raw(kind: Logical, written: FlinkType) -> Logical:
    """The type of a row's field, with the types of raw values in it, which only its serializer tells."""
    if kind.root == "RAW" and isinstance(written, RawOf):
        return Logical("ABSENT") if written.value == VOID else replace(kind, raw=(written.value,))
    if kind.root == "ROW" and isinstance(written, RowDataOf) and len(kind.children) == len(written.row.children):
        children = zip(kind.children, written.row.children, strict=True)
        return replace(kind, children=tuple(_taken(*both) for both in children))
    return kind


def _taken(kind: Logical, written: Logical) -> Logical:
    """The type of a field of a row within a row, with the raw types of what its serializer says of it."""
    if kind.root == "ROW" and written.root == "ROW":
        return _with_raw(kind, RowDataOf(written))
    return written if kind.root == "RAW" and written.root in ("RAW", "ABSENT") else kind


def _external(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """Values of a table's type, written by the serializer of the type's internal form."""

    def data_type(data: DataInput, outer: int) -> None:
        read_java_object(data)
        data.boolean("whether values come in their internal form")

    outer_snapshot(source, name, version, 1, data_type)
    return _nested(source, name, 1)[0]


def _sorted_map(source: SnapshotInput, name: str, version: int) -> FlinkType:
    read_java_object(source.data)  # the comparator
    return MapOf(*_nested(source, name, 2))


def _row_data_key(source: SnapshotInput, name: str, version: int) -> FlinkType:
    """``RowDataKey``: the row alone; its comparison and hash function are code, framed by their lengths."""
    if version != 0:
        raise source.unsupported(name, version, "0")
    for _ in range(2):
        source.data.skip(source.data.i32("the length of a function"), "a function")
    return snapshot(source)


def _ttl_aware(source: SnapshotInput, name: str, version: int) -> FlinkType:
    if version != 1:
        raise source.unsupported(name, version, "1")
    source.data.boolean("whether a state has a time to live")
    return snapshot(source)


_READERS: Mapping[str, Reader] = {
    **{name: _simple_reader(kind) for name, kind in SIMPLE.items()},
    **{name: _composite(*parts) for name, parts in COMPOSITE.items()},
    **{name: _legacy(make) for name, make in LEGACY_COMPOSITE.items()},
    f"{BASE}EnumSerializer$EnumSerializerSnapshot": _read_enum,
    f"{BASE}GenericArraySerializerSnapshot": _generic_array,
    f"{RUNTIME}TupleSerializerSnapshot": _tuple,
    f"{RUNTIME}NullableSerializer$NullableSerializerSnapshot": _nullable,
    f"{RUNTIME}RowSerializer$RowSerializerSnapshot": _row,
    f"{RUNTIME}PojoSerializerSnapshot": _pojo,
    f"{RUNTIME}kryo.KryoSerializerSnapshot": _read_kryo,
    f"{RUNTIME}CopyableValueSerializer$CopyableValueSerializerSnapshot": _read_generic,
    f"{RUNTIME}ValueSerializer$ValueSerializerSnapshot": _read_generic,
    "org.apache.flink.formats.avro.typeutils.AvroSerializerSnapshot": _read_avro,
    f"{STATE}ttl.TtlAwareSerializerSnapshot": _ttl_aware,
    f"{TYPEUTILS}RowDataSerializer$RowDataSerializerSnapshot": _row_data,
    f"{TYPEUTILS}ArrayDataSerializer$ArrayDataSerializerSnapshot": _array_or_map_reader("ARRAY", 1),
    f"{TYPEUTILS}MapDataSerializer$MapDataSerializerSnapshot": _array_or_map_reader("MAP", 2),
    f"{TYPEUTILS}DecimalDataSerializer$DecimalSerializerSnapshot": _read_decimal_data,
    f"{TYPEUTILS}TimestampDataSerializer$TimestampDataSerializerSnapshot": _read_timestamp_data,
    f"{TYPEUTILS}BinaryRowDataSerializer$BinaryRowDataSerializerSnapshot": _read_binary_row_data,
    f"{TYPEUTILS}LinkedListSerializer$LinkedListSerializerSnapshot": _linked_list,
    f"{TYPEUTILS}SortedMapSerializerSnapshot": _sorted_map,
    f"{TYPEUTILS}ExternalSerializer$ExternalSerializerSnapshot": _external,
    f"{PYTHON}RowDataSerializer$RowDataSerializerSnapshot": _row_data,
    f"{PYTHON}ArrayDataSerializer$ArrayDataSerializerSnapshot": _array_or_map_reader("ARRAY", 1),
    f"{PYTHON}MapDataSerializer$BaseMapSerializerSnapshot": _array_or_map_reader("MAP", 2),
    f"{PYTHON}DecimalDataSerializer$DecimalSerializerSnapshot": _read_decimal_data,
    f"{PYTHON}TimestampSerializer$TimestampSerializerSnapshot": _read_timestamp_data,
    f"{TABLE}runtime.sequencedmultisetstate.linked.RowDataKeySerializerSnapshot": _row_data_key,
    f"{SCALA}ScalaCaseClassSerializerSnapshot": _tuple,
    f"{SCALA}Tuple2CaseClassSerializerSnapshot": _tuple,
    f"{SCALA}TraversableSerializerSnapshot": _traversable,
    f"{SCALA}ScalaEnumSerializerSnapshot": _read_scala_enum,
    f"{CEP}NFAStateSerializerSnapshot": _pattern_state,
    f"{SINK}TwoPhaseCommitSinkFunction$StateSerializerSnapshot": _two_phase_commit,
    f"{SINK}legacy.TwoPhaseCommitSinkFunction$StateSerializerSnapshot": _two_phase_commit,
}
