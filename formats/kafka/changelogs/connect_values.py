"""Values of Kafka Connect's files as the bytes of keys and values.

A sink writes what its converter made of a record: the bytes of the topic are gone. So a text is its UTF-8 bytes, bytes
are themselves, and anything else, such as a record, is JSON text, to be read by the serde ``json``. In JSON that was
made here, bytes are base64 and decimals are text, as JSON has neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.kafka.changelogs.file_columns import FilePlace, TextEncoding, bytes_of, is_bytes, is_text
from statestore.formats.kafka.changelogs.json_lines import check_lines

_BLOCK = 8 << 20
_LONGEST = 64 << 20
_BREAK = ord("\n")
_PRINTED_ANEW = pa.array(["DOUBLE", "OBJECT", "ARRAY"])
"""Kinds of values whose numbers DuckDB prints anew when it extracts them, as doubles."""
_MANY_DIGITS = r"[:\[,]\s*-?[0-9.]{17}"
_WHOLE = (b"}", b"]", b'"', b"null", b"true", b"false")


def lines(stream: Any, path: str) -> Iterator[pa.StringArray]:
    """Yield the lines of a JSON file. Raises ArrowInvalid for what is no UTF-8, too deep, too long or cut."""
    check_lines(stream)
    stream.seek(0)
    carried = b""
    while part := stream.read(_BLOCK):
        block = carried + part
        end = block.rfind(b"\n") + 1
        if end:
            data = np.frombuffer(block, np.uint8, end)
            ends = np.flatnonzero(data == _BREAK)
            starts = np.concatenate([[0], ends[:-1] + 1])
            yield Cells(data, starts, ends - starts).copied().cast(pa.string())
        elif len(block) > _LONGEST:
            raise pa.ArrowInvalid(f"a line has more than {_LONGEST} bytes")
        carried = block[end:]
    if carried:
        if not carried.rstrip().endswith(_WHOLE):
            raise pa.ArrowInvalid("it ends within a line, so the end of that record may be missing")
        yield pa.array([carried.decode()], pa.string())


class JsonCells:
    """Keys and values of JSON, computed by DuckDB. To be closed."""

    def __init__(self) -> None:
        import duckdb

        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.execute("SET TimeZone = 'UTC'")

    def close(self) -> None:
        self._connection.close()

    def of_lines(self, text: pa.StringArray, name: str | None, place: FilePlace) -> pa.StringArray:
        """The JSON values of lines, or of a field of their objects.

        Raises InvalidInputError KAFKA_RECORDS for a line that is no JSON, or that lacks the field.
        """
        valid = self._run("json_valid(c)", text)
        if not pc.all(valid).as_py():
            raise self._wrong(text, valid, "expected a JSON value in each line", place)
        if name is not None:
            has = self._run("coalesce(json_exists(c, $path), false)", text, name)
            if not pc.all(has).as_py():
                raise self._wrong(text, has, f"expected an object with a field {shown(name)}", place)
            kinds = self._run("json_type(c, $path)", text, name)
            exact = pc.invert(pc.and_(pc.is_in(kinds, _PRINTED_ANEW), pc.match_substring_regex(text, _MANY_DIGITS)))
            if not pc.all(exact).as_py():
                raise self._wrong(text, exact, "expected numbers of at most 16 digits in the named field", place)
            return self._run("json_extract_string(c, $path)", text, name)
        kinds = self._run("json_type(c)", text)
        if pc.any(pc.equal(kinds, "VARCHAR")).as_py():
            inner = self._run("c->>'$'", text)
            text = pc.if_else(pc.equal(kinds, "VARCHAR"), inner, text)
        return pc.if_else(pc.equal(kinds, "NULL"), pa.scalar(None, pa.string()), text)

    def of_column(self, column: pa.Array, name: str, place: FilePlace, encoding: TextEncoding) -> pa.Array:
        """The bytes of a column of any type: those of texts and bytes, else JSON.

        Raises InvalidInputError KAFKA_RECORDS for values that JSON does not have.
        """
        kind = column.type
        if pa.types.is_dictionary(kind):
            return self.of_column(column.dictionary_decode(), name, place, encoding)
        if pa.types.is_null(kind) or is_text(kind) or is_bytes(kind):
            return bytes_of(column, name, place, encoding)
        return self._run("to_json(c)", self._plain(column, name, place)).cast(pa.binary())

    def _plain(self, column: pa.Array, name: str, place: FilePlace) -> pa.Array:
        """A column with types that JSON has."""
        kind = column.type
        if pa.types.is_struct(kind):
            inner = [
                self._plain(part, f"{name}.{field.name}", place)
                for part, field in zip(column.flatten(), kind, strict=True)
            ]
            if not inner:
                raise _no_json(f"a struct without fields in column {name}", place)
            return pa.StructArray.from_arrays(inner, [field.name for field in kind], mask=column.is_null())
        if pa.types.is_dictionary(kind):
            return self._plain(column.dictionary_decode(), name, place)
        if is_bytes(kind):
            return self._run("to_base64(c)", column.cast(pa.binary()))
        if pa.types.is_decimal(kind):
            return column.cast(pa.string())
        if pa.types.is_floating(kind) and not pc.all(pc.is_finite(column)).as_py() and len(column):
            raise _no_json(f"NaN or infinity in column {name}", place)
        if pa.types.is_nested(kind):
            _check_entries(column, name, place)
        return column

    def _run(self, expression: str, column: pa.Array, field: str | None = None) -> Any:
        lot = pa.table({"c": column})
        self._connection.register("lot", lot)
        # The name of a field is quoted within the path, and has no quote itself (`named_fields`).
        given = {} if field is None else {"path": f'$."{field}"'}
        found: Any = self._connection.sql(f"SELECT {expression} AS c FROM lot", params=given).to_arrow_table()
        return found.column("c").combine_chunks()

    def _wrong(self, text: Any, good: Any, expected: str, place: FilePlace) -> InvalidInputError:
        row = pc.index(good, False).as_py()
        return InvalidInputError(
            ErrorCode.KAFKA_RECORDS, f"file {place.row(row)}: found {shown(text[row].as_py(), 80)}, {expected}"
        )


def _check_entries(column: pa.Array, name: str, place: FilePlace) -> None:
    """Refuse entries of lists and maps that JSON does not have as they are."""
    parts = [column.keys, column.items] if pa.types.is_map(column.type) else [column.flatten()]
    for part in parts:
        kind = part.type
        if pa.types.is_struct(kind):
            inner = part.flatten()
        elif pa.types.is_nested(kind):
            _check_entries(part, name, place)
            continue
        else:
            inner = [part]
        for each in inner:
            if pa.types.is_nested(each.type):
                _check_entries(each, name, place)
            elif is_bytes(each.type) or pa.types.is_decimal(each.type):
                raise _no_json(f"{each.type} within column {name}", place)
            elif pa.types.is_floating(each.type) and not pc.all(pc.is_finite(each), min_count=0).as_py():
                raise _no_json(f"NaN or infinity within column {name}", place)


def _no_json(found: str, place: FilePlace) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.KAFKA_RECORDS,
        f"file {place}: found {found}, which JSON does not have, expected values that it has; name the field to read "
        "with option recordColumns, such as value=FIELD",
    )
