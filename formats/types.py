"""Column types: the names users write, what a key and a value may hold, and tables brought to a schema."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.errors import InvalidInputError, UnsupportedError

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
        "__live",
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
}
_NAMES = {kind: name for name, kind in SIMPLE_TYPES.items()}


def parse_type(name: str) -> pa.DataType:
    """The type of a Spark or Arrow name: ``string``, ``bigint``/``long``/``int64``, ``decimal(10,2)``,
    ``array<int>``, ``map<string,int>``, ``struct<a:int,b:string>``, …

    Raises UnsupportedError UNSUPPORTED_TYPE that names the nearest known name.
    """
    text = " ".join(name.split())
    lowered = text.lower()
    if lowered in SIMPLE_TYPES or lowered in ALIASES:
        return SIMPLE_TYPES[ALIASES.get(lowered, lowered)]
    head, bracket, inside = text.partition("<")
    if bracket and inside.endswith(">"):
        return _parse_nested(name, head.strip().lower(), inside[:-1])
    head, bracket, inside = lowered.partition("(")
    if head.strip() in ("decimal", "dec", "numeric") and (not bracket or inside.endswith(")")):
        return _parse_decimal(name, inside[:-1] if bracket else "10,0")
    raise _unknown(name)


def type_name(kind: pa.DataType) -> str:
    """The Spark name that ``parse_type`` reads back."""
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{_quoted(f.name)}:{type_name(f.type)}' for f in kind)}>"
    raise UnsupportedError("UNSUPPORTED_TYPE", f"type {kind} has no name here; expected a type a Spark DataFrame holds")


def make_schema(spec: Mapping[str, str | pa.DataType] | pa.Schema, role: Role) -> pa.Schema:
    """A store's key or value columns, checked and brought to the types that segments hold.

    Key columns are not nullable, value columns and everything nested are. Raises InvalidInputError WRONG_SCHEMA or
    UnsupportedError UNSUPPORTED_TYPE.
    """
    if isinstance(spec, pa.Schema):
        columns: list[tuple[str, Any]] = [(field.name, field.type) for field in spec]
    elif isinstance(spec, Mapping):
        columns = list(spec.items())
    else:
        raise InvalidInputError(
            "WRONG_SCHEMA", f"{role} is {spec!r}; expected a dict of column name -> type name, or a pyarrow.Schema"
        )
    if role == "key" and not columns:
        raise InvalidInputError("WRONG_SCHEMA", "the key has no column; expected at least one")
    fields: list[pa.Field] = []
    for name, given in columns:
        _check_column_name(name, [f.name for f in fields], role)
        kind = parse_type(given) if isinstance(given, str) else given
        if not isinstance(kind, pa.DataType):
            raise InvalidInputError(
                "WRONG_SCHEMA", f"{role} column {name!r} has type {given!r}; expected a type name or a pyarrow.DataType"
            )
        kind = normal_type(kind, f"{role} column {name!r}")
        if role == "key":
            _check_key_type(kind, name)
        fields.append(pa.field(name, kind, nullable=role == "value"))
    return pa.schema(fields)


def normal_type(kind: pa.DataType, what: str) -> pa.DataType:
    """The type segments hold for ``kind``: one spelling of each type a Spark DataFrame holds.

    Raises UnsupportedError UNSUPPORTED_TYPE saying what to use instead.
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
        names = [field.name for field in kind]
        if len(set(names)) < len(names):
            raise InvalidInputError("WRONG_SCHEMA", f"{what} has two struct fields of one name ({kind}); rename one")
        return pa.struct([pa.field(f.name, normal_type(f.type, f"{what}.{f.name}")) for f in kind])
    raise UnsupportedError("UNSUPPORTED_TYPE", f"{what} has type {kind}; {_instead(kind)}")


def schema_to_json(schema: pa.Schema) -> list[dict[str, str]]:
    return [{"name": field.name, "type": type_name(field.type)} for field in schema]


def schema_from_json(columns: list[dict[str, str]]) -> pa.Schema:
    return pa.schema([pa.field(column["name"], parse_type(column["type"])) for column in columns])


Tabular = TypeVar("Tabular", pa.Table, pa.RecordBatch)


