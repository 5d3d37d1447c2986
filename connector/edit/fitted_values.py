"""Values that statements compute, as the columns of a state hold them: cast by DuckDB, and refused where they would not
be the same afterwards.

A cast of DuckDB rounds 2.7 to 3, leaves out a field that a struct does not have, and gives null for one that is
missing. Here each of these is an error, which names the column and the value.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa

from statestore.connector.edit.units import one_array
from statestore.connector.identifiers import quoted
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, shown
from statestore.formats.values.exact_cast import retyped
from statestore.formats.values.json_terms import plain
from statestore.formats.values.without_pandas import arrow_numbers, bools

GIVEN, WANTED = "__statestore_given", "__statestore_wanted"
_WHOLE = r"\s*[+-]?[0-9]+\s*"
_NANOSECONDS = r"\.[0-9]{6}[0-9]*[1-9]"
_POINT = r"\s*[+-]?[0-9]*\.?[0-9]*\s*"


def fitted(values: pa.Table, wanted: pa.Schema, state: str, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """Return columns, by their positions, in the types and with the names of ``wanted``.

    Raises InvalidInputError WRONG_VALUE, which names the column, the value and the type.
    """
    columns = [
        _fitted(one_array(column), field, state, connection)
        for column, field in zip(values.columns, wanted, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in wanted]))


def _fitted(column: pa.Array, field: pa.Field, state: str, connection: duckdb.DuckDBPyConnection) -> pa.Array:
    kind = field.type
    if column.type == kind:
        return in_type(column, kind)
    if pa.types.is_null(column.type) or column.null_count == len(column):
        return pa.nulls(len(column), kind)
    what = f"column {field.name!r} of {state!r}"
    _check_shape(column.type, kind, what)
    try:
        connection.register(GIVEN, pa.table({"value": column}))
        connection.register(WANTED, pa.table({"value": pa.nulls(0, kind)}))
        found, cast = _cast_by_duckdb(connection, kind)
    except duckdb.Error as error:
        said = str(error).partition("\n")[0]
        raise InvalidInputError(
            ErrorCode.WRONG_VALUE, f"{what} is {kind}, and is given {column.type}: {said}; cast the value"
        ) from None
    finally:
        connection.unregister(GIVEN)
        connection.unregister(WANTED)
    wrong = np.flatnonzero(found)
    if len(wrong):
        raise _wrong(what, kind, column, int(wrong[0]))
    try:
        return in_type(cast, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidInputError(ErrorCode.WRONG_VALUE, f"{what} is {kind}: {error}; give values that fit") from None
    except pa.ArrowNotImplementedError:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_TYPE, f"{what} is {kind}, which SQL cannot set; put whole rows in Python"
        ) from None


def _wrong(what: str, kind: pa.DataType, column: pa.Array, row: int) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.WRONG_VALUE,
        f"{what} is {kind}, which does not hold {shown(plain(column[row].as_py()))} ({column.type}) as it is; give a "
        "value that fits, or round it with CAST",
    )


def _cast_by_duckdb(connection: duckdb.DuckDBPyConnection, kind: pa.DataType) -> tuple[np.ndarray, pa.Array]:
    """Return which values would change or be lost, and all values in the type ``wanted``."""
    given, wanted = (_type_in(connection, name) for name in (GIVEN, WANTED))
    cast = f"TRY_CAST(value AS {wanted})"
    if given == "VARCHAR" and not pa.types.is_nested(kind):
        lost = _lost_of_text(kind, cast)
    elif wanted == "VARCHAR":
        lost = f"encode({cast}) <> value" if given == "BLOB" else "false"  # other bytes become \xFF
    else:
        lost = f"TRY_CAST({cast} AS {given}) IS DISTINCT FROM value"
    text = f"SELECT value IS NOT NULL AND ({cast} IS NULL OR {lost}) AS lost, {cast} AS fitting FROM {GIVEN}"
    rows: pa.Table = connection.sql(text).to_arrow_table()
    return bools(one_array(rows.column("lost"))), one_array(rows.column("fitting"))


def _type_in(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    return str(connection.execute(f"DESCRIBE {quoted(name)}").fetchall()[0][1])


def _lost_of_text(kind: pa.DataType, cast: str) -> str:
    """Return the condition under which a text is more than the value of a type that DuckDB reads in it."""
    types = pa.types
    if types.is_integer(kind):
        return f"NOT regexp_full_match(value, '{_WHOLE}')"
    if types.is_decimal(kind):
        digits = r"length(rtrim(regexp_extract(value, '\.([0-9]*)', 1), '0'))"
        return f"NOT regexp_full_match(value, '{_POINT}') OR {digits} > {kind.scale}"
    if types.is_date(kind) or types.is_timestamp(kind):
        finer = "TRY_CAST(value AS TIMESTAMP_NS)"
        lost = f"isinf({cast})"  # no engine has such a time
        if types.is_date(kind) or kind.tz is None:
            return f"{lost} OR ({finer} IS NOT NULL AND TRY_CAST({cast} AS TIMESTAMP_NS) <> {finer})"
        return f"{lost} OR regexp_matches(value, '{_NANOSECONDS}')"
    if types.is_floating(kind):
        whole = f"regexp_full_match(value, '{_WHOLE}') AND TRY_CAST({cast} AS HUGEINT) IS DISTINCT FROM "
        return f"({whole} TRY_CAST(value AS HUGEINT)) OR (isinf({cast}) AND regexp_matches(value, '[0-9]'))"
    return "false"


def _check_shape(given: pa.DataType, kind: pa.DataType, what: str) -> None:
    """Raise InvalidInputError WRONG_VALUE for structs, lists and maps that are built in another way, at any depth."""
    types = pa.types
    if types.is_null(given):
        return
    if types.is_struct(kind) and types.is_struct(given):
        names, theirs = [field.name for field in kind], [field.name for field in given]
        if sorted(map(str.lower, names)) != sorted(map(str.lower, theirs)):
            missing = [name for name in names if name.lower() not in map(str.lower, theirs)]
            unknown = [name for name in theirs if name.lower() not in map(str.lower, names)]
            parts = [f"{word} {', '.join(found)}" for word, found in (("lacks", missing), ("has", unknown)) if found]
            raise InvalidInputError(
                ErrorCode.WRONG_VALUE,
                f"{what} is a struct of {', '.join(names)}; the given one {' and '.join(parts) or 'repeats a name'}; "
                "name each field once, and write NULL for none",
            )
        for position, field in enumerate(given):
            inner = kind.field(names[[name.lower() for name in names].index(theirs[position].lower())])
            _check_shape(field.type, inner.type, f"{what}, field {inner.name!r},")
        return
    if _is_list(kind) and _is_list(given):
        _check_shape(given.value_type, kind.value_type, f"{what}, elements,")
        return
    if types.is_map(kind) and types.is_map(given):
        _check_shape(given.key_type, kind.key_type, f"{what}, keys,")
        _check_shape(given.item_type, kind.item_type, f"{what}, values,")
        return
    if types.is_nested(kind) or (types.is_nested(given) and not types.is_null(kind)):
        raise InvalidInputError(ErrorCode.WRONG_VALUE, f"{what} is {kind}, and is given {given}; give such a value")


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def in_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values in a type of the same shape. Raises pa.ArrowInvalid for one that the type cannot hold."""
    if column.type.equals(kind, check_metadata=True):
        return column
    if column.offset:
        column = column.take(arrow_numbers(np.arange(len(column))))
    types = pa.types
    mask = column.is_null() if column.null_count else None
    if types.is_struct(kind):
        members = [in_type(column.field(number), kind.field(number).type) for number in range(kind.num_fields)]
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return pa.StructArray.from_arrays(members, fields=fields, mask=mask)
    if types.is_map(kind):
        keys, items = in_type(column.keys, kind.key_type), in_type(column.items, kind.item_type)
        return pa.MapArray.from_arrays(_offsets(column, mask), keys, items, type=kind)
    if types.is_list(kind) and types.is_list(column.type):
        return pa.ListArray.from_arrays(_offsets(column, mask), in_type(column.values, kind.value_type), type=kind)
    if types.is_dictionary(kind):
        return in_type(column, kind.value_type).dictionary_encode().cast(kind)
    return retyped(column, kind)


