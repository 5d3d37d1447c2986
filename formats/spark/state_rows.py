"""The rows of a state view in one partition, as of the batch that the checkpoint was opened at.

    checkpoint = open_checkpoint(filesystem, path, batch_id)
    for batch in read_state(checkpoint, find_state_view(checkpoint, 0), partition): ...

Columns are those of Spark's own ``statestore`` source, see ``state_views``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import cells_of, ends_of
from statestore.formats.kernels.arrays import Ints
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, value_schemas
from statestore.formats.spark.checkpoint.spark_schema import renamed
from statestore.formats.spark.checkpoint.state_errors import corrupt_row, unsupported
from statestore.formats.spark.checkpoint.state_views import NUMBER, StateView, state_fields
from statestore.formats.spark.providers.partition_load import FAMILY_BYTES, open_partition, stored_rows
from statestore.formats.spark.providers.stored_rows import KeyBounds, StoredRows
from statestore.formats.spark.rows.avro_row import decode_key_rows, decode_ordering, decode_record, value_decoder
from statestore.formats.spark.rows.row_encoding import RowForm, first_parts
from statestore.formats.spark.rows.strict_rows import checked_form
from statestore.formats.spark.rows.unsafe_row import is_checkable
from statestore.formats.spark.state_columns import (
    Decoded,
    Decoder,
    decode_columns,
    decoder_of,
    holds_whole_keys,
    may_lack_values,
)
from statestore.formats.values.filters import Filter, mask
from statestore.formats.values.without_pandas import arrow_numbers


def read_state(
    checkpoint: Checkpoint,
    state_view: StateView,
    partition: int,
    *,
    columns: Collection[str] | None = None,
    fields: Mapping[str, Collection[str]] | None = None,
    base_version: int | None = None,
    key_ranges: Sequence[KeyBounds] | None = None,
    lookup: Sequence[KeyRange] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows, in no particular order. ``base_version`` requires the snapshot to start from, 0 requires none.

    ``key_ranges`` are [from, to) of stored keys, ascending and apart: no other rows are read. The ranges of ``lookup``
    are without the id of a column family; if they are many, rows between them may be returned, too.

    ``columns`` are decoded and returned, in the state view's order; all by default. NUMBER comes last, where it is
    named and the state view has it. Of a struct in ``fields`` the fields that are not named there may be null.

    Memory holds a block of the base, the keys changed since the base (if they are too many, some at a time), and for a
    map that is not flat the partition's entries.

    Raises NotFoundError SPARK_STATE_NOT_FOUND if the partition or files of the batch are not there, CorruptError
    SPARK_STATE_FILE or SPARK_STATE_ROW for damage, UnsupportedError SPARK_STATE_UNSUPPORTED.
    """
    source = open_partition(checkpoint, state_view.store, partition, state_view.family.name)
    if state_view.shape == "map" and not state_view.flat:
        rows = stored_rows(
            source, lambda rows: rows.batch, base_version=base_version, key_ranges=key_ranges, lookup=lookup
        )
        names = [name for name in state_view.schema.names if columns is None or name in columns]
        whole = decoder_of(checkpoint, state_view, row_form(checkpoint, state_view), partition=partition)
        yield from (batch.select(names) for batch in _whole_maps(whole, rows, partition))
        return
    made = state_decoder(checkpoint, state_view, partition, columns, fields)
    yield from stored_rows(source, made, base_version=base_version, key_ranges=key_ranges, lookup=lookup)


Made = Callable[[StoredRows], pa.RecordBatch]


def state_decoder(
    checkpoint: Checkpoint,
    state_view: StateView,
    partition: int | Ints,
    columns: Collection[str] | None,
    fields: Mapping[str, Collection[str]] | None = None,
) -> Made:
    """The function from stored rows to the rows that `read_state` yields; ``partition`` is that of each row, or of
    all."""
    form, number = row_form(checkpoint, state_view), partition if isinstance(partition, int) else None
    decoder = decoder_of(checkpoint, state_view, form, columns, fields, partition=number)
    names = [name for name in state_view.schema.names if columns is None or name in columns]

    def made(rows: StoredRows) -> pa.RecordBatch:
        found = decode_columns(decoder, rows.keys, rows.values)
        shown = record_batch(found, state_view, partition).select(names)
        return shown if found.numbers is None else shown.append_column(NUMBER, pa.array(found.numbers))

    return made


def row_form(checkpoint: Checkpoint, state_view: StateView) -> RowForm:
    """The encoding of a state view's rows. Raises UnsupportedError SPARK_STATE_UNSUPPORTED for an unknown encoding."""
    bare = checkpoint.provider == "hdfs"
    if not is_avro(checkpoint, state_view):
        return RowForm(bare=bare) if state_view.family.recorded else checked_form(bare)
    writers = value_schemas(checkpoint, state_view.store, state_view.family)
    return RowForm(whole=decode_key_rows, part=decode_record, ordering=decode_ordering, value=value_decoder(writers))


