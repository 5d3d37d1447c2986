"""A state of an engine as a `StateTable` for every door: moments, history, change feed.

A version is one of the engine (a batch, a snapshot, a savepoint); its state time is the moment at which it took effect.
Each question reads the directory once: `EngineTable.pin` opens the source, and every read of the pinned table, in this
process or in Spark tasks, sees that one view. A running engine may remove files meanwhile: then the question is asked
again, of the source opened anew (`statestore.formats.replaced_versions`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa

from statestore.catalog.engines.compared_versions import ComparedSplit, read_compared
from statestore.catalog.engines.delta_history import DeltaSplit, delta_splits, read_deltas
from statestore.catalog.engines.history_columns import TIME_COLUMNS, history_columns
from statestore.catalog.engines.past_rows import PastSplit, past_columns, past_of, past_splits, read_past
from statestore.catalog.engines.version_rules import (
    change_start,
    check_numbers,
    goes_by_number,
    history_start,
    range_asked,
    version_asked,
)
from statestore.catalog.log.version_rows import VERSIONS_SCHEMA, rows_table
from statestore.catalog.reads.added_columns import CHANGE_COLUMNS
from statestore.formats.engine import Opening, Part, Reader, Source, StateAt, StateInfo, Version
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, StateStoreError
from statestore.formats.notices import notify
from statestore.formats.replaced_versions import again, cause, explained
from statestore.formats.state_table import Query, RowPair, StateTable
from statestore.formats.table_columns import checked_filters, chosen_columns, fields_read, narrowed
from statestore.formats.values.filters import Filter, mask, with_whole_structs

T = TypeVar("T")


@dataclass(frozen=True)
class PartSplit:
    """A part of the state as of one version."""

    at: StateAt
    part: Part

    @property
    def rows(self) -> int | None:
        """Upper bound of the rows; None: unknown until read."""
        return self.part.rows


EngineSplit = PartSplit | ComparedSplit | DeltaSplit | PastSplit


@dataclass(frozen=True)
class EngineTable(StateTable):
    """One state of a source, which users call ``called``.

    ``pinned``: the source that answers every question; None: each question opens the source. ``bound``: the newest
    version that the table has, which is read where none is asked for; None: that of the source. ``strict``: rows that
    may not be current are refused.
    """

    opening: Opening
    called: str
    state: str
    pinned: Source | None = None
    bound: int | None = None
    strict: bool = False

    @property
    def name(self) -> str:
        return self.called

    def pin(self) -> EngineTable:
        """Return the table bound to its current content."""
        return self if self.pinned is not None else replace(self, pinned=again(lambda: self.opening.open().holding()))

    def for_tasks(self) -> EngineTable:
        """Return the table without its source: a split has what reads it."""
        return replace(self, pinned=None)

    @property
    def source(self) -> Source:
        """The pinned source, or else the source in its current content."""
        return self.opening.open().holding() if self.pinned is None else self.pinned

    def ask(self, question: Callable[[Source], T]) -> T:
        """Return the answer of the source to a question that hands out no rows.

        It is asked again where the engine has replaced what it reads. Raises NotFoundError VERSION_GONE where a pinned
        source has lost its version.
        """

        def once() -> T:
            source = self.source
            return explained(source, self.state, lambda: question(source))

        return again(once)

    @property
    def info(self) -> StateInfo:
        """Columns, keys and kind of the state."""
        return self.ask(lambda source: source.info(self.state))

    @property
    def key_columns(self) -> tuple[str, ...]:
        return self.info.key

    @property
    def row_key(self) -> tuple[str, ...]:
        """The key and the columns that distinguish several rows of one key; () for a bag."""
        return self.info.row_key

    @property
    def lookup_columns(self) -> tuple[tuple[str, ...], ...]:
        """The sets of columns by which rows can be looked up, the smallest first."""
        info = self.info
        return info.lookups or tuple(dict.fromkeys((info.key, info.row_key or info.key)))

    @property
    def one_zero(self) -> bool:
        return self.info.one_zero

    @property
    def placement_columns(self) -> tuple[str, ...]:
        return self.info.placement

    @property
    def identity(self) -> str:
        return self.ask(lambda source: source.identity)

    def kept_versions(self) -> tuple[int, int]:
        """Return (oldest, newest) version that history covers. Raises NotFoundError if there is none."""
        kept = self.ask(lambda source: source.kept(self.state))
        newest = kept[-1] if self.bound is None else self.bound
        return min(kept[0], newest), newest

    def versions(self) -> pa.Table:
        """Return one row per known version, including those that can no longer be read."""
        return rows_table(VERSIONS_SCHEMA, map(version_row, self.ask(lambda source: source.versions(self.state))))

    def lookup_floor(self, version: int) -> int | None:
        return None

    def change_start(self) -> int:
        """Return the version before the first one whose changes are known."""
        return self.ask(lambda source: change_start(source, self.state))

    def known_from(self, version: int) -> int | None:
        """Return where the history up to a version begins, in epoch microseconds; None if nothing was before it."""
        return self.ask(lambda source: _known_from(source, self.state, version))

    def check_resumable(self, version: int) -> None:
        """Raise NotFoundError VERSION_NOT_FOUND if a stream that has read up to a version cannot continue."""
        self.ask(lambda source: source.check_resumable(self.state, version))

    def schema(self, query: Query) -> pa.Schema:
        """Return the columns of the answer.

        Raises NotFoundError COLUMN_NOT_FOUND, and for columns of a version or moment also the errors of `splits`.
        """
        query = self._within_bound(query)
        return self.ask(lambda source: chosen_columns(_whole(source, self.state, query), query, self.name))

    def splits(self, query: Query) -> Sequence[EngineSplit]:
        """Return the pieces of the answer; each carries the view of the directory from which it was made.

        Notices about the rows are passed on here (`statestore.formats.notices`). Raises NotFoundError
        VERSION_NOT_FOUND, TIME_NOT_KEPT, COLUMN_NOT_FOUND or ROWS_UNCERTAIN, InvalidInputError INVALID_VERSION,
        INVALID_RANGE or INVALID_FILTER.
        """
        return self.ask(lambda source: self._splits(source, query))

    def _splits(self, source: Source, query: Query) -> Sequence[EngineSplit]:
        state = self.state
        check_numbers(query, source.version_words[0])
        query = self._within_bound(query)
        whole = _whole(source, state, query)
        chosen_columns(whole, query, self.name)
        query = checked_filters(whole, query, self.name)
        query = replace(query, filters=with_whole_structs(query.filters, whole))
        if _is_past(source, state, query):
            past = _past_asked(source, state, query)
            found = past_splits(source, source.info(state), past, query)
            self._notify(source, [past.version], [split.part for split in found])
            return found
        if query.mode == "state":
            at = source.at(state, version_asked(source, state, query))
            with reading(at, state, [at.version]):
                read = at.parts(query.filters)
            self._notify(source, [at.version], read)
            return [PartSplit(at, part) for part in read]
        asked = range_asked(source, state, query)
        if not asked.versions:
            return []
        before = [] if asked.before is None else [asked.before.number]
        self._notify(source, [*before, *(version.number for version in asked.versions)])
        numbers = [version.number for version in asked.versions]
        with reading(source, state, numbers):
            parts = source.delta_parts(state, asked.versions, asked.before, query.filters)
        if parts is not None:
            return delta_splits(parts, asked.versions, asked.origin)
        pieces = source.slices(state, numbers, query.filters)
        return [ComparedSplit(source, asked.versions, asked.before, asked.origin, piece) for piece in pieces]

    def count(self, query: Query) -> int | None:
        """Return the number of rows of a state, where the engine's metadata has it."""
        return self.ask(lambda source: self._count(source, query))

    def _count(self, source: Source, query: Query) -> int | None:
        if query.mode != "state" or query.filters or _is_past(source, self.state, query):
            return None
        query = self._within_bound(query)
        at = source.at(self.state, version_asked(source, self.state, query))
        found = at.count()
        if found is not None:
            self._notify(source, [at.version])
        return found

    def difference_filters(self, old: Query, new: Query) -> Sequence[Filter]:
        """Return filters that leave out only rows which are the same in both versions of a state."""
        return self.ask(lambda source: self._difference_filters(source, old, new))

    def _difference_filters(self, source: Source, old: Query, new: Query) -> Sequence[Filter]:
        bound = [self._within_bound(query) for query in (old, new)]
        if source.info(self.state).has_past or any(query.as_of is not None for query in bound):
            return ()
        versions = [version_asked(source, self.state, query) for query in bound]
        return source.difference_filters(self.state, *versions)

    def differing(self, old: Query, new: Query) -> Iterator[RowPair] | None:
        """Return pairs of rows that hold all rows which differ between two versions of a state.

        Rows that have times of their own are of one version, and are compared in whole.
        """
        source, state, queries = self.source, self.state, [self._within_bound(query) for query in (old, new)]
        if source.info(state).has_past:
            return None
        versions = self.ask(lambda source: [version_asked(source, state, query) for query in queries])
        columns = [tuple(query.columns or ()) for query in queries]
        with reading(source, state, versions):
            found = source.differing_rows(state, versions[0], versions[1], columns)
        return None if found is None else self._differing(source, versions, columns, found)

    def _differing(
        self, source: Source, versions: Sequence[int], columns: Sequence[Sequence[str]], found: Iterator[RowPair]
    ) -> Iterator[RowPair]:
        with reading(source, self.state, versions):
            for version in versions:
                self._notify(source, [version])
            for pair in found:
                before, after = (
                    [batch.select(names) for batch in batches] for batches, names in zip(pair, columns, strict=True)
                )
                yield before, after

    def unsafe_columns(self, query: Query) -> tuple[str, ...]:
        """Return the columns of the answer that can be read as Spark's own rows."""
        return self.ask(lambda source: self._unsafe_columns(source, query))

    def _unsafe_columns(self, source: Source, query: Query) -> tuple[str, ...]:
        if query.mode != "state" or _is_past(source, self.state, query):
            return ()
        query = self._within_bound(query)
        at = source.at(self.state, version_asked(source, self.state, query))
        names = at.schema.names if query.columns is None else query.columns
        pruned = {path[0] for path in query.fields}
        return tuple(name for name in at.unsafe_columns if name in names and name not in pruned)

    def read(self, split: EngineSplit, query: Query) -> Iterator[pa.RecordBatch]:
        """Yield rows in the order of the engine's files; histories and changes have no order.

        Raises CorruptError, and NotFoundError, which states what is kept now, if files were removed in the meantime:
        VERSION_GONE where another read may succeed.
        """
        with reading(_reader(split), self.state, _versions(split)):
            yield from self._read(split, query)

    def _notify(self, source: Source, versions: Sequence[int], parts: Sequence[Part] | None = None) -> None:
        """Pass on what is known against the rows of a read. Raises NotFoundError ROWS_UNCERTAIN in a strict table."""
        subject = f"{self.name} of {source.path}"
        notify(subject, source.notices(self.state, versions, parts), strict=self.strict)

    def _within_bound(self, query: Query) -> Query:
        """Return the query for the versions up to the bound. Raises InvalidInputError CONFLICTING_OPTIONS."""
        if self.bound is None:
            return query
        if query.mode == "changes":
            raise InvalidInputError(
                ErrorCode.CONFLICTING_OPTIONS,
                f"{self.name} was opened as of version {self.bound}, which does not go with changes; open it without a "
                "version, and give the first and the last version of the changes",
            )
        if query.version is not None and query.version > self.bound:
            raise InvalidInputError(
                ErrorCode.CONFLICTING_OPTIONS,
                f"{self.name} was opened as of version {self.bound}, and version {query.version} was asked for; give "
                "one of them",
            )
        return replace(query, version=self.bound if query.version is None else query.version)

    def _read(self, split: EngineSplit, query: Query) -> Iterator[pa.RecordBatch]:
        whole = _columns(split, self.state, query)
        chosen = chosen_columns(whole, query, self.name)
        query = checked_filters(whole, query, self.name)
        if query.unsafe:
            assert isinstance(split, PartSplit), "unsafe_columns is empty for other modes"
            rows = split.at.unsafe_rows(split.part, chosen.names, query.unsafe, query.filters)
            yield from (batch for batch in rows if batch.num_rows)
            return
        needed = {*chosen.names, *(item.column for item in query.filters)}
        planned = replace(query, filters=with_whole_structs(query.filters, whole))
        for batch in self._rows(split, planned, needed, fields_read(query, chosen.names)):
            selected = mask(query.filters, batch) if query.filters else None
            shown = narrowed(batch, chosen) if query.fields else batch.select(chosen.names)
            kept = shown if selected is None else shown.filter(selected)
            if kept.num_rows:
                yield kept

    def _rows(
        self, split: EngineSplit, query: Query, columns: set[str], fields: Mapping[str, Collection[str]]
    ) -> Iterator[pa.RecordBatch]:
        if isinstance(split, PartSplit):
            if fields:
                return split.at.rows_with_fields(split.part, columns, fields, query.filters)
            return split.at.rows(split.part, columns, query.filters)
        if isinstance(split, DeltaSplit):
            return read_deltas(split, query, columns)
        if isinstance(split, PastSplit):
            return read_past(split, query, columns)
        return read_compared(split, self.state, query)


