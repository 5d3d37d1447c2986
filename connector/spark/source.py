"""The Spark data source: any `StateTable` as a DataFrame, with one partition for each split, in Arrow batches."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from statestore.catalog.warehouse import open_table
from statestore.connector.options import StreamStart, intervals_as_numbers, query_of, shape_of, stream_query_of
from statestore.connector.spark.errors import message_only
from statestore.connector.spark.filters import as_filter
from statestore.connector.spark.location import checked_path, with_settings
from statestore.connector.spark.partitions import TablePartition, partitions_of, read_partition
from statestore.connector.spark.schema import same_type, spark_schema
from statestore.connector.spark.writer import StateStoreStreamWriter, StateStoreWriter
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.filters import Filter
from statestore.formats.values.times import to_datetime

try:  # since Spark 4.2; in Spark 4.1 availableNow is one batch, with the limit of the others
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:
    ReadAllAvailable = ReadMaxRows = SupportsTriggerAvailableNow = object  # type: ignore[misc,assignment]

SOURCE_NAME = "arrow_statestore"
BUILTIN = "org.apache.spark.sql.execution.datasources.v2.state.StateDataSource"
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


# The change feed of a store as a stream: offsets are versions.
#
# An offset is ``{"version": n}``: everything up to commit n has been read. The feed is made from the rows themselves,
# so compaction and vacuum do not change it. A read of changes that an expiry dropped is an error that names the oldest
# kept version.

Offset = dict[str, Any]


class RefusedStream(DataSourceStreamReader):
    """A reader that raises its error when Spark first calls it; an error raised while a reader is made would be lost in
    Spark's process."""

    def __init__(self, error: StateStoreError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        with message_only():
            raise self._error

    def latestOffset(self, *given: Any) -> NoReturn:
        with message_only():
            raise self._error

    def partitions(self, start: Offset, end: Offset) -> NoReturn:
        with message_only():
            raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        with message_only():
            raise self._error


class StateStoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of the changes that ``query`` selects, from ``start`` on."""

    def __init__(self, table: StateTable, query: Query, schema: StructType, start: StreamStart) -> None:
        if start.time is not None:
            query = replace(query, filters=(*query.filters, Filter("valid_from", ">=", to_datetime(start.time))))
        self._table = table
        self._query = query
        self._schema = schema
        self._start = start
        self._last: Offset | None = None  # planned or returned last, for releases that do not pass the start
        self._target: int | None = None  # the version at which an availableNow run ends
        self._held: tuple[Sequence[InputPartition], ...] = ()  # of the last two batches, which keep their files

    def initialOffset(self) -> Offset:
        with message_only():
            newest = self._table.kept_versions()[1]
            if self._start.latest:
                return self._offset(newest)
            first = self._start.version
            if first is None:
                return self._offset(self._table.change_start())
            if not self._table.change_start() < first <= newest + 1:
                self._table.splits(
                    replace(self._query, start_version=first, end_version=first)
                )  # raises an error that names the kept versions
            return self._offset(first - 1)

    def getDefaultReadLimit(self) -> Any:
        """The limit that Spark passes to latestOffset unless the trigger reads everything. Spark has no limit by
        versions, so ReadMaxRows carries the number of versions."""
        return ReadAllAvailable() if self._start.limit is None else ReadMaxRows(self._start.limit)

    def latestOffset(self, *given: Any) -> Offset:
        """The end of the next micro-batch. Spark 4.2 and later pass the start and the limit in force. Spark 4.1 does
        not: there the start is the end of the batch before."""
        with message_only():
            start = given[0] if given else self._last or self.initialOffset()
            newest = self._newest_after(start, self._table.for_plan())
            if self._target is not None:
                newest = min(newest, self._target)
            unlimited = len(given) > 1 and isinstance(given[1], ReadAllAvailable)
            if self._start.limit is not None and not unlimited:
                newest = min(newest, start["version"] + self._start.limit)
            self._last = self._offset(max(start["version"], newest))
            return self._last

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._table.kept_versions()[1]

    def reportLatestOffset(self) -> Offset:
        return self._offset(self._table.kept_versions()[1])

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        with message_only():
            table = self._table.for_plan()
            self._newest_after(start, table)
        # A query that is restarted first plans its last offset, from there to there. Without it `latestOffset` would
        # begin again, and batches be read twice.
        self._last = end
        if start["version"] >= end["version"]:
            return []
        query = replace(self._query, start_version=start["version"] + 1, end_version=end["version"])
        found = partitions_of(table, query)
        self._held = (*self._held[-1:], found)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need of the reader; Spark pickles it with each batch."""
        return {**self.__dict__, "_table": self._table.for_tasks(), "_held": ()}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._table, partition, self._schema)

    def commit(self, end: Offset) -> None:
        """Nothing to release: the feed is kept for as long as the store keeps its history."""

    def _offset(self, version: int) -> Offset:
        return {"version": version, "store": self._table.identity}

    def _newest_after(self, start: Offset, table: StateTable) -> int:
        """The newest version of the table as it is now; NotFoundError STORE_REPLACED if ``start`` belongs to another
        store than the one here now."""
        newest = table.kept_versions()[1]
        if start.get("store") == table.identity:
            table.check_resumable(start["version"])
        if start.get("store") != table.identity or start["version"] > newest:
            raise NotFoundError(
                ErrorCode.STORE_REPLACED,
                f"the stream has read {self._table.name!r} up to version {start['version']}, but that store is no "
                f"longer here: there is another one now, at version {newest}; start a query with a new checkpoint",
            )
        return newest
