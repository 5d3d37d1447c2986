"""Keys as text, typed on a command line or copied from the output of ``--json``, as values of columns.

In JSON, times are ISO-8601 with a zone or epoch milliseconds, binary is base64, decimals may be texts, and NaN and the
infinities are texts. A struct must name each of its fields, so that none is null by mistake. A struct of a single field
may also be given as the text of that field.

Binary that is typed alone is the UTF-8 of its text, or ``base64:…`` (as tables show it) or ``hex:…``; where it is a key
that is looked for, also the base64 itself (as CSV shows it). In a text that is
typed alone, ``\\x1b``, ``\\n`` and the like may be what they say, or the character that a table shows so.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.reads.arguments import as_key
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.canonical import ErrorPath, canonical, nullable
from statestore.formats.values.filters import Filter
from statestore.formats.values.times import parse_instant, to_datetime

_ROLES = {ErrorCode.WRONG_KEY: "key", ErrorCode.WRONG_VALUE: "value"}
_DURATION = re.compile(r"(?:(-?[0-9]+) days?, )?([0-9]+):([0-9]{2}):([0-9]{2})(?:\.([0-9]{6}))?")  # as tables show it
_CLOCK = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?")
_FINER = re.compile(r":[0-9]{2}\.[0-9]{6}([0-9]+)")  # digits of a second after those of the microsecond
BASE64, HEX = "base64:", "hex:"
_ESCAPE = re.compile(r"(\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}|\\[ntr])")  # as tables show characters
_NAMED = {"n": "\n", "t": "\t", "r": "\r"}
MANY_ESCAPES = 6  # in a text, of which any may be meant; of more, all or none
_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def key_filters(table: StateTable, text: str, partial: bool = False) -> tuple[Filter, ...]:
    """Filters for equality on the columns of a key, or on one of the longer lists in `lookup_columns`.

    A single column takes its text as it is, or like several columns a JSON object. With ``partial`` the object may have
    the first columns only, and the filters then hold for the rows of all keys that begin so.

    Raises InvalidInputError WRONG_KEY, naming the column, what was found and what was expected.
    """
    schema = table.schema(Query())
    if not table.key_columns:
        raise InvalidInputError(ErrorCode.WRONG_KEY, f"{table.name} has no key; ask for it with: statestore sql")
    choices = table.lookup_columns
    try:
        cells = _json(text)
    except ValueError:
        cells = None
    begun = [choices[0][:count] for count in range(1, len(choices[0]))] if partial else []
    known = [*(names for names in choices if len(names) > 1 or _is_named(schema.field(names[0]))), *begun]
    several = [names for names in known if isinstance(cells, dict) and set(cells) == set(names)]
    if several:
        return tuple(Filter(name, "=", _checked(cells[name], schema.field(name), of_json)) for name in several[0])
    if len(choices[0]) == 1:
        (name,) = choices[0]
        readings = readings_of(text, schema.field(name).type)
        if readings and isinstance(cells, dict) and set(cells) == {name} and isinstance(cells[name], str):
            with contextlib.suppress(ValueError):  # it may be the object in which JSON lines show the key
                readings = (*readings, of_json(cells[name], schema.field(name).type))
        if len(readings) > 1:
            return (Filter(name, "in", tuple(dict.fromkeys(readings))),)
        return (Filter(name, "=", _checked(text, schema.field(name), of_text)),)
    expected = "; or ".join(", ".join(names) for names in choices)
    raise InvalidInputError(
        ErrorCode.WRONG_KEY, f"key {text!r} of {table.name!r}: expected a JSON object with {expected}"
    )


def _is_named(field: pa.Field) -> bool:
    """Return whether a JSON object with the name of a single column can be no value of the column itself."""
    kind = field.type
    is_own = pa.types.is_struct(kind) and [each.name for each in kind] == [field.name]
    return not (is_own or pa.types.is_string(kind) or is_binary(kind))


def asked_key(table: StateTable, text: str, partial: bool = False) -> tuple[Filter, ...]:
    """Return the filters of `key_filters` with equality as the table's engine compares keys."""
    return as_key(table, table.schema(Query()), key_filters(table, text, partial))


