"""Columns of files of records, as tools and programs export them, to the columns of RECORDS.

    key, value    binary; or text, which is hexadecimal unless the caller names another encoding. Never guessed.
    timestamp     integer of epoch milliseconds, or a timestamp type with a time zone
    offset, partition    integers
    headers       a list of structs (name or key, value), or of pairs [name, value]; values as keys

A text that is not in its encoding is an error that names the row.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, shown
from statestore.formats.kafka.columns.header_columns import HEADERS

TextEncoding = Literal["hex", "base64", "utf-8"]
"""The ways in which bytes are written where a column is text."""

_ISO = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d(:?\d\d)?)$"
_OTHER_UNITS = (("seconds", 10**9), ("microseconds", 10**15), ("nanoseconds", 10**18))
"""Units of time, and the least of their numbers from 2001 to 2286. As milliseconds these are in 1970, or far away."""

ENCODINGS: tuple[TextEncoding, ...] = get_args(TextEncoding)


@dataclass(frozen=True)
class FilePlace:
    """The origin of a batch, for messages: a file and the row of it at which the batch begins."""

    path: str
    first: int

    def __str__(self) -> str:
        return self.path

    def row(self, number: int) -> str:
        """The file and a row of the batch."""
        return f"{self.path}, row {self.first + number}"


def bytes_of(column: pa.Array, name: str, file: FilePlace, encoding: TextEncoding) -> pa.Array:
    """A binary array of a column of keys or values.

    Raises InvalidInputError KAFKA_RECORDS for a type that is neither binary nor text, or text in another encoding.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return bytes_of(column.dictionary_decode(), name, file, encoding)
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.binary())
    if is_bytes(kind):
        return column.cast(pa.binary())
    if not is_text(kind):
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS, f"file {file}: column {name} has type {kind}, expected binary or text"
        )
    column = column.cast(pa.string())
    if encoding == "utf-8":
        return column.cast(pa.binary())
    return _decoded(column, name, file, encoding)


def _decoded(column: pa.Array, name: str, file: FilePlace, encoding: TextEncoding) -> pa.Array:
    """Decode hexadecimal texts as one, since digits fall in pairs; others, and errors, text by text."""
    size = pc.binary_length(column)
    if encoding == "hex" and not pc.any(pc.equal(pc.bit_wise_and(size, 1), 1)).as_py():
        try:
            data = binascii.unhexlify("".join(column.drop_null().to_pylist()))
        except ValueError:
            pass
        else:
            ends = np.zeros(len(column) + 1, np.int32)
            np.cumsum(size.fill_null(0).to_numpy() // 2, out=ends[1:])
            cells = pa.Array.from_buffers(pa.binary(), len(column), [None, pa.py_buffer(ends), pa.py_buffer(data)])
            return pc.if_else(column.is_valid(), cells, pa.scalar(None, pa.binary()))
    distinct = column.dictionary_encode()
    found = []
    for text in distinct.dictionary.to_pylist():
        try:
            found.append(binascii.unhexlify(text) if encoding == "hex" else base64.b64decode(text, validate=True))
        except ValueError as error:
            row = pc.index(column, text).as_py()
            others = ", ".join(other for other in ENCODINGS if other != encoding)
            raise InvalidInputError(
                ErrorCode.KAFKA_RECORDS,
                f"file {file.row(row)}: found {shown(text, 80)} in column {name}, expected {encoding}; name the "
                f"encoding of its texts ({others})",
            ) from error
    return pa.DictionaryArray.from_arrays(distinct.indices, pa.array(found, pa.binary())).cast(pa.binary())


def integers_of(column: pa.Array, name: str, file: FilePlace, kind: pa.DataType) -> pa.Array:
    """An integer column. Raises InvalidInputError KAFKA_RECORDS for another type, a null or a number out of range."""
    if pa.types.is_timestamp(column.type) and name == "timestamp":
        column = _milliseconds(column, file)
    if not pa.types.is_integer(column.type):
        expected = "integers of epoch milliseconds or a timestamp type" if name == "timestamp" else "integers"
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS, f"file {file}: column {name} has type {column.type}, expected {expected}"
        )
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS, f"file {file.row(row)}: found null in column {name}, expected a number"
        )
    try:
        found = column.cast(kind)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(ErrorCode.KAFKA_RECORDS, f"file {file}: column {name}: {error}") from error
    if name != "timestamp" and len(found) and pc.min(found).as_py() < 0:
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS, f"file {file}: found {pc.min(found)} in column {name}, expected 0 or more"
        )
    return found


