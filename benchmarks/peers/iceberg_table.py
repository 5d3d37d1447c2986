"""An Iceberg table, overwritten by each commit with the merged rows.

PyIceberg's own ``upsert`` knows no condition on the old row, and takes twelve times the processor time: 5.8 against 0.5
seconds for 70,000 keys of 800,000.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.loads.stream import COLUMNS

MERGE = """
    WITH valid AS (
        SELECT new.* FROM new LEFT JOIN old USING (item) WHERE old.item IS NULL OR new.timestamp >= old.timestamp
    )
    SELECT * FROM valid UNION ALL SELECT old.* FROM old ANTI JOIN valid USING (item)
"""


@dataclass
class Iceberg:
    catalog: Any
    table: Any = None
    snapshots: list[int] = field(default_factory=list)

    def commit(self, rows: pa.Table) -> None:
        if self.table is None:
            self.table = self.catalog.create_table("peers.prices", schema=rows.schema)
            self.table.append(rows)
        else:
            with duckdb.connect() as connection:
                connection.register("old", self.table.scan().to_arrow())
                connection.register("new", rows)
                merged: pa.Table = connection.sql(MERGE).to_arrow_table()
            self.table.overwrite(merged.cast(self.table.schema().as_arrow()))
        self.snapshots.append(self.table.current_snapshot().snapshot_id)

    def at(self, commits: int) -> Callable[[], pa.RecordBatchReader]:
        fields, live = tuple(COLUMNS), "deleted = false"
        snapshot = self.snapshots[commits - 1]
        return lambda: self.table.scan(live, fields, snapshot_id=snapshot).to_arrow_batch_reader()

    def close(self) -> None:
        self.catalog.close()


def open_table(folder: Path) -> Iceberg:
    catalog = SqlCatalog("peers", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("peers")
    return Iceberg(catalog)