def is_avro(checkpoint: Checkpoint, state_view: StateView) -> bool:
    """Return whether rows are in Avro, and not UnsafeRows.

    Raises UnsupportedError SPARK_STATE_UNSUPPORTED for an unknown encoding.
    """
    encoding = checkpoint.batch.setting("stateStore.encodingFormat", "unsaferow").lower()
    if encoding not in ("unsaferow", "avro"):
        raise unsupported(f"state encoding {encoding!r}; expected unsaferow or avro")
    if encoding == "avro" and not state_view.family.recorded:
        raise unsupported("Avro rows without a schema file; restore it from a copy")
    return encoding == "avro"


def record_batch(decoded: Decoded, state_view: StateView, partition: int | Ints) -> pa.RecordBatch:
    """The columns of a state view with the number of the partition, or of that of each stored row."""
    columns = decoded.columns
    if isinstance(partition, int):
        numbers = np.full(len(columns[0]), partition, np.int32)
    else:
        numbers = partition.astype(np.int32) if decoded.rows is None else partition[decoded.rows].astype(np.int32)
    return pa.RecordBatch.from_arrays([*columns, arrow_numbers(numbers)], schema=state_view.schema)


def _whole_maps(decoder: Decoder, rows: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
    """One map per key of a MapState. A key's entries may be anywhere in the partition."""
    state_view = replace(decoder.state_view, flat=True)
    flat = replace(decoder, state_view=state_view, columns=frozenset(state_view.schema.names))
    table = pa.Table.from_batches([batch for batch in rows if batch.num_rows], ROW_SCHEMA)
    if not table.num_rows:
        return
    stored = table.combine_chunks().to_batches()
    if len(stored) != 1:
        raise corrupt_row("found more than 2 GiB of map entries in a partition; read the map flat")
    keys = cells_of(stored[0].column(0))
    key, user_key, value = decode_columns(flat, keys, cells_of(stored[0].column(1))).columns
    parts = first_parts(keys.behind(FAMILY_BYTES, "a key", corrupt_row))
    coded = parts.copied(corrupt_row).dictionary_encode()
    group = coded.indices.to_numpy()
    order = np.argsort(group, kind="stable")
    counts = np.bincount(group, minlength=len(coded.dictionary))
    offsets = ends_of(counts)
    taken = pa.array(order)
    kind = decoder.state_view.schema.field(1).type
    maps = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), user_key.take(taken), value.take(taken), type=kind)
    yield record_batch(Decoded([key.take(pa.array(order[offsets[:-1]])), maps], None), decoder.state_view, partition)


# Rows whose keys and values stay as they are stored: as Spark's own rows (UnsafeRow). Spark takes a struct in this form
# without converting it, so neither side has work with its fields. Columns that filters need are decoded besides.


def unsafe_columns(checkpoint: Checkpoint, state_view: StateView) -> tuple[str, ...]:
    """The struct columns whose cells are stored as one UnsafeRow each, of types that can be checked."""
    encoding = checkpoint.batch.setting("stateStore.encodingFormat", "unsaferow").lower()
    if encoding != "unsaferow" or state_view.listed or not state_view.flat or not state_view.family.recorded:
        return ()
    found = []
    if holds_whole_keys(state_view, row_form(checkpoint, state_view)) and is_checkable(state_view.family.key):
        found.append("key")
    is_whole = state_view.shape in ("rows", "map") and not may_lack_values(state_view)
    if is_whole and is_checkable(state_view.family.value):
        found.append(state_fields(state_view)[-1].name)
    return tuple(found)


def read_unsafe(
    checkpoint: Checkpoint,
    state_view: StateView,
    partition: int,
    columns: Sequence[str],
    unsafe: Collection[str],
    filters: Sequence[Filter],
    *,
    base_version: int | None = None,
    key_ranges: Sequence[KeyBounds] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows that pass the filters; the columns in ``unsafe`` are binary. Otherwise as `read_state`."""
    made = unsafe_decoder(checkpoint, state_view, partition, columns, unsafe, filters)
    source = open_partition(checkpoint, state_view.store, partition, state_view.family.name)
    yield from stored_rows(source, made, base_version=base_version, key_ranges=key_ranges)


def unsafe_decoder(
    checkpoint: Checkpoint,
    state_view: StateView,
    partition: int | Ints,
    columns: Sequence[str],
    unsafe: Collection[str],
    filters: Sequence[Filter],
) -> Made:
    """The function from stored rows to the rows that `read_unsafe` yields; ``partition`` as in `state_decoder`."""
    compared = {item.column for item in filters}
    decoded = compared | (set(columns) - set(unsafe))
    decoder = decoder_of(checkpoint, state_view, row_form(checkpoint, state_view), decoded, unsafe=unsafe)

    def made(stored: StoredRows) -> pa.RecordBatch:
        found = decode_columns(decoder, stored.keys, stored.values)
        rows = renamed(record_batch(found, state_view, partition))
        cells = [found.unsafe[name] if name in unsafe else rows.column(name) for name in columns]
        result = pa.RecordBatch.from_arrays(cells, list(columns))
        selected = mask(filters, rows) if filters else None
        return result if selected is None else result.filter(selected)

    return made
