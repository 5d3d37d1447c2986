"""Why the state of a table grows: its size over versions, its busiest and biggest keys, and its places.

Each part has a route of its own, because some of them read the whole history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from statestore.catalog.warehouse import Warehouse
from statestore.connector.explorer.ages import ages_of
from statestore.connector.explorer.answering import Line
from statestore.connector.explorer.key_life import milliseconds
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.opened_paths import MOVED, OpenedPaths
from statestore.connector.explorer.pages import batches_of, count_of, shown_rows
from statestore.connector.explorer.questions import number_of, query_of
from statestore.connector.report.figures import CHANGE_COLUMNS, SAMPLED_VERSIONS, TOP, changes_by_version
from statestore.connector.report.key_counts import Weighed, greatest, row_bytes
from statestore.connector.report.lifelines import hashes_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.python_times import python_values

Given = Mapping[str, str]
Part = Callable[[Warehouse, StateTable, Given, Limits], Any]


def growth_routes(places: OpenedPaths, line: Line) -> list[Route]:
    """Return the routes below /api/growth."""

    def route(name: str, part: Part) -> Route:
        async def asked(request: Request) -> Response:
            given = request.query_params
            return await line.answered(request, lambda limits: _of_newest(places, given, limits, part))

        return Route(f"/api/growth/{name}", asked)

    return [
        route("versions", lambda warehouse, table, given, limits: _sizes_of(warehouse, table, _reads(given), limits)),
        route("busiest", lambda warehouse, table, given, limits: _busiest_keys(table, limits)),
        route("biggest", lambda warehouse, table, given, limits: _biggest_keys(table, query_of(table, given), limits)),
        route("skew", lambda warehouse, table, given, limits: _skew_of(table, query_of(table, given), limits)),
        route("ages", lambda warehouse, table, given, limits: ages_of(table, query_of(table, given), limits)),
    ]


def _reads(given: Given) -> bool:
    return given.get("read") == "1"


def _of_newest(places: OpenedPaths, given: Given, limits: Limits, part: Part) -> Any:
    """Do the work on the pinned table, and once more on its newest state if the files of the pinned one are gone."""
    number, name = number_of(given, "place", 0) or 0, given.get("table", "")
    try:
        return _done(places, number, name, given, limits, part)
    except StateStoreError as error:
        places.renew_after(number, error)
    return _done(places, number, name, given, limits, part)


def _done(places: OpenedPaths, number: int, name: str, given: Given, limits: Limits, part: Part) -> Any:
    warehouse = places.warehouse(number)
    return part(warehouse, warehouse.open(name), given, limits)


# Rows, bytes and changes over versions.


def _sizes_of(warehouse: Warehouse, table: StateTable, reads: bool, limits: Limits) -> pa.Table:
    """Return the kept versions, oldest first; of more than SAMPLED_VERSIONS, one row stands for a run of them.

    ``first`` and ``version`` are the ends of the run, and ``time`` that of its last commit, in epoch milliseconds.
    ``rows``: valid as of the last version; ``bytes``: of all files that it needs; ``written`` and ``deleted``: rows
    that the commits of the run wrote and deleted. A null is unknown. With ``reads``, rows and changes that no metadata
    has are counted by a read of the state and of its changes.
    """
    oldest, newest = table.kept_versions()
    commits = table.versions()
    is_kept = pc.and_(pc.greater_equal(commits["version"], oldest), pc.less_equal(commits["version"], newest))
    commits = commits.filter(is_kept)
    numbers = commits["version"].cast(pa.int64()).to_numpy()
    last = np.unique(np.linspace(0, max(len(numbers) - 1, 0), SAMPLED_VERSIONS).round().astype(np.int64))[
        : len(numbers)
    ]
    first = np.concatenate(([0], last[:-1] + 1))[: len(last)]
    written, deleted = commits["rows"], commits["tombstones"]
    if reads and (written.null_count or deleted.null_count):
        written, deleted = _counted(table, numbers, limits) or (written, deleted)
    versions = _readable(warehouse, table, numbers[last].tolist(), limits)
    found = {
        "first": numbers[first].astype(np.float64),
        "version": numbers[last].astype(np.float64),
        "time": milliseconds(commits["timestamp"]).take(pa.array(last)),
        "rows": _at_each(versions, lambda version: _rows_at(table, version, reads, limits)),
        "bytes": _at_each(versions, lambda version: _bytes_at(warehouse, table, version, limits)),
        "written": _sums(written, first),
        "deleted": _sums(deleted, first),
    }
    return pa.table(found)


def _counted(table: StateTable, numbers: Ints, limits: Limits) -> tuple[pa.ChunkedArray, pa.ChunkedArray] | None:
    """Return the rows that each version wrote and deleted, from the change feed; null where it is not kept, and None
    if the table keeps no changes at all."""
    feed = batches_of(table, Query(mode="changes", columns=CHANGE_COLUMNS))
    try:
        counts = changes_by_version(limits.watched(feed), numbers)
    except NotFoundError as error:
        if error.code != ErrorCode.TIME_NOT_KEPT:
            raise
        return None
    is_unknown = numbers <= table.change_start()
    written = counts["insert"] + counts["update_postimage"]
    return (
        pa.chunked_array([pa.array(written, mask=is_unknown)]),
        pa.chunked_array([pa.array(counts["delete"], mask=is_unknown)]),
    )


def _sums(column: pa.ChunkedArray, first: Ints) -> pa.Array:
    """Return the sum of each run of rows; null where a row of it is null."""
    if not len(first):
        return pa.array([], pa.float64())
    known = pc.fill_null(column, 0).to_numpy()
    unknown = np.add.reduceat(column.is_null().to_numpy().astype(np.int64), first) > 0
    return pa.array(np.add.reduceat(known, first).astype(np.float64), mask=unknown)


def _readable(warehouse: Warehouse, table: StateTable, versions: Sequence[int], limits: Limits) -> list[int | None]:
    """Return the versions, with None instead of those whose state cannot be read."""
    query = Query(columns=("version", "readable"))
    snapshots = pa.Table.from_batches(list(limits.batches(_metadata(warehouse, table, "snapshots"), query)))
    readable = set(snapshots.filter(snapshots["readable"])["version"].to_pylist()) if snapshots.num_rows else set()
    return [version if version in readable else None for version in versions]


def _at_each(versions: Sequence[int | None], number: Callable[[int], int | None]) -> pa.Array:
    """Return a number at each version; null where it is unknown, and where the state did not exist yet."""
    found: list[int | None] = []
    for version in versions:
        try:
            found.append(None if version is None else number(version))
        except NotFoundError as error:
            if error.code in MOVED:
                raise
            found.append(None)
    return pa.array(found, pa.float64())


def _rows_at(table: StateTable, version: int, reads: bool, limits: Limits) -> int | None:
    limits.check()
    query = Query(version=version)
    return count_of(table, query, limits) if reads else table.count(query)


def _bytes_at(warehouse: Warehouse, table: StateTable, version: int, limits: Limits) -> int | None:
    """Return the bytes of the files that a version needs, with their indexes; None if one of them has no known size."""
    total = 0
    query = Query(version=version, columns=("bytes", "index_bytes"))
    for batch in limits.batches(_metadata(warehouse, table, "segments"), query):
        files, indexes = batch.columns
        if files.null_count:
            return None
        total += int(pc.sum(files).as_py() or 0) + int(pc.sum(indexes).as_py() or 0)
    return total


def _metadata(warehouse: Warehouse, table: StateTable, suffix: str) -> StateTable:
    return warehouse.open(f"{table.name}${suffix}")


# The busiest and the biggest keys of a table, exactly.

STORED_BYTES = "stored_bytes"
"""The placement column with the bytes that a row takes where it is stored."""


def _busiest_keys(table: StateTable, limits: Limits) -> pa.Table:
    """Return the TOP keys with the most versions in the kept history, the busiest first: the columns of the key as
    texts, and ``__number`` of versions. The metadata has the ``total`` of versions."""
    keys = _keys(table)
    history = Query(mode="history", columns=keys)
    return _top(table, keys, history, lambda batch: (hashes_of(batch.columns), None), limits)


def _biggest_keys(table: StateTable, query: Query, limits: Limits) -> pa.Table:
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


# Rows by the places where the engine stores them.


def _skew_of(table: StateTable, query: Query, limits: Limits) -> list[dict[str, Any]]:
    """Return for each column of placement the rows by its values at a moment: ``column``, ``values`` in their order,
    ``rows`` of each, and the ``most``, the ``median`` and the ``ratio`` of both.

    A place without rows is in no row, so it is not counted.
    """
    names = tuple(name for name in table.placement_columns if name != STORED_BYTES)
    if not names:
        return []
    counts: list[list[pa.Table]] = [[] for _ in names]
    for batch in limits.read(table, replace(query, columns=names)):
        for parts, column in zip(counts, batch.columns, strict=True):
            found = pc.value_counts(column)
            parts.append(pa.table({"value": found.field("values"), "rows": found.field("counts")}))
            if len(parts) > 64:
                parts[:] = [_folded(parts)]
    return [_skew(name, _folded(parts) if parts else None) for name, parts in zip(names, counts, strict=True)]


def _folded(parts: list[pa.Table]) -> pa.Table:
    found = pa.concat_tables(parts).group_by("value").aggregate([("rows", "sum")])
    return found.rename_columns({"rows_sum": "rows"}).select(["value", "rows"])


def _skew(name: str, found: pa.Table | None) -> dict[str, Any]:
    if found is None or not found.num_rows:
        return {"column": name, "values": [], "rows": [], "most": None, "median": None, "ratio": None}
    found = found.sort_by("value")
    rows = found["rows"].to_numpy()
    most, median = int(rows.max()), float(np.median(rows))
    values = [None if value is None else str(value) for value in python_values(found["value"].combine_chunks())]
    return {
        "column": name,
        "values": values,
        "rows": rows.tolist(),
        "most": most,
        "median": median,
        "ratio": most / median,
    }
