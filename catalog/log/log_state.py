"""The log state: the segments, the pending closures and the list of commits of a store at a version, as pure values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from statestore.catalog.log.entries import CommitEntry, Horizon, entry_name
from statestore.catalog.log.source_versions import CapturedLog, Gap, followed, gaps_among
from statestore.catalog.log.store_spec import replaced
from statestore.catalog.log.version_chunks import NO_TIME, NUMBERS, TEXTS
from statestore.catalog.log.versions import NO_VERSIONS, Versions
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.segments.segment_meta import ClosureSlice, FileRef, SegmentMeta

# A consumed changelog is deleted right after its commit. Its name only matters if a crash came between, and then only
# until the next handle opens the store.
KEPT_CHANGELOGS = 1_000


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
    captured: CapturedLog | None = None  # None: no commit has captured a version of a source

    @cached_property
    def stream_time_us(self) -> int:
        """The greatest state time recorded, epoch microseconds; NO_TIME before the first record."""
        return self.versions.stream_time_at(self.version) if self.version >= 0 else NO_TIME

    @property
    def stream_time(self) -> int | None:
        """The greatest state time recorded, epoch microseconds; None before the first record."""
        return None if self.stream_time_us == NO_TIME else self.stream_time_us

    @cached_property
    def gaps(self) -> Sequence[Gap]:
        """The gaps between captured versions that end behind the horizon; chunks are read only where there are more
        than a thousand.

        Raises CorruptError LOG_CORRUPT for a chunk that cannot be read.
        """
        if self.captured is None:
            return ()
        known, horizon = self.captured.gaps, self.horizon
        if not self.captured.complete and (horizon is None or known[0].until > horizon.time):
            known = tuple(gaps_among(self.versions.source))
        return known if horizon is None else tuple(gap for gap in known if gap.until > horizon.time)


EMPTY = LogState(-1, NO_VERSIONS)


def file_names(log_state: LogState) -> set[str]:
    """Return the data files of a log state: segments, key indexes and closure lists."""
    refs: list[FileRef | None] = [ref for m in log_state.segments for ref in (m.file, m.index)]
    refs += [c.file for slices in log_state.closures.values() for c in slices]
    return {ref.name for ref in refs if ref is not None}


def advance(log_state: LogState, entry: CommitEntry) -> LogState:
    """Return the log state after one more commit.

    Raises CorruptError LOG_CORRUPT if the entry does not fit, NotFoundError STORE_REPLACED if it belongs to another
    store, or says that another one has taken this one's place.
    """
    if entry.version != log_state.version + 1:
        raise CorruptError(
            ErrorCode.LOG_CORRUPT,
            f"version {entry.version} follows version {log_state.version}; restore the missing log entries",
        )
    if (log_state.store and entry.store not in ("", log_state.store)) or entry.replacement:
        raise replaced(entry_name(entry.version), log_state.store or entry.store)
    segments = (*log_state.segments, *entry.added)
    closures = dict(log_state.closures)
    if entry.removed:
        removed = set(entry.removed)
        names = {meta.name for meta in log_state.segments}
        if not removed <= names:
            raise _misfit(entry.version, f"removes segment {min(removed - names)}, which the store does not have")
        segments = (*(meta for meta in log_state.segments if meta.name not in removed), *entry.added)
        for name in removed:
            closures.pop(name, None)
    added: dict[str, list[ClosureSlice]] = {}
    for piece in entry.closures:
        added.setdefault(piece.segment, []).append(piece)
    for name, pieces in added.items():
        closures[name] = (*closures.get(name, ()), *pieces)
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
        followed(log_state.captured, entry.version, entry.source),
    )


def _followed(ends: Mapping[str, int], consumed: tuple[tuple[str, int], ...]) -> Mapping[str, int]:
    """Return the newest KEPT_CHANGELOGS names, oldest first, with the offset up to which each was read."""
    if not consumed:
        return ends
    followed = ends.copy() if isinstance(ends, dict) else dict(ends)  # a quarter of the time of {**ends}
    followed.update(consumed)
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


def check_versions(log_state: LogState, segments: Iterable[SegmentMeta], pieces: Iterable[ClosureSlice]) -> None:
    """Raise CorruptError LOG_CORRUPT if one of these segments and closures names a commit later than the log state."""
    for meta in segments:
        if max(meta.max_added, meta.last_closed, meta.split_closed, meta.late_added, meta.max_dropped) > (
            log_state.version
        ):
            raise _later(log_state, meta.name)
    for piece in pieces:
        if piece.version > log_state.version:
            raise _later(log_state, piece.segment)


def _later(log_state: LogState, name: str) -> CorruptError:
    return CorruptError(
        ErrorCode.LOG_CORRUPT,
        f"version {log_state.version}: {name} has rows of a later version; restore the log from a copy",
    )


def _misfit(version: int, problem: str) -> CorruptError:
    return CorruptError(ErrorCode.LOG_CORRUPT, f"version {version} {problem}; restore the log from a copy")
