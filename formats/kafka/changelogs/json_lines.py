"""Records as JSON lines: one object a line with the fields of RECORDS, bytes as text (see ``file_columns``).

A field that a line lacks would read as null, and a null value deletes. So key, value and timestamp must be in the first
line, and each line must have key and value. Epoch milliseconds are numbers.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.changelogs.records import COLUMNS

_BLOCK = 8 << 20
_FIRST_LINE = 64 << 20
_FIRST_HEADER = re.compile(rb'"headers"\s*:\s*\[\s*([\[{])')
_HEADER_FIELD = re.compile(rb'"headers"\s*:\s*\[\s*\{[^}]*?"(name|key)"\s*:')


def json_batches(stream: Any, path: str) -> Iterator[pa.RecordBatch]:
    """Yield batches with the fields that are in the file.

    Raises pyarrow's ArrowInvalid for what is no JSON, and InvalidInputError KAFKA_RECORDS, at the end, where lines lack
    a key or a value.
    """
    import pyarrow.json as pj

    if not os.fstat(stream.fileno()).st_size:
        return
    fields = {"key": pa.string(), "value": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
    fields["timestamp"] = pa.int64()
    headers = _headers(stream)
    if headers is not None:
        fields["headers"] = headers
    present = _names(stream)
    counts = {name: _occurrences(stream, f'"{name}"'.encode()) for name in ("key", "value") if name in present}
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


def _names(stream: Any) -> set[str]:
    """Names of the columns: a column that is declared to the parser seems to be there.

    Required ones must be in the first line, because a column without values would delete all keys.
    """
    wanted = {name: f'"{name}"'.encode() for name in ("offset", "partition", "headers", "topic")}
    stream.seek(0)
    first = stream.readline(_FIRST_LINE)
    try:
        row = json.loads(first) if first.strip() else {}
    except ValueError as error:
        raise pa.ArrowInvalid(f"its first line is no JSON ({error})") from error
    found = set(row) & set(COLUMNS) if isinstance(row, dict) else set()
    carried = first
    while len(wanted) and (part := stream.read(_BLOCK)):
        block = carried + part
        found |= {name for name, text in wanted.items() if text in block}
        wanted = {name: text for name, text in wanted.items() if name not in found}
        carried = block[-16:]
    stream.seek(0)
    return found


def _headers(stream: Any) -> pa.DataType | None:
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
            field = _HEADER_FIELD.search(block, first.start())
            name = field[1].decode() if field else "name"
            return pa.list_(pa.struct([(name, pa.string()), ("value", pa.string())]))
        carried = block[-64:]
    stream.seek(0)
    return None
