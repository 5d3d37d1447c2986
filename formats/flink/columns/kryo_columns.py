"""Columns of objects of Kryo, which tell their own classes: in the one type that all of them have, or as JSON.

A type is found by `type_of` for some values and by `common` for more of them; JSON is text. Values in it: numbers as
they are, and texts for all others but lists and maps. A map is an object if all of its keys are texts, else a list of
``{"key": ..., "value": ...}``. What is no number of JSON is a text, as NaN is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, ends_of
from statestore.formats.flink.columns.faults import Beyond, Wrong
from statestore.formats.flink.columns.java_texts import scaled_texts, whole_texts
from statestore.formats.flink.columns.kryo_tapes import Tape
from statestore.formats.flink.columns.spreading import spread
from statestore.formats.flink.columns.text_columns import modified_text_column, text_of_units
from statestore.formats.flink.columns.time_columns import days_of_dates, micros_of_millis, nanos_of
from statestore.formats.flink.layouts.kryo_classes import CONSTANTS, Enums
from statestore.formats.kernels import kryo_forms as forms
from statestore.formats.kernels.arrays import Bools, Ints

JSON = pa.large_string()
"""The type of values that have no common type. No column has it: that of such values is string.

A map is a struct of its key and item here, as the type of the keys may not be known.
"""

_MICROS, _NANOS, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC"), pa.timestamp("ns")
WHOLE = {forms.BYTE: pa.int8(), forms.SHORT_FORM: pa.int16(), forms.INT: pa.int32(), forms.LONG: pa.int64()}
TEXTS = (forms.TEXT, forms.UTF_TEXT, forms.EMPTY_TEXT)
MILLIS = (forms.MILLIS, forms.SQL_DATE, forms.SQL_TIME)
_LEAVES: Mapping[int, pa.DataType] = {
    **WHOLE,
    **dict.fromkeys(
        (*TEXTS, forms.CHAR, forms.UUID, forms.CONSTANT, forms.BIG_INTEGER, forms.BIG_DECIMAL), pa.string()
    ),
    **dict.fromkeys(MILLIS, _MICROS),
    forms.BOOL: pa.bool_(),
    forms.FLOAT: pa.float32(),
    forms.DOUBLE: pa.float64(),
    forms.BYTES: pa.binary(),
    forms.TIMESTAMP: _NANOS,
    forms.INSTANT: _NANOS,
    forms.LOCAL_DATE: pa.date32(),
    forms.LOCAL_TIME: pa.time64("ns"),
    forms.LOCAL_DATE_TIME: _LOCAL,
    forms.DURATION: pa.duration("ns"),
}
_IS_TEXT = np.isin(np.arange(forms.MOST_TAGS), TEXTS)
_MOST_BYTES = 2**31 - 1  # of one string array
_SECONDS_OF_NANOS = 9_223_372_035
_MILLIS_OF_MICROS = 2**63 // 1000 - 1
_DAY_NANOS = 86_400_000_000_000


def type_of(tape: Tape) -> pa.DataType:
    """The type of the values of a tape: null where none says it, `JSON` where they differ."""
    return _type_of(tape, tape.roots)


def common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type of values of two types: as `type_of`."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return pa.int64()
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _list(common(one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _map(*(common(one.field(n).type, other.field(n).type) for n in ("key", "item")))
    return JSON


def shown_type(found: pa.DataType) -> pa.DataType:
    """The type of the column for a type that was found: string where no value says it."""
    if pa.types.is_null(found) or found == JSON:
        return pa.string()
    if pa.types.is_list(found):
        return pa.list_(shown_type(found.value_type))
    if pa.types.is_struct(found):
        return pa.map_(shown_type(found.field("key").type), shown_type(found.field("item").type))
    return found


def column_of(tape: Tape, column: pa.DataType) -> pa.Array:
    """The values of a tape in a type that is no `JSON`. Raises Wrong for values of another type, Beyond."""
    return _typed(tape, tape.roots, column)


def _list(element: pa.DataType) -> pa.DataType:
    return JSON if element == JSON else pa.list_(element)


def _map(key: pa.DataType, item: pa.DataType) -> pa.DataType:
    return JSON if JSON in (key, item) else pa.struct({"key": key, "item": item})  # a key of a map is not of type null


def kinds_of(tags: Ints) -> list[int]:
    """The tags that there are, in order."""
    found: list[int] = np.flatnonzero(np.bincount(tags, minlength=1)).tolist()
    return found


def _type_of(tape: Tape, rows: Ints) -> pa.DataType:
    tags = tape.tag[rows]
    kinds = [kind for kind in kinds_of(tags) if kind != forms.NULL]
    if not kinds:
        return pa.null()
    if kinds == [forms.LIST]:
        return _list(_type_of(tape, tape.children(rows[tags == forms.LIST])[0]))
    if kinds == [forms.MAP]:
        inner, _ = tape.children(rows[tags == forms.MAP])
        if (tape.tag[inner[0::2]] == forms.NULL).any():
            return JSON  # a map of Arrow has no key that is null
        return _map(_type_of(tape, inner[0::2]), _type_of(tape, inner[1::2]))
    if all(kind in WHOLE for kind in kinds):
        return WHOLE[kinds[0]] if len(kinds) == 1 else pa.int64()
    if all(kind in TEXTS for kind in kinds):
        return pa.string()
    if len(kinds) > 1 or kinds[0] not in _LEAVES:
        return JSON
    return JSON if _beyond(tape, rows[tags == kinds[0]], kinds[0]) else _LEAVES[kinds[0]]


def _beyond(tape: Tape, rows: Ints, kind: int) -> bool:
    """Whether a time does not fit its column."""
    value = tape.value[rows]
    if kind in MILLIS:
        return bool((np.abs(value) >= _MILLIS_OF_MICROS).any())
    if kind == forms.TIMESTAMP:
        return bool((np.abs(value // 1000) >= _SECONDS_OF_NANOS).any())
    if kind in (forms.INSTANT, forms.DURATION):
        return bool((np.abs(value) >= _SECONDS_OF_NANOS).any())
    if kind == forms.LOCAL_DATE_TIME:
        return bool((np.abs(days(value)) >= _SECONDS_OF_NANOS // 86400).any())
    return False


def days(packed: Ints) -> Ints:
    return days_of_dates(packed >> 9, packed >> 5 & 15, packed & 31)


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
    if pa.types.is_integer(column):
        return _integers(tape, rows, tags, column)
    if column == pa.string():
        return _strings(tape, rows, tags)
    kinds = [kind for kind, found in _LEAVES.items() if found == column]
    _check(np.isin(tags, kinds), "a value of another class", column)
    found = MADE[int(tags[0])](tape, rows)
    return found if found.type == column else found.view(column)


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


def plain_texts(tape: Tape, rows: Ints) -> pa.Array:
    """Strings. The last byte of one in ASCII has a bit more, which marks its end."""
    cells = Cells(tape.data, tape.value[rows], tape.more[rows])
    octets, offsets = cells.content()
    if not octets.flags.owndata:
        octets = octets.copy()
    ascii_ends = offsets[1:][tape.tag[rows] == forms.TEXT] - 1
    octets[ascii_ends] &= 0x7F
    if len(octets) and octets.max() < 0x80 and len(octets) <= _MOST_BYTES:
        ends = pa.py_buffer(offsets.astype(np.int32))
        return pa.Array.from_buffers(pa.string(), len(rows), [None, ends, pa.py_buffer(octets)])
    return modified_text_column(Cells(octets, offsets[:-1], np.diff(offsets)))


def _characters(tape: Tape, rows: Ints) -> pa.Array:
    return text_of_units(tape.value[rows] & 0xFFFF, np.arange(len(rows) + 1))


def _uuids(tape: Tape, rows: Ints) -> pa.Array:
    halves = np.stack([tape.value[rows], tape.more[rows]], axis=1).astype(">i8")
    digits = hex_digits(halves.view(np.uint8).reshape(len(rows), 16))
    text = np.full((len(rows), 36), ord("-"), np.uint8)
    for begin, end, place in ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24)):
        text[:, place : place + end - begin] = digits[:, begin:end]
    ends = np.arange(0, 36 * (len(rows) + 1), 36, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(text.reshape(-1))])


def hex_digits(octets: np.ndarray) -> np.ndarray:
    """Return the two digits of each byte, one behind the other in the last dimension."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    return np.stack([digits[octets >> 4], digits[octets & 15]], axis=-1).reshape(*octets.shape[:-1], -1)


