"""`run_keyed` and `run_keyed_stream`: a keyed function over a DataFrame, whose state is committed as one version, or
over a stream, with each micro-batch as one version of its store, exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind
from statestore.catalog.stores.store_handle import check_transaction
from statestore.connector.keyed.batch import check_retained, emitted_frame, output_schema, run_batch
from statestore.connector.keyed.keyed_job import Emitted, KeyedBatch, KeyedJob, TaskRows, make_job, open_keyed, place_of
from statestore.connector.keyed.task import checked_row, function_failed, rows_of
from statestore.connector.spark.schema import arrow_schema, check_frame_keys
from statestore.connector.spark.writer import QUERY_ID
from statestore.connector.supported_spark import check_frame
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError
from statestore.formats.serdes.natural_keys import keys_to_bytes
from statestore.formats.values.key_codec import KeyCodec, ValueCodec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType


def run_keyed(
    rows: DataFrame,
    function: Function,
    *,
    key: str | Sequence[str],
    store: str | Path,
    output: str | StructType,
    tasks: int | None = None,
    snapshot: SnapshotKind = "incremental",
    transaction: tuple[str, int] | None = None,
    retained: int | None = None,
) -> DataFrame:
    """Run a function with keyed state over the rows of a Spark DataFrame and return the emitted rows as a DataFrame.

    The function runs key by key. The state of all tasks is committed as one version of the keyed store at
    ``store``, a path or the URI of a place in an object store.

    ``function`` is called once in each task with the task's `KeyedBackend`, on which it registers states. It returns
    another function, which is called once for each key, with the key and its rows (a pyarrow RecordBatch, in the order
    of the DataFrame), and which yields or returns rows to emit: dicts, tuples or RecordBatches, or nothing. ``output``
    lists the columns of these rows, like "user string, n bigint". ``key`` names the columns for the store's key
    columns, in order.

    Rows are divided among ``tasks`` by key group. Each task begins with the state of its groups in the newest snapshot,
    whose number of tasks may differ (default: the same number; for the first snapshot, Spark's default parallelism).
    The rows of one task must fit into its worker's memory. The run starts at once. The returned DataFrame reads files
    that are kept as long as the snapshot.

    ``transaction`` (application, number): if it was committed before, nothing is run, and the rows that were emitted
    then are returned. ``retained``: this many snapshots of the same application (or without one) are kept.

    Raises InvalidInputError FUNCTION_FAILED with the key, and then nothing is committed; WRONG_SCHEMA, WRONG_KEY,
    COLUMN_NOT_FOUND, INVALID_OPTION. Runs on one store take turns; ConflictError BASE_OVERTAKEN if another
    process has committed a snapshot in the meantime.
    """
    check_frame(rows)
    if rows.isStreaming:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, "the DataFrame is a stream; call run_keyed_stream for it")
    check_retained(retained)
    place = place_of(store)
    with open_keyed(place) as opened:
        work = key_function(function)
        job = make_job(opened, place, key, arrow_schema(rows.schema), output_schema(output), work, snapshot)
        check_frame_keys(rows.schema, [rows.columns[index] for index in job.key])
        asked = check_transaction(transaction)
        label = "the batch" if asked is None else f"batch {asked[1]} of application {asked[0]!r}"
        version = run_batch(opened, job, rows, tasks, asked, label, retained=retained, keeps=False)
    return emitted_frame(rows.sparkSession, job, version)


# `run_keyed_stream`: a keyed function over a stream, with each micro-batch as one version of its store, exactly once.
#
# A batch's transaction is (id of the streaming query, number of the batch). Both are in the query's checkpoint and
# survive restarts. If the query dies between the commit of the store and that of Spark, Spark repeats the batch. The
# batch is then found in the store's log and not run again; the sink receives the rows that it emitted at first.

Sink = Callable[["DataFrame", int], Any]


def run_keyed_stream(
    rows: DataFrame,
    function: Function,
    *,
    key: str | Sequence[str],
    store: str | Path,
    output: str | StructType,
    checkpoint: str | Path,
    sink: Sink | None = None,
    tasks: int | None = None,
    snapshot: SnapshotKind = "incremental",
    retained: int | None = 2,
    trigger: str | Mapping[str, Any] | None = None,
    application: str | None = None,
    name: str | None = None,
) -> StreamingQuery:
    """Start a streaming query that runs a function with keyed state over each micro-batch, as `run_keyed` does.

    Each batch commits the state of all tasks as one version of the store, and takes effect exactly once.

    ``sink`` is called with the emitted rows of each batch (a DataFrame) and its number, after the commit. After a crash
    it may be called again for the newest batch, always with the same rows. If the sink ignores a repeated number, its
    results are exactly once too. ``checkpoint`` is Spark's folder for the query. ``trigger`` is a processing time like
    "10 seconds", or the arguments of a stream writer's ``trigger()`` as a dict: {"availableNow": True}.

    ``retained``: the number of the query's snapshots to keep; None: all. ``tasks`` may change at a restart. Python
    workers keep their backends open between batches. ``application``: the name of the query in the store's
    transactions; default is the query's id, which is new with a new checkpoint.

    Raises the errors of `run_keyed` before the query starts. Later errors stop the query, which reports them, among
    them ConflictError BATCHES_MISSING if the store lacks batches that the checkpoint has.
    """
    check_frame(rows)
    if not rows.isStreaming:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, "the DataFrame is no stream; call run_keyed for it")
    check_retained(retained)
    place = place_of(store)
    with open_keyed(place) as opened:
        work = key_function(function)
        job = make_job(opened, place, key, arrow_schema(rows.schema), output_schema(output), work, snapshot)
        check_frame_keys(rows.schema, [rows.columns[index] for index in job.key])
        if tasks is not None:
            opened.task_groups(tasks)  # refuses a wrong number before anything runs
    each = _batches(job, sink, tasks, retained, application)
    return started(rows, each, checkpoint, trigger, name)


def started(
    rows: DataFrame,
    each: Callable[[DataFrame, int], None],
    checkpoint: str | Path,
    trigger: str | Mapping[str, Any] | None,
    name: str | None,
) -> StreamingQuery:
    """Start a streaming query that calls ``each`` for every micro-batch."""
    writer = rows.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
    if name is not None:
        writer = writer.queryName(name)
    if trigger is not None:
        writer = writer.trigger(processingTime=trigger) if isinstance(trigger, str) else writer.trigger(**trigger)
    return writer.start()


def _batches(
    job: KeyedJob, sink: Sink | None, tasks: int | None, retained: int | None, application: str | None
) -> Callable[[DataFrame, int], None]:
    """The function that Spark calls for each micro-batch, on the driver."""

    def each(rows: DataFrame, number: int) -> None:
        writer = application or query_id(rows)
        label = f"batch {number} of application {writer!r}"
        with open_keyed(job.place) as store:
            version = run_batch(store, job, rows, tasks, (writer, number), label, retained=retained, keeps=True)
        if sink is not None:
            sink(emitted_frame(rows.sparkSession, job, version), number)

    return each


def query_id(rows: DataFrame) -> str:
    """The id of the streaming query that a micro-batch belongs to. UnsupportedError NO_QUERY_ID."""
    try:
        of_query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    except PySparkException:  # Spark Connect has no such properties
        of_query = None
    if not of_query:
        raise UnsupportedError(
            ErrorCode.NO_QUERY_ID,
            "Spark does not report which query this batch belongs to; name it with application='…'",
        )
    return of_query


# The work of `run_keyed`: a user's function, called once in each task, registers states and returns the function of a
# key.

Process: TypeAlias = Callable[[Any, pa.RecordBatch], "Iterable[Any] | None"]
"""The function of a key: it is called with the key and its rows, and returns the rows to emit."""
Function: TypeAlias = Callable[[KeyedBackend], Process]
"""Called once for each task and batch with its backend: it registers states and returns the function of a key."""


@dataclass(frozen=True)
class _KeyFunction:
    """The `Work` that calls a function for each key."""

    function: Function

    def __call__(self, batch: KeyedBatch, task: int, backend: KeyedBackend, task_rows: TaskRows) -> Iterator[Emitted]:
        """Yield the emitted rows of each key; InvalidInputError FUNCTION_FAILED names the key."""
        process = _made(self.function, batch, task, backend)
        codec = ValueCodec(batch.job.output)
        for key, rows in rows_by_key(batch.job.columns, task_rows.keys, task_rows.rows, task_rows.arrival):
            backend.set_current_key(key)
            try:
                for row in rows_of(process(key, rows)):
                    if row is not None:
                        yield checked_row(codec, row)
            except GeneratorExit:
                raise
            except Exception as error:
                raise function_failed(f"the function failed for key {key!r} of {batch.label}", error) from error


def key_function(function: Any) -> _KeyFunction:
    """Return the work that calls ``function``. Raises InvalidInputError INVALID_OPTION."""
    if not callable(function):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"the function is {type(function).__name__}; expected one that takes a backend"
        )
    return _KeyFunction(function)


def _made(function: Function, batch: KeyedBatch, task: int, backend: KeyedBackend) -> Process:
    try:
        process = function(backend)
        if not callable(process):
            raise TypeError(f"it returned {type(process).__name__}, expected the function of a key")
    except StateStoreError:
        raise
    except Exception as error:
        raise function_failed(f"the function failed for task {task} of {batch.label}, before any key", error) from error
    return process


# The rows of a task by key: sorted as columns, so that each key's rows are a slice.


def rows_by_key(
    columns: pa.Schema, keys: list[pa.Array], rows: pa.Table, arrival: pa.Array
) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Yield each key, as users write it, with its rows in the order of ``arrival``; keys in order of their first rows.

    ``keys`` are the key columns of the rows, in the types of ``columns``.
    """
    if not rows.num_rows:
        return
    order = np.argsort(arrival.to_numpy(), kind="stable")
    arrived = [key.take(pa.array(order)) for key in keys]
    # Codes are assigned in order of appearance, so sorting by them keeps both orders.
    codes = keys_to_bytes(columns, arrived).dictionary_encode().indices.to_numpy()
    by_key = np.argsort(codes, kind="stable")
    sorted_rows = rows.take(pa.array(order[by_key])).combine_chunks().to_batches()[0]
    begins = np.flatnonzero(np.diff(codes[by_key], prepend=-1))
    codec, first = KeyCodec(columns), pa.array(by_key[begins])
    cells = zip(*(key.take(first).to_pylist() for key in arrived), strict=True)
    ends = [*begins[1:].tolist(), rows.num_rows]
    for cell, begin, end in zip(cells, begins.tolist(), ends, strict=True):
        yield codec.to_user(codec.normalize(cell)), sorted_rows.slice(begin, end - begin)
