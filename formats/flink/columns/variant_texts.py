"""Values of VARIANT as texts of JSON: the open encoding of Spark and Parquet, which Flink has from 2.1 on.

The values of one depth are read at once, and each container's by the next step. All values are then put in the order of
the text, as a tape of ``kryo_tapes``. Source: ``org.apache.flink.types.variant.BinaryVariantUtil``, and the
specification of Parquet's variants.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, ends_of, gather
from statestore.formats.flink.columns.faults import Beyond, refuse
from statestore.formats.flink.columns.kryo_json import escaped, json_of, leaf_texts
from statestore.formats.flink.columns.kryo_leaf_columns import TEXTS_OF
from statestore.formats.flink.columns.kryo_tapes import Tape
from statestore.formats.flink.columns.leaf_columns import within_precision
from statestore.formats.flink.columns.text_columns import utf8
from statestore.formats.flink.columns.time_texts import date_texts, date_time_texts, instant_texts, time_texts
from statestore.formats.flink.layouts.shapes import MOST_DIGITS
from statestore.formats.kernels import kryo_forms as forms
from statestore.formats.kernels.arrays import Bytes, Ints

MOST_LEVELS = 1000
_PRIMITIVE, _SHORT_TEXT, _OBJECT, _ARRAY = range(4)
_NULL, _TRUE, _FALSE, _INT1, _INT2, _INT4, _INT8, _DOUBLE, _DECIMAL4, _DECIMAL8, _DECIMAL16 = range(11)
_DATE, _LTZ, _TIMESTAMP, _FLOAT, _BINARY, _LONG_TEXT, _TIME, _LTZ_NANOS, _NANOS, _UUID = range(11, 21)
_WIDTHS = np.array([0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, 4, 4, 8, 8, 8, 16], np.int64)
_TAGS = np.array(
    [
        *(forms.NULL, forms.BOOL, forms.BOOL, *[forms.LONG] * 4, forms.DOUBLE, *[forms.BIG_DECIMAL] * 3),
        *(forms.LOCAL_DATE, forms.INSTANT, forms.LOCAL_DATE_TIME, forms.FLOAT, forms.BYTES, forms.UTF_TEXT),
        *(forms.LOCAL_TIME, forms.INSTANT, forms.LOCAL_DATE_TIME, forms.UUID),
    ],
    np.int64,
)
_NUMBERS = {
    _INT1: "<i1", _INT2: "<i2", _INT4: "<i4", _INT8: "<i8", _DOUBLE: "<i8", _DATE: "<i4", _LTZ: "<i8",
    _TIMESTAMP: "<i8", _FLOAT: "<i4", _TIME: "<i8", _LTZ_NANOS: "<i8", _NANOS: "<i8",
}  # fmt: skip
_MICROS = (_LTZ, _TIMESTAMP, _TIME)
_SECOND, _DAY = 1_000_000_000, 86_400
_MOST_BYTES = 2**31 - 1  # of one string array
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)


@dataclass(frozen=True)
class _Level:
    """Entries of one depth: what each is, and its container among those of the depth before."""

    tag: Ints
    value: Ints
    more: Ints
    parent: Ints


@dataclass(frozen=True)
class _Open:
    """Values to be read: where each is and where its container ends, its variant, and its number in its level."""

    start: Ints
    stop: Ints
    row: Ints
    number: Ints


def variant_of_row(cells: Cells) -> pa.Array:
    """The texts of variants in binary rows: int32 n, big-endian | n bytes of metadata | the value."""
    refuse(cells.size < 4, "a variant that is too short", "the length of its metadata")
    size = gather(cells.data, cells.start, ">i4").astype(np.int64)
    refuse((size < 0) | (size > cells.size - 4), "metadata beyond its variant", "a length inside")
    start = cells.start + 4
    return variant_texts(Cells(cells.data, start + size, cells.size - 4 - size), Cells(cells.data, start, size))


def variant_of_serializer(data: Bytes, at: Ints, count: Ints) -> pa.Array:
    """The texts of variants that stand alone: the value, then metadata, behind the lengths of both."""
    size = gather(data, at - 8, ">i4").astype(np.int64)
    return variant_texts(Cells(data, at, size), Cells(data, at + size, count - size))


def variant_texts(values: Cells, metadata: Cells) -> pa.Array:
    """Variants as JSON; one that is null in itself is the text null. Raises Wrong for bytes of none, Beyond."""
    if not len(values):
        return pa.array([], pa.string())
    levels: list[_Level] = []
    rows = np.arange(len(values))
    names = _Names(metadata)
    parent, at = np.full(len(values), -1), _Open(values.start, values.start + values.size, rows, rows)
    key_at, keys = np.empty(0, np.int64), _Found.none()
    left = int(values.size.sum())
    while True:
        if len(levels) > MOST_LEVELS:
            raise Beyond(f"more than {MOST_LEVELS} levels of a variant", "text of JSON")
        found = _read(values.data, at)
        tag, value, more = (np.zeros(len(parent), np.int64) for _ in range(3))
        for place, part in ((at.number, found), (key_at, keys)):
            tag[place], value[place], more[place] = part.tag, part.value, part.more
        levels.append(_Level(tag, value, more, parent))
        inside = np.flatnonzero(found.count > 0)
        if not len(inside):
            break
        left -= int(found.count[inside].sum())
        refuse(np.array([left < 0]), "values within one another", "each value of a variant once")
        parent, at, key_at, keys = _children(values.data, at, found, inside, names)
    tape = _tape(values.data, levels)
    return pc.fill_null(json_of(tape, _leaves), "null")


@dataclass(frozen=True)
class _Found:
    """Entries of a tape for values. ``count`` is 0 for leaves; ``base`` is where a container's lists begin."""

    tag: Ints
    value: Ints
    more: Ints
    count: Ints
    base: Ints

    @staticmethod
    def none() -> _Found:
        return _Found(*(np.empty(0, np.int64) for _ in range(5)))


