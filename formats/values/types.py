"""Column types: the names users write, the types that keys and values may have, and tables cast to a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, close_matches, shown
from statestore.formats.values.declared_types import declared_type
from statestore.formats.values.exact_cast import cast_exactly
from statestore.formats.values.type_syntax import TypeText, parse_type_text, quoted_field

TIME = pa.timestamp("us", tz="UTC")
DURATION = pa.duration("us")

Role = Literal["key", "value"]

RESERVED_COLUMNS = frozenset(
    {
        "valid_from",
        "valid_to",
        "timestamp",
        "_added",
        "_closed",
        "_split",
        "_dropped",
        "_commit_version",
        "_commit_timestamp",
        "_change_type",
    }
)

SIMPLE_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": TIME,
    "timestamp_ntz": pa.timestamp("us"),
    "interval day to second": DURATION,
}
ALIASES: dict[str, str] = {
    "str": "string",
    "utf8": "string",
    "varchar": "string",
    "bytes": "binary",
    "bool": "boolean",
    "byte": "tinyint",
    "int8": "tinyint",
    "short": "smallint",
    "int16": "smallint",
    "integer": "int",
    "int32": "int",
    "long": "bigint",
    "int64": "bigint",
    "float32": "float",
    "real": "float",
    "float64": "double",
    "date32": "date",
    "timestamp_ltz": "timestamp",
    "duration": "interval day to second",
    "dec": "decimal",
    "numeric": "decimal",
    "decimal128": "decimal",
    "list": "array",
    "date32[day]": "date",
    "timestamp[us, tz=utc]": "timestamp",
    "timestamp[us]": "timestamp_ntz",
    "duration[us]": "interval day to second",
}
PARAMETRIC_TYPES = {
    "decimal": "decimal(10,2)",
    "array": "array<int>",
    "map": "map<string,int>",
    "struct": "struct<a:int,b:string>",
}
_KNOWN = ", ".join([*SIMPLE_TYPES, *PARAMETRIC_TYPES.values()])
_NAMES = {kind: name for name, kind in SIMPLE_TYPES.items()}
_NAMES_OF_ENGINES = {pa.null(): "void", pa.time64("ns"): "time", pa.month_day_nano_interval(): "interval"}


def parse_type(name: str, words: Mapping[str, pa.DataType] | None = None, *, not_null: bool = False) -> pa.DataType:
    """Parse a Spark or Arrow name of a type: ``string``, ``bigint``/``long``/``int64``, ``decimal(10,2)``,
    ``array<int>``, ``map<string,int>``, ``struct<a:int,b:string>``, …

    ``words`` are further names, in lower case, some with numbers: ``time(3)``. With ``not_null``, members of arrays
    and structs may be ``int not null``, which their fields then say. Raises UnsupportedError UNSUPPORTED_TYPE that
    names the nearest known name.
    """
    check_encodable(name, "type")
    try:
        parsed = parse_type_text(name)
        if parsed.not_null:
            raise ValueError("'not null' is out of place")
        return _type_of(parsed, words or {}, not_null)
    except ValueError as error:
        shown = name if len(name) <= 200 else f"{name[:200]}…"
        raise UnsupportedError(ErrorCode.UNSUPPORTED_TYPE, f"type {shown!r}: {error}") from None


def type_name(kind: pa.DataType, words: Mapping[str, pa.DataType] | None = None) -> str:
    """The Spark name that ``parse_type`` reads back. Raises UnsupportedError UNSUPPORTED_TYPE if there is none."""
    return _name(kind, _NAMES | {each: word for word, each in (words or {}).items()}, exact=True)


def shown_field(field: pa.Field) -> str:
    """The name of a field's type as its engine declared it, with collations and intervals; Arrow's where Spark has
    none.
    """
    return _field_name(field, _NAMES | _NAMES_OF_ENGINES, exact=False)


def _field_name(field: pa.Field, names: Mapping[pa.DataType, str], *, exact: bool) -> str:
    declared = None if exact else declared_type(field)
    return _name(field.type, names, exact=exact) if declared is None else declared


def _name(kind: pa.DataType, names: Mapping[pa.DataType, str], *, exact: bool) -> str:
    if kind in names:
        return names[kind]
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{_field_name(kind.value_field, names, exact=exact)}>"
    if pa.types.is_map(kind):
        parts = (_field_name(part, names, exact=exact) for part in (kind.key_field, kind.item_field))
        return f"map<{','.join(parts)}>"
    if pa.types.is_struct(kind):
        fields = (f"{quoted_field(f.name)}:{_field_name(f, names, exact=exact)}" for f in kind)
        return f"struct<{','.join(fields)}>"
    if exact:
        what = f"type {kind} has no name here; expected a type a Spark DataFrame holds"
        raise UnsupportedError(ErrorCode.UNSUPPORTED_TYPE, what)
    return str(kind)


def make_schema(spec: Mapping[str, str | pa.DataType] | pa.Schema, role: Role) -> pa.Schema:
    """Check a store's key or value columns and convert them to the types that segments hold.

    Key columns are not nullable. Value columns and everything nested are. Raises InvalidInputError WRONG_SCHEMA or
    UnsupportedError UNSUPPORTED_TYPE.
    """
    if isinstance(spec, pa.Schema):
        columns: list[tuple[str, Any]] = [(field.name, field.type) for field in spec]
    elif isinstance(spec, Mapping):
        columns = list(spec.items())
    else:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"{role} is {shown(spec)}; expected a dict of column name -> type name, or a pyarrow.Schema",
        )
    if role == "key" and not columns:
        raise InvalidInputError(ErrorCode.WRONG_SCHEMA, "the key has no column; expected at least one")
    fields: list[pa.Field] = []
    for name, given in columns:
        _check_column_name(name, [f.name for f in fields], role)
        kind = parse_type(given) if isinstance(given, str) else given
        if not isinstance(kind, pa.DataType):
            raise InvalidInputError(
                ErrorCode.WRONG_SCHEMA,
                f"{role} column {name!r} has type {shown(given)}; expected a type name or a pyarrow.DataType",
            )
        kind = normal_type(kind, f"{role} column {name!r}")
        if role == "key":
            _check_key_type(kind, name)
        parse_type(type_name(kind))  # refuse now a type that could not be opened again, such as very deep nesting
        fields.append(pa.field(name, kind, nullable=role == "value"))
    return pa.schema(fields)


def normal_type(kind: pa.DataType, what: str) -> pa.DataType:
    """The type that segments hold for ``kind``: one form of each type that a Spark DataFrame holds.

    Raises UnsupportedError UNSUPPORTED_TYPE, naming the type to use instead.
    """
    if kind in _NAMES:
        return kind
    if pa.types.is_dictionary(kind):
        return normal_type(kind.value_type, what)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return TIME if kind.tz else pa.timestamp("us")
    if pa.types.is_duration(kind) and kind.unit != "ns":
        return DURATION
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(normal_type(kind.value_type, f"{what}, element"))
    if pa.types.is_map(kind):
        return pa.map_(
            normal_type(kind.key_type, f"{what}, map key"), normal_type(kind.item_type, f"{what}, map value")
        )
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            raise UnsupportedError(
                ErrorCode.UNSUPPORTED_TYPE, f"{what} is a struct without fields; give it at least one"
            )
        if len({field.name.lower() for field in kind}) < kind.num_fields:
            raise InvalidInputError(
                ErrorCode.WRONG_SCHEMA,
                f"{what} has two struct fields of one name ({kind}; Spark and DuckDB ignore case); rename one",
            )
        return pa.struct([pa.field(f.name, normal_type(f.type, f"{what}.{f.name}")) for f in kind])
    raise UnsupportedError(ErrorCode.UNSUPPORTED_TYPE, f"{what} has type {kind}; {_instead(kind)}")


def schema_to_json(schema: pa.Schema) -> list[dict[str, str]]:
    return [{"name": field.name, "type": type_name(field.type)} for field in schema]


def schema_from_json(columns: list[dict[str, str]]) -> pa.Schema:
    return pa.schema([pa.field(column["name"], parse_type(column["type"])) for column in columns])


Tabular = TypeVar("Tabular", pa.Table, pa.RecordBatch)


def conform(data: Tabular, schema: pa.Schema) -> Tabular:
    """Convert ``data`` to exactly the columns of ``schema``, in order, where no value changes.

    Raises InvalidInputError WRONG_SCHEMA naming columns that are missing, unknown or of another type.
    """
    names = data.schema.names
    missing = [name for name in schema.names if name not in names]
    extra = [name for name in names if name not in schema.names]
    twice = [name for name in schema.names if names.count(name) > 1]
    if missing or extra or twice:
        parts = [("missing", missing), ("unknown", extra), ("given twice", twice)]
        found = "; ".join(f"{label}: {', '.join(columns)}" for label, columns in parts if columns)
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"columns do not match ({found}); found {', '.join(names)}, expected {', '.join(schema.names)}",
        )
    columns = [_cast(data.column(names.index(field.name)), field) for field in schema]
    loose = pa.schema([field.with_nullable(True) for field in schema])
    return type(data).from_arrays(columns, schema=loose)


def _cast(column: Any, field: pa.Field) -> Any:
    try:
        return cast_exactly(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"column {field.name!r} is {column.type}; expected {type_name(field.type)} ({error}); "
            "convert it before writing",
        ) from None


def _check_column_name(name: Any, before: list[str], role: Role) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA, f"{role} column name {shown(name)}; expected a text that is not empty"
        )
    check_encodable(name, f"{role} column name")
    if name.lower() in RESERVED_COLUMNS:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"{role} column {name!r}: the name is reserved ({', '.join(sorted(RESERVED_COLUMNS))}); rename it",
        )
    if name.lower() in map(str.lower, before):
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA, f"{role} column {name!r} is given twice (Spark and DuckDB ignore case); rename one"
        )


def check_encodable(text: str, what: str) -> None:
    """Raise InvalidInputError INVALID_TEXT for half a surrogate pair, which Python allows in text and UTF-8 does
    not.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            ErrorCode.INVALID_TEXT,
            f"{what} is {text!r}, which holds half a surrogate pair; give text that is valid Unicode",
        ) from None


