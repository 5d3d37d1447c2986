"""The compiled loop that writes values of Kryo as texts of JSON, see ``formats.flink.columns.kryo_json``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels.arrays import Bools, Bytes, Ints
from statestore.formats.kernels.compiled import I64, U64, inlined, kernel
from statestore.formats.kernels.kryo_forms import BOOL, BYTE, INT, LIST, LONG, MAP, NULL, SHORT_FORM, TEXT

_LIST, _NAMED, _PAIRS = 0, 1, 2  # how a container is written: a list, an object, a list of keys and values
_LONGEST_FRONT = 24  # bytes in front of a value and behind it, or of a number
_LONGEST_ESCAPE = 6


@inlined
def _put(out: Bytes, at: int, words: Bytes, begin: int, size: int) -> int:
    for k in range(size):
        out[at + k] = words[begin + k]
    return at + size


@inlined
def _put_number(out: Bytes, at: int, value: int) -> int:
    left = U64(value)
    if value < 0:
        out[at] = 45
        at += 1
        left = U64(-(value + 1)) + U64(1)
    size, rest = 1, left // U64(10)
    while rest > U64(0):
        rest //= U64(10)
        size += 1
    for k in range(size):
        out[at + size - 1 - k] = U64(48) + left % U64(10)
        left //= U64(10)
    return at + size


@inlined
def _put_text(out: Bytes, at: int, data: Bytes, begin: int, size: int, last: int, words: Bytes) -> int:
    """A text in quotes; ``last`` has the bits of its last byte that belong to it."""
    out[at] = 34
    at += 1
    for k in range(size):
        octet = I64(data[begin + k])
        if k == size - 1:
            octet &= last
        if octet == 34 or octet == 92:
            out[at] = 92
            at += 1
        if octet < 32:
            short = I64(words[64 + octet])  # the letter of a short escape, 0 for none
            out[at] = 92
            if short != 0:
                out[at + 1] = short
                at += 2
            else:
                out[at + 1], out[at + 2], out[at + 3] = 117, 48, 48
                out[at + 4] = 48 + (octet >> 4)
                out[at + 5] = words[96 + (octet & 15)]
                at += 6
        else:
            out[at] = octet
            at += 1
    out[at] = 34
    return at + 1


@kernel
def write_values(
    data: Bytes,
    tag: Ints,
    value: Ints,
    more: Ints,
    parent: Ints,
    behind: Ints,
    roots: Ints,
    names: Bools,
    words: Bytes,
    texts: Bytes,
    start: Ints,
    size: Ints,
    quoted: Bools,
    seen: Ints,
    written_as: npt.NDArray[np.int8],
    first: int,
    out: Bytes,
    ends: npt.NDArray[np.int32],
) -> int:
    """Write the values of ``roots`` from number ``first`` on as JSON; ``ends[i + 1]`` becomes the end of value i.

    Returns the number of values that are done: ``out`` has no room for the next one. ``names`` says of each tag whether
    it may name a field. Leaves other than numbers and texts in ASCII have ``texts`` of their own. ``seen`` and
    ``written_as`` are scratch, of the size of the tape. ``words`` begins with ``{"key":`` at 0, ``,"value":`` at 8,
    ``null``, ``true`` and ``false`` at 24, 28 and 32, and has the short escapes from 64 on, hexadecimal digits from 96.
    """
    room = len(out)
    for number in range(first, len(roots)):
        root = roots[number]
        at = I64(ends[number])
        stop = behind[root]
        container = I64(-1)
        for entry in range(root, stop + 1):
            # Close the containers that end here. At the end of the value all do.
            while container >= 0 and behind[container] == entry:
                if room - at < 2:
                    return number
                out[at] = 125 if written_as[container] == _NAMED else 93
                at += 1
                inside = parent[container] if container != root else I64(-1)
                if inside >= 0 and written_as[inside] == _PAIRS and seen[inside] & 1 == 0:
                    out[at] = 125
                    at += 1
                container = inside
            if entry == stop:
                break
            kind = tag[entry]
            if kind == NULL and entry == root:
                break
            is_ascii = kind == TEXT
            longest = more[entry] if is_ascii else size[entry]
            if room - at < 2 * _LONGEST_FRONT + _LONGEST_ESCAPE * longest:
                return number
            # What stands in front: a comma behind a neighbour, and what marks a key or an item.
            pair_ends = False
            if container >= 0:
                nth = seen[container]
                seen[container] = nth + 1
                form = written_as[container]
                is_item = form != _LIST and nth & 1 == 1
                if is_item and form == _NAMED:
                    out[at] = 58
                    at += 1
                elif is_item:
                    at = _put(out, at, words, 8, 9)
                    pair_ends = True
                else:
                    if nth > 0:
                        out[at] = 44
                        at += 1
                    if form == _PAIRS:
                        at = _put(out, at, words, 0, 7)
            # The value.
            if kind in (LIST, MAP):
                seen[entry] = 0
                written_as[entry] = _LIST
                out[at] = 91
                if kind == MAP:
                    written_as[entry] = _NAMED
                    key = entry + 1
                    while key < behind[entry]:
                        if not names[tag[key]]:
                            written_as[entry] = _PAIRS
                            break
                        key = behind[behind[key]]
                    if written_as[entry] == _NAMED:
                        out[at] = 123
                at += 1
                container = I64(entry)
                continue
            if is_ascii:
                at = _put_text(out, at, data, value[entry], more[entry], 0x7F, words)
            elif kind in (INT, LONG, SHORT_FORM, BYTE):
                at = _put_number(out, at, value[entry])
            elif kind == NULL:
                at = _put(out, at, words, 24, 4)
            elif kind == BOOL:
                at = _put(out, at, words, 28 if value[entry] != 0 else 32, 4 if value[entry] != 0 else 5)
            elif quoted[entry]:
                at = _put_text(out, at, texts, start[entry], size[entry], 0xFF, words)
            else:
                at = _put(out, at, texts, start[entry], size[entry])
            if pair_ends:
                out[at] = 125
                at += 1
        ends[number + 1] = at
    return len(roots)
