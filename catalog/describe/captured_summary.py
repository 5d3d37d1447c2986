"""The capture that fills a store, as `inspect` shows it: how far it came, what is missing, and how old its rows are.

The source is not opened: how many of its versions wait to be captured is known only to a capture.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.source_versions import Gap, SourceVersion
from statestore.catalog.log.store_spec import Captured, StoreSpec
from statestore.catalog.reads.captured import gap_in_words
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.formats.state_table import Query
from statestore.formats.values.times import format_time

SHOWN_GAPS = 10  # the newest ones


@dataclass(frozen=True)
class CaptureSummary:
    """The facts that are known of a capture. Times are epoch microseconds.

    ``gap_count`` and ``missing`` are the numbers of gaps and of the versions in them, ``gaps`` the newest ones.
    ``oldest`` is since when the row holds that changed longest ago; None where there is no row, or it is not known.
    """

    captured: Captured
    newest: SourceVersion
    begins: int
    gap_count: int
    missing: int
    gaps: tuple[Gap, ...]
    oldest: int | None

    def as_json(self) -> dict[str, Any]:
        """Return what `inspect` shows, with ages as of now: times as ISO-8601, ages in seconds."""
        newest, now = self.newest, time.time_ns() // 1000
        return {
            "path": self.captured.path,
            "state": self.captured.state,
            "newest": newest.version,
            "newest_time": format_time(newest.time),
            "lag_seconds": seconds_since(newest.time, now),
            "watermark": None if newest.watermark is None else format_time(newest.watermark),
            "watermark_age_seconds": None if newest.watermark is None else seconds_since(newest.watermark, now),
            "oldest_key": None if self.oldest is None else format_time(self.oldest),
            "oldest_key_age_seconds": None if self.oldest is None else seconds_since(self.oldest, now),
            "begins": format_time(self.begins),
            "gaps": self.gap_count,
            "missing_versions": self.missing,
            "newest_gaps": [
                {
                    "first": gap.first,
                    "last": gap.last,
                    "since": None if gap.since is None else format_time(gap.since),
                    "until": format_time(gap.until),
                }
                for gap in self.gaps
            ],
        }

    def notes(self) -> tuple[str, ...]:
        """Return the remark that versions of the source are missing in the store."""
        if not self.gap_count:
            return ()
        found = f"{self.gap_count} gap{'' if self.gap_count == 1 else 's'}"
        return (f"{found} ({self.captured.words[1]} that were gone before they could be captured)",)

    def details(self) -> tuple[str, ...]:
        """Return the facts as lines, for who looks at this store alone."""
        newest, word, now = self.newest, self.captured.words[0], time.time_ns() // 1000
        lag = duration_in_words(seconds_since(newest.time, now))
        lines = [
            f"newest captured {word}: {newest.version} of {format_time(newest.time)}",
            f"lag: {lag} since the newest captured {word}",
        ]
        if newest.watermark is not None:
            age = duration_in_words(seconds_since(newest.watermark, now))
            lines.append(f"its watermark: {format_time(newest.watermark)}, {age} ago")
        if self.oldest is not None:
            age = duration_in_words(seconds_since(self.oldest, now))
            lines.append(f"oldest key: unchanged since {format_time(self.oldest)}, {age} ago")
        lines += [f"gap: {gap_in_words(gap, self.captured)}" for gap in self.gaps]
        return tuple(lines)


def capture_summary(spec: StoreSpec, log_state: LogState, oldest: int | None) -> CaptureSummary | None:
    """Return what a store says of its capture; None where it captures nothing, or has no version yet.

    ``oldest``: as `oldest_row` finds it.
    """
    captured, log = spec.captured, log_state.captured
    if captured is None or log is None:
        return None
    gaps = log_state.gaps
    missing = sum(gap.last - gap.first + 1 for gap in gaps)
    return CaptureSummary(captured, log.newest, log.begins, len(gaps), missing, tuple(gaps[-SHOWN_GAPS:]), oldest)


def oldest_row(table: VersionedTable) -> int | None:
    """Return since when the row holds that changed longest ago, epoch microseconds; None where there is no row."""
    found = table.extremes(Query(), "valid_from")
    return None if found is None or found[0] is None else int(found[0])


def seconds_since(moment: int, now: int) -> float:
    """Return the seconds between two moments in epoch microseconds, with milliseconds; 0 where clocks disagree."""
    return max(now - moment, 0) // 1000 / 1000


def duration_in_words(seconds: float) -> str:
    """Return seconds in the largest unit of which there are two: "90 seconds", "3 hours"."""
    for unit, worth in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * worth:
            return f"{int(seconds // worth)} {unit}s"
    count = int(seconds)
    return f"{count} second{'' if count == 1 else 's'}"
