"""Values of Kryo as texts of JSON.

Each entry of a tape is a few pieces of text. Their places in the joined text follow from the entries' numbers, so that
nothing is sorted but the containers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.flink.columns.kryo_columns import (
    MADE,
    MILLIS,
    TEXTS,
    TEXTS_OF,
    WHOLE,
    binary,
    days,
    kinds_of,
    plain_texts,
)
from statestore.formats.flink.columns.kryo_tapes import Tape
from statestore.formats.flink.columns.time_texts import date_texts, date_time_texts, instant_texts, time_texts
from statestore.formats.kernels import kryo_forms as forms
from statestore.formats.kernels.arrays import Bools, Bytes, Ints

_QUOTED = (*TEXTS, forms.CHAR, forms.UUID, forms.CONSTANT)
_IS_NAME = np.isin(np.arange(forms.MOST_TAGS), _QUOTED)  # of a field of an object
_FRONTS = ("", ",", '{"key":', ',{"key":', ":", ',"value":')
_PLAIN, _COMMA, _KEY, _NEXT_KEY, _NAMED, _VALUE = range(6)
_WORDS = (*_FRONTS, *(front + '"' for front in _FRONTS), "null", "[", "{", "]", "}", "]}", "}}", '"', '"}')
_NULL, _LIST, _MAP, _LIST_END, _MAP_END, _LIST_ENDS, _MAP_ENDS, _QUOTE, _QUOTE_ENDS = range(
    2 * len(_FRONTS), len(_WORDS)
)
_MUST_ESCAPE = np.array([octet < 0x20 or octet in b'"\\' for octet in range(256)])


def json_of(tape: Tape) -> pa.Array:
    """The values of a tape as texts of JSON; a value that is null is null."""
    count = len(tape.tag)
    if not count:
        return pa.array([], pa.string())
    tag, inside = tape.tag, tape.parent >= 0
    parent = np.where(inside, tape.parent, 0)
    is_odd = _is_odd(tape)
    of_map = inside & (tag[parent] == forms.MAP)
    is_key, is_item = of_map & ~is_odd, of_map & is_odd
    lists, maps = tag == forms.LIST, tag == forms.MAP
    named = maps.copy()  # maps that are objects: their keys are texts
    named[parent[is_key & ~_IS_NAME[tag]]] = False
    by_name = of_map & named[parent]
    pairs = maps & ~named
    # In front of each entry: a comma behind a neighbour, and what marks a key or a value.
    is_next = inside & (np.arange(count) != parent + 1)
    front = np.where(is_item, np.where(by_name, _NAMED, _VALUE), np.where(is_next, _COMMA, _PLAIN))
    front[is_key & ~by_name] += _KEY
    ends_pair = is_item & ~by_name
    octets, start, size, quoted = _pieces(tape)
    word_start, word_size = start[: len(_WORDS)], size[: len(_WORDS)]
    own = np.full(count, _NULL, np.int64)
    own[lists | pairs], own[named] = _LIST, _MAP
    leaves = ~(lists | maps | (tag == forms.NULL))
    front[quoted] += len(_FRONTS)
    end = np.where(ends_pair, _MAP_END, _PLAIN)
    end[quoted] = np.where(ends_pair, _QUOTE_ENDS, _QUOTE)[quoted]
    end[lists | pairs] = np.where(ends_pair, _LIST_ENDS, _LIST_END)[lists | pairs]
    end[named] = np.where(ends_pair, _MAP_ENDS, _MAP_END)[named]
    begun, ended = _order(tape)
    starts, sizes = np.empty(3 * count, np.int64), np.empty(3 * count, np.int64)
    for place, word in ((begun, front), (begun + 1, own), (ended, end)):
        starts[place], sizes[place] = word_start[word], word_size[word]
    place = begun[leaves] + 1
    starts[place], sizes[place] = start[len(_WORDS) :][leaves], size[len(_WORDS) :][leaves]
    joined = Cells(octets, starts, sizes).copied()
    ends = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + 3 * count + 1]
    offsets = np.append(ends[begun[tape.roots]], ends[-1])
    found = pa.Array.from_buffers(pa.string(), len(tape.roots), [None, pa.py_buffer(offsets), joined.buffers()[2]])
    missing = tag[tape.roots] == forms.NULL
    return pc.if_else(pa.array(~missing), found, pa.scalar(None, pa.string())) if missing.any() else found


def _order(tape: Tape) -> tuple[Ints, Ints]:
    """The places of what stands in front of each entry, with the entry behind it, and of what stands at its end."""
    count = len(tape.tag)
    entry = np.arange(count)
    ended_before = np.cumsum(np.bincount(tape.behind, minlength=count + 1))  # those that end before each entry
    end = 2 * tape.behind + ended_before[tape.behind - 1]
    # At one place the innermost entry ends first. It is the one before the place, and has nothing inside.
    outer = np.flatnonzero(tape.behind > entry + 1)
    order = outer[np.lexsort((-outer, tape.behind[outer]))]
    places = tape.behind[order]
    is_first = np.append(True, places[1:] != places[:-1])
    nth = np.arange(len(order))
    end[order] += 1 + nth - np.maximum.accumulate(np.where(is_first[: len(order)], nth, 0))
    return 2 * entry + ended_before[:-1], end


def _is_odd(tape: Tape) -> Bools:
    """Whether each entry has an odd number of neighbours before it in its container."""
    count = len(tape.tag)
    found = np.zeros(count, bool)
    of_map = np.flatnonzero((tape.parent >= 0) & (tape.tag[tape.parent] == forms.MAP))
    order = of_map[np.argsort(tape.parent[of_map], kind="stable")]
    parents = tape.parent[order]
    nth = np.arange(len(order))
    is_first = np.append(True, parents[1:] != parents[:-1])[: len(order)]
    found[order] = (nth - np.maximum.accumulate(np.where(is_first, nth, 0))) % 2 == 1
    return found


def _pieces(tape: Tape) -> tuple[Bytes, Ints, Ints, Bools]:
    """Octets, and the start and size in them of all words and of the text of each leaf; whether a text is quoted."""
    words = [word.encode() for word in _WORDS]
    data = [np.frombuffer(b"".join(words), np.uint8)]
    start, size = np.zeros((2, len(words) + len(tape.tag)), np.int64)
    size[: len(words)] = [len(word) for word in words]
    start[1 : len(words)] = np.cumsum(size[: len(words) - 1])
    quoted, base = np.zeros(len(tape.tag), bool), len(data[0])
    for kind in kinds_of(tape.tag):
        if kind in (forms.NULL, forms.LIST, forms.MAP):
            continue
        mine = np.flatnonzero(tape.tag == kind)
        texts, quoted[mine] = _leaves(tape, mine, kind)
        cells = cells_of(texts)
        start[len(words) + mine], size[len(words) + mine] = base + cells.start, cells.size
        data.append(cells.data)
        base += len(cells.data)
    return np.concatenate(data), start, size, quoted


def _leaves(tape: Tape, rows: Ints, kind: int) -> tuple[pa.Array, bool]:
    """Texts, and whether they stand in quotes."""
    value = tape.value[rows]
    if kind in WHOLE:
        return pa.array(value).cast(pa.string()), False
    if kind == forms.BOOL:
        return pa.array(value != 0).cast(pa.string()), False
    if kind in (forms.FLOAT, forms.DOUBLE):
        numbers = MADE[kind](tape, rows)
        texts = numbers.cast(pa.string())
        quoted = pc.binary_join_element_wise('"', texts, '"', "")
        return pc.if_else(pc.is_finite(numbers), texts, quoted), False
    if kind in (forms.BIG_INTEGER, forms.BIG_DECIMAL):
        return TEXTS_OF[kind](tape, rows), False
    if kind in TEXTS:
        return _escaped(plain_texts(tape, rows)), True
    if kind in TEXTS_OF:
        return _escaped(TEXTS_OF[kind](tape, rows)), True
    return _TIMES_AS_TEXT[kind](tape, rows), True


def _escaped(texts: pa.Array) -> pa.Array:
    """Texts as JSON writes them, without quotes."""
    cells = cells_of(texts)
    octets, _ = cells.content()
    if not _MUST_ESCAPE[octets].any():
        return texts
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    control = pc.match_substring_regex(escaped, r"[\x00-\x1f]")
    if pc.any(control).as_py():
        for code in range(32):
            escaped = pc.replace_substring(escaped, chr(code), json.dumps(chr(code))[1:-1])
    return escaped


def _millis_texts(tape: Tape, rows: Ints) -> pa.Array:
    value = tape.value[rows]
    return instant_texts(value // 1000, value % 1000 * 1_000_000)


def _timestamp_texts(tape: Tape, rows: Ints) -> pa.Array:
    return instant_texts(tape.value[rows] // 1000, tape.more[rows])


def _instant_texts(tape: Tape, rows: Ints) -> pa.Array:
    return instant_texts(tape.value[rows], tape.more[rows])


def _duration_texts(tape: Tape, rows: Ints) -> pa.Array:
    """Seconds, as ISO 8601 writes them."""
    found = []
    for seconds, nanos in zip(tape.value[rows].tolist(), tape.more[rows].tolist(), strict=True):
        whole = seconds * 1_000_000_000 + nanos
        fraction = f"{abs(whole) % 1_000_000_000:09d}".rstrip("0")
        sign = "-" if whole < 0 else ""
        found.append(f"PT{sign}{abs(whole) // 1_000_000_000}{'.' if fraction else ''}{fraction}S")
    return pa.array(found, pa.string())


def _date_texts(tape: Tape, rows: Ints) -> pa.Array:
    return date_texts(days(tape.value[rows]))


def _time_texts(tape: Tape, rows: Ints) -> pa.Array:
    return time_texts(tape.more[rows])


def _date_time_texts(tape: Tape, rows: Ints) -> pa.Array:
    return date_time_texts(days(tape.value[rows]), tape.more[rows])


def _hex_texts(tape: Tape, rows: Ints) -> pa.Array:
    return pa.array([each.hex() for each in binary(tape, rows).to_pylist()], pa.string())


_TIMES_AS_TEXT: Mapping[int, Callable[[Tape, Ints], pa.Array]] = {
    **dict.fromkeys(MILLIS, _millis_texts),
    forms.TIMESTAMP: _timestamp_texts,
    forms.INSTANT: _instant_texts,
    forms.DURATION: _duration_texts,
    forms.LOCAL_DATE: _date_texts,
    forms.LOCAL_TIME: _time_texts,
    forms.LOCAL_DATE_TIME: _date_time_texts,
    forms.BYTES: _hex_texts,
}