class _Names:
    """The dictionaries of names in metadata: a byte of version and width | count | ends of the names | names."""

    def __init__(self, cells: Cells) -> None:
        self.data, self.start, self.stop = cells.data, cells.start, cells.start + cells.size
        refuse(cells.size < 2, "metadata of a variant that is too short", "a header")
        head = gather(cells.data, cells.start, "u1").astype(np.int64)
        refuse(head & 15 != 1, "metadata of another version", "version 1")
        self.width = (head >> 6) + 1
        refuse(cells.size < 1 + self.width, "metadata of a variant that is too short", "a count")
        self.count = _unsigned(cells.data, cells.start + 1, self.width)
        self.texts = self.start + 1 + (self.count + 2) * self.width
        refuse(self.texts > self.stop, "more names than the metadata has", "a count of those inside")

    def find(self, row: Ints, number: Ints) -> _Found:
        """The names of these numbers."""
        refuse(number >= self.count[row], "a field without a name", "a number of the metadata's names")
        width = self.width[row]
        at = self.start[row] + 1 + (number + 1) * width
        begin, end = _unsigned(self.data, at, width), _unsigned(self.data, at + width, width)
        refuse((begin > end) | (self.texts[row] + end > self.stop[row]), "a name beyond the metadata", "an end inside")
        nothing = np.zeros(len(row), np.int64)
        tag = np.full(len(row), forms.UTF_TEXT)
        return _Found(tag, self.texts[row] + begin, end - begin, nothing, nothing)


def _unsigned(data: Bytes, at: Ints, width: Ints) -> Ints:
    """Numbers of 1 to 4 bytes, low byte first, which lie in the data."""
    found = np.zeros(len(at), np.int64)
    for octet in range(int(width.max(initial=0))):
        inside = octet < width
        read = gather(data, np.where(inside, at + octet, at), "u1").astype(np.int64)
        found += np.where(inside, read << 8 * octet, 0)
    return found


