"""The floor of a read in an object store: plain Parquet of exactly the rows of the answer, on the same server.

pyarrow's own defaults write it: Snappy, dictionaries. It is read by the fastest way that needs no installation beyond
the extra ``bench``: pyarrow over its client of S3, with the ranges of all columns asked for at the same time; and by
DuckDB over a dataset of pyarrow. DuckDB's extension httpfs is not part of its package.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from benchmarks.objects.served import ObjectServer


class PlainParquet:
    """Files of rows in the bucket of a server."""

    def __init__(self, server: ObjectServer) -> None:
        self._bucket = server.bucket
        self._files = fs.S3FileSystem(
            access_key=server.access_key,
            secret_key=server.secret_key,
            endpoint_override=server.endpoint,
            region=server.region,
        )

    def write(self, name: str, rows: pa.Table) -> None:
        """Write rows as one file."""
        pq.write_table(rows, self._path(name), filesystem=self._files)

    def copy(self, name: str, copy: str) -> None:
        """Write the bytes of a file to another one."""
        with self._files.open_input_file(self._path(name)) as file:
            data = file.read_buffer()
        with self._files.open_output_stream(self._path(copy)) as written:
            written.write(data)

    def read(self, name: str, columns: Sequence[str] | None) -> pa.Table:
        """Read columns of a file (None: all) by pyarrow."""
        with self._files.open_input_file(self._path(name)) as file:
            return pq.ParquetFile(file, pre_buffer=True).read(columns=columns)

    def ask(self, name: str, question: str) -> pa.Table:
        """Ask DuckDB about a file, which is the table ``rows``."""
        with duckdb.connect() as connection:
            connection.register("rows", ds.dataset(self._path(name), filesystem=self._files, format="parquet"))
            return connection.sql(question.format("rows")).to_arrow_table()

    def _path(self, name: str) -> str:
        return f"{self._bucket}/plain/{name}.parquet"