def _offsets(column: pa.Array, mask: pa.Array | None) -> pa.Array:
    """Return the offsets of lists or maps; that of a null one is null."""
    offsets = np.asarray(column.offsets)
    if mask is None:
        return arrow_numbers(offsets)
    return pa.array(offsets, mask=np.append(np.asarray(mask), False))


def with_values(column: pa.Array, path: Sequence[str], values: pa.Array) -> pa.Array:
    """Return structs in which a field, at the end of a path, has other values; without a path the values themselves."""
    if not path:
        return values
    names = [field.name for field in column.type]
    if column.offset:
        column = column.take(arrow_numbers(np.arange(len(column))))
    members = [column.field(number) for number in range(len(names))]
    place = names.index(path[0])
    members[place] = with_values(members[place], path[1:], values)
    fields = [column.type.field(number) for number in range(len(names))]
    return pa.StructArray.from_arrays(members, fields=fields, mask=column.is_null() if column.null_count else None)


def with_rows(column: pa.Array, rows: np.ndarray, values: pa.Array) -> pa.Array:
    """Return a column in which some rows have other values, of the same type."""
    if len(rows) == len(column) and (rows == np.arange(len(rows))).all():
        return values
    places = np.arange(len(column))
    places[rows] = len(column) + np.arange(len(rows))
    return pa.concat_arrays([column, values]).take(arrow_numbers(places))
