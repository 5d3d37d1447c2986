"""The figures of a report on each table, over versions and over state time, small enough for a page.

Tables are read in Arrow batches that are folded at once. A history of up to HELD_BYTES is read once and kept in memory;
of a greater one, only counts and the versions of a few keys are.
All figures are exact. Times are epoch milliseconds, as the charts need them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.store_tables import metadata_of
from statestore.connector.report.history import Counts, History, history_of, read_rows
from statestore.connector.report.key_counts import Weighed, greatest, key_texts, row_bytes, unlike
from statestore.connector.report.lifelines import Chosen, flat, hashes_of, lifelines, milliseconds, positions
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.key_hash import key_groups_of

SAMPLED_VERSIONS = 40  # points of the curves of size and key count
COMMIT_BARS = 120
TIME_CELLS, GROUP_CELLS = 64, 32
TOP = 15
UPKEEP = ("create", "compact", "expire", "discard")  # commits that change no answer
CHANGE_COLUMNS = ("_change_type", "_commit_version")
CHANGE_KINDS = ("insert", "update_preimage", "update_postimage", "delete")
PARTS = 10  # of the figures of a table, for those who watch
GROWTH_PARTS = 5
Done = Callable[[int], None]
"""Called with the number of PARTS that are done."""


@dataclass(frozen=True)
class StoreFigures:
    """The figures of one table; rows are dicts ready for JSON."""

    name: str
    rows: int | None  # that are valid now; None if the newest version cannot be read
    versions: int | None  # of rows, in the history that is kept; None where no history can be read
    commits: frozenset[tuple[int, int]]  # (version, time) of each that may have changed an answer
    growth: list[dict[str, Any]]  # version, time, keys, bytes
    churn: list[dict[str, Any]]  # first, last, time, change, count
    heat: list[dict[str, Any]]  # from, to, group, groups, rows
    biggest: list[dict[str, Any]]  # key, bytes
    busiest: list[dict[str, Any]]  # key, versions
    lifelines: dict[str, list[dict[str, Any]]]  # by row key: column, from, to, value, version; from None: unknown
    numeric: list[str]  # value columns that lifelines draw as numbers
    first: int
    now: int
    is_timed: bool = True  # else ``from``, ``to``, ``first`` and ``now`` are versions


def figures_of(table: StateTable, chosen: Chosen = (), done: Done = lambda parts: None) -> StoreFigures:
    """Return the figures of one table, which is bound to its state at one moment (`StateTable.for_plan`).

    ``chosen``: keys that get a lifeline, however few versions they have.
    """
    own = (*table.key_columns, *table.row_key, "valid_from", "valid_to")
    columns = [field for field in table.schema(Query()) if field.name not in (*own, *table.placement_columns)]
    values = [field.name for field in columns]
    numeric = [field.name for field in flat(pa.schema(columns).empty_table()).schema if _is_number(field.type)]
    held = (*table.key_columns, *table.row_key, *values, *table.placement_columns, "_commit_version")
    history = history_of(table, held)
    hashes, versions, heat, total, first, now = _over_history(history)
    done(1)
    busiest = _named(lambda: history.rows(table.key_columns), hashes, versions, "versions")
    done(2)
    lives = lifelines(history, chosen, hashes, values)
    done(3)
    known = table.versions().combine_chunks()
    commits = _commits(known)
    counted = _counted(history, commits)
    growth = _growth(table, known, commits, counted, lambda share: done(3 + int(share * GROWTH_PARTS)))
    churn = _churn(commits, counted)
    done(PARTS - 1)
    newest = table.kept_versions()[1]
    return StoreFigures(
        table.name,
        growth[-1]["keys"] if growth and growth[-1]["version"] == newest else None,
        total,
        frozenset(
            zip(commits["version"].to_pylist(), milliseconds(commits["timestamp"].chunk(0)).tolist(), strict=True)
        )
        if commits.num_rows
        else frozenset(),
        growth,
        churn,
        heat,
        _biggest(history),
        busiest,
        lives,
        numeric,
        first,
        now,
        history.is_timed,
    )


def figures_now(table: StateTable) -> StoreFigures:
    """Return what the newest version alone shows of a table without a history."""
    rows = table.count(Query())
    if rows is None:
        rows = sum(batch.num_rows for batch in read_rows(table, Query(columns=tuple(table.schema(Query()).names[:1]))))
    return StoreFigures(
        table.name, rows, None, frozenset(), [], [], [], _biggest(History(table, None)), [], {}, [], 0, 0
    )


# Over versions


def _counted(history: History, commits: pa.Table) -> Counts | None:
    """Return the rows that commits wrote and ended, by the history or by the change feed; None where commits state
    them, or there are none.

    Versions that are no longer kept count none.
    """
    if not commits["rows"].null_count:
        return None
    found = history.counts(commits)
    if found is not None:
        return found
    feed = read_rows(history.table, Query(mode="changes", columns=CHANGE_COLUMNS))
    counted = changes_by_version(feed, commits["version"].to_numpy())
    return Counts(counted["insert"] + counted["update_postimage"], counted["update_preimage"] + counted["delete"])


def _growth(
    table: StateTable, known: pa.Table, commits: pa.Table, counted: Counts | None, done: Callable[[float], None]
) -> list[dict[str, Any]]:
    """Live keys and bytes at up to SAMPLED_VERSIONS versions, evenly spread over the readable ones."""
    readable = _readable(table, known)
    versions = sorted({readable[int(n)] for n in np.linspace(0, len(readable) - 1, SAMPLED_VERSIONS).round()})
    times = dict(zip(known["version"].to_pylist(), _moments(known["timestamp"].chunk(0)), strict=True))
    source = metadata_of(table, "segments").source
    keys = _keys_by_changes(table, versions, commits["version"].to_numpy(), counted)
    rows = []
    for number, version in enumerate(versions):
        done(number / len(versions))
        live = keys.get(version)
        if live is None:
            live = _keys_at(table, version)
        rows.append({"version": version, "time": times[version], "keys": live, "bytes": source.total_bytes(version)})
    return rows


def _keys_at(table: StateTable, version: int) -> int:
    """Return the number of rows as of a version, which are read where no metadata has it."""
    query = Query(version=version, columns=tuple(table.schema(Query()).names[:1]))
    keys = table.count(query)
    return sum(batch.num_rows for batch in read_rows(table, query)) if keys is None else keys


def _keys_by_changes(
    table: StateTable, versions: Sequence[int], changed: Ints, counted: Counts | None
) -> dict[int, int]:
    """Return the rows at each of these ascending versions, counted back from the newest by the changes since.

    A state that is replayed for each of them is read as often. Empty if nothing was counted, or if what is left at the
    oldest version is not what is read there.
    """
    if counted is None or (counted.now is None and len(versions) < 3):
        return {}
    grown = np.concatenate(([0], np.cumsum(counted.written - counted.ended)))
    at = grown[np.searchsorted(changed, versions, side="right")]
    if counted.now is not None:
        return dict(zip(versions, (counted.now - int(grown[-1]) + at).tolist(), strict=True))
    newest = _keys_at(table, versions[-1])
    keys = dict(zip(versions, (newest - int(at[-1]) + at).tolist(), strict=True))
    return keys if keys[versions[0]] == _keys_at(table, versions[0]) else {}


def _readable(table: StateTable, known: pa.Table) -> list[int]:
    oldest, newest = table.kept_versions()
    # The metadata of a store are those of its newest commit, unless a version is named.
    query = Query(version=known["version"][-1].as_py(), columns=("version", "readable"))
    snapshots = pa.Table.from_batches(list(read_rows(metadata_of(table, "snapshots"), query)))
    versions: list[int] = sorted(snapshots.filter(snapshots["readable"])["version"].to_pylist())
    return [version for version in versions if oldest <= version <= newest]


def _commits(known: pa.Table) -> pa.Table:
    """Return the commits that may have changed an answer, oldest first."""
    commits = known.select(["version", "timestamp", "operation", "rows", "closed"])
    return commits.filter(pc.invert(pc.is_in(commits["operation"], pa.array(UPKEEP)))).combine_chunks()


def _churn(commits: pa.Table, counted: Counts | None) -> list[dict[str, Any]]:
    """Versions of keys that commits wrote and ended, for each commit, or for each run of commits where there are
    many."""
    if not commits.num_rows:
        return []
    width = max(1, -(-commits.num_rows // COMMIT_BARS))
    first = np.arange(0, commits.num_rows, width)
    last = np.minimum(first + width, commits.num_rows) - 1
    versions, times = commits["version"].to_numpy(), _moments(commits["timestamp"].chunk(0))
    if counted is None:
        counted = Counts(commits["rows"].to_numpy(), commits["closed"].to_numpy())
    counts = {"written": np.add.reduceat(counted.written, first), "ended": -np.add.reduceat(counted.ended, first)}
    return [
        {
            "first": int(versions[a]),
            "last": int(versions[b]),
            "time": times[b],
            "change": change,
            "count": int(numbers[index]),
        }
        for index, (a, b) in enumerate(zip(first, last, strict=True))
        for change, numbers in counts.items()
        if numbers[index]
    ]


def _moments(times: pa.Array) -> list[int | None]:
    """Return times as epoch milliseconds, None where they are unknown."""
    return [
        None if gone else at for gone, at in zip(times.is_null().to_pylist(), milliseconds(times).tolist(), strict=True)
    ]


def changes_by_version(batches: Iterator[pa.RecordBatch], versions: Ints) -> dict[str, Ints]:
    """Count the rows of a change feed of CHANGE_COLUMNS for each of these ascending versions, by the kind of change."""
    counts = {kind: np.zeros(len(versions), np.int64) for kind in CHANGE_KINDS}
    for batch in batches:
        kinds, numbers = batch.column(0), batch.column(1).to_numpy()
        for kind, sums in counts.items():
            mine = pc.equal(kinds, kind).to_numpy(zero_copy_only=False)
            sums += np.bincount(np.searchsorted(versions, numbers[mine]), minlength=len(versions))
    return counts


# Over state time and keys


def _over_history(history: History) -> tuple[Hashes, Ints, list[dict[str, Any]], int, int, int]:
    """Return the busiest keys and their versions, rows by key group and start, the number of rows, and the first
    and last moment or version known. Rows with an unknown start count as versions, but are not placed in time."""
    first, last = _span(history)
    width = max(1, -(-(last - first + 1) // TIME_CELLS))
    cells = np.zeros((TIME_CELLS, GROUP_CELLS), np.int64)
    counted, total = False, 0

    def read() -> Iterator[Weighed]:
        nonlocal counted, total
        for batch in history.rows((*history.table.key_columns, history.ends[0])):
            hashes = hashes_of(batch.columns[:-1])
            if not counted:
                total += batch.num_rows
                timed = batch.columns[-1].is_valid().to_numpy(zero_copy_only=False)
                cell = (positions(batch.columns[-1]) - first) // width * GROUP_CELLS + key_groups_of(
                    hashes, GROUP_CELLS
                )
                np.add(cells, np.bincount(cell[timed], minlength=cells.size).reshape(cells.shape), out=cells)
            yield hashes, None
        counted = True

    busiest, versions = greatest(read, TOP)
    heat = [
        {"from": first + int(c) * width, "to": first + (int(c) + 1) * width, "group": int(g), "rows": int(cells[c, g])}
        for c, g in zip(*np.nonzero(cells), strict=True)
    ]
    return busiest, versions, heat, total, first, last


def _span(history: History) -> tuple[int, int]:
    """The first and last moment, or version, at which a row started or ended."""
    first, last = None, None
    for batch in history.rows(history.ends):
        for column in batch.columns:
            moments = positions(column.drop_null())
            if len(moments):
                low, high = int(moments.min()), int(moments.max())
                first = low if first is None else min(first, low)
                last = high if last is None else max(last, high)
    if first is None or last is None:
        table = history.table
        newest = table.kept_versions()[1]
        only = (table.known_from(newest) or 0) // 1000 if history.is_timed else newest
        return only, only
    return first, last


def _biggest(history: History) -> list[dict[str, Any]]:
    """The keys whose current values take the most bytes, by their widths in memory."""
    table = history.table
    names = table.schema(Query()).names
    values = [name for name in names if name not in (*table.key_columns, "valid_from", "valid_to")]
    if not values:
        return []
    width = len(table.key_columns)
    columns = (*table.key_columns, *values)
    best, sizes = greatest(
        lambda: ((hashes_of(b.columns[:width]), row_bytes(b.columns[width:])) for b in history.now(columns)), TOP
    )
    return _named(lambda: history.now(table.key_columns), best, sizes, "bytes")


def _named(read: Callable[[], Iterator[pa.RecordBatch]], hashes: Hashes, sums: Ints, name: str) -> list[dict[str, Any]]:
    """The keys of these hashes as texts, with their sums as ``name``; ``read`` yields the columns of the key."""
    names: dict[int, str] = {}
    for batch in read() if len(hashes) else ():
        mine = np.flatnonzero(np.isin(own := hashes_of(batch.columns), hashes))
        if len(mine):
            texts = key_texts([column.take(pa.array(mine)) for column in batch.columns]).to_pylist()
            names |= dict(zip(own[mine].tolist(), texts, strict=True))
        if len(names) == len(hashes):
            break
    known = [(key, n) for key, n in zip(hashes.tolist(), sums.tolist(), strict=True) if key in names]
    shown = unlike([names[key] for key, _ in known])
    return [{"key": key, name: n} for key, (_, n) in zip(shown, known, strict=True)]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