def cells_of(schema: pa.Schema, text: str, code: ErrorCode) -> dict[str, Any]:
    """Return the cells of columns: a single column takes its text as it is, several take a JSON object.

    Raises InvalidInputError with ``code``.
    """
    if len(schema) == 1:
        return {schema.names[0]: _checked(text, schema.field(0), of_text, code)}
    try:
        cells = _json(text)
    except ValueError:
        cells = None
    if not isinstance(cells, dict) or set(cells) != set(schema.names):
        raise InvalidInputError(
            code, f"{_ROLES[code]}: found {text!r}; expected a JSON object with {', '.join(schema.names)}"
        )
    return {name: _checked(cells[name], schema.field(name), of_json, code) for name in schema.names}


def _checked(value: Any, field: pa.Field, read: Any, code: ErrorCode = ErrorCode.WRONG_KEY) -> Any:
    error_path = ErrorPath(code, field.name, field.type)
    try:
        cell = read(value, field.type)
        nullable(canonical(error_path))(cell)
    except StateStoreError as error:
        raise InvalidInputError(code, error.message) from error
    except (ArithmeticError, ValueError, TypeError, pa.ArrowException) as error:
        raise InvalidInputError(
            code, f"{_ROLES[code]} column {field.name!r}: found {value!r}, expected {field.type} ({error})"
        ) from error
    return cell


def of_text(text: str, kind: pa.DataType) -> Any:
    """Convert a bare text to a value of a type. Raises ValueError or a similar error if it is not one."""
    if pa.types.is_string(kind):
        return text
    if pa.types.is_struct(kind):
        return _struct_of_text(text, kind)
    if pa.types.is_nested(kind):
        return of_json(_json(text), kind)
    if pa.types.is_timestamp(kind):
        return _time(text, kind)
    if is_binary(kind):
        coded = _coded(text)
        return text.encode() if coded is None else coded
    return _scalar_of_text(text, kind)


def of_json(value: Any, kind: pa.DataType) -> Any:
    """Convert a value from JSON to a value of a type; errors as `of_text`."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return _struct(value, kind)
    if pa.types.is_map(kind):
        return [(of_json(key, kind.key_type), of_json(item, kind.item_type)) for key, item in _list(value)]
    if pa.types.is_list(kind):
        return [of_json(item, kind.value_type) for item in _list(value)]
    if pa.types.is_timestamp(kind) and isinstance(value, str | int):
        return _time(str(value), kind)
    if pa.types.is_date(kind) and isinstance(value, str):
        return date.fromisoformat(value)
    if is_binary(kind) and isinstance(value, str):
        coded = _coded(value)
        return _bytes_of_base64(value) if coded is None else coded
    if pa.types.is_decimal(kind) and not isinstance(value, bool):
        return Decimal(str(value))
    if pa.types.is_floating(kind) and isinstance(value, str):
        return _NUMBERS[value] if value in _NUMBERS else float(value)
    if isinstance(value, str) and not pa.types.is_string(kind):
        return _scalar_of_text(value, kind)
    return value


def readings_of(text: str, kind: pa.DataType) -> tuple[Any, ...]:
    """Return the values of a column of texts or binary that are shown as a text; () for other columns, and for binary
    with its own mark.

    Binary is shown as base64 in CSV and by the explorer, and may be the UTF-8 of the text, too.
    """
    if pa.types.is_string(kind):
        return _text_readings(text)
    if not is_binary(kind) or text.startswith((BASE64, HEX)):
        return ()
    try:
        return text.encode(), base64.b64decode(text, validate=True)
    except ValueError:
        return (text.encode(),)


def _text_readings(text: str) -> tuple[str, ...]:
    """Return the texts that a table shows as this one: it, and those with characters in place of their escapes."""
    found: list[str] = []
    pieces = _ESCAPE.split(text)
    escapes = pieces[1::2]
    marks = itertools.product((False, True), repeat=len(escapes)) if len(escapes) <= MANY_ESCAPES else ()
    for chosen in (*marks, (False,) * len(escapes), (True,) * len(escapes)):
        named = (
            _NAMED.get(e[1:]) or chr(int(e[2:], 16)) if taken else e for e, taken in zip(escapes, chosen, strict=True)
        )
        try:
            read = "".join(itertools.chain.from_iterable(itertools.zip_longest(pieces[::2], named, fillvalue="")))
            read.encode()  # no half of a surrogate pair
        except (ValueError, OverflowError):
            continue
        found.append(read)
    return tuple(dict.fromkeys(found))


def _scalar_of_text(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_time(kind):
        return _clock(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_duration(kind) and (found := _DURATION.fullmatch(text)):
        days, hours, minutes, seconds, us = (int(part or 0) for part in found.groups())
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, microseconds=us)
    return pa.scalar(text).cast(kind).as_py()


def is_binary(kind: pa.DataType) -> bool:
    """Return whether a type is one of bytes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _coded(text: str) -> bytes | None:
    """The bytes of a text like base64:AP8= or hex:00ff; None for another text. Raises ValueError for a wrong code."""
    if text.startswith(BASE64):
        return _bytes_of_base64(text.removeprefix(BASE64))
    if text.startswith(HEX):
        return bytes.fromhex(text.removeprefix(HEX))
    return None


