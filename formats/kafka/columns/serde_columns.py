"""Whole columns of values in the forms of Kafka's serdes (``org.apache.kafka.common.serialization``) as Arrow columns.

A serde is named as Kafka's own, in any case; besides, these names:

    json                        text that must be valid JSON, kept as text
    json-schema                 such text behind the id of its schema, as Confluent's JSON Schema serializer writes it
    json-glue, json-apicurio    the same with other forms of ids (`statestore.formats.kafka.schemas.schema_ids`)
    json-schema:SCHEMAS         the same, where the ids are known
    List<inner>                 a list (KIP-466); inner is any name
    Time-Windowed<inner>        a key with its window, in the form of topics: key | start:int64
    Session-Windowed<inner>     a key with its session: key | end:int64 | start:int64
    avro:SCHEMA                 Avro behind the id of its schema (`statestore.formats.kafka.columns.avro_columns`)
    avro-plain:SCHEMA           Avro alone
    protobuf:SCHEMA             Protobuf behind the id of its schema (`...columns.protobuf_columns`)
    protobuf-plain:SCHEMA       Protobuf alone

Numbers are big-endian, UUIDs are text, raw bytes stay binary. A null cell is null in every serde.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, ends_of
from statestore.formats.bytes.column_cursor import Cursor, Entries, read_entries
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, shown
from statestore.formats.kafka.columns.avro_columns import avro_serde
from statestore.formats.kafka.columns.origins import Origin, first_wrong
from statestore.formats.kafka.columns.protobuf_columns import protobuf_serde
from statestore.formats.kafka.columns.registry_frames import WITHOUT_ID, by_id, schema_of, unframed
from statestore.formats.kafka.columns.serde_form import CellSerde, Decode
from statestore.formats.kafka.columns.time_columns import TIME, times, window_ends
from statestore.formats.kafka.schemas.avro_schema import is_avro
from statestore.formats.kafka.schemas.given_schemas import set_of_text
from statestore.formats.kafka.schemas.protobuf_schema import is_protobuf
from statestore.formats.kafka.schemas.registry_requests import without_credentials
from statestore.formats.kafka.schemas.schema_ids import APICURIO, CONFLUENT, GLUE, IdForm, id_form
from statestore.formats.kafka_rows.serdes import (
    FIXED,
    FIXED_SIZES,
    FORMS,
    NAMES,
    UUID_LENGTH,
    VARIABLE,
    arrow_type_of,
    serde_name,
)
from statestore.formats.kernels.arrays import Bools
from statestore.formats.values.without_pandas import arrow_numbers


def cell_serde(name: str, window_size: int | None = None) -> CellSerde:
    """The serde of this name; ``window_size`` in ms gives windowed keys their end.

    Raises UnsupportedError UNSUPPORTED_SERDE for an unknown name, InvalidInputError WRONG_SCHEMA for a bad schema.
    """
    if is_avro(name):
        return avro_serde(name)
    if is_protobuf(name):
        return protobuf_serde(name)
    wrapped = WRAPPED.fullmatch(name.strip())
    if wrapped is not None:
        inner = cell_serde(wrapped[2], window_size)
        return _WRAPPERS[wrapped[1].lower()](inner, window_size)
    if name.strip().startswith(_JSON_BY_IDS):
        return _json_by_ids(name)
    if name.strip().lower() in _JSON_SERDES:
        return CellSerde(name.strip().lower(), pa.string(), _JSON_SERDES[name.strip().lower()])
    try:
        found = serde_name(name.strip())
    except UnsupportedError:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_SERDE,
            f"serde {without_credentials(repr(name))}; expected {', '.join(NAMES)}, json, json-schema, avro:FILE, "
            "avro-plain:FILE, avro-glue:FILES, avro-apicurio:FILES, protobuf:FILE#MESSAGE, protobuf-plain:FILE#MESSAGE "
            "or List<...>, Time-Windowed<...> or Session-Windowed<...> of one of them",
        ) from None
    if found in FORMS:
        return _number(found)
    decode: Decode = {"String": _text, "UUID": _uuids, "Boolean": _booleans, "Void": _void}.get(found, _raw)
    return CellSerde(found, arrow_type_of(found), decode, FIXED_SIZES.get(found))


def _raw(cells: Cells, origin: Origin) -> pa.Array:
    return cells.binary()


def _number(name: str) -> CellSerde:
    kind, form, size = arrow_type_of(name), FORMS[name].replace(*_NUMPY[name]), FIXED_SIZES[name]

    def decode(cells: Cells, origin: Origin) -> pa.Array:
        _refuse_size(cells, size, origin, f"{'an' if name == 'Integer' else 'a'} {name}, which has {size} bytes")
        return arrow_numbers(cells.numbers(0, form), cells.missing).cast(kind)

    return CellSerde(name, kind, decode, size)


def _refuse_size(cells: Cells, size: int, origin: Origin, expected: str) -> None:
    other = cells.size != size
    if cells.missing is not None:
        other &= ~cells.missing
    origin.refuse(cells, other, expected)


def _booleans(cells: Cells, origin: Origin) -> pa.Array:
    expected = "a Boolean, the byte 00 or 01"
    _refuse_size(cells, 1, origin, expected)
    found = cells.numbers(0, "u1")
    wrong = found > 1
    if cells.missing is not None:
        wrong &= ~cells.missing
    origin.refuse(cells, wrong, expected)
    return pa.array(found == 1, pa.bool_(), mask=cells.missing)


def _void(cells: Cells, origin: Origin) -> pa.Array:
    present = np.ones(len(cells), bool) if cells.missing is None else ~cells.missing
    origin.refuse(cells, present, "Void, which is always null")
    return pa.nulls(len(cells))


def _text(
    cells: Cells, origin: Origin, expected: str = "a String, text in UTF-8", whole: Cells | None = None
) -> pa.StringArray:
    """The cells as text; errors show the ``whole`` cells where these are parts of them."""
    try:
        return cells.binary().cast(pa.string())
    except pa.ArrowInvalid:
        wrong = np.zeros(len(cells), bool)
        wrong[first_wrong(len(cells), lambda index: _is_text(cells.cell(index)))] = True
        origin.refuse(cells if whole is None else whole, wrong, expected)
        raise


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _uuids(cells: Cells, origin: Origin) -> pa.StringArray:
    expected = "a UUID as text, 36 characters with four hyphens"
    _refuse_size(cells, UUID_LENGTH, origin, expected)
    found = _text(cells, origin, expected)
    right = pc.fill_null(pc.match_substring_regex(found, _UUID), True).to_numpy(zero_copy_only=False)
    origin.refuse(cells, ~right, expected)
    return pc.utf8_lower(found)


def _json(cells: Cells, origin: Origin, whole: Cells | None = None) -> pa.StringArray:
    expected = "JSON as text" if whole is None else "JSON as text behind the id of its schema"
    found = _text(cells, origin, expected, whole)
    wrong = np.zeros(len(cells), bool)
    # Python's scanner of JSON is compiled; Arrow's takes objects of one shape only.
    bad = [index for index, text in enumerate(found.to_pylist()) if text is not None and not is_json(text)]
    wrong[bad] = True
    origin.refuse(cells if whole is None else whole, wrong, expected)
    return found


def _json_behind(ids: IdForm) -> Decode:
    """A decoder of JSON behind ids."""

    def decode(cells: Cells, origin: Origin) -> pa.Array:
        missing = cells.missing
        present = cells if missing is None else cells.select(~missing)
        at = origin if missing is None else origin.select(~missing)
        values = unframed(present, ids, at, "JSON", f"name another serde, json for {WITHOUT_ID}")
        return _with_nulls(_json(values, at, present), missing)

    return decode


def _json_by_ids(name: str) -> CellSerde:
    """JSON behind ids that are given, or that a registry has."""
    prefix, text = name.strip().split(":", 1)
    ids, found, decode = id_form(name), set_of_text(text), _json_behind(id_form(name))
    if found is None:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"serde {shown(without_credentials(name), 80)}: expected {prefix}, or {prefix}:ID=FILE,..., a folder or "
            "the URL of a registry",
        )

    def decode_known(cells: Cells, origin: Origin) -> pa.Array:
        values = decode(cells, origin)
        present = np.flatnonzero(~cells.nulls)
        for lot in by_id(cells.select(present), ids):
            schema_of(found, "JSON", ids, lot.number, int(present[lot.first]), origin, str)
        return values

    return CellSerde(name, pa.string(), decode_known)


def is_json(text: str) -> bool:
    text = text.strip(" \t\r\n")
    try:
        return _scan_json(text)[1] == len(text)
    except (ValueError, RecursionError):
        return False


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _list_of(inner: CellSerde, window_size: int | None) -> CellSerde:
    name = f"List<{inner.name}>"

    def decode(cells: Cells, origin: Origin) -> pa.Array:
        cursor = Cursor(cells)
        missing = cursor.bad.copy()
        cursor.bad[:] = False
        present = np.flatnonzero(~missing)
        entries, bad = _list_entries(cells.select(present) if missing.any() else cells, inner.size)
        wrong = np.zeros(len(cells), bool)
        wrong[present[bad]] = True
        origin.refuse(cells, wrong, f"a {name} as ListSerializer writes it")
        elements = inner.decode(entries.cells, origin.select(present[entries.row]))
        counts = np.zeros(len(cells), np.int64)
        counts[present] = np.diff(entries.offsets)
        offsets = pa.array(ends_of(counts), pa.int32(), mask=np.append(missing, False) if missing.any() else None)
        return pa.ListArray.from_arrays(offsets, elements, type=kind)

    kind = pa.list_(inner.type)
    return CellSerde(name, kind, decode)


def _list_entries(cells: Cells, size: int | None) -> tuple[Entries, Bools]:
    """(entries of all lists, which lists are bad)."""
    cursor = Cursor(cells)
    strategy = cursor.numbers("u1")
    expected = FIXED if size is not None else VARIABLE
    cursor.refuse(strategy != expected)
    if size is None:
        entries = read_entries(cursor, cursor.int32())
        cursor.end()
        return entries, cursor.bad
    nulls, null_rows = _null_indexes(cursor)
    counts = cursor.int32()
    row_nulls = np.bincount(null_rows, minlength=len(cells))
    cursor.refuse((counts < row_nulls) | (counts - row_nulls > (cursor.stop - cursor.at) // size))
    begin = cursor.at
    counts = np.where(cursor.bad, 0, counts)
    offsets = ends_of(counts)
    missing = np.zeros(offsets[-1], bool)
    inside = (nulls >= 0) & (nulls < counts[null_rows])
    cursor.refuse(np.bincount(null_rows[~inside], minlength=len(cells)) > 0)
    missing[offsets[null_rows[inside]] + nulls[inside]] = True
    row = np.repeat(np.arange(len(cells)), counts)
    before = ends_of(np.where(missing, 0, size))
    start = begin[row] + before[:-1] - before[offsets[row]] if len(row) else before[:-1]
    cursor.refuse(begin + (before[offsets[1:]] - before[offsets[:-1]]) != cursor.stop)
    return Entries(offsets, Cells(cells.data, start, np.where(missing, 0, size), missing)), cursor.bad


def _null_indexes(cursor: Cursor) -> tuple[Any, Any]:
    """(indexes, rows) of the entries that are null in lists with entries of a fixed size."""
    counts = cursor.int32()
    cursor.refuse((counts < 0) | (counts > (cursor.stop - cursor.at) // 4))
    counts = np.where(cursor.bad, 0, counts)
    found = cursor.take(counts * 4)
    row = np.repeat(np.arange(len(counts)), counts)
    at = np.repeat(found.start - ends_of(counts)[:-1] * 4, counts) + np.arange(len(row)) * 4
    numbers = Cells(cursor.data, at, np.full(len(at), 4)).numbers(0, ">i4").astype(np.int64)
    return numbers, row


def _time_windowed(inner: CellSerde, window_size: int | None) -> CellSerde:
    fields = [pa.field("key", inner.type), pa.field("window_start", TIME), pa.field("window_end", TIME)]
    kind = pa.struct(fields)

    def decode(cells: Cells, origin: Origin) -> pa.Array:
        present, mask = _long_enough(cells, 8, origin, "a time-windowed key: key | start:int64")
        origin = origin if mask is None else origin.select(~mask)
        keys = inner.decode(present.cut(0, 8), origin)
        starts = present.numbers(-8, ">i8")
        found = [keys, times(starts, origin), window_ends(starts, window_size)]
        return _with_nulls(pa.StructArray.from_arrays(found, fields=fields), mask)

    return CellSerde(f"Time-Windowed<{inner.name}>", kind, decode)


def _session_windowed(inner: CellSerde, window_size: int | None) -> CellSerde:
    fields = [pa.field("key", inner.type), pa.field("session_start", TIME), pa.field("session_end", TIME)]
    kind = pa.struct(fields)

    def decode(cells: Cells, origin: Origin) -> pa.Array:
        expected = "a session-windowed key: key | end:int64 | start:int64"
        present, mask = _long_enough(cells, 16, origin, expected)
        origin = origin if mask is None else origin.select(~mask)
        keys = inner.decode(present.cut(0, 16), origin)
        ends, starts = present.numbers(-16, ">i8"), present.numbers(-8, ">i8")
        origin.refuse(present, ends < starts, f"{expected}, the end not before the start")
        found = [keys, times(starts, origin), times(ends, origin)]
        return _with_nulls(pa.StructArray.from_arrays(found, fields=fields), mask)

    return CellSerde(f"Session-Windowed<{inner.name}>", kind, decode)


def _long_enough(cells: Cells, size: int, origin: Origin, expected: str) -> tuple[Cells, Bools | None]:
    """(cells that are not null, which are null)."""
    missing = cells.missing
    present = cells if missing is None else cells.select(~missing)
    origin.refuse(cells, (cells.size < size) & (True if missing is None else ~missing), expected)
    return present, missing


def _with_nulls(values: pa.Array, missing: Bools | None) -> pa.Array:
    if missing is None:
        return values
    return values.take(pa.array(np.cumsum(~missing) - 1, mask=missing))


_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_NUMPY = {
    "Integer": ("i", "i4"),
    "Long": ("q", "i8"),
    "Short": ("h", "i2"),
    "Float": ("f", "f4"),
    "Double": ("d", "f8"),
}
WRAPPED = re.compile(r"(list|time-windowed|session-windowed)<(.*)>", re.IGNORECASE)
_WRAPPERS = {"list": _list_of, "time-windowed": _time_windowed, "session-windowed": _session_windowed}
_JSON_SERDES: dict[str, Decode] = {
    "json": _json,
    "json-schema": _json_behind(CONFLUENT),
    "json-apicurio": _json_behind(APICURIO),
    "json-glue": _json_behind(GLUE),
}
_JSON_BY_IDS = tuple(f"{name}:" for name in _JSON_SERDES if name != "json")
_scan_json = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode
