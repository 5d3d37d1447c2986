"""The answers about one table: its versions, the life of a key, the difference of two moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.reads.difference import CHANGE, KINDS, Point, difference
from statestore.catalog.reads.history_columns import oldest_first
from statestore.connector.explorer.cells import shown_rows
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.pages import batches_of
from statestore.formats.state_table import Query, StateTable

MARKS = 4_000
"""Places on the axis of versions; of more commits, some share one."""
LIFE_ROWS = 2_000
DIFF_ROWS = 500


def versions_of(table: StateTable) -> pa.Table:
    """Return the axis of versions, oldest first.

    Each place on it has a ``version``, a ``time`` (epoch milliseconds), ``commits`` and ``changes``: the rows that were
    written or deleted, null where this is unknown.
    """
    found = table.versions()
    numbers = found["version"].cast(pa.float64()).to_numpy()
    size = max(1, -(-len(numbers) // MARKS))
    starts = np.arange(0, len(numbers), size)
    last = np.minimum(starts + size, len(numbers)) - 1
    if not len(numbers):
        starts = last = np.empty(0, np.int64)
    changes = [found[name].cast(pa.float64()) for name in ("rows", "tombstones") if name in found.column_names]
    known = changes[0] if changes else pa.chunked_array([pa.nulls(len(numbers), pa.float64())])
    for each in changes[1:]:
        known = pc.add(known, pc.fill_null(each, 0.0))
    whole = known.to_numpy() if len(numbers) else np.empty(0)
    return pa.table(
        {
            "version": numbers[last],
            "time": milliseconds_of(found["timestamp"]).take(pa.array(last)),
            "commits": (last - starts + 1).astype(np.float64),
            "changes": pa.array(np.add.reduceat(whole, starts) if len(whole) else whole, from_pandas=True),
        }
    )


def commits_of(table: StateTable, versions: Sequence[int]) -> pa.Table:
    """Return all that is known of some commits, as texts."""
    found = table.versions()
    return shown_rows(found.filter(pc.is_in(found["version"], pa.array(versions, found["version"].type))))


def life_of(table: StateTable, query: Query, limits: Limits) -> pa.Table:
    """Return the newest LIFE_ROWS versions of the rows of a key, oldest first: the columns as texts, and ``__from``,
    ``__to`` (epoch milliseconds) and ``__version`` as numbers; a null of ``__to`` is open. The metadata has the number
    of all as ``total``."""
    names = dict.fromkeys((*table.schema(query).names, "valid_from", "valid_to", "_commit_version"))
    wanted = Query(mode="history", columns=tuple(names), filters=query.filters, version=query.version)
    rows: list[pa.RecordBatch] = []
    total = kept = 0
    for batch in limits.watched(batches_of(table, wanted)):
        rows.append(batch)
        total += batch.num_rows
        kept += batch.num_rows
        if kept > 8 * LIFE_ROWS:
            rows = oldest_first(pa.Table.from_batches(rows)).slice(kept - LIFE_ROWS).to_batches()
            kept = LIFE_ROWS
    found = oldest_first(pa.Table.from_batches(rows, table.schema(wanted)))
    found = found.slice(max(0, found.num_rows - LIFE_ROWS))
    shown = shown_rows(found)
    for name, column in (
        ("__from", milliseconds_of(found["valid_from"])),
        ("__to", milliseconds_of(found["valid_to"])),
        ("__version", found["_commit_version"].cast(pa.float64())),
    ):
        shown = shown.append_column(name, column)
    return shown.replace_schema_metadata({"total": str(total)})


def difference_of(table: StateTable, old: Point, new: Point, limits: Limits) -> pa.Table:
    """Return the first DIFF_ROWS rows that differ between two points, as texts, in the columns of `Table.diff`. The
    metadata has the number of ``added``, ``changed`` and ``removed`` rows."""
    counts = dict.fromkeys(KINDS, 0)
    rows: list[pa.RecordBatch] = []
    left = DIFF_ROWS
    found: Any = difference(table, old, new, None)
    for batch in limits.watched(iter(found)):
        for item in pc.value_counts(batch.column(CHANGE)).to_pylist():
            counts[item["values"]] += item["counts"]
        if left:
            rows.append(batch.slice(0, left))
            left -= rows[-1].num_rows
    shown = shown_rows(pa.Table.from_batches(rows, found.schema))
    return shown.replace_schema_metadata({name: str(count) for name, count in counts.items()})


def milliseconds_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return moments as epoch milliseconds, with fractions."""
    microseconds = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return pc.divide(microseconds.cast(pa.float64(), safe=False), 1000.0)