def version_row(version: Version) -> dict[str, Any]:
    """Return a version as a row of ``$versions`` and ``$snapshots``."""
    return {
        "version": version.number,
        "timestamp": version.time,
        "stream_time": version.stream_time,
        "watermark": version.stream_time,
        "readable": version.readable,
        **version.facts,
    }


@contextmanager
def reading(reader: Reader, state: str, versions: Sequence[int]) -> Iterator[None]:
    """Raise errors of missing and of damaged files as the engine explains them, which says what can be read now."""
    try:
        yield
    except StateStoreError as error:
        found = cause(error, reader, state, versions)
        if found is error and isinstance(error, CorruptError):
            found = reader.explain_damage(error, state)
        if found is error:
            raise
        raise found from error


def _reader(split: EngineSplit) -> Reader:
    """Return the object that reads a split."""
    if isinstance(split, PartSplit | PastSplit):
        return split.at
    return split.part if isinstance(split, DeltaSplit) else split.source


def _columns(split: EngineSplit, state: str, query: Query) -> pa.Schema:
    """Return all columns of the answer to which a split belongs."""
    if isinstance(split, PartSplit):
        return split.at.schema
    if isinstance(split, PastSplit):
        return past_columns(split.at, query)
    if isinstance(split, DeltaSplit):
        return _with_mode(split.part.schema, query, split.times)
    return _with_mode(split.source.shared_schema(state), query, [version.time for version in split.versions])


