"""Columns of objects of Kryo, which tell their own classes: in the one type that all of them have, or as JSON.

A type is found by `type_of` for some values and by `common` for more of them; JSON is text. Values in it: numbers as
they are, and texts for all others but lists and maps. A map is an object if all of its keys are texts, else a list of
``{"key": ..., "value": ...}``. What is no number of JSON is a text, as NaN is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, ends_of
from statestore.formats.flink.columns.faults import Beyond, Wrong
from statestore.formats.flink.columns.java_texts import date_text, instant_text, scaled_texts, time_text, whole_texts
from statestore.formats.flink.columns.kryo_tapes import Tape
from statestore.formats.flink.columns.spreading import spread
from statestore.formats.flink.columns.text_columns import modified_text_column, text_of_units
from statestore.formats.flink.columns.time_columns import days_of_dates, micros_of_millis, nanos_of
from statestore.formats.flink.layouts.kryo_classes import CONSTANTS
from statestore.formats.kernels import kryo_forms as forms
from statestore.formats.kernels.arrays import Bools, Ints

JSON = pa.large_string()
"""The type of values that have no common type. No column has it: that of such values is string.

A map is a struct of its key and item here, as the type of the keys may not be known.
"""

_MICROS, _NANOS, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC"), pa.timestamp("ns")
_WHOLE = {forms.BYTE: pa.int8(), forms.SHORT_FORM: pa.int16(), forms.INT: pa.int32(), forms.LONG: pa.int64()}
_TEXTS = (forms.TEXT, forms.UTF_TEXT, forms.EMPTY_TEXT)
_MILLIS = (forms.MILLIS, forms.SQL_DATE, forms.SQL_TIME)
_LEAVES: Mapping[int, pa.DataType] = {
    **_WHOLE,
    **dict.fromkeys(
        (*_TEXTS, forms.CHAR, forms.UUID, forms.CONSTANT, forms.BIG_INTEGER, forms.BIG_DECIMAL), pa.string()
    ),
    **dict.fromkeys(_MILLIS, _MICROS),
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
_NAMES = (*_TEXTS, forms.CHAR, forms.UUID, forms.CONSTANT)
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


def _type_of(tape: Tape, rows: Ints) -> pa.DataType:
    tags = tape.tag[rows]
    kinds = [kind for kind in np.unique(tags).tolist() if kind != forms.NULL]
    if not kinds:
        return pa.null()
    if kinds == [forms.LIST]:
        return _list(_type_of(tape, tape.children(rows[tags == forms.LIST])[0]))
    if kinds == [forms.MAP]:
        inner, _ = tape.children(rows[tags == forms.MAP])
        if (tape.tag[inner[0::2]] == forms.NULL).any():
            return JSON  # a map of Arrow has no key that is null
        return _map(_type_of(tape, inner[0::2]), _type_of(tape, inner[1::2]))
    if all(kind in _WHOLE for kind in kinds):
        return _WHOLE[kinds[0]] if len(kinds) == 1 else pa.int64()
    if all(kind in _TEXTS for kind in kinds):
        return pa.string()
    if len(kinds) > 1 or kinds[0] not in _LEAVES:
        return JSON
    return JSON if _beyond(tape, rows[tags == kinds[0]], kinds[0]) else _LEAVES[kinds[0]]


def _beyond(tape: Tape, rows: Ints, kind: int) -> bool:
    """Whether a time does not fit its column."""
    value = tape.value[rows]
    if kind in _MILLIS:
        return bool((np.abs(value) >= _MILLIS_OF_MICROS).any())
    if kind == forms.TIMESTAMP:
        return bool((np.abs(value // 1000) >= _SECONDS_OF_NANOS).any())
    if kind in (forms.INSTANT, forms.DURATION):
        return bool((np.abs(value) >= _SECONDS_OF_NANOS).any())
    if kind == forms.LOCAL_DATE_TIME:
        return bool((np.abs(_days(value)) >= _SECONDS_OF_NANOS // 86400).any())
    return False


def _days(packed: Ints) -> Ints:
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
    found = _MADE[int(tags[0])](tape, rows)
    return found if found.type == column else found.view(column)


def _ends(counts: Ints) -> pa.Buffer:
    return pa.py_buffer(ends_of(counts).astype(np.int32))


def _check(right: Bools, found: str, column: pa.DataType) -> None:
    if not right.all():
        raise Beyond(found, str(column), "type json for the values of Kryo")


def _integers(tape: Tape, rows: Ints, tags: Ints, column: pa.DataType) -> pa.Array:
    fitting = [kind for kind, found in _WHOLE.items() if found.bit_width <= column.bit_width]
    _check(np.isin(tags, fitting), "a value that is no such number", column)
    return pa.array(tape.value[rows]).cast(column)


def _strings(tape: Tape, rows: Ints, tags: Ints) -> pa.Array:
    kind = int(tags[0])
    if kind in _TEXTS:
        _check(np.isin(tags, _TEXTS), "a value that is no text", pa.string())
        return _plain_texts(tape, rows)
    _check((tags == kind) & (kind in (forms.CHAR, forms.UUID, forms.CONSTANT, forms.BIG_INTEGER, forms.BIG_DECIMAL)),
           "a value that is no text", pa.string())  # fmt: skip
    return _TEXTS_OF[kind](tape, rows)


def _plain_texts(tape: Tape, rows: Ints) -> pa.Array:
    """Strings. The last byte of one in ASCII has a bit more, which marks its end."""
    cells = Cells(tape.data, tape.value[rows], tape.more[rows])
    octets, offsets = cells.content()
    octets = octets.copy()
    ascii_ends = offsets[1:][tape.tag[rows] == forms.TEXT] - 1
    octets[ascii_ends] &= 0x7F
    return modified_text_column(Cells(octets, offsets[:-1], np.diff(offsets)))


def _characters(tape: Tape, rows: Ints) -> pa.Array:
    return text_of_units(tape.value[rows] & 0xFFFF, np.arange(len(rows) + 1))


def _uuids(tape: Tape, rows: Ints) -> pa.Array:
    halves = np.stack([tape.value[rows], tape.more[rows]], axis=1).astype(">i8")
    digits = _hex(halves.view(np.uint8).reshape(len(rows), 16))
    text = np.full((len(rows), 36), ord("-"), np.uint8)
    for begin, end, place in ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24)):
        text[:, place : place + end - begin] = digits[:, begin:end]
    ends = np.arange(0, 36 * (len(rows) + 1), 36, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(text.reshape(-1))])


def _hex(octets: np.ndarray) -> np.ndarray:
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    return np.stack([digits[octets >> 4], digits[octets & 15]], axis=-1).reshape(*octets.shape[:-1], -1)


def _constants(tape: Tape, rows: Ints) -> pa.Array:
    names: list[str] = []
    first = np.zeros(len(CONSTANTS) + 1, np.int64)
    for number, constants in enumerate(CONSTANTS):
        names += constants
        first[number + 1] = len(names)
    which = tape.more[rows]
    place = tape.value[rows]
    if (place >= (first[1:] - first[:-1])[which]).any():
        raise Wrong("a number that no constant of an enum has", "one of its constants")
    return pa.array(names).take(pa.array(first[which] + place))


def _big_integers(tape: Tape, rows: Ints) -> pa.Array:
    return pa.array(whole_texts(tape.data, tape.value[rows], tape.more[rows]), pa.string())


def _big_decimals(tape: Tape, rows: Ints) -> pa.Array:
    more = tape.more[rows]
    digits = whole_texts(tape.data, tape.value[rows], more & 0xFFFFFF)
    return pa.array(scaled_texts(digits, (more >> 24).tolist()), pa.string())


def _moments(tape: Tape, rows: Ints) -> pa.Array:
    return micros_of_millis(tape.value[rows])


def _timestamps(tape: Tape, rows: Ints) -> pa.Array:
    return nanos_of(tape.value[rows] // 1000, tape.more[rows], np.zeros(len(rows), bool), _NANOS)


def _instants(tape: Tape, rows: Ints) -> pa.Array:
    return nanos_of(tape.value[rows], tape.more[rows], np.zeros(len(rows), bool), _NANOS)


def _durations(tape: Tape, rows: Ints) -> pa.Array:
    return _instants(tape, rows).view(pa.int64()).view(pa.duration("ns"))


def _dates(tape: Tape, rows: Ints) -> pa.Array:
    return pa.array(_days(tape.value[rows]).astype(np.int32)).view(pa.date32())


def _clock_times(tape: Tape, rows: Ints) -> pa.Array:
    return pa.array(tape.more[rows]).view(pa.time64("ns"))


def _date_times(tape: Tape, rows: Ints) -> pa.Array:
    days = _days(tape.value[rows])
    if (np.abs(days) >= _SECONDS_OF_NANOS // 86400).any():
        raise Beyond("a time beyond 1677 to 2262", "timestamp_ntz")
    return pa.array(days * _DAY_NANOS + tape.more[rows]).view(_LOCAL)


def _binary(tape: Tape, rows: Ints) -> pa.Array:
    return Cells(tape.data, tape.value[rows], tape.more[rows]).binary()


def _booleans(tape: Tape, rows: Ints) -> pa.Array:
    return pa.array(tape.value[rows] != 0)


def _floats(tape: Tape, rows: Ints) -> pa.Array:
    return pa.array(tape.value[rows].astype(np.int32).view(np.float32))


def _doubles(tape: Tape, rows: Ints) -> pa.Array:
    return pa.array(np.ascontiguousarray(tape.value[rows]).view(np.float64))


_Maker = Callable[[Tape, Ints], pa.Array]
_MADE: Mapping[int, _Maker] = {
    **dict.fromkeys(_MILLIS, _moments),
    forms.BOOL: _booleans,
    forms.FLOAT: _floats,
    forms.DOUBLE: _doubles,
    forms.BYTES: _binary,
    forms.TIMESTAMP: _timestamps,
    forms.INSTANT: _instants,
    forms.LOCAL_DATE: _dates,
    forms.LOCAL_TIME: _clock_times,
    forms.LOCAL_DATE_TIME: _date_times,
    forms.DURATION: _durations,
}
_TEXTS_OF: Mapping[int, _Maker] = {
    forms.CHAR: _characters,
    forms.UUID: _uuids,
    forms.CONSTANT: _constants,
    forms.BIG_INTEGER: _big_integers,
    forms.BIG_DECIMAL: _big_decimals,
}


# Values as JSON


def json_of(tape: Tape) -> pa.Array:
    """The values of a tape as texts of JSON; a value that is null is null."""
    count = len(tape.tag)
    texts: list[pa.Array] = [pa.array(["null", "[", "]", "{", "}", ",", ":", '{"key":', ',"value":', ""])]
    null, open_list, close_list, open_map, close_map, comma, colon, key, item, nothing = range(10)
    base = 10
    own = np.full(count, null, np.int64)
    for kind in np.unique(tape.tag).tolist():
        mine = np.flatnonzero(tape.tag == kind)
        if kind in (forms.NULL, forms.LIST, forms.MAP):
            continue
        texts.append(_json_leaves(tape, mine, kind))
        own[mine] = base + np.arange(len(mine))
        base += len(mine)
    lists, maps = tape.tag == forms.LIST, tape.tag == forms.MAP
    nth = _places(tape)
    inside = tape.parent >= 0
    of_map = np.zeros(count, bool)
    of_map[inside] = maps[tape.parent[inside]]
    is_key = of_map & (nth % 2 == 0)
    named = maps.copy()  # maps that are objects: their keys are texts
    others = np.flatnonzero(is_key & ~np.isin(tape.tag, _NAMES))
    named[tape.parent[others]] = False
    own[lists | (maps & ~named)] = open_list
    own[named] = open_map
    # In front of each entry: a comma behind a neighbour, and what marks a key or a value.
    by_name = np.zeros(count, bool)
    by_name[inside] = named[tape.parent[inside]]
    comma_before = np.where(inside & (nth > 0) & ~(of_map & ~is_key), comma, nothing)
    mark = np.where(
        of_map & ~by_name & is_key, key, np.where(of_map & ~is_key, np.where(by_name, colon, item), nothing)
    )
    # Behind each entry with all that it contains: the end of a container, and that of a pair of key and value.
    ends_itself = np.where(lists | (maps & ~named), close_list, np.where(named, close_map, nothing))
    ends_pair = np.where(of_map & ~is_key & ~by_name, close_map, nothing)
    entry = np.arange(count)
    token = np.concatenate([comma_before, mark, own, ends_itself, ends_pair])
    place = np.concatenate([entry, entry, entry, tape.behind, tape.behind])
    # At one place ends come first, those of the innermost containers before others.
    phase = np.concatenate([np.full(count, count + 1), np.full(count, count + 2), np.full(count, count + 3),
                            -2 * entry, 1 - 2 * entry])  # fmt: skip
    order = np.lexsort((phase, place))
    tokens = token[order]
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    roots = rank[tape.roots]  # the place of the comma that no value has
    joined = pa.concat_arrays(texts).take(pa.array(tokens))
    ends = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + len(tokens) + 1]
    offsets = np.append(ends[roots], ends[-1] if len(tokens) else 0).astype(np.int32)
    found = pa.Array.from_buffers(pa.string(), len(tape.roots), [None, pa.py_buffer(offsets), joined.buffers()[2]])
    missing = tape.tag[tape.roots] == forms.NULL
    return pc.if_else(pa.array(~missing), found, pa.scalar(None, pa.string())) if missing.any() else found


def _places(tape: Tape) -> Ints:
    """The place of each entry in its container."""
    order = np.argsort(tape.parent, kind="stable")
    parents = tape.parent[order]
    begins = np.flatnonzero(np.append(True, parents[1:] != parents[:-1])) if len(order) else order
    first = np.repeat(begins, np.diff(np.append(begins, len(order))))
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order)) - first
    return found


def _json_leaves(tape: Tape, rows: Ints, kind: int) -> pa.Array:
    value = tape.value[rows]
    if kind in _WHOLE:
        return pa.array(value).cast(pa.string())
    if kind == forms.BOOL:
        return pa.array(value != 0).cast(pa.string())
    if kind in (forms.FLOAT, forms.DOUBLE):
        numbers = _MADE[kind](tape, rows)
        texts = numbers.cast(pa.string())
        return pc.if_else(pc.is_finite(numbers), texts, _quoted(texts))
    if kind in (forms.BIG_INTEGER, forms.BIG_DECIMAL):
        return _TEXTS_OF[kind](tape, rows)
    if kind in _TEXTS:
        return _quoted(_plain_texts(tape, rows))
    if kind in _TEXTS_OF:
        return _quoted(_TEXTS_OF[kind](tape, rows))
    return _quoted(pa.array(_TIMES_AS_TEXT[kind](tape, rows), pa.string()))


def _quoted(texts: pa.Array) -> pa.Array:
    """Texts as JSON writes them."""
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    control = pc.match_substring_regex(escaped, r"[\x00-\x1f]")
    if pc.any(control).as_py():
        for code in range(32):
            escaped = pc.replace_substring(escaped, chr(code), json.dumps(chr(code))[1:-1])
    return pc.binary_join_element_wise('"', escaped, '"', "")


def _millis_texts(tape: Tape, rows: Ints) -> list[str]:
    value = tape.value[rows]
    return [
        instant_text(*each) for each in zip((value // 1000).tolist(), (value % 1000 * 1_000_000).tolist(), strict=True)
    ]


def _timestamp_texts(tape: Tape, rows: Ints) -> list[str]:
    seconds = tape.value[rows] // 1000
    return [instant_text(*each) for each in zip(seconds.tolist(), tape.more[rows].tolist(), strict=True)]


def _instant_texts(tape: Tape, rows: Ints) -> list[str]:
    return [instant_text(*each) for each in zip(tape.value[rows].tolist(), tape.more[rows].tolist(), strict=True)]


def _duration_texts(tape: Tape, rows: Ints) -> list[str]:
    """Seconds, as ISO 8601 writes them."""
    found = []
    for seconds, nanos in zip(tape.value[rows].tolist(), tape.more[rows].tolist(), strict=True):
        whole = seconds * 1_000_000_000 + nanos
        fraction = f"{abs(whole) % 1_000_000_000:09d}".rstrip("0")
        sign = "-" if whole < 0 else ""
        found.append(f"PT{sign}{abs(whole) // 1_000_000_000}{'.' if fraction else ''}{fraction}S")
    return found


def _date_texts(tape: Tape, rows: Ints) -> list[str]:
    return [date_text(days) for days in _days(tape.value[rows]).tolist()]


def _time_texts(tape: Tape, rows: Ints) -> list[str]:
    return [time_text(nanos) for nanos in tape.more[rows].tolist()]


def _date_time_texts(tape: Tape, rows: Ints) -> list[str]:
    both = zip(_date_texts(tape, rows), _time_texts(tape, rows), strict=True)
    return [f"{date}T{time}" for date, time in both]


def _hex_texts(tape: Tape, rows: Ints) -> list[str]:
    return [each.hex() for each in _binary(tape, rows).to_pylist()]


_TIMES_AS_TEXT: Mapping[int, Callable[[Tape, Ints], list[str]]] = {
    **dict.fromkeys(_MILLIS, _millis_texts),
    forms.TIMESTAMP: _timestamp_texts,
    forms.INSTANT: _instant_texts,
    forms.DURATION: _duration_texts,
    forms.LOCAL_DATE: _date_texts,
    forms.LOCAL_TIME: _time_texts,
    forms.LOCAL_DATE_TIME: _date_time_texts,
    forms.BYTES: _hex_texts,
}
