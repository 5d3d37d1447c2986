"""The shape of each type of Flink's serializers, and with it the type of its column."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.flink.layouts.avro_layouts import avro_layout
from statestore.formats.flink.layouts.shapes import (
    MOST_DIGITS,
    TEXT_FORMS,
    BigNumber,
    Branches,
    Cast,
    Constant,
    Fixed,
    Framed,
    KryoValue,
    LengthBefore,
    Masked,
    Optional,
    Repeated,
    Rest,
    Shape,
    Sized,
    Span,
    Struct,
    Text,
    Unknown,
    field_of,
    least_bytes,
    struct_of,
    with_column,
)
from statestore.formats.flink.serializers.declared import JSON
from statestore.formats.flink.serializers.flink_types import (
    MICRO_DIGITS,
    MOST_DEPTH,
    ArrayOf,
    AvroOf,
    Basic,
    EitherOf,
    EnumOf,
    FlinkType,
    Joined,
    KryoOf,
    LengthOf,
    ListOf,
    Logical,
    MapOf,
    MaskedListOf,
    Nullable,
    Opaque,
    OptionOf,
    PojoOf,
    Prefix,
    PrimitiveArray,
    PythonBytes,
    PythonElements,
    PythonLeaf,
    PythonValue,
    RawOf,
    RestOf,
    RowDataOf,
    RowOf,
    Shown,
    SortedLong,
    SpanOf,
    StringArray,
    SubclassBytes,
    TableValue,
    TimerOf,
    TraversableOf,
    TryOf,
    TtlOf,
    TupleOf,
    UnionOf,
    is_absent,
)
from statestore.formats.flink.serializers.opaque_parts import opaque_inside, opaque_part
from statestore.formats.flink.serializers.subclasses import remedy_for
from statestore.formats.values.unique_names import unique_names

MICROS, NANOS = pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")

COMPACT_DIGITS = 18
COMPACT_TIME = 3
_PLAIN = {
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
    "YEAR_MONTH": pa.int32(),
    "DAY_TIME": pa.duration("us"),
    "VARIANT": pa.string(),
    "BITMAP": pa.binary(),
}


_TEXT = Text(pa.string())
_MILLIS = Fixed(MICROS, 8, "millis")
_BASICS: dict[str, Shape] = {
    "string": _TEXT,
    "string_value": Text(pa.string(), nullable=False),
    "utf": Sized(pa.string(), 1, "modified utf-8", counted_by=2),
    "long": Fixed(pa.int64(), 8, "int"),
    "int": Fixed(pa.int32(), 4, "int"),
    "short": Fixed(pa.int16(), 2, "int"),
    "byte": Fixed(pa.int8(), 1, "int"),
    "boolean": Fixed(pa.bool_(), 1, "boolean"),
    "float": Fixed(pa.float32(), 4, "float"),
    "double": Fixed(pa.float64(), 8, "float"),
    "char": Fixed(pa.string(), 2, "char"),
    "biginteger": BigNumber(pa.string(), False),
    "bigdecimal": BigNumber(pa.string(), True),
    "date": Fixed(MICROS, 8, "millis or null"),
    "sql_date": Fixed(MICROS, 8, "millis or null"),
    "sql_time": Fixed(MICROS, 8, "millis or null"),
    "sql_timestamp": Fixed(NANOS, 12, "sql timestamp"),
    "local_date": Fixed(pa.date32(), 6, "local date"),
    "local_time": Fixed(pa.time64("ns"), 7, "local time"),
    "local_date_time": Fixed(pa.timestamp("ns"), 13, "local date time"),
    "instant": Fixed(NANOS, 12, "instant"),
    "null_value": Struct(None, ()),
    "void": Constant(None, 0),
    "unit": Constant(None, 0),
    "tuple0": Constant(None, 42),
    "time_window": Struct(struct_of(["start", "end"], (_MILLIS, _MILLIS)), (_MILLIS, _MILLIS)),
}
_PYTHON, _PICKLE = "a coder of PyFlink", "pickle of Python"
_ELEMENTS = {
    "short": (2, pa.int16(), "integers"),
    "int": (4, pa.int32(), "integers"),
    "long": (8, pa.int64(), "integers"),
    "float": (4, pa.float32(), "floats"),
    "double": (8, pa.float64(), "floats"),
    "boolean": (1, pa.bool_(), "booleans"),
}


@lru_cache(1024)
def layout(kind: FlinkType) -> Shape:
    """The shape of a type.

    Raises UnsupportedError FLINK_UNSUPPORTED for types nested too deeply, or without a column.
    """
    return _layout(kind, 0)


def _layout(kind: FlinkType, depth: int) -> Shape:
    if depth > MOST_DEPTH:
        raise unsupported(f"types nested deeper than {MOST_DEPTH}")
    below = depth + 1
    if isinstance(kind, Basic):
        return _BASICS[kind.name]
    if isinstance(kind, PrimitiveArray):
        return _primitive_array(kind)
    if isinstance(kind, StringArray):
        return _repeated("counted", _TEXT)
    if isinstance(kind, ListOf):
        element = _layout(kind.element, below)
        return _repeated("counted", _optional(element, 1) if kind.is_set else element)
    if isinstance(kind, MaskedListOf):
        return _repeated("masked", _layout(kind.element, below))
    if isinstance(kind, Joined):
        return _joined(_layout(kind.element, below))
    if isinstance(kind, ArrayOf):
        return _repeated("counted", _optional(_layout(kind.element, below), 0))
    if isinstance(kind, MapOf):
        return _map(_layout(kind.key, below), with_column(_optional(_layout(kind.value, below), 1)))
    if isinstance(kind, TraversableOf):
        return _traversable(kind, below)
    if isinstance(kind, Nullable):
        return _optional(_layout(kind.value, below), 1, kind.padding)
    if isinstance(kind, OptionOf):
        return _optional(_layout(kind.value, below), 0)
    if isinstance(kind, TryOf):
        cases = _layout(kind.value, below), _layout(kind.failure, below)
        return _alternatives("either", ["success", "failure"], cases)
    if isinstance(kind, (TupleOf, RowOf)):
        return _fields(kind, tuple(_layout(each, below) for each in kind.fields))
    if isinstance(kind, PojoOf):
        return _pojo(kind, below)
    if isinstance(kind, EnumOf):
        is_counted = kind.ids == tuple(range(len(kind.ids)))
        return Fixed(pa.string(), 4, "enum", kind.constants, () if is_counted else kind.ids)
    if isinstance(kind, EitherOf):
        cases = _layout(kind.left, below), _layout(kind.right, below)
        return _alternatives("either", ["left", "right"], cases)
    if isinstance(kind, UnionOf):
        inputs = tuple(_layout(each, below) for _, _, each in kind.cases)
        return _alternatives(
            "byte", [name for _, name, _ in kind.cases], inputs, tuple(tag for tag, _, _ in kind.cases)
        )
    if isinstance(kind, Shown):
        return _shown(_layout(kind.value, below), kind.column)
    if isinstance(kind, TtlOf):
        value = _layout(kind.value, below)
        return Struct(struct_of(["value", "last_access"], (value, _MILLIS)), (_MILLIS, value), (1, 0))
    if isinstance(kind, TimerOf):
        timer = Fixed(pa.int64(), 8, "flipped"), _layout(kind.key, below), _layout(kind.namespace, below)
        return Struct(struct_of(["timestamp", "key", "namespace"], timer), timer)
    if isinstance(kind, PythonValue):
        inner = with_column(_layout(kind.value, below))
        return Framed(inner.column, inner)
    if isinstance(kind, PythonElements):
        return _packed(_layout(kind.element, below))
    if isinstance(kind, SpanOf):
        return Span(pa.binary(), _layout(kind.value, below))
    return _other(kind)


def _other(kind: FlinkType) -> Shape:
    if isinstance(kind, RowDataOf):
        return row_layout(kind.row)
    if isinstance(kind, TableValue):
        return table_layout(kind.kind)
    if isinstance(kind, Logical):
        return row_layout(kind)
    if isinstance(kind, RawOf):
        part = opaque_inside(kind.value)
        if part is not None:
            return Sized(pa.binary(), 1, "bytes", whose=whose(part))
        value = with_column(layout(kind.value))
        return Framed(value.column, value)
    if isinstance(kind, AvroOf):
        return avro_layout(kind.schema, kind.class_name)
    if isinstance(kind, KryoOf):
        return KryoValue(pa.string() if kind.column in (None, JSON) else kind.column, kind)
    if isinstance(kind, Opaque):
        rest = Rest(pa.binary(), whose(kind))
        return rest if kind.declared is None else _shown(rest, kind.declared)
    if isinstance(kind, PythonBytes):
        return Sized(pa.binary(), 1, "bytes", whose=_PYTHON)
    if isinstance(kind, PythonLeaf):
        return _python_leaf(kind)
    if isinstance(kind, SortedLong):
        return Fixed(pa.int64(), 8, "flipped")
    if isinstance(kind, Prefix):
        return Fixed(pa.int32(), kind.width, "unsigned")
    if isinstance(kind, LengthOf):
        return LengthBefore(None)
    raise unsupported(f"the type {type(kind).__name__}")


def whose(kind: Opaque) -> str:
    """The serializer and the class of bytes that cannot be decoded, and what may help in parentheses."""
    found = f"{kind.serializer} of {kind.class_name}" if kind.class_name else kind.serializer
    return f"{found} ({kind.remedy})" if kind.remedy else found


def unsupported(what: str) -> UnsupportedError:
    return UnsupportedError(
        ErrorCode.FLINK_UNSUPPORTED, f"state of Flink with {what}, which cannot be read; read the other columns"
    )


def _shown(value: Shape, column: pa.DataType) -> Shape:
    """A value in a column of another type. Times are written as text by themselves."""
    if column == value.column:
        return value
    if isinstance(value, Fixed) and value.form in TEXT_FORMS and column == pa.string():
        return Fixed(column, value.width, value.form)
    try:
        pa.array([], value.column).cast(column)
    except pa.ArrowException:
        raise InvalidInputError(
            ErrorCode.FLINK_TYPE,
            f"type given for a state of Flink: found {column}, expected {value.column}, or a type to which that casts",
        ) from None
    return Cast(column, value)


def _primitive_array(kind: PrimitiveArray) -> Shape:
    if kind.element == "byte":
        return Sized(pa.binary(), 1, "bytes")
    if kind.element == "char":
        return Sized(pa.string(), 2, "chars")
    width, column, form = _ELEMENTS[kind.element]
    return Sized(pa.list_(column), width, form)


def _repeated(framing: str, element: Shape) -> Shape:
    element = with_column(element)
    return Repeated(pa.list_(field_of("item", element)), framing, element)


def _joined(element: Shape) -> Shape:
    """Elements of a list state. Flink reads none at the end of the bytes, so that it loses one without bytes."""
    if isinstance(element, Struct) and not least_bytes(element):
        raise unsupported("a list of values without bytes, of which Flink itself cannot tell the number")
    return _repeated("joined", element)


def _packed(element: Shape) -> Shape:
    if not least_bytes(element):
        raise unsupported("a list of values without bytes, of which nothing tells the number")
    return _repeated("packed", element)


def _python_leaf(kind: PythonLeaf) -> Shape:
    if kind.name in ("date", "time"):
        return Fixed(kind.column, 4, "int")
    if kind.name == "pickle":
        return Sized(kind.column, 1, "pickle", whose=_PICKLE)
    return Sized(kind.column, 1, {"decimal": "decimal text", "plain_text": "plain utf-8"}[kind.name])


def _map(key: Shape, value: Shape, front: tuple[Shape, ...] = ()) -> Shape:
    if key.column is None:
        raise unsupported("a map with void keys")
    fields = pa.field("key", key.column, nullable=False), field_of("value", value)
    return Repeated(pa.map_(key.column, fields[1]), "counted", Struct(pa.struct(fields), (*front, key, value)))


def _traversable(kind: TraversableOf, depth: int) -> Shape:
    if kind.is_map and isinstance(kind.element, TupleOf):
        key, value = (_layout(each, depth + 1) for each in kind.element.fields)
        return _map(key, with_column(value), (Constant(None, 1),))
    return _repeated("counted", _optional(_layout(kind.element, depth), 0))


def _optional(value: Shape, null_flag: int, padding: int = 0) -> Shape:
    return Optional(value.column, value, null_flag, padding)


def _fields(kind: TupleOf | RowOf, parts: tuple[Shape, ...]) -> Shape:
    names = list(kind.names) or [f"f{number}" for number in range(len(parts))]
    column = struct_of(names, parts)
    if isinstance(kind, TupleOf):
        return Struct(column, parts)
    first_bit = 2 if kind.kind_bits else 0
    return Masked(column, parts, (len(parts) + first_bit + 7) // 8, first_bit)


def _alternatives(tag: str, names: list[str], cases: tuple[Shape, ...], tags: tuple[int, ...] = ()) -> Shape:
    fields = tuple(((number, -1),) for number, case in enumerate(cases) if case.column is not None)
    return Branches(struct_of(names, cases), tag, cases, fields, tags=tags)


def _pojo(kind: PojoOf, depth: int) -> Shape:
    parts = tuple(
        _layout(each, depth) if isinstance(each, RestOf) else _optional(_layout(each, depth), 1)
        for _, each in kind.fields
    )
    plain = Struct(struct_of([name for name, _ in kind.fields], parts), parts)
    cases: list[Shape | None] = [None, plain]
    own: list[pa.Field] = list(plain.column or ())
    found: list[tuple[pa.Field, list[tuple[int, int]]]] = [(field, [(1, number)]) for number, field in enumerate(own)]
    for class_name, each in (*kind.unregistered, *kind.registered):
        short = class_name.replace("$", ".").rpartition(".")[2]
        part = opaque_part(each)  # other values of the POJO can be decoded
        if part is None or isinstance(part, SubclassBytes):
            case = _layout(each, depth)
        else:
            found_in = f"subclass {class_name}: {whose(part)}"
            case = Unknown(pa.null(), found_in, remedy_for(class_name, kind.class_name))
        if isinstance(case, Unknown) or case.column is None:
            cases.append(case)
            continue
        is_pojo = isinstance(each, PojoOf)
        further = list(case.column) if is_pojo else [field_of(short, case)]
        for number, field in enumerate(further):
            place = len(cases), number if is_pojo else -1
            known = [mine for mine in found if mine[0].name.lower() == field.name.lower()]
            if known and known[0][0].equals(field, check_metadata=True):
                known[0][1].append(place)
            else:
                found.append((field.with_name(f"{short}.{field.name}") if known else field, [place]))
        cases.append(case)
    shown = unique_names([field.name for field, _ in found])
    column = pa.struct([field.with_name(name) for name, (field, _) in zip(shown, found, strict=True)])
    fields = tuple(tuple(places) for _, places in found)
    names = tuple(name for name, _ in kind.unregistered)
    return Branches(column, "pojo", tuple(cases), fields, names, whose=kind.class_name)


def arrow_type(kind: FlinkType) -> pa.DataType:
    """The type of the column of a type of Flink; null for a void type, which has no column.

    Raises UnsupportedError FLINK_UNSUPPORTED for a type that has no column.
    """
    column = layout(kind).column
    return pa.null() if column is None else column


def has_column(kind: FlinkType) -> bool:
    """Return whether a type of Flink has a column; a void type has none. Errors as `arrow_type`."""
    return layout(kind).column is not None


def arrow_field(name: str, kind: FlinkType) -> pa.Field:
    """The field of the column of a type of Flink. Bytes that only the job's classes decode say so in its metadata.

    Errors as `arrow_type`.
    """
    shape = layout(kind)
    return pa.field(name, pa.null()) if shape.column is None else field_of(name, shape)


# Types of Flink SQL, and what its serializers write outside of rows: DecimalDataSerializer, TimestampDataSerializer and
# the others of ``org.apache.flink.table.runtime.typeutils``


def logical_type(kind: Logical, depth: int = 0) -> pa.DataType:
    """The column type of a type of Flink SQL; a row has no field for what is absent.

    Raises UnsupportedError FLINK_UNSUPPORTED for a type that has none.
    """
    if depth > MOST_DEPTH:
        raise unsupported(f"types nested deeper than {MOST_DEPTH}")
    root = kind.root
    if root in _PLAIN:
        return _PLAIN[root]
    if root == "RAW":
        return raw_shape(kind).column or pa.null()
    if root == "ROW":
        names = list(kind.names) or [f"f{number}" for number in range(len(kind.children))]
        members = [each for each in zip(names, kind.children, strict=True) if not is_absent(each[1])]
        new = unique_names([name for name, _ in members])
        return pa.struct([_member(name, child, depth) for name, (_, child) in zip(new, members, strict=True)])
    inner = [logical_type(child, depth + 1) for child in kind.children]
    if root == "DECIMAL" and 0 < kind.precision <= MOST_DIGITS and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        unit = "us" if kind.precision <= MICRO_DIGITS else "ns"
        return pa.timestamp(unit, "UTC" if root == "TIMESTAMP_LTZ" else None)
    if root == "ARRAY" and len(inner) == 1:
        return pa.list_(inner[0])
    if (root == "MAP" and len(inner) == 2) or (root == "MULTISET" and len(inner) == 1):
        key, value = inner if root == "MAP" else (inner[0], pa.int32())
        return pa.list_(pa.struct({"key": key, "value": value})) if kind.names else pa.map_(key, value)
    raise unsupported(f"the SQL type {root}({kind.precision}, {kind.scale}) of {len(inner)} types")


def _member(name: str, kind: Logical, depth: int) -> pa.Field:
    return field_of(name, raw_shape(kind)) if kind.root == "RAW" else pa.field(name, logical_type(kind, depth + 1))


def raw_shape(kind: Logical) -> Shape:
    """The shape of a raw value, which has a frame of its own; `Rest` where it cannot be decoded."""
    if not kind.raw:
        return Rest(pa.binary(), "RawValueData")
    (value,) = kind.raw
    part = opaque_inside(value)
    if part is not None:
        return Rest(pa.binary(), whose(part))
    return with_column(layout(value))


def row_layout(kind: Logical) -> Shape:
    """The shape of a row, without a column where all of it is absent."""
    return Sized(None if is_absent(kind) else logical_type(kind), 1, "row", kind)


def table_layout(kind: Logical) -> Shape:
    """The shape of a value of a serializer of the table runtime."""
    root = kind.root
    if root == "ROW":
        return row_layout(kind)
    column = logical_type(kind)
    if root == "DECIMAL":
        if kind.precision <= COMPACT_DIGITS:
            return Fixed(column, 8, "decimal")
        return Sized(column, 1, "decimal")
    if root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        unit = "micros" if column.unit == "us" else "nanos"
        if kind.precision <= COMPACT_TIME:
            return Fixed(column, 8, "millis")
        return Fixed(column, 12, f"{unit} of table")
    if root == "STRING":
        return Sized(column, 1, "utf-8")
    if root in ("BYTES", "BITMAP"):
        return Sized(column, 1, "bytes")
    if root == "VARIANT":
        return Sized(column, 1, "variant", counted_by=8)
    if root in ("ARRAY", "MAP", "MULTISET"):
        return Sized(column, 1, root.lower(), kind)
    raise unsupported(f"a serializer of the table runtime for {root}")
