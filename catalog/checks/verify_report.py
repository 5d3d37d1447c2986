"""Results of a verification: problems, notes and progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError


@dataclass(frozen=True)
class Progress:
    """Progress of the verification of a store, in bytes; ``file`` is the last file that was checked."""

    store: str
    file: str
    done: int
    total: int


@dataclass(frozen=True)
class Problem:
    """A deviation from the committed state.

    ``region`` is the number of the damaged region of 1 MiB. ``expected`` and ``found`` are its checksums (or lengths,
    or values). ``affects`` states in words which answers cannot be trusted. Where they are known, ``versions`` (first,
    last) and ``times`` (epoch microseconds from, to; to None: still valid) state the same in numbers.
    """

    code: ErrorCode
    file: str
    message: str
    affects: str
    region: int | None = None
    expected: str | None = None
    found: str | None = None
    versions: tuple[int, int] | None = None
    times: tuple[int, int | None] | None = None


@dataclass
class Report:
    """Collects the findings of all parts of a verification."""

    store: str
    progress: Callable[[Progress], None]
    total: int
    done: int = 0
    compared: int = 0
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checked: set[str] = field(default_factory=set)

    def add(self, problem: Problem) -> None:
        self.problems.append(problem)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def read(self, name: str, size: int) -> None:
        """Record that a file was read and compared as far as possible."""
        self.checked.add(name)
        self.compared += size
        self.advance(name, size)

    def advance(self, name: str, size: int) -> None:
        self.done += size
        self.progress(Progress(self.store, name, self.done, max(self.total, self.done)))

    def finish(self) -> None:
        self.total = self.done
        self.advance("", 0)


def problem_of(error: StateStoreError, file: str, affects: str) -> Problem:
    """Return the problem that an error reports."""
    return Problem(error.code, file, error.message, affects)
