"""The life of a key: its versions, and its history as each commit that wrote or deleted it recorded it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.engines.history_columns import TIME_COLUMNS, ends_of, oldest_first
from statestore.catalog.reads.added_columns import VERSION_COLUMN
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.pages import batches_of, shown_rows
from statestore.formats.errors import StateStoreError
from statestore.formats.state_table import NewestBatch, Query, StateTable

LIFE_ROWS = 2_000
FIRST_ROWS = 100
FEW = 50_000
"""Rows that may have to be looked at, of which all are read at once: looks at the newest moments first double the time
for the 40 versions of a key among 40,000."""
WINDOWS = (512, 64, 8)
"""Parts of the state time, the newest of which are tried first: 8 times faster for the beginning of a key that has
40,000 versions among 2,000,000, and 20 times for all keys."""


def life_of(table: StateTable, query: Query, limit: int, limits: Limits) -> pa.Table:
    """Return the newest ``limit`` (at most LIFE_ROWS) versions of the rows of a key, oldest first: the columns as
    texts, and ``__from``, ``__to`` and ``__version`` as numbers; a null of ``__to`` is open.

    ``__from`` and ``__to`` are epoch milliseconds, or versions for a history without times; ``timed`` of the metadata
    is empty then.
    The metadata has the number of all as ``total``, empty where only `count_of_life` finds it.
    """
    limit = max(1, min(limit, LIFE_ROWS))
    columns = _columns_of_life(table, query)
    wanted = Query(mode="history", columns=columns, filters=query.filters, version=query.version)
    schema = table.schema(wanted)
    by_key = table.newest_first(wanted, limit)
    if by_key is not None:
        return _shown_life(*_newest_of_key(by_key, schema, limit, limits))
    for start in _starts(table, wanted) if TIME_COLUMNS[0] in columns else ():
        rows, total = _newest(batches_of(table, replace(wanted, start_time=start)), schema, limit, limits)
        known = rows["valid_from"].cast(pa.int64())
        # Rows that ended before the start are missing, so those that began before it may be others than the newest.
        if len(rows) and pc.sum(pc.greater_equal(known, pa.scalar(start))).as_py() == len(rows) == limit:
            return _shown_life(rows, "")
    rows, total = _newest(batches_of(table, wanted), schema, limit, limits)
    return _shown_life(rows, str(total))


def _columns_of_life(table: StateTable, query: Query) -> tuple[str, ...]:
    """Return the columns of a life: those of the state, and the interval and the commit of each version."""
    ends = ends_of(table.schema(Query(mode="history")).names)
    return tuple(dict.fromkeys((*table.schema(query).names, *ends, VERSION_COLUMN)))


def count_of_life(table: StateTable, query: Query, limits: Limits) -> int:
    """Return the number of versions of a key."""
    wanted = Query(mode="history", columns=(VERSION_COLUMN,), filters=query.filters, version=query.version)
    return sum(batch.num_rows for batch in limits.batches(table, wanted))


def _starts(table: StateTable, query: Query) -> Iterator[int]:
    """Yield moments from which on to look for the newest versions first, where a key may have many of them."""
    bounds = [split.rows for split in table.splits(query)]
    if None in bounds or sum(filter(None, bounds)) <= FEW:
        return
    versions = table.versions()
    times = versions["stream_time"].drop_null().cast(pa.int64())
    if len(times) < 2:
        return
    first, last = pc.min_max(times).as_py().values()
    yield from (last - (last - first) // part for part in WINDOWS)


def _newest(batches: Iterator[pa.RecordBatch], schema: pa.Schema, limit: int, limits: Limits) -> tuple[pa.Table, int]:
    rows: list[pa.RecordBatch] = []
    total = kept = 0
    for batch in limits.watched(batches):
        rows.append(batch)
        total += batch.num_rows
        kept += batch.num_rows
        if kept > 8 * LIFE_ROWS:
            rows = oldest_first(pa.Table.from_batches(rows)).slice(kept - limit).to_batches()
            kept = limit
    found = oldest_first(pa.Table.from_batches(rows, schema))
    return found.slice(max(0, found.num_rows - limit)), total


def _newest_of_key(
    batches: Iterator[NewestBatch], schema: pa.Schema, limit: int, limits: Limits
) -> tuple[pa.Table, str]:
    """Return the newest ``limit`` rows, oldest first, and the number of all where no row was left unread."""
    rows: list[pa.RecordBatch] = []
    starts = np.empty(0, np.int64)
    limits.check()
    for batch, rest in batches:
        rows.append(batch)
        starts = np.sort(np.append(starts, batch["valid_from"].cast(pa.int64())))[-limit:]
        limits.rows += batch.num_rows
        if rest is not None and len(starts) == limit and starts[0] >= rest:
            break
        limits.check()
    else:
        rest = None
    found = oldest_first(pa.Table.from_batches(rows, schema))
    return found.slice(max(0, found.num_rows - limit)), str(found.num_rows) if rest is None else ""


def _shown_life(rows: pa.Table, total: str) -> pa.Table:
    shown = shown_rows(rows)
    ends = ends_of(rows.column_names)
    is_timed = ends == TIME_COLUMNS
    for name, column in (
        *(
            (name, milliseconds(rows[end]) if is_timed else rows[end].cast(pa.float64()))
            for name, end in zip(("__from", "__to"), ends, strict=True)
        ),
        ("__version", rows[VERSION_COLUMN].cast(pa.float64())),
    ):
        shown = shown.append_column(name, column)
    return shown.replace_schema_metadata({"total": total, "timed": "1" if is_timed else ""})


def milliseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times as numbers of epoch milliseconds."""
    microseconds = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return pc.divide(microseconds.cast(pa.float64(), safe=False), 1000.0)


