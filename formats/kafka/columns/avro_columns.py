"""Serdes of Avro: values as columns, of one schema or of several that are resolved into one reader's.

    avro:SCHEMA         00 | schema id:int32 | value        as Confluent's serializers write it
    avro-glue:SCHEMA    and other forms of ids              (`statestore.formats.kafka.schemas.schema_ids`)
    avro-plain:SCHEMA   value

A value must end where its cell ends. With one SCHEMA all values of a batch must have one schema id, because nothing
says what another id means. Where SCHEMA is a set of schemas by id (`statestore.formats.kafka.schemas.given_schemas`),
the rows of each id are decoded together by its own plan, and put back in their order.
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
from statestore.formats.kafka.columns.registry_frames import WITHOUT_ID, by_id, refuse_unread, schema_of, unframed
from statestore.formats.kafka.columns.serde_form import CellSerde
from statestore.formats.kafka.schemas.avro_resolution import Plan, resolve
from statestore.formats.kafka.schemas.avro_schema import PLAIN_PREFIX, parse_schema
from statestore.formats.kafka.schemas.given_schemas import SchemaSet, set_of_text
from statestore.formats.kafka.schemas.schema_ids import IdForm, id_form
from statestore.formats.kernels.arrays import Bools

_Read = Callable[[Cursor], pa.Array]
_Present = Callable[[Cells, Origin], pa.Array]


def avro_serde(name: str) -> CellSerde:
    """The serde "avro:SCHEMA" or "avro-plain:SCHEMA". Errors as `parse_schema`."""
    prefix, text = name.split(":", 1)
    found = set_of_text(text)
    if found is not None:
        return _several(name, found, text)
    kind, ids = parse_schema(text), None if f"{prefix}:" == PLAIN_PREFIX else id_form(name)

    def read(cursor: Cursor) -> pa.Array:
        return avro_values(cursor, kind)

    def decode(cells: Cells, origin: Origin) -> pa.Array:
        return _decoded(read, cells if ids is None else _of_one_id(cells, ids, origin), origin)

    return CellSerde(name, kind.column, _of_present(decode))


def _of_present(decode: _Present) -> _Present:
    """Decode the cells that are not null; the others stay null."""

    def decode_all(cells: Cells, origin: Origin) -> pa.Array:
        if cells.missing is None:
            return decode(cells, origin)
        has: Bools = ~cells.missing
        return spread(decode(cells.select(has), origin.select(has)), has)

    return decode_all


def _of_one_id(cells: Cells, ids: IdForm, origin: Origin) -> Cells:
    """The values behind one schema id."""
    values = _values(cells, ids, origin)
    found = sorted(by_id(cells, ids), key=lambda each: each.first)
    if len(found) > 1:
        raise origin.error(
            found[1].first,
            f"schema id {ids.text_of(found[1].number)}",
            f"schema id {ids.text_of(found[0].number)} as in the rows before, because one schema was given",
            "give a schema for each id (avro:5=a.avsc,6=b.avsc, a folder, or the URL of the registry)",
        )
    return values


def _values(cells: Cells, ids: IdForm, origin: Origin) -> Cells:
    return unframed(cells, ids, origin, "an Avro value", f"name another serde, avro-plain:... for {WITHOUT_ID}")


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
    ids = id_form(name)
    if found.reader is None:
        refuse = functools.partial(refuse_unread, found=found, prefix=f"avro{ids.suffix}")
        return CellSerde(name, pa.binary(), _of_present(refuse))
    readers = _readers(text, ids)

    def decode(cells: Cells, origin: Origin) -> pa.Array:
        values = _values(cells, ids, origin)
        lots = list(by_id(cells, ids))
        if not lots:
            return pa.array([], readers.column)
        if len(lots) == 1:
            return _by_plan(readers.plan(lots[0].number, 0, origin), lots[0].number, readers, values, origin)
        parts = []
        place = np.empty(len(cells), np.int64)
        before = 0
        for lot in lots:
            plan = readers.plan(lot.number, lot.first, origin)
            parts.append(_by_plan(plan, lot.number, readers, values.select(lot.rows), origin.select(lot.rows)))
            place[lot.rows] = before + np.arange(len(lot.rows))
            before += len(lot.rows)
        return pa.concat_arrays(parts).take(pa.array(place))

    return CellSerde(name, readers.column, _of_present(decode))


def _by_plan(plan: Plan, number: int, readers: _Readers, cells: Cells, origin: Origin) -> pa.Array:
    try:
        return _decoded(lambda cursor: resolved_values(cursor, plan), cells, origin)
    except InvalidInputError as error:
        if error.code != ErrorCode.WRONG_SCHEMA:
            raise
        shown, reader = readers.ids.text_of(number), readers.found.shown_reader(readers.ids)
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"{origin.column}: a value of schema id {shown} cannot be read by {reader}: {error.message}; name another "
            "reader (avro:reader=ID,... or reader=FILE), or read the values as bytes",
        ) from None


class _Readers:
    """Plans by schema id, which are made when an id first occurs."""

    def __init__(self, found: SchemaSet, ids: IdForm) -> None:
        assert found.reader is not None
        self.found, self.ids = found, ids
        self._reader = parse_schema(found.reader[-1], found.reader[:-1])
        self._plans: dict[int, Plan] = {}
        self.column = self._reader.column

    def plan(self, number: int, at: int, origin: Origin) -> Plan:
        """The plan of an id, which cell ``at`` has."""
        if number not in self._plans:
            texts = schema_of(self.found, "AVRO", self.ids, number, at, origin, f"avro{self.ids.suffix}:{{}}".format)
            self._plans[number] = resolve(parse_schema(texts[-1], texts[:-1]), self._reader)
        return self._plans[number]


@functools.lru_cache(maxsize=32)
def _readers(text: str, ids: IdForm) -> _Readers:
    found = set_of_text(text)
    assert found is not None
    return _Readers(found, ids)
