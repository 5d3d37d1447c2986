"""Encoding of the shown columns of a state view to stored bytes: the inverse of ``state_columns``.

    encoded = encode_rows(checkpoint, state_view, rows)   # rows with the columns of the view, without partition_id
    encoded.partition, encoded.keys, encoded.values

Rows that were decoded are encoded to the bytes from which they came, but for these, which are read alike:

- Where Spark sets a calendar interval to null in a row that it has, the old value stays behind the slots. Zeros are
  written, as in a new row.
- Rows of transformWithState in Avro are written with the newest schema of their variable.
- Values that Spark before 2.3 wrote have four bytes more, which nothing reads.

A text with U+FFFD, which is shown for bytes that are no UTF-8, is refused, as is a null in a field that the schema
calls not nullable.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.byte_parts import (
    Part,
    column_of_cells,
    joined_parts,
    number_cells,
    repeated,
    spread_cells,
)
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.spark_schema import (
    VOID,
    Field,
    StructOf,
    arrow_type,
    has_collation,
    unique_fields,
)
from statestore.formats.spark.checkpoint.state_errors import not_editable, refused
from statestore.formats.spark.checkpoint.state_views import StateView, has_one_zero, state_fields
from statestore.formats.spark.key_lookup import SESSION_START, is_session, placed_columns
from statestore.formats.spark.providers.partition_load import FAMILY_BYTES, family_of, open_partition
from statestore.formats.spark.row_places import key_encoder
from statestore.formats.spark.rows.avro_encoding import ordering_parts, record_parts, with_id
from statestore.formats.spark.rows.key_placement import partitions_of
from statestore.formats.spark.rows.row_framing import (
    WrittenForm,
    key_parts,
    list_values,
    value_parts,
    with_checksums,
    with_sized_checksums,
)
from statestore.formats.spark.rows.unsafe_row import struct_array
from statestore.formats.spark.rows.unsafe_row_encoding import row_parts
from statestore.formats.spark.rows.value_encoding import null_mask, with_one_zero, without_null_cells
from statestore.formats.spark.state_columns import may_lack_values, recorded_encoder
from statestore.formats.spark.state_rows import is_avro
from statestore.formats.values.exact_cast import cast_exactly
from statestore.formats.values.without_pandas import numbers
from statestore.formats.values.xxh64 import xxh64_strings

_ONE_NULL = StructOf((Field("value", VOID),))
_OF_DEDUPLICATION = "dedupe"
_CODES = (ErrorCode.EDIT_UNSUPPORTED, ErrorCode.EDIT_REFUSED)


@dataclass(frozen=True)
class EncodedKeys:
    """Stored keys, each once, and the partition of each."""

    partition: Ints
    keys: Cells


@dataclass(frozen=True)
class EncodedRows(EncodedKeys):
    """Stored rows: keys and values as files have them, with ids of families, versions and checksums."""

    values: Cells


def encode_rows(checkpoint: Checkpoint, state_view: StateView, rows: pa.Table | pa.RecordBatch) -> EncodedRows:
    """The stored rows of shown rows, in the partitions where the query looks for them.

    All entries of a list are one stored row, in their order. Zeros and NaNs of keys become those that the query stores.

    Raises UnsupportedError EDIT_UNSUPPORTED for states whose rows cannot be written or placed, InvalidInputError
    EDIT_REFUSED for rows that the query would not go on from, or several of one key.
    """
    with _named(state_view):
        key = _stored_zeros(checkpoint, state_view, _shown_keys(state_view, rows))
        keys = _keys(checkpoint, state_view, key, _places(checkpoint, state_view, key, rows.num_rows))
        return _rows(checkpoint, state_view, keys, _shown_values(state_view, rows))


def encode_keys(checkpoint: Checkpoint, state_view: StateView, rows: pa.Table | pa.RecordBatch) -> EncodedKeys:
    """The stored keys of rows that the state has, as for their deletion; each key once.

    Columns of values may be left out. Zeros and NaNs stay as they are shown. Raises as `encode_rows`.
    """
    with _named(state_view):
        key = _shown_keys(state_view, rows)
        return _once(_keys(checkpoint, state_view, key, _places(checkpoint, state_view, key, rows.num_rows)))[0]


def encode_rows_in(
    checkpoint: Checkpoint, state_view: StateView, rows: pa.Table | pa.RecordBatch, partition: Ints
) -> EncodedRows:
    """Encode rows as `encode_rows` does, in the partitions where they are known to be; keys stay as they are shown.

    It serves states that Spark keeps for itself, too, whose places follow from those of other states.
    """
    with _named(state_view):
        keys = _keys(checkpoint, state_view, _shown_keys(state_view, rows), partition)
        return _rows(checkpoint, state_view, keys, _shown_values(state_view, rows))


def places_of(
    checkpoint: Checkpoint, state_view: StateView, rows: pa.Table | pa.RecordBatch, *, new: bool = False
) -> Ints:
    """The partition where the query looks for each row, by its key as it is shown, or as it stores that of a ``new``
    row. Raises as `encode_rows`."""
    with _named(state_view):
        key = _shown_keys(state_view, rows)
        key = _stored_zeros(checkpoint, state_view, key) if new else key
        return _places(checkpoint, state_view, key, rows.num_rows)


def encode_keys_in(checkpoint: Checkpoint, state_view: StateView, rows: pa.Table, partition: Ints) -> Cells:
    """The stored key of each row, equal ones, too, in the partitions where they are known to be. Raises as
    `encode_rows_in`."""
    with _named(state_view):
        return _keys(checkpoint, state_view, _shown_keys(state_view, rows), partition).keys


def with_stored_zeros(checkpoint: Checkpoint, state_view: StateView, rows: pa.Table) -> pa.Table:
    """The rows with the zeros and NaNs in their keys, which are structs, that the query stores."""
    with _named(state_view):
        key = _shown_keys(state_view, rows)
        found = _stored_zeros(checkpoint, state_view, key)
    if all(new is old for new, old in zip(found, key, strict=True)):
        return rows
    return rows.set_column(0, "key", struct_array(found, state_view.family.key, rows.num_rows))


@contextmanager
def _named(state_view: StateView) -> Iterator[None]:
    """Name the state in errors about what cannot be edited."""
    try:
        yield
    except (UnsupportedError, InvalidInputError) as error:
        if error.code not in _CODES:
            raise
        where = f"state {state_view.name} of operator {state_view.operator_id}"
        raise type(error)(error.code, f"{where}: {error.message}") from error


# Shown columns


def _shown_keys(state_view: StateView, rows: pa.Table | pa.RecordBatch) -> list[pa.Array]:
    """The columns of stored keys."""
    if state_view.shape == "join-side":
        raise not_editable("it is a side of a join, whose rows belong together with others; edit the query's input")
    if not state_view.flat:
        raise not_editable("it has one row for all entries of a key; edit it with a row for each entry")
    of_key = 2 if state_view.shape in ("map", "timers") else 1
    columns = [_column(state_view, rows, number) for number in range(of_key)]
    for column, field in zip(columns, state_fields(state_view), strict=False):
        if column.null_count:
            raise refused(f"column {field.name}: found null, which no key is; give the key of each row")
    if of_key > 1 or "key" in state_view.family.opaque:
        return columns
    return [columns[0].field(number) for number in range(columns[0].type.num_fields)]


def _shown_values(state_view: StateView, rows: pa.Table | pa.RecordBatch) -> pa.Array:
    """The values of stored rows, or their entries. Timers have one null each."""
    if state_view.shape != "timers":
        return _column(state_view, rows, -1)
    schema = state_view.family.value
    if any(field.type != VOID for field in schema.fields):
        raise not_editable("found a schema of values of timers, expected none; edit the other states")
    return struct_array([pa.nulls(rows.num_rows) for _ in schema.fields], schema, rows.num_rows)


def _column(state_view: StateView, rows: pa.Table | pa.RecordBatch, number: int) -> pa.Array:
    """A column of the state view, in its type."""
    fields = state_fields(state_view)
    field = fields[number]
    if field.name not in rows.schema.names:
        raise refused(f"found no column {field.name}; give {', '.join(each.name for each in fields)}")
    found = rows.column(field.name)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    if isinstance(found, pa.ChunkedArray):
        found = pa.concat_arrays(found.chunks) if found.num_chunks else pa.nulls(0, found.type)
    if found.type.equals(field.type):
        return found
    shown = unique_fields(pa.schema([field])).field(0).type
    try:
        return found if found.type.equals(shown) else cast_exactly(found, shown)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise refused(f"column {field.name}: found {found.type}, expected {shown}: {error}") from error


# Floating keys


def _stored_zeros(checkpoint: Checkpoint, state_view: StateView, key: list[pa.Array]) -> list[pa.Array]:
    """The columns of new keys with the zeros and NaNs that the query stores."""
    operator, schema = checkpoint.operator(state_view.operator_id), state_view.family.key
    if "key" in state_view.family.opaque or not has_one_zero(operator, state_view):
        return key
    found = [with_one_zero(field.type, column) for field, column in zip(schema.fields, key, strict=True)]
    is_certain = operator.name and not operator.name.startswith(_OF_DEDUPLICATION)  # Spark 3.5 names none
    if is_certain or all(new is old for new, old in zip(found, key, strict=True)):
        return found
    rows = len(key[0])
    new, old = (joined_parts(row_parts(columns, schema, rows), rows).content()[0] for columns in (found, key))
    if not np.array_equal(new, old):
        raise not_editable(
            "a key with -0.0 or an unusual NaN: releases of Spark differ in how a deduplication stores it, and Spark "
            "3.5 does not say what the query does; give 0.0, or the usual NaN, which all store alike"
        )
    return found


# Places


def _places(checkpoint: Checkpoint, state_view: StateView, key: list[pa.Array], rows: int) -> Ints:
    """The partition of each row, by the rule by which the query places rows."""
    store = state_view.store
    if store.folders == (0,) and (store.written.single or checkpoint.batch.partitions == 1):
        return np.zeros(rows, np.int64)
    columns = placed_columns(checkpoint, state_view)
    if not columns or not store.count:
        raise not_editable(
            "the partitions of its rows are not certain, as before Spark 3.3, in states that Spark keeps for itself, "
            "and where the number of partitions changed; a row in another partition is never found by the query"
        )
    kinds = [field.type for field in state_view.family.key.fields[:columns]]
    if any(map(has_collation, kinds)):
        raise not_editable("its key has a text with a collation, whose partition is not known here; leave it as it is")
    found = partitions_of(key[:columns], kinds, store.count)
    if found is None:
        of_types = ", ".join(str(arrow_type(kind)) for kind in kinds)
        raise not_editable(f"the partition of a key of {of_types} is not known here; leave such keys as they are")
    if (found < 0).any():
        raise not_editable(
            f"the partition of the key in row {int(np.argmax(found < 0))} is not known: it has a text with U+FFFD, or "
            "a very long one; leave it as it is"
        )
    return found


# Stored bytes


def _form(checkpoint: Checkpoint, state_view: StateView) -> WrittenForm:
    """The form in which rows are written, as `row_form` has it for reads."""
    family = state_view.family
    if not is_avro(checkpoint, state_view):
        return WrittenForm(bare=checkpoint.provider == "hdfs")
    if family.key_id is None or family.value_id is None:
        raise not_editable(
            "rows in Avro without ids of their schemas, as a preview of Spark 4.0 wrote them; only reads are possible"
        )
    return WrittenForm(
        whole=with_id(family.key_id), part=record_parts, ordering=ordering_parts, value=with_id(family.value_id)
    )


def _keys(checkpoint: Checkpoint, state_view: StateView, key: list[pa.Array], partition: Ints) -> EncodedKeys:
    rows, family = len(partition), state_view.family
    if "key" in family.opaque:
        return EncodedKeys(partition, joined_parts([cells_of(key[0])], rows))
    form = _form(checkpoint, state_view)
    is_unrecorded = SESSION_START in family.key.names and recorded_encoder(state_view, form.bare) is None
    if is_unrecorded and not is_session(state_view.store, family):
        raise not_editable(
            "nothing says how its keys are stored, as Spark 3.5 writes no metadata of operators, and a column looks "
            "like the start of a session window; leave it as it is"
        )
    encoder = key_encoder(state_view.store, family, bare=form.bare)
    parts = key_parts(key, family.key, encoder, form, rows)
    return EncodedKeys(partition, joined_parts([*_family_part(checkpoint, state_view, partition), *parts], rows))


def _family_part(checkpoint: Checkpoint, state_view: StateView, partition: Ints) -> list[Part]:
    """The id of the column family in the partition of each row."""
    if not state_view.store.has_families:
        return []
    distinct, place = np.unique(partition, return_inverse=True)
    ids = []
    for number in distinct.tolist():
        opened = open_partition(checkpoint, state_view.store, number, state_view.family.name)
        found = family_of(opened)
        if found is None:
            raise not_editable(
                f"partition {number} has no column family {state_view.family.name} yet, so nothing says its id; let "
                "the query commit a batch first"
            )
        ids.append(found)
    return [number_cells(np.array(ids, f"<i{FAMILY_BYTES}")[place])]


def _rows(checkpoint: Checkpoint, state_view: StateView, encoded: EncodedKeys, value: pa.Array) -> EncodedRows:
    once, owner = _once(encoded)
    entries = _entries(checkpoint, state_view, value)
    checksums = checkpoint.has_checksums
    if state_view.listed:
        counts = np.bincount(owner, minlength=len(once.keys)).astype(np.int64)
        entries = entries.select(np.argsort(owner, kind="stable"))
        values = list_values(once.keys, entries, counts, checkpoint.delimiter, checksums=checksums)
        return EncodedRows(once.partition, once.keys, values)
    if len(once.keys) < len(encoded.keys):
        raise refused(f"found {_twice(owner)}, expected each key once; give one of the rows")
    if checksums:
        sealed = with_checksums if checkpoint.provider == "hdfs" else with_sized_checksums
        entries = sealed(once.keys, entries)
    return EncodedRows(once.partition, once.keys, entries)


def _twice(owner: Ints) -> str:
    firsts = np.unique(owner, return_index=True)[1]
    again = int(np.setdiff1d(np.arange(len(owner)), firsts)[0])
    return f"the key of row {again} in row {int(np.flatnonzero(owner == owner[again])[0])}, too"


def _once(encoded: EncodedKeys) -> tuple[EncodedKeys, Ints]:
    """(each key once, in the order of their first rows; which of them each row has)."""
    hashes = np.sort(xxh64_strings(*encoded.keys.content()))
    if not (hashes[1:] == hashes[:-1]).any():  # a third of the time of the dictionary
        return encoded, np.arange(len(encoded.keys))
    owner = numbers(column_of_cells(encoded.keys).dictionary_encode().indices).astype(np.int64)
    first = np.unique(owner, return_index=True)[1]
    return EncodedKeys(encoded.partition[first], encoded.keys.select(first)), owner


def _entries(checkpoint: Checkpoint, state_view: StateView, value: pa.Array) -> Cells:
    """The rows of values, without checksums and sizes."""
    family = state_view.family
    nulls = null_mask(value)
    if "value" in family.opaque:
        if nulls is not None:
            raise refused("column value: found null; give the whole stored bytes")
        return joined_parts([cells_of(value)], len(value))
    if nulls is not None and not may_lack_values(state_view):
        raise refused(f"column {state_fields(state_view)[-1].name}: found null; give a value, or delete the key")
    form, present = _form(checkpoint, state_view), without_null_cells(value)
    columns = [present.field(number) for number in range(len(family.value.fields))]
    found = joined_parts(value_parts(columns, family.value, form, len(present)), len(present))
    return found if nulls is None else _with_one_nulls(found, nulls, form)


def _with_one_nulls(rows: Cells, nulls: Bools, form: WrittenForm) -> Cells:
    """Rows with those of one null between them (`may_lack_values`)."""
    one = joined_parts(value_parts([pa.nulls(1)], _ONE_NULL, form, 1), 1).cell(0)
    without = spread_cells(repeated(one, int(nulls.sum())), ~nulls)
    return joined_parts([spread_cells(rows, nulls), without], len(nulls))
