"""Arrow columns as rows in Avro, field after field: the inverse of ``avro_row``, which describes the layout.

Arrays and maps are one block, as Avro's own encoder writes them. Values have the schema that is in use now, also in
place of rows that an earlier one wrote. Raises UnsupportedError EDIT_UNSUPPORTED and InvalidInputError EDIT_REFUSED.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.byte_parts import (
    Part,
    cells_of_groups,
    joined_parts,
    number_cells,
    spread_cells,
    zig_zag_cells,
)
from statestore.formats.kernels.arrays import Ints
from statestore.formats.spark.checkpoint.spark_schema import (
    BINARY,
    STRING,
    TIME,
    VOID,
    ArrayOf,
    DecimalOf,
    MapOf,
    Plain,
    SparkType,
    StructOf,
    arrow_type,
)
from statestore.formats.spark.checkpoint.state_errors import not_editable, refused
from statestore.formats.spark.rows.avro_row import decimal_bytes
from statestore.formats.spark.rows.unsafe_row_encoding import RowParts, refuse_nulls
from statestore.formats.spark.rows.value_encoding import (
    null_mask,
    of_bytes,
    offsets_of,
    plain_numbers,
    text_cells,
    unscaled_of,
    without_null_cells,
)

_BRANCH_OF_TYPE = b"\2"  # 1, zig-zag
_END = b"\0"  # the count of 0 behind the last block


def record_parts(columns: Sequence[pa.Array], schema: StructOf, rows: int) -> list[Part]:
    """The parts of records without a schema id."""
    parts: list[Part] = []
    for field, column in zip(schema.fields, columns, strict=True):
        if column.null_count:
            refuse_nulls(field.name, field.type, field.nullable)
        parts += _nullable(field.type, column)
    return parts


def ordering_parts(columns: Sequence[pa.Array], schema: StructOf, rows: int) -> list[Part]:
    """The parts of ordering columns of range keys: the marker of each, and its value, as two fields."""
    pairs = StructOf(tuple(replace(field, type=BINARY) for field in schema.fields for _ in ("marker", "value")))
    found = []
    for column in columns:
        cells = cells_of(column)
        one = np.ones(rows, np.int64)
        found += [Cells(cells.data, cells.start, one).copied(), cells.cut(1).copied()]
    return record_parts(found, pairs, rows)


def with_id(schema_id: int) -> RowParts:
    """The encoder of records that begin with the id of their schema."""
    front = schema_id.to_bytes(2, "little", signed=True)

    def parts(columns: Sequence[pa.Array], schema: StructOf, rows: int) -> list[Part]:
        return [front, *record_parts(columns, schema, rows)]

    return parts


def _nullable(kind: SparkType, column: pa.Array) -> list[Part]:
    """The parts of a union of null and a type."""
    if kind == VOID:
        return []
    nulls = null_mask(column)
    if nulls is None:
        return [_BRANCH_OF_TYPE, *_values(kind, column)]
    branch = np.where(nulls, np.uint8(0), np.uint8(_BRANCH_OF_TYPE[0]))
    present = without_null_cells(column)
    values = joined_parts(_values(kind, present), len(present))
    return [number_cells(branch), spread_cells(values, nulls)]


def _values(kind: SparkType, column: pa.Array) -> list[Part]:
    """The parts of values of which none is null."""
    if isinstance(kind, StructOf):
        return record_parts([column.field(number) for number in range(len(kind.fields))], kind, len(column))
    if isinstance(kind, ArrayOf) and len(column):
        offsets, first = offsets_of(column)
        return _block([kind.element], [column.values.slice(first, int(offsets[-1]))], offsets)
    if isinstance(kind, MapOf) and kind.key == STRING and len(column):
        offsets, first = offsets_of(column)
        items = [part.slice(first, int(offsets[-1])) for part in (column.keys, column.items)]
        return _block([kind.key, kind.value], items, offsets)
    if isinstance(kind, DecimalOf):
        return [of_bytes(unscaled_of(column), decimal_bytes(kind.precision))]
    if kind in (STRING, BINARY):
        cells = text_cells(column) if kind == STRING else cells_of(column)
        return [zig_zag_cells(cells.size), cells]
    if isinstance(kind, Plain) and kind.form is not None and kind != TIME:
        numbers = plain_numbers(kind, column)
        return [number_cells(numbers) if kind.form[1] in "fu" else zig_zag_cells(numbers.astype(np.int64))]
    if not len(column):
        return [b""]
    raise not_editable(
        f"a value of type {arrow_type(kind)} in Avro; expected numbers, text, binary, times, structs, arrays "
        "or maps of text: leave such rows as they are"
    )


def _block(kinds: list[SparkType], columns: list[pa.Array], offsets: Ints) -> list[Part]:
    """The parts of arrays or maps: the count of their entries, and these, if there are any; then the end."""
    counts = np.diff(offsets)
    parts: list[Part] = []
    for kind, column in zip(kinds, columns, strict=True):
        if isinstance(kind, StructOf | ArrayOf | MapOf):
            parts += _nullable(kind, column)
            continue
        if column.null_count or kind == VOID:
            raise refused(
                f"found null in an array or map of {arrow_type(kind)}, which has no form in Avro; give values"
            )
        parts += _values(kind, column)
    items = cells_of_groups(joined_parts(parts, len(columns[0])), offsets)
    has = counts > 0
    count = spread_cells(zig_zag_cells(counts[has]), ~has)
    return [count, items, _END]
