"""`statestore.inspect`: what is at a path, as tables to read."""

from __future__ import annotations

import os
from dataclasses import dataclass

from statestore.catalog.discovery import Warehouse, open_warehouse
from statestore.catalog.table_reads import ReadableTable


@dataclass(frozen=True)
class Inspection:
    """What is at a path; nothing is read until a table is."""

    warehouse: Warehouse

    @property
    def path(self) -> str:
        return self.warehouse.path

    def tables(self) -> list[str]:
        """Names of the tables with state; each also has metadata tables, like ``prices$versions``."""
        return self.warehouse.tables()

    def table(self, name: str) -> ReadableTable:
        """A table by name; NotFoundError TABLE_NOT_FOUND names the nearest."""
        return ReadableTable(self.warehouse.table(name))


def inspect(path: str | os.PathLike[str]) -> Inspection:
    """What is at ``path``: a warehouse, one store, or a checkpoint of Spark, which may also be s3://bucket/folder, gs://…,
    abfs://…, hdfs://… or what an installed fsspec opens.

    Raises NotFoundError PATH_NOT_FOUND or NOTHING_HERE, InvalidInputError INVALID_LOCATION or NO_ACCESS,
    UnsupportedError UNSUPPORTED_PATH.
    """
    return Inspection(open_warehouse(path))