def conform(data: Tabular, schema: pa.Schema) -> Tabular:
    """``data`` with exactly the columns of ``schema``, in order, where that loses nothing.

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
            "WRONG_SCHEMA",
            f"columns do not match ({found}); found {', '.join(names)}, expected {', '.join(schema.names)}",
        )
    columns = [_cast(data.column(names.index(field.name)), field) for field in schema]
    loose = pa.schema([field.with_nullable(True) for field in schema])
    return type(data).from_arrays(columns, schema=loose)


def _cast(column: Any, field: pa.Field) -> Any:
    if column.type == field.type:
        return column
    try:
        if normal_type(column.type, field.name) == field.type or _widens(column.type, field.type):
            return pc.cast(column, field.type, safe=True)
    except (UnsupportedError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = f" ({error})"
    else:
        reason = ""
    raise InvalidInputError(
        "WRONG_SCHEMA",
        f"column {field.name!r} is {column.type}; expected {type_name(field.type)}{reason}; convert it before writing",
    )


def _widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """True if every value of ``given`` is a value of ``wanted``, or the safe cast finds the one that is not."""
    if pa.types.is_null(given):
        return True
    if pa.types.is_integer(given):
        return bool(pa.types.is_integer(wanted) or pa.types.is_decimal(wanted) or pa.types.is_float64(wanted))
    if pa.types.is_float32(given):
        return bool(pa.types.is_float64(wanted))
    if pa.types.is_decimal(given):
        return bool(pa.types.is_decimal(wanted))
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        return bool((given.tz is None) == (wanted.tz is None))
    if pa.types.is_list(given) and pa.types.is_list(wanted):
        return given.value_type == wanted.value_type or _widens(given.value_type, wanted.value_type)
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        return [f.name for f in given] == [f.name for f in wanted] and all(
            a.type == b.type or _widens(a.type, b.type) for a, b in zip(given, wanted, strict=True)
        )
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        pairs = ((given.key_type, wanted.key_type), (given.item_type, wanted.item_type))
        return all(a == b or _widens(a, b) for a, b in pairs)
    return False


def _check_column_name(name: Any, before: list[str], role: Role) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidInputError("WRONG_SCHEMA", f"{role} column name {name!r}; expected a text that is not empty")
    if name in RESERVED_COLUMNS:
        raise InvalidInputError(
            "WRONG_SCHEMA",
            f"{role} column {name!r}: the name is reserved ({', '.join(sorted(RESERVED_COLUMNS))}); rename it",
        )
    if name in before:
        raise InvalidInputError("WRONG_SCHEMA", f"{role} column {name!r} is given twice; rename one")


def _check_key_type(kind: pa.DataType, name: str) -> None:
    if pa.types.is_floating(kind) or pa.types.is_map(kind):
        raise UnsupportedError(
            "UNSUPPORTED_TYPE",
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


def _parse_decimal(name: str, inside: str) -> pa.DataType:
    parts = [part.strip() for part in inside.split(",")]
    if len(parts) > 2 or not all(part.isdigit() for part in parts):
        raise _unknown(name)
    precision, scale = int(parts[0]), int(parts[1]) if len(parts) == 2 else 0
    if not 1 <= precision <= 38 or scale > precision:
        raise UnsupportedError(
            "UNSUPPORTED_TYPE", f"type {name!r}; expected a precision from 1 to 38 and a scale up to the precision"
        )
    return pa.decimal128(precision, scale)


def _parse_nested(name: str, head: str, inside: str) -> pa.DataType:
    parts = _split_top(inside)
    if head in ("array", "list") and len(parts) == 1:
        return pa.list_(parse_type(parts[0]))
    if head == "map" and len(parts) == 2:
        return pa.map_(parse_type(parts[0]), parse_type(parts[1]))
    if head == "struct":
        fields = [_split_field(name, part) for part in parts if part.strip()]
        return pa.struct([pa.field(field, parse_type(kind)) for field, kind in fields])
    raise _unknown(name)


def _split_top(text: str) -> list[str]:
    """Parts between the commas that are not inside brackets or backquotes."""
    parts, depth, quoted, start = [], 0, False, 0
    for position, sign in enumerate(text):
        if sign == "`":
            quoted = not quoted
        elif quoted:
            continue
        elif sign in "<(":
            depth += 1
        elif sign in ">)":
            depth -= 1
        elif sign == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def _split_field(name: str, part: str) -> tuple[str, str]:
    part = part.strip()
    if part.startswith("`"):
        end = 1
        while end < len(part) and not (part[end] == "`" and part[end : end + 2] != "``"):
            end += 2 if part[end] == "`" else 1
        return part[1:end].replace("``", "`"), part[end + 1 :].strip().removeprefix(":")
    field, colon, kind = part.partition(":")
    if not colon:
        field, _, kind = part.partition(" ")
    if not field.strip() or not kind.strip():
        raise _unknown(name)
    return field.strip(), kind


def _quoted(field: str) -> str:
    plain = field.replace("_", "a").isalnum() and field.isascii()
    return field if plain else "`" + field.replace("`", "``") + "`"


def _unknown(name: str) -> UnsupportedError:
    known = [*SIMPLE_TYPES, *ALIASES, "decimal(10,2)", "array<int>", "map<string,int>", "struct<a:int>"]
    close = difflib.get_close_matches(name.lower(), known, 3, 0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"expected one of {', '.join(SIMPLE_TYPES)}, …"
    return UnsupportedError("UNSUPPORTED_TYPE", f"type {name!r} is not known; {hint}")
