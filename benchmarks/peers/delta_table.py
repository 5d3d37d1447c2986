"""A Delta table, written by MERGE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, write_deltalake

from benchmarks.loads.stream import COLUMNS


@dataclass(frozen=True)
class Delta:
    path: Path

    def commit(self, rows: pa.Table) -> None:
        if not DeltaTable.is_deltatable(str(self.path)):
            write_deltalake(str(self.path), rows)
            return
        merge = DeltaTable(str(self.path)).merge(rows, "old.item = new.item", source_alias="new", target_alias="old")
        merge.when_matched_update_all("new.timestamp >= old.timestamp").when_not_matched_insert_all().execute()

    def at(self, commits: int) -> Callable[[], pa.RecordBatchReader]:
        table = DeltaTable(str(self.path), version=commits - 1)
        dataset = table.to_pyarrow_dataset()
        return lambda: dataset.scanner(columns=COLUMNS, filter=~ds.field("deleted")).to_reader()

    def close(self) -> None: ...


def open_table(folder: Path) -> Delta:
    return Delta(folder / "delta")
