"""Numbers for struct fields that share a name: Spark's state has them (sum, sum), DuckDB and Python sources do not."""

from __future__ import annotations

import pyarrow as pa


def unique_fields(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_unique(field.type)) for field in schema])


def _unique(kind: pa.DataType) -> pa.DataType:
    """A type in whose structs no two fields have one name, ignoring case: sum, sum_1, sum_2."""
    if pa.types.is_map(kind):
        key, item = (field.with_type(_unique(field.type)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_unique(kind.value_type)))
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
        fields.append(field.with_name(name).with_type(_unique(field.type)))
    return pa.struct(fields)


def renamed(batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = unique_fields(batch.schema)
    if schema.equals(batch.schema):
        return batch
    columns = [_with_type(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Rename the fields of values; only the levels around renamed fields are made anew."""
    if kind.equals(column.type):
        return column
    if pa.types.is_struct(kind):
        children = [_with_type(column.field(number), field.type) for number, field in enumerate(kind)]
        missing = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=missing)
    if pa.types.is_map(kind):
        parts = [_with_type(column.keys, kind.key_type), _with_type(column.items, kind.item_type)]
        inside = pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field])
    else:
        inside = _with_type(column.values, kind.value_type)
    own_buffers = column.buffers()[:2]
    return pa.Array.from_buffers(kind, len(column), own_buffers, offset=column.offset, children=[inside])
