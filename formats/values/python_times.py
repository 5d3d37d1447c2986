"""Times that Python does not have, with nanoseconds or outside the years 1 to 9999, as columns that Python's values can
show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.places.interrupts import held_back
from statestore.formats.values.exact_cast import retyped
from statestore.formats.values.types import TIME


def python_values(column: pa.Array) -> list[Any]:
    """The values of a column; all of them as DuckDB's text if a time among them is outside the years of Python."""
    shown = python_column(column)
    try:
        return _listed(shown)
    except (OverflowError, ValueError):
        pass
    import duckdb

    try:
        return list(_text_of_duckdb(shown).to_pylist())
    except duckdb.Error:  # DuckDB counts microseconds in 64 bits, which end within the years that Arrow holds
        return list(retyped(column, with_parts(column.type, _counted)).to_pylist())


def python_rows(batch: pa.RecordBatch, subject: str) -> list[dict[str, Any]]:
    """The rows of a batch as Python's values.

    Raises UnsupportedError TIME_OUT_OF_RANGE, which names the column, for a time that Python's datetime cannot hold.
    """
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            columns.append(_listed(_exact(column)))
        except (OverflowError, ValueError) as error:
            raise UnsupportedError(
                ErrorCode.TIME_OUT_OF_RANGE,
                f"column {name} of {subject} has the time {python_values(column)[0]}, which Python's datetime cannot "
                "hold: it has microseconds and the years 1 to 9999; read the row with scan(), or with SQL",
            ) from error
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _listed(column: pa.Array) -> list[Any]:
    """The values of a column as `to_pylist` has them, which loads pandas for a time in a zone."""
    if column.type != TIME:
        return list(column.to_pylist())
    try:
        zone = ZoneInfo("UTC")
    except ZoneInfoNotFoundError:  # a machine without time zones
        return list(column.to_pylist())
    return [None if time is None else time.replace(tzinfo=zone) for time in column.cast(pa.timestamp("us")).to_pylist()]


def _exact(column: pa.Array) -> pa.Array:
    """The column with nanoseconds as microseconds if these hold every one, else as it is, which pandas can hold."""
    try:
        exact: pa.Array = retyped(column, with_parts(column.type, _microseconds))
    except pa.ArrowInvalid:
        return column
    return exact


def _counted(kind: pa.DataType) -> pa.DataType | None:
    """Times and dates as numbers of their units since 1970."""
    return pa.int64() if pa.types.is_timestamp(kind) else pa.int32() if pa.types.is_date32(kind) else None


def _text_of_duckdb(column: pa.Array) -> pa.ChunkedArray:
    """Texts like 0044-03-15 (BC) and infinity. Arrow has none for years beyond 32767, and wrong ones for some."""
    with held_back():
        import duckdb

        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            rows = connection.from_arrow(pa.table({"shown": column}))
            return rows.project("shown::VARCHAR AS shown").to_arrow_table().column("shown")


def python_column(column: pa.Array) -> pa.Array:
    """The column with its times in microseconds if these hold every one exactly, else with all of them as text."""
    if with_parts(column.type, _microseconds) == column.type:
        return column
    try:
        return column.cast(with_parts(column.type, _microseconds))
    except pa.ArrowInvalid:
        return column.cast(with_parts(column.type, lambda kind: pa.string() if _microseconds(kind) else None))


def _microseconds(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    return pa.time64("us") if pa.types.is_time64(kind) and kind.unit == "ns" else None


def with_parts(kind: pa.DataType, changed: Callable[[pa.DataType], pa.DataType | None]) -> pa.DataType:
    """Return the type with those in it replaced for which ``changed`` returns one."""
    new = changed(kind)
    if new is not None:
        return new
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(with_parts(field.type, changed)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(with_parts(kind.key_type, changed), with_parts(kind.item_type, changed))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(with_parts(kind.value_type, changed)))
    return kind
