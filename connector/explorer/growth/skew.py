"""Rows by the places where the engine stores them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.connector.explorer.growth.keys import STORED_BYTES
from statestore.connector.explorer.limits import Limits
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.python_times import python_values


def skew_of(table: StateTable, query: Query, limits: Limits) -> list[dict[str, Any]]:
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
