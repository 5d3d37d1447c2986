"""Strings, to UTF-8: UTF-16 units as varints (``StringValue.writeString``), and Java's modified UTF-8."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, ends_of, gather
from statestore.formats.flink.columns.faults import Beyond, Wrong, refuse
from statestore.formats.kernels.arrays import Bools, Bytes, Ints

_HIGH, _LOW = 0xD800, 0xDC00
_NUL_FORM, _SURROGATE_FORM, _FOUR_BYTES = 0xC0, 0xED, 0xF0  # first bytes


def text_column(data: Bytes, start: Ints, units: Ints, stop: Ints) -> pa.Array:
    """The strings at ``start`` to ``stop``, which have ``units`` - 1 units; 0 is null.

    Raises Beyond for a lone surrogate, which UTF-8 cannot hold.
    """
    size, missing = stop - start, units == 0
    nulls = missing if missing.any() else None
    plain = missing | (size == units - 1)  # a byte for each unit
    if plain.all():
        return _as_text(Cells(data, start, size, nulls).binary())
    texts = _transcoded(data, start[~plain], size[~plain])
    if not plain.any():
        return texts
    return _merged(plain, _as_text(Cells(data, start[plain], size[plain], missing[plain]).binary()), texts)


def modified_text_column(cells: Cells) -> pa.Array:
    """The strings of modified UTF-8, as Java's ``DataOutput.writeUTF`` writes behind a length.

    It is UTF-8 but for two things: NUL may be the bytes C0 80, and a character beyond 16 bits is its two surrogates, of
    three bytes each. Raises Wrong for other bytes, Beyond for a lone surrogate, which UTF-8 cannot hold.
    """
    octets, offsets = cells.content()
    refuse(octets >= _FOUR_BYTES, "a character of more than three bytes", "modified UTF-8")
    other = octets == _NUL_FORM
    other[:-1] |= (octets[:-1] == _SURROGATE_FORM) & (octets[1:] >= 0xA0)
    others = np.diff(ends_of(other)[offsets]) > 0
    if not others.any():
        return utf8(cells)
    changed = cells.select(others)
    found = _of_modified(octets[np.repeat(others, cells.size)], ends_of(changed.size))
    return found if others.all() else _merged(~others, utf8(cells.select(~others)), found)


def _of_modified(octets: Bytes, edges: Ints) -> pa.Array:
    """The strings of bytes ``edges[i]`` to ``edges[i + 1]``. Raises as `modified_text_column`."""
    first = np.flatnonzero(octets & 0xC0 != 0x80)
    begun = np.isin(edges[:-1][np.diff(edges) > 0], first, assume_unique=True)
    lead = octets[first].astype(np.int64)
    size = 1 + (lead >= 0xC0) + (lead >= 0xE0)
    cut = np.diff(np.append(first, len(octets))) != size
    if cut.any() or not begun.all():
        raise Wrong("a character cut short", "modified UTF-8")
    units = np.where(size == 1, lead, np.where(size == 2, lead & 0x1F, lead & 0x0F))
    for place in (1, 2):
        longer = size > place
        units[longer] = units[longer] << 6 | octets[first[longer] + place] & 0x3F
    needless = ((size == 2) & (units < 0x80) & (units != 0)) | ((size == 3) & (units < 0x800))
    refuse(needless, "a character of more bytes than it takes", "modified UTF-8")
    return text_of_units(units, np.searchsorted(first, edges))


def utf8(cells: Cells) -> pa.Array:
    """The strings of UTF-8. Raises Wrong for other bytes."""
    try:
        return cells.binary().cast(pa.string())
    except pa.ArrowInvalid:
        raise Wrong("text that is not UTF-8", "UTF-8") from None


def _merged(which: Bools, ones: pa.Array, others: pa.Array) -> pa.Array:
    """One column: ``ones`` in order where ``which``, ``others`` elsewhere."""
    order = np.empty(len(which), np.int64)
    order[which] = np.arange(len(ones))
    order[~which] = np.arange(len(ones), len(which))
    return pa.concat_arrays([ones, others]).take(pa.array(order))


def text_of_units(units: Ints, edges: Ints, nulls: Bools | None = None) -> pa.Array:
    """The strings of UTF-16 units ``edges[i]`` to ``edges[i + 1]``. Raises Beyond for a lone surrogate."""
    high = (units >= _HIGH) & (units < _LOW)
    low = (units >= _LOW) & (units < 0xE000)
    sizes = 1 + (units >= 0x80) + (units >= 0x800)
    if high.any() or low.any():
        paired = np.zeros(len(units), bool)
        paired[:-1] = high[:-1] & low[1:]
        paired[edges[1:-1][edges[1:-1] > 0] - 1] = False  # a pair does not reach into the next string
        behind = np.zeros(len(units), bool)
        behind[1:] = paired[:-1]
        lone = (high & ~paired) | (low & ~behind)
        if lone.any():
            raise Beyond(f"a string with the lone surrogate {int(units[lone.argmax()]):04x}", "text")
        sizes = np.where(high, 4, np.where(low, 0, sizes))
    text = units.astype("<u2").tobytes().decode("utf-16-le").encode("utf-8")
    offsets = ends_of(sizes)[edges].astype(np.int32)
    buffers = [_validity(nulls), pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(edges) - 1, buffers)


def _transcoded(data: Bytes, start: Ints, size: Ints) -> pa.Array:
    octets, offsets = Cells(data, start, size).content()
    ends = np.flatnonzero(octets < 0x80)  # each unit ends with the first byte that says so
    first = np.append(0, ends[:-1] + 1)
    length = ends - first + 1
    units = octets[first].astype(np.int64) & 0x7F
    for place in (1, 2):
        longer = length > place
        units[longer] |= (octets[first[longer] + place].astype(np.int64) & 0x7F) << (7 * place)
    refuse(units > 0xFFFF, "a character of more than 16 bits", "at most 16")
    return text_of_units(units, np.searchsorted(ends, offsets))


def _as_text(column: pa.BinaryArray) -> pa.StringArray:
    return pa.Array.from_buffers(pa.string(), len(column), column.buffers(), offset=column.offset)


def _validity(nulls: Bools | None) -> pa.Buffer | None:
    return None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))


def characters(data: Bytes, positions: Ints) -> pa.Array:
    """Strings of one UTF-16 unit each."""
    units = gather(data, positions, ">u2").astype(np.int64)
    return text_of_units(units, np.arange(len(units) + 1))
