"""The difference of two moments, restricted to a filter, counted by partition, and bounded in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.reads.arguments import Point, keys_named
from statestore.catalog.reads.difference import CHANGE, KINDS, NEW, OLD, difference
from statestore.catalog.reads.rows import Rows
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.connector.explorer import row_files
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.pages import shown_rows
from statestore.connector.explorer.row_files import RowFile, row_file_writer
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.state_table import Query, Split, StateTable
from statestore.formats.values.filters import Filter, mask

DIFF_ROWS = 500
PLACES = 1_000


def difference_of(
    path: Path, table: StateTable, old: Point, new: Point, filters: Sequence[Filter], limits: Limits
) -> RowFile:
    """Write the rows that differ between two points, in the columns of `Table.diff`, into a file to page through.

    With ``filters`` those whose row before or after meets them. The facts have the number of ``added``, ``changed`` and
    ``removed`` rows, and as ``places`` the numbers of each partition, a JSON array of [partition, added, changed,
    removed]; it is missing where rows lie in no partitions. Rows beyond the size of a file are counted and not kept.
    """
    counts = dict.fromkeys(KINDS, 0)
    places: dict[Any, list[int]] = {}
    place = table.placement_columns[0] if table.placement_columns else None
    found: Any = bounded_difference(table, old, new, limits, filters)
    with row_file_writer(path, found.schema) as file:
        for whole in limits.watched(iter(found)):
            batch = matching(whole, filters)
            for item in pc.value_counts(batch.column(CHANGE)).to_pylist():
                counts[item["values"]] += item["counts"]
            if place is not None:
                _count_places(places, batch, place)
            if batch.num_rows and file.bytes < row_files.MAX_BYTES:
                file.add(batch)
    facts = {name: str(count) for name, count in counts.items()}
    if place is not None and len(places) <= PLACES:
        facts["places"] = json.dumps([[key, *each] for key, each in sorted(places.items(), key=lambda item: str(item))])
        facts["place"] = place
    return file.finished(facts)


def by_column(rows: pa.Table) -> pa.Table:
    """Return rows of a difference as texts, with two columns for each value: ``_old.name`` and ``_new.name``."""
    sides = [name for name in (OLD, NEW) if name in rows.column_names]
    flat = rows.select([name for name in rows.column_names if name not in sides])
    names = [field.name for field in rows.schema.field(NEW).type]
    for number, name in enumerate(names):
        for side in sides:
            column = pc.struct_field(rows[side], [number])
            flat = flat.append_column(pa.field(f"{side}.{name}", column.type), column)
    return shown_rows(flat)


def matching(batch: pa.RecordBatch, filters: Sequence[Filter]) -> pa.RecordBatch:
    """Return the rows of a difference whose row before or after meets the filters."""
    if not filters or not batch.num_rows:
        return batch
    sides = [_side(batch, name) for name in (OLD, NEW)]
    masks = []
    for side, name in zip(sides, (OLD, NEW), strict=True):
        there = pc.is_valid(batch.column(name))
        passed = mask(filters, side)
        masks.append(there if passed is None else pc.and_(passed, there))
    return batch.filter(pc.or_(*masks))


def _side(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Return the keys with the values of one side, as rows of the table."""
    values = batch.column(name)
    kept = [at for at, field in enumerate(batch.schema) if not field.name.startswith("_")]
    fields = [batch.schema.field(at) for at in kept] + list(values.type)
    columns = [batch.column(at) for at in kept] + [pc.struct_field(values, [at]) for at in range(len(values.type))]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in fields]))


def _count_places(places: dict[Any, list[int]], batch: pa.RecordBatch, place: str) -> None:
    new, old = (_place(batch.column(name), place) for name in (NEW, OLD))
    pairs = pa.table({"place": pc.coalesce(new, old), "change": batch.column(CHANGE)})
    for row in pairs.group_by(["place", "change"]).aggregate([([], "count_all")]).to_pylist():
        places.setdefault(row["place"], [0] * len(KINDS))[KINDS.index(row["change"])] += row["count_all"]


def _place(values: pa.Array, place: str) -> pa.Array:
    at = values.type.get_field_index(place)
    return pc.struct_field(values, [at]) if at >= 0 else pa.nulls(len(values), pa.int32())


# Comparisons, which need memory: they end with the limits of a question, and before memory does.

MAX_BYTES = 1 << 30
BYTES_A_ROW = 16  # of a row of a store that differs: its place and its hash


def bounded_difference(
    table: StateTable, old: Point, new: Point, limits: Limits, filters: Sequence[Filter] = ()
) -> Rows:
    """Return `difference` of all columns, which ends with the limits also before its first row.

    Rows that the ``filters`` on columns of the key exclude may be left out: of a store of our own those of other keys,
    where whole keys are named.

    Raises UnsupportedError EXPLORER_LIMIT where the rows of both moments, or of a store of our own the list of those
    that differ, take more than MAX_BYTES.
    """
    table = table.pin()
    taken = 0

    def found(rows: int) -> None:
        nonlocal taken
        limits.check()
        taken += BYTES_A_ROW * rows
        if taken > MAX_BYTES:
            raise _too_large("the list of the rows that differ takes")

    of_keys = tuple(item for item in filters if item.column in (table.row_key or table.key_columns))
    if isinstance(table, VersionedTable) and keys_named(table, Query(filters=of_keys)) is None:
        return difference(table, old, new, None, found)
    return difference(cast("StateTable", _Bounded(table, limits)), old, new, of_keys=of_keys)


def _too_large(what: str) -> UnsupportedError:
    return UnsupportedError(
        ErrorCode.EXPLORER_LIMIT,
        f"{what} more than {MAX_BYTES >> 30} GiB, which is the most that the explorer compares; compare the moments "
        "with statestore diff, which has no limit",
    )


class _Bounded:
    def __init__(self, table: StateTable, limits: Limits) -> None:
        self._table = table
        self._limits = limits
        self._bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def pin(self) -> _Bounded:
        return self

    def differing(self, old: Query, new: Query) -> None:
        """Return None: a pair of rows may be large, and its size is only known when it is in memory."""

    def read(self, split: Split, query: Query) -> Iterator[pa.RecordBatch]:
        for batch in self._limits.watched(iter(self._table.read(split, query))):
            self._bytes += batch.nbytes
            if self._bytes > MAX_BYTES:
                raise _too_large("the rows of both moments take")
            yield batch