def _bytes_of_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError(f"{error}; binary is base64 in JSON, or base64:… or hex:…") from error


def _struct_of_text(text: str, kind: pa.StructType) -> Any:
    try:
        parsed = _json(text)
    except json.JSONDecodeError:
        parsed = text
    if isinstance(parsed, dict):
        return _struct(parsed, kind)
    if kind.num_fields == 1:
        return {kind.field(0).name: of_text(text, kind.field(0).type)}
    raise ValueError(f"expected a JSON object with {_names(kind)}")


def _struct(value: Any, kind: pa.StructType) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != {field.name for field in kind}:
        raise ValueError(f"found {value!r}, expected a JSON object with {_names(kind)}; a null is written as null")
    return {field.name: of_json(value[field.name], field.type) for field in kind}


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"found {value!r}, expected a JSON array")
    return value


def _time(text: str, kind: pa.TimestampType) -> datetime | np.datetime64:
    """Return a moment; one of numpy in UTC where the type has nanoseconds, and the text has some.

    Digits after those of the microsecond are cut off for other types, as everywhere in texts with times. Raises
    ValueError for a text that is finer than nanoseconds.
    """
    if kind.tz is None:
        cell = pa.scalar(text).cast(kind)
        return np.datetime64(cell.value, "ns") if kind.unit == "ns" else cell.as_py()
    moment = parse_instant(text, "time")
    further = _FINER.search(text)
    if kind.unit != "ns" or further is None or not int(further[1]):
        return to_datetime(moment)
    if int(further[1][3:] or 0):
        raise ValueError("finer than nanoseconds")
    return np.datetime64(moment * 1000 + int(f"{further[1]:0<3}"[:3]), "ns")


def _clock(text: str) -> time | np.timedelta64:
    """Return a time of day; where it has nanoseconds, those since midnight."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise ValueError("expected a time like 09:30:15.5")
    hour, minute, second, fraction = (part or "0" for part in found.groups())
    at = time(int(hour), int(minute), int(second))
    nanoseconds = int(f"{fraction:0<9}")
    if nanoseconds % 1000 == 0:
        return at.replace(microsecond=nanoseconds // 1000)
    return np.timedelta64(((at.hour * 60 + at.minute) * 60 + at.second) * 10**9 + nanoseconds, "ns")


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a name is given twice")
    return fields


def _names(kind: pa.StructType) -> str:
    return ", ".join(field.name for field in kind)
