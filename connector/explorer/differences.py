"""The difference of two moments, restricted to a filter and counted by partition."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.reads.difference import CHANGE, KINDS, NEW, OLD, Point
from statestore.connector.explorer import spools
from statestore.connector.explorer.bounded import bounded_difference
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.shown_rows import shown_rows
from statestore.connector.explorer.spools import Spool, rows_file
from statestore.formats.state_table import StateTable
from statestore.formats.values.filters import Filter, mask

DIFF_ROWS = 500
PLACES = 1_000


def difference_of(
    path: Path, table: StateTable, old: Point, new: Point, filters: Sequence[Filter], limits: Limits
) -> Spool:
    """Write the rows that differ between two points, in the columns of `Table.diff`, into a file to page through.

    With ``filters`` those whose row before or after meets them. The facts have the number of ``added``, ``changed`` and
    ``removed`` rows, and as ``places`` the numbers of each partition, a JSON array of [partition, added, changed,
    removed]; it is missing where rows lie in no partitions. Rows beyond the size of a file are counted and not kept.
    """
    counts = dict.fromkeys(KINDS, 0)
    places: dict[Any, list[int]] = {}
    place = table.placement_columns[0] if table.placement_columns else None
    found: Any = bounded_difference(table, old, new, limits, filters)
    with rows_file(path, found.schema) as file:
        for whole in limits.watched(iter(found)):
            batch = matching(whole, filters)
            for item in pc.value_counts(batch.column(CHANGE)).to_pylist():
                counts[item["values"]] += item["counts"]
            if place is not None:
                _count_places(places, batch, place)
            if batch.num_rows and file.bytes < spools.MAX_BYTES:
                file.add(batch)
    facts = {name: str(count) for name, count in counts.items()}
    if place is not None and len(places) <= PLACES:
        facts["places"] = json.dumps([[key, *each] for key, each in sorted(places.items(), key=lambda item: str(item))])
        facts["place"] = place
    return file.spool(facts)


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
