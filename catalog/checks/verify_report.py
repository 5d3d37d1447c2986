"""Results of a verification: problems, notes and progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from statestore.catalog.reads.shown import Facts, ShowsItself
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError

MOST_SHOWN = 10  # problems and notes in the text of a result


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


@dataclass(frozen=True)
class Coverage:
    """The files of one kind that were read, and those of them whose rows a checksum of the engine covers.

    Of the others only the form was checked, so a changed value may pass for another one.
    """

    kind: str
    files: int
    bytes: int
    checked_files: int
    checked_bytes: int


@dataclass(frozen=True, repr=False)
class Verification(ShowsItself):
    """The result of verifying one store. ``ok``: there is no problem; ``verified`` states in words what is verified.

    ``files`` and ``bytes`` were read and compared. ``rows`` counts the rows of the newest layout. ``versions`` is the
    oldest and the newest version that can be read. ``unreferenced`` has (name, bytes) of files that no commit needs.
    ``cache_bytes`` is the size of the hot tier, which is not read: a lost hot tier is recreated. ``snapshots`` counts
    the kept snapshots of a keyed store, whose ``segments`` are files of any kind; it is None for other stores.
    ``log_begins`` is the first version of a log that vacuum trimmed behind the horizon.

    ``of_engine``: the state of an engine, of which the ``rows`` of the newest version were read from ``files``, or with
    ``all_versions`` those of each version. It has
    no segments, log entries and checkpoints of a log. Its ``versions`` are None where the engine keeps one state only.
    ``coverage`` says by kind how many of the files have checksums, where the engine knows.
    """

    store: str
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    files: int
    bytes: int
    segments: int
    rows: int
    log_entries: int
    checkpoints: int
    versions: tuple[int, int] | None
    uncommitted: int
    unreferenced: tuple[tuple[str, int], ...]
    cache_bytes: int
    snapshots: int | None = None
    log_begins: int = 0
    of_engine: bool = False
    all_versions: bool = False
    coverage: tuple[Coverage, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            said = "; it is called verified" if name == "vouches" else ""
            raise AttributeError(f"a Verification has no attribute {name!r}{said}")

    def _about(self) -> tuple[str, Facts]:
        facts = [("verified", self.verified)]
        facts += [(problem.code, f"{problem.file}: {problem.message}") for problem in self.problems[:MOST_SHOWN]]
        if len(self.problems) > MOST_SHOWN:
            facts.append(("further problems", str(len(self.problems) - MOST_SHOWN)))
        facts += [("note", note) for note in self.notes[:MOST_SHOWN]]
        return f"verification of {self.store!r}: {'ok' if self.ok else f'{len(self.problems)} problems'}", facts

    @property
    def verified(self) -> str:
        """Return in words which properties of the store are verified."""
        if self.of_engine and not self.problems:
            if self.versions is None:
                version = others = ""
            elif self.all_versions:
                version, others = f" of versions {self.versions[0]} to {self.versions[1]}", ""
            else:
                version, others = f" of version {self.versions[1]}", "; other versions were not read"
            files = f", from {self.files} files" if self.files else ""
            return (
                f"all {self.rows} rows{version} could be read{files}, and agree with the checksums and lengths that "
                f"are stored with them{self._unchecked()}{others}"
            )
        if self.problems or self.versions is None:
            return "nothing: see the problems"
        log = (
            f"every byte of {self.files} files is what was committed; versions {self.log_begins} to "
            f"{self.versions[1]} follow one another without a gap, and {self.checkpoints} checkpoints say the same"
        )
        if self.snapshots is not None:
            return (
                f"{log}; each of {self.snapshots} kept snapshots has every key group once; their {self.rows} rows, in "
                f"{self.segments} files, can be read and lie in the key groups of their keys"
            )
        return (
            f"{log}; {self.rows} rows in "
            f"{self.segments} segments have the order, statistics, key index and ends that reads rely on; no key has "
            f"two rows at one moment, as versions {self.versions[0]} and {self.versions[1]} believe; "
            f"{self.uncommitted} acknowledged puts are whole and wait for a commit"
        )

    def _unchecked(self) -> str:
        """Return in words which files no checksum covers."""
        without = {each.kind: each.files - each.checked_files for each in self.coverage}
        kinds = ", ".join(f"{count} {kind}" for kind, count in without.items() if count)
        if not kinds:
            return ""
        size = sum(each.bytes - each.checked_bytes for each in self.coverage)
        return (
            f"; {sum(without.values())} of the files ({kinds}; {size} bytes) have no checksum, so only their form was "
            "checked"
        )


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
    coverage: dict[str, Coverage] = field(default_factory=dict)

    def cover(self, kind: str, size: int, has_checksum: bool) -> None:
        """Count a file of an engine that was read."""
        known = self.coverage.get(kind, Coverage(kind, 0, 0, 0, 0))
        self.coverage[kind] = Coverage(
            kind,
            known.files + 1,
            known.bytes + size,
            known.checked_files + has_checksum,
            known.checked_bytes + size * has_checksum,
        )

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
