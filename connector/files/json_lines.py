"""JSON lines as Arrow batches, by the types of columns: as the command line prints and exports them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.connector.key_text import of_json
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

LINES = 8_192  # of a batch
Convert = Callable[[Any], Any]


def read_json_lines(path: Path, types: pa.Schema) -> pa.RecordBatchReader:
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
