"""One batch, on the driver: it assigns state to tasks, runs them, and commits or removes the files they wrote."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from statestore.catalog.commits.writer_lock import take_writer_lock
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots.snapshot_log import SnapshotLog, shared_log
from statestore.connector.keyed.keyed_job import KeyedBatch, KeyedJob, key_column, part_id
from statestore.connector.keyed.task import ANSWERS, Answer, Done, failure_of, from_json, read_emitted, run_partition
from statestore.connector.spark.errors import message_only
from statestore.connector.spark.schema import arrow_schema, spark_schema
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import (
    CommitUnknownError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    StateStoreError,
)
from statestore.formats.values.key_groups import key_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Transaction = tuple[str, int]
TURN_WAIT = 3600.0  # seconds that a batch waits for others on the same store
TURN_POLL = 0.05


def run_batch(
    store: KeyedStore,
    job: KeyedJob,
    rows: DataFrame,
    tasks: int | None,
    transaction: Transaction | None,
    label: str,
    *,
    retained: int | None,
    keeps: bool,
    begun: int | None = None,
    first: bool = False,
) -> int:
    """Run a batch and commit it, unless its transaction was committed before; return its version.

    ``keeps``: the batch belongs to a stream, whose batches have consecutive numbers. ``begun``: the start of the batch
    in epoch microseconds; None: now. ``first``: nothing is run if there is a snapshot already.
    """
    with _turn(store):
        log = shared_log(job.storage, job.store_id)
        if transaction is not None and (before := log.transaction(transaction)) is not None:
            return before
        if first and (newest := log.snapshot(None)) is not None:
            return newest.version
        if keeps and transaction is not None:
            _check_consecutive(store, log, *transaction)
        batch = _begun(store, job, rows, log, tasks, label, keeps, _now(log) if begun is None else begun)
        version = _committed(store, batch.base, _answers(batch, rows), transaction)
        if retained is not None:
            _discard_older(store, job, transaction, retained)
        return version


@contextmanager
def _turn(store: KeyedStore) -> Iterator[None]:
    """Hold the store's lock, so that batches on one store take turns: each builds on the one before.

    For a store in an object store only those of this machine do; of others, one is refused at its commit.
    """
    folder = store.own_folder()
    deadline = time.monotonic() + TURN_WAIT
    while True:
        try:
            lock = take_writer_lock(folder, store.name)
            break
        except ConflictError:
            if time.monotonic() > deadline:
                raise
            time.sleep(TURN_POLL)
    try:
        yield
    finally:
        os.close(lock)


def _begun(
    store: KeyedStore,
    job: KeyedJob,
    rows: DataFrame,
    log: SnapshotLog,
    tasks: int | None,
    label: str,
    keeps: bool,
    time_us: int,
) -> KeyedBatch:
    """The batch, built on the newest snapshot."""
    base = log.snapshot(None)
    parts = {} if base is None else {part.key_groups: part for part in base.parts}
    groups = store.task_groups(tasks if tasks is not None else len(parts) or _first_tasks(rows, job))
    known = tuple(part_id(parts[each]) if each in parts else None for each in groups)
    return KeyedBatch(job, label, 0 if base is None else base.version, tuple(groups), known, keeps, time_us)


def _now(log: SnapshotLog) -> int:
    """Epoch microseconds, whole milliseconds, not before the newest version."""
    return max(time.time_ns() // 1_000_000 * 1000, log.entries[-1].timestamp if log.entries else 0)


def _answers(batch: KeyedBatch, rows: DataFrame) -> list[Answer]:
    def run(partition: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with message_only():
            yield from run_partition(batch, partition)

    found = _with_tasks(rows, batch.job, batch.groups).mapInArrow(run, spark_schema(ANSWERS)).collect()
    return [from_json(row[0]) for row in found]


def _committed(store: KeyedStore, base: int, answers: Sequence[Answer], transaction: Transaction | None) -> int:
    """Commit the answers and return the version; if the commit fails, the files of all tasks are removed.

    They stay if the outcome is unknown: the log may yet name them.
    """
    done = sorted((answer for answer in answers if isinstance(answer, Done)), key=lambda answer: answer.task)
    parts, outputs = [a.part for a in done], [a.emitted for a in done if a.emitted is not None]
    failed = failure_of(answers)
    try:
        if failed is not None:
            raise failed.error
        return store.commit(parts, transaction=transaction, outputs=outputs, base=base)
    except CommitUnknownError:
        raise
    except StateStoreError:
        store.discard_files(parts, outputs)
        raise


def _check_consecutive(store: KeyedStore, log: SnapshotLog, application: str, number: int) -> None:
    """Raise ConflictError BATCHES_MISSING if the newest snapshot lacks batches of the stream, as in an older copy."""
    newest = max(log.kept_snapshots(), default=0)
    for entry in log.last_batches():
        if entry.transaction is None or entry.transaction[0] != application:
            continue
        if entry.transaction[1] < number - 1 or entry.version > newest:
            raise ConflictError(
                ErrorCode.BATCHES_MISSING,
                f"batch {number} of application {application!r} cannot follow in store {store.name!r}: its last batch "
                f"there is {entry.transaction[1]}, in version {entry.version}, and the newest snapshot is {newest}. An "
                "older copy of the store was put back, or the newest snapshot was discarded. Put back the checkpoint "
                "of that time too, or continue without those batches under another application='…'",
            )


def _discard_older(store: KeyedStore, job: KeyedJob, transaction: Transaction | None, retained: int) -> None:
    """Discard the snapshots of this application that are older than its newest ``retained``."""
    application = None if transaction is None else transaction[0]
    kept = shared_log(job.storage, job.store_id).kept_snapshots().values()
    own = [e.version for e in kept if (None if e.transaction is None else e.transaction[0]) == application]
    for version in own[:-retained]:
        try:
            store.discard(version)
        except NotFoundError:  # another process has discarded it
            continue


def check_retained(retained: Any) -> None:
    """Raise InvalidInputError INVALID_OPTION unless it is None or at least 1."""
    if retained is not None and (type(retained) is not int or retained < 1):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"retained is {retained!r}; expected how many snapshots to keep, at least 1, or None for all",
        )


def emitted_frame(spark: SparkSession, job: KeyedJob, version: int) -> DataFrame:
    """The rows that the batch of a version emitted, read from its files when needed. NotFoundError
    VERSION_NOT_FOUND."""
    storage, files = job.storage, shared_log(job.storage, job.store_id).outputs(version)

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with message_only():
            for number in (n for batch in numbers for n in batch.column(0).to_pylist()):
                yield from read_emitted(storage, files[number])

    return spark.range(0, len(files), 1, max(len(files), 1)).mapInArrow(read, spark_schema(job.output))


def output_schema(output: Any) -> pa.Schema:
    """The Arrow schema of columns given as a DDL text or a StructType. InvalidInputError INVALID_OPTION."""
    try:
        kind = StructType.fromDDL(output) if isinstance(output, str) else output
    except PySparkException as error:
        raise _wrong_output(output) from error
    if not isinstance(kind, StructType) or not kind.fields:
        raise _wrong_output(output)
    return arrow_schema(StructType([StructField(field.name, field.dataType) for field in kind]))


def _wrong_output(output: Any) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.INVALID_OPTION, f'output is {output!r}; expected columns and types, like "user string, n bigint"'
    )


def _first_tasks(rows: DataFrame, job: KeyedJob) -> int:
    """The number of tasks before the first snapshot: one for each core that Spark reports."""
    try:
        cores = rows.sparkSession.sparkContext.defaultParallelism
    except PySparkException:  # Spark Connect does not report it
        cores = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return max(1, min(cores, job.key_groups))


# The assignment of rows to tasks by key group: one shuffle, to the partition with the task's number.

TASK, ARRIVAL = "__statestore_task", "__statestore_arrival"


def _with_tasks(rows: DataFrame, job: KeyedJob, groups: Sequence[range]) -> DataFrame:
    """Return the task, the position in the DataFrame, and the columns, shuffled to the partitions of the tasks.

    Columns are named by number, because PySpark takes a name with a dot for a path. Each task gets one more row,
    without a position, so that every task runs even where Spark drops empty partitions, and so that a partition knows
    its tasks if it has several.
    """
    names = [f"c{index}" for index in range(len(job.rows))]
    task = _task_of(job, groups)(*(names[index] for index in job.key))
    arrived = rows.toDF(*names).withColumn(ARRIVAL, f.monotonically_increasing_id())
    with_task = arrived.select(task.alias(TASK), ARRIVAL, *names)
    empty = [f.lit(None).cast(field.dataType).alias(field.name) for field in with_task.schema.fields[1:]]
    starters = rows.sparkSession.range(0, len(groups), 1, 1).select(f.col("id").cast("int").alias(TASK), *empty)
    return with_task.unionAll(starters).repartitionById(len(groups), TASK)


def _task_of(job: KeyedJob, groups: Sequence[range]) -> Any:
    """A function of the key columns that returns the number of the task, or null where a key is null or not of the
    store's type. Rows with null go to the first task, which reports the error."""
    firsts = np.array([each.start for each in groups])
    columns, most = job.columns, job.key_groups
    names = [job.rows.field(index).name for index in job.key]

    def task_of(first: pa.Array, *others: pa.Array) -> pa.Array:
        key_columns = (first, *others)
        has_key = np.ones(len(first), bool)
        for column in key_columns:
            if column.null_count:
                has_key &= column.is_valid().to_numpy(zero_copy_only=False)
        try:
            whole = has_key.all()
            keys = [
                key_column(column if whole else column.filter(pa.array(has_key)), field, name)
                for column, field, name in zip(key_columns, columns, names, strict=True)
            ]
        except StateStoreError:
            return pa.nulls(len(first), pa.int32())
        tasks = np.zeros(len(first), np.int32)
        if has_key.any():
            tasks[has_key] = np.searchsorted(firsts, key_groups(keys, most), "right") - 1
        return pa.array(tasks, pa.int32(), mask=~has_key)

    functions: Any = f  # its stubs lack arrow_udf
    return functions.arrow_udf(task_of, "int")
