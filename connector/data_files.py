"""Rows in data files: Parquet, Arrow IPC, CSV, TSV and JSON lines, written and read in batches."""

from __future__ import annotations

import contextlib
import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from statestore.connector.key_text import of_json
from statestore.connector.terminal import delimited_cell, json_objects
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.values.json_terms import plain
from statestore.formats.values.python_times import python_values

SUFFIXES = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}
FORMATS = tuple(dict.fromkeys(SUFFIXES.values()))
DELIMITERS = {"csv": ",", "tsv": "\t"}
Write = Callable[[pa.RecordBatch], Any]


def format_of(path: Path, given: str | None) -> str:
    """Return the format of a file: the given one, or that of its suffix.

    Raises InvalidInputError INVALID_OPTION if neither is known.
    """
    if given is None and path.suffix.lower() in SUFFIXES:
        return SUFFIXES[path.suffix.lower()]
    if given in FORMATS:
        return str(given)
    found = f"--format is {given}" if given is not None else f"{path} has no suffix of a known format"
    raise InvalidInputError(ErrorCode.INVALID_OPTION, f"{found}; expected --format {', '.join(FORMATS)}")


def write_stream(out: IO[bytes], form: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write batches to a stream as they arrive, and return the number of rows.

    Raises UnsupportedError UNSUPPORTED_FORMAT for Parquet, whose end is written by positions, and UNSUPPORTED_TYPE.
    """
    if form == "parquet":
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_FORMAT,
            "parquet cannot be written to a pipe; name a file, or take --format arrow, csv, tsv or json",
        )
    rows = 0
    try:
        with _stream_writer(out, form, schema) as write:
            for batch in batches:
                write(batch)
                rows += batch.num_rows
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_TYPE, f"{error}; {form} cannot hold a column, so take another format"
        ) from error
    return rows


def write_file(path: Path, form: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write batches to a file, which appears when all of them are in it, and return the number of rows.

    Raises UnsupportedError UNSUPPORTED_TYPE for a column that the format cannot hold, StorageError.
    """
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
    rows = 0
    try:
        with disk_errors("write", path):
            with _writer(temporary, form, schema) as write:
                for batch in batches:
                    write(batch)
                    rows += batch.num_rows
            temporary.replace(path)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_TYPE, f"{path}: {error}; {form} cannot hold a column, so take another format"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return rows


@contextlib.contextmanager
def _writer(path: Path, form: str, schema: pa.Schema) -> Iterator[Write]:
    if form == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetWriter(path, schema) as parquet:
            yield parquet.write_batch
    elif form == "arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as arrow:
            yield arrow.write_batch
    else:
        with path.open("wb") as file, _stream_writer(file, form, schema) as write:
            yield write


@contextlib.contextmanager
def _stream_writer(out: IO[bytes], form: str, schema: pa.Schema) -> Iterator[Write]:
    if form == "arrow":
        with pa.ipc.new_stream(out, schema) as arrow:
            yield arrow.write_batch
    elif form == "json":
        yield lambda batch: out.writelines(
            f"{json.dumps(o, ensure_ascii=False)}\n".encode() for o in json_objects(batch)
        )
    else:
        import pyarrow.csv as pc

        binary = [field.name for field in schema if is_binary(field.type)]
        if binary:
            raise UnsupportedError(
                ErrorCode.UNSUPPORTED_TYPE,
                f"column {binary[0]} is {schema.field(binary[0]).type}, which {form} cannot hold; take json, which has "
                "it as base64, or leave it out with --columns",
            )
        written = pa.schema([field.with_type(pa.string()) if _is_nested(field) else field for field in schema])
        with pc.CSVWriter(out, written, write_options=pc.WriteOptions(delimiter=DELIMITERS[form])) as csv:
            yield lambda batch: csv.write_batch(_with_texts(batch, written))


def _is_nested(field: pa.Field) -> bool:
    return bool(pa.types.is_nested(field.type))


def _with_texts(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with nested values as `scan` prints them into CSV: as JSON."""
    columns = [
        pa.array([delimited_cell(plain(value)) for value in python_values(column)], pa.string())
        if _is_nested(field)
        else column
        for field, column in zip(batch.schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def read_file(path: Path, form: str, types: pa.Schema) -> pa.RecordBatchReader:
    """Open a file for reading in batches. ``types`` are those of columns whose format does not say them.

    Raises InvalidInputError WRONG_INPUT for a file of another format.
    """
    try:
        return _reader(path, form, types)
    except (pa.ArrowInvalid, UnicodeDecodeError, csv.Error) as error:
        raise wrong_file(path, form, error) from error


def wrong_file(path: Path, form: str, error: Exception) -> InvalidInputError:
    """Return the error for a file whose content is not what its format and the store's columns say."""
    return InvalidInputError(ErrorCode.WRONG_INPUT, f"{path} cannot be read as {form}: {error}")


def _reader(path: Path, form: str, types: pa.Schema) -> pa.RecordBatchReader:
    if form == "parquet":
        import pyarrow.parquet as pq

        parquet = pq.ParquetFile(path)
        return pa.RecordBatchReader.from_batches(parquet.schema_arrow, map(_checked, parquet.iter_batches()))
    if form == "arrow":
        arrow = pa.ipc.open_file(pa.memory_map(str(path)))
        batches = (_checked(arrow.get_batch(number)) for number in range(arrow.num_record_batches))
        return pa.RecordBatchReader.from_batches(arrow.schema, batches)
    if form == "json":
        return _read_json_lines(path, types)
    import pyarrow.csv as pc

    return pc.open_csv(
        path,
        parse_options=pc.ParseOptions(
            delimiter=DELIMITERS[form], newlines_in_values=True, ignore_empty_lines=not _has_one_column(path, form)
        ),
        convert_options=pc.ConvertOptions(
            column_types={field.name: field.type for field in types},
            null_values=[""],  # NaN is a number
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _has_one_column(path: Path, form: str) -> bool:
    """Return whether the header has one name; an empty line is then a null."""
    with path.open(encoding="utf-8", newline="") as file:
        return len(next(csv.reader(file, delimiter=DELIMITERS[form]), [])) == 1


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose texts are UTF-8. Raises ArrowInvalid."""
    batch.validate(full=True)
    return batch


def is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


# JSON lines as Arrow batches, by the types of columns: as the command line prints and exports them.

LINES = 8_192  # of a batch
Convert = Callable[[Any], Any]


def _read_json_lines(path: Path, types: pa.Schema) -> pa.RecordBatchReader:
    """Open a file with a JSON object on each line. A column that an object lacks is null.

    Binary is base64, times, dates and decimals are text, NaN and the infinities are text, a map is a list of pairs.
    ``types`` are those of known columns; those of others are the types of their first values. Raises InvalidInputError
    WRONG_INPUT, which names the line.
    """
    batches = _batches(path)
    first = next(batches, (1, []))
    names = list(dict.fromkeys(name for _, row in first[1] for name in row))
    fields = [
        types.field(name) if name in types.names else pa.field(name, _type_of(first[1], name, path)) for name in names
    ]
    schema = pa.schema(fields)

    def converted() -> Iterator[pa.RecordBatch]:
        for start, rows in _with_first(first, batches):
            if rows:
                yield _batch(path, start, rows, schema)

    return pa.RecordBatchReader.from_batches(schema, converted())


Numbered = list[tuple[int, dict[str, Any]]]


def _with_first(first: tuple[int, Numbered], rest: Iterator[tuple[int, Numbered]]) -> Iterator[tuple[int, Numbered]]:
    yield first
    yield from rest


def _batches(path: Path) -> Iterator[tuple[int, Numbered]]:
    """Yield objects with the numbers of their lines, LINES at a time."""
    number = 0
    with path.open(encoding="utf-8") as lines:
        try:
            while some := list(islice(lines, LINES)):
                rows = [
                    (number + at, _object(path, number + at, line)) for at, line in enumerate(some, 1) if line.strip()
                ]
                yield number + 1, rows
                number += len(some)
        except UnicodeDecodeError as error:
            raise _wrong(path, number + 1, f"it is not UTF-8 ({error.reason})") from None


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, number, f"it is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise _wrong(path, number, f'found {type(found).__name__}, expected an object, such as {{"a": 1}}')
    return found


def _type_of(rows: Numbered, name: str, path: Path) -> pa.DataType:
    for number, row in rows:
        match row.get(name):
            case None:
                continue
            case bool():
                return pa.bool_()
            case int():
                return pa.int64()
            case float():
                return pa.float64()
            case str():
                return pa.string()
            case _:
                raise _wrong(path, number, f"column {name} is nested, and the store has none of this name")
    return pa.string()


def _batch(path: Path, start: int, rows: Numbered, schema: pa.Schema) -> pa.RecordBatch:
    for number, row in rows:
        if more := row.keys() - set(schema.names):
            raise _wrong(path, number, f"column {min(more)} is in none of the first lines; name it there, as null")
    arrays = []
    for field in schema:
        try:
            values = [of_json(row.get(field.name), field.type) for _, row in rows]
            arrays.append(pa.array(values, field.type))
        except (ArithmeticError, ValueError, TypeError, pa.ArrowException):
            raise _wrong_value(path, rows, field) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _wrong_value(path: Path, rows: Numbered, field: pa.Field) -> InvalidInputError:
    """Return the error for the first value that is not of the column's type."""
    for number, row in rows:
        value = row.get(field.name)
        try:
            pa.array([of_json(value, field.type)], field.type)
        except (ArithmeticError, ValueError, TypeError, pa.ArrowException) as error:
            return _wrong(path, number, f"column {field.name}: found {value!r}, expected {field.type} ({error})")
    return _wrong(path, rows[0][0], f"column {field.name} does not fit {field.type}")


def _wrong(path: Path, number: int, what: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.WRONG_INPUT, f"{path} cannot be read as json: line {number}: {what}")
