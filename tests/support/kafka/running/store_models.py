"""Stores of an application as dictionaries: what they must answer, computed from the records of the input alone.

Each partition has a stream time of its own. Kafka's stores hide what has expired by it, and its operators drop records
that come too late. With ``dsl.store.format=HEADERS`` the DSL's stores have headers; Kafka 4.3 fills them in the stores
of joins, and leaves those of tables and aggregations empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from support.kafka.running.application import Application, Part, Row, Written
from support.kafka.running.broker import Record

NEVER = -1


def expected(application: Application) -> dict[str, list[Row]]:
    """Rows of each store, in no order."""
    headers_format = application.description.headers_format
    found: dict[str, list[Row]] = {}
    for part in application.description.parts:
        stores = {part.name: part.name}
        if part.role == "join":
            stores = {"this": part.name, "other": f"{part.name}-other"}
            stores = {f"{part.name}-{side}-join-store": name for side, name in stores.items()}
        for store, name in stores.items():
            found[store] = _rows(part, application.written[name], headers_format)
    return found


def _rows(part: Part, written: Sequence[Written], headers_format: bool) -> list[Row]:
    if part.role == "global":
        return _latest(part, [each.record for each in written])
    model = {
        "windowed-count": _window_counts,
        "session-count": _session_counts,
        "versioned": _live_versions,
        "window": _windows,
        "headers-window": _windows,
        "headers-session": _sessions,
        "join": _duplicates,
    }.get(part.role, _latest)
    rows = [row for records in by_partition(written) for row in model(part, records)]
    if headers_format and part.role in ("table", "windowed-count", "session-count"):
        return [row | {"headers": []} for row in rows]
    if part.role == "join" and not headers_format:
        return [{name: cell for name, cell in row.items() if name not in ("timestamp", "headers")} for row in rows]
    return rows


def by_partition(written: Iterable[Written]) -> list[list[Record]]:
    """Records of each partition in the order of their offsets."""
    partitions: dict[int, list[Written]] = {}
    for each in written:
        partitions.setdefault(each.partition, []).append(each)
    return [
        [each.record for each in sorted(records, key=lambda each: each.offset)]
        for _, records in sorted(partitions.items())
    ]


def _latest(part: Part, records: Sequence[Record]) -> list[Row]:
    found: dict[Any, Record] = {}
    for record in records:
        found.pop(record.key, None)
        if record.value is not None:
            found[record.key] = record
    rows = []
    for key, record in found.items():
        row = {"key": key, "value": record.value}
        if part.role in ("table", "global", "headers-key-value"):
            row["timestamp"] = record.timestamp
        rows.append(row | _headers(part, record))
    return rows


def _headers(part: Part, record: Record) -> Row:
    if part.role != "join" and not part.role.startswith("headers-"):
        return {}
    return {"headers": [[name, None if value is None else value.hex()] for name, value in record.headers]}


def _window_counts(part: Part, records: Sequence[Record]) -> list[Row]:
    size, grace = part.settings["window_size_ms"], part.settings["grace_ms"]
    stream_time = last_start = NEVER
    found: dict[tuple[Any, int], Row] = {}
    for record in records:
        stream_time = max(stream_time, record.timestamp)
        start = record.timestamp // size * size
        if start + size <= stream_time - grace:
            continue
        last_start = max(last_start, start)
        old = found.get((record.key, start), {"value": 0, "timestamp": NEVER})
        time = max(old["timestamp"], record.timestamp)
        row = {"key": record.key, "start": start, "end": start + size, "value": old["value"] + 1, "timestamp": time}
        found[record.key, start] = row
    return [row for row in found.values() if row["start"] > last_start - size - grace]


def _session_counts(part: Part, records: Sequence[Record]) -> list[Row]:
    gap, grace = part.settings["gap_ms"], part.settings["grace_ms"]
    stream_time = last_end = NEVER
    sessions: list[Row] = []

    def visible(row: Row) -> bool:
        return bool(row["end"] > last_end - gap - grace)

    for record in records:
        time = record.timestamp
        stream_time = max(stream_time, time)
        merged = [
            row
            for row in sessions
            if row["key"] == record.key and row["end"] >= time - gap and row["start"] <= time + gap and visible(row)
        ]
        start = min([time, *(row["start"] for row in merged)])
        end = max([time, *(row["end"] for row in merged)])
        if end < stream_time - gap - grace:
            continue
        last_end = max(last_end, end)
        count = 1 + sum(row["value"] for row in merged)
        gone = [(start, end), *((row["start"], row["end"]) for row in merged)]
        sessions = [row for row in sessions if row["key"] != record.key or (row["start"], row["end"]) not in gone]
        sessions.append({"key": record.key, "start": start, "end": end, "value": count})
    return [row for row in sessions if visible(row)]


def _windows(part: Part, records: Sequence[Record]) -> list[Row]:
    size, retention = part.settings["window_size_ms"], part.settings["retention_ms"]
    last_start = NEVER
    found: dict[tuple[Any, int], Row] = {}
    for record in records:
        start = record.timestamp // size * size
        last_start = max(last_start, start)
        found.pop((record.key, start), None)
        if record.value is not None:
            row = {"key": record.key, "start": start, "end": start + size, "value": record.value}
            if part.role == "headers-window":
                row["timestamp"] = record.timestamp
            found[record.key, start] = row | _headers(part, record)
    return [row for row in found.values() if row["start"] > last_start - retention]


def _sessions(part: Part, records: Sequence[Record]) -> list[Row]:
    size, retention = part.settings["session_size_ms"], part.settings["retention_ms"]
    stream_time = NEVER
    found: dict[tuple[Any, int, int], Row] = {}
    for record in records:
        start, end = record.timestamp // size * size, record.timestamp
        stream_time = max(stream_time, end)
        found.pop((record.key, start, end), None)
        if record.value is not None:
            row = {"key": record.key, "start": start, "end": end, "value": record.value}
            found[record.key, start, end] = row | _headers(part, record)
    return [row for row in found.values() if row["end"] > stream_time - retention]


def _duplicates(part: Part, records: Sequence[Record]) -> list[Row]:
    size = 2 * part.settings["difference_ms"]
    retention = size + part.settings["grace_ms"]
    stream_time = max((record.timestamp for record in records), default=NEVER)
    return [
        {
            "key": record.key,
            "start": record.timestamp,
            "end": record.timestamp + size,
            "value": record.value,
            "timestamp": record.timestamp,
            **_headers(part, record),
        }
        for record in records
        if record.timestamp > stream_time - retention
    ]


# Versioned stores


def _versions(part: Part, records: Sequence[Record]) -> tuple[dict[Any, dict[int, Any]], int]:
    """Value (None: a tombstone) of each key by the time from which it holds, and the oldest time that is kept."""
    retention = part.settings["history_retention_ms"]
    stream_time = NEVER
    found: dict[Any, dict[int, Any]] = {}
    for record in records:
        stream_time = max(stream_time, record.timestamp)
        if record.timestamp >= stream_time - retention:
            found.setdefault(record.key, {})[record.timestamp] = record.value
    return found, stream_time - retention


def _live_versions(part: Part, records: Sequence[Record]) -> list[Row]:
    found, _ = _versions(part, records)
    latest = [(key, max(times), times[max(times)]) for key, times in found.items()]
    return [{"key": key, "value": value, "valid_from": time} for key, time, value in latest if value is not None]


def expected_as_of(part: Part, written: Sequence[Written], key: Any, as_of: int) -> Row | None:
    """The answer of a versioned store for a key as of a time: ``value`` and ``valid_from``, or None."""
    for records in by_partition(written):
        found, oldest = _versions(part, records)
        if key not in found:
            continue
        times = found[key]
        then = max((time for time in times if time <= as_of), default=None)
        # The latest version is always there; older ones only within the history retention.
        if then is None or times[then] is None or (as_of < oldest and then != max(times)):
            return None
        return {"value": times[then], "valid_from": then}
    return None