# Beliefs about a key: its history as each commit that wrote or deleted it recorded it.

BELIEFS = 24
BELIEF_ROWS = 400


def beliefs_of(table: StateTable, query: Query, limits: Limits) -> pa.Table:
    """Return what the newest BELIEFS commits that wrote or deleted the key said about it, each as of its own version.

    A row is an interval of state time in the belief of ``__belief``, a version: ``__from`` and ``__to`` as in
    `life_of`, and the columns as texts. Of each belief the newest BELIEF_ROWS // BELIEFS intervals are returned. The
    metadata lists the versions as ``beliefs``, also one that has no interval, and the number of all such commits that
    are kept as ``commits``. ``all`` is empty where the table's changes cannot be asked: then these are the commits that
    wrote what is now known, and those that only deleted something are missing.
    """
    first, last = table.kept_versions()
    found = _writers(table, query, limits)
    now = life_of(table, query, LIFE_ROWS if found is None else 1, limits)
    writers = found if found is not None else {int(each) for each in now["__version"].to_pylist() if each is not None}
    kept = sorted(each for each in writers if first <= each <= last)
    chosen = kept[-BELIEFS:]
    empty = now.replace_schema_metadata(None).slice(0, 0).append_column("__belief", pa.array([], pa.float64()))
    parts = [empty]
    for version in chosen:
        limits.check()
        rows = life_of(table, replace(query, version=version), BELIEF_ROWS // BELIEFS, limits)
        belief = pa.array(np.full(rows.num_rows, float(version)))
        parts.append(rows.replace_schema_metadata(None).append_column("__belief", belief))
    timed = now.schema.metadata[b"timed"].decode()
    facts = {
        "timed": timed,
        "beliefs": ",".join(map(str, chosen)),
        "commits": str(len(kept)),
        "all": "" if found is None else "1",
    }
    return pa.concat_tables(parts, promote_options="default").replace_schema_metadata(facts)


def _writers(table: StateTable, query: Query, limits: Limits) -> set[int] | None:
    """Return the commits that wrote or deleted the key; None where the table's changes cannot be asked."""
    named = table.writers(query)
    if named is not None:
        return set(named)
    first, last = table.kept_versions()
    history = Query(mode="history", columns=(VERSION_COLUMN,), filters=query.filters, version=query.version)
    known = _versions(table, history, limits)
    if first == last:
        return known
    changes = Query(mode="changes", columns=(VERSION_COLUMN,), filters=query.filters, end_version=query.version)
    try:
        return known | _versions(table, changes, limits)
    except StateStoreError:
        limits.check()  # a limit that was met is no answer
        return None


def _versions(table: StateTable, query: Query, limits: Limits) -> set[int]:
    found: set[int] = set()
    for batch in limits.batches(table, query):
        found.update(pc.unique(batch.column(0).drop_null()).to_pylist())
    return found
