"""The busiest and the biggest keys of a table, exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.shown_rows import shown_rows
from statestore.connector.report.figures import TOP
from statestore.connector.report.key_counts import Weighed, greatest, row_bytes
from statestore.connector.report.lifelines import hashes_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Hashes
from statestore.formats.state_table import Query, StateTable

STORED_BYTES = "stored_bytes"
"""The placement column with the bytes that a row takes where it is stored."""


def busiest_keys(table: StateTable, limits: Limits) -> pa.Table:
    """Return the TOP keys with the most versions in the kept history, the busiest first: the columns of the key as
    texts, and ``__number`` of versions. The metadata has the ``total`` of versions."""
    keys = _keys(table)
    history = Query(mode="history", columns=keys)
    return _top(table, keys, history, lambda batch: (hashes_of(batch.columns), None), limits)


def biggest_keys(table: StateTable, query: Query, limits: Limits) -> pa.Table:
    """Return the TOP keys whose rows take the most bytes at a moment: the columns of the key as texts, and
    ``__number`` of bytes. The metadata has the ``total`` of all keys, and as ``bytes`` how they are counted.

    ``stored``: as they are stored, where the table says so. ``shown``: the lengths of texts and binary, and 8 for each
    other cell, at every depth, without columns of placement and of time.
    """
    keys = _keys(table)
    names = table.schema(query).names
    if STORED_BYTES in table.placement_columns and STORED_BYTES in names:
        counted, values = "stored", [STORED_BYTES]
    else:
        own = (*keys, *table.placement_columns, "valid_from", "valid_to")
        counted, values = "shown", [name for name in names if name not in own]
    width = len(keys)

    def weigh(batch: pa.RecordBatch) -> Weighed:
        hashes = hashes_of(batch.columns[:width])
        if counted == "stored":
            return hashes, batch.column(width).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return hashes, row_bytes(batch.columns)

    found = _top(table, keys, replace(query, columns=(*keys, *values)), weigh, limits)
    return found.replace_schema_metadata({**found.schema.metadata, "bytes": counted})


def _keys(table: StateTable) -> tuple[str, ...]:
    keys = table.key_columns or tuple(name for name in table.row_key if name not in table.placement_columns)
    if not keys:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"{table.name} has no key, so there are no keys to count; sort its rows instead"
        )
    return keys


def _top(
    table: StateTable,
    keys: tuple[str, ...],
    query: Query,
    weigh: Callable[[pa.RecordBatch], Weighed],
    limits: Limits,
) -> pa.Table:
    passes: list[int] = []

    def read() -> Iterator[Weighed]:
        passes.append(0)
        for batch in limits.batches(table, query):
            hashes, weights = weigh(batch)
            passes[-1] += batch.num_rows if weights is None else int(weights.sum())
            yield hashes, weights

    hashes, sums = greatest(read, TOP)
    # Keys that are valid now are found by a read of the state, which costs less than one of the history.
    sources = [Query(columns=keys, version=query.version, as_of=query.as_of), replace(query, columns=keys)]
    named = _rows_of(table, sources if query.mode == "history" else sources[:1], hashes, limits)
    shown = shown_rows(named).append_column("__number", pa.array(sums.astype(np.float64)))
    return shown.replace_schema_metadata({"total": str(passes[0]), "passes": str(len(passes))})


def _rows_of(table: StateTable, queries: Sequence[Query], hashes: Hashes, limits: Limits) -> pa.Table:
    """Return the key columns of one row for each hash, in their order."""
    missing = hashes
    parts = [table.schema(queries[0]).empty_table()]
    found: list[Hashes] = []
    for query in queries:
        for batch in limits.batches(table, query) if len(missing) else ():
            own, at = np.unique(hashes_of(batch.columns), return_index=True)
            mine = np.isin(own, missing)
            if mine.any():
                parts.append(pa.Table.from_batches([batch.take(pa.array(at[mine]))]))
                found.append(own[mine])
                missing = np.setdiff1d(missing, own[mine])
                if not len(missing):
                    break
    rows = pa.concat_tables(parts)
    names = np.concatenate([np.empty(0, np.uint64), *found])
    order = np.argsort(names)
    return rows.take(pa.array(order[np.searchsorted(names[order], hashes)], pa.int64()))
