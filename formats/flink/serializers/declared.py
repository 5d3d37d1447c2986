"""Types that a user gives for a state: names for fields that have none, and how to read serializers not of Flink.

The bytes decide: a given type must fit them, it never changes how Flink's own serializers are read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.flink.serializers.flink_types import (
    ENTRIES,
    MICRO_DIGITS,
    ArrayOf,
    AvroOf,
    Basic,
    EitherOf,
    EnumOf,
    FlinkType,
    Joined,
    KryoOf,
    ListOf,
    Logical,
    MapOf,
    MaskedListOf,
    Nullable,
    Opaque,
    OptionOf,
    PojoOf,
    PrimitiveArray,
    PythonBytes,
    RawOf,
    RowDataOf,
    RowOf,
    Shown,
    SortedLong,
    StringArray,
    TableValue,
    TraversableOf,
    TryOf,
    TtlOf,
    TupleOf,
    UnionOf,
    is_absent,
)
from statestore.formats.flink.serializers.python_types import python_value
from statestore.formats.flink.serializers.type_names import KRYO, shown
from statestore.formats.values.types import parse_type, type_name

UTF = pa.large_string()
"""The type that the word ``utf`` is parsed to. No other word gives it."""
JSON = pa.large_binary()
"""The type that the word ``json`` is parsed to: values of Kryo as texts of JSON."""
_NANOS, _LOCAL_NANOS = pa.timestamp("ns", tz="UTC"), pa.timestamp("ns")
_WORDS = {
    "utf": UTF, "json": JSON, "time": pa.time64("us"), "timestamp(9)": _NANOS, "timestamp_ntz(9)": _LOCAL_NANOS,
}  # fmt: skip

_TIME, _LOCAL_TIME = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_WINDOW = pa.struct([("start", _TIME), ("end", _TIME)])
_WIDE_WINDOW = pa.struct([("start", pa.int64()), ("end", pa.int64())])
"""A window in epoch milliseconds: that of a whole stream goes beyond timestamps."""

_BASICS: dict[str, pa.DataType] = {
    "string": pa.string(),
    "string_value": pa.string(),
    "utf": UTF,
    "long": pa.int64(),
    "int": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "boolean": pa.bool_(),
    "float": pa.float32(),
    "double": pa.float64(),
    "char": pa.string(),
    "biginteger": pa.string(),
    "bigdecimal": pa.string(),
    "date": _TIME,
    "sql_date": _TIME,
    "sql_time": _TIME,
    "sql_timestamp": _TIME,
    "local_date": pa.date32(),
    "local_date_time": _LOCAL_TIME,
    "instant": _TIME,
    "time_window": _WINDOW,
}
"""The type that a user writes for each basic type. ``local_time`` has none, and so have those without a column."""

_AS_TEXT = frozenset(
    {"date", "sql_date", "sql_time", "sql_timestamp", "local_date", "local_time", "local_date_time", "instant"}
)
_NEVER_WRITTEN = frozenset(
    {
        "string_value",
        "char",
        "biginteger",
        "bigdecimal",
        "date",
        "sql_date",
        "sql_time",
        "sql_timestamp",
        "time_window",
    }
)
_WRITTEN = {kind: Basic(name) for name, kind in _BASICS.items() if name not in _NEVER_WRITTEN}
_KRYO_LEAVES = (
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.date32(), _TIME,
)  # fmt: skip
_LOGICALS: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BYTES": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "TIMESTAMP": _LOCAL_TIME,
    "TIMESTAMP_LTZ": _TIME,
    "DAY_TIME": pa.duration("us"),
    "YEAR_MONTH": pa.int32(),
    "RAW": pa.binary(),
    "VARIANT": pa.string(),
    "BITMAP": pa.binary(),
}
_NANO_TIMES = {"TIMESTAMP": _LOCAL_NANOS, "TIMESTAMP_LTZ": _NANOS}


def with_declared(kind: FlinkType, text: str) -> FlinkType:
    """The type of a state's keys or values, with what a user's type adds to it.

    ``text`` is a type as for columns of a store: ``struct<name: string, n: int>``. It must have the same structure and
    types as ``kind``; its names go to the fields of tuples, rows and SQL rows. Bytes of a serializer not of Flink are
    read as Flink writes the given type: a struct as its fields in order, like a tuple, ``string``, ``bigint`` a
    long, ``array`` a list, ``map`` a map, ``date`` a LocalDate, ``timestamp`` an Instant, ``timestamp_ntz`` a
    LocalDateTime, ``decimal`` a BigDecimal. In them ``utf`` is a string of Java's ``DataOutput.writeUTF``, which has
    other bytes than Flink's ``string``. ``string`` for times and ``decimal`` for big numbers gives a `Shown`, and
    ``struct<start: bigint, end: bigint>`` a time window in epoch milliseconds. Bytes of PyFlink are read as by
    `python_value`.

    Whether a stored key is ambiguous depends on the serializer, so ask `fixed_width` of the type without the user's.
    Raises InvalidInputError FLINK_TYPE, which names both types.
    """
    if isinstance(kind, PythonBytes):
        return python_value(text)
    try:
        declared = parse_type(text, _WORDS)
    except UnsupportedError as error:
        raise InvalidInputError(ErrorCode.FLINK_TYPE, error.message) from None
    try:
        return _fitted(kind, declared)
    except _Unfit as problem:
        where = f"at {problem.place}: " if problem.place else ""
        raise InvalidInputError(
            ErrorCode.FLINK_TYPE,
            f"type {text!r} does not fit the state's type {shown(kind)}: {where}{problem.found}; give the state's type",
        ) from None


def as_flink_writes(text: str) -> FlinkType:
    """The type whose bytes Flink's serializers write for a user's type. Raises InvalidInputError FLINK_TYPE."""
    try:
        return _as_flink_writes(parse_type(text, _WORDS))
    except UnsupportedError as error:
        raise InvalidInputError(ErrorCode.FLINK_TYPE, error.message) from None
    except _Unfit as problem:
        raise InvalidInputError(ErrorCode.FLINK_TYPE, f"type {text!r}: {problem.found}") from None


@dataclass
class _Unfit(Exception):
    found: str
    place: str = ""

    def below(self, name: str) -> _Unfit:
        return _Unfit(self.found, f"{name}.{self.place}" if self.place else name)


def declared_text(kind: pa.DataType) -> str:
    """The text that a user gives for a type. Raises UnsupportedError UNSUPPORTED_TYPE if there is none."""
    return type_name(kind, _WORDS)


def _named(declared: pa.DataType) -> str:
    try:
        return declared_text(declared)
    except UnsupportedError:
        return str(declared)


def _unfit(kind: FlinkType, declared: pa.DataType) -> _Unfit:
    return _Unfit(f"found {_named(declared)}, expected {shown(kind)}")


def _fitted(kind: FlinkType, declared: pa.DataType) -> FlinkType:
    if isinstance(kind, KryoOf):
        return _of_kryo(kind, declared)
    if isinstance(kind, Opaque):
        return _written(kind, declared)
    if isinstance(kind, Basic):
        return _basic(kind, declared)
    if isinstance(kind, (Nullable, OptionOf)):
        return replace(kind, value=_fitted(kind.value, declared))
    if isinstance(kind, TraversableOf) and kind.is_map:
        return _scala_map(kind, declared)
    if isinstance(kind, TtlOf):
        return replace(kind, value=_fitted(kind.value, declared))
    if isinstance(kind, (ListOf, ArrayOf, MaskedListOf, TraversableOf, Joined)):
        if not pa.types.is_list(declared):
            raise _unfit(kind, declared)
        return replace(kind, element=_below("element", kind.element, declared.value_type))
    if isinstance(kind, MapOf):
        if not pa.types.is_map(declared):
            raise _unfit(kind, declared)
        key, value = _below("key", kind.key, declared.key_type), _below("value", kind.value, declared.item_type)
        return MapOf(key, value)
    if isinstance(kind, (TupleOf, RowOf)):
        names = _names(kind, declared, len(kind.fields))
        fields = tuple(
            _below(n, each, declared.field(i).type) for i, (n, each) in enumerate(_pairs(names, kind.fields))
        )
        return replace(kind, fields=fields, names=names)
    if isinstance(kind, (PojoOf, EitherOf, TryOf, UnionOf)):
        return _named_parts(kind, declared)
    if isinstance(kind, RawOf):
        return PrimitiveArray("byte") if pa.types.is_binary(declared) else RawOf(_fitted(kind.value, declared))
    if isinstance(kind, RowDataOf):
        return RowDataOf(_logical(kind.row, declared))
    if isinstance(kind, TableValue):
        return TableValue(_logical(kind.kind, declared))
    return _unnamed(kind, declared)


def _unnamed(kind: FlinkType, declared: pa.DataType) -> FlinkType:
    """Types without fields."""
    expected: pa.DataType | None = None
    if isinstance(kind, SortedLong):
        expected = pa.int64()
    elif isinstance(kind, EnumOf):
        expected = pa.string()
    elif isinstance(kind, StringArray):
        expected = pa.list_(pa.string())
    elif isinstance(kind, PrimitiveArray):
        whole = {"byte": pa.binary(), "char": pa.string()}
        expected = whole[kind.element] if kind.element in whole else pa.list_(_BASICS[kind.element])
    elif isinstance(kind, AvroOf):
        raise _Unfit("Avro's schema in the file gives its types and names")
    if expected is None or not declared.equals(expected):
        raise _unfit(kind, declared)
    return kind


def _below(name: str, kind: FlinkType, declared: pa.DataType) -> FlinkType:
    try:
        return _fitted(kind, declared)
    except _Unfit as problem:
        raise problem.below(name) from None


def _pairs(names: tuple[str, ...], kinds: tuple[FlinkType, ...]) -> list[tuple[str, FlinkType]]:
    return list(zip(names, kinds, strict=True))


def _names(kind: FlinkType, declared: pa.DataType, number: int) -> tuple[str, ...]:
    if not pa.types.is_struct(declared):
        raise _unfit(kind, declared)
    names = tuple(field.name for field in declared)
    if len(names) != number:
        raise _Unfit(f"found a struct of {len(names)} fields, expected {number} ({shown(kind)})")
    if "" in names or len({name.lower() for name in names}) < number:
        raise _Unfit(f"found fields {', '.join(map(repr, names))}, expected names that differ, also without case")
    return names


def _scala_map(kind: TraversableOf, declared: pa.DataType) -> FlinkType:
    if not pa.types.is_map(declared) or not isinstance(kind.element, TupleOf):
        raise _unfit(kind, declared)
    key, value = kind.element.fields
    fitted = _below("key", key, declared.key_type), _below("value", value, declared.item_type)
    return replace(kind, element=replace(kind.element, fields=fitted))


def _named_parts(kind: PojoOf | EitherOf | TryOf | UnionOf, declared: pa.DataType) -> FlinkType:
    """Types whose parts have names already: a struct of the same names, in any order."""
    if isinstance(kind, EitherOf):
        parts: tuple[tuple[str, FlinkType], ...] = (("left", kind.left), ("right", kind.right))
    elif isinstance(kind, TryOf):
        parts = (("success", kind.value), ("failure", kind.failure))
    elif isinstance(kind, UnionOf):
        parts = tuple((name, each) for _, name, each in kind.cases)
    else:
        parts = kind.fields
    names = _names(kind, declared, len(parts))
    expected = [name for name, _ in parts]
    if set(names) != set(expected):
        raise _Unfit(f"found fields {', '.join(names)}, expected {', '.join(expected)}")
    fitted = tuple((name, _below(name, each, declared.field(name).type)) for name, each in parts)
    if isinstance(kind, EitherOf):
        return EitherOf(fitted[0][1], fitted[1][1])
    if isinstance(kind, TryOf):
        return TryOf(fitted[0][1], fitted[1][1])
    if isinstance(kind, UnionOf):
        return UnionOf(tuple((tag, name, each) for (tag, _, _), (name, each) in zip(kind.cases, fitted, strict=True)))
    return replace(kind, fields=fitted)


def _basic(kind: Basic, declared: pa.DataType) -> FlinkType:
    expected = _BASICS.get(kind.name)
    if expected is not None and declared.equals(expected):
        return kind
    if kind.name == "time_window" and declared.equals(_WIDE_WINDOW):
        return TupleOf((Basic("long"), Basic("long")), ("start", "end"))
    if pa.types.is_string(declared) and kind.name in _AS_TEXT:
        return Shown(kind, declared)
    if pa.types.is_decimal(declared) and kind.name in ("biginteger", "bigdecimal"):
        return Shown(kind, declared)
    raise _Unfit(f"found {_named(declared)}, expected {_named(expected) if expected is not None else shown(kind)}")


def _logical(kind: Logical, declared: pa.DataType) -> Logical:
    if kind.root == "ROW":
        names = iter(_names(kind, declared, sum(not is_absent(each) for each in kind.children)))
        fields = [("", child) if is_absent(child) else _member(next(names), child, declared) for child in kind.children]
        return replace(kind, children=tuple(child for _, child in fields), names=tuple(name for name, _ in fields))
    if kind.root == "ARRAY" and pa.types.is_list(declared):
        return replace(kind, children=(_logical(kind.children[0], declared.value_type),))
    if kind.root in ("MAP", "MULTISET") and (entry := _entry(declared)) is not None:
        entries = () if pa.types.is_map(declared) else ENTRIES
        if kind.root == "MAP":
            return replace(kind, children=tuple(map(_logical, kind.children, entry)), names=entries)
        if entry[1].equals(pa.int32()):
            return replace(kind, children=(_logical(kind.children[0], entry[0]),), names=entries)
    if kind.raw and not pa.types.is_binary(declared):
        return replace(kind, raw=(_fitted(kind.raw[0], declared),))
    expected = _LOGICALS.get(kind.root)
    if kind.root == "DECIMAL":
        expected = pa.decimal128(kind.precision, kind.scale)
    if kind.root in _NANO_TIMES and kind.precision > MICRO_DIGITS and declared.equals(_NANO_TIMES[kind.root]):
        return kind
    if expected is None or not declared.equals(expected):
        raise _unfit(kind, declared)
    return replace(kind, raw=()) if kind.raw else kind


def _entry(declared: pa.DataType) -> tuple[pa.DataType, pa.DataType] | None:
    """Types of key and value of a map, or of a list of its entries, in which keys may be null."""
    if pa.types.is_map(declared):
        return declared.key_type, declared.item_type
    if pa.types.is_list(declared) and pa.types.is_struct(declared.value_type):
        members = tuple(declared.value_type)
        if tuple(each.name for each in members) == ENTRIES:
            return members[0].type, members[1].type
    return None


def _member(name: str, kind: Logical, declared: pa.StructType) -> tuple[str, Logical]:
    try:
        return name, _logical(kind, declared.field(name).type)
    except _Unfit as problem:
        raise problem.below(name) from None


def _of_kryo(kind: KryoOf, declared: pa.DataType) -> FlinkType:
    """Values of Kryo in a type. Times have the precision of their classes, which is microseconds or nanoseconds."""
    if declared == JSON:
        return replace(kind, column=JSON)
    if not _is_of_kryo(declared):
        raise _Unfit(f"found {_named(declared)}, expected json, or a type that values of Kryo may have")
    return replace(kind, column=declared)


def _is_of_kryo(declared: pa.DataType) -> bool:
    if pa.types.is_list(declared):
        return _is_of_kryo(declared.value_type)
    if pa.types.is_map(declared):
        return _is_of_kryo(declared.key_type) and _is_of_kryo(declared.item_type)
    return declared in _KRYO_LEAVES


def _written(kind: Opaque, declared: pa.DataType) -> FlinkType:
    """The type whose bytes Flink writes for a user's type. Kryo's bytes are refused."""
    if kind.serializer == KRYO:
        raise _Unfit(
            f"the bytes of Kryo class {kind.class_name} depend on what the job registered with Kryo, so no type can be "
            "given for them"
        )
    is_known = not kind.serializer.endswith("Snapshot")  # of others the file has no more than the snapshot's class
    if kind.serializer.startswith("org.apache.flink.") and is_known:
        raise _Unfit(f"the bytes of {kind.serializer} are not those of Flink's basic serializers")
    return _as_flink_writes(declared)


def _as_flink_writes(declared: pa.DataType) -> FlinkType:
    if declared in _WRITTEN:
        return _WRITTEN[declared]
    if pa.types.is_binary(declared):
        return PrimitiveArray("byte")
    if pa.types.is_decimal(declared):
        return Shown(Basic("bigdecimal"), declared)
    if pa.types.is_list(declared):
        return ListOf(_as_flink_writes(declared.value_type))
    if pa.types.is_map(declared):
        return MapOf(_as_flink_writes(declared.key_type), _as_flink_writes(declared.item_type))
    if pa.types.is_struct(declared):
        names = _names(TupleOf(()), declared, declared.num_fields)
        return TupleOf(tuple(_as_flink_writes(field.type) for field in declared), names)
    raise _Unfit(f"found {_named(declared)}, which no basic serializer of Flink writes")