def _constants(tape: Tape, rows: Ints) -> pa.Array:
    every = (*CONSTANTS, *(constants for _, constants in tape.enums))
    counts: Ints = np.array([len(each) for each in every])
    which, place = tape.more[rows], tape.value[rows]
    wrong = np.flatnonzero(place >= counts[which])
    if len(wrong):
        raise _no_constant(tape.enums, int(which[wrong[0]]) - len(CONSTANTS), int(place[wrong[0]]))
    names = pa.array([name for each in every for name in each])
    return names.take(pa.array(ends_of(counts)[which] + place))


def _no_constant(enums: Enums, number: int, place: int) -> Wrong:
    if number < 0:
        return Wrong("a number that no constant of an enum has", "one of its constants")
    name, constants = enums[number]
    return Wrong(
        f"constant {place + 1} of enum {name}", f"at most {len(constants)}, as so many are declared for class {name}"
    )


def _big_integers(tape: Tape, rows: Ints) -> pa.Array:
    return whole_texts(tape.data, tape.value[rows], tape.more[rows])


def _big_decimals(tape: Tape, rows: Ints) -> pa.Array:
    more = tape.more[rows]
    return scaled_texts(tape.data, tape.value[rows], more & 0xFFFFFF, more >> 24)


def _moments(tape: Tape, rows: Ints) -> pa.Array:
    return micros_of_millis(tape.value[rows])


