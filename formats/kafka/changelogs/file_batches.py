"""Batches of the records in one file, in columns of RECORDS, whatever its form is."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, StateStoreError
from statestore.formats.kafka.changelogs.console_lines import line_batches
from statestore.formats.kafka.changelogs.csv_lines import csv_batches
from statestore.formats.kafka.changelogs.export_forms import RecordForm
from statestore.formats.kafka.changelogs.export_streams import opened
from statestore.formats.kafka.changelogs.file_columns import (
    FilePlace,
    bytes_of,
    headers_of,
    integers_of,
    times_of,
)
from statestore.formats.kafka.changelogs.json_lines import json_batches
from statestore.formats.kafka.changelogs.log_dumps import dump_batches
from statestore.formats.kafka.changelogs.records import RECORDS, UNKNOWN_TIME
from statestore.formats.kafka.changelogs.saved_messages import message_batches
from statestore.formats.kafka.columns.header_columns import HEADERS
from statestore.formats.places.disk_errors import storage_error

BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class RecordFile:
    """A file of records and how it is read."""

    path: str
    form: str
    written: RecordForm
    topic: str | None


@dataclass
class SeenColumns:
    """The topics in files, and whether all files have a column of partitions."""

    topics: set[str] = field(default_factory=set)
    partition_known: bool = True


def read_file(file: RecordFile, columns: tuple[str, ...], seen: SeenColumns | None = None) -> Iterator[pa.RecordBatch]:
    """Yield batches with these columns of RECORDS, of the chosen topic; ``seen`` collects what is there."""
    first = 0
    schema = pa.schema([RECORDS.field(name) for name in columns])
    with parser_errors(file.path, file.form):
        for batch in _raw(file, columns):
            place = FilePlace(file.path, first)
            first += batch.num_rows
            batch.validate(full=True)  # texts of a file may be no UTF-8
            batch = _renamed(batch, file.written)
            if seen is not None:
                seen.partition_known &= "partition" in batch.schema.names
            chosen = [_column(batch, name, place, file.written) for name in columns]
            found = pa.RecordBatch.from_arrays(chosen, schema=schema)
            if "topic" in batch.schema.names:
                if file.topic is not None:
                    found = found.filter(pc.equal(batch.column("topic"), file.topic))
                elif seen is not None:
                    seen.topics.update(
                        text for text in pc.unique(batch.column("topic")).to_pylist() if text is not None
                    )
            if found.num_rows:
                yield found


@contextlib.contextmanager
def parser_errors(path: str, form: str) -> Iterator[None]:
    """Convert an error of a parser inside the block with `unreadable`.

    Parsers of Arrow and Parquet raise OSError, too, but without the number that an error of the system has.
    """
    try:
        yield
    except StateStoreError:
        raise
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise unreadable(path, form, error) from error
    except OSError as error:
        if error.errno is not None:
            raise storage_error(error, "read", path) from error
        raise unreadable(path, form, error) from error


def unreadable(path: str, form: str, error: Exception) -> CorruptError:
    """The error for a file whose bytes a parser does not accept."""
    return CorruptError(
        ErrorCode.FILE_DAMAGED,
        f"file {path}: cannot be read as {form}: {str(error)[:300]}; restore it from a copy",
    )


def _renamed(batch: pa.RecordBatch, form: RecordForm) -> pa.RecordBatch:
    """The columns that are named, under the names of RECORDS."""
    if all(name == column for name, column in form.columns.items()):
        return batch
    names = {column: name for name, column in form.columns.items() if column in batch.schema.names}
    return pa.RecordBatch.from_arrays([batch.column(column) for column in names], names=list(names.values()))


def _column(batch: pa.RecordBatch, name: str, place: FilePlace, form: RecordForm) -> pa.Array:
    if name in batch.schema.names:
        column = batch.column(name)
        if name in ("key", "value"):
            return bytes_of(column, name, place, form.encoding_of(name))
        if name == "headers" and form.is_export and pa.types.is_struct(column.type):
            return pa.nulls(len(column), RECORDS.field(name).type)  # by name: their order and repetitions are unknown
        if name == "headers":
            found = headers_of(column, place, form.encoding)
            return pc.if_else(found.is_valid(), found, pa.scalar([], HEADERS)) if form.no_headers else found
        if name == "timestamp" and form.is_export:
            column = times_of(column, place)
            column = column.fill_null(UNKNOWN_TIME) if pa.types.is_integer(column.type) else column
        return integers_of(column, name, place, RECORDS.field(name).type)
    if name == "partition":
        return pa.array(np.zeros(batch.num_rows, np.int32))
    if name == "timestamp":
        return pa.repeat(pa.scalar(UNKNOWN_TIME), batch.num_rows)
    return pa.nulls(batch.num_rows, RECORDS.field(name).type)


def _raw(file: RecordFile, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield batches as they are in the file, of Parquet only the columns that are needed."""
    with opened(file.path, over_lines=file.written.over_lines, in_array=file.written.in_array) as stream:
        if file.form == "parquet":
            import pyarrow.parquet as pq

            found = pq.ParquetFile(stream, page_checksum_verification=True)
            names = found.schema_arrow.names
            _require(names, file)
            yield from found.iter_batches(BATCH_ROWS, columns=_wanted(file.written, names, columns))
            return
        for batch in _batches(stream, file):
            _require(batch.schema.names, file)
            yield batch


def _batches(stream: Any, file: RecordFile) -> Iterator[pa.RecordBatch]:
    if file.written.layout == "saved messages":
        return message_batches(stream, file.path)
    if file.written.layout == "log dump":
        return dump_batches(stream, file.path)
    if file.form == "json":
        return json_batches(stream, file.path, file.written)
    if file.form == "csv":
        return csv_batches(stream, file.written, file.path)
    return line_batches(stream, file.written, file.path) if file.form == "lines" else _arrow(stream)


def _wanted(form: RecordForm, names: list[str], columns: tuple[str, ...]) -> list[str]:
    wanted = {form.columns[name] for name in (*columns, "topic")}
    return [name for name in names if name in wanted]


def _require(names: list[str], file: RecordFile) -> None:
    form = file.written
    required = ("key", "value") if form.is_export else ("key", "value", "timestamp")
    for name in (form.columns[each] for each in dict.fromkeys((*required, *form.named))):
        if name not in names:
            raise InvalidInputError(
                ErrorCode.KAFKA_RECORDS,
                f"file {file.path}: found columns {', '.join(names)}, expected a column {name}; name columns that are "
                "called otherwise with option recordColumns, such as value=payload,timestamp=ts",
            )


def _arrow(stream: Any) -> Iterator[pa.RecordBatch]:
    """Both forms of Arrow's files are recognised by their first bytes."""
    is_file = stream.read(6) == b"ARROW1"
    stream.seek(0)
    source = pa.PythonFile(_Bounded(stream), "r")
    if is_file:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
    else:
        yield from pa.ipc.open_stream(source)


class _Bounded:
    """A file that is never asked for more bytes than are left, because the lengths in a damaged one may be any."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._size = os.fstat(stream.fileno()).st_size
        self.seek, self.tell = stream.seek, stream.tell

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self.tell())
        found: bytes = self._stream.read(left if size < 0 else min(size, left))
        return found
