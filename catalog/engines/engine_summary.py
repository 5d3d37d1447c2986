"""What an engine keeps of one state: versions, times and sizes, from metadata only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from statestore.catalog.engines.engine_table import EngineTable
from statestore.formats.engine import StateSize


@dataclass(frozen=True)
class EngineSummary:
    """``oldest`` and ``newest`` of ``count`` kept versions, ``first_time`` and ``last_time`` (epoch microseconds) when
    these two began to hold, None where the time of either is unknown. ``word`` and ``words`` are what the engine calls
    a version, and several."""

    word: str
    words: str
    oldest: int
    newest: int
    count: int
    first_time: int | None
    last_time: int | None
    size: StateSize


def summarize_state(table: EngineTable) -> EngineSummary:
    """Raises NotFoundError where no version can be read."""
    source, state = table.source, table.state
    kept = source.kept(state)
    ends = source.versions(state, sorted({kept[0], kept[-1]}))
    times = [version.time for version in ends]
    known = [time for time in times if time is not None]
    # A clock may have been set back: the oldest version held at most until the newest did.
    first, last = (int(np.min(known)), known[-1]) if len(known) == len(times) else (None, None)
    return EngineSummary(*source.version_words, kept[0], kept[-1], len(kept), first, last, source.size(state))
