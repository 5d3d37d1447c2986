"""Records as lines of fields without names, as kafka-console-consumer prints them, by one separator.

    CreateTime:1714550400000 | Partition:0 | Offset:12 | Delivery:1 | NO_HEADERS | key | value

The console consumer prints bytes as they are. Which fields there are is known by the words before the first ones, or
named in their order by option recordColumns. A line with more or fewer fields is refused: a key or a value holds the
separator or a line break. A null is printed as a text, "null" by default, and then looks like that text. Programs that
print a null as nothing are known by no word, so an empty key or value among named fields is refused, unless the user
says which text stands for null.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.kafka.changelogs.export_forms import SKIPPED, RecordForm, RecordOptions, separator_of
from statestore.formats.kafka.changelogs.file_columns import TextEncoding
from statestore.formats.kafka.changelogs.records import COLUMNS
from statestore.formats.kafka.columns.header_columns import HEADERS

_BLOCK = 8 << 20
_LONGEST = 64 << 20
_MOST_SEPARATOR = 16
_BREAK, _RETURN = ord("\n"), ord("\r")
_HEADERS = re.compile(rb"[^:,]+:[^,]*(?:,[^:,]+:[^,]*)*")
_NULL = b"null"
_NO_HEADERS = b"NO_HEADERS"
_WORDS = {
    "timestamp": re.compile(rb"(?:(?:CreateTime|LogAppendTime):-?\d+|NO_TIMESTAMP)"),
    "partition": re.compile(rb"Partition:\d+"),
    "offset": re.compile(rb"Offset:\d+"),
    "delivery": re.compile(rb"Delivery:(?:\d+|[A-Z_]+)"),
}
_BEFORE = {"timestamp": "^(CreateTime|LogAppendTime):", "partition": "^Partition:", "offset": "^Offset:"}


def lines_form(start: bytes, path: str, options: RecordOptions, text: TextEncoding | None) -> RecordForm:
    """The form of a file of lines that begins with ``start``.

    Raises InvalidInputError KAFKA_RECORDS where neither the lines nor the options say what the fields are.
    """
    separator = separator_of(options, b"\t", _MOST_SEPARATOR)
    order = _recognised(start, separator, path) if options.columns is None else _named(options.columns)
    null = _NULL if options.null is None else options.null.encode()
    return RecordForm(
        encoding=text or "utf-8",
        order=order,
        separator=separator,
        null=null,
        null_given=options.null is not None,
        raw=text is None,
        is_export=True,
        empty_known=options.columns is None or options.null is not None,
    )


def _named(text: str) -> tuple[str, ...]:
    order = tuple(name.strip() for name in text.split(","))
    kept = [name for name in order if name != SKIPPED]
    if not {"key", "value"} <= set(kept) <= {*COLUMNS, "topic"} or len(set(kept)) < len(kept):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"option recordColumns is {shown(text)}; expected the fields of a line in their order, such as "
            f"timestamp,partition,key,value, and {SKIPPED} for one that is not read",
        )
    return order


def _recognised(start: bytes, separator: bytes, path: str) -> tuple[str, ...]:
    lines = [line.split(separator) for line in start.split(b"\n")[:-1][:1000]]
    first = lines[0] if lines else []
    order: list[str] = []
    for field in first:
        name = next((name for name, form in _WORDS.items() if form.fullmatch(field) and name not in order), None)
        if name is None:
            break
        order.append(name if name in _BEFORE else SKIPPED)
    rest = len(first) - len(order)
    has_headers = any(_NO_HEADERS in line[len(order) : len(order) + 1] for line in lines)
    third = [line[len(order)] for line in lines if len(line) > len(order)]
    has_headers |= any(b"," in each for each in third) and all(map(_HEADERS.fullmatch, third))
    if order and rest == 2 and not has_headers:
        return (*order, "key", "value")
    if order and rest == 3 and has_headers:
        return (*order, "headers", "key", "value")
    found = shown(b" | ".join(first).decode(errors="replace"), 200)
    raise InvalidInputError(
        ErrorCode.KAFKA_RECORDS,
        f"file {path}: found fields {found}, which do not say what they are; name them in their order with option "
        "recordColumns, such as timestamp,partition,offset,key,value, or consume again: kafka-console-consumer with "
        "print.key, print.timestamp, print.partition and print.offset, or kcat -J in place of kcat -f",
    )


def line_batches(stream: Any, form: RecordForm, path: str) -> Iterator[pa.RecordBatch]:
    """Yield batches with the columns that the lines have. Raises InvalidInputError KAFKA_RECORDS for other lines."""
    number, carried = 0, b""
    while part := stream.read(_BLOCK):
        block = carried + part
        end = block.rfind(b"\n") + 1
        if end:
            batch = _batch(np.frombuffer(block, np.uint8, end), form, path, number)
            number += batch.num_rows
            yield batch
        elif len(block) > _LONGEST:
            raise pa.ArrowInvalid(f"line {number + 1} has more than {_LONGEST} bytes")
        carried = block[end:]
    if carried:
        raise pa.ArrowInvalid(f"it ends within line {number + 1}, so the end of that record may be missing")


def _batch(data: Any, form: RecordForm, path: str, before: int) -> pa.RecordBatch:
    ends = np.flatnonzero(data == _BREAK)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if (data[np.maximum(ends - 1, 0)] == _RETURN).all():
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS,
            f"file {path}: found lines that end in CR LF, as some shells redirect output, and the CR would be part of "
            "each value, expected LF; convert the file: tr -d '\\r'",
        )
    width = len(form.separator)
    cuts = _places(data, form.separator)
    first = np.searchsorted(cuts, starts)
    counts = np.searchsorted(cuts, ends) - first
    wrong = np.flatnonzero(counts != len(form.order) - 1)
    if len(wrong):
        line = int(wrong[0])
        found = shown(data[starts[line] : ends[line]].tobytes().decode(errors="replace"), 120)
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS,
            f"file {path}, line {before + line + 1}: found {int(counts[line]) + 1} fields, {found}, expected "
            f"{len(form.order)} ({', '.join(form.order)}); a key or a value may hold a line break or the separator: "
            "consume with another key.separator and name it with option recordSeparator, or with kcat -J",
        )
    columns = {}
    for at, name in enumerate(form.order):
        if name == SKIPPED:
            continue
        begin = starts if at == 0 else cuts[first + at - 1] + width
        end = ends if at == len(form.order) - 1 else cuts[first + at]
        cells = Cells(data, begin, end - begin).copied()
        columns[name] = _column(cells, name, form, path, before)
        if not form.empty_known and name in ("key", "value"):
            _refuse_empty(columns[name], name, path, before)
    return pa.RecordBatch.from_pydict(columns)


def _places(data: Any, separator: bytes) -> Any:
    """The positions of a separator, which do not overlap if the lines have the fields that are expected."""
    found = np.flatnonzero(data == separator[0])
    found = found[found <= len(data) - len(separator)]
    for at, octet in enumerate(separator[1:], 1):
        found = found[data[found + at] == octet]
    return found


def _refuse_empty(column: pa.Array, name: str, path: str, before: int) -> None:
    row = pc.index(pc.binary_length(column), 0).as_py()
    if row >= 0:
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS,
            f"file {path}, line {before + row + 1}: found an empty {name}, which may be null, as kcat -f prints it, or "
            "an empty text; say which text stands for null with option recordNull: '' for an empty one, null for what "
            "kafka-console-consumer has printed, NULL for kcat -Z",
        )


def _column(cells: pa.Array, name: str, form: RecordForm, path: str, before: int) -> pa.Array:
    if name in ("key", "value"):
        found = pc.if_else(pc.equal(cells, pa.scalar(form.null, pa.binary())), None, cells)
        return found if form.raw else found.cast(pa.string())
    if name == "headers":  # texts of them may mean several things: unknown
        none = pc.equal(cells, pa.scalar(_NO_HEADERS, pa.binary()))
        return pc.if_else(none, pa.scalar([], HEADERS), pa.scalar(None, HEADERS))
    text = cells.cast(pa.string())
    if name == "topic":
        return text
    digits = pc.replace_substring_regex(text, _BEFORE[name], "")
    if name == "timestamp":
        digits = pc.if_else(pc.equal(digits, "NO_TIMESTAMP"), "-1", digits)
    fits = pc.match_substring_regex(digits, "^-?[0-9]{1,18}$")
    if not pc.all(fits).as_py():
        row = pc.index(fits, False).as_py()
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS,
            f"file {path}, line {before + row + 1}: found {shown(text[row].as_py(), 80)} as {name}, expected a number",
        )
    return digits.cast(pa.int64())