def _read(data: Bytes, at: _Open) -> _Found:
    """The entries of a tape for the values at these places, without those that they contain."""
    refuse(at.start >= at.stop, "a variant without bytes", "a header")
    head = gather(data, at.start, "u1").astype(np.int64)
    basic, info = head & 3, head >> 2
    is_leaf = basic == _PRIMITIVE
    refuse(is_leaf & (info > _UUID), "a primitive type of a variant that is not known", f"0 to {_UUID}")
    kind = np.where(is_leaf, info, _LONG_TEXT)
    width = np.where(is_leaf, _WIDTHS[kind], np.where(basic == _SHORT_TEXT, info, 0))
    refuse(at.start + 1 + width > at.stop, "a variant that is too short", "its value")
    tag, value, more = _TAGS[kind], at.start + 1, width
    value[kind == _TRUE] = 1
    value[(kind == _FALSE) | (kind == _NULL)] = 0
    for each, form in _NUMBERS.items():
        mine = np.flatnonzero(is_leaf & (kind == each))
        if len(mine):
            value[mine] = gather(data, at.start[mine] + 1, form)
            more[mine] = 1000 if each in _MICROS else 1
    sized = np.flatnonzero(is_leaf & ((kind == _BINARY) | (kind == _LONG_TEXT)))
    if len(sized):
        size = gather(data, at.start[sized] + 1, "<u4").astype(np.int64)
        refuse(at.start[sized] + 5 + size > at.stop[sized], "a text beyond its variant", "a length inside")
        value[sized], more[sized] = at.start[sized] + 5, size
    count, base = np.zeros(len(head), np.int64), np.zeros(len(head), np.int64)
    for each, shown, bit in ((_OBJECT, forms.MAP, 4), (_ARRAY, forms.LIST, 2)):
        mine = np.flatnonzero(basic == each)
        tag[mine] = shown
        count[mine], base[mine] = _counts(data, at.start[mine], at.stop[mine], info[mine] >> bit & 1)
    return _Found(tag, value, more, count, base)


def _counts(data: Bytes, start: Ints, stop: Ints, is_large: Ints) -> tuple[Ints, Ints]:
    """The counts of containers, and where the lists behind them begin."""
    width = 1 + 3 * is_large
    refuse(start + 1 + width > stop, "a container of a variant that is too short", "a count")
    count = _unsigned(data, start + 1, width)
    refuse(count > stop - start, "a count beyond a variant", "a count of values inside")
    return count, start + 1 + width


def _children(data: Bytes, at: _Open, found: _Found, inside: Ints, names: _Names) -> tuple[Ints, _Open, Ints, _Found]:
    """The containers of the next level's entries, its values, and its keys, each with its number."""
    count, base, stop = found.count[inside], found.base[inside], at.stop[inside]
    info = gather(data, at.start[inside], "u1").astype(np.int64) >> 2
    is_object = found.tag[inside] == forms.MAP
    width = (info & 3) + 1
    id_width: Ints = np.where(is_object, (info >> 2 & 3) + 1, 0)
    offsets = base + id_width * count
    values = offsets + width * (count + 1)
    refuse(values > stop, "a container of a variant that is too short", "the places of its values")
    end = values + _unsigned(data, offsets + width * count, width)
    refuse(end > stop, "values beyond their container", "an end inside")
    owner = np.repeat(np.arange(len(inside)), count)
    nth = np.arange(len(owner)) - np.repeat(ends_of(count)[:-1], count)
    start = values[owner] + _unsigned(data, offsets[owner] + nth * width[owner], width[owner])
    row = at.row[inside][owner]
    # An object's entries are keys and values by turns.
    sizes = np.where(is_object, 2 * count, count)
    first = ends_of(sizes)[:-1]
    number = first[owner] + np.where(is_object[owner], 2 * nth + 1, nth)
    parent = np.repeat(at.number[inside], sizes)
    named = np.flatnonzero(is_object[owner])
    ids = _unsigned(data, base[owner[named]] + nth[named] * id_width[owner[named]], id_width[owner[named]])
    keys = names.find(row[named], ids)
    return parent, _Open(start, end[owner], row, number), number[named] - 1, keys


def _tape(data: Bytes, levels: list[_Level]) -> Tape:
    """The entries of all levels, each container's behind it."""
    sizes = [np.ones(len(level.tag), np.int64) for level in levels]
    for depth in range(len(levels) - 1, 0, -1):
        np.add.at(sizes[depth - 1], levels[depth].parent, sizes[depth])
    total = int(sizes[0].sum())
    tag, value, more, parent, behind = (np.empty(total, np.int64) for _ in range(5))
    above = np.empty(0, np.int64)
    for depth, (level, size) in enumerate(zip(levels, sizes, strict=True)):
        before = ends_of(size)[:-1]
        if depth == 0:
            place = before
            parent[place] = -1
        else:  # behind the container and the neighbours before
            is_first = np.append(True, level.parent[1:] != level.parent[:-1])
            since = before[np.maximum.accumulate(np.where(is_first, np.arange(len(before)), 0))]
            place = above[level.parent] + 1 + before - since
            parent[place] = above[level.parent]
        tag[place], value[place], more[place], behind[place] = level.tag, level.value, level.more, place + size
        above = place
    return Tape(data, tag, value, more, parent, behind, ends_of(sizes[0])[:-1])


