"""Columns as Protobuf messages: what `protobuf_columns` decodes, encoded.

Fields are written in the order of their numbers, lists of numbers packed where their schema says so, and defaults that
a field without presence has are left out, as Protobuf's own serializers do. Fields that the schema does not name are
not in the columns, so they cannot come back.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.byte_parts import (
    Part,
    cells_of_groups,
    joined_parts,
    number_cells,
    spread_cells,
    varint_cells,
    zig_zag_cells,
)
from statestore.formats.bytes.field_reader import varint_bytes
from statestore.formats.kafka.columns.value_parts import (
    entries_of,
    of_some,
    presence,
    refuse_null,
    unscaled_numbers,
    wrong_value,
)
from statestore.formats.kafka.schemas.protobuf_schema import BYTES, ProtoField, ProtoMessage
from statestore.formats.kernels.arrays import Bools

_FIXED = {"double": "<f8", "float": "<f4", "fixed32": "<u4", "sfixed32": "<i4", "sfixed64": "<i8"}
_UNSIGNED = {"uint32": 1 << 32, "fixed32": 1 << 32}


def protobuf_cells(message: ProtoMessage, column: pa.Array, where: str) -> Cells:
    """The messages of a column without nulls. Raises InvalidInputError WRONG_VALUE for what the schema has not."""
    return joined_parts(_parts(message, column, where), len(column))


def _parts(message: ProtoMessage, column: pa.Array, where: str, *, is_entry: bool = False) -> list[Part]:
    refuse_null(column, where)
    places = {field.number: place for place, field in enumerate(message.fields)}
    parts: list[Part] = []
    for field in sorted(message.fields, key=lambda each: each.number):
        values, at = column.field(places[field.number]), f"{where}.{field.name}"
        if field.shape == "one":
            parts.append(of_some(values, _written(field, values, at, is_entry=is_entry), _tagged(field, at)))
        else:
            refuse_null(values, at)
            parts.append(_repeated(field, values, at))
    _check_oneofs(message, column, where)
    return parts


def _written(field: ProtoField, values: pa.Array, where: str, *, is_entry: bool) -> Bools:
    """Return where a field is written: where it is there, or has not the default that its absence means."""
    has = presence(values)
    if field.has_presence:
        return has
    refuse_null(values, where)
    if is_entry:
        return has
    if field.form in ("string", "bytes"):
        return cells_of(values).size > 0
    if field.form == "enum":
        return np.asarray(_enums(field, values, where) != 0)
    if pa.types.is_decimal(values.type):
        return np.asarray(unscaled_numbers(values).any(axis=1))
    if field.form == "message":
        return has
    numbers = values.cast(pa.uint8()) if field.form == "bool" else values
    found = numbers.to_numpy(zero_copy_only=False)
    return np.asarray(found.view(f"u{found.itemsize}") != 0)  # -0.0 is no default


def _check_oneofs(message: ProtoMessage, column: pa.Array, where: str) -> None:
    for group in {field.oneof for field in message.fields if field.oneof is not None}:
        members = [place for place, field in enumerate(message.fields) if field.oneof == group]
        present = np.sum([presence(column.field(place)) for place in members], axis=0)
        if (present > 1).any():
            names = ", ".join(message.fields[place].name for place in members)
            raise wrong_value(where, "several members of a oneof", f"at most one of {names} that is not null")


def _tagged(field: ProtoField, where: str) -> Callable[[pa.Array], list[Part]]:
    """The writer of the values of a field, each behind its tag."""
    tag = varint_bytes(field.number << 3 | field.wire)
    return lambda values: [tag, *_values(field, values, where)]


def _values(field: ProtoField, values: pa.Array, where: str) -> list[Part]:
    """Values behind their tags, none null."""
    refuse_null(values, where)
    if field.form == "message" and field.message is not None:
        is_entry = field.shape == "map"
        return _sized(joined_parts(_parts(field.message, values, where, is_entry=is_entry), len(values)))
    if field.wire == BYTES:
        return _sized(cells_of(values))
    return [_numbers(field, values, where)]


def _sized(cells: Cells) -> list[Part]:
    return [varint_cells(cells.size.astype(np.uint64)), cells]


def _repeated(field: ProtoField, column: pa.Array, where: str) -> Cells:
    offsets, first = entries_of(column)
    count = int(offsets[-1])
    if field.shape == "map":
        assert field.message is not None
        both = [column.keys.slice(first, count), column.items.slice(first, count)]
        values: pa.Array = pa.StructArray.from_arrays(both, fields=list(field.message.column))
    else:
        values = column.values.slice(first, count)
    if not field.packed:
        return cells_of_groups(joined_parts(_tagged(field, where)(values), count), offsets)
    packed = cells_of_groups(joined_parts(_values(field, values, where), count), offsets)
    has = np.diff(offsets) > 0
    some = packed.select(has)
    tag = varint_bytes(field.number << 3 | BYTES)
    return spread_cells(joined_parts([tag, *_sized(some)], len(some)), ~has)


def _numbers(field: ProtoField, values: pa.Array, where: str) -> Cells:
    form = field.form
    if form == "enum":
        return varint_cells(_enums(field, values, where).view(np.uint64))
    if pa.types.is_decimal(values.type):
        digits = unscaled_numbers(values)
        if digits[:, :8].any():
            raise wrong_value(where, "a number that does not fit", "0 to 18446744073709551615")
        words = digits[:, 8:].copy().view(">u8")[:, 0] if len(digits) else np.empty(0, np.uint64)
        return number_cells(words.astype("<u8")) if form == "fixed64" else varint_cells(words.astype(np.uint64))
    found = (values.cast(pa.uint8()) if form == "bool" else values).to_numpy(zero_copy_only=False)
    if form in _UNSIGNED and ((found < 0) | (found >= _UNSIGNED[form])).any():
        raise wrong_value(where, "a number that does not fit", f"0 to {_UNSIGNED[form] - 1}")
    if form in _FIXED:
        return number_cells(found.astype(_FIXED[form]))
    wide = found.astype(np.int64)
    return zig_zag_cells(wide) if form.startswith("sint") else varint_cells(wide.view(np.uint64))


def _enums(field: ProtoField, values: pa.Array, where: str) -> npt.NDArray[np.int64]:
    """The numbers of names; a name that is a number stands for a number without a name."""
    numbers = {name: number for number, name in reversed(list(field.symbols.items()))}
    distinct = pc.unique(values).to_pylist()
    found = [numbers.get(each, _number(each)) for each in distinct]
    if None in found:
        wrong = distinct[found.index(None)]
        raise wrong_value(where, wrong, f"one of {', '.join(numbers)}")
    places = pc.index_in(values, value_set=pa.array(distinct, pa.string())).to_numpy(zero_copy_only=False)
    numbered: npt.NDArray[np.int64] = np.array(found, np.int64)[places]
    return numbered


def _number(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isdecimal() and digits.isascii() and -(1 << 31) <= int(text) < 1 << 31 else None
