"""Canonical values: the one Python value that stands for each Arrow value of a type.

=================  ==========================================================================
type               canonical value (equal exactly if the Arrow values are)
=================  ==========================================================================
integers           int
boolean            bool
string             str without lone surrogates
binary             bytes
float, double      float; every NaN is ``math.nan`` itself, a float is rounded to 32 bits
decimal(p, s)      Decimal with s digits after the point, never -0
date               date
timestamp          datetime in ``datetime.UTC``
timestamp_ntz      datetime without a zone
timestamp in ns    the same, or a numpy.datetime64 in UTC where it has nanoseconds
time               time without a zone
time in ns         the same, or a numpy.timedelta64 since midnight where it has nanoseconds
duration           timedelta
struct             tuple in field order
list               tuple
map                tuple of (key, value) tuples, in the order given
=================  ==========================================================================

All are hashable; null is None. ``canonical`` returns functions that accept the objects of users (numpy scalars, pandas
timestamps, aware datetimes of any zone, rows with named fields). They refuse values that would have to be guessed
or that would lose digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, shown

Convert = Callable[[Any], Any]

_INTEGERS = (int, np.integer)
_float32 = Struct("<f")
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class ErrorPath:
    """The path and type of a value, for an error about it."""

    code: ErrorCode
    path: str
    kind: pa.DataType

    def inside(self, step: str, kind: pa.DataType) -> ErrorPath:
        return ErrorPath(self.code, self.path + step, kind)

    def wrong(self, value: object, why: str = "") -> InvalidInputError:
        what = f"{type(value).__name__} {shown(value, 80)}"
        return InvalidInputError(
            self.code, f"Column {self.path!r}: found {what}, expected {self.kind}{why and '; '}{why}."
        )


def canonical(error_path: ErrorPath) -> Convert:
    """A function that converts a user's value to the canonical one of ``error_path.kind``.

    It raises InvalidInputError with ``error_path.code``, also for None; see ``nullable``. Raises UnsupportedError
    UNSUPPORTED_TYPE for a type that no column has.
    """
    types, kind = pa.types, error_path.kind
    for is_kind, make in (
        (types.is_string, _string),
        (types.is_signed_integer, _integer),
        (types.is_binary, _binary),
        (types.is_boolean, _boolean),
        (types.is_floating, _floating),
        (types.is_decimal128, _decimal),
        (types.is_date32, _date),
        (types.is_timestamp, _timestamp),
        (types.is_time, _time),
        (types.is_duration, _duration),
        (types.is_struct, _struct),
        (types.is_list, _list),
        (types.is_map, _map),
        (types.is_null, _null),
    ):
        if is_kind(kind):
            return make(error_path)
    raise UnsupportedError(
        ErrorCode.UNSUPPORTED_TYPE, f"Column {error_path.path!r} has type {kind}, which no column can have."
    )


def of_scalars(value: Any, depth: int = 16) -> Any:
    """Return the value of a scalar of Arrow, also inside plain tuples, lists and dicts; anything else as it is, and a
    time that Python does not have."""
    if isinstance(value, pa.Scalar):
        try:
            return value.as_py()
        except (ValueError, OverflowError):
            return value
    if depth and type(value) in (tuple, list):
        return type(value)(of_scalars(each, depth - 1) for each in value)
    if depth and type(value) is dict:
        return {name: of_scalars(each, depth - 1) for name, each in value.items()}
    return value


def nullable(convert: Convert) -> Convert:
    """A function like that of ``canonical`` that returns None for None."""
    return lambda value: None if value is None else convert(value)


def _null(error_path: ErrorPath) -> Convert:
    """Engines have columns that only hold null, such as the key of Spark's global limit."""

    def convert(value: Any) -> None:
        raise error_path.wrong(value, "the type has no value but null")

    return convert


def _string(error_path: ErrorPath) -> Convert:
    def convert(value: Any) -> str:
        if type(value) is str and value.isascii():
            return value
        if not isinstance(value, str):
            raise error_path.wrong(value)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise error_path.wrong(value, "a lone surrogate has no UTF-8 form") from None
        return str.__str__(value)  # a plain str, also for a member of an Enum

    return convert


