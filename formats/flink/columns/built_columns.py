"""Columns from the places of values: lists, maps, structs and nulls around the leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, ends_of, gather
from statestore.formats.flink.columns.binary_rows import Decode, binary_column
from statestore.formats.flink.columns.faults import Beyond, Opacity
from statestore.formats.flink.columns.java_texts import number_texts
from statestore.formats.flink.columns.kryo_columns import column_of
from statestore.formats.flink.columns.kryo_json import json_of
from statestore.formats.flink.columns.kryo_lazy import without_lazy
from statestore.formats.flink.columns.kryo_survey import note_type
from statestore.formats.flink.columns.kryo_tapes import Tape, forms_of, tape_of
from statestore.formats.flink.columns.kryo_thrown import is_thrown, thrown
from statestore.formats.flink.columns.kryo_zoned import with_texts
from statestore.formats.flink.columns.leaf_columns import fixed_column, sized_column
from statestore.formats.flink.columns.program_writer import Place
from statestore.formats.flink.columns.spreading import spread
from statestore.formats.flink.columns.text_columns import text_column
from statestore.formats.flink.columns.variant_texts import variant_of_serializer
from statestore.formats.flink.layouts.kryo_classes import enums_of
from statestore.formats.flink.layouts.shapes import (
    Again,
    BigNumber,
    Branches,
    Cast,
    Fixed,
    Framed,
    KryoValue,
    Masked,
    Nulls,
    Optional,
    Repeated,
    Rest,
    Routines,
    Sized,
    Span,
    Struct,
    Text,
)
from statestore.formats.flink.serializers.declared import JSON
from statestore.formats.flink.serializers.flink_types import KryoOf
from statestore.formats.kernels.arrays import Bools, Bytes, Ints


@dataclass(frozen=True)
class Places:
    """The places that a walk over ``data`` found: ``rows[i]`` is row i of its program.

    ``decode`` reads cells within the values. ``tape`` has the objects of Kryo that the walk wrote down, of all parts of
    the program.
    """

    data: Bytes
    rows: Sequence[Ints]
    decode: Decode
    tape: Tape | None = None


def build(places: Places, place: Place, count: int) -> pa.Array:
    """The column of ``count`` values. Raises Wrong for bytes that no value has, Beyond for values beyond the column.

    Values inside of nulls and empty lists have no places, so each level is built densely and spread by its parent.
    """
    shape, rows, row = place.shape, places.rows, place.row
    column = shape.column
    if isinstance(shape, Fixed):
        return fixed_column(places.data, rows[row] + place.delta, shape)
    if isinstance(shape, Text):
        return text_column(places.data, rows[row], rows[row + 1], rows[row + 2])
    if isinstance(shape, Sized) and shape.logical is not None:
        return binary_column(Cells(places.data, rows[row], rows[row + 1]), shape.logical, shape.form, places.decode)
    if isinstance(shape, Sized) and shape.form == "variant":
        return variant_of_serializer(places.data, rows[row], rows[row + 1])
    if isinstance(shape, Sized):
        return sized_column(places.data, rows[row], rows[row + 1], shape)
    if isinstance(shape, BigNumber):
        return number_texts(places.data, rows[row], rows[row + 1], shape.scaled)
    if isinstance(shape, (Rest, Again, Span)):
        return Cells(places.data, rows[row], rows[row + 1]).binary()
    if isinstance(shape, Optional):
        present = rows[row] != 0
        return spread(_part(places, place, 0, int(present.sum())), present)
    if isinstance(shape, Repeated):
        return _repeated(places, place, rows[row])
    if isinstance(shape, Struct):
        order = shape.order or range(len(shape.parts))
        parts = [build(places, part, count) for part in (place.parts[each] for each in order) if part is not None]
        return struct_array(parts, column, count)
    if isinstance(shape, Nulls):
        return pa.nulls(count)
    if isinstance(shape, KryoValue):
        return _objects(places, shape, row)
    if isinstance(shape, (Routines, Framed)):
        return _part(places, place, 0, count)
    if isinstance(shape, Cast):
        values = _part(places, place, 0, count)
        try:
            return values.cast(column)
        except pa.ArrowInvalid as error:
            raise Beyond(str(error), str(column)) from None
    if isinstance(shape, Masked):
        return _masked(places, place, count)
    assert isinstance(shape, Branches)
    return _branches(places, place, count)


def struct_array(parts: list[pa.Array], column: pa.StructType, count: int, mask: Bools | None = None) -> pa.Array:
    """A column of structs, null where ``mask``."""
    if not parts:
        validity = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
        return pa.Array.from_buffers(column, count, [validity])
    missing = None if mask is None or not mask.any() else pa.array(mask)
    return pa.StructArray.from_arrays(parts, fields=list(column), mask=missing)


def _objects(places: Places, shape: KryoValue, row: int) -> pa.Array:
    """Objects of Kryo, whose ends are known."""
    kind, (start, size, roots) = shape.kind, places.rows[row : row + 3]
    if is_thrown(kind):
        return _thrown(places, kind, start, size)
    try:
        if places.tape is not None and (roots >= 0).all():
            tape = places.tape.values(roots)
        else:
            tape = tape_of(forms_of(kind), places.data, start, size)
        tape = replace(tape, enums=enums_of(kind.classes), objects=forms_of(kind).objects)
        tape = without_lazy(with_texts(tape, kind.is_old))
    except Opacity:
        raise Beyond("an object of Kryo within itself", "a column", "type binary for the values") from None
    if kind.place >= 0:
        note_type(kind, tape)
        return pa.repeat(pa.scalar("", shape.column), len(tape.roots))  # keys of maps cannot be null
    return json_of(tape) if kind.column in (None, JSON) else column_of(tape, shape.column)


def _thrown(places: Places, kind: KryoOf, start: Ints, size: Ints) -> pa.Array:
    """Return what was thrown, as text."""
    data = places.data.data
    found = [thrown(data, at, at + length) for at, length in zip(start.tolist(), size.tolist(), strict=True)]
    if any(each is None for each in found):
        raise Beyond("an object that was not thrown", "text")
    return pa.array([None if each is None else each[0] for each in found], pa.string())


def _part(places: Places, place: Place, number: int, count: int) -> pa.Array:
    part = place.parts[number]
    assert part is not None
    return build(places, part, count)


def _repeated(places: Places, place: Place, counts: Ints) -> pa.Array:
    offsets = ends_of(counts)
    shape = place.shape
    if isinstance(shape, Repeated) and shape.framing == "masked":
        entry = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        octet = gather(places.data, np.repeat(places.rows[place.row + 1], counts) + (entry >> 3), "u1")
        present = (octet >> (7 - (entry & 7)).astype(np.uint8)) & 1 == 0
        values = spread(_part(places, place, 0, int(present.sum())), present)
    else:
        values = _part(places, place, 0, int(offsets[-1]))
    if pa.types.is_map(place.shape.column) and values.field(0).null_count > 0:
        raise Beyond("a key that is null", str(place.shape.column), "type binary for the values")
    ends = pa.py_buffer(offsets.astype(np.int32))  # fewer than 2**31 places fit into a batch
    return pa.Array.from_buffers(place.shape.column, len(counts), [None, ends], children=[values])


def _masked(places: Places, place: Place, count: int) -> pa.Array:
    shape = place.shape
    assert isinstance(shape, Masked)
    masks, parts = places.rows[place.row], []
    for number, part in enumerate(place.parts):
        if part is not None:
            bit = number + shape.first_bit
            octet = gather(places.data, masks + (bit >> 3), "u1")
            present = (octet >> (7 - (bit & 7))) & 1 == 0
            parts.append(spread(build(places, part, int(present.sum())), present))
    return struct_array(parts, shape.column, count)


def _branches(places: Places, place: Place, count: int) -> pa.Array:
    shape = place.shape
    assert isinstance(shape, Branches)
    taken = places.rows[place.row]
    if not shape.fields and shape.tag != "pojo":
        only = next(number for number, case in enumerate(shape.cases) if case is not None)
        present = taken == only
        return spread(_part(places, place, only, int(present.sum())), present)
    cases: dict[int, pa.Array] = {}
    missing = np.zeros(count, bool)
    for number, part in enumerate(place.parts):
        mine = taken == number
        if part is not None and mine.any():
            cases[number] = build(places, part, int(mine.sum()))
            if cases[number].null_count and shape.tag == "pojo":  # null of a subclass
                missing[np.flatnonzero(mine)] |= cases[number].is_null().to_numpy(zero_copy_only=False)
        elif shape.cases[number] is None:
            missing |= mine
    if shape.tag == "pojo" and len(cases) == 1 and not missing.any() and 1 in cases and len(shape.cases) == 2:
        return cases[1]
    columns: list[pa.Field] = list(shape.column or ())
    fields = [
        _from_cases(cases, wanted, taken, field.type) for wanted, field in zip(shape.fields, columns, strict=True)
    ]
    return struct_array(fields, shape.column, count, missing)


def _from_cases(
    cases: dict[int, pa.Array], wanted: tuple[tuple[int, int], ...], taken: Ints, column: pa.DataType
) -> pa.Array:
    """One field, taken from each case that has it, null in the others."""
    chunks: list[pa.Array] = []
    where, have, size = np.zeros(len(taken), np.int64), np.zeros(len(taken), bool), 0
    for number, field in wanted:
        if number in cases:
            whole = cases[number]
            chunk = whole if field < 0 else whole.flatten()[field]
            mine = taken == number
            where[mine] = np.arange(size, size + len(chunk))
            have |= mine
            size += len(chunk)
            chunks.append(chunk)
    if not chunks:
        return pa.nulls(len(taken), column)
    values = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    return values if len(chunks) == 1 and have.all() else values.take(pa.array(where, mask=~have))
