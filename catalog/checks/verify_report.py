"""What a verification collects: problems, notes, and how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from statestore.formats.errors import StateStoreError


@dataclass(frozen=True)
class Progress:
    """How far the verification of a store is, in bytes; ``file`` is what was looked at last."""

    store: str
    file: str
    done: int
    total: int


@dataclass(frozen=True)
class Problem:
    """Something that is not as it was committed.

    ``region`` is the number of the damaged region of 1 MiB, ``expected`` and ``found`` its checksums (or lengths, or
    values), ``affects`` says in words which answers cannot be trusted; ``versions`` (first, last) and ``times`` (epoch
    microseconds from, to; to None: still valid) say it in numbers where that is known.
    """

    code: str
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
    """Collects what the parts of a verification find."""

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
        """A file was read and compared as far as it can be."""
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
    """The problem that an error tells of."""
    return Problem(error.code, file, error.message, affects)
