"""The seam between an engine and everything that is written once for all engines.

An engine (Spark, Flink, Kafka Streams, a keyed store of ours) is one `Source` and a few small values behind it: the
states, the versions of each that can be read, and the rows of one state as of one version, in parts. From
these `statestore.catalog.engines` makes tables with moments, history, change feed, differences, metadata and summaries,
for every door. Times are epoch microseconds.

An engine derives its classes from those below. It must write their abstract members; the others have defaults, which
return None, nothing or their argument where the engine has no such thing. docs/engines.md lists both.

`Source`, `StateAt` and the values they return are small and picklable, and hold no open files: they travel to Spark's
tasks. A `Source` is one view of a directory: everything read through it agrees, whatever a running query writes
meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, UnsupportedError
from statestore.formats.places.locations import Location, parse_location
from statestore.formats.reader import Part as Part
from statestore.formats.reader import Reader as Reader
from statestore.formats.values.filters import Filter

if TYPE_CHECKING:
    from statestore.formats.edits import EditOptions, EditPlan, StateEdit
    from statestore.formats.engine_reads import EngineReads
    from statestore.formats.jobs import Job, KeyedOperator, RestoreFinding
    from statestore.formats.written import Written


@dataclass(frozen=True)
class Version:
    """A batch, a checkpoint, a savepoint or a snapshot.

    ``time`` is when its state began to hold; None: unknown. ``readable`` is false where the version is known and its
    files are gone, ``holds_state`` where it only records an event, such as the discarding of a snapshot.
    ``stream_time`` is its watermark. ``facts`` are further columns of ``$versions``.
    """

    number: int
    time: int | None
    readable: bool = True
    holds_state: bool = True
    stream_time: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StateInfo:
    """A state of a source.

    ``kind`` is shown to users ("aggregate", "keyed map"). ``key`` are the columns that a user calls the key,
    ``row_key`` those in which no two rows are equal at one time; () for a bag, in which equal rows may repeat.
    ``columns`` are those of the newest version that has the state. ``lookups`` are the sets of columns by which rows
    can be looked up, the smallest first; by default the key and the row key. ``placement`` are columns that say where
    the engine stores a row and are no part of the row. ``one_zero``: the engine stores 0.0 and one NaN in every key, so
    that a user's -0.0 is no other key; by default keys are compared by their bits. ``roles`` are the roles of columns
    in ``$schema``, by default key or value. ``has_past``: the state of each version is a `HoldsPast`. ``facts`` are
    shown by ``inspect``: the evidence of a guess, an operator's parallelism. ``operator`` is the operator of the job
    that keeps the state, or what the engine groups operators by (`statestore.formats.jobs`); None: not recorded.
    ``number`` is the name of a column, in no schema, that `StateAt.rows` returns where it is asked for: the number
    (int64) of a bag's row, in which no two rows of a key are equal at one time. None: the engine numbers no rows.
    """

    name: str
    kind: str
    columns: pa.Schema
    key: tuple[str, ...]
    row_key: tuple[str, ...]
    lookups: tuple[tuple[str, ...], ...] = ()
    placement: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    has_past: bool = False
    facts: Mapping[str, str] = field(default_factory=dict)
    operator: str | None = None
    one_zero: bool = False
    number: str | None = None


@dataclass(frozen=True)
class StateFile:
    """A file that a version needs; ``first`` and ``last`` are the first and the last version that wrote to it."""

    name: str
    role: str
    bytes: int
    rows: int | None = None
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class StateSize:
    """The amount that a source keeps of one state, from its metadata and the sizes of its files.

    ``bytes``, ``rows`` of the newest version and ``files`` are None where no metadata has them. ``partitions`` are
    (first version, last version, number of partitions): several where the number changed. ``problems`` are damage and
    work to be done, ``details`` are facts for who looks at this one state, such as the offsets of its partitions.
    """

    bytes: int | None
    rows: int | None = None
    files: int | None = None
    unreferenced_bytes: int | None = None
    writer: str | None = None
    partitions: tuple[tuple[int, int, int], ...] = ()
    problems: tuple[str, ...] = ()
    damaged: bool = False
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileFinding:
    """A finding about files of a state that its reads pass over, as a sentence that names the file.

    ``damaged``: bytes that were written are lost. Without it the finding may be normal, and is told for who searches.
    """

    file: str
    text: str
    damaged: bool = True
    version: int | None = None


@dataclass(frozen=True)
class WholePart:
    """All rows of a state that is read in one piece."""

    rows: int | None = None


class Placement(Protocol):
    """A check that the rows of one part are those that lookups search there."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Check rows of the part, in the columns by which they are looked up, or more."""

    def findings(self) -> Sequence[FileFinding]:
        """Return the files that hold rows which lookups do not find, once all rows were added."""


