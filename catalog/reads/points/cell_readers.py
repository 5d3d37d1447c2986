"""Rows of mapped Arrow columns as Python values, without an Arrow scalar for each cell.

The function that reads a row is written as source, one expression a column, and compiled once for the types of a
store's columns. The source holds numbers of columns only, and never a name of a user. Columns of nested types are still
read through Arrow scalars. Files of several batches have readers for each batch (`batch_readers`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.serdes.numbers import as_number, number_bytes
from statestore.formats.values.canonical import from_arrow

ReadRow = Callable[[int], tuple[Any, ...]]
ReadCell = Callable[[int], Any]

_MAKE = """
def make({names}):
    def read(row):
        return {row}
    return read
"""
_NUMBERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_DECIMAL_BYTES = 16


def row_reader(columns: Sequence[pa.Array]) -> ReadRow:
    """Return a function from a row of these columns to the tuple of its canonical values."""
    return _reader(None, columns)


def user_reader(columns: Sequence[pa.Array], names: Sequence[str]) -> ReadCell:
    """Return a function from a row of these columns, none of them nested, to the value as users see it."""
    return _reader(tuple(names), columns)


def bytes_test(column: pa.Array) -> Callable[[int, bytes], bool]:
    """Return a function that tests whether a row of a column of text or binary without nulls holds these bytes."""
    _, offsets, data = column_parts(column)
    return lambda row, expected: data[offsets[row] : offsets[row + 1]] == expected


def _reader(names: tuple[str, ...] | None, columns: Sequence[pa.Array]) -> Callable[[int], Any]:
    kinds = tuple((column.type, column.null_count > 0) for column in columns)
    parts = [part for column in columns for part in column_parts(column)]
    return _maker(kinds, names)(*parts)


@lru_cache(maxsize=256)
def _maker(
    kinds: tuple[tuple[pa.DataType, bool], ...], names: tuple[str, ...] | None
) -> Callable[..., Callable[[int], Any]]:
    """Return the function that makes the reader of columns of these types from their `column_parts`.

    Its rows are tuples; with ``names`` they are the bare cell of a single column, else dicts.
    """
    cells: list[str] = []
    known: dict[str, Any] = {}
    for i, (kind, has_nulls) in enumerate(kinds):
        cell, back = _cell(i, kind)
        known[f"back{i}"] = back
        cells.append(f"{cell} if valid{i}[row >> 3] >> (row & 7) & 1 else None" if has_nulls else cell)
    if names is None:
        row = f"({''.join(f'{cell}, ' for cell in cells)})"
    elif len(cells) == 1:
        row = cells[0]
    else:
        known |= {f"name{i}": name for i, name in enumerate(names)}
        row = f"{{{', '.join(f'name{i}: {cell}' for i, cell in enumerate(cells))}}}"
    arguments = ", ".join(f"valid{i}, offsets{i}, data{i}" for i in range(len(kinds)))
    source = _MAKE.format(names=arguments, row=row)
    # The source has numbers of columns and code of this module only; names and data of users are values of ``known``.
    exec(compile(source, "<reader of a row>", "exec"), known)
    made: Callable[..., Callable[[int], Any]] = known["make"]
    return made


def _cell(i: int, kind: pa.DataType) -> tuple[str, Callable[[Any], Any] | None]:
    """Return the expression of a cell that is not null, and the function ``back`` that it uses."""
    types = pa.types
    if types.is_string(kind):
        return f"str(data{i}[offsets{i}[row]:offsets{i}[row + 1]], 'utf-8')", None
    if types.is_binary(kind):
        return f"bytes(data{i}[offsets{i}[row]:offsets{i}[row + 1]])", None
    if types.is_boolean(kind):
        return f"data{i}[row >> 3] >> (row & 7) & 1 == 1", None
    if types.is_signed_integer(kind) or types.is_floating(kind):
        return f"data{i}[row]", None
    if types.is_decimal128(kind):
        size = _DECIMAL_BYTES
        number = f"int.from_bytes(data{i}[row * {size}:row * {size} + {size}], 'little', signed=True)"
        return f"back{i}({number})", as_number(kind).back
    if number_bytes(kind):
        return f"back{i}(data{i}[row])", as_number(kind).back
    return f"data{i}(row)", None


def column_parts(column: pa.Array) -> tuple[Any, Any, Any]:
    """Return (validity bits or None, offsets or None, data) of a column, all of them beginning at its first row."""
    kind, types, rows = column.type, pa.types, len(column)
    if column.null_count and column.offset % 8:
        column = pa.concat_arrays([column.slice(0, 0), column])
    if column.offset % 8 and types.is_boolean(kind):
        column = pa.concat_arrays([column.slice(0, 0), column])
    first = column.offset
    buffers = column.buffers()
    valid = _bytes(buffers[0])[first // 8 :] if column.null_count else None
    if types.is_string(kind) or types.is_binary(kind):
        offsets = np.frombuffer(buffers[1], np.int32, rows + 1, 4 * first) if rows else np.zeros(1, np.int32)
        return valid, offsets.data, _bytes(buffers[2])
    if types.is_boolean(kind):
        return valid, None, _bytes(buffers[1])[first // 8 :]
    if types.is_decimal128(kind):
        return valid, None, _bytes(buffers[1])[_DECIMAL_BYTES * first :]
    size = number_bytes(kind)
    if size:
        form = np.dtype(f"f{size}") if types.is_floating(kind) else np.dtype(_NUMBERS[size])
        return valid, None, np.frombuffer(buffers[1], form, rows, size * first).data
    convert = from_arrow(kind)
    if convert is None:
        return valid, None, lambda row: column[row].as_py()
    return valid, None, lambda row: convert(column[row].as_py())


def _bytes(buffer: pa.Buffer | None) -> memoryview:
    """Return a view of unsigned bytes, in which slices compare with bytes at once."""
    return memoryview(b"" if buffer is None else buffer).cast("B")
