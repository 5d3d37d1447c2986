"""Appends of whole DataFrames: Spark's own Parquet writer stages the rows, and tasks of a second job resolve them.

Spark hands rows to a Python data source one by one, which costs more than writing them as Parquet. Where the DataFrame
itself is at hand in the driver of a classic session, its tasks therefore write Parquet to the staging folder, and tasks
in Python read it by columns. Rows, order, commit and errors are those of `StateStoreWriter`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from statestore.catalog.stores.versioned.task_writes import TaskWrite, task_write
from statestore.connector.options import transaction_of
from statestore.connector.spark.staging import STAGING, Staged, checked_target, commit_staged, remove_folder, stage
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

READ_ROWS = 1 << 16
STAGED = re.compile(r"part-(\d+)-.*-c(\d+)\..*parquet")
# Parquet has all values of these types as they are, whatever the settings of the session.
PLAIN = (
    BinaryType,
    BooleanType,
    ByteType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
)


def append_frame(rows: DataFrame, path: str, options: Mapping[str, str]) -> bool:
    """Append a DataFrame to the store at ``path`` as one commit; return False where only the data source can.

    That is so for Connect sessions, stores with a hot tier, and columns with nested times or with intervals. Then
    nothing was done. ``options`` are those of the data source. Errors are those of `StateStoreWriter`.
    """
    schema, spec = checked_target(path, rows.schema)
    transaction = transaction_of(options)
    root = Path(path).absolute()
    write = task_write(root, spec)
    context = getattr(rows.sparkSession, "_sc", None)
    if write is None or context is None or not all(_is_staged(field.dataType) for field in rows.schema):
        return False
    folder = root / STAGING / uuid.uuid4().hex
    folder.mkdir(parents=True)
    try:
        _write_parquet(rows, folder / "rows")
        files = _files(folder / "rows")
        resolve = partial(_stage, folder=folder, schema=schema, write=write)
        outcomes = context.parallelize(files, len(files)).map(resolve).collect()
        for outcome in outcomes:
            if isinstance(outcome, InvalidInputError):
                raise outcome
        commit_staged(root, schema, outcomes, False, transaction, write)
    finally:
        remove_folder(folder)
    return True


def _is_staged(kind: DataType, nested: bool = False) -> bool:
    """Return whether Parquet gives back exactly the values of a type, whatever the settings of the session.

    Whether and how it has times of long ago depends on them. A column of times is therefore written as numbers.
    """
    if isinstance(kind, ArrayType):
        return _is_staged(kind.elementType, True)
    if isinstance(kind, MapType):
        return _is_staged(kind.keyType, True) and _is_staged(kind.valueType, True)
    if isinstance(kind, StructType):
        return bool(kind.fields) and all(_is_staged(field.dataType, True) for field in kind)
    return type(kind) in PLAIN or (type(kind) in (DateType, TimestampType) and not nested)


def _write_parquet(rows: DataFrame, folder: Path) -> None:
    """Write the rows of each partition to a file of their own, in their order."""
    numbered = rows.toDF(*(f"c{number}" for number in range(len(rows.schema))))  # any name may be the user's
    columns = []
    for field in numbered.schema:
        column = F.col(field.name)
        if isinstance(field.dataType, TimestampType):
            column = F.unix_micros(column)
        elif isinstance(field.dataType, DateType):
            column = F.unix_date(column)
        columns.append(column.alias(field.name))
    # Hadoop takes the path as it is, and would take the escapes of a URI for a part of a name.
    numbered.select(*columns).write.option("compression", "none").parquet(f"file://{folder}")


def _files(folder: Path) -> list[str]:
    """Return the files in the order of their partitions.

    Raises CorruptError STAGED_FILE for other files than Spark writes: a setting that renames them must lose no row.
    """
    visible = [path for path in folder.iterdir() if not path.name.startswith((".", "_"))]
    found = [(match, path) for path in visible if (match := STAGED.fullmatch(path.name))]
    if not found or len(found) < len(visible):
        raise CorruptError(
            ErrorCode.STAGED_FILE,
            f"{folder}: Spark staged {', '.join(sorted(path.name for path in visible)) or 'no file'}, expected "
            "part-…-c….parquet; remove settings that change how the session writes Parquet",
        )
    return [str(path) for _, _, path in sorted((int(match[1]), int(match[2]), path) for match, path in found)]


def _stage(file: str, *, folder: Path, schema: pa.Schema, write: TaskWrite) -> Staged | InvalidInputError:
    """Stage the rows of one file in a task. A wrong input is returned: no further attempt would end otherwise."""
    try:
        return stage(folder, _batches(file, schema), write)
    except InvalidInputError as error:
        return error


def _batches(file: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(READ_ROWS, use_threads=False):
            columns = [_as_type(column, kind) for column, kind in zip(batch.columns, schema.types, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    return column.view(kind) if pa.types.is_timestamp(kind) or pa.types.is_date32(kind) else column.cast(kind)