class StateAt(Reader, ABC):
    """One state as of one version. Its metadata is parsed once; files are opened while rows are read."""

    @property
    @abstractmethod
    def version(self) -> int: ...

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """All columns of the state."""

    @abstractmethod
    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        """Batches with at least the rows of a part that pass the filters and at least these columns."""

    def parts(self, filters: Sequence[Filter]) -> Sequence[Part]:
        """Parts that together hold all rows which pass the filters. No row is in two of them."""
        return [WholePart()]

    def files(self) -> Iterator[StateFile]:
        """The files that this version needs."""
        return iter(())

    def total_bytes(self) -> int:
        """Return the bytes of `files`."""
        return sum(file.bytes or 0 for file in self.files())

    def placement(self, part: Any) -> Placement | None:
        """Return the check of where the rows of a part lie; None where the engine has no rule for it, or its reads
        check it themselves.
        """
        return None

    def has_checksum(self, file: StateFile) -> bool | None:
        """Return whether reads compare the rows in one of `files` with a checksum that the engine stored.

        None for a file that reads do not look into, or where this is not known.
        """
        return None

    def count(self) -> int | None:
        """The number of rows, from metadata; None where only a read finds it."""
        return None

    def rows_with_fields(
        self, part: Any, columns: Collection[str], fields: Mapping[str, Collection[str]], filters: Sequence[Filter]
    ) -> Iterator[pa.RecordBatch]:
        """Batches as `rows` returns them.

        Of the struct columns in ``fields`` only the fields named there are needed; others may be null.
        """
        return self.rows(part, columns, filters)

    @property
    def unsafe_columns(self) -> tuple[str, ...]:
        """The struct columns that are stored as Spark's own rows (UnsafeRow), which `unsafe_rows` can return."""
        return ()

    def unsafe_rows(
        self, part: Any, columns: Sequence[str], unsafe: Collection[str], filters: Sequence[Filter]
    ) -> Iterator[pa.RecordBatch]:
        """Batches with exactly these columns, all filters applied.

        Those in ``unsafe``, which are some of `unsafe_columns`, are binary: each cell is an UnsafeRow, in which all
        that points elsewhere was checked to point into the row.
        """
        raise NotImplementedError(f"{type(self).__name__} has unsafe_columns without unsafe_rows")


class HoldsPast(StateAt):
    """A state as of one version whose rows say when they were valid, and which still holds those of the past.

    `StateAt.rows` are the rows that are valid now, and ``schema`` may have their ``valid_from``. All rows of a row key
    are in one part. Moments, history and change feed follow from ``past_rows`` alone, by the time of the rows. All
    states of a source for which `StateInfo.has_past` is true must be of this class.
    """

    @abstractmethod
    def past_from(self) -> int | None:
        """The first moment (epoch microseconds) from which on no row is missing; None: no row ever was removed."""

    def check_past(self) -> None:
        """Raise the errors of `past_from`, for a history that is asked of no moment.

        Where the past begins does not matter to it, and an engine may have to read all rows to know.
        """
        self.past_from()

    def past_hint(self) -> str:
        """The advice for users who ask for an earlier past, for errors; "" for none."""
        return ""

    @abstractmethod
    def past_rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        """Batches of rows of the present and the past, in the columns of the state that are in ``columns``.

        They have ``valid_from`` (null: unknown) and ``valid_to`` (null: still valid) besides, timestamps in
        microseconds, UTC. Intervals of one row key do not overlap.
        """