def _timestamps(tape: Tape, rows: Ints) -> pa.Array:
    return nanos_of(tape.value[rows] // 1000, tape.more[rows], np.zeros(len(rows), bool), _NANOS)


def _instants(tape: Tape, rows: Ints) -> pa.Array:
    return nanos_of(tape.value[rows], tape.more[rows], np.zeros(len(rows), bool), _NANOS)


def _durations(tape: Tape, rows: Ints) -> pa.Array:
    return _instants(tape, rows).view(pa.int64()).view(pa.duration("ns"))


def _dates(tape: Tape, rows: Ints) -> pa.Array:
    return pa.array(days(tape.value[rows]).astype(np.int32)).view(pa.date32())


def _clock_times(tape: Tape, rows: Ints) -> pa.Array:
    return pa.array(tape.more[rows]).view(pa.time64("ns"))


def _date_times(tape: Tape, rows: Ints) -> pa.Array:
    found = days(tape.value[rows])
    if (np.abs(found) >= _SECONDS_OF_NANOS // 86400).any():
        raise Beyond("a time beyond 1677 to 2262", "timestamp_ntz")
    return pa.array(found * _DAY_NANOS + tape.more[rows]).view(_LOCAL)


def binary(tape: Tape, rows: Ints) -> pa.Array:
    return Cells(tape.data, tape.value[rows], tape.more[rows]).binary()


def _booleans(tape: Tape, rows: Ints) -> pa.Array:
    return pa.array(tape.value[rows] != 0)


def _floats(tape: Tape, rows: Ints) -> pa.Array:
    return pa.array(tape.value[rows].astype(np.int32).view(np.float32))


def _doubles(tape: Tape, rows: Ints) -> pa.Array:
    return pa.array(np.ascontiguousarray(tape.value[rows]).view(np.float64))


_Maker = Callable[[Tape, Ints], pa.Array]
MADE: Mapping[int, _Maker] = {
    **dict.fromkeys(MILLIS, _moments),
    forms.BOOL: _booleans,
    forms.FLOAT: _floats,
    forms.DOUBLE: _doubles,
    forms.BYTES: binary,
    forms.TIMESTAMP: _timestamps,
    forms.INSTANT: _instants,
    forms.LOCAL_DATE: _dates,
    forms.LOCAL_TIME: _clock_times,
    forms.LOCAL_DATE_TIME: _date_times,
    forms.DURATION: _durations,
}
TEXTS_OF: Mapping[int, _Maker] = {
    forms.CHAR: _characters,
    forms.UUID: _uuids,
    forms.CONSTANT: _constants,
    forms.BIG_INTEGER: _big_integers,
    forms.BIG_DECIMAL: _big_decimals,
}