def _integer(error_path: ErrorPath) -> Convert:
    high = (1 << (error_path.kind.bit_width - 1)) - 1
    low = -high - 1

    def convert(value: Any) -> int:
        if type(value) is int and low <= value <= high:
            return value
        if not isinstance(value, _INTEGERS) or isinstance(value, bool):
            raise error_path.wrong(value)
        number = int(value)
        if not low <= number <= high:
            raise error_path.wrong(value, f"the type holds {low} to {high}")
        return number

    return convert


def _binary(error_path: ErrorPath) -> Convert:
    def convert(value: Any) -> bytes:
        if type(value) is bytes:
            return value
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise error_path.wrong(value)
        return bytes(value)

    return convert


def _boolean(error_path: ErrorPath) -> Convert:
    def convert(value: Any) -> bool:
        if not isinstance(value, (bool, np.bool_)):
            raise error_path.wrong(value)
        return bool(value)

    return convert


def _floating(error_path: ErrorPath) -> Convert:
    narrow = error_path.kind.bit_width == 32

    def convert(value: Any) -> float:
        if type(value) is not float:
            value = _float_of(error_path, value)
        if value != value:
            return math.nan
        return _rounded(error_path, value) if narrow else value

    return convert


def _float_of(error_path: ErrorPath, value: Any) -> float:
    if isinstance(value, (float, np.float32, np.float16)):
        return float(value)
    if not isinstance(value, _INTEGERS) or isinstance(value, bool):
        raise error_path.wrong(value)
    try:
        number = float(value)
    except OverflowError:
        raise error_path.wrong(value, "too large") from None
    if number != int(value):
        raise error_path.wrong(value, "an integer that has no exact floating-point form; write it as a float")
    return number


def _rounded(error_path: ErrorPath, value: float) -> float:
    try:
        return float(_float32.unpack(_float32.pack(value))[0])
    except OverflowError:
        raise error_path.wrong(value, "too large for 32 bits") from None


def _decimal(error_path: ErrorPath) -> Convert:
    quantum = Decimal(1).scaleb(-error_path.kind.scale)
    exact = Context(prec=error_path.kind.precision, traps=[Inexact, InvalidOperation])

    def convert(value: Any) -> Decimal:
        if isinstance(value, _INTEGERS) and not isinstance(value, bool):
            value = Decimal(int(value))
        if not isinstance(value, Decimal):
            raise error_path.wrong(value, "write a Decimal or an int")
        if not value.is_finite():
            raise error_path.wrong(value)
        try:
            number = exact.quantize(value, quantum)
        except (Inexact, InvalidOperation):
            raise error_path.wrong(value, "it has more digits than the type") from None
        return number if number else number.copy_abs()

    return convert


def _date(error_path: ErrorPath) -> Convert:
    def convert(value: Any) -> date:
        if type(value) is date:
            return value
        if isinstance(value, np.datetime64) and np.datetime_data(value)[0] == "D":
            value = value.item()
        if not isinstance(value, date) or isinstance(value, datetime):
            raise error_path.wrong(value)
        return date(value.year, value.month, value.day)

    return convert


def _timestamp(error_path: ErrorPath) -> Convert:
    return _aware(error_path) if error_path.kind.tz else _naive(error_path)


def _fine(error_path: ErrorPath, value: Any) -> np.datetime64 | None:
    """The moment of a value that has nanoseconds, for a column that has them; None of any other value."""
    if error_path.kind.unit != "ns":
        return None
    if isinstance(value, np.datetime64):
        moment: np.datetime64 = value.astype("M8[ns]")
        if moment.astype(value.dtype) != value or moment.astype("M8[us]") == moment:
            return None
        return moment
    if not getattr(value, "nanosecond", 0) or (value.tzinfo is None) != (error_path.kind.tz is None):
        return None
    found: np.datetime64 = value.to_datetime64().astype("M8[ns]")  # of pandas, in UTC
    return found


