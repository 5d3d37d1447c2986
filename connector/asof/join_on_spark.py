"""The as-of join in Spark, by key group, in the tasks. No rows of the store or the stream pass through the driver.

- A batch meets the history of the store, read split by split, in a cogroup of both sides by key group.
- In a stream, each task of a micro-batch reads the versions that the rows of its key groups need.
- A stream with a grace period keeps waiting rows in Spark's own state, with one stream time for each key group.

Each piece is joined by the Arrow engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType, TimestampNTZType

from statestore.catalog.stores.record_input import times_of
from statestore.connector.asof.join_on_arrow import join_table, prepared_keys
from statestore.connector.asof.join_request import AsofRequest
from statestore.connector.identifiers import spark_quoted
from statestore.connector.spark.errors import message_only
from statestore.connector.spark.intervals import has_calendar
from statestore.connector.spark.schema import arrow_schema, spark_schema
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.state_table import StateTable
from statestore.formats.values.exact_cast import retyped_rows
from statestore.formats.values.key_hash import hash_keys, key_groups_of
from statestore.formats.values.times import duration_ms
from statestore.formats.values.types import shown_field

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, GroupedData, SparkSession


GROUP = "__statestore_key_group"
KEY_GROUPS = 128
PIECE_ROWS = 1 << 20
PACKED = StructType([StructField(GROUP, IntegerType()), StructField("rows", BinaryType())])
WAITING = StructType([StructField("rows", BinaryType()), StructField("stream_time", LongType())])
JOINED = StructType([StructField("rows", BinaryType())])


def join_frame(
    left: DataFrame, request: AsofRequest, grace: int | timedelta | str | None, *, pinned: bool
) -> DataFrame:
    """The joined DataFrame, evaluated lazily. With ``pinned`` the store is read at the request's version; without it a
    stream reads the newest version each time."""
    if isinstance(left.schema[request.left_time].dataType, TimestampNTZType):
        raise InvalidInputError(
            ErrorCode.NAIVE_DATETIME,
            f"column `{request.left_time}` is timestamp_ntz, which has no time zone; expected TIMESTAMP",
        )
    schema = _result_schema(left, request)
    table = None if pinned else request.live
    if grace is not None:
        return _join_with_grace(left, request, schema, _checked_grace(left, request, grace), table)
    if left.isStreaming:
        parts = left.repartition(*(f.col(spark_quoted(name)) for name in request.left_keys))
        return _numbered(parts).mapInArrow(_joins_parts(left, request, schema, table), schema)
    return _cogrouped(left, request, schema)


def _result_schema(left: DataFrame, request: AsofRequest) -> StructType:
    added = request.added_schema()
    for field in added:
        if has_calendar(field.type):
            raise UnsupportedError(
                ErrorCode.UNSUPPORTED_TYPE,
                f"column {field.name!r} is {shown_field(field)}, which an as-of join in Spark does not carry; name the "
                "other columns with columns=[…]",
            )
    return StructType([*left.schema.fields, *spark_schema(added, event_times=False).fields])


# A batch: both sides by key group


def _cogrouped(left: DataFrame, request: AsofRequest, schema: StructType) -> DataFrame:
    history = _history_frame(left.sparkSession, request)
    keys = dict(zip(request.left_keys, request.key_columns, strict=True))
    kinds = {field.name: field.dataType for field in history.schema}
    mine = [f.col(spark_quoted(name)).cast(kinds[column]) for name, column in keys.items()]
    theirs = [f.col(spark_quoted(column)) for column in request.key_columns]
    groups = [f.pmod(f.xxhash64(*side), f.lit(KEY_GROUPS)).cast("int").alias(GROUP) for side in (mine, theirs)]
    expected = arrow_schema(schema)
    left_schema = arrow_schema(left.schema)
    history_schema = arrow_schema(history.schema)

    def join(left_rows: pa.Table, history_rows: pa.Table) -> pa.Table:
        with message_only():
            versions = _named(history_rows, history_schema).to_batches()
            return retyped_rows(join_table(_named(left_rows, left_schema), request, versions), expected)

    return _grouped(left, groups[0]).cogroup(_grouped(history, groups[1])).applyInArrow(join, schema)


def _grouped(rows: DataFrame, group: Column) -> GroupedData:
    return rows.select(group, "*").toDF(GROUP, *_numbers(rows)).groupBy(GROUP)


def _numbered(rows: DataFrame) -> DataFrame:
    """Rename the columns to numbers, because PySpark takes a name with a dot for a path where it passes columns to
    Python."""
    return rows.toDF(*_numbers(rows))


def _numbers(rows: DataFrame) -> list[str]:
    return [f"c{i}" for i in range(len(rows.columns))]


def _named(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give the columns of ``_numbered`` their own names again."""
    named: pa.Table = retyped_rows(rows.select([f"c{i}" for i in range(len(schema))]), schema)
    return named


