"""A Lance dataset, written by merge_insert."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lance
import pyarrow as pa

from benchmarks.loads.stream import COLUMNS


@dataclass(frozen=True)
class Lance:
    path: Path

    def commit(self, rows: pa.Table) -> None:
        if not self.path.exists():
            lance.write_dataset(rows, str(self.path))
            return
        merge = lance.dataset(str(self.path)).merge_insert("item")
        merge.when_matched_update_all("source.timestamp >= target.timestamp").when_not_matched_insert_all()
        merge.execute(rows)

    def at(self, commits: int) -> Callable[[], pa.RecordBatchReader]:
        dataset = lance.dataset(str(self.path), version=commits)
        return lambda: dataset.scanner(columns=COLUMNS, filter="not deleted").to_reader()

    def close(self) -> None: ...


def open_table(folder: Path) -> Lance:
    return Lance(folder / "data.lance")
