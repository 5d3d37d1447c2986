"""The parts in which an edited snapshot is written, independently of each other, and the names of their files."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from statestore.formats.flink.snapshot.handles import SegmentHandle
from statestore.formats.flink.snapshot.snapshot_files import Located


@dataclass(frozen=True)
class SubtaskPart:
    """The keyed state of a subtask that is written anew: its operator, and its place among those with keyed state."""

    operator: str
    place: int


@dataclass(frozen=True)
class OperatorPart:
    """The keyed state of all subtasks of an operator, which moves to the key groups of another max parallelism."""

    operator: str


@dataclass(frozen=True)
class ElementsPart:
    """The operator state of a subtask that is written anew, by the number of the subtask."""

    operator: str
    subtask: int

    @property
    def name(self) -> str:
        return f"operator-{self.operator}-{self.subtask}"


@dataclass(frozen=True)
class TimersPart:
    """The timers in raw keyed state of a subtask that are written anew, by the number of the subtask."""

    operator: str
    subtask: int

    @property
    def name(self) -> str:
        return f"timers-{self.operator}-{self.subtask}"


@dataclass(frozen=True)
class SegmentPart:
    """A part of a file that several handles share, which becomes a file of its own."""

    handle: SegmentHandle
    name: str


StreamsPart = SubtaskPart | OperatorPart
StreamPart = ElementsPart | TimersPart
Part = SubtaskPart | OperatorPart | ElementsPart | TimersPart | SegmentPart


def stream_name(operator: str, index: int) -> str:
    """The name of the stream of a subtask's keyed state."""
    return f"keyed-{operator}-{index}"


def free_name(found: Located, start: int, taken: set[str]) -> str:
    """The name of a file in the target's folder: its own, or with a number where another file has that.

    ``start`` is the first byte of what is copied of it, negative for all.
    """
    wanted = posixpath.basename(found.name) if start < 0 else f"{posixpath.basename(found.name)}-{start}"
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name
