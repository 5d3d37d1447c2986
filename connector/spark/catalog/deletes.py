"""DELETE: tombstones for the rows that a condition selects, as one commit.

A row of a versioned store ends one millisecond after the newest moment that the store knows: what it was until then
stays, and a read of the newest state no longer has it. Rows of other kinds end with the commit.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.connector.spark.location import open_store_at
from statestore.formats.places.locations import parse_location
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter
from statestore.formats.values.types import TIME

_MILLISECOND = 1_000


def delete_rows(path: str, filters: tuple[Filter, ...]) -> int:
    """Delete the rows of the newest state that pass ``filters``; return their number. Nothing selected: no commit.

    Raises ConflictError STORE_LOCKED if another process has a live store open.
    """
    with open_store_at(parse_location(path)) as store:
        table: VersionedTable = store.table
        spec = store.spec
        query = Query(columns=tuple(spec.key_names), filters=filters)
        batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
        keys = pa.Table.from_batches(batches, schema=table.schema(query))
        if not keys.num_rows:
            return 0
        columns = {name: keys[name] for name in keys.column_names}
        columns |= {field.name: pa.nulls(keys.num_rows, field.type) for field in spec.value}
        if spec.kind == "versioned":
            moment = table.files().log_state().stream_time_us + _MILLISECOND
            columns["timestamp"] = pa.array(np.full(keys.num_rows, moment)).cast(TIME)
        columns["_change_type"] = pa.array(["delete"] * keys.num_rows)
        store.put_all(pa.table(columns))
        store.commit()
        return int(keys.num_rows)
