"""The part of the seam that says whether a job may be started from a snapshot of another one.

What decides is the engine's: how it finds an operator again, and which changes of types it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from statestore.formats.engine import Source

Verdict = Literal["as is", "after migration", "new", "unused", "unknown", "incompatible", "lost"]
PREVENTING: tuple[Verdict, ...] = ("incompatible", "lost")


@dataclass(frozen=True)
class RestoreFinding:
    """The outcome for one state of an operator, or of the operator itself where ``state`` is None.

    - "as is", "after migration": it is restored, in the second case by rewriting values.
    - "new": the job has it and the snapshot does not; it begins empty.
    - "unused": the snapshot has it and the operator of the job does not; it is kept, and nothing reads it.
    - "unknown": files do not say; ``reason`` names what decides.
    - "incompatible": the engine refuses the restore.
    - "lost": the job has no such operator; the engine refuses unless the user agrees to lose its state.
    """

    operator: str
    state: str | None
    verdict: Verdict
    reason: str = ""

    @property
    def prevents(self) -> bool:
        """Return whether the engine refuses the restore."""
        return self.verdict in PREVENTING


@runtime_checkable
class ChecksRestore(Protocol):
    """A source that can say what becomes of its newest version when a job is started from it."""

    def restored_by(self, job: Source) -> Sequence[RestoreFinding]:
        """The findings for the job of which ``job`` has a version. Raises InvalidInputError STATE_SELECTION where that
        is a job of another engine.
        """

    def restored_as_described(self, text: str, name: str) -> Sequence[RestoreFinding]:
        """The findings for the job that a file describes, as `DescribesStates` prints one; ``name`` is the file's.

        Raises InvalidInputError INVALID_OPTION for a text that describes no job.
        """
