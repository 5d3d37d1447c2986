"""Values behind the id of their schema, as serializers of a registry write them (`schemas.schema_ids`)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.columns.origins import Origin
from statestore.formats.kafka.schemas.given_schemas import SchemaSet, Texts
from statestore.formats.kafka.schemas.registry_requests import public_url
from statestore.formats.kafka.schemas.schema_ids import GLUE, GLUE_COMPRESSED, IdForm
from statestore.formats.kafka.schemas.schema_registry import fetch_schema
from statestore.formats.kernels.arrays import Bools, Ints

WITHOUT_ID = "values without an id, as those are whose id is in a header (__value_schema_id, apicurio.value.contentId)"
"""Words for the values of plain serdes. Sources: Confluent's ``HeaderSchemaIdSerializer``, Apicurio's headers."""
_MOST_VALUE = 64 << 20


def unframed(cells: Cells, ids: IdForm, origin: Origin, what: str, remedy: str) -> Cells:
    """The values behind ids, decompressed. No cell may be null.

    Raises CorruptError KAFKA_BYTES about the first cell without an id in front.
    """
    first = f"{ids.first:02x}"
    framed = (cells.size >= ids.end) & (cells.first_bytes() == ids.first)
    origin.refuse(cells, ~framed, f"{what} behind {first} and the id of its schema", remedy)
    values = cells.cut(ids.end)
    if ids is not GLUE or not len(cells):
        return values
    how = cells.numbers(1, "u1")
    origin.refuse(cells, (how != 0) & (how != GLUE_COMPRESSED), f"{what} behind 03 and 00 or 05", remedy)
    return _decompressed(values, how == GLUE_COMPRESSED, cells, origin, what) if how.any() else values


def _decompressed(values: Cells, packed: Bools, whole: Cells, origin: Origin, what: str) -> Cells:
    """The values with those decompressed that are packed. Each is a stream of zlib, so they are read one by one."""
    found = values.binary().to_pylist()
    total = 0
    for row in np.flatnonzero(packed).tolist():
        stream = zlib.decompressobj()
        try:
            found[row] = stream.decompress(found[row], _MOST_VALUE)
        except zlib.error:
            found[row] = b""
        total += len(found[row])
        if not stream.eof or stream.unused_data or total > 8 * _MOST_VALUE:
            wrong = np.zeros(len(whole), bool)
            wrong[row] = True
            origin.refuse(whole, wrong, f"{what} that zlib has compressed, of at most {_MOST_VALUE} bytes")
    return cells_of(pa.array(found, pa.binary()))


@dataclass(frozen=True)
class SameId:
    """Cells with one id: its number, their positions, and the first of these."""

    number: int
    rows: Ints
    first: int


def by_id(cells: Cells, ids: IdForm) -> Iterator[SameId]:
    """Yield the cells of each id in front of them; they have been accepted by `unframed`."""
    if not len(cells):
        return
    width = ids.end - ids.begin
    if width <= 8:
        found: pa.Array = pa.array(cells.numbers(ids.begin, f">i{width}").astype(np.int64))
    else:
        found = Cells(cells.data, cells.start + ids.begin, np.full(len(cells), width)).binary()
    coded = found.dictionary_encode()
    numbers = [each if isinstance(each, int) else int.from_bytes(each, "big") for each in coded.dictionary.to_pylist()]
    which = coded.indices.to_numpy()
    if len(numbers) == 1:
        yield SameId(numbers[0], np.arange(len(cells)), 0)
        return
    order = np.argsort(which, kind="stable")
    ends = np.cumsum(np.bincount(which, minlength=len(numbers)))
    for number, begin, end in zip(numbers, [0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        yield SameId(number, order[begin:end], int(order[begin]))


def schema_of(
    found: SchemaSet, kind: str, ids: IdForm, number: int, at: int, origin: Origin, name_reader: Callable[[str], str]
) -> Texts:
    """The schema of the id in front of cell ``at``; ``name_reader`` makes the serde that names a reader's id.

    Raises CorruptError KAFKA_BYTES for an id that is not given, or is above the reader's that a sample has shown.
    """
    if number in found.schemas:
        return found.schemas[number]
    if found.registry is None or number < 0:
        known = ids.texts_of(found.schemas) or "of a registry"
        shown = ids.text_of(number) if number >= 0 else str(number)
        raise origin.error(at, f"schema id {shown}", f"schema id {known}", "give the schema of this id, too")
    if not found.named and found.reader_id is not None and number > found.reader_id and kind != "JSON":
        raise origin.error(
            at,
            f"schema id {number}",
            f"no id above {found.reader_id}, the highest one in a sample, whose schema is the reader's",
            f"name the reader: {name_reader(f'reader={number},{public_url(found.registry)}')}",
        )
    return fetch_schema(found.registry, number, kind, ids)


def refuse_unread(cells: Cells, origin: Origin, found: SchemaSet, prefix: str, message: str = "") -> pa.Array:
    """Raise InvalidInputError WRONG_SCHEMA where there are values, and no schema or message to read them by."""
    if len(cells):
        place = public_url(found.registry) if found.registry else "the schemas"
        example = f"{prefix}:reader=6,{place if found.registry else 'FOLDER'}{message}"
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"{origin.column}: no sampled row named a schema id of {place}, so no reader's schema is known; name it by "
            f"its id, such as {example}, or name {prefix.partition('-')[0]}-plain:... for {WITHOUT_ID}",
        )
    return pa.array([], pa.binary())
