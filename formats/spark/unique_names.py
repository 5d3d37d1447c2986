"""Struct fields that share a name get numbers: Spark's state has them (sum, sum), DuckDB and Python sources do not."""

from __future__ import annotations

import pyarrow as pa


def unique_fields(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_unique(field.type)) for field in schema])


def _unique(kind: pa.DataType) -> pa.DataType:
    """A struct type in which no two fields have one name, whatever the case: sum, sum_1, sum_2."""
    if not pa.types.is_struct(kind):
        return kind
    taken: set[str] = set()
    fields = []
    for field in kind:
        name, number = field.name, 0
        while name.lower() in taken:
            number += 1
            name = f"{field.name}_{number}"
        taken.add(name.lower())
        fields.append(field.with_name(name))
    return pa.struct(fields)


def renamed(batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = unique_fields(batch.schema)
    if schema.equals(batch.schema):
        return batch
    columns = [
        column if field.type.equals(column.type) else _with_type(column, field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_type(column: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    children = [column.field(i) for i in range(kind.num_fields)]
    missing = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=missing)
