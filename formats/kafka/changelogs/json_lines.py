"""Records as JSON lines: one object a line with the fields of RECORDS, bytes as text (see ``file_columns``).

A field that a line lacks would read as null, and a null value deletes. So key, value and timestamp must be in the first
line, and each line must have key and value. Epoch milliseconds are numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.kafka.changelogs.export_forms import RecordForm, first_object, text_type

_BLOCK = 8 << 20
_FIRST_LINE = 64 << 20
_FIRST_HEADER = re.compile(rb'"headers"\s*:\s*\[\s*([\[{"])')
_MOST_DEPTH = 100
_LIST, _OBJECT, _NEWLINE = ord("["), ord("{"), b"\n"
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')
_HEADER_FIELD = re.compile(rb'"headers"\s*:\s*\[\s*\{[^}]*?"(name|key)"\s*:')


def json_batches(stream: Any, path: str, form: RecordForm) -> Iterator[pa.RecordBatch]:
    """Yield batches with the fields that are in the file, under the file's own names.

    Raises pyarrow's ArrowInvalid for what is no JSON, and InvalidInputError KAFKA_RECORDS, at the end, where lines lack
    a key or a value.
    """
    import pyarrow.json as pj

    if not stream.readline(_FIRST_LINE).strip() and not stream.read(1):
        return
    check_lines(stream, form.raw)
    names, text = form.columns, text_type(form)
    fields = {names["key"]: text, names["value"]: text, names["partition"]: pa.int32(), names["offset"]: pa.int64()}
    first = _first(stream, path)
    for name in (names["key"], names["value"]):
        if not isinstance(first.get(name), str | None):
            raise InvalidInputError(
                ErrorCode.KAFKA_RECORDS,
                f"file {path}: found {shown(first[name], 80)} as {name}, expected a text, because the bytes of the "
                f"topic are not in it; export texts, or make one of it where it was JSON: jq -c '.{name} |= tojson'",
            )
    is_text = form.is_export and isinstance(first.get(names["timestamp"]), str)
    fields[names["timestamp"]] = pa.string() if is_text else pa.int64()
    headers = _headers(stream, form) if names["headers"] == "headers" else None
    if headers is not None:
        fields["headers"] = headers
    present = _names(stream, form)
    required = () if form.omits else (names["key"], names["value"])
    counts = {name: _occurrences(stream, f'"{name}"'.encode()) for name in required if name in present}
    rows = items = 0
    stream.seek(0)
    with pj.open_json(
        pa.PythonFile(stream, "r"),
        pj.ReadOptions(block_size=_BLOCK),
        pj.ParseOptions(explicit_schema=pa.schema([(name, kind) for name, kind in fields.items() if name in present])),
    ) as reader:
        for batch in reader:
            rows += batch.num_rows
            if headers is not None and pa.types.is_struct(headers.value_type):
                items += pc.sum(pc.list_value_length(batch.column("headers"))).as_py() or 0
            yield batch
    for name, count in counts.items():
        in_headers = items if headers is not None and _has_field(headers.value_type, name) else 0
        if count < rows + in_headers:
            raise InvalidInputError(
                ErrorCode.KAFKA_RECORDS,
                f"file {path}: found {count} fields {name} in {rows} lines with {in_headers} headers, expected one in "
                "each; write null for none",
            )


def _first(stream: Any, path: str) -> Mapping[str, Any]:
    """The object in the first line. Raises InvalidInputError KAFKA_RECORDS where it is JSON of another kind."""
    stream.seek(0)
    line = stream.readline(_FIRST_LINE)
    if line.lstrip()[:1] == b'"':
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS,
            f"file {path}: found a text in the first line, expected an object with a key and a value: a value alone "
            "does not say what it replaces; export keys, too",
        )
    return first_object(line)


def check_lines(stream: Any, raw: bool = False) -> None:
    """Raise ArrowInvalid for a line that is no UTF-8, unless texts are ``raw``, or nests deeper than _MOST_DEPTH.

    The parser of Arrow checks neither: it recurses for each level, and a deep line would end the process.
    """
    stream.seek(0)
    number, carried = 0, b""
    while part := stream.read(_BLOCK):
        block = carried + part
        end = block.rfind(b"\n") + 1
        if not end and len(block) > _FIRST_LINE:
            raise pa.ArrowInvalid(f"line {number + 1} has more than {_FIRST_LINE} bytes")
        _check_block(block[:end], number, raw)
        number, carried = number + block.count(b"\n", 0, end), block[end:]
    _check_block(carried, number, raw)


def _check_block(block: bytes, number: int, raw: bool) -> None:
    try:
        if not raw:
            block.decode()
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"line {number + 1 + block.count(_NEWLINE, 0, error.start)} is no UTF-8") from error
    data = np.frombuffer(block, np.uint8)
    openings = np.flatnonzero((data == _LIST) | (data == _OBJECT))
    if len(openings) <= _MOST_DEPTH:
        return
    # Brackets within texts count here, so a line may have more than _MOST_DEPTH and still be flat.
    lines = np.searchsorted(np.flatnonzero(data == _NEWLINE[0]), openings)
    for line in np.flatnonzero(np.bincount(lines) > _MOST_DEPTH).tolist():
        if _depth(block.split(_NEWLINE, line + 1)[line]) > _MOST_DEPTH:
            raise pa.ArrowInvalid(f"line {number + line + 1} has values nested deeper than {_MOST_DEPTH}")


def _depth(line: bytes) -> int:
    """The greatest number of brackets that are open at once, outside of texts."""
    data = np.frombuffer(_TEXT.sub(b"", line), np.uint8)
    opened = ((data == _LIST) | (data == _OBJECT)).astype(np.int64)
    closed = (data == ord("]")) | (data == ord("}"))
    return int(np.max(np.cumsum(opened - closed), initial=0))


def _has_field(kind: pa.DataType, name: str) -> bool:
    return bool(pa.types.is_struct(kind) and kind.get_field_index(name) >= 0)


def _occurrences(stream: Any, text: bytes) -> int:
    stream.seek(0)
    count, carried = 0, b""
    while part := stream.read(_BLOCK):
        block = carried + part
        count += block.count(text)
        carried = block[-len(text) + 1 :]
    return count


def _names(stream: Any, form: RecordForm) -> set[str]:
    """Names of the columns: a column that is declared to the parser seems to be there.

    Required ones must be in the first line, because a column without values would delete all keys.
    """
    columns = form.columns
    wanted = {columns[name]: f'"{columns[name]}"'.encode() for name in ("offset", "partition", "headers", "topic")}
    stream.seek(0)
    first = stream.readline(_FIRST_LINE)
    try:
        row = json.loads(first.decode(errors="surrogateescape" if form.raw else "strict")) if first.strip() else {}
    except (ValueError, RecursionError) as error:
        raise pa.ArrowInvalid(f"its first line is no JSON ({error})") from error
    found = set(row) & set(columns.values()) if isinstance(row, dict) else set()
    if form.omits:
        found |= {columns["key"], columns["value"]}
    carried = first
    while len(wanted) and (part := stream.read(_BLOCK)):
        block = carried + part
        found |= {name for name, text in wanted.items() if text in block}
        wanted = {name: text for name, text in wanted.items() if name not in found}
        carried = block[-max([16, *map(len, wanted.values())]) :]
    stream.seek(0)
    return found


def _headers(stream: Any, form: RecordForm) -> pa.DataType | None:
    """The type of the headers, by the first record that has one."""
    stream.seek(0)
    carried = b""
    while part := stream.read(_BLOCK):
        block = carried + part
        first = _FIRST_HEADER.search(block)
        if first is not None:
            stream.seek(0)
            if first[1] == b"[":
                return pa.list_(pa.list_(pa.string()))
            if first[1] == b'"':
                return pa.list_(text_type(form))  # names and values in turn, as kcat writes them
            field = _HEADER_FIELD.search(block, first.start())
            name = field[1].decode() if field else "name"
            return pa.list_(pa.struct([(name, pa.string()), ("value", pa.string())]))
        carried = block[-64:]
    stream.seek(0)
    return None
