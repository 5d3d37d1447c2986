"""How the engine's own reader reads a source, for those who want it to confirm what this project has written.

An engine describes the reads, and whoever can reach the reader, such as a door with a session of Spark, makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class EngineRead:
    """The read of one state: the ``options`` that the engine's reader takes, and the ``settings`` of its session.

    ``columns`` are those that the reader returns as they are stored. ``left_out`` says why it misses others, as a
    clause; "" where it misses none.
    """

    options: Mapping[str, str]
    columns: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    left_out: str = ""


@dataclass(frozen=True)
class EngineReads:
    """The reads of the newest version of a source, by state.

    ``reader`` names the program that has the reader, as this project calls it. ``moved`` returns, for another place at
    which the same files lie, the contents of those files that name their place, by path below it.
    """

    reader: str
    states: Mapping[str, EngineRead]
    moved: Callable[[str], Mapping[str, bytes]]
