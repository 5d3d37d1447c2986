"""The lifelines of a report: the versions of single rows over state time.

A lifeline belongs to a row, identified by the row key, so at any time at most one of its versions is valid. A table
without a row key has no lifelines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.engines.history_columns import oldest_first
from statestore.connector.report.history import History
from statestore.connector.report.key_counts import greatest, key_texts, shortened, unlike
from statestore.connector.terminal import plain_text
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.state_table import Query
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.filters import Filter
from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.python_times import python_values

LIFELINES = 12
VERSIONS_OF_A_KEY = 400
HELD_ROWS = 1 << 16  # rows in memory, before all but the newest versions of each are dropped
TEXT, KEY = "__text", "__key"


Chosen = Sequence[tuple[Filter, ...]]
"""Keys that somebody asked for, each as the filters that find its rows."""


def lifelines(
    history: History, chosen: Chosen, busiest: Hashes, values: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Return the newest VERSIONS_OF_A_KEY versions of the rows of the ``chosen`` keys and of the busiest rows, with a
    dict for each version of a value column; fields of structs are columns. ``busiest``: keys by their hashes."""
    table = history.table
    if not table.row_key:
        return {}
    if table.row_key != table.key_columns:
        busiest, _ = greatest(lambda: ((hashes_of(b.columns), None) for b in history.rows(table.row_key)), LIFELINES)
    rows, order = _versions(history, chosen, busiest[:LIFELINES], values)
    shown = flat(rows.select(values)).column_names
    rows = flat(rows)
    return {
        name: _lifeline(rows.filter(pc.equal(rows[KEY], pa.scalar(key, pa.uint64()))), shown, history.ends)
        for name, key in _unlike_names(rows, order)
    }


def _versions(history: History, chosen: Chosen, busiest: Hashes, values: Sequence[str]) -> tuple[pa.Table, list[int]]:
    """Return the versions of some rows, by their start, and the hashes of these rows in the order in which they are
    shown. The chosen ones are looked up, and the others found by a read of all.
    """
    table = history.table
    names = tuple(dict.fromkeys((*table.key_columns, *table.row_key)))
    own = [names.index(name) for name in table.row_key]
    columns = tuple(dict.fromkeys((*names, *values, *history.ends, "_commit_version")))
    asked: dict[int, None] = {}
    parts = [_empty(table.schema(Query(mode="history", columns=columns)))]
    for filters in chosen:
        for batch in history.rows(columns, filters):
            hashes = hashes_of([batch.column(index) for index in own])
            for each in np.unique(hashes).tolist():
                if len(asked) < LIFELINES:
                    asked.setdefault(each)
            parts = _with(parts, batch, own, hashes, np.array(list(asked), np.uint64))
    wanted = np.setdiff1d(busiest, np.array(list(asked), np.uint64))
    for batch in history.rows(columns) if len(wanted) else ():
        parts = _with(parts, batch, own, hashes_of([batch.column(index) for index in own]), wanted)
    return _newest(parts), list(dict.fromkeys([*asked, *busiest.tolist()]))


def _with(
    parts: list[pa.Table], batch: pa.RecordBatch, own: Sequence[int], hashes: Hashes, wanted: Hashes
) -> list[pa.Table]:
    """Return the parts with the rows of a batch that are wanted, of each row only the newest versions if there are
    many.
    """
    is_shown = np.isin(hashes, wanted)
    mine = pa.array(np.flatnonzero(is_shown))
    if len(mine):
        some = batch.take(mine)
        part = pa.Table.from_batches([some]).append_column(TEXT, key_texts([some.column(index) for index in own]))
        parts = [*parts, part.append_column(KEY, pa.array(hashes[is_shown]))]
    return [_newest(parts)] if sum(part.num_rows for part in parts) > HELD_ROWS else parts


def _empty(schema: pa.Schema) -> pa.Table:
    return schema.append(pa.field(TEXT, pa.string())).append(pa.field(KEY, pa.uint64())).empty_table()


def _newest(parts: Sequence[pa.Table]) -> pa.Table:
    """The newest versions of each row, by their start; a version with an unknown start is the oldest."""
    rows = oldest_first(pa.concat_tables(parts))
    hashes = rows[KEY].to_numpy()
    order = np.argsort(hashes, kind="stable")
    _, counts = np.unique(hashes, return_counts=True)
    from_end = np.concatenate([np.arange(count)[::-1] for count in counts]) if len(counts) else order
    return rows.take(pa.array(np.sort(order[from_end < VERSIONS_OF_A_KEY])))


def _unlike_names(rows: pa.Table, order: Sequence[int]) -> Iterator[tuple[str, int]]:
    """The name of each row and its hash; rows with one text are numbered from the second on."""
    texts = dict(zip(rows[KEY].to_pylist(), rows[TEXT].to_pylist(), strict=True))
    known = [key for key in order if key in texts]
    yield from zip(unlike([texts[key] for key in known]), known, strict=True)


def _lifeline(rows: pa.Table, shown: Sequence[str], names: tuple[str, str]) -> list[dict[str, Any]]:
    rows = rows.combine_chunks()
    starts, ends = (_moments(rows[name]) for name in names)
    versions = rows["_commit_version"].to_pylist()
    values = {name: python_values(rows[name].combine_chunks()) for name in shown}
    return [
        {"column": name, "from": start, "to": end, "value": _shown(value), "version": version}
        for name in shown
        for start, end, value, version in zip(starts, ends, values[name], versions, strict=True)
    ]


def _moments(column: pa.ChunkedArray) -> list[int | None]:
    whole = pa.concat_arrays([pa.array([], column.type), *column.chunks])
    return [
        None if gone else moment
        for gone, moment in zip(whole.is_null().to_pylist(), positions(whole).tolist(), strict=True)
    ]


def hashes_of(keys: Sequence[pa.Array]) -> Hashes:
    """Hashes of keys of any type; keys of engines may have types that keys of stores cannot have."""
    return hash_keys([comparable(column, by_bits=True) for column in keys]) if keys else np.empty(0, np.uint64)


def flat(rows: pa.Table) -> pa.Table:
    """Replace structs by their fields, ``value.count``, at every depth."""
    while any(pa.types.is_struct(field.type) for field in rows.schema):
        rows = rows.flatten()
    return rows


def _shown(value: Any) -> Any:
    if value is None or isinstance(value, bool | str) or (isinstance(value, int) and abs(value) < 1 << 53):
        return shortened(value, 60) if isinstance(value, str) else value
    if isinstance(value, float) and np.isfinite(value):
        return value
    return shortened(plain_text(value), 60)


def positions(column: pa.Array) -> Ints:
    """Return the places of times or versions on their axis: epoch milliseconds, or versions as they are; 0 for null."""
    if pa.types.is_integer(column.type):
        versions: Ints = column.fill_null(0).to_numpy(zero_copy_only=False)
        return versions
    return milliseconds(column)


def milliseconds(column: pa.Array) -> Ints:
    numbers: Ints = (
        column.cast(pa.timestamp("us", "UTC")).view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // 1000
    )
    return numbers