def _check_key_type(kind: pa.DataType, name: str) -> None:
    if pa.types.is_floating(kind) or pa.types.is_map(kind):
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_TYPE,
            f"key column {name!r} holds {type_name(kind)}; floating point numbers and maps have no one equality, "
            "use decimal, string or a list of structs",
        )
    for index in range(kind.num_fields):
        _check_key_type(kind.field(index).type, name)


def _instead(kind: pa.DataType) -> str:
    if pa.types.is_unsigned_integer(kind):
        wider = {8: "smallint", 16: "int", 32: "bigint", 64: "decimal(20,0)"}[kind.bit_width]
        return f"Spark has no unsigned integers, use {wider}"
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return "Spark's times have microseconds, cast it to unit us"
    return "expected a type that a Spark DataFrame holds"


def _type_of(text: TypeText, words: Mapping[str, pa.DataType], not_null: bool = False) -> pa.DataType:
    """Convert a parsed name to a type. Raises ValueError with the problem."""
    name = ALIASES.get(text.name, text.name)
    strict = [member.not_null for _, member in text.members or ()]
    if any(strict) and not (not_null and name in ("array", "struct")):
        raise ValueError(f"{name} has members that are not null, which cannot be said here")
    members = [_type_of(member, words, not_null) for _, member in text.members or ()]
    simple = {**SIMPLE_TYPES, **words}
    if name in simple and not text.numbers and text.members is None:
        return simple[name]
    numbered = f"{name}({','.join(map(str, text.numbers))})"
    if numbered in words and text.members is None:
        return words[numbered]
    if name == "decimal" and text.members is None:
        return _decimal(*(text.numbers or (10,)))
    if name == "array" and len(members) == 1 and not text.numbers:
        return pa.list_(pa.field("item", members[0], nullable=not strict[0]))
    if name == "map" and len(members) == 2 and not text.numbers:
        return pa.map_(*members)
    if name == "struct" and text.members is not None and not text.numbers:
        fields = [field or "" for field, _ in text.members]
        kinds = zip(fields, members, strict, strict=True)
        return pa.struct([pa.field(field, kind, nullable=not cut) for field, kind, cut in kinds])
    if name in (*simple, *PARAMETRIC_TYPES):
        raise ValueError(f"{text.name} is written {PARAMETRIC_TYPES.get(name, name)}")
    close = close_matches(text.name, [*simple, *ALIASES, *PARAMETRIC_TYPES], 3, 0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"expected one of {_KNOWN}"
    raise ValueError(f"{text.name!r} is not a type; {hint}")


def _decimal(precision: int, scale: int = 0, *more: int) -> pa.DataType:
    if more or not 1 <= precision <= 38 or scale > precision:
        raise ValueError("a decimal has a precision from 1 to 38 and a scale up to the precision")
    return pa.decimal128(precision, scale)