def times_of(column: pa.Array, file: FilePlace) -> pa.Array:
    """The timestamps of an export: texts are ISO 8601 with an offset, or digits. Others stay.

    Raises InvalidInputError KAFKA_RECORDS for texts of another form, and for numbers that are no milliseconds.
    """
    if is_text(column.type):
        text = column.cast(pa.string())
        digits = pc.match_substring_regex(text, "^-?[0-9]{1,18}$")
        if pc.all(digits).as_py() is not False:
            column = text.cast(pa.int64())
        else:
            zoned = pc.match_substring_regex(text, _ISO)
            if not pc.all(zoned).as_py():
                row = pc.index(zoned, False).as_py()
                raise InvalidInputError(
                    ErrorCode.KAFKA_RECORDS,
                    f"file {file.row(row)}: found {shown(text[row].as_py(), 80)} in column timestamp, expected epoch "
                    "milliseconds, or ISO 8601 with an offset, such as 2024-05-01T08:00:00.000Z",
                )
            return text.cast(pa.timestamp("us", "UTC"))
    if pa.types.is_integer(column.type) and column.null_count < len(column):
        known = column.filter(pc.greater(column, 0)) if column.null_count or pc.min(column).as_py() <= 0 else column
        for unit, least in _OTHER_UNITS:
            if len(known) and least <= pc.min(known).as_py() and pc.max(known).as_py() < 10 * least:
                raise InvalidInputError(
                    ErrorCode.KAFKA_RECORDS,
                    f"file {file}: found {pc.min(known)} in column timestamp, which seems to be {unit}, expected epoch "
                    "milliseconds; convert them",
                )
    return column


def _milliseconds(column: pa.Array, file: FilePlace) -> pa.Array:
    """Kafka's times are whole milliseconds, so anything finer was not one of them."""
    if column.type.tz is None:
        raise InvalidInputError(
            ErrorCode.NAIVE_DATETIME,
            f"file {file}: column timestamp has type {column.type}, expected a time zone or epoch milliseconds",
        )
    try:
        return column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS,
            f"file {file}: column timestamp has fractions of milliseconds, which Kafka's records have not ({error})",
        ) from error


def headers_of(column: pa.Array, file: FilePlace, encoding: TextEncoding) -> pa.Array:
    """A column of HEADERS. Raises InvalidInputError KAFKA_RECORDS for another form."""
    kind = column.type
    if pa.types.is_null(kind):
        return pa.nulls(len(column), HEADERS)
    if pa.types.is_large_list(kind):
        column = column.cast(pa.list_(kind.value_type))
        kind = column.type
    if not pa.types.is_list(kind):
        raise _wrong_headers(file, kind)
    column = pc.if_else(column.is_valid(), column, None) if column.offset else column
    items, ends = column.flatten(), _ends(column)
    inner = kind.value_type
    if is_text(inner) or is_bytes(inner):
        return _headers_in_turn(column, file, encoding)
    if pa.types.is_null(inner):
        names, values = pa.array([], pa.string()), pa.array([], pa.binary())
    elif pa.types.is_struct(inner):
        name = "name" if inner.get_field_index("name") >= 0 else "key"
        if inner.get_field_index(name) < 0 or inner.get_field_index("value") < 0:
            raise _wrong_headers(file, kind)
        names, values = pc.struct_field(items, name), pc.struct_field(items, "value")
    elif pa.types.is_list(inner):
        sizes = pc.list_value_length(items)
        if len(items) and not pc.all(pc.equal(sizes, 2), skip_nulls=False).as_py():
            raise _wrong_headers(file, kind)
        names, values = pc.list_element(items, 0), pc.list_element(items, 1)
    else:
        raise _wrong_headers(file, kind)
    if names.null_count or not (is_text(names.type) or pa.types.is_null(names.type)):
        raise _wrong_headers(file, kind)
    pairs = pa.StructArray.from_arrays(
        [names.cast(pa.string()), bytes_of(values, "headers", file, encoding)], fields=list(HEADERS.value_type)
    )
    valid = column.is_valid()
    listed = pa.ListArray.from_arrays(pa.array(ends), pairs, type=HEADERS)
    return pc.if_else(valid, listed, pa.scalar(None, HEADERS)) if column.null_count else listed


def _headers_in_turn(column: pa.Array, file: FilePlace, encoding: TextEncoding) -> pa.Array:
    """Headers that are lists of a name, its value, the next name and so on."""
    ends, found = _ends(column), column.flatten()
    at = np.arange(0, len(found), 2)
    if (ends % 2).any() or found.take(pa.array(at)).null_count:
        raise _wrong_headers(file, column.type)
    items = bytes_of(found, "headers", file, encoding)
    names = items.take(pa.array(at))
    pairs = pa.StructArray.from_arrays(
        [names.cast(pa.string()), items.take(pa.array(at + 1))], fields=list(HEADERS.value_type)
    )
    listed = pa.ListArray.from_arrays(pa.array(ends // 2), pairs, type=HEADERS)
    return pc.if_else(column.is_valid(), listed, pa.scalar(None, HEADERS)) if column.null_count else listed


def _ends(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    ends = np.zeros(len(column) + 1, np.int32)
    np.cumsum(pc.list_value_length(column).fill_null(0).to_numpy(), out=ends[1:])
    return ends


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds bytes."""
    checks = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(check(kind) for check in checks)


def _wrong_headers(file: FilePlace, kind: pa.DataType) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.KAFKA_RECORDS,
        f"file {file}: column headers has type {kind}, expected a list of (name, value) structs or pairs",
    )


def order_broken(file: str, partition: int, offset: int) -> CorruptError:
    """A record is there twice, so one of the two is not what the log held."""
    return CorruptError(
        ErrorCode.FILE_DAMAGED,
        f"{file}: found offset {offset} of partition {partition} twice, expected each record once",
    )
