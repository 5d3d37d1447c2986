"""The summary of one table for `inspect`, the report and Python, from metadata and the sizes of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from statestore.formats.values.times import format_time


@dataclass(frozen=True)
class TableInfo:
    """Properties of a table: the kind of state, and how long it is kept (milliseconds; None: for ever).

    ``facts`` are further texts about the state: who said of which kind it is, and the evidence of a guess.
    ``operator`` is the operator of a job that keeps the state, or what operators are grouped by; None: not recorded.
    """

    kind: str
    retention: int | None
    facts: Mapping[str, str] = field(default_factory=dict)
    operator: str | None = None


@dataclass(frozen=True)
class TableSummary:
    """Numbers of the newest version. Times are epoch microseconds, sizes are bytes; None: unknown or absent.

    ``keys``: rows that are valid now. ``rows``: stored versions of keys. ``first_time`` and ``last_time``: the bounds
    of the kept state; nothing is known about moments before ``kept_from``. ``bytes``: the files that the newest version
    needs. ``disk_bytes``: all files of the store, with its log, changelogs, hot tier and files that wait for vacuum.
    ``uncommitted``: acknowledged puts that no commit has yet. ``partitions``: ranges of versions with their
    number of partitions. ``kept``: the amount of history, where the table's kind has no retention ("5 snapshots").
    ``problems``: due upkeep, or damage. ``notes``: further remarks. ``details``: facts for who looks at this one table.
    ``captured``: of a captured store, how far its capture came.
    """

    version: int
    oldest_version: int
    keys: int | None = None
    rows: int | None = None
    first_time: int | None = None
    last_time: int | None = None
    kept_from: int | None = None
    segments: int | None = None
    deltas: int | None = None
    bytes: int | None = None
    disk_bytes: int | None = None
    changelog_bytes: int | None = None
    uncommitted: int | None = None
    cache_bytes: int | None = None
    unreferenced_bytes: int | None = None
    last_commit: int | None = None
    writer: str | None = None
    partitions: tuple[dict[str, int], ...] = ()
    kept: str | None = None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    damaged: bool = False
    details: tuple[str, ...] = ()
    captured: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the numbers under the names of `inspect`, times as ISO-8601; ``health`` and ``status`` describe the
        condition.
        """
        return {
            "keys": self.keys,
            "rows": self.rows,
            "version": self.version,
            "oldest_version": self.oldest_version,
            "from": _time(self.first_time),
            "to": _time(self.last_time),
            "kept_from": _time(self.kept_from),
            "segments": self.segments,
            "deltas": self.deltas,
            "bytes": self.bytes,
            "disk_bytes": self.disk_bytes,
            "changelog_bytes": self.changelog_bytes,
            "uncommitted": self.uncommitted,
            "cache_bytes": self.cache_bytes,
            "unreferenced_bytes": self.unreferenced_bytes,
            "last_commit": _time(self.last_commit),
            "writer": self.writer,
            "partitions": list(self.partitions) or None,
            "health": [*self.notes, *self.problems],
            "status": "damaged" if self.damaged else "attention" if self.problems else "ok",
            **({} if self.captured is None else {"captured": dict(self.captured)}),
        }


def _time(us: int | None) -> str | None:
    return None if us is None else format_time(us)