def _history_frame(spark: SparkSession, request: AsofRequest) -> DataFrame:
    """Every version that may be met, with one partition for each split of the store."""
    table = request.table
    query = replace(request.history(0, 0), start_time=request.floor, end_time=None)
    splits = table.splits(query)
    table.entrust(splits)  # nobody holds this function when the query runs
    schema = spark_schema(table.schema(query))
    expected = arrow_schema(schema)

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with message_only():
            for number in (n for batch in numbers for n in batch.column(0).to_pylist()):
                for rows in table.read(splits[number], query):
                    yield retyped_rows(rows, expected)

    return spark.range(0, len(splits), 1, max(len(splits), 1)).mapInArrow(read, schema)


# A stream: each task reads the versions that its rows need


def _joins_parts(
    left: DataFrame, request: AsofRequest, schema: StructType, table: StateTable | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    left_schema, expected = arrow_schema(left.schema), arrow_schema(schema)

    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with message_only():
            current = _newest(request, table)
            for piece in _pieces(batches, left_schema):
                yield from _as_planned(join_table(piece, current), expected).to_batches()

    return join


def _as_planned(joined: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast to the planned types; InvalidInputError SCHEMA_CHANGED for values that these types cannot hold."""
    try:
        planned: pa.Table = retyped_rows(joined, schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            ErrorCode.SCHEMA_CHANGED,
            f"the types of the state's columns have changed since the query began ({error}); restart it",
        ) from error
    return planned


def _newest(request: AsofRequest, table: StateTable | None) -> AsofRequest:
    """The request at the newest version that ``table`` has now."""
    return request if table is None else request.at_newest(table)


def _pieces(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    collected: list[pa.RecordBatch] = []
    for batch in batches:
        collected.append(batch)
        if sum(b.num_rows for b in collected) >= PIECE_ROWS:
            yield _named(pa.Table.from_batches(collected), schema)
            collected = []
    if collected:
        yield _named(pa.Table.from_batches(collected), schema)


# A stream with a grace period: rows wait in Spark's state, packed as Arrow


def _checked_grace(left: DataFrame, request: AsofRequest, grace: int | timedelta | str) -> int:
    milliseconds = duration_ms(grace, "grace") or 0
    if not left.isStreaming:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, "grace lets rows of a stream wait; this DataFrame is a batch: leave it out"
        )
    retention = getattr(getattr(request.table, "spec", None), "history_retention", None)
    if retention is not None and milliseconds > retention:
        raise InvalidInputError(
            ErrorCode.GRACE_TOO_LONG,
            f"grace is {milliseconds} ms, the store's history_retention {retention} ms; expected at most that, or a "
            "row would be joined when the value at its time is no longer kept",
        )
    return milliseconds * 1000


def _join_with_grace(
    left: DataFrame, request: AsofRequest, schema: StructType, grace: int, table: StateTable | None
) -> DataFrame:
    left_schema, expected = arrow_schema(left.schema), arrow_schema(schema)

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with message_only():
            for batch in batches:
                yield _packed(_named(pa.Table.from_batches([batch]), left_schema), request)

    def step(key: tuple[int], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas

        with message_only():
            arrived = pa.concat_tables([_unpacked(rows) for frame in frames for rows in frame["rows"]])
            waiting, stream_time = left_schema.empty_table(), None
            if state.exists:
                packed, stream_time = state.get
                waiting = _unpacked(packed)
            due, waiting, stream_time = release(arrived, waiting, stream_time, grace, request)
            state.update((_bytes_of(waiting), stream_time))
            joined = _as_planned(join_table(due, _newest(request, table)), expected)
            yield pandas.DataFrame({"rows": [_bytes_of(joined)] if joined.num_rows else []})

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for rows in batch.column(0).to_pylist():
                yield from retyped_rows(_unpacked(rows), expected).to_batches()

    grouped = _numbered(left).mapInArrow(pack, PACKED).groupBy(GROUP)
    joined = grouped.applyInPandasWithState(step, JOINED, WAITING, "append", "NoTimeout")
    return joined.mapInArrow(unpack, schema)


def release(
    arrived: pa.Table, waiting: pa.Table, stream_time: int | None, grace: int, request: AsofRequest
) -> tuple[pa.Table, pa.Table, int | None]:
    """(rows to join now, rows that wait on, the new stream time), times and ``grace`` in microseconds (KIP-923).

    Rows that were late by more than the grace when they arrived are joined at once and come first. They are followed by
    rows whose time the stream has passed by the grace, in order of (time, key, arrival). Rows without key or time do
    not wait and do not advance the stream time.
    """
    usable = _usable(arrived, request)
    moving = arrived.filter(pa.array(usable))
    times = times_of(moving[request.left_time].combine_chunks(), request.left_time)
    before = np.maximum.accumulate(np.concatenate(([_least(stream_time)], times)))
    late = times < before[:-1] - grace
    if len(times):
        stream_time = int(before[-1])
    at_once = pa.concat_tables([arrived.filter(pa.array(~usable)), moving.filter(pa.array(late))])
    buffered = pa.concat_tables([waiting, moving.filter(pa.array(~late))]).combine_chunks()
    held_times = times_of(_array(buffered[request.left_time]), request.left_time)
    due = held_times <= _least(stream_time) - grace
    ready = buffered.filter(pa.array(due)).append_column(GROUP, pa.array(held_times[due]))
    ready = ready.sort_by([(GROUP, "ascending"), *((name, "ascending") for name in _sortable(request, buffered))])
    return pa.concat_tables([at_once, ready.drop_columns([GROUP])]), buffered.filter(pa.array(~due)), stream_time


def _least(stream_time: int | None) -> int:
    return -(1 << 62) if stream_time is None else stream_time


def _sortable(request: AsofRequest, table: pa.Table) -> Sequence[str]:
    return [name for name in request.left_keys if not pa.types.is_nested(table.schema.field(name).type)]


def _usable(rows: pa.Table, request: AsofRequest) -> npt.NDArray[np.bool_]:
    usable = np.ones(rows.num_rows, bool)
    for name in (*request.left_keys, request.left_time):
        usable &= _array(rows[name]).is_valid().to_numpy(zero_copy_only=False)
    return usable


def _packed(rows: pa.Table, request: AsofRequest) -> pa.RecordBatch:
    """One row a key group: its number and its rows as an Arrow stream."""
    usable = _usable(rows, request)
    groups = np.zeros(rows.num_rows, np.int64)
    keys = prepared_keys(rows.filter(pa.array(usable)), request)
    groups[usable] = key_groups_of(hash_keys(request.cells(keys)), KEY_GROUPS) if usable.any() else 0
    numbers = np.unique(groups).tolist()
    packed = [_bytes_of(rows.filter(pa.array(groups == number))) for number in numbers]
    return pa.RecordBatch.from_arrays(
        [pa.array(numbers, pa.int32()), pa.array(packed, pa.binary())], schema=arrow_schema(PACKED)
    )


def _bytes_of(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _unpacked(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
        return stream.read_all()


def _array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
