"""The rows of a state view whose keys and values stay as they are stored: as Spark's own rows (UnsafeRow).

Spark takes a struct in this form without converting it, so neither side has work with its fields. Columns that filters
need are decoded besides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.spark_schema import renamed
from statestore.formats.spark.checkpoint.state_views import StateView, state_fields
from statestore.formats.spark.providers.partition_load import open_partition, stored_rows
from statestore.formats.spark.providers.stored_rows import KeyBounds, StoredRows
from statestore.formats.spark.rows.unsafe_cells import is_checkable
from statestore.formats.spark.state_columns import decode_columns, decoder_of, holds_whole_keys, may_lack_values
from statestore.formats.spark.state_rows import record_batch, row_form
from statestore.formats.values.filters import Filter, mask


def unsafe_columns(checkpoint: Checkpoint, state_view: StateView) -> tuple[str, ...]:
    """The struct columns whose cells are stored as one UnsafeRow each, of types that can be checked."""
    encoding = checkpoint.batch.setting("stateStore.encodingFormat", "unsaferow").lower()
    if encoding != "unsaferow" or state_view.listed or not state_view.flat:
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
    lookup: Sequence[KeyRange] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows that pass the filters; the columns in ``unsafe`` are binary. Otherwise as `read_state`."""
    compared = {item.column for item in filters}
    decoded = compared | (set(columns) - set(unsafe))
    decoder = decoder_of(checkpoint, state_view, row_form(checkpoint, state_view), decoded, unsafe=unsafe)
    source = open_partition(checkpoint, state_view.store, partition, state_view.family.name)

    def made(stored: StoredRows) -> pa.RecordBatch:
        found = decode_columns(decoder, stored.keys, stored.values)
        rows = renamed(record_batch(found.columns, state_view, partition))
        cells = [found.unsafe[name] if name in unsafe else rows.column(name) for name in columns]
        result = pa.RecordBatch.from_arrays(cells, list(columns))
        selected = mask(filters, rows) if filters else None
        return result if selected is None else result.filter(selected)

    yield from stored_rows(source, made, base_version=base_version, key_ranges=key_ranges, lookup=lookup)
