"""Rows, bytes and changes over versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.warehouse import Warehouse
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.lives import milliseconds
from statestore.connector.explorer.pages import batches_of, count_of
from statestore.connector.explorer.places import MOVED
from statestore.connector.report.figures import CHANGE_COLUMNS, SAMPLED_VERSIONS, changes_by_version
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.state_table import Query, StateTable


def sizes_of(warehouse: Warehouse, table: StateTable, reads: bool, limits: Limits) -> pa.Table:
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
