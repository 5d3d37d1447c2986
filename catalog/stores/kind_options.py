"""Options of `create_store` for each kind: durations and flags, their defaults, and their limits.

Defaults are those of Kafka Streams (``Stores``, ``WindowBytesStoreSupplier``); the join-window store follows
KAFKA-3016.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np

from statestore.catalog.log.store_spec import Windowing
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, close_matches, shown
from statestore.formats.kafka_rows.time_segments import default_interval, original_retention
from statestore.formats.values.times import duration_ms

Duration = int | timedelta | str

DEFAULT_SEGMENTS = 3
MAX_SEGMENTS = 1_000_000

OPTIONS: dict[str, tuple[str, ...]] = {
    "versioned": ("history_retention", "segment_interval"),
    "key_value": (),
    "window": ("retention", "window_size", "segment_interval", "retain_duplicates", "time_ordered"),
    "join_window": ("window_before", "window_after", "retention", "num_segments", "batched_changelog"),
    "session": ("retention", "segment_interval"),
    "keyed": (),
}
MEANINGS = {
    "history_retention": "how long a put may be late and `get(as_of=)` answers; None (default): for ever",
    "segment_interval": "width of the segments that expire as a whole; default: from the retention, as in Kafka",
    "retention": "how long windows or sessions are kept, behind the greatest time seen",
    "window_size": "from a window's start to its end",
    "retain_duplicates": "keep every put of a key and window, numbered by `sequence`; default False",
    "time_ordered": "windows of several keys in order of start, then key, instead of key, then start; default False",
    "window_before": "how far before its own time a record meets others; default 0",
    "window_after": "how far after its own time a record meets others; default 0",
    "num_segments": f"segments that the retention is cut into; default {DEFAULT_SEGMENTS}",
    "batched_changelog": "log a key's last value only, acknowledged by the flush, as in 2016; default False",
    "serde": "`natural` (default): keys in the order of their type; `kafka`: the bytes and order of Kafka Streams",
    "key_groups": "parts that the keys are hashed into, the most workers that can share a read; default 128",
}
REQUIRED = {"window": ("retention", "window_size"), "join_window": ("retention",), "session": ("retention",)}


def windowing_of(kind: str, options: Mapping[str, Any]) -> Windowing | None:
    """Return the rule of a kind with windows from the given options (None: not given); None for other kinds.

    Raises InvalidInputError UNKNOWN_OPTION, MISSING_OPTION, INVALID_DURATION or INVALID_OPTION.
    """
    names = OPTIONS.get(kind, tuple(options))
    for name, value in options.items():
        if name not in names:
            nearest = close_matches(name, names, 1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise InvalidInputError(
                ErrorCode.UNKNOWN_OPTION,
                f"{name}={shown(value)}: a {kind} store has the options "
                f"{', '.join(names) or 'serde and key_groups'}{hint}",
            )
    for name in REQUIRED.get(kind, ()):
        if options.get(name) is None:
            raise InvalidInputError(
                ErrorCode.MISSING_OPTION, f'a {kind} store needs {name}; for example {name}="1 hour"'
            )
    if kind == "window":
        return _window(options)
    if kind == "join_window":
        return _join_window(options)
    if kind == "session":
        retention = _duration(options, "retention")
        return Windowing(retention, _interval(options, retention))
    return None


def _window(options: Mapping[str, Any]) -> Windowing:
    retention, size = _duration(options, "retention"), _duration(options, "window_size")
    if size > retention:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"window_size is {size} ms, retention is {retention} ms; expected a retention of at least the window size",
        )
    duplicates, time_ordered = _flag(options, "retain_duplicates"), _flag(options, "time_ordered")
    return Windowing(retention, _interval(options, retention), size, duplicates, time_ordered)


def _join_window(options: Mapping[str, Any]) -> Windowing:
    before, after = _duration(options, "window_before", 0), _duration(options, "window_after", 0)
    count = options.get("num_segments")
    count = DEFAULT_SEGMENTS if count is None else count
    if type(count) is not int or not 2 <= count <= MAX_SEGMENTS:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"num_segments is {shown(count)}; expected an int from 2 to {MAX_SEGMENTS}"
        )
    retention, interval = original_retention(before, after, _duration(options, "retention"), count)
    return Windowing(
        retention,
        interval,
        before=before,
        after=after,
        segments=count,
        duplicates=True,
        batched_changelog=_flag(options, "batched_changelog"),
    )


def _interval(options: Mapping[str, Any], retention: int) -> int:
    interval = _duration(options, "segment_interval", default_interval(retention))
    if interval < 1:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, "segment_interval is 0; expected at least 1 millisecond")
    return interval


def _flag(options: Mapping[str, Any], name: str) -> bool:
    value = options.get(name)
    if value is not None and not isinstance(value, bool | np.bool_):
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"{name} is {shown(value)}; expected True or False")
    return bool(value)


def _duration(options: Mapping[str, Any], name: str, default: int = 0) -> int:
    duration = duration_ms(options.get(name), name)
    return default if duration is None else duration
