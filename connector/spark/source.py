"""The Spark data source: any `StateTable` as a DataFrame, with one partition for each split, in Arrow batches."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from statestore.catalog.warehouse import open_table
from statestore.connector.options import intervals_as_numbers, query_of, shape_of, stream_query_of
from statestore.connector.spark.errors import message_only
from statestore.connector.spark.filters import as_filter
from statestore.connector.spark.location import checked_path, with_settings
from statestore.connector.spark.partitions import TablePartition, partitions_of, read_partition
from statestore.connector.spark.schema import same_type, spark_schema
from statestore.connector.spark.stream_reader import RefusedStream, StateStoreStreamReader
from statestore.connector.spark.stream_writer import StateStoreStreamWriter
from statestore.connector.spark.writer import StateStoreWriter
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.filters import Filter

SOURCE_NAME = "arrow_statestore"
PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class StateStoreSource(DataSource):
    """The data source of `spark.read.format("arrow_statestore")`, which `register` also names "statestore"."""

    @classmethod
    def name(cls) -> str:
        return SOURCE_NAME

    def schema(self) -> StructType:
        with message_only():
            table = self._table()
            query = as_spelled(table, shape_of(self.options))
            marked = not intervals_as_numbers(self.options)
            return spark_schema(table.schema(query), marked=marked, event_times=query.mode == "state")

    def reader(self, schema: StructType) -> DataSourceReader:
        with message_only():
            table, query = self._table().for_plan(), query_of(self.options)
            query = _narrowed(table, query, schema)
            return (FilteringReader if _plans_with_filters() else TableReader)(table, query, schema)

    def writer(self, schema: StructType, overwrite: bool) -> StateStoreWriter:
        with message_only():
            return StateStoreWriter(self._path(), schema, overwrite, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            table = self._table()
            query, start = stream_query_of(self.options)
            return StateStoreStreamReader(table, _narrowed(table, query, schema), schema, start)
        except StateStoreError as error:
            return RefusedStream(error)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StateStoreStreamWriter:
        with message_only():
            return StateStoreStreamWriter(self._path(), schema, overwrite, self.options)

    def _table(self) -> StateTable:
        return open_table(self._path(), dict(self.options))

    def _path(self) -> str:
        return with_settings(checked_path(self.options), self.options)


class TableReader(DataSourceReader):
    """Reads the splits of one query."""

    def __init__(self, table: StateTable, query: Query, schema: StructType) -> None:
        self._table = table
        self._query = query
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        found = partitions_of(self._table, self._query)
        # This process ends before the tasks begin.
        self._table.entrust([split for partition in found for split in partition.splits])
        return found or [TablePartition((), self._query)]  # Spark asks for at least one partition

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._table, partition, self._schema)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes of the reader that tasks need."""
        return {**self.__dict__, "_table": self._table.for_tasks()}


class FilteringReader(TableReader):
    """A `TableReader` to which filters are pushed; Spark refuses a reader with this method if pushdown is off."""

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
        fields = self._table.schema(self._query)
        named = dict(zip(self._schema.names, fields, strict=True))
        schema = pa.schema([field.with_name(name) for name, field in named.items()])
        taken: list[Filter] = []
        for pushed in filters:
            filter_ = as_filter(pushed, schema)
            if filter_ is None:
                yield pushed
            else:
                taken.append(replace(filter_, column=named[filter_.column].name))
        self._query = replace(self._query, filters=tuple(taken))


def _narrowed(table: StateTable, query: Query, schema: StructType) -> Query:
    """The query for only the columns of ``schema``, which may come from the user; their types must be the table's."""
    if not schema.names:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA, f"the schema given for {table.name!r} has no column; name at least one"
        )
    query = as_spelled(table, replace(query, columns=tuple(schema.names)))
    have = spark_schema(table.schema(query))
    for asked, own in zip(schema, have, strict=True):
        if not same_type(asked.dataType, own.dataType):
            raise InvalidInputError(
                ErrorCode.WRONG_SCHEMA,
                f"column {asked.name!r} of {table.name!r} is {own.dataType.simpleString()}, the given schema says "
                f"{asked.dataType.simpleString()}; give its type, or no schema",
            )
    return query


def as_spelled(table: StateTable, query: Query) -> Query:
    """The query with its columns spelled as in the table. Case is ignored, as in Spark, unless columns differ by case
    only."""
    if query.columns is None:
        return query
    spelled = table.schema(replace(query, columns=None)).names
    alike = [[name for name in spelled if name.lower() == asked.lower()] for asked in query.columns]
    columns = (
        a[0] if asked not in spelled and len(a) == 1 else asked for asked, a in zip(query.columns, alike, strict=True)
    )
    return replace(query, columns=tuple(columns))


def _plans_with_filters() -> bool:
    """Return whether this is the process in which Spark plans filtered reads.

    Spark starts that process only while pushdown is switched on. The other planner refuses a reader that takes filters
    if pushdown is off, and does not report the setting beforehand.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return PUSHDOWN_WORKER in sys.modules or getattr(main, "name", None) == PUSHDOWN_WORKER
