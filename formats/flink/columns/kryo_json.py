"""Values of Kryo as texts of JSON.

A compiled loop writes them where it is loaded. Elsewhere each entry of a tape is a few pieces of text, and their places
in the joined text follow from the entries' numbers, so that nothing is sorted but the containers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.flink.columns.kryo_leaf_columns import (
    MADE,
    MILLIS,
    TEXTS,
    TEXTS_OF,
    WHOLE,
    days,
    hex_digits,
    kinds_of,
    plain_texts,
)
from statestore.formats.flink.columns.kryo_object_names import with_field_names
from statestore.formats.flink.columns.kryo_tapes import Tape
from statestore.formats.flink.columns.time_texts import date_texts, date_time_texts, instant_texts, time_texts
from statestore.formats.kernels import compiled_use
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
_KERNELS = "statestore.formats.kernels.kryo_json_kernels"
_WORTH_ENTRIES = 1 << 18
"""Entries of all tapes so far from which on the compiled loop is loaded.

Its compilation takes as long as some millions, and is kept on disk. A tape has those of one batch, which may be few.
"""
_joined_before = 0  # threads may lose a few, which only delays loading
_WRITTEN_BY_LOOP = (*WHOLE, forms.BOOL, forms.NULL, forms.LIST, forms.MAP, forms.TEXT)
_SHORT_ESCAPES = {8: b"b", 9: b"t", 10: b"n", 12: b"f", 13: b"r"}
_LOOP_WORDS = np.frombuffer(
    b'{"key":'.ljust(8) + b',"value":'.ljust(16) + b"nulltruefalse".ljust(40)
    + b"".join(_SHORT_ESCAPES.get(code, b"\0") for code in range(32)) + b"0123456789abcdef", np.uint8,
)  # fmt: skip
_SECOND = 1_000_000_000
_SECONDS_OF_NANOS = 9_000_000_000
_MOST_BYTES = 2**31 - 1  # of one string array
_MUST_ESCAPE = np.array([octet < 0x20 or octet in b'"\\' for octet in range(256)])

Leaves = Callable[[Tape, Ints, int, bool], tuple[pa.Array, bool]]
"""A function to the texts of entries of one tag, as `leaf_texts`."""


def json_of(tape: Tape, leaves: Leaves | None = None) -> pa.Array:
    """The values of a tape as texts of JSON; a value that is null is null.

    ``leaves`` makes the texts of values that contain no others, where these are not written as Kryo does.
    """
    tape, leaves = with_field_names(tape), leaves or leaf_texts
    if _is_compiled(len(tape.tag)):
        found = _written(tape, leaves)
        if found is not None:
            return found
    return _joined(tape, leaves)


def _is_compiled(entries: int) -> bool:
    global _joined_before
    if not compiled_use.is_loaded():
        return False
    _joined_before += entries
    return _KERNELS in sys.modules or _joined_before >= _WORTH_ENTRIES


def _written(tape: Tape, leaves: Leaves) -> pa.Array | None:
    """The texts that the compiled loop writes; None if they are more than one column has room for."""
    from statestore.formats.kernels.kryo_json_kernels import write_values

    count, data = len(tape.tag), tape.data.view()
    data.flags.writeable = False  # the loop is compiled once, for data that cannot be written
    rendered = [np.zeros(1, np.uint8)]
    start, size, quoted = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, bool)
    base = 1
    for kind in kinds_of(tape.tag):
        if kind not in _WRITTEN_BY_LOOP:
            mine = np.flatnonzero(tape.tag == kind)
            texts, quoted[mine] = leaves(tape, mine, kind, False)
            cells = cells_of(texts)
            start[mine], size[mine] = base + cells.start, cells.size
            rendered.append(cells.data)
            base += len(cells.data)
    octets = np.concatenate(rendered)
    ends, seen, form = np.zeros(len(tape.roots) + 1, np.int32), np.zeros(count, np.int64), np.zeros(count, np.int8)
    tag, value, more, parent, behind = (
        np.ascontiguousarray(each) for each in (tape.tag, tape.value, tape.more, tape.parent, tape.behind)
    )
    roots = np.ascontiguousarray(tape.roots)
    out = np.empty(min(64 + 16 * count + int(size.sum()) + int(tape.more[tape.tag == forms.TEXT].sum()), _MOST_BYTES),
                   np.uint8)  # fmt: skip
    done = 0
    while True:
        done = write_values(
            data, tag, value, more, parent, behind, roots, _IS_NAME, _LOOP_WORDS, octets, start, size, quoted, seen,
            form, done, out, ends,
        )  # fmt: skip
        if done == len(roots):
            break
        if len(out) == _MOST_BYTES:
            return None
        out = np.concatenate([out, np.empty(min(len(out), _MOST_BYTES - len(out)), np.uint8)])
    missing = tape.tag[tape.roots] == forms.NULL
    validity = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
    return pa.Array.from_buffers(pa.string(), len(roots), [validity, pa.py_buffer(ends), pa.py_buffer(out[: ends[-1]])])


def _joined(tape: Tape, leaves: Leaves) -> pa.Array:
    """The texts, joined from pieces."""
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
    octets, start, size, quoted = _pieces(tape, leaves)
    word_start, word_size = start[: len(_WORDS)], size[: len(_WORDS)]
    own = np.full(count, _NULL, np.int64)
    own[lists | pairs], own[named] = _LIST, _MAP
    is_leaf = ~(lists | maps | (tag == forms.NULL))
    front[quoted] += len(_FRONTS)
    end = np.where(ends_pair, _MAP_END, _PLAIN)
    end[quoted] = np.where(ends_pair, _QUOTE_ENDS, _QUOTE)[quoted]
    end[lists | pairs] = np.where(ends_pair, _LIST_ENDS, _LIST_END)[lists | pairs]
    end[named] = np.where(ends_pair, _MAP_ENDS, _MAP_END)[named]
    begun, ended = _order(tape)
    starts, sizes = np.empty(3 * count, np.int64), np.empty(3 * count, np.int64)
    for place, word in ((begun, front), (begun + 1, own), (ended, end)):
        starts[place], sizes[place] = word_start[word], word_size[word]
    place = begun[is_leaf] + 1
    starts[place], sizes[place] = start[len(_WORDS) :][is_leaf], size[len(_WORDS) :][is_leaf]
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


def _pieces(tape: Tape, leaves: Leaves) -> tuple[Bytes, Ints, Ints, Bools]:
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
        texts, quoted[mine] = leaves(tape, mine, kind, True)
        cells = cells_of(texts)
        start[len(words) + mine], size[len(words) + mine] = base + cells.start, cells.size
        data.append(cells.data)
        base += len(cells.data)
    return np.concatenate(data), start, size, quoted


def leaf_texts(tape: Tape, rows: Ints, kind: int, escape: bool) -> tuple[pa.Array, bool]:
    """Texts, and whether they stand in quotes; ``escape``: as JSON writes them within quotes."""
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
        texts = plain_texts(tape, rows)
        return escaped(texts) if escape else texts, True
    if kind in TEXTS_OF:
        texts = TEXTS_OF[kind](tape, rows)
        return escaped(texts) if escape else texts, True
    return _TIMES_AS_TEXT[kind](tape, rows), True


def escaped(texts: pa.Array) -> pa.Array:
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
    seconds, nanos = tape.value[rows], tape.more[rows]
    if (np.abs(seconds) >= _SECONDS_OF_NANOS).any():
        return pa.array(list(map(_long_duration_text, seconds.tolist(), nanos.tolist())), pa.string())
    found = seconds * _SECOND + nanos
    whole, fraction = np.divmod(np.abs(found), _SECOND)
    digits = pc.utf8_rtrim(pc.utf8_lpad(pa.array(fraction).cast(pa.string()), 9, "0"), "0")
    sign, point = pc.if_else(pa.array(found < 0), "-", ""), pc.if_else(pa.array(fraction > 0), ".", "")
    return pc.binary_join_element_wise("PT", sign, pa.array(whole).cast(pa.string()), point, digits, "S", "")


def _long_duration_text(seconds: int, nanos: int) -> str:
    whole = seconds * _SECOND + nanos
    fraction = f"{abs(whole) % _SECOND:09d}".rstrip("0")
    return f"PT{'-' if whole < 0 else ''}{abs(whole) // _SECOND}{'.' if fraction else ''}{fraction}S"


def _date_texts(tape: Tape, rows: Ints) -> pa.Array:
    return date_texts(days(tape.value[rows]))


def _time_texts(tape: Tape, rows: Ints) -> pa.Array:
    return time_texts(tape.more[rows])


def _date_time_texts(tape: Tape, rows: Ints) -> pa.Array:
    return date_time_texts(days(tape.value[rows]), tape.more[rows])


def _hex_texts(tape: Tape, rows: Ints) -> pa.Array:
    octets, offsets = Cells(tape.data, tape.value[rows], tape.more[rows]).content()
    ends = pa.py_buffer((2 * offsets).astype(np.int32))
    return pa.Array.from_buffers(pa.string(), len(rows), [None, ends, pa.py_buffer(hex_digits(octets).reshape(-1))])


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
