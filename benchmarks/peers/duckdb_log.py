"""A DuckDB table to which changes are appended; a read takes the newest change of each key by ``arg_max``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

READ = """
    SELECT item, row.price, row.stock, row.label, row.note FROM (
        SELECT item, arg_max(
            struct_pack(price := price, stock := stock, label := label, note := note, gone := deleted),
            row(timestamp, commit)
        ) AS row
        FROM log WHERE commit <= {} GROUP BY item
    ) WHERE NOT row.gone
"""


@dataclass
class DuckDBLog:
    connection: duckdb.DuckDBPyConnection
    commits: int = 0

    def commit(self, rows: pa.Table) -> None:
        self.commits += 1
        self.connection.register("new", rows)
        insert = "CREATE TABLE log AS" if self.commits == 1 else "INSERT INTO log"
        self.connection.execute(f"{insert} SELECT *, {self.commits} AS commit FROM new")
        self.connection.unregister("new")

    def at(self, commits: int) -> Callable[[], pa.RecordBatchReader]:
        return lambda: self.connection.sql(READ.format(commits)).to_arrow_reader()

    def close(self) -> None:
        self.connection.close()


def open_table(folder: Path) -> DuckDBLog:
    return DuckDBLog(duckdb.connect(str(folder / "log.duckdb")))
