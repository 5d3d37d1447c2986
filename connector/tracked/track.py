"""`track_state_by_key`: a state for each key of a stream, updated by a function; each batch is a version of a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, StructField, StructType

from statestore.catalog.catalog import connect
from statestore.catalog.log.store_locations import is_described, storage_at
from statestore.catalog.stores.store_handle import check_transaction
from statestore.connector.keyed.batch import check_retained, emitted_frame, run_batch
from statestore.connector.keyed.keyed_job import KeyedJob, Work, make_job, open_keyed, place_of
from statestore.connector.keyed.run import Sink, query_id, started
from statestore.connector.spark.schema import arrow_schema, check_frame_keys
from statestore.connector.supported_spark import check_frame
from statestore.connector.tracked.kept_batches import INITIAL, StateSnapshot, emitted_stream, snapshots_of
from statestore.connector.tracked.spec import StateSpec
from statestore.connector.tracked.work import KEY, ColumnCalls, InitialStates, RecordCalls
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.places.locations import Location
from statestore.formats.state_table import column_names
from statestore.formats.table_columns import unknown_row_column
from statestore.formats.values.times import to_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


def track_state_by_key(
    rows: DataFrame,
    *,
    key: str | Sequence[str],
    spec: StateSpec,
    store: str | Path,
    state_type: Any,
    output_type: Any,
    clock: Callable[[int], datetime] | None = None,
) -> Tracked:
    """Track a state for each key of a stream or DataFrame of Spark.

    `Tracked.start` runs a stream, and `Tracked.run` a DataFrame. Each batch becomes one version of the keyed store at
    ``store``, a path or the URI of a place in an object store, which is created if absent.

    ``key`` names the key columns; the other columns of a row are its value. ``state_type`` is a type ("bigint") or
    columns ("n bigint, last timestamp"), which the function gets as a dict. ``output_type`` lists the columns of
    emitted records; a single type is a column ``value``. ``clock`` returns the time of a batch for its number; the
    default is the time at which the batch is run.

    With `StateSpec.vectorized` the function is called once in each task. It gets ``batch_time`` (a datetime in UTC),
    the distinct ``keys`` (an Array; of structs if there are several columns), ``rows`` (the values, and ``key``: the
    index of the row's key in ``keys``) and ``states`` (``state``, null if there is none, and ``timing_out``). It
    returns the states after the batch, as an Array with one for each key (null: none) or as None to leave all
    unchanged, or it returns a tuple of these states and a RecordBatch of rows to emit.

    The cost of a batch depends on its keys and on those that time out, not on the number of keys with a state.

    Raises InvalidInputError INVALID_OPTION, COLUMN_NOT_FOUND, WRONG_KEY or WRONG_SCHEMA.
    """
    check_frame(rows)
    if not isinstance(spec, StateSpec):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"spec is {spec!r}; expected one made with StateSpec.function(f)"
        )
    place, given = place_of(store), arrow_schema(rows.schema)
    names = list(column_names(key, "key"))
    check_frame_keys(rows.schema, names)
    state, output = parsed_state_type(state_type), _record_schema(output_type)
    values = value_indexes(given, names)
    if spec.form == "columns" and KEY in (given.names[index] for index in values):
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"the rows have a column {KEY!r}; the function gets another column of that name: rename it",
        )
    _create_where_absent(place, given, names)
    with open_keyed(place) as opened:
        job = make_job(opened, place, names, given, output, _work(spec, state, values), "incremental")
        if spec.partitions is not None:
            opened.task_groups(spec.partitions)
    return Tracked(rows, job, spec, state, clock)


def _work(spec: StateSpec, state: pa.DataType, values: tuple[int, ...]) -> Work:
    timeout = None if spec.timeout_ms is None else spec.timeout_ms * 1000
    if spec.form == "columns":
        return ColumnCalls(spec.call, state, timeout, values)
    return RecordCalls(spec.call, spec.form, state, timeout, values)


def value_indexes(rows: pa.Schema, key: Sequence[str]) -> tuple[int, ...]:
    """The positions of the columns that are not key columns. Case is ignored, as in Spark, unless names differ by case
    only."""
    exact = {name for name in key if name in rows.names}
    other = {name.lower() for name in key if name not in exact}
    return tuple(index for index, name in enumerate(rows.names) if name not in exact and name.lower() not in other)


def _create_where_absent(place: Location, rows: pa.Schema, key: Sequence[str]) -> None:
    if is_described(storage_at(place)):
        return
    missing = [name for name in key if name not in rows.names]
    if missing:
        raise unknown_row_column(missing[0], "the rows", rows.names)
    columns = {name: rows.field(name).type for name in key}
    connect(place.parent.uri).create_store(place.name, kind="keyed", key=columns).close()


# Types of states and of emitted records as users give them: one type, or columns with types.

VALUE = "value"


def parsed_state_type(type_: Any) -> pa.DataType:
    """The type of a state: "bigint", or a struct of columns, "n bigint, last timestamp". InvalidInputError
    INVALID_OPTION."""
    schema = _schema(type_, "state_type")
    return schema.field(0).type if schema.names == [VALUE] else pa.struct(list(schema))


def _record_schema(type_: Any) -> pa.Schema:
    """The columns of emitted records; one type is a column ``value``. InvalidInputError INVALID_OPTION."""
    return _schema(type_, "output_type")


def _schema(type_: Any, option: str) -> pa.Schema:
    if isinstance(type_, pa.Schema):
        return type_
    if isinstance(type_, pa.DataType):
        return pa.schema(list(type_) if pa.types.is_struct(type_) else [pa.field(VALUE, type_)])
    kind = _parsed(type_, option) if isinstance(type_, str) else type_
    if isinstance(kind, StructType) and kind.fields:
        return arrow_schema(StructType([StructField(field.name, field.dataType) for field in kind]))
    if isinstance(kind, DataType) and not isinstance(kind, StructType):
        return arrow_schema(StructType([StructField(VALUE, kind)]))
    raise _wrong(type_, option)


def _parsed(text: str, option: str) -> Any:
    try:
        return DataType.fromDDL(text)
    except PySparkException as error:
        raise _wrong(text, option) from error


def _wrong(type_: Any, option: str) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.INVALID_OPTION,
        f'{option} is {type_!r}; expected a type, like "bigint", or columns, like "n bigint, at timestamp"',
    )


# The result of `track_state_by_key`: a stream to start or a DataFrame to run, and the states after each batch.

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
