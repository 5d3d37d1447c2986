"""Columns of objects of Kryo, which tell their own classes: in the one type that all of them have, or as JSON.

A type is found by `type_of` for some values and by `common` for more of them; JSON is text. Values in it: numbers as
they are, and texts for all others but lists and maps. A map is an object if all of its keys are texts, else a list of
``{"key": ..., "value": ...}``. What is no number of JSON is a text, as NaN is.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import ends_of
from statestore.formats.flink.columns.faults import Beyond
from statestore.formats.flink.columns.kryo_json import json_of
from statestore.formats.flink.columns.kryo_leaf_columns import (
    LEAVES,
    MADE,
    TEXTS,
    TEXTS_OF,
    WHOLE,
    is_beyond,
    kinds_of,
    plain_texts,
)
from statestore.formats.flink.columns.kryo_object_types import (
    JSON,
    class_of,
    declared_type,
    is_json_field,
    list_type,
    map_type,
    object_type,
    type_of_both,
)
from statestore.formats.flink.columns.kryo_tapes import Tape
from statestore.formats.flink.columns.spreading import spread
from statestore.formats.kernels import kryo_forms as forms
from statestore.formats.kernels.arrays import Bools, Ints

_IS_TEXT = np.isin(np.arange(forms.MOST_TAGS), TEXTS)


def type_of(tape: Tape) -> pa.DataType:
    """The type of the values of a tape: null where none says it, `JSON` where they differ."""
    return _type_of(tape, tape.roots)


def column_of(tape: Tape, column: pa.DataType) -> pa.Array:
    """The values of a tape in a type that is no `JSON`. Raises Wrong for values of another type, Beyond."""
    return _typed(tape, tape.roots, column)


def _type_of(tape: Tape, rows: Ints) -> pa.DataType:
    tags = tape.tag[rows]
    kinds = [kind for kind in kinds_of(tags) if kind != forms.NULL]
    if not kinds:
        return pa.null()
    if kinds == [forms.LIST]:
        return list_type(_type_of(tape, tape.children(rows[tags == forms.LIST])[0]))
    if kinds == [forms.MAP]:
        inner, _ = tape.children(rows[tags == forms.MAP])
        if (tape.tag[inner[0::2]] == forms.NULL).any():
            return JSON  # a map of Arrow has no key that is null
        return map_type(_type_of(tape, inner[0::2]), _type_of(tape, inner[1::2]))
    if kinds == [forms.OBJECT]:
        return _type_of_objects(tape, rows[tags == forms.OBJECT])
    if all(kind in WHOLE for kind in kinds):
        return WHOLE[kinds[0]] if len(kinds) == 1 else pa.int64()
    if all(kind in TEXTS for kind in kinds):
        return pa.string()
    if len(kinds) > 1 or kinds[0] not in LEAVES:
        return JSON
    return JSON if is_beyond(tape, rows[tags == kinds[0]], kinds[0]) else LEAVES[kinds[0]]


def _type_of_objects(tape: Tape, rows: Ints) -> pa.DataType:
    """The type of objects of a job's class, whose fields have the types that are declared, or those of their values."""
    numbers = tape.value[rows]
    if (numbers != numbers[0]).any():
        return JSON
    found = tape.objects[int(numbers[0])]
    inner, _ = tape.children(rows)
    types = []
    for place in found.order:
        name, kind = found.fields[place]
        types.append((name, type_of_both(declared_type(kind), _type_of(tape, inner[place :: len(found.fields)]))))
    return object_type(found.name, types)


# Values in one type


def _typed(tape: Tape, rows: Ints, column: pa.DataType) -> pa.Array:
    tags = tape.tag[rows]
    present = tags != forms.NULL
    if not present.any():
        return pa.nulls(len(rows), column)
    if not present.all():
        return spread(_typed(tape, rows[present], column), present)
    if pa.types.is_list(column):
        _check(tags == forms.LIST, "a value that is no list", column)
        inner, counts = tape.children(rows)
        values = _typed(tape, inner, column.value_type)
        return pa.Array.from_buffers(column, len(rows), [None, _ends(counts)], children=[values])
    if pa.types.is_map(column):
        _check(tags == forms.MAP, "a value that is no map", column)
        inner, counts = tape.children(rows)
        _check(tape.tag[inner[0::2]] != forms.NULL, "a key that is null", column)
        keys, items = _typed(tape, inner[0::2], column.key_type), _typed(tape, inner[1::2], column.item_type)
        entries = pa.StructArray.from_arrays([keys, items], fields=[column.key_field, column.item_field])
        return pa.Array.from_buffers(column, len(rows), [None, _ends(counts // 2)], children=[entries])
    if pa.types.is_struct(column):
        return _objects(tape, rows, tags, column)
    if pa.types.is_integer(column):
        return _integers(tape, rows, tags, column)
    if column == pa.string():
        return _strings(tape, rows, tags)
    kinds = [kind for kind, found in LEAVES.items() if found == column]
    _check(np.isin(tags, kinds), "a value of another class", column)
    found = MADE[int(tags[0])](tape, rows)
    return found if found.type == column else found.view(column)


def _objects(tape: Tape, rows: Ints, tags: Ints, column: pa.StructType) -> pa.Array:
    _check(tags == forms.OBJECT, "a value that is no object of a class", column)
    numbers = tape.value[rows]
    found = tape.objects[int(numbers[0])]
    _check((numbers == numbers[0]) & (found.name == class_of(column)), "an object of another class", column)
    inner, _ = tape.children(rows)
    parts = []
    for field, place in zip(column, found.order, strict=True):
        values = inner[place :: len(found.fields)]
        parts.append(json_of(tape.values(values)) if is_json_field(field) else _typed(tape, values, field.type))
    return pa.StructArray.from_arrays(parts, fields=list(column))


def _ends(counts: Ints) -> pa.Buffer:
    return pa.py_buffer(ends_of(counts).astype(np.int32))


def _check(right: Bools, found: str, column: pa.DataType) -> None:
    if not right.all():
        raise Beyond(found, str(column), "type json for the values of Kryo")


def _integers(tape: Tape, rows: Ints, tags: Ints, column: pa.DataType) -> pa.Array:
    fitting = [kind for kind, found in WHOLE.items() if found.bit_width <= column.bit_width]
    _check(np.isin(tags, fitting), "a value that is no such number", column)
    return pa.array(tape.value[rows]).cast(column)


def _strings(tape: Tape, rows: Ints, tags: Ints) -> pa.Array:
    kind = int(tags[0])
    if kind in TEXTS:
        _check(_IS_TEXT[tags], "a value that is no text", pa.string())
        return plain_texts(tape, rows)
    _check((tags == kind) & (kind in (forms.CHAR, forms.UUID, forms.CONSTANT, forms.BIG_INTEGER, forms.BIG_DECIMAL)),
           "a value that is no text", pa.string())  # fmt: skip
    return TEXTS_OF[kind](tape, rows)
