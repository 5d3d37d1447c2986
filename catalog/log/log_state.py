"""The log state: the segments, the pending closures and the list of commits of a store at a version, as pure values."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from statestore.catalog.log.entries import CommitEntry, Horizon, entry_name
from statestore.catalog.log.store_identity import replaced
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment_meta import ClosureSlice, SegmentMeta

NO_TIME = -1_000  # Kafka's observed stream time starts at -1 ms

# A consumed changelog is deleted right after its commit. Its name only matters if a crash came between, and then only
# until the next handle opens the store.
KEPT_CHANGELOGS = 1_000

NUMBERS = ("timestamp", "stream_time", "rows", "tombstones", "closed", "bytes", "dropped")
TEXTS = ("operation", "writer", "transaction")

# The threads of a process share log states, and so the columns below them. One lock for all, instead of one each, keeps
# log states picklable; it is held for a microsecond for each commit.
_growing = threading.Lock()


def _after_fork() -> None:
    """Replace the lock, which a thread that the child does not have may have held; half-appended columns are not
    continued.
    """
    global _growing
    _growing = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class _Columns:
    """Growing columns that versions share: a longer list of commits uses the memory of the shorter ones."""

    def __init__(self, capacity: int) -> None:
        self.used = 0
        self.numbers: dict[str, Ints] = {name: np.zeros(capacity, np.int64) for name in NUMBERS}
        self.texts: dict[str, list[Any]] = {name: [] for name in TEXTS}
        self.transactions: dict[tuple[str, int], int] = {}

    def copy(self, count: int, capacity: int) -> _Columns:
        new = _Columns(capacity)
        for name in NUMBERS:
            new.numbers[name][:count] = self.numbers[name][:count]
        for name in TEXTS:
            new.texts[name] = self.texts[name][:count]
        new.transactions = {t: v for t, v in self.transactions.items() if v < count}
        new.used = count
        return new


class Versions:
    """All commits up to one of them, as columns; the index is the version. Times are epoch microseconds.

    ``stream_time`` is the greatest known state time after each commit, NO_TIME before the first record.
    """

    def __init__(self, columns: _Columns, count: int) -> None:
        self._columns = columns
        self._count = count

    def __len__(self) -> int:
        return self._count

    @property
    def timestamp(self) -> Ints:
        return self._number("timestamp")

    @property
    def stream_time(self) -> Ints:
        return self._number("stream_time")

    @property
    def rows(self) -> Ints:
        return self._number("rows")

    @property
    def tombstones(self) -> Ints:
        return self._number("tombstones")

    @property
    def closed(self) -> Ints:
        return self._number("closed")

    @property
    def bytes(self) -> Ints:
        return self._number("bytes")

    @property
    def dropped(self) -> Ints:
        return self._number("dropped")

    @property
    def operation(self) -> list[str]:
        return self._columns.texts["operation"][: self._count]

    @property
    def writer(self) -> list[str]:
        return self._columns.texts["writer"][: self._count]

    @property
    def transaction(self) -> list[tuple[str, int] | None]:
        return self._columns.texts["transaction"][: self._count]

    def stream_time_at(self, version: int) -> int:
        return int(self.stream_time[version])

    def stream_time_before(self, versions: Ints) -> Ints:
        """Return the stream time just before each of these commits."""
        before = np.concatenate(([NO_TIME], self.stream_time))
        times: Ints = before[versions]
        return times

    def find_transaction(self, application: str, batch: int) -> int | None:
        """Return the version that committed this transaction; None if no version did."""
        version = self._columns.transactions.get((application, batch))
        return version if version is not None and version < self._count else None

    def append(self, numbers: Mapping[str, int], texts: Mapping[str, Any]) -> Versions:
        """Return the list with one more commit; this list is unchanged."""
        count = self._count
        with _growing:
            columns = self._columns
            halved = any(len(columns.texts[name]) != count for name in TEXTS)
            if columns.used != count or halved or count == len(columns.numbers["rows"]):
                columns = columns.copy(count, max(64, 2 * count))
            for name in NUMBERS:
                columns.numbers[name][count] = numbers[name]
            for name in TEXTS:
                columns.texts[name].append(texts[name])
            if texts["transaction"] is not None:
                columns.transactions.setdefault(texts["transaction"], count)
            columns.used = count + 1
        return Versions(columns, count + 1)

    def _number(self, name: str) -> Ints:
        return self._columns.numbers[name][: self._count]


def versions_from(numbers: Mapping[str, Ints], texts: Mapping[str, list[Any]]) -> Versions:
    """Return versions made of whole columns, as a log checkpoint holds them."""
    count = len(numbers["rows"])
    columns = _Columns(max(64, 2 * count))
    for name in NUMBERS:
        columns.numbers[name][:count] = numbers[name]
    for name in TEXTS:
        columns.texts[name] = list(texts[name])
    for version, transaction in enumerate(columns.texts["transaction"]):
        if transaction is not None:
            columns.transactions.setdefault(transaction, version)
    columns.used = count
    return Versions(columns, count)


@dataclass(frozen=True)
class LogState:
    """The log state of a store at one version.

    ``closures`` are the closures that are not folded yet, by segment name, in the order of their commits.
    """

    version: int
    versions: Versions
    segments: tuple[SegmentMeta, ...] = ()
    closures: Mapping[str, tuple[ClosureSlice, ...]] = field(default_factory=dict)
    horizon: Horizon | None = None
    changelogs: Mapping[str, int] = field(default_factory=dict)
    store: str = ""  # the identity of the store, empty while only entries of format 1 were read

    @cached_property
    def stream_time_us(self) -> int:
        """The greatest state time recorded, epoch microseconds; NO_TIME before the first record."""
        return int(self.versions.stream_time[self.version]) if self.version >= 0 else NO_TIME

    @property
    def stream_time(self) -> int | None:
        """The greatest state time recorded, epoch microseconds; None before the first record."""
        return None if self.stream_time_us == NO_TIME else self.stream_time_us


EMPTY = LogState(-1, Versions(_Columns(64), 0))


def advance(log_state: LogState, entry: CommitEntry) -> LogState:
    """Return the log state after one more commit.

    Raises CorruptError LOG_CORRUPT if the entry does not fit, NotFoundError STORE_REPLACED if it belongs to another
    store.
    """
    if entry.version != log_state.version + 1:
        raise CorruptError(
            ErrorCode.LOG_CORRUPT,
            f"version {entry.version} follows version {log_state.version}; restore the missing log entries",
        )
    if log_state.store and entry.store not in ("", log_state.store):
        raise replaced(entry_name(entry.version), log_state.store)
    removed = set(entry.removed)
    segments = (*log_state.segments, *entry.added)
    if removed:
        names = {meta.name for meta in log_state.segments}
        if not removed <= names:
            raise _misfit(entry.version, f"removes segment {min(removed - names)}, which the store does not have")
        segments = (*(meta for meta in log_state.segments if meta.name not in removed), *entry.added)
    closures = {name: pieces for name, pieces in log_state.closures.items() if name not in removed}
    for piece in entry.closures:
        closures[piece.segment] = (*closures.get(piece.segment, ()), piece)
    stream_time = log_state.stream_time_us if entry.stream_time is None else entry.stream_time
    numbers = {name: getattr(entry, name) for name in NUMBERS if name != "stream_time"}
    versions = log_state.versions.append(
        {**numbers, "stream_time": stream_time}, {name: getattr(entry, name) for name in TEXTS}
    )
    return LogState(
        entry.version,
        versions,
        segments,
        closures,
        entry.horizon or log_state.horizon,
        _followed(log_state.changelogs, entry.changelogs),
        log_state.store or entry.store,
    )


def _followed(ends: Mapping[str, int], consumed: tuple[tuple[str, int], ...]) -> Mapping[str, int]:
    """Return the newest KEPT_CHANGELOGS names, oldest first, with the offset up to which each was read."""
    if not consumed:
        return ends
    followed = {**ends, **dict(consumed)}
    for name in list(islice(followed, max(0, len(followed) - KEPT_CHANGELOGS))):
        del followed[name]
    return followed


def check_layout(log_state: LogState) -> None:
    """Raise CorruptError LOG_CORRUPT if two segments have one name, or if closures name a segment that does not exist.

    The check is not part of `advance`, which replays thousands of entries: only the final layout is read.
    """
    names = {meta.name for meta in log_state.segments}
    if len(names) != len(log_state.segments):
        raise _misfit(log_state.version, "has a segment twice")
    if not log_state.closures.keys() <= names:
        unknown = min(log_state.closures.keys() - names)
        raise _misfit(log_state.version, f"closes rows of segment {unknown}, which the store does not have")


def _misfit(version: int, problem: str) -> CorruptError:
    return CorruptError(ErrorCode.LOG_CORRUPT, f"version {version} {problem}; restore the log from a copy")
