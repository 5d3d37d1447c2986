"""The versions of a table, as the axis of the scrubber and as the commits that explain a change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.connector.explorer.lives import milliseconds
from statestore.connector.explorer.shown_rows import shown_rows
from statestore.formats.state_table import StateTable

MARKS = 4_000
"""Places on the axis of versions; of more commits, some share one."""


def versions_of(table: StateTable) -> pa.Table:
    """Return the axis of versions, oldest first.

    Each place on it has a ``version``, a ``time`` (epoch milliseconds), ``commits`` and ``changes``: the rows that were
    written or deleted, null where this is unknown.
    """
    found = table.versions()
    numbers = found["version"].cast(pa.float64()).to_numpy()
    size = max(1, -(-len(numbers) // MARKS))
    starts = np.arange(0, len(numbers), size)
    last = np.minimum(starts + size, len(numbers)) - 1
    if not len(numbers):
        starts = last = np.empty(0, np.int64)
    changes = [found[name].cast(pa.float64()) for name in ("rows", "tombstones") if name in found.column_names]
    known = changes[0] if changes else pa.chunked_array([pa.nulls(len(numbers), pa.float64())])
    for each in changes[1:]:
        known = pc.add(known, pc.fill_null(each, 0.0))
    whole = known.to_numpy() if len(numbers) else np.empty(0)
    return pa.table(
        {
            "version": numbers[last],
            "time": milliseconds(found["timestamp"]).take(pa.array(last)),
            "commits": (last - starts + 1).astype(np.float64),
            "changes": pa.array(np.add.reduceat(whole, starts) if len(whole) else whole, from_pandas=True),
        }
    )


def commits_of(table: StateTable, versions: Sequence[int]) -> pa.Table:
    """Return all that is known of some commits, as texts."""
    found = table.versions()
    return shown_rows(found.filter(pc.is_in(found["version"], pa.array(versions, found["version"].type))))
