"""The figures of a report: what each table holds, over versions and over state time, small enough for a page.

Everything is read in Arrow batches and folded at once; nothing of a table is kept but counts, and the versions of a few
keys. Times are epoch milliseconds, as charts have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.comparable import comparable
from statestore.catalog.discovery import Warehouse
from statestore.connector.report.key_counts import KeyCounts, key_texts, row_bytes
from statestore.formats.key_hash import hash_keys, key_groups_of
from statestore.formats.state_table import Query, StateTable

Ints = npt.NDArray[np.int64]

SAMPLED_VERSIONS = 40  # points of the curves of size and key count
COMMIT_BARS = 120
TIME_CELLS, GROUP_CELLS = 64, 32
TOP = 15
LIFELINES = 12
VERSIONS_OF_A_KEY = 400
UPKEEP = ("create", "compact", "expire", "discard")  # commits that change no answer


@dataclass(frozen=True)
class StoreFigures:
    """What the page shows of one table; rows are dicts ready for JSON."""

    name: str
    growth: list[dict[str, Any]]  # version, time, keys, bytes
    churn: list[dict[str, Any]]  # first, last, time, change, count
    heat: list[dict[str, Any]]  # from, to, group, groups, rows
    biggest: list[dict[str, Any]]  # key, bytes
    busiest: list[dict[str, Any]]  # key, versions
    lifelines: dict[str, list[dict[str, Any]]]  # by key: column, from, to, value, version
    numeric: list[str]  # value columns that lifelines draw as numbers
    now: int


def figures_of(warehouse: Warehouse, name: str, chosen: Sequence[str] = ()) -> StoreFigures:
    """The figures of one table. ``chosen``: keys (as text) that get a lifeline, however few versions they have."""
    table = warehouse.table(name)
    counts, heat, now = _over_history(table)
    busiest = counts.top(TOP, "versions")
    biggest = _biggest(table)
    wanted = list(dict.fromkeys([*chosen, *(row["key"] for row in busiest[:LIFELINES])]))
    columns = [
        field for field in table.schema(Query()) if field.name not in (*table.key_columns, "valid_from", "valid_to")
    ]
    values = [field.name for field in columns]
    numeric = [field.name for field in _flat(pa.schema(columns).empty_table()).schema if _is_number(field.type)]
    return StoreFigures(
        name,
        _growth(warehouse, table),
        _churn(warehouse, table),
        heat,
        biggest,
        busiest,
        _lifelines(table, wanted, values),
        numeric,
        now,
    )


def _read(table: StateTable, query: Query) -> Iterator[pa.RecordBatch]:
    for split in table.splits(query):
        yield from table.read(split, query)


# Over versions


def _growth(warehouse: Warehouse, table: StateTable) -> list[dict[str, Any]]:
    """Live keys and bytes at about SAMPLED_VERSIONS versions, evenly spread over those that can be read."""
    readable = _readable(warehouse, table)
    versions = sorted({readable[int(n)] for n in np.linspace(0, len(readable) - 1, SAMPLED_VERSIONS).round()})
    times = _commit_times(warehouse, table, versions)
    column = table.schema(Query()).names[:1]
    rows = []
    for version in versions:
        keys = sum(batch.num_rows for batch in _read(table, Query(version=version, columns=tuple(column))))
        rows.append(
            {"version": version, "time": times[version], "keys": keys, "bytes": _bytes_at(warehouse, table, version)}
        )
    return rows


def _readable(warehouse: Warehouse, table: StateTable) -> list[int]:
    oldest, newest = table.kept_versions()
    query = Query(columns=("version", "readable"))
    found = pa.Table.from_batches(list(_read(warehouse.table(f"{table.name}$snapshots"), query)))
    versions: list[int] = sorted(found.filter(found["readable"])["version"].to_pylist())
    return [version for version in versions if oldest <= version <= newest]


def _commit_times(warehouse: Warehouse, table: StateTable, versions: Sequence[int]) -> dict[int, int]:
    found = pa.Table.from_batches(
        list(_read(warehouse.table(f"{table.name}$versions"), Query(columns=("version", "timestamp"))))
    )
    times = dict(zip(found["version"].to_pylist(), _ms(found["timestamp"].combine_chunks()).tolist(), strict=True))
    return {version: times[version] for version in versions}


def _bytes_at(warehouse: Warehouse, table: StateTable, version: int) -> int:
    query = Query(version=version, columns=("bytes", "index_bytes"))
    batches = _read(warehouse.table(f"{table.name}$segments"), query)
    return sum(int(pc.sum(column).as_py() or 0) for batch in batches for column in batch.columns)


def _churn(warehouse: Warehouse, table: StateTable) -> list[dict[str, Any]]:
    """Versions of keys that commits wrote and ended, per commit, or per run of commits where there are many."""
    columns = ("version", "timestamp", "operation", "rows", "closed")
    batches = list(_read(warehouse.table(f"{table.name}$versions"), Query(columns=columns)))
    found = pa.Table.from_batches(batches).combine_chunks()
    found = found.filter(pc.invert(pc.is_in(found["operation"], pa.array(UPKEEP))))
    if not found.num_rows:
        return []
    width = max(1, -(-found.num_rows // COMMIT_BARS))
    first = np.arange(0, found.num_rows, width)
    last = np.minimum(first + width, found.num_rows) - 1
    versions, times = found["version"].to_numpy(), _ms(found["timestamp"].chunk(0))
    rows, closed = (found[name] for name in ("rows", "closed"))
    if rows.null_count:
        written, ended = _counted_changes(table, versions)
    else:
        written, ended = rows.to_numpy(), closed.to_numpy()
    counts = {"written": np.add.reduceat(written, first), "ended": -np.add.reduceat(ended, first)}
    return [
        {
            "first": int(versions[a]),
            "last": int(versions[b]),
            "time": int(times[b]),
            "change": change,
            "count": int(numbers[place]),
        }
        for place, (a, b) in enumerate(zip(first, last, strict=True))
        for change, numbers in counts.items()
        if numbers[place]
    ]


def _counted_changes(table: StateTable, versions: Ints) -> tuple[Ints, Ints]:
    """Rows that each of the versions wrote and ended, where commits do not say so; none of those that are gone."""
    written, ended = np.zeros(len(versions), np.int64), np.zeros(len(versions), np.int64)
    for batch in _read(table, Query(mode="changes", columns=("_change_type", "_commit_version"))):
        place = np.searchsorted(versions, batch.column(1).to_numpy())
        new = pc.is_in(batch.column(0), pa.array(["insert", "update_postimage"])).to_numpy(zero_copy_only=False)
        written += np.bincount(place[new], minlength=len(versions))
        ended += np.bincount(place[~new], minlength=len(versions))
    return written, ended


# Over state time and keys


def _over_history(table: StateTable) -> tuple[KeyCounts, list[dict[str, Any]], int]:
    """Versions of each key, and rows by key group and time of their start: two passes over the history."""
    first, last = _span(table)
    width = max(1, -(-(last - first + 1) // TIME_CELLS))
    cells = np.zeros((TIME_CELLS, GROUP_CELLS), np.int64)
    counts = KeyCounts(table.key_columns)
    query = Query(mode="history", columns=(*table.key_columns, "valid_from"))
    for batch in _read(table, query):
        keys = batch.columns[: len(table.key_columns)]
        hashes = _hashes(keys)
        cell = (_ms(batch.columns[-1]) - first) // width * GROUP_CELLS + key_groups_of(hashes, GROUP_CELLS)
        cells += np.bincount(cell, minlength=cells.size).reshape(cells.shape)
        counts.add(keys, hashes)
    heat = [
        {"from": first + int(c) * width, "to": first + (int(c) + 1) * width, "group": int(g), "rows": int(cells[c, g])}
        for c, g in zip(*np.nonzero(cells), strict=True)
    ]
    return counts, heat, last


def _hashes(keys: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
    """Of keys of any type: engines' keys may hold what ours can not."""
    return hash_keys([comparable(column) for column in keys])


