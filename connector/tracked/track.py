"""`track_state_by_key`: a state for each key of a stream, updated by a function; each batch is a version of a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, StructField, StructType

from statestore.catalog.catalog import connect
from statestore.catalog.log.store_locations import is_described, storage_at
from statestore.connector.keyed.keyed_job import Work, make_job, open_keyed, place_of
from statestore.connector.spark.schema import arrow_schema, check_frame_keys
from statestore.connector.supported_spark import check_frame
from statestore.connector.tracked.spec import StateSpec
from statestore.connector.tracked.tracked import Tracked
from statestore.connector.tracked.work import KEY, ColumnCalls, RecordCalls
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.places.locations import Location
from statestore.formats.state_table import column_names
from statestore.formats.table_columns import unknown_row_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def track_state_by_key(
    rows: DataFrame,
    *,
    key: str | Sequence[str],
    spec: StateSpec,
    store: str | Path,
    state_type: Any,
    output_type: Any,
    clock: Callable[[int], datetime] | None = None,
) -> Tracked:
    """Track a state for each key of a stream or DataFrame of Spark.

    `Tracked.start` runs a stream, and `Tracked.run` a DataFrame. Each batch becomes one version of the keyed store at
    ``store``, a path or the URI of a place in an object store, which is created if absent.

    ``key`` names the key columns; the other columns of a row are its value. ``state_type`` is a type ("bigint") or
    columns ("n bigint, last timestamp"), which the function gets as a dict. ``output_type`` lists the columns of
    emitted records; a single type is a column ``value``. ``clock`` returns the time of a batch for its number; the
    default is the time at which the batch is run.

    With `StateSpec.vectorized` the function is called once in each task. It gets ``batch_time`` (a datetime in UTC),
    the distinct ``keys`` (an Array; of structs if there are several columns), ``rows`` (the values, and ``key``: the
    index of the row's key in ``keys``) and ``states`` (``state``, null if there is none, and ``timing_out``). It
    returns the states after the batch, as an Array with one for each key (null: none) or as None to leave all
    unchanged, or it returns a tuple of these states and a RecordBatch of rows to emit.

    The cost of a batch depends on its keys and on those that time out, not on the number of keys with a state.

    Raises InvalidInputError INVALID_OPTION, COLUMN_NOT_FOUND, WRONG_KEY or WRONG_SCHEMA.
    """
    check_frame(rows)
    if not isinstance(spec, StateSpec):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"spec is {spec!r}; expected one made with StateSpec.function(f)"
        )
    place, given = place_of(store), arrow_schema(rows.schema)
    names = list(column_names(key, "key"))
    check_frame_keys(rows.schema, names)
    state, output = parsed_state_type(state_type), _record_schema(output_type)
    values = value_indexes(given, names)
    if spec.form == "columns" and KEY in (given.names[index] for index in values):
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"the rows have a column {KEY!r}; the function gets another column of that name: rename it",
        )
    _create_where_absent(place, given, names)
    with open_keyed(place) as opened:
        job = make_job(opened, place, names, given, output, _work(spec, state, values), "incremental")
        if spec.partitions is not None:
            opened.task_groups(spec.partitions)
    return Tracked(rows, job, spec, state, clock)


def _work(spec: StateSpec, state: pa.DataType, values: tuple[int, ...]) -> Work:
    timeout = None if spec.timeout_ms is None else spec.timeout_ms * 1000
    if spec.form == "columns":
        return ColumnCalls(spec.call, state, timeout, values)
    return RecordCalls(spec.call, spec.form, state, timeout, values)


def value_indexes(rows: pa.Schema, key: Sequence[str]) -> tuple[int, ...]:
    """The positions of the columns that are not key columns. Case is ignored, as in Spark, unless names differ by case
    only."""
    exact = {name for name in key if name in rows.names}
    other = {name.lower() for name in key if name not in exact}
    return tuple(index for index, name in enumerate(rows.names) if name not in exact and name.lower() not in other)


def _create_where_absent(place: Location, rows: pa.Schema, key: Sequence[str]) -> None:
    if is_described(storage_at(place)):
        return
    missing = [name for name in key if name not in rows.names]
    if missing:
        raise unknown_row_column(missing[0], "the rows", rows.names)
    columns = {name: rows.field(name).type for name in key}
    connect(place.parent.uri).create_store(place.name, kind="keyed", key=columns).close()


# Types of states and of emitted records as users give them: one type, or columns with types.

VALUE = "value"


def parsed_state_type(type_: Any) -> pa.DataType:
    """The type of a state: "bigint", or a struct of columns, "n bigint, last timestamp". InvalidInputError
    INVALID_OPTION."""
    schema = _schema(type_, "state_type")
    return schema.field(0).type if schema.names == [VALUE] else pa.struct(list(schema))


def _record_schema(type_: Any) -> pa.Schema:
    """The columns of emitted records; one type is a column ``value``. InvalidInputError INVALID_OPTION."""
    return _schema(type_, "output_type")


def _schema(type_: Any, option: str) -> pa.Schema:
    if isinstance(type_, pa.Schema):
        return type_
    if isinstance(type_, pa.DataType):
        return pa.schema(list(type_) if pa.types.is_struct(type_) else [pa.field(VALUE, type_)])
    kind = _parsed(type_, option) if isinstance(type_, str) else type_
    if isinstance(kind, StructType) and kind.fields:
        return arrow_schema(StructType([StructField(field.name, field.dataType) for field in kind]))
    if isinstance(kind, DataType) and not isinstance(kind, StructType):
        return arrow_schema(StructType([StructField(VALUE, kind)]))
    raise _wrong(type_, option)


def _parsed(text: str, option: str) -> Any:
    try:
        return DataType.fromDDL(text)
    except PySparkException as error:
        raise _wrong(text, option) from error


def _wrong(type_: Any, option: str) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.INVALID_OPTION,
        f'{option} is {type_!r}; expected a type, like "bigint", or columns, like "n bigint, at timestamp"',
    )
