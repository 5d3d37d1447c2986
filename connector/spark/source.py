"""The Spark data source: any `StateTable` as a DataFrame, one partition per split, Arrow batches all the way."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from statestore.catalog.discovery import open_table
from statestore.connector.options import query_of
from statestore.connector.spark.errors import message_only
from statestore.connector.spark.filters import as_filter
from statestore.connector.spark.schema import arrow_schema, spark_schema
from statestore.connector.spark.writer import StateStoreWriter
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.filters import Filter
from statestore.formats.state_table import Query, StateTable

SOURCE_NAME = "arrow_statestore"
BATCH_ROWS = 1 << 16
URI = re.compile(r"[a-zA-Z][\w+.-]+:/")
PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class StateStoreSource(DataSource):
    """`spark.read.format("arrow_statestore")`; `register` makes "statestore" mean the same."""

    @classmethod
    def name(cls) -> str:
        return SOURCE_NAME

    def schema(self) -> StructType:
        with message_only():
            table = self._table()
            return spark_schema(table.schema(_as_spelled(table, query_of(self.options))))

    def reader(self, schema: StructType) -> DataSourceReader:
        with message_only():
            table, query = self._table(), query_of(self.options)
            query = _narrowed(table, query, schema)
            return (FilteringReader if _plans_with_filters() else TableReader)(table, query, schema)

    def writer(self, schema: StructType, overwrite: bool) -> StateStoreWriter:
        with message_only():
            return StateStoreWriter(self._path(), schema, overwrite, self.options)

    def streamReader(self, schema: StructType) -> NoReturn:
        raise _no_streaming()

    def simpleStreamReader(self, schema: StructType) -> NoReturn:
        raise _no_streaming()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise _no_streaming()

    def _table(self) -> StateTable:
        return open_table(self._path())

    def _path(self) -> str:
        provider = _option(self.options, "provider")
        if provider is not None and provider.lower() not in (SOURCE_NAME, "statestore"):
            raise InvalidInputError(
                "INVALID_OPTION",
                f"option provider is {provider!r}; expected builtin, for Spark's own source, or nothing",
            )
        path = _option(self.options, "path")
        if not path:
            raise InvalidInputError("MISSING_PATH", "expected one path; write .load('warehouse/store') or .save(…)")
        local = path.removeprefix("file://") if path.startswith("file:///") else path.removeprefix("file:")
        if URI.match(local):
            raise UnsupportedError("UNSUPPORTED_PATH", f"{path}: this release reads and writes local directories only")
        return str(Path(local).absolute())  # tasks may run in another working directory


@dataclass
class TablePartition(InputPartition):
    """One split, or None for a read without any row."""

    split: Any


class TableReader(DataSourceReader):
    """Reads the splits of one query."""

    def __init__(self, table: StateTable, query: Query, schema: StructType) -> None:
        self._table = table
        self._query = query
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        with message_only():
            # Spark asks for at least one partition.
            return [TablePartition(split) for split in self._table.splits(self._query)] or [TablePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TablePartition)
        if partition.split is None:
            return
        schema = arrow_schema(self._schema)
        with message_only():
            for batch in self._table.read(partition.split, self._query):
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    yield _as_spark_has_it(batch.slice(start, BATCH_ROWS), schema)


class FilteringReader(TableReader):
    """The same with filters pushed down; Spark refuses a reader with this method where pushdown is off."""

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
        fields = self._table.schema(self._query)
        named = dict(zip(self._schema.names, fields, strict=True))
        schema = pa.schema([field.with_name(name) for name, field in named.items()])
        taken: list[Filter] = []
        for pushed in filters:
            found = as_filter(pushed, schema)
            if found is None:
                yield pushed
            else:
                taken.append(replace(found, column=named[found.column].name))
        self._query = replace(self._query, filters=tuple(taken))


def _narrowed(table: StateTable, query: Query, schema: StructType) -> Query:
    """The query for just the columns of ``schema``, which the user may have given; their types must be the table's."""
    if not schema.names:
        raise InvalidInputError("WRONG_SCHEMA", f"the schema given for {table.name!r} has no column; name at least one")
    query = _as_spelled(table, replace(query, columns=tuple(schema.names)))
    have = spark_schema(table.schema(query))
    for asked, found in zip(schema, have, strict=True):
        if asked.dataType != found.dataType:
            raise InvalidInputError(
                "WRONG_SCHEMA",
                f"column {asked.name!r} of {table.name!r} is {found.dataType.simpleString()}, the given schema says "
                f"{asked.dataType.simpleString()}; give its type, or no schema",
            )
    return query


def _as_spelled(table: StateTable, query: Query) -> Query:
    """The query with its columns in the table's case: to Spark case does not matter, unless it is all that differs."""
    if query.columns is None:
        return query
    known = table.schema(replace(query, columns=None)).names
    alike = [[name for name in known if name.lower() == asked.lower()] for asked in query.columns]
    columns = (
        a[0] if asked not in known and len(a) == 1 else asked for asked, a in zip(query.columns, alike, strict=True)
    )
    return replace(query, columns=tuple(columns))


def _as_spark_has_it(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the names Spark gives to what is inside lists and maps; nothing is copied for plain columns."""
    for column, field in zip(batch.columns, schema, strict=True):
        if column.null_count and not field.nullable:  # to Spark that is corrupt data
            raise InvalidInputError(
                "NULL_NOT_EXPECTED",
                f"column {field.name!r} holds a null, but the schema given to the read says NOT NULL; leave that out",
            )
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _plans_with_filters() -> bool:
    """True in the process that Spark plans filtered reads in, which it starts only while pushdown is switched on.

    The other planner refuses a reader that takes filters if pushdown is off by then, and tells no one beforehand.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return PUSHDOWN_WORKER in sys.modules or getattr(main, "name", None) == PUSHDOWN_WORKER


def _option(options: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)


def _no_streaming() -> UnsupportedError:
    return UnsupportedError(
        "UNSUPPORTED_STREAMING",
        "this release reads and writes batches only; use spark.read / df.write, or foreachBatch in a stream",
    )