def _span(table: StateTable) -> tuple[int, int]:
    """The first and last start of a version."""
    first, last = None, None
    for batch in _read(table, Query(mode="history", columns=("valid_from",))):
        starts = _ms(batch.column(0))
        if len(starts):
            low, high = int(starts.min()), int(starts.max())
            first = low if first is None else min(first, low)
            last = high if last is None else max(last, high)
    return (0, 0) if first is None or last is None else (first, last)


def _biggest(table: StateTable) -> list[dict[str, Any]]:
    """The keys whose current values take most bytes, by their widths in memory."""
    names = table.schema(Query()).names
    values = [name for name in names if name not in (*table.key_columns, "valid_from", "valid_to")]
    sums = KeyCounts(table.key_columns)
    for batch in _read(table, Query(columns=(*table.key_columns, *values))) if values else ():
        keys = batch.columns[: len(table.key_columns)]
        sums.add(keys, _hashes(keys), row_bytes(batch.columns[len(keys) :]))
    return sums.top(TOP, "bytes")


def _lifelines(table: StateTable, keys: Sequence[str], values: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """The newest VERSIONS_OF_A_KEY versions of each key, a row for each value column; fields of structs are columns."""
    found: dict[str, list[dict[str, Any]]] = {}
    width = len(table.key_columns)
    columns = (*table.key_columns, *values, "valid_from", "valid_to", "_commit_version")
    wanted = pa.array(list(keys), pa.string())
    query = Query(mode="history", columns=columns)
    parts = []
    for batch in _read(table, query) if len(keys) else ():
        texts = key_texts(batch.columns[:width])
        mine = pc.is_in(texts, wanted)
        if pc.any(mine).as_py():
            parts.append(pa.Table.from_batches([batch]).append_column("__key", texts).filter(mine))
    if not parts:
        return found
    rows = pa.concat_tables(parts).sort_by("valid_from")
    shown = _flat(rows.select(values)).column_names
    rows = _flat(rows)
    for key in keys:
        one = rows.filter(pc.equal(rows["__key"], key))
        one = one.slice(max(0, one.num_rows - VERSIONS_OF_A_KEY))
        starts = _ms(one["valid_from"].combine_chunks()).tolist()
        ends = one["valid_to"].combine_chunks()
        open_ = ends.is_null().to_pylist()
        ends_ms = _ms(ends).tolist()
        versions = one["_commit_version"].to_pylist()
        found[key] = [
            {"column": name, "from": start, "to": None if still else end, "value": _shown(value), "version": version}
            for name in shown
            for start, end, still, value, version in zip(
                starts, ends_ms, open_, one[name].to_pylist(), versions, strict=True
            )
        ]
    return found


def _flat(rows: pa.Table) -> pa.Table:
    """Structs as their fields, ``value.count``, down to what is none."""
    while any(pa.types.is_struct(field.type) for field in rows.schema):
        rows = rows.flatten()
    return rows


def _shown(value: Any) -> Any:
    if value is None or isinstance(value, bool | str) or (isinstance(value, int) and abs(value) < 1 << 53):
        return value if not isinstance(value, str) or len(value) <= 60 else value[:59] + "…"
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _ms(column: pa.Array) -> Ints:
    found: Ints = (
        column.cast(pa.timestamp("us", "UTC")).view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // 1000
    )
    return found
