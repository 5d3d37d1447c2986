"""Emitted records as a stream of Spark: the records of each version are read once, for any sink.

An offset is ``{"version": n}``: the records of the batches up to version n have been read. Records are kept with their
snapshot; a stream that falls further behind stops with an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from statestore.catalog.keyed.snapshots.snapshot_log import SnapshotEntry, SnapshotLog, shared_log
from statestore.catalog.log.storage import Storage
from statestore.connector.keyed.emitted_records import read_emitted
from statestore.connector.keyed.keyed_job import open_keyed
from statestore.connector.spark.errors import message_only
from statestore.connector.spark.schema import spark_schema
from statestore.connector.tracked.snapshots import INITIAL
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.places.locations import Location, parse_location
from statestore.formats.segments.segment_meta import FileRef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME, URI = "statestore_emitted", "secret.uri"
Offset = dict[str, Any]


def emitted_stream(spark: SparkSession, place: Location, output: pa.Schema) -> DataFrame:
    """A streaming DataFrame of emitted records, from the oldest kept ones on."""
    try:
        spark.dataSource.register(EmittedRecords)
    except PySparkException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
    # The path may be shown; Spark hides the values of options whose names say that they are secret.
    return spark.readStream.format(NAME).schema(spark_schema(output)).option(URI, place.uri).load(str(place))


class EmittedRecords(DataSource):
    """The source behind `emitted_stream`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return EmittedReader(parse_location(self.options[URI]))


class EmittedPartition(InputPartition):
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
            return [EmittedPartition(storage, file) for entry in entries for file in entry.outputs]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, EmittedPartition)
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
