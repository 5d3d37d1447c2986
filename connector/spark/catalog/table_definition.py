"""CREATE TABLE: the kind, key and options of a store from the properties of a statement.

    CREATE TABLE state.prices (item STRING, price DOUBLE) USING statestore
    TBLPROPERTIES (key = 'item', history_retention = '30 days')

``kind`` is versioned by default, ``key`` are the names of the key columns separated by commas, and the other properties
are the options of `Catalog.create_store`. A column ``valid_from``, or the one that property ``time`` names, is the
state time and no value: a query of CREATE TABLE AS SELECT fills it. Columns that every table of the kind has, such as
``valid_to`` and ``window_start``, may be stated, as SHOW CREATE TABLE does.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
    VariantType,
)

from statestore.catalog.catalog import connect
from statestore.catalog.log.store_spec import KINDS, StoreSpec, Windowing, window_columns
from statestore.catalog.stores.kind_options import OPTIONS
from statestore.connector.spark.catalog.written_table import COMPUTED, END, RECORD_TIME, STATE_TIME, Target
from statestore.connector.spark.schema import arrow_schema, is_collated
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError

_PROVIDERS = ("statestore", "arrow_statestore")
_IGNORED = ("provider", "owner", "comment", "is_managed_location", "table_type")
_ELSEWHERE = ("location", "external", "path")
_NUMBERS = ("key_groups", "num_segments")
_FLAGS = ("retain_duplicates", "time_ordered", "batched_changelog")


@dataclass(frozen=True)
class Definition:
    """Arguments of `Catalog.create_store`, and the name of the column with the state time, if there is one."""

    kind: str
    key: pa.Schema
    value: pa.Schema
    options: Mapping[str, Any]
    time: str | None


def definition_of(name: str, schema: StructType, given: Mapping[str, str]) -> Definition:
    """The store that a statement describes.

    Raises UnsupportedError UNSUPPORTED_KIND for another provider, InvalidInputError MISSING_OPTION, UNKNOWN_OPTION,
    INVALID_OPTION or WRONG_SCHEMA.
    """
    properties = _properties(given)
    provider = given.get("provider", _PROVIDERS[0]).lower()
    if provider not in _PROVIDERS:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_STATEMENT, f"USING {provider}: this catalog holds stores; write USING statestore"
        )
    kind = properties.pop("kind", "versioned").lower()
    if kind not in KINDS or kind == "keyed":
        possible = ", ".join(each for each in KINDS if each != "keyed")
        raise UnsupportedError(ErrorCode.UNSUPPORTED_KIND, f"kind {kind!r}; a table in SQL is one of {possible}")
    _check_place(name, properties)
    time = _time_column(schema, properties.pop("time", None), kind)
    _check_columns(schema)
    own = _own_columns(kind, time)
    columns = [field for field in schema if own.get(field.name) != field.dataType.simpleString()]
    key = _key(name, properties.pop("key", None), columns)
    rest = StructType([field for field in columns if field.name not in key])
    keys = StructType([next(field for field in columns if field.name == each) for each in key])
    for field in rest:
        if not field.nullable:
            raise InvalidInputError(
                ErrorCode.WRONG_SCHEMA,
                f"column {field.name!r} is NOT NULL, which a value of a store cannot be; leave NOT NULL out",
            )
    return Definition(kind, arrow_schema(keys), arrow_schema(rest), _options(kind, properties), time)


def create_store(path: str, name: str, definition: Definition) -> None:
    """Create the store in the warehouse at a path."""
    made = connect(path).create_store(
        name, definition.kind, key=definition.key, value=definition.value, **definition.options
    )
    made.close()


def created_target(path: str, schema: StructType, definition: Definition) -> Target:
    """The new store as the target of the query of CREATE TABLE AS SELECT: its columns as the statement has them."""
    return Target(path, schema, {} if definition.time is None else {definition.time: RECORD_TIME})


def check_query(columns: Sequence[str], definition: Definition) -> None:
    """Raise InvalidInputError WRONG_SCHEMA for the columns of a query that CREATE TABLE AS SELECT cannot write."""
    written = [definition.time or STATE_TIME] if definition.kind == "versioned" else []
    own = [name for name in _own_columns(definition.kind, definition.time) if name not in written]
    written += [name for name in own if name not in (STATE_TIME, *COMPUTED)]
    extra = [name for name in columns if name in own and name not in written]
    if extra:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"the query has {', '.join(extra)}, which a {definition.kind} table computes itself; write SELECT * EXCEPT "
            f"({', '.join(extra)}), or name the columns {', '.join(_written(definition, written))}",
        )
    missing = [name for name in written if name not in columns]
    if missing and definition.kind == "versioned":
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"the query has no column {STATE_TIME}, the time from which on each row is valid; select one, such as "
            f"current_timestamp() AS {STATE_TIME}, or name it with the property time, or make a table of property "
            "kind = 'key_value'",
        )
    if missing:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"the query has no column {' and no '.join(missing)}, which the rows of a {definition.kind} table need; "
            "select it",
        )


def _written(definition: Definition, own: Sequence[str]) -> list[str]:
    return [*definition.key.names, *definition.value.names, *own]


def _own_columns(kind: str, time: str | None) -> dict[str, str]:
    """The columns that a table of a kind has besides key and value, with their types in Spark.

    The columns of a versioned table are its own if the statement has a state time.
    """
    if kind == "versioned":
        return {} if time is None else {time: "timestamp", END: "timestamp"}
    added = window_columns(kind, Windowing(0, 0, duplicates=True))
    found = {each.name: "int" if pa.types.is_integer(each.type) else "timestamp" for each in added}
    return {**found, STATE_TIME: "timestamp", END: "timestamp"}


def properties_of(spec: StoreSpec) -> dict[str, str]:
    """The properties that DESCRIBE EXTENDED shows, as CREATE TABLE takes them. Durations are milliseconds."""
    shown: dict[str, Any] = {
        "provider": _PROVIDERS[0],
        "kind": spec.kind,
        "key": ",".join(spec.user_key.names),
        "serde": spec.serde,
        "key_groups": spec.key_groups,
        "history_retention": spec.history_retention,
        "segment_interval": spec.segment_interval,
    }
    if spec.windowing is not None:
        windows = spec.windowing
        stated = {
            "retention": windows.retention,
            "segment_interval": windows.segment_interval,
            "window_size": windows.window_size,
            "window_before": windows.before,
            "window_after": windows.after,
            "num_segments": windows.segments,
            "retain_duplicates": windows.duplicates or None,
            "time_ordered": windows.time_ordered or None,
            "batched_changelog": windows.batched_changelog or None,
        }
        shown |= {name: value for name, value in stated.items() if name in OPTIONS[spec.kind]}
    return {name: "true" if value is True else str(value) for name, value in shown.items() if value is not None}


def _properties(given: Mapping[str, str]) -> dict[str, str]:
    """The properties by lower-case name, without those that Spark adds. OPTIONS arrive as ``option.name`` as well."""
    found: dict[str, str] = {}
    for name, value in given.items():
        lowered = name.lower().removeprefix("option.")
        if lowered not in _IGNORED:
            found[lowered] = value
    return found


def _check_place(name: str, properties: Mapping[str, str]) -> None:
    stated = next((each for each in _ELSEWHERE if each in properties), None)
    if stated is not None:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_STATEMENT,
            f"table {name!r}: leave out {stated.upper()}; the tables of a catalog are in its directory, and another "
            "directory is registered under another name",
        )


def _check_columns(schema: StructType) -> None:
    """Raise UnsupportedError UNSUPPORTED_TYPE for values that a store would not give back or compare as Spark does."""
    for field in schema:
        if is_collated(field.dataType) or isinstance(field.dataType, CharType | VarcharType):
            raise UnsupportedError(
                ErrorCode.UNSUPPORTED_TYPE,
                f"column {field.name!r} is {field.dataType.simpleString()}; a store compares texts byte by byte and "
                "keeps them at any length, so write string",
            )
        if _has_variants(field.dataType):
            raise UnsupportedError(
                ErrorCode.UNSUPPORTED_TYPE,
                f"column {field.name!r} is {field.dataType.simpleString()}; a store keeps no variants, so write "
                "string, and to_json of the values",
            )


def _has_variants(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_variants(kind.elementType)
    if isinstance(kind, MapType):
        return _has_variants(kind.valueType)  # no key of a map is one
    if isinstance(kind, StructType):
        return any(_has_variants(field.dataType) for field in kind)
    return isinstance(kind, VariantType)


def _time_column(schema: StructType, stated: str | None, kind: str) -> str | None:
    names = schema.names
    if stated is not None and stated not in names:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"time is {stated!r}; expected one of the columns {', '.join(names)}"
        )
    name = stated if stated is not None else next((each for each in (STATE_TIME, RECORD_TIME) if each in names), None)
    if name is None or kind != "versioned":
        return None
    if not isinstance(schema[name].dataType, TimestampType):
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"column {name!r}, the state time, is {schema[name].dataType.simpleString()}; expected timestamp",
        )
    return name


def _key(name: str, stated: str | None, columns: list[StructField]) -> list[str]:
    names = [field.name for field in columns]
    if stated is None:
        raise InvalidInputError(
            ErrorCode.MISSING_OPTION,
            f"table {name!r} needs a key: add TBLPROPERTIES (key = '{names[0] if names else 'item'}'), with the names "
            "of the key columns separated by commas; for a DataFrame, writeTo(…).tableProperty('key', …).create()",
        )
    key = [part.strip() for part in stated.split(",")]
    for part in key:
        if part not in names:
            near = difflib.get_close_matches(part, names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
            raise InvalidInputError(ErrorCode.INVALID_OPTION, f"key names {part!r}, which is no column; {hint}")
    return key


def _options(kind: str, properties: Mapping[str, str]) -> dict[str, Any]:
    known = ("serde", "key_groups", *OPTIONS[kind])
    options: dict[str, Any] = {}
    for name, text in properties.items():
        if name not in known:
            near = difflib.get_close_matches(name, (*known, "kind", "key", "time"), 1)
            hint = f"did you mean {near[0]}?" if near else f"there are kind, key, time, {', '.join(known)}"
            raise InvalidInputError(
                ErrorCode.UNKNOWN_OPTION, f"property {name!r} does not exist for a {kind} table; {hint}"
            )
        options[name] = _value(name, text)
    return options


def _value(name: str, text: str) -> Any:
    if name in _NUMBERS or (name not in _FLAGS and text.strip().isdecimal()):
        try:
            return int(text)
        except ValueError:
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION, f"property {name} is {text!r}; expected a whole number"
            ) from None
    if name in _FLAGS:
        if text.strip().lower() not in ("true", "false"):
            raise InvalidInputError(ErrorCode.INVALID_OPTION, f"property {name} is {text!r}; expected true or false")
        return text.strip().lower() == "true"
    return text
