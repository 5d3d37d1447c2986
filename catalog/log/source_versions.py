"""Versions of a source that a captured store holds: which one a commit has, and which ones are missing before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from statestore.catalog.log.log_checks import INT64, VERSION, check_int, check_text

KEPT_GAPS = 1_000
"""The number of gaps, the newest ones, that a log state has at hand."""
_SOURCE_FIELDS = ("version", "time", "watermark", "offsets", "missing")


@dataclass(frozen=True)
class SourceVersion:
    """The version of a source (a batch, a checkpoint) that a commit captured. Times are epoch microseconds.

    ``version`` is the engine's number, ``time`` when its state began to hold. ``missing`` are the first and the last
    version between the captured one before and this one, where nobody could read them.
    """

    version: int
    time: int
    watermark: int | None = None
    offsets: str | None = None
    missing: tuple[int, int] | None = None


@dataclass(frozen=True)
class Gap:
    """Versions of a source, from ``first`` to ``last``, that nobody could read before they were purged.

    ``since`` is the time of the captured version before them (None: there is none), ``until`` that of the version
    after them, with which ``commit``, a version of the store, bridged the gap. The state from ``since`` to ``until`` is
    not known.
    """

    first: int
    last: int
    since: int | None
    until: int
    commit: int


@dataclass(frozen=True)
class CapturedLog:
    """The captured versions up to a commit: the time of the first one, the newest one, and the gaps between them.

    ``commit`` is the version of the store that has the newest one. ``gaps`` are at most `KEPT_GAPS`, in the order of
    their commits; ``complete`` is false where there are earlier ones.
    """

    begins: int
    newest: SourceVersion
    commit: int
    gaps: tuple[Gap, ...] = ()
    complete: bool = True


def followed(captured: CapturedLog | None, commit: int, source: SourceVersion | None) -> CapturedLog | None:
    """Return the captured versions after one more commit, which has captured ``source`` or nothing."""
    if source is None:
        return captured
    if captured is None:
        found = gap_of(source, None, commit)
        return CapturedLog(source.time, source, commit, () if found is None else (found,))
    found = gap_of(source, captured.newest.time, commit)
    if found is None:
        return replace(captured, newest=source, commit=commit)
    complete = captured.complete and len(captured.gaps) < KEPT_GAPS
    gaps = (*captured.gaps[-(KEPT_GAPS - 1) :], found)
    return CapturedLog(captured.begins, source, commit, gaps, complete)


def gap_of(source: SourceVersion, before: int | None, commit: int) -> Gap | None:
    """Return the gap that a commit has bridged; ``before`` is the time of the captured version before it."""
    return None if source.missing is None else Gap(*source.missing, before, source.time, commit)


def gaps_among(sources: Iterable[SourceVersion | None]) -> list[Gap]:
    """Return all gaps of commits, of which the first is version 0."""
    found, before = [], None
    for commit, source in enumerate(sources):
        if source is not None:
            gap = gap_of(source, before, commit)
            if gap is not None:
                found.append(gap)
            before = source.time
    return found


def check_source(source: Any) -> None:
    """Raise ValueError unless every field of a captured version has its type and range."""
    if not isinstance(source, SourceVersion):
        raise ValueError(f"source is {source!r}, expected a SourceVersion")
    check_int(source.version, INT64, "version of the source")
    check_int(source.time, INT64, "time of the source's version")
    if source.watermark is not None:
        check_int(source.watermark, INT64, "watermark of the source's version")
    if source.offsets is not None:
        check_text(source.offsets, "offsets of the source's version")
    if source.missing is not None:
        if type(source.missing) is not tuple or len(source.missing) != 2:
            raise ValueError(f"missing versions are {source.missing!r}, expected the first and the last one")
        for number in source.missing:
            check_int(number, INT64, "missing version of the source")
        if not source.missing[0] <= source.missing[1] < source.version:
            raise ValueError(f"missing versions are {source.missing!r} before version {source.version}")


def source_to_json(source: SourceVersion) -> dict[str, Any]:
    """Return a captured version as a JSON object, without the fields that are null."""
    found = {name: getattr(source, name) for name in _SOURCE_FIELDS}
    if source.missing is not None:
        found["missing"] = list(source.missing)
    return {name: value for name, value in found.items() if value is not None}


def source_from_json(fields: Any) -> SourceVersion:
    """Return the captured version of a JSON object. Raises ValueError or TypeError for anything else."""
    if type(fields) is not dict or None in fields.values():
        raise ValueError(f"source is {fields!r}, expected an object without nulls")
    missing = fields.get("missing")
    source = SourceVersion(**{**fields, "missing": None if missing is None else tuple(missing)})
    check_source(source)
    return source


def captured_to_json(captured: CapturedLog) -> dict[str, Any]:
    """Return captured versions as a JSON object of a log checkpoint."""
    return {
        "begins": captured.begins,
        "newest": source_to_json(captured.newest),
        "commit": captured.commit,
        "gaps": [[gap.first, gap.last, gap.since, gap.until, gap.commit] for gap in captured.gaps],
        "complete": captured.complete,
    }


def captured_from_json(fields: Any, newest: int) -> CapturedLog:
    """Return the captured versions of a log checkpoint of version ``newest``. Raises ValueError or TypeError."""
    gaps = tuple(Gap(*gap) for gap in fields["gaps"])
    source = source_from_json(fields["newest"])
    captured = CapturedLog(**{**fields, "newest": source, "gaps": gaps})
    check_int(captured.begins, INT64, "time of the first captured version")
    commits = [gap.commit for gap in gaps] + [captured.commit]
    for number in commits:
        check_int(number, VERSION, "commit of a captured version")
    if commits != sorted(commits) or commits[-1] > newest or type(captured.complete) is not bool:
        raise ValueError(f"captured versions of commits {commits[-5:]} at version {newest}")
    for gap in gaps:
        for number in (gap.first, gap.last, gap.until, *(() if gap.since is None else (gap.since,))):
            check_int(number, INT64, "bound of a gap")
    return captured
