"""Serdes of Avro: values as columns, of one schema or of several that are resolved into one reader's.

    avro:SCHEMA         00 | schema id:int32 | value        as Confluent's serializers write it
    avro-plain:SCHEMA   value

A value must end where its cell ends. With one SCHEMA all values of a batch must have one schema id, because nothing
says what another id means. Where SCHEMA is a set of schemas by id (`statestore.formats.kafka.schemas.schema_sets`), the
rows of each id are decoded together by its own plan, and put back in their order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.bytes.column_cursor import Cursor
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.columns.avro_resolved import resolved_values
from statestore.formats.kafka.columns.avro_values import avro_values, spread
from statestore.formats.kafka.columns.origins import Origin, first_wrong
from statestore.formats.kafka.columns.registry_frames import FRAME_BYTES, check_frames, schema_ids
from statestore.formats.kafka.columns.serde_form import CellSerde
from statestore.formats.kafka.schemas.avro_resolution import Plan, resolve
from statestore.formats.kafka.schemas.avro_schema import PREFIX, parse_schema
from statestore.formats.kafka.schemas.schema_registry import fetch_schema, public_url
from statestore.formats.kafka.schemas.schema_sets import SchemaSet, set_of_text
from statestore.formats.kernels.arrays import Bools

_Read = Callable[[Cursor], pa.Array]
_Present = Callable[[Cells, Origin], pa.Array]


def avro_serde(name: str) -> CellSerde:
    """The serde "avro:SCHEMA" or "avro-plain:SCHEMA". Errors as `parse_schema`."""
    prefix, text = name.split(":", 1)
    found = set_of_text(text)
    if found is not None:
        return _several(name, found, text)
    kind, framed = parse_schema(text), f"{prefix}:" == PREFIX

    def read(cursor: Cursor) -> pa.Array:
        return avro_values(cursor, kind)

    def decode(cells: Cells, origin: Origin) -> pa.Array:
        return _decoded(read, _unframed(cells, origin) if framed else cells, origin)

    return CellSerde(name, kind.column, _of_present(decode))


def _of_present(decode: _Present) -> _Present:
    """Decode the cells that are not null; the others stay null."""

    def decode_all(cells: Cells, origin: Origin) -> pa.Array:
        if cells.missing is None:
            return decode(cells, origin)
        has: Bools = ~cells.missing
        return spread(decode(cells.select(has), origin.select(has)), has)

    return decode_all


def _unframed(cells: Cells, origin: Origin) -> Cells:
    """The values behind one schema id."""
    _check(cells, origin)
    ids = schema_ids(cells)
    other = ids != ids[:1]
    if other.any():
        raise origin.error(
            int(other.argmax()),
            f"schema id {int(ids[other.argmax()])}",
            f"schema id {int(ids[0])} as in the rows before, because one schema was given",
            "give a schema for each id (avro:5=a.avsc,6=b.avsc, a folder, or the URL of the registry)",
        )
    return cells.cut(FRAME_BYTES)


def _check(cells: Cells, origin: Origin) -> None:
    check_frames(cells, origin, "an Avro value", "name another serde, avro-plain:... for values without an id")


def _decoded(read: _Read, cells: Cells, origin: Origin) -> pa.Array:
    expected = "a value of the given Avro schema"
    cursor = Cursor(cells)
    try:
        found = read(cursor)
    except pa.ArrowInvalid:  # text that is not UTF-8, a time of day or a decimal beyond its type
        wrong = np.zeros(len(cells), bool)
        wrong[first_wrong(len(cells), lambda index: _fits(read, cells.select(np.array([index]))))] = True
        origin.refuse(cells, wrong, expected)
        raise
    cursor.end()
    origin.refuse(cells, cursor.bad, expected)
    return found


def _fits(read: _Read, cell: Cells) -> bool:
    cursor = Cursor(cell)
    try:
        read(cursor)
    except pa.ArrowInvalid:
        return False
    cursor.end()
    return not cursor.bad.any()


# Several schemas


def _several(name: str, found: SchemaSet, text: str) -> CellSerde:
    if found.reader is None:
        return CellSerde(name, pa.binary(), _of_present(functools.partial(_refuse_unread, found)))
    readers = _readers(text)

    def decode(cells: Cells, origin: Origin) -> pa.Array:
        _check(cells, origin)
        ids = schema_ids(cells)
        if len(ids) and (ids == ids[0]).all():
            plan = readers.plan(int(ids[0]), 0, origin)
            return _by_plan(plan, int(ids[0]), found, cells.cut(FRAME_BYTES), origin)
        distinct, first, which = np.unique(ids, return_index=True, return_inverse=True)
        order = np.argsort(which, kind="stable")
        ends = np.cumsum(np.bincount(which, minlength=len(distinct)))
        values = cells.cut(FRAME_BYTES)
        parts = []
        for number, at, stop, count in zip(
            distinct.tolist(), first.tolist(), ends.tolist(), np.diff(ends, prepend=0).tolist(), strict=True
        ):
            plan = readers.plan(number, at, origin)
            rows = order[stop - count : stop]
            parts.append(_by_plan(plan, number, found, values.select(rows), origin.select(rows)))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(pa.array(place)) if parts else pa.array([], readers.column)

    return CellSerde(name, readers.column, _of_present(decode))


def _by_plan(plan: Plan, number: int, found: SchemaSet, cells: Cells, origin: Origin) -> pa.Array:
    try:
        return _decoded(lambda cursor: resolved_values(cursor, plan), cells, origin)
    except InvalidInputError as error:
        if error.code != ErrorCode.WRONG_SCHEMA:
            raise
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"{origin.column}: a value of schema id {number} cannot be read by {found.shown_reader}: {error.message}; "
            "name another reader (avro:reader=ID,... or reader=FILE), or read the values as bytes",
        ) from None


def _refuse_unread(found: SchemaSet, cells: Cells, origin: Origin) -> pa.Array:
    if len(cells):
        place = public_url(found.registry or "")
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"{origin.column}: no sampled row named a schema id of {place}, so no reader's schema is known; name it by "
            f"its id, such as avro:reader=6,{place}",
        )
    return pa.array([], pa.binary())


class _Readers:
    """Plans by schema id, which are made when an id first occurs."""

    def __init__(self, found: SchemaSet) -> None:
        assert found.reader is not None
        self._found = found
        self._reader = parse_schema(found.reader[-1], found.reader[:-1])
        self._plans: dict[int, Plan] = {}
        self.column = self._reader.column

    def plan(self, number: int, at: int, origin: Origin) -> Plan:
        """The plan of an id, which cell ``at`` has."""
        if number not in self._plans:
            texts = self._texts(number, at, origin)
            self._plans[number] = resolve(parse_schema(texts[-1], texts[:-1]), self._reader)
        return self._plans[number]

    def _texts(self, number: int, at: int, origin: Origin) -> tuple[str, ...]:
        found = self._found
        if number in found.schemas:
            return found.schemas[number]
        if found.registry is None or number < 0:
            known = ", ".join(map(str, sorted(found.schemas)[:20]))
            raise origin.error(
                at, f"schema id {number}", f"schema id {known or 'of a registry'}", "give the schema of this id, too"
            )
        if not found.named and found.reader_id is not None and number > found.reader_id:
            raise origin.error(
                at,
                f"schema id {number}",
                f"no id above {found.reader_id}, the highest one in a sample, whose schema is the reader's",
                f"name the reader: avro:reader={number},{public_url(found.registry)}",
            )
        return fetch_schema(found.registry, number, "AVRO")


@functools.lru_cache(maxsize=32)
def _readers(text: str) -> _Readers:
    found = set_of_text(text)
    assert found is not None
    return _Readers(found)