def _time(error_path: ErrorPath) -> Convert:
    step = {"s": 1_000_000, "ms": 1_000}.get(error_path.kind.unit, 1)

    def convert(value: Any) -> time | np.timedelta64:
        if isinstance(value, np.timedelta64) and error_path.kind.unit == "ns":
            value = _time_of_day(value)
            if isinstance(value, np.timedelta64):
                return value
        if not isinstance(value, time) or value.tzinfo is not None:
            raise error_path.wrong(value, "write a datetime.time without a zone")
        if value.microsecond % step:
            raise error_path.wrong(value, "finer than the type")
        return value if not value.fold else value.replace(fold=0)

    return convert


def _time_of_day(value: np.timedelta64) -> time | np.timedelta64 | None:
    """Return the time so long after midnight, None for one on another day."""
    micros = value.astype("m8[us]")
    if not np.timedelta64(0, "us") <= micros < np.timedelta64(1, "D"):
        return None
    since: np.timedelta64 = value.astype("m8[ns]")
    return (datetime.min + micros.item()).time() if micros == value else since


def _aware(error_path: ErrorPath) -> Convert:
    def convert(value: Any) -> datetime | np.datetime64:
        fine = _fine(error_path, value)
        if fine is not None:
            return fine
        moment: datetime = value if type(value) is datetime else _plain_datetime(error_path, value)
        if moment.tzinfo is UTC and not moment.fold:
            return moment
        if moment.utcoffset() is None:
            raise error_path.wrong(value, "a datetime without a time zone; write .replace(tzinfo=…)")
        try:
            return moment.astimezone(UTC)
        except OverflowError:
            raise error_path.wrong(value, "outside the years 1 to 9999 in UTC") from None

    return convert


def _naive(error_path: ErrorPath) -> Convert:
    def convert(value: Any) -> datetime | np.datetime64:
        fine = _fine(error_path, value)
        if fine is not None:
            return fine
        moment: datetime = value if type(value) is datetime else _plain_datetime(error_path, value)
        if moment.tzinfo is not None:
            raise error_path.wrong(value, "a datetime with a time zone; write .replace(tzinfo=None)")
        return moment if not moment.fold else moment.replace(fold=0)

    return convert


def _plain_datetime(error_path: ErrorPath, value: Any) -> datetime:
    """Convert a datetime of a subclass, such as pandas' Timestamp, or of numpy to a plain one."""
    moment = value
    if isinstance(value, np.datetime64):
        try:
            micros = value.astype("M8[us]")
        except OverflowError:  # numpy 2.5 refuses values that older ones wrapped around
            raise error_path.wrong(value) from None
        if micros.astype(value.dtype) != value:
            raise error_path.wrong(value, "finer than a microsecond, or not a time")
        moment = micros.item()
    if not isinstance(moment, datetime) or moment != moment:  # pandas' NaT is a datetime that is unequal to itself
        raise error_path.wrong(value)
    if getattr(moment, "nanosecond", 0):
        raise error_path.wrong(value, "finer than a microsecond")
    return datetime.combine(moment.date(), moment.timetz())


def _duration(error_path: ErrorPath) -> Convert:
    def convert(value: Any) -> timedelta:
        if not isinstance(value, timedelta) or value != value or getattr(value, "nanoseconds", 0) != 0:
            raise error_path.wrong(value, "write a timedelta of whole microseconds")
        if not -(1 << 63) <= value // _MICROSECOND < 1 << 63:
            raise error_path.wrong(value, "too long")
        return timedelta(value.days, value.seconds, value.microseconds)

    return convert


def _struct(error_path: ErrorPath) -> Convert:
    fields = [error_path.kind.field(number) for number in range(error_path.kind.num_fields)]
    names = tuple(field.name for field in fields)
    converts = [nullable(canonical(error_path.inside(f".{field.name}", field.type))) for field in fields]

    def convert(value: Any) -> tuple[Any, ...]:
        members = members_of(value, names)
        if members is None:
            raise error_path.wrong(value, f"write a dict or tuple of {', '.join(names)}")
        return tuple([to(member) for to, member in zip(converts, members, strict=True)])

    return convert