def _versions(split: EngineSplit) -> list[int]:
    """Return the versions whose files a split reads."""
    if isinstance(split, PartSplit | PastSplit):
        return [split.at.version]
    if isinstance(split, DeltaSplit):
        return list(split.numbers)
    before = [] if split.before is None else [split.before.number]
    return [*before, *(version.number for version in split.versions)]


def _whole(source: Source, state: str, query: Query) -> pa.Schema:
    """Return all columns of an answer."""
    if _is_past(source, state, query):
        return past_columns(_past_asked(source, state, query), query)
    if query.mode == "history" and goes_by_number(source, state):
        asked = {*(query.columns or ()), *(item.column for item in query.filters)}
        if not asked.isdisjoint(TIME_COLUMNS):
            raise source.no_time(state, source.kept(state)[-1])
        return _with_mode(source.shared_schema(state), query, [None])
    if query.mode != "state":
        return _with_mode(source.shared_schema(state), query, [0])
    if query.version is None and query.as_of is None:
        return source.info(state).columns
    return source.at(state, version_asked(source, state, query)).schema


def _with_mode(columns: pa.Schema, query: Query, times: Sequence[int | None]) -> pa.Schema:
    """Return the columns of a state, followed by those of a history or a change feed of versions with these times."""
    return pa.schema([*columns, *(history_columns(times) if query.mode == "history" else CHANGE_COLUMNS)])


def _known_from(source: Source, state: str, version: int) -> int | None:
    if source.info(state).has_past:
        return past_of(source.at(state, version)).past_from()
    return history_start(source, state, version)


def _is_past(source: Source, state: str, query: Query) -> bool:
    """Return whether a question is answered by the times of rows."""
    return source.info(state).has_past and (query.mode != "state" or query.as_of is not None)


def _past_asked(source: Source, state: str, query: Query) -> StateAt:
    """Return the version that has the rows of the past: the newest one, or the one that is asked for.

    Raises NotFoundError VERSION_NOT_FOUND.
    """
    numbers = [n for n in (query.version, query.start_version, query.end_version) if n is not None]
    for number in numbers:
        source.check_readable(state, int(number))
    return source.at(state, int(numbers[-1]) if numbers else source.newest(state))
