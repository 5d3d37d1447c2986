"""The age of rows, and the rows that are past their end by a clock of the state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.connector.explorer.limits import Limits
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.state_table import Query, StateTable

SECOND = 1_000_000
EDGES = tuple(n * SECOND for n in (0, 1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800, 2_592_000, 31_536_000))
"""The least ages of the bars of the histogram, in microseconds; the last one has no end."""
Clock = Literal["stream_time", "commit_time"]
EXPIRATIONS: dict[str, tuple[int, Clock]] = {
    "ttlExpirationMs": (1_000, "commit_time"),
    "expiresAtMicros": (1, "stream_time"),
}
"""Fields with the end of a row as a whole number: its unit in microseconds, and the clock that it is compared with."""


@dataclass(frozen=True)
class Ending:
    """A field with the moment at which a row ends, by its path."""

    path: tuple[str, ...]
    unit: int | None  # microseconds; None: a timestamp
    clock: Clock


def ages_of(table: StateTable, query: Query, limits: Limits) -> dict[str, Any]:
    """Return the rows at a moment by their age, and the rows that are past their end. The numbers of ages are None for
    a table that keeps only the rows of now, without their times.

    ``clock`` and ``at`` (epoch milliseconds, or None where it is unknown): the moment from which ages are counted. The
    state time of the newest change for a table whose rows have a ``valid_from``, else the time of the commit.
    ``counts``: the rows from each of ``edges`` (seconds) on; ``later``: changed after the moment; ``unknown``: changed
    before what is kept. ``endings``: for each field with the end of a row the ``rows`` with one, and how many of them
    ``ended`` at ``at`` or before.
    """
    version = table.kept_versions()[1] if query.version is None else query.version
    columns = table.schema(query)
    clock: Clock = "stream_time" if "valid_from" in columns.names else "commit_time"
    moments = _moments(table, version, query.as_of, clock)
    now = moments[clock]
    return {
        "clock": clock,
        "at": _milliseconds(now),
        "edges": [edge // SECOND for edge in EDGES],
        **_histogram(table, replace(query, version=version), clock, now, limits),
        "endings": _endings(table, query, columns, moments, limits),
    }


def _moments(table: StateTable, version: int, as_of: int | None, clock: Clock) -> dict[Clock, int | None]:
    """Return what the clocks of the state show at a version, or at a moment by ``clock``."""
    commits = table.versions()
    if as_of is not None and clock == "commit_time":
        before = pc.less_equal(commits["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()), as_of)
        numbers = commits.filter(before)["version"]
        version = min(version, pc.max(numbers).as_py() if len(numbers) else version)
    found = commits.filter(pc.equal(commits["version"], version))
    moments: dict[Clock, int | None] = {
        "stream_time": _microseconds(found["stream_time"]),
        "commit_time": _microseconds(found["timestamp"]),
    }
    return moments if as_of is None else moments | {clock: as_of}


def _microseconds(column: pa.ChunkedArray) -> int | None:
    values = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return values[0] if values else None


def _milliseconds(moment: int | None) -> float | None:
    return None if moment is None else moment / 1000


def _starts(table: StateTable, query: Query, clock: Clock, limits: Limits) -> Iterator[pa.Array]:
    """Yield the moments of the last change of the valid rows, in microseconds, null where it is not kept."""
    if clock == "stream_time":
        for batch in limits.batches(table, replace(query, columns=("valid_from",))):
            yield batch.column(0).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        return
    names, moment = ("valid_from", "valid_to"), query.as_of
    history = replace(query, mode="history", as_of=None, start_time=moment, end_time=moment, columns=names)
    for batch in limits.batches(table, history):
        valid = batch.column(0) if moment is not None else batch.column(0).filter(batch.column(1).is_null())
        yield valid.cast(pa.timestamp("us", "UTC")).cast(pa.int64())


def _histogram(table: StateTable, query: Query, clock: Clock, now: int | None, limits: Limits) -> dict[str, Any]:
    try:
        return _counted(_starts(table, query, clock, limits), now)
    except NotFoundError as error:
        if error.code != ErrorCode.TIME_NOT_KEPT or query.as_of is not None:  # a moment that is not kept is an error
            raise
        return dict.fromkeys(("counts", "later", "unknown", "rows"))


def _counted(starts: Iterator[pa.Array], now: int | None) -> dict[str, Any]:
    counts = np.zeros(len(EDGES) + 1, np.int64)
    unknown = rows = 0
    for moments in starts:
        rows += len(moments)
        unknown += moments.null_count
        if now is not None:
            ages = now - moments.drop_null().to_numpy(zero_copy_only=False)
            counts += np.bincount(np.searchsorted(EDGES, ages, side="right"), minlength=len(counts))
    known = None if now is None else counts[1:].tolist()
    return {"counts": known, "later": None if now is None else int(counts[0]), "unknown": unknown, "rows": rows}


def endings_in(schema: pa.Schema) -> list[Ending]:
    """Return the fields with the end of a row: of windows (a struct of ``start`` and ``end``, or the columns
    ``window_start`` and ``window_end``), and of a time to live."""
    return [ending for field in schema for ending in _in_fields((), [field], schema.names)]


def _in_fields(path: tuple[str, ...], fields: list[pa.Field], beside: list[str]) -> Iterator[Ending]:
    for field in fields:
        here = (*path, field.name)
        if pa.types.is_struct(field.type):
            inner = [field.type.field(n) for n in range(field.type.num_fields)]
            yield from _in_fields(here, inner, [each.name for each in inner])
        elif pa.types.is_timestamp(field.type):
            is_window = field.name == "end" and beside == ["start", "end"]
            if is_window or (field.name == "window_end" and "window_start" in beside):
                yield Ending(here, None, "stream_time")
        elif field.name in EXPIRATIONS and pa.types.is_int64(field.type):
            yield Ending(here, *EXPIRATIONS[field.name])


def _endings(
    table: StateTable, query: Query, columns: pa.Schema, moments: dict[Clock, int | None], limits: Limits
) -> list[dict[str, Any]]:
    endings = endings_in(columns)
    if not endings:
        return []
    rows, ended = np.zeros(len(endings), np.int64), np.zeros(len(endings), np.int64)
    names = tuple(dict.fromkeys(ending.path[0] for ending in endings))
    for batch in limits.batches(table, replace(query, columns=names)):
        for number, ending in enumerate(endings):
            ends = _ends(batch, ending)
            rows[number] += len(ends)
            moment = moments[ending.clock]
            if moment is not None:
                ended[number] += int((ends <= moment // (ending.unit or 1)).sum())
    return [
        {
            "field": ".".join(ending.path),
            "clock": ending.clock,
            "at": _milliseconds(moments[ending.clock]),
            "rows": int(rows[number]),
            "ended": None if moments[ending.clock] is None else int(ended[number]),
        }
        for number, ending in enumerate(endings)
    ]


def _ends(batch: pa.RecordBatch, ending: Ending) -> Ints:
    """Return the known ends, in the unit of the field."""
    column = batch.column(ending.path[0])
    for name in ending.path[1:]:
        column = pc.struct_field(column, name)
    if ending.unit is None:
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    found: Ints = column.drop_null().to_numpy(zero_copy_only=False)
    return found
