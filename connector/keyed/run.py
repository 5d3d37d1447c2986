"""`run_keyed`: runs a keyed function over a DataFrame and commits its state as one version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind
from statestore.catalog.stores.store_handle import check_transaction
from statestore.connector.keyed.batch import check_retained, emitted_frame, output_schema, run_batch
from statestore.connector.keyed.key_function import Function, key_function
from statestore.connector.keyed.keyed_job import make_job, open_keyed, place_of
from statestore.connector.spark.collations import check_frame_keys
from statestore.connector.spark.schema import arrow_schema
from statestore.connector.supported_spark import check_frame
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
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