class DeltaPart(Reader, ABC):
    """A piece of the changes of several versions in one state."""

    @property
    @abstractmethod
    def rows(self) -> int | None:
        """Upper bound of the rows in it; None: unknown until it is read."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """All columns of the state."""

    @abstractmethod
    def lifetimes(self, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Rows with two columns before their own: the version that wrote the row, and the one that ended it (or
        null).
        """

    @abstractmethod
    def deltas(self, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Changes with two columns before their own: the version, and the kind as an index into
        `statestore.catalog.reads.change_rows.CHANGE_TYPES`."""


class Source(Reader, ABC):
    """One checkpoint, job or application directory, or one keyed store, as it stood when it was opened.

    What is not abstract is derived from what is, and overwritten where the engine has a shorter way or another rule.
    """

    @property
    @abstractmethod
    def path(self) -> str:
        """The location, as messages show it: without credentials."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """The id that distinguishes the source from another one at the same location, earlier or later."""

    @abstractmethod
    def states(self) -> Sequence[str]:
        """Names of the states that are listed."""

    @abstractmethod
    def info(self, state: str) -> StateInfo:
        """A state by its name, listed or not. Raises NotFoundError."""

    @abstractmethod
    def versions(self, state: str, numbers: Sequence[int] | None = None) -> Sequence[Version]:
        """Return these versions, by default all that are known, ascending, including purged ones."""

    @abstractmethod
    def at(self, state: str, version: int) -> StateAt:
        """The state as of a version that is readable."""

    @property
    def place(self) -> Location | None:
        """The location, with the options by which its files are reached; by default that of a local `path`, and None
        where files are not known, such as for topics of a broker."""
        try:
            location = parse_location(self.path)
        except InvalidInputError:
            return None
        return location if location.is_local else None

    @property
    def version_words(self) -> tuple[str, str]:
        """The engine's words for a version, singular and plural."""
        return "version", "versions"

    @property
    def keeps_versions(self) -> bool:
        """Whether the format can keep states of several moments. Others have no history and no changes by version."""
        return True

    @property
    def default(self) -> str | None:
        """The state that is read where none is named; None if one of several must be named."""
        states = self.states()
        return states[0] if len(states) == 1 else None

    def listed_as(self, name: str) -> str | None:
        """The listed name of the state that a user calls ``name``; None where no state is called so."""
        return name if name in self.states() else None

    def kept(self, state: str) -> Sequence[int]:
        """The versions that history covers, ascending. Raises NotFoundError where there is none."""
        found = [version.number for version in self.versions(state) if version.readable and version.holds_state]
        if not found:
            raise NotFoundError(
                ErrorCode.VERSION_NOT_FOUND, f"{state} of {self.path} has no {self.version_words[0]} to read"
            )
        return found

    def newest(self, state: str) -> int:
        """The newest version, whether it is readable or not. Raises NotFoundError where there is none."""
        return self.kept(state)[-1]

    def last_known(self, state: str) -> int:
        """The newest number in use: that of the newest version, or of an event after it."""
        return self.newest(state)

    def check_readable(self, state: str, version: int) -> None:
        """Raise NotFoundError VERSION_NOT_FOUND, stating the kept versions, for a version that cannot be read."""
        kept = self.kept(state)
        if version not in kept:
            word, words = self.version_words
            raise NotFoundError(
                ErrorCode.VERSION_NOT_FOUND,
                f"{self.path} has no {state} of {word} {version}; {words} {kept[0]} to {kept[-1]} can be read",
            )

    def no_time(self, state: str, version: int) -> NotFoundError:
        """The error for a read by time, or a history in which other versions have times, over a version whose time is
        unknown."""
        word = self.version_words[0]
        return NotFoundError(
            ErrorCode.TIME_NOT_KEPT,
            f"{word} {version} of {self.path} has no time, which a history and reads by time need; use "
            f"numbers of {word}s: read changes() by start_version and end_version, diff(), or the state of a {word}",
        )

    def is_origin(self, state: str) -> bool:
        """Return whether no version precedes the oldest kept one, so that its rows are known to have begun with it."""
        return self.kept(state)[0] == self.versions(state)[0].number

    def shared_schema(self, state: str) -> pa.Schema:
        """Columns that fit the rows of every kept version."""
        return self.info(state).columns

    def notices(self, state: str, versions: Sequence[int], parts: Sequence[Part] | None = None) -> Sequence[str]:
        """Reasons why rows of these versions may not be those that the engine would show, as sentences without a name.

        ``parts`` are those of the one version that are read; None: all. An empty answer means that nothing is known
        against the rows. The plan of each read asks for it, so it should cost less than the read.
        """
        return ()

    def size(self, state: str) -> StateSize:
        """The size of what is kept of the state."""
        files = list(self.at(state, self.newest(state)).files())
        return StateSize(sum(file.bytes for file in files), files=len(files))

    def file_findings(self, state: str, versions: Sequence[int]) -> Sequence[FileFinding]:
        """Return what is wrong with files of these versions although rows can be read, for a verification.

        Reads do not ask for it, so it may cost as much as a read.
        """
        return ()

    def check_resumable(self, state: str, version: int) -> None:
        """Raise NotFoundError VERSION_NOT_FOUND if a stream that has read the changes up to a version cannot resume,
        because a single version between others was removed. By default none can be.
        """

    def holding(self) -> Source:
        """The source with the files of its versions kept readable until the last reference to it is gone, as far as
        the place of the files and the limits of the system allow. By default the source itself, which holds none.

        Raises NotFoundError VERSION_GONE where the engine has replaced its newest version already.
        """
        return self

    # Changes, from what the engine keeps of them or else from comparisons of versions

    def delta_parts(
        self, state: str, versions: Sequence[Version], before: Version | None, filters: Sequence[Filter]
    ) -> Sequence[DeltaPart] | None:
        """Pieces of the changes of ``versions``, which follow ``before``. No row key is in two of them.

        None where the engine keeps no changes (such as Spark's changelogs): versions are then compared, slice by slice.
        """
        return None

    def written(self, state: str, version: Version, before: Version) -> Written | None:
        """The rows that were written after ``before`` up to a version, from the version's own files alone.

        ``before`` may be gone by now. None where the files say less than everything that changed, as by default: those
        of a version without a delta or a changelog, of one that has other columns than ``before``, or of one that has
        others between itself and ``before``, which only few engines can tell of. Both versions are then compared.
        """
        return None

    def difference_filters(self, state: str, old: int, new: int) -> Sequence[Filter]:
        """Filters that leave out only rows which are the same in two versions, by default none."""
        return ()

    def differing_rows(
        self, state: str, old: int, new: int, columns: Sequence[Collection[str]]
    ) -> Iterator[tuple[Sequence[pa.RecordBatch], Sequence[pa.RecordBatch]]] | None:
        """Pairs of the rows of two versions, which hold all rows that differ, each with at least the columns asked for.

        A row key is in one pair at most, with its rows of both versions. Some rows of a pair may be equal. By default
        the pairs are the slices that are not known to have the same content. ``columns`` are those of each version.
        None: both states are to be read in whole.
        """
        return self._differing_slices(state, old, new, columns)

    def _differing_slices(
        self, state: str, old: int, new: int, columns: Sequence[Collection[str]]
    ) -> Iterator[tuple[Sequence[pa.RecordBatch], Sequence[pa.RecordBatch]]]:
        ats = [self.at(state, version) for version in (old, new)]
        for piece in self.slices(state, [old, new], ()):
            contents = [self.content(at, piece) for at in ats]
            if contents[0] is None or contents[0] != contents[1]:
                # Equal rows of a bag are told from each other by their number in the whole slice.
                found = self.differing_slice(ats[0], ats[1], piece, columns) if self.info(state).row_key else None
                if found is not None:
                    yield from found
                    continue
                before, after = (
                    [batch for part in self.slice_parts(at, piece, ()) for batch in at.rows(part, names, ())]
                    for at, names in zip(ats, columns, strict=True)
                )
                yield before, after

    def differing_slice(
        self, old: StateAt, new: StateAt, piece: Any, columns: Sequence[Collection[str]]
    ) -> Iterator[tuple[Sequence[pa.RecordBatch], Sequence[pa.RecordBatch]]] | None:
        """Pairs of the rows of two versions in a slice, as `differing_rows` returns them for a state.

        None, as by default: both versions of the slice are to be read in whole.
        """
        return None

    def slices(self, state: str, versions: Sequence[int], filters: Sequence[Filter]) -> Sequence[Any]:
        """Picklable slices that may hold rows which pass the filters; by default one for all rows.

        The state is divided the same way in all these versions: equal row keys are in the same slice. One slice of two
        versions must fit in memory.
        """
        return [None]

    def slice_parts(self, at: StateAt, piece: Any, filters: Sequence[Filter]) -> Sequence[Part]:
        """The parts of a version within a slice."""
        return at.parts(filters)

    def content(self, at: StateAt, piece: Any) -> Hashable | None:
        """A value that is equal for two versions only if the slice has the same rows in both; None: unknown."""
        return None

    def moment(self, state: str, before: Version | None) -> tuple[Version, tuple[int, int] | None] | None:
        """The state as it is now, as a version for captures, in a format that keeps one moment only.

        ``before`` is the one that was captured last. The number grows with each change, and is the same in every look
        at the same state; it is none of `versions`. Besides it the first and the last number of what was between the
        two and cannot be read any more, or None. None: there is nothing to capture yet. `written` tells what changed.
        Raises NotFoundError TIME_NOT_KEPT, as by default, where the state has no such number or time.
        """
        raise self.no_time(state, self.newest(state))

    def missing_between(self, state: str, old: int, new: int) -> tuple[int, int] | None:
        """The first and the last number between two versions that another version may have had which cannot be read any
        more; None where there was none. By default these are all numbers that no event without state has."""
        if new == old + 1:
            return None
        events = {version.number for version in self.versions(state) if not version.holds_state}
        first, last = old + 1, new - 1
        while first in events:
            first += 1
        while last in events:
            last -= 1
        return (first, last) if first <= last else None

    # The job that keeps the states

    def described(self) -> str | None:
        """The text of a file that states what is known and guessed of the states; None where nothing is guessed.

        A user corrects the file and gives it to later reads, or to a check of a restore (`RestoreCheck`).
        """
        return None

    def job_info(self) -> Job | None:
        """The job as of the newest version; None where files record nothing of it."""
        return None

    def keyed_operators(self, version: int | None = None) -> Sequence[KeyedOperator] | None:
        """The operators with keyed state of a version, by default of the newest one that can be read; None where the
        engine has no such operators.

        Raises NotFoundError VERSION_NOT_FOUND.
        """
        return None

    def edit_plan(self, version: int, edits: Sequence[StateEdit], options: EditOptions) -> EditPlan:
        """The plan of a target that differs from a version of this source by the edits. Writes nothing.

        Raises UnsupportedError EDIT_UNSUPPORTED for a state that cannot be edited, as by default none can, and
        InvalidInputError EDIT_REFUSED for an edit that the engine would not go on from.
        """
        raise UnsupportedError(
            ErrorCode.EDIT_UNSUPPORTED,
            f"{self.path}: no state of this engine can be edited; it can be read, and imported into a store",
        )

    def engine_reads(self) -> EngineReads | None:
        """The reads of this source by the engine's own reader; None, as by default, where Python reaches none."""
        return None

    def restore_check(self) -> RestoreCheck | None:
        """The check of what becomes of the newest version when a job is started from it; None where the engine has
        none.
        """
        return None


@dataclass(frozen=True)
class RestoreCheck:
    """The findings about a version of a source from which a job is started.

    ``for_job`` returns them for the job of which another source has a version. It raises InvalidInputError
    STATE_SELECTION where that is a job of another engine. ``for_description`` returns them for the job that a text
    describes, as `Source.described` returns one; its second argument is the name of the text's file. It raises
    InvalidInputError INVALID_OPTION for a text that describes no job.
    """

    for_job: Callable[[Source], Sequence[RestoreFinding]]
    for_description: Callable[[str, str], Sequence[RestoreFinding]]


class Opening(Protocol):
    """The means to open a source anew; picklable."""

    def open(self) -> Source: ...
