"""Texts of arguments and options as names, times and points; hints where a number is meant in another way."""

from __future__ import annotations

import re
from collections.abc import Mapping

from statestore.catalog.reads.arguments import Point
from statestore.catalog.warehouse import Warehouse
from statestore.connector.terminal import say
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.values.times import format_time, parse_time

VERSION_NUMBER = re.compile(r"-?[0-9]+")
NO_VERSION = 10**10  # a greater number is a time by mistake
SECONDS_FROM = 10**8  # a greater number, of 1973 and later, is rather a time in seconds than a version
JANUARY_US = 31 * 86_400 * 10**6  # seconds of this century, read as milliseconds, are less
DECADE_US = 10 * 365 * 86_400 * 10**6


def named(warehouse: Warehouse, store: str | None) -> str:
    """Return the store that was named, or the only table. Raises InvalidInputError MISSING_OPTION."""
    if store is not None:
        return store
    names = warehouse.tables()
    if len(names) != 1:
        shown = ", ".join(names[:20]) or "none"
        raise InvalidInputError(
            ErrorCode.MISSING_OPTION, f"{warehouse.path} has {len(names)} tables, {shown}; name one behind the path"
        )
    return names[0]


def say_seconds(warehouse: Warehouse, store: str, times: Mapping[str, str | None]) -> None:
    """Print a hint for a number that is a moment of January 1970 where the times of the store lie decades later."""
    for option, text in times.items():
        if text is None:
            continue
        number, milliseconds, _ = text.strip().partition("ms")
        if not number.isdigit():
            continue
        us = parse_time(text, option)
        if us >= JANUARY_US:
            continue
        try:
            first = warehouse.summary(store).first_time
        except StateStoreError:  # a metadata table; or damage, which the read reports
            return
        if first is not None and first >= DECADE_US:
            say(
                f"{option} {text} is {format_time(us)}, and {store} begins at {format_time(first)}; numbers are "
                f"milliseconds: for seconds write {number}000{milliseconds}"
            )


def say_meant_times(warehouse: Warehouse, store: str, points: Mapping[str, str | None]) -> None:
    """Print a hint for a point whose number is a version and was meant as a time, or was meant in seconds."""
    for option, text in points.items():
        version, at, time = (text or "").strip().partition("@")
        if at or version.endswith("ms"):
            say_seconds(warehouse, store, {option: time if at else version})
        elif version.isdigit() and SECONDS_FROM <= int(version) < NO_VERSION:
            say(f"{option} {version} is a version; for a time write milliseconds like {version}000ms")


def moment(text: str | None, option: str) -> int | None:
    """A state time as epoch microseconds."""
    return None if text is None else parse_time(text, option)


def duration(text: str | None) -> int | str | None:
    """A duration as text; a number alone is milliseconds."""
    return int(text) if text is not None and text.strip().isdecimal() else text


def point(text: str, option: str) -> Point:
    """The point that --from or --to names: digits are a version, ``latest`` is the newest, anything else a state time.

    ``7@2013-01-01T05:00Z`` is that moment as version 7 recorded it.
    """
    text = text.strip()
    version, at, time = text.partition("@")
    if at:
        return Point(point(version, option).version, moment(time, option))
    if text.lower() == "latest":
        return Point()
    if not VERSION_NUMBER.fullmatch(text):
        return Point(None, moment(text, option))
    if text.startswith("-"):
        raise InvalidInputError(
            ErrorCode.INVALID_VERSION,
            f"{option} is {text}: a number is a version, from 0 on; statestore versions lists them, and a time in "
            f"milliseconds is {text}ms",
        )
    if len(text) > len(str(NO_VERSION)):
        raise InvalidInputError(
            ErrorCode.INVALID_VERSION,
            f"{option} is {text}: a number is a version; for a time in milliseconds write {text}ms",
        )
    return Point(int(text))


def column_names(text: str | None) -> tuple[str, ...] | None:
    """The names in the text of --columns. Raises InvalidInputError INVALID_OPTION if there are none."""
    return names_in(text, "--columns")


def names_in(text: str | None, option: str) -> tuple[str, ...] | None:
    """The names in a text like a,b,c. Raises InvalidInputError INVALID_OPTION if there are none."""
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"{option} is {text!r}; expected names, like a,b,c")
    return names
