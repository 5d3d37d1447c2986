"""The rows of a checkpoint as Spark's own ``statestore`` source reads them, in batches."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from statestore.connector.spark.schema import arrow_schema
from statestore.connector.spark.source import BUILTIN
from statestore.connector.supported_spark import check_spark
from statestore.formats.engine_reads import EngineRead
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SETTINGS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
_SHARED = {"spark.sql.session.timeZone": "UTC", "spark.sql.execution.arrow.maxRecordsPerBatch": "10000"}
_INTERPRETER = "PYSPARK_PYTHON"


class SparkReader:
    """Spark's source in the session of this process, or in a local one that is started at the first read, and ends with
    `close`."""

    def __init__(self) -> None:
        self.name = f"Spark {pyspark.__version__}'s reader"
        self._started: SparkSession | None = None

    def rows(self, place: str, read: EngineRead, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a state, one partition after the other.

        Raises UnsupportedError UNSUPPORTED_TYPE for a type that Spark and Python do not exchange, such as intervals.
        """
        spark = self._session()
        with _set(spark, {**_SHARED, **read.settings}), _this_interpreter(spark), _causes():
            _ = spark.streams.active  # the source of releases before 4.3 reads nothing without the manager
            frame = spark.read.format(BUILTIN).options(**read.options).load(place).select(*schema.names)
            packed = _named_as(frame, schema).mapInArrow(_packed, "batch binary")
            for row in packed.toLocalIterator():
                with pa.ipc.open_stream(row[0]) as stream:
                    for batch in stream:
                        yield _fitted(batch, schema)

    def _session(self) -> SparkSession:
        if self._started is not None:
            return self._started
        builder: Any = SparkSession.builder
        if SparkContext._active_spark_context is not None:
            found: SparkSession = builder.getOrCreate()
            return found
        builder = builder.master("local[*]").appName("statestore edit")
        for name, value in _SETTINGS.items():
            builder = builder.config(name, value)
        self._started = builder.getOrCreate()
        return self._started

    def close(self) -> None:
        if self._started is not None:
            self._started.stop()


@contextmanager
def spark_reader() -> Iterator[SparkReader]:
    """Lend a reader. Raises UnsupportedError UNSUPPORTED_SPARK where PySpark is absent or too old."""
    check_spark()
    reader = SparkReader()
    try:
        yield reader
    finally:
        reader.close()


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    former = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, before in former.items():
            with contextlib.suppress(Exception):  # of a session that was stopped in between
                spark.conf.unset(name) if before is None else spark.conf.set(name, before)


@contextmanager
def _this_interpreter(spark: SparkSession) -> Iterator[None]:
    """Let workers run this interpreter, which has this package."""
    context: Any = spark.sparkContext
    before, executable = os.environ.get(_INTERPRETER), context.pythonExec
    os.environ[_INTERPRETER] = context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = executable
        if before is None:
            del os.environ[_INTERPRETER]
        else:
            os.environ[_INTERPRETER] = before


@contextmanager
def _causes() -> Iterator[None]:
    """Raise errors of the JVM with the message of what caused them."""
    try:
        yield
    except Py4JJavaError as error:
        cause: Any = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        raise PySparkException(str(cause.getMessage() or cause)) from error


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each batch as one row with its bytes, so that rows come to this process without Python's objects."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["batch"])


def _named_as(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """Return a frame whose fields at any depth have the names that a schema has: those of Spark may repeat."""
    columns = []
    for field, expected in zip(frame.schema.fields, schema, strict=True):
        kind = _renamed(field.dataType, expected.type)
        column = F.col(field.name)
        columns.append(column if kind == field.dataType else column.cast(kind).alias(field.name))
    found = frame.select(*columns)
    arrow_schema(found.schema)  # raises for types that are not exchanged
    return found


def _renamed(kind: DataType, expected: pa.DataType) -> DataType:
    if isinstance(kind, StructType) and pa.types.is_struct(expected) and expected.num_fields == len(kind.fields):
        return StructType(
            [
                StructField(expected.field(number).name, _renamed(field.dataType, expected.field(number).type))
                for number, field in enumerate(kind.fields)
            ]
        )
    if isinstance(kind, ArrayType) and pa.types.is_list(expected):
        return ArrayType(_renamed(kind.elementType, expected.value_type))
    if isinstance(kind, MapType) and pa.types.is_map(expected):
        return MapType(_renamed(kind.keyType, expected.key_type), _renamed(kind.valueType, expected.item_type))
    return kind


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        try:
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise UnsupportedError(
                ErrorCode.UNSUPPORTED_TYPE,
                f"its column {field.name} comes as {column.type}, and is {shown(str(field.type))} here",
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in schema]))