def _leaves(tape: Tape, rows: Ints, kind: int, escape: bool = True) -> tuple[pa.Array, bool]:
    """Texts, and whether they stand in quotes; ``escape``: as JSON writes them within quotes."""
    cells = Cells(tape.data, tape.value[rows], tape.more[rows])
    if kind == forms.UTF_TEXT:
        texts = utf8(cells)
        return escaped(texts) if escape else texts, True
    if kind == forms.BIG_DECIMAL:
        return _decimal_texts(cells), False
    if kind == forms.BYTES:
        return _base64(cells), True
    if kind == forms.UUID:
        high, low = (gather(tape.data, cells.start + 8 * half, ">i8").astype(np.int64) for half in range(2))
        empty = np.zeros(len(rows), np.int64)
        every = np.arange(len(rows))
        return TEXTS_OF[kind](Tape(tape.data, empty, high, low, empty, empty, every), every), True
    if kind == forms.LOCAL_DATE:
        return date_texts(cells.start), True
    if kind in (forms.INSTANT, forms.LOCAL_DATE_TIME, forms.LOCAL_TIME):
        unit = cells.size
        seconds, part = np.divmod(cells.start, _SECOND // unit)
        if kind == forms.INSTANT:
            return instant_texts(seconds, part * unit), True
        days, second = np.divmod(seconds, _DAY)
        nanos = second * _SECOND + part * unit
        return (time_texts(nanos) if kind == forms.LOCAL_TIME else date_time_texts(days, nanos)), True
    return leaf_texts(tape, rows, kind, escape)


def _decimal_texts(cells: Cells) -> pa.Array:
    """Decimals: a byte of the scale | a number of 4, 8 or 16 bytes."""
    words = np.empty((len(cells), 2), np.int64)
    for width, form in ((5, "<i4"), (9, "<i8"), (17, "<i8")):
        mine = np.flatnonzero(cells.size == width)
        words[mine, 0] = gather(cells.data, cells.start[mine] + 1, form)
        high = gather(cells.data, cells.start[mine] + 9, form) if width == 17 else words[mine, 0] >> 63
        words[mine, 1] = high
    scale = gather(cells.data, cells.start, "u1").astype(np.int64)
    refuse(scale > MOST_DIGITS, "a scale of a decimal", f"0 to {MOST_DIGITS}")
    whole = within_precision(pa.Array.from_buffers(pa.decimal128(MOST_DIGITS), len(cells), [None, pa.py_buffer(words)]))
    sign = pc.if_else(pa.array(words[:, 1] < 0), "-", "")
    digits = pc.abs(whole).cast(pa.string())
    found = digits
    for each in np.unique(scale[scale > 0]).tolist():
        padded = pc.utf8_lpad(digits, each + 1, "0")
        parts = pc.utf8_slice_codeunits(padded, 0, -each), pc.utf8_slice_codeunits(padded, -each)
        found = pc.if_else(pa.array(scale == each), pc.binary_join_element_wise(*parts, "."), found)
    return pc.binary_join_element_wise(sign, found, "")


def _base64(cells: Cells) -> pa.Array:
    counts = (cells.size + 2) // 3
    ends = ends_of(4 * counts)
    if ends[-1] > _MOST_BYTES:
        raise Beyond(f"{int(ends[-1])} characters of bytes", "one batch")
    owner = np.repeat(np.arange(len(cells)), counts)
    first = 3 * (np.arange(len(owner)) - np.repeat(ends_of(counts)[:-1], counts))
    word = np.zeros(len(owner), np.int64)
    for octet in range(3):
        inside = first + octet < cells.size[owner]
        at = np.where(inside, cells.start[owner] + first + octet, 0)
        word = word << 8 | np.where(inside, gather(cells.data, at, "u1"), 0)
    text = _BASE64[np.stack([word >> shift & 63 for shift in (18, 12, 6, 0)], axis=1)]
    left = cells.size[owner] - first
    text[left < 3, 3] = text[left < 2, 2] = ord("=")
    octets = pa.py_buffer(np.ascontiguousarray(text).reshape(-1))
    return pa.Array.from_buffers(pa.string(), len(cells), [None, pa.py_buffer(ends.astype(np.int32)), octets])
