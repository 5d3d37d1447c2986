"""The records and states that kept batches left.

`emitted_stream` returns the emitted records as a stream of Spark: the records of each version are read once, for any
sink. An offset is ``{"version": n}``: the records of the batches up to version n have been read. Records are kept with
their snapshot; a stream that falls further behind stops with an error. `snapshots_of` lists the states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from statestore.catalog.keyed.snapshots.snapshot_log import SnapshotEntry, SnapshotLog, shared_log
from statestore.catalog.log.storage import Storage
from statestore.connector.keyed.keyed_job import open_keyed
from statestore.connector.keyed.task import read_emitted
from statestore.connector.spark.errors import message_only
from statestore.connector.spark.schema import spark_schema
from statestore.connector.tracked.tracked_states import STATE
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.places.locations import Location, parse_location
from statestore.formats.segments.segment_meta import FileRef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from statestore.catalog.reads.rows import Rows

NAME, URI = "statestore_emitted", "secret.uri"
Offset = dict[str, Any]


def emitted_stream(spark: SparkSession, place: Location, output: pa.Schema) -> DataFrame:
    """A streaming DataFrame of emitted records, from the oldest kept ones on."""
    try:
        spark.dataSource.register(_EmittedRecords)
    except PySparkException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
    # The path may be shown; Spark hides the values of options whose names say that they are secret.
    return spark.readStream.format(NAME).schema(spark_schema(output)).option(URI, place.uri).load(str(place))


class _EmittedRecords(DataSource):
    """The source behind `emitted_stream`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return EmittedReader(parse_location(self.options[URI]))


class _EmittedPartition(InputPartition):
    """A file of one task."""

    def __init__(self, storage: Storage, file: FileRef) -> None:
        super().__init__(file.name)
        self.storage, self.file = storage, file


class EmittedReader(DataSourceStreamReader):
    """A reader of micro-batches of versions."""

    def __init__(self, place: Location) -> None:
        self._place = place

    def initialOffset(self) -> Offset:
        """The offset before the oldest kept records."""
        with message_only():
            log, store, _ = self._log()
            kept = [version for version, entry in log.with_outputs().items() if entry.outputs]
            return {"version": min(kept) - 1 if kept else log.newest, "store": store}

    def latestOffset(self, *given: Any) -> Offset:
        with message_only():
            log, store, _ = self._log()
            return {"version": log.newest, "store": store}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The files of the versions in a range. Raises NotFoundError STORE_REPLACED or RECORDS_NOT_KEPT."""
        with message_only():
            log, store, storage = self._log()
            if start["store"] != store or start["version"] > log.newest:
                raise NotFoundError(
                    ErrorCode.STORE_REPLACED,
                    f"the stream has read the records up to version {start['version']} of another store than the one "
                    f"at {self._place}; restart the query with a new checkpoint",
                )
            entries = log.entries[start["version"] : end["version"]]
            kept = log.with_outputs()
            lost = [entry.version for entry in entries if entry.version not in kept and _may_have_emitted(entry)]
            if lost:
                raise NotFoundError(
                    ErrorCode.RECORDS_NOT_KEPT,
                    f"the records of version {lost[0]} were discarded with its snapshot before the stream read them; "
                    "retain more snapshots (retained=…), and restart the query with a new checkpoint",
                )
            return [_EmittedPartition(storage, file) for entry in entries for file in entry.outputs]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _EmittedPartition)
        with message_only():
            yield from read_emitted(partition.storage, partition.file)

    def commit(self, end: Offset) -> None:
        """Nothing to release: records are kept with their snapshot."""

    def _log(self) -> tuple[SnapshotLog, str, Storage]:
        with open_keyed(self._place) as store:
            storage = store.files()
            return shared_log(storage, store.spec.store_id), store.spec.store_id, storage


def _may_have_emitted(entry: SnapshotEntry) -> bool:
    """Return whether a discarded snapshot may have had emitted records; once the log is folded that is unknown, and
    true."""
    initial = entry.transaction is not None and entry.transaction[1] == INITIAL
    return entry.operation == "snapshot" and not initial and bool(entry.outputs or not entry.parts)


# `state_snapshots`: the states of all keys after each kept batch.

INITIAL = -1
"""The number of the batch that puts initial states."""


@dataclass(frozen=True)
class StateSnapshot:
    """The state of all keys after ``batch``, which is ``version`` of the store.

    ``batch`` is None for a version of no numbered batch, and -1 for the initial state. ``time`` is the moment of the
    commit. Rows are read only when they are requested.
    """

    place: Location
    version: int
    batch: int | None
    time: datetime

    def scan(self) -> Rows:
        """The key columns and ``value``, the state. NotFoundError VERSION_NOT_FOUND if the snapshot was discarded
        meanwhile."""
        with open_keyed(self.place) as store:
            return store.scan(STATE, version=self.version)

    def to_arrow(self) -> pa.Table:
        """The rows of `scan` as a table."""
        return self.scan().read_all()

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The rows of `scan` as a DataFrame, read by key group when needed."""
        reader = spark.read.format("arrow_statestore").option("versionAsOf", str(self.version))
        return reader.load(self.place.at(STATE).uri)


def snapshots_of(place: Location) -> list[StateSnapshot]:
    """The kept snapshots of the store, oldest first."""
    with open_keyed(place) as store:
        log = shared_log(store.files(), store.spec.store_id)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return [
        StateSnapshot(
            place,
            entry.version,
            None if entry.transaction is None else entry.transaction[1],
            epoch + timedelta(microseconds=entry.timestamp),
        )
        for entry in log.kept_snapshots().values()
        if STATE in {spec.name for part in entry.parts for spec in part.states}
    ]
