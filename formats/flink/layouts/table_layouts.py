"""Column types of Flink SQL's types, and the shapes of values that its serializers write outside of rows.

Source: ``org.apache.flink.table.runtime.typeutils``: DecimalDataSerializer, TimestampDataSerializer,
StringDataSerializer, ArrayDataSerializer, MapDataSerializer, RawValueDataSerializer.
"""

from __future__ import annotations

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.layouts.shapes import MOST_DIGITS, Fixed, Shape, Sized
from statestore.formats.flink.serializers.flink_types import MOST_DEPTH, Logical
from statestore.formats.values.unique_names import unique_names

COMPACT_DIGITS = 18
COMPACT_TIME = 3
_MICRO_DIGITS = 6
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
    "RAW": pa.binary(),
}


def logical_type(kind: Logical, depth: int = 0) -> pa.DataType:
    """The column type of a type of Flink SQL. Raises UnsupportedError FLINK_UNSUPPORTED for one that has none."""
    if depth > MOST_DEPTH:
        raise _unsupported(f"types nested deeper than {MOST_DEPTH}")
    inner = [logical_type(child, depth + 1) for child in kind.children]
    root = kind.root
    if root in _PLAIN:
        return _PLAIN[root]
    if root == "DECIMAL" and 0 < kind.precision <= MOST_DIGITS and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        unit = "us" if kind.precision <= _MICRO_DIGITS else "ns"
        return pa.timestamp(unit, "UTC" if root == "TIMESTAMP_LTZ" else None)
    if root == "ARRAY" and len(inner) == 1:
        return pa.list_(inner[0])
    if root == "MAP" and len(inner) == 2:
        return pa.map_(inner[0], inner[1])
    if root == "MULTISET" and len(inner) == 1:
        return pa.map_(inner[0], pa.int32())
    if root == "ROW":
        given = list(kind.names) or [f"f{number}" for number in range(len(inner))]
        return pa.struct([pa.field(name, each) for name, each in zip(unique_names(given), inner, strict=True)])
    raise _unsupported(f"the SQL type {root}({kind.precision}, {kind.scale}) of {len(inner)} types")


def table_layout(kind: Logical) -> Shape:
    """The shape of a value of a serializer of the table runtime."""
    column, root = logical_type(kind), kind.root
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
    if root in ("BYTES", "RAW"):
        return Sized(column, 1, "bytes")
    if root in ("ARRAY", "MAP", "MULTISET", "ROW"):
        return Sized(column, 1, root.lower(), kind)
    raise _unsupported(f"a serializer of the table runtime for {root}")


def _unsupported(what: str) -> UnsupportedError:
    return UnsupportedError(
        ErrorCode.FLINK_UNSUPPORTED, f"state of Flink with {what}, which cannot be read; read the other columns"
    )
