"""The types that are stored as one number: the number for each canonical value, and its size in bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.serdes.row_errors import corrupt

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_EXACT = Context(prec=76)
_FORMS = {1: "b", 2: "h", 4: "i", 8: "q"}


@dataclass(frozen=True)
class Number:
    """The form of a stored number: ``size`` bytes, with a ``form`` of the struct module up to 8 of them.

    ``to`` converts a canonical value to the number that is packed: an int, or the float of a float column. ``back``
    raises CorruptError ROW_CORRUPT for a number without a value, UnsupportedError TIME_OUT_OF_RANGE for a time that
    columns can hold but Python cannot.
    """

    size: int
    form: str | None
    to: Callable[[Any], Any]
    back: Callable[[Any], Any]


def number_bytes(kind: pa.DataType) -> int:
    """Size in bytes of a type that is stored as one number, 0 for other types."""
    types = pa.types
    if types.is_boolean(kind):
        return 1
    if types.is_signed_integer(kind) or types.is_floating(kind) or types.is_date32(kind):
        return int(kind.bit_width // 8)
    if types.is_timestamp(kind) or types.is_duration(kind):
        return 8
    return 16 if types.is_decimal128(kind) else 0


def as_number(kind: pa.DataType) -> Number:
    """The stored form of a type with ``number_bytes``."""
    types, size = pa.types, number_bytes(kind)
    form = _FORMS.get(size)
    if types.is_boolean(kind):
        return Number(1, "B", bool, _boolean)
    if types.is_signed_integer(kind):
        return Number(size, form, int, int)
    if types.is_floating(kind):
        return Number(size, "f" if size == 4 else "d", float, float)
    if types.is_date32(kind):
        return Number(size, form, lambda day: day.toordinal() - _EPOCH_DAY, _date)
    if types.is_timestamp(kind):
        epoch = datetime(1970, 1, 1, tzinfo=UTC if kind.tz else None)
        return Number(size, form, lambda time: (time - epoch) // _MICROSECOND, _datetime(epoch))
    if types.is_duration(kind):
        return Number(size, form, lambda span: span // _MICROSECOND, lambda us: timedelta(microseconds=us))
    return Number(size, None, *_unscaled(kind))


def _boolean(stored: int) -> bool:
    if stored != 0 and stored != 1:
        raise corrupt(f"a boolean is {stored}, expected 0 or 1")
    return stored == 1


def _date(days: int) -> date:
    try:
        return date.fromordinal(days + _EPOCH_DAY)
    except (ValueError, OverflowError):
        raise _no_time(f"{days} days") from None


def _datetime(epoch: datetime) -> Callable[[int], datetime]:
    def back(us: int) -> datetime:
        try:
            return epoch + timedelta(microseconds=us)
        except OverflowError:
            raise _no_time(f"{us} microseconds") from None

    return back


def _no_time(since: str) -> UnsupportedError:
    return UnsupportedError(
        ErrorCode.TIME_OUT_OF_RANGE,
        f"a stored time is {since} from 1970, outside the years 1 to 9999 that Python holds; read it with scan()",
    )


def _unscaled(kind: pa.DataType) -> tuple[Callable[[Decimal], int], Callable[[int], Decimal]]:
    scale, limit = Decimal(kind.scale), 10**kind.precision
    scaleb, down = _EXACT.scaleb, -scale

    def back(unscaled: int) -> Decimal:
        if not -limit < unscaled < limit:
            raise corrupt(f"{unscaled} in a column of {kind}, which holds fewer digits")
        return scaleb(Decimal(unscaled), down)

    return lambda value: int(scaleb(value, scale)), back
