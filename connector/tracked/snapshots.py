"""`state_snapshots`: the states of all keys after each kept batch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from statestore.catalog.keyed.snapshots.snapshot_log import shared_log
from statestore.connector.keyed.keyed_job import open_keyed
from statestore.connector.tracked.tracked_states import STATE
from statestore.formats.places.locations import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from statestore.catalog.reads.rows import Rows

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