def members_of(value: Any, names: tuple[str, ...]) -> tuple[Any, ...] | None:
    """The members of a dict, of a row with named fields, or of a tuple in order; None if these are not the names."""
    if type(value) is tuple:
        return value if len(value) == len(names) else None
    if isinstance(value, tuple):
        named = getattr(value, "__fields__", None) or getattr(value, "_fields", None)  # of Spark's Row, of namedtuple
        if not named:
            return value if len(value) == len(names) else None
        value = dict(zip(named, value, strict=True))
    if not isinstance(value, (dict, Mapping)) or len(value) != len(names):
        return None
    try:
        return tuple([value[name] for name in names])
    except KeyError:
        return None


def _list(error_path: ErrorPath) -> Convert:
    convert_member = nullable(canonical(error_path.inside("[]", error_path.kind.value_type)))

    def convert(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)) and not (isinstance(value, np.ndarray) and value.ndim):
            raise error_path.wrong(value, "write a list")
        return tuple([convert_member(member) for member in value])

    return convert


def _map(error_path: ErrorPath) -> Convert:
    convert_key = canonical(error_path.inside("{key}", error_path.kind.key_type))
    convert_item = nullable(canonical(error_path.inside("{value}", error_path.kind.item_type)))

    def convert(value: Any) -> tuple[tuple[Any, Any], ...]:
        if not isinstance(value, Mapping | list | tuple):
            raise error_path.wrong(value, "write a dict")
        try:
            pairs = [(key, item) for key, item in (value.items() if isinstance(value, Mapping) else value)]
        except (TypeError, ValueError):
            raise error_path.wrong(value, "write a dict, or a list of pairs") from None
        members = tuple([(convert_key(key), convert_item(item)) for key, item in pairs])
        if len({key for key, _ in members}) < len(members):
            raise error_path.wrong(value, "a map holds each key once")
        return members

    return convert


def plain(kind: pa.DataType, make_map: Callable[[Any], Any]) -> Convert | None:
    """A function from a canonical value to nested dicts and lists, or None where no conversion is needed.

    ``make_map`` makes a map from its pairs: ``list`` for Arrow, ``dict`` for users. A map's keys stay canonical in a
    dict, because a dict cannot be a key.
    """
    if pa.types.is_struct(kind):
        return _plain_struct(kind, make_map)
    if pa.types.is_list(kind):
        member = plain(kind.value_type, make_map) or _same
        return nullable(lambda value: [member(item) for item in value])
    if pa.types.is_map(kind):
        key_of = (plain(kind.key_type, list) if make_map is list else None) or _same
        item_of = plain(kind.item_type, make_map) or _same
        return nullable(lambda value: make_map((key_of(key), item_of(item)) for key, item in value))
    return None


def from_arrow(kind: pa.DataType) -> Convert | None:
    """A function from the result of Arrow's ``as_py`` to the canonical value, or None where both are equal."""
    if pa.types.is_struct(kind):
        members = [(field.name, from_arrow(field.type) or _same) for field in kind]
        return nullable(lambda value: tuple([to(value[name]) for name, to in members]))
    if pa.types.is_list(kind):
        member = from_arrow(kind.value_type) or _same
        return nullable(lambda value: tuple([member(item) for item in value]))
    if pa.types.is_map(kind):
        key_of, item_of = from_arrow(kind.key_type) or _same, from_arrow(kind.item_type) or _same
        return nullable(lambda value: tuple([(key_of(key), item_of(item)) for key, item in value]))
    return None


def _plain_struct(kind: pa.DataType, make_map: Callable[[Any], Any]) -> Convert:
    fields = [kind.field(number) for number in range(kind.num_fields)]
    members = [(field.name, plain(field.type, make_map) or _same) for field in fields]
    return nullable(lambda value: {name: to(item) for (name, to), item in zip(members, value, strict=True)})


def _same(value: Any) -> Any:
    return value
