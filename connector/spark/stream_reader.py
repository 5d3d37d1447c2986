"""The change feed of a store as a stream: offsets are versions.

An offset is ``{"version": n}``: everything up to commit n has been read. The feed is made from the rows themselves, so
compaction and vacuum do not change it. A read of changes that an expiry dropped is an error that names the oldest kept
version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from statestore.connector.options import StreamStart
from statestore.connector.spark.errors import message_only
from statestore.connector.spark.partitions import partitions_of, read_partition
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, StateStoreError
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.filters import Filter
from statestore.formats.values.times import to_datetime

try:  # since Spark 4.2; in Spark 4.1 availableNow is one batch, with the limit of the others
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:
    ReadAllAvailable = ReadMaxRows = SupportsTriggerAvailableNow = object  # type: ignore[misc,assignment]

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
        """What tasks need of the reader, which Spark pickles with each batch."""
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
