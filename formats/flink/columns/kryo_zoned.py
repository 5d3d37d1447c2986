"""Values of Kryo that are objects of fields: times with zones, parts of dates, periods, locales and addresses.

They are the texts of ``toString``. Kryo 5 does not write the offset of a time in a region, so its text has none. The
text of an address is its host and port. Of Scala's ``FiniteDuration`` a duration remains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.flink.columns.faults import Wrong
from statestore.formats.flink.columns.kryo_leaf_columns import TEXTS, days, kinds_of, plain_texts
from statestore.formats.flink.columns.kryo_tapes import Tape
from statestore.formats.flink.columns.time_texts import date_time_texts, time_texts
from statestore.formats.flink.layouts.kryo_classes import CONSTANTS
from statestore.formats.kernels import kryo_forms as forms
from statestore.formats.kernels.arrays import Bools, Bytes, Ints

_MOST_PORT = 65535
_IS_TEXT = np.isin(np.arange(forms.MOST_TAGS), TEXTS)
_ROUNDING = 4
_UNIT_NANOS: Ints = np.array([1, 10**3, 10**6, 10**9, 60 * 10**9, 3600 * 10**9, 86400 * 10**9])
_MOST_OFFSET = 18 * 3600
_MOST_YEAR = 999_999_999
_SECOND = 1_000_000_000
_TURNED = (forms.OFFSET_TIME, forms.PERIOD, forms.YEAR_MONTH, forms.MONTH_DAY)
"""The objects of which Kryo 2 has the fields, in the order of their names, in the reverse of the order in the text."""


def with_texts(tape: Tape, is_old: bool) -> Tape:
    """The tape with a text in place of each object of fields; ``is_old``: Kryo 2 wrote it.

    Raises Wrong for fields that no such object has.
    """
    outer = np.flatnonzero(tape.tag >= forms.FIRST_OF_FIELDS)
    if not len(outer):
        return tape
    if (tape.tag[tape.roots] >= forms.FIRST_OF_FIELDS).all():
        kept = wanted = tape.roots  # all else is inside
        parent, behind = np.full(len(kept), -1), np.arange(1, len(kept) + 1)
        roots = behind - 1
    else:
        edges = np.bincount(outer + 1, minlength=len(tape.tag) + 1) - np.bincount(
            tape.behind[outer], minlength=len(tape.tag) + 1
        )
        inside = np.cumsum(edges)[:-1] > 0
        wanted = outer[~inside[outer]]
        kept = np.flatnonzero(~inside)
        place = np.append(0, np.cumsum(~inside))  # of each entry and the one behind the last, among those that are kept
        parent = tape.parent[kept]
        parent = np.where(parent < 0, parent, place[parent])
        behind, roots = place[tape.behind[kept]], place[tape.roots]
    tag, value, more, data = tape.tag.copy(), tape.value.copy(), tape.more.copy(), [tape.data]
    base, kinds = len(tape.data), tape.tag[wanted]
    for kind in kinds_of(kinds):
        rows = wanted[kinds == kind]
        if kind == forms.FINITE_DURATION:
            nanos = _nanos(tape, *_fields(tape, rows))
            tag[rows], value[rows], more[rows] = forms.DURATION, nanos // _SECOND, nanos % _SECOND
        elif kind == forms.CALENDAR:
            tag[rows], value[rows] = forms.MILLIS, tape.value[_fields(tape, rows)[1]]
        elif kind == forms.BIG_INT:
            numbers = value[rows].astype(">i8").view(np.uint8)
            tag[rows], value[rows], more[rows] = forms.BIG_INTEGER, base + np.arange(0, len(numbers), 8), 8
            data.append(numbers)
            base += len(numbers)
        else:
            cells = cells_of(_texts(tape, rows, kind, is_old))
            tag[rows], value[rows], more[rows] = forms.UTF_TEXT, base + cells.start, cells.size
            data.append(cells.data)
            base += len(cells.data)
    return replace(
        tape, data=np.concatenate(data) if len(data) > 1 else tape.data, tag=tag[kept], value=value[kept],
        more=more[kept], parent=parent, behind=behind, roots=roots,
    )  # fmt: skip


def _fields(tape: Tape, rows: Ints) -> list[Ints]:
    """The entries of each field, in the order of the bytes; ``rows`` are objects of one kind."""
    if not len(rows):
        return []
    found = [rows + 1]
    while int(tape.behind[found[-1][0]]) < int(tape.behind[rows[0]]):
        found.append(tape.behind[found[-1]])
    return found


def _texts(tape: Tape, rows: Ints, kind: int, is_old: bool) -> pa.Array:
    fields = _fields(tape, rows)
    turned = kind in _TURNED and is_old
    return _TEXTS[kind](tape, *(fields[::-1] if turned else fields))


def _check(right: Bools) -> None:
    if not right.all():
        raise Wrong("fields that no such object has", "an object of Kryo")


def _in_bounds(value: Ints, least: int, most: int) -> Ints:
    _check((value >= least) & (value <= most))
    return value


def _strings(tape: Tape, rows: Ints, *, or_null: bool = False) -> pa.Array:
    """Texts of which none is null, or empty ones in place of nulls."""
    tags = tape.tag[rows]
    _check(_IS_TEXT[tags] | (or_null & (tags == forms.NULL)))
    return plain_texts(tape, rows)


def _joined(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _number(value: Ints, width: int = 1) -> pa.Array:
    """Numbers of at least ``width`` digits."""
    if width == 1:
        return pa.array(value).cast(pa.string())
    digits = pc.utf8_lpad(pa.array(np.abs(value)).cast(pa.string()), width, "0")
    return pc.if_else(pa.array(value < 0), _joined("-", digits), digits)


def _date_times(tape: Tape, rows: Ints) -> pa.Array:
    _check(tape.tag[rows] == forms.LOCAL_DATE_TIME)
    return date_time_texts(days(tape.value[rows]), tape.more[rows])


def _offsets(tape: Tape, rows: Ints) -> pa.Array:
    """Offsets in seconds, which stand in an object of their own in Kryo 2."""
    if len(rows) and (tape.tag[rows] == forms.ZONE_OFFSET).all():
        (rows,) = _fields(tape, rows)
    _check(tape.tag[rows] == forms.INT)
    seconds = _in_bounds(tape.value[rows], -_MOST_OFFSET, _MOST_OFFSET)
    whole = np.abs(seconds)
    sign = pc.if_else(pa.array(seconds < 0), "-", "+")
    short = _joined(sign, _number(whole // 3600, 2), ":", _number(whole // 60 % 60, 2))
    long = _joined(short, ":", _number(whole % 60, 2))
    return pc.if_else(pa.array(whole == 0), "Z", pc.if_else(pa.array(whole % 60 == 0), short, long))


def _zoned(tape: Tape, date_time: Ints, *zone: Ints) -> pa.Array:
    front = _date_times(tape, date_time)
    if len(zone) == 1:  # Kryo 5: the ID alone, which is the offset itself where the zone is one
        ids = _strings(tape, zone[0])
        is_offset = pc.match_substring_regex(ids, r"^(Z$|[+-])")
        return _joined(front, pc.if_else(is_offset, ids, _joined("[", ids, "]")))
    offset, region = zone
    kinds = tape.tag[region]
    _check((kinds == forms.ZONE) | (kinds == forms.ZONE_OFFSET))
    behind = np.full(len(region), "", object)
    named = kinds == forms.ZONE
    if named.any():
        (ids,) = _fields(tape, region[named])
        behind[named] = _joined("[", _strings(tape, ids), "]").to_numpy(zero_copy_only=False)
    return _joined(front, _offsets(tape, offset), pa.array(behind, pa.string()))


def _offset_date_time(tape: Tape, date_time: Ints, offset: Ints) -> pa.Array:
    return _joined(_date_times(tape, date_time), _offsets(tape, offset))


def _offset_time(tape: Tape, time: Ints, offset: Ints) -> pa.Array:
    _check(tape.tag[time] == forms.LOCAL_TIME)
    return _joined(time_texts(tape.more[time]), _offsets(tape, offset))


def _period(tape: Tape, *numbers: Ints) -> pa.Array:
    parts = [
        pc.if_else(pa.array(value != 0), _joined(_number(value), unit), "")
        for value, unit in zip((tape.value[each] for each in numbers), "YMD", strict=True)
    ]
    found = _joined("P", *parts)
    return pc.if_else(pc.equal(found, "P"), "P0D", found)


def _year(tape: Tape, year: Ints) -> pa.Array:
    return _number(_in_bounds(tape.value[year], -_MOST_YEAR, _MOST_YEAR))


def _year_month(tape: Tape, year: Ints, month: Ints) -> pa.Array:
    years = _in_bounds(tape.value[year], -_MOST_YEAR, _MOST_YEAR)
    return _joined(_number(years, 4), "-", _number(_in_bounds(tape.value[month], 1, 12), 2))


def _month_day(tape: Tape, month: Ints, day: Ints) -> pa.Array:
    months, found = (_in_bounds(tape.value[each], 1, most) for each, most in ((month, 12), (day, 31)))
    return _joined("--", _number(months, 2), "-", _number(found, 2))


def _locale(tape: Tape, *parts: Ints) -> pa.Array:
    """Return language_COUNTRY_variant. A variant alone is not shown, as in ``Locale.toString``."""
    language, country, variant = (_strings(tape, each) for each in parts)
    no_language, no_country, no_variant = (pc.equal(each, "") for each in (language, country, variant))
    alone = pc.and_(no_language, no_country)
    short = pc.if_else(pc.and_(no_country, pc.or_(no_variant, no_language)), language, _joined(language, "_", country))
    return pc.if_else(pc.or_(no_variant, alone), short, _joined(short, "_", variant))


def _address(tape: Tape, host: Ints, port: Ints) -> pa.Array:
    ports = _in_bounds(tape.value[port], 0, _MOST_PORT)
    if (tape.tag[host] == forms.TEXT).all():
        octets, offsets = _front_of_ports(tape, host, ports)
        if (octets == ord(":")).sum() == len(host):
            ends = pa.py_buffer(offsets.astype(np.int32))
            return pa.Array.from_buffers(pa.string(), len(host), [None, ends, pa.py_buffer(octets)])
    hosts = _strings(tape, host)
    whole = pc.if_else(pc.match_substring(hosts, ":"), _joined("[", hosts, "]"), hosts)
    return _joined(whole, ":", _number(ports))


def _front_of_ports(tape: Tape, host: Ints, ports: Ints) -> tuple[Bytes, Ints]:
    """Hosts in ASCII, each with a colon and its port behind it: the octets, and where each begins."""
    behind = np.full((len(ports), 6), ord(":"), np.uint8)
    sizes, left = np.full(len(ports), 2), ports
    for place in range(5, 0, -1):
        if place < 5:
            sizes += left > 0
        left, digits = np.divmod(left, 10)
        behind[:, place] = digits + ord("0")
    rows = np.arange(len(ports))
    behind[rows, 6 - sizes] = ord(":")
    start, size = np.empty((2, 2 * len(ports)), np.int64)
    start[0::2], size[0::2] = tape.value[host], tape.more[host]
    start[1::2], size[1::2] = len(tape.data) + 6 * rows + 6 - sizes, sizes
    octets, offsets = Cells(np.concatenate([tape.data, behind.reshape(-1)]), start, size).content()
    octets[offsets[1::2] - 1] &= 0x7F  # the last byte of a host has a bit more, which marks its end
    return octets, offsets[0::2]


def _nanos(tape: Tape, length: Ints, *parts: Ints) -> Ints:
    """Nanoseconds of durations, which Scala keeps within 64 bits. Kryo 5 has a 1 in front of the unit."""
    *front, unit = parts
    for each in front:
        _check(tape.value[each] == 1)
    _check((tape.tag[unit] == forms.CONSTANT) & (tape.value[unit] < len(_UNIT_NANOS)))
    count, nanos = tape.value[length], _UNIT_NANOS[tape.value[unit]]
    most = (2**63 - 1) // nanos
    _check((count >= -most) & (count <= most))
    return count * nanos


def _context(tape: Tape, precision: Ints, *parts: Ints) -> pa.Array:
    """Return the precision and the rounding. Kryo 5 has a 1 in front of the constant."""
    *_, rounding = parts
    names = pa.array(CONSTANTS[_ROUNDING])
    _check((tape.tag[rounding] == forms.CONSTANT) & (tape.value[rounding] < len(names)))
    shown = _number(_in_bounds(tape.value[precision], 0, 2**31 - 1))
    return _joined("precision=", shown, " roundingMode=", names.take(pa.array(tape.value[rounding])))


def _url(
    tape: Tape, server: Ints, file: Ints, code: Ints, host: Ints, port: Ints, protocol: Ints, ref: Ints
) -> pa.Array:
    """Return protocol://server/file#ref, of which the server and the last part may be missing."""
    _check((tape.tag[code] == forms.INT) & (tape.tag[port] == forms.INT))
    servers, _, refs = (_strings(tape, each, or_null=True) for each in (server, host, ref))
    front = pc.if_else(pc.equal(servers, ""), "", _joined("//", servers))
    behind = pc.if_else(pa.array(tape.tag[ref] == forms.NULL), "", _joined("#", refs))
    return _joined(_strings(tape, protocol), ":", front, _strings(tape, file), behind)


_TEXTS: Mapping[int, Callable[..., pa.Array]] = {
    forms.ZONE_OFFSET: _offsets,
    forms.ZONE: _strings,
    forms.ZONED_DATE_TIME: _zoned,
    forms.OFFSET_DATE_TIME: _offset_date_time,
    forms.OFFSET_TIME: _offset_time,
    forms.PERIOD: _period,
    forms.YEAR: _year,
    forms.YEAR_MONTH: _year_month,
    forms.MONTH_DAY: _month_day,
    forms.LOCALE: _locale,
    forms.ADDRESS: _address,
    forms.MATH_CONTEXT: _context,
    forms.URL: _url,
}
"""The texts for the entries of the fields, those of Kryo 2 in the order that Kryo 5 has."""
