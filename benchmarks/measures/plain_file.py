"""The floor of a read: a plain Arrow file of exactly the rows of an answer, mapped into memory."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa

BATCH_ROWS = 1 << 17


def mapped(path: Path, columns: list[str] | None = None) -> pa.RecordBatchReader:
    """The rows of a plain file as batches over its map."""
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    if columns is not None:
        table = table.select(columns)
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(BATCH_ROWS))


def copy(reader: pa.RecordBatchReader) -> int:
    """Write the batches as an Arrow stream in memory, which touches every byte; return its size."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
    return int(sink.getvalue().size)


AGGREGATED = ["price", "stock"]


def aggregate(connection: duckdb.DuckDBPyConnection, reader: pa.RecordBatchReader) -> tuple[int, float, float]:
    """Let DuckDB aggregate two columns of the batches."""
    connection.register("batches", reader)
    found = connection.execute("SELECT count(*), sum(price), avg(stock) FROM batches").fetchall()[0]
    connection.unregister("batches")
    return int(found[0]), float(found[1] or 0), float(found[2] or 0)
