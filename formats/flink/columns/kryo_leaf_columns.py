"""Columns of values of Kryo that have no others inside: numbers, texts, times and constants of enums."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, ends_of
from statestore.formats.flink.columns.faults import Beyond, Wrong
from statestore.formats.flink.columns.java_texts import scaled_texts, whole_texts
from statestore.formats.flink.columns.kryo_tapes import Tape
from statestore.formats.flink.columns.text_columns import modified_text_column, text_of_units
from statestore.formats.flink.columns.time_columns import days_of_dates, micros_of_millis, nanos_of
from statestore.formats.flink.layouts.kryo_classes import CONSTANTS, Enums
from statestore.formats.kernels import kryo_forms as forms
from statestore.formats.kernels.arrays import Ints

_MICROS, _NANOS, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC"), pa.timestamp("ns")
WHOLE = {forms.BYTE: pa.int8(), forms.SHORT_FORM: pa.int16(), forms.INT: pa.int32(), forms.LONG: pa.int64()}
TEXTS = (forms.TEXT, forms.UTF_TEXT, forms.EMPTY_TEXT)
MILLIS = (forms.MILLIS, forms.SQL_DATE, forms.SQL_TIME)
LEAVES: Mapping[int, pa.DataType] = {
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
_MOST_BYTES = 2**31 - 1  # of one string array
_SECONDS_OF_NANOS = 9_223_372_035
_MILLIS_OF_MICROS = 2**63 // 1000 - 1
_DAY_NANOS = 86_400_000_000_000
_PARTS = (3, 2, 1, 0) if sys.byteorder == "little" else (0, 1, 2, 3)  # of 64 bits, from the highest 16 on


def kinds_of(tags: Ints) -> list[int]:
    """The tags that there are, in order."""
    found: list[int] = np.flatnonzero(np.bincount(tags, minlength=1)).tolist()
    return found


def is_beyond(tape: Tape, rows: Ints, kind: int) -> bool:
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
    text = np.full((len(rows), 36), ord("-"), np.uint8)
    digits = _four_digits()
    for half, places in ((tape.value[rows], (0, 4, 9, 14)), (tape.more[rows], (19, 24, 28, 32))):
        parts = half.view(np.uint16).reshape(len(rows), 4)
        for number, place in enumerate(places):
            text[:, place : place + 4].view(np.uint32)[:, 0] = digits[parts[:, _PARTS[number]]]
    ends = np.arange(0, 36 * (len(rows) + 1), 36, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(text.reshape(-1))])


@cache
def _four_digits() -> npt.NDArray[np.uint32]:
    """The hexadecimal digits of each number of 16 bits, in the order of memory."""
    return hex_digits(np.arange(1 << 16, dtype=">u2").view(np.uint8).reshape(-1, 2)).view(np.uint32)[:, 0]


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
    found = names.take(pa.array(ends_of(counts)[which] + place))
    unnamed = np.flatnonzero(pc.equal(found, "").to_numpy(zero_copy_only=False))
    if len(unnamed):
        raise _no_constant(tape.enums, int(which[unnamed[0]]) - len(CONSTANTS), int(place[unnamed[0]]))
    return found


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
