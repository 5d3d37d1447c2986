"""The result of `track_state_by_key`: a stream to start or a DataFrame to run, and the states after each batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from statestore.catalog.stores.store_handle import check_transaction
from statestore.connector.keyed.batch import check_retained, emitted_frame, run_batch
from statestore.connector.keyed.keyed_job import KeyedJob, make_job, open_keyed
from statestore.connector.keyed.run import Sink, query_id, started
from statestore.connector.spark.schema import arrow_schema
from statestore.connector.tracked.kept_batches import INITIAL, StateSnapshot, emitted_stream, snapshots_of
from statestore.connector.tracked.spec import StateSpec
from statestore.connector.tracked.work import InitialStates
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.values.times import to_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

Transaction = tuple[str, int]


@dataclass(frozen=True)
class Tracked:
    """Tracked state, ready to run: `start` for a stream, `run` for a DataFrame."""

    rows: DataFrame
    job: KeyedJob
    spec: StateSpec
    state_type: pa.DataType
    clock: Callable[[int], datetime] | None

    def start(
        self,
        sink: Sink | None = None,
        *,
        checkpoint: str | Path,
        retained: int | None = 2,
        trigger: str | Mapping[str, Any] | None = None,
        application: str | None = None,
        name: str | None = None,
    ) -> StreamingQuery:
        """Start the stream.

        ``sink`` is called with the emitted records of each batch (a DataFrame) and its number, after the batch's state
        was committed. After a crash it is called again for the newest batch, with the same records. The other options
        are those of `run_keyed_stream`.
        """
        if not self.rows.isStreaming:
            raise InvalidInputError(ErrorCode.INVALID_OPTION, "the DataFrame is no stream; call run()")
        check_retained(retained)

        def each(rows: DataFrame, number: int) -> None:
            writer = application or query_id(rows)
            version = self._batch(rows, (writer, number), retained, keeps=True)
            if sink is not None:
                sink(emitted_frame(rows.sparkSession, self.job, version), number)

        return started(self.rows, each, checkpoint, trigger, name)

    def run(self, *, transaction: Transaction | None = None, retained: int | None = None) -> DataFrame:
        """Run a DataFrame as one batch and return the emitted records. If the transaction (application, number) was
        committed before, the records emitted then are returned."""
        if self.rows.isStreaming:
            raise InvalidInputError(ErrorCode.INVALID_OPTION, "the DataFrame is a stream; call start()")
        check_retained(retained)
        version = self._batch(self.rows, check_transaction(transaction), retained, keeps=False)
        return emitted_frame(self.rows.sparkSession, self.job, version)

    def records(self) -> DataFrame:
        """The emitted records of all batches as a streaming DataFrame of its own, for any sink.

        Each record is read once, as the query's checkpoint and the sink ensure. The stream begins with the oldest
        batch whose snapshot is kept, so ``retained`` must be at least the number of batches that it may fall behind.
        """
        return emitted_stream(self.rows.sparkSession, self.job.place, self.job.output)

    def state_snapshots(self) -> list[StateSnapshot]:
        """The states of all keys after each kept batch, oldest first."""
        return snapshots_of(self.job.place)

    def _batch(self, rows: DataFrame, transaction: Transaction | None, retained: int | None, *, keeps: bool) -> int:
        label = "the batch" if transaction is None else f"batch {transaction[1]} of application {transaction[0]!r}"
        begun = None
        if self.clock is not None:
            begun = to_us(self.clock(0 if transaction is None else transaction[1]), "clock")
        with open_keyed(self.job.place) as store:
            if self.spec.initial is not None and not store.retained():
                self._put_initial(rows, None if transaction is None else transaction[0], begun)
            return run_batch(
                store,
                self.job,
                rows,
                self.spec.partitions,
                transaction,
                label,
                retained=retained,
                keeps=keeps,
                begun=begun,
            )

    def _put_initial(self, rows: DataFrame, application: str | None, begun: int | None) -> None:
        """Commit the initial state, once, as a version of its own."""
        initial = self.spec.initial
        if not hasattr(initial, "sparkSession"):
            initial = rows.sparkSession.createDataFrame(initial)
        schema = arrow_schema(initial.schema)
        names = self._key_of(schema)
        taken = {name.lower() for name in names}
        values = tuple(index for index, name in enumerate(schema.names) if name.lower() not in taken)
        work = InitialStates(self.state_type, self.spec.timeout_ms is not None, values)
        with open_keyed(self.job.place) as store:
            job = make_job(store, self.job.place, names, schema, self.job.output, work, "incremental")
            transaction = None if application is None else (application, INITIAL)
            run_batch(
                store,
                job,
                initial,
                self.spec.partitions,
                transaction,
                "the initial state",
                retained=None,
                keeps=False,
                begun=begun,
                first=True,
            )

    def _key_of(self, initial: pa.Schema) -> list[str]:
        """The key columns of initial states, named as in the store or as in the rows. Case is ignored, as in Spark."""
        there = {name.lower() for name in initial.names}
        of_rows = [self.job.rows.field(index).name for index in self.job.key]
        return [
            own if own.lower() in there else other for own, other in zip(self.job.columns.names, of_rows, strict=True)
        ]
