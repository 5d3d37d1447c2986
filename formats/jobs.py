"""The part of the seam that says which job keeps the states of a source, and which of its edges the files record.

No engine records which operator feeds which. What is recorded differs: what the whole job reads, or what each part of
it has read. Only that is said here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class JobInput:
    """Something that a job reads. ``name`` is shown to users ("source 0", "topic orders"), and ``detail`` is what else
    is recorded of it.

    ``parts`` are those that have read it, in the words of `StateInfo.operator`; () stands for the job as a whole.
    """

    name: str
    detail: str = ""
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """The job of a source.

    ``words`` name a part of it, singular and plural: `StateInfo.operator` says which part keeps a state. ``inputs`` are
    those that are recorded; None: none can be. ``stateless`` are parts that are recorded and keep no state of the
    source. ``unrecorded`` is a sentence on the edges between parts.
    """

    name: str
    unrecorded: str
    words: tuple[str, str] = ("operator", "operators")
    inputs: tuple[JobInput, ...] | None = None
    stateless: tuple[str, ...] = ()


@runtime_checkable
class KnowsJob(Protocol):
    """A source whose files say something about the job that wrote them."""

    def job_info(self) -> Job:
        """The job as of the newest version."""
