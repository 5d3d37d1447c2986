"""Rules for the version that a question means and the versions that a history or a change feed covers, for all engines.

State as of a moment is the state of the newest version whose time was reached by then. Changes are known for every
version after the oldest kept one, and for the oldest itself if nothing was before it. A row of the oldest version may
be older than that version, unless nothing was before it.

Changes by version need no times: those of a version whose time is unknown are null. Where no version has a known time,
a history goes by the numbers of versions, too (`goes_by_number`). Reads by time need all times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from statestore.formats.engine import Source, Version
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError
from statestore.formats.state_table import Query, check_number
from statestore.formats.values.times import format_time


@dataclass(frozen=True)
class Range:
    """``versions`` in ascending order; the times never decrease. In a change feed some may be unknown, in a history all
    or none.

    ``before`` is the version before the first of a change feed, None where the state was empty. ``origin``: nothing was
    before the first version of a history.
    """

    versions: tuple[Version, ...]
    before: Version | None
    origin: bool


def check_numbers(query: Query, word: str) -> None:
    """Raise InvalidInputError INVALID_VERSION for a version that is not a number."""
    for version in (query.version, query.start_version, query.end_version):
        check_number(version, f"an int, the number of a {word}")


def version_asked(source: Source, state: str, query: Query) -> int:
    """Return the version whose state answers a query about a state at a moment.

    Raises NotFoundError VERSION_NOT_FOUND or TIME_NOT_KEPT, which state what is kept.
    """
    check_numbers(query, source.version_words[0])
    if query.version is not None:
        source.check_readable(state, int(query.version))
    if query.as_of is None:
        return source.newest(state) if query.version is None else int(query.version)
    numbers = [n for n in source.kept(state) if query.version is None or n <= query.version]
    timed = [version for version in _versions_until(source, state, numbers, query.as_of) if version.time is not None]
    begun = [version for version in timed if version.time is not None and version.time <= query.as_of]
    if begun:
        return begun[-1].number
    if not timed and numbers:
        raise source.no_time(state, numbers[-1])
    words = source.version_words[1]
    first = timed[0].time if timed else None
    kept = f"no {words}" if first is None else f"{words} of {format_time(first)} or later"
    raise NotFoundError(
        ErrorCode.TIME_NOT_KEPT, f"{state} of {source.path} keeps {kept}, asked for {format_time(query.as_of)}"
    )


def _versions_until(source: Source, state: str, numbers: Sequence[int], moment: int) -> Sequence[Version]:
    """The versions with their times; where one is damaged, those from the newest down to the first that had begun by
    the moment, so that damage to an older version hides no newer one."""
    try:
        return source.versions(state, numbers)
    except StateStoreError:
        versions: list[Version] = []
        for number in reversed(numbers):
            found = list(source.versions(state, [number]))
            versions = [*found, *versions]
            if any(version.time is not None and version.time <= moment for version in found):
                break
        return versions


def change_start(source: Source, state: str) -> int:
    """Return the version before the first one whose changes are known."""
    oldest = source.kept(state)[0]
    return oldest - 1 if source.is_origin(state) else oldest


def history_start(source: Source, state: str, version: int) -> int | None:
    """Return where the history up to ``version`` begins, in epoch microseconds; None if nothing was before it."""
    source.check_readable(state, version)
    numbers = [number for number in source.kept(state) if number <= version]
    timed = timed_versions(source, state, numbers)
    if not timed or (source.is_origin(state) and timed[0].number == numbers[0]):
        return None
    return timed[0].time


def range_asked(source: Source, state: str, query: Query) -> Range:
    """Return the versions that a history or a change feed covers.

    Raises NotFoundError VERSION_NOT_FOUND or TIME_NOT_KEPT, which state what is kept, and InvalidInputError
    INVALID_RANGE.
    """
    check_numbers(query, source.version_words[0])
    _check_order(query)
    numbers = source.kept(state)
    if not source.keeps_versions:
        raise source.no_time(state, numbers[-1])
    if query.mode == "history" and query.version is not None:
        source.check_readable(state, int(query.version))
        numbers = [number for number in numbers if number <= query.version]
    needs_times = query.start_time is not None or query.end_time is not None
    if query.mode == "history" and not needs_times:
        needs_times = not goes_by_number(source, state)
    timed = (timed_versions if needs_times else ordered_versions)(source, state, numbers)
    origin = source.is_origin(state) and bool(timed) and timed[0].number == source.kept(state)[0]
    if query.mode == "history":
        if needs_times:
            _check_times(source, state, timed, query, origin)
        return Range(tuple(timed), None, origin)
    chosen = _changed(source, state, timed, query, origin)
    position = timed.index(chosen[0]) if chosen else 0
    return Range(tuple(chosen), timed[position - 1] if position else None, origin)


def timed_versions(source: Source, state: str, numbers: Sequence[int]) -> list[Version]:
    """Return versions with times that never decrease, without the oldest ones whose times are unknown.

    A clock may have been set back. A version whose time is not before that of its successor was never the newest as of
    any moment, and it gets the time of the successor.
    """
    versions = ordered_versions(source, state, numbers)
    for version in versions:
        if version.time is None:
            raise source.no_time(state, version.number)
    return versions


def ordered_versions(source: Source, state: str, numbers: Sequence[int]) -> list[Version]:
    """Return versions as `timed_versions` does, and all of them where no time is known.

    A version between others may have no time. The times that are known never decrease.
    """
    versions = list(source.versions(state, numbers))
    versions = next((versions[n:] for n, version in enumerate(versions) if version.time is not None), versions)
    ascending: list[Version] = []
    following = None
    for version in reversed(versions):
        if version.time is not None:
            following = version.time if following is None else min(version.time, following)
            version = replace(version, time=following)
        ascending.append(version)
    return ascending[::-1]


def goes_by_number(source: Source, state: str) -> bool:
    """Return whether a history has numbers of versions in place of times, because no version has a known time."""
    if not source.keeps_versions:
        return False
    return all(version.time is None for version in source.versions(state, source.kept(state)))


def _changed(source: Source, state: str, timed: list[Version], query: Query, origin: bool) -> list[Version]:
    """Return the versions whose changes are requested."""
    changed = timed if origin else timed[1:]
    if query.start_time is not None or query.end_time is not None:
        if query.start_version is not None or query.end_version is not None:
            raise InvalidInputError(
                ErrorCode.CONFLICTING_OPTIONS,
                f"{state} of {source.path}: changes are asked for by version and by time; give one of the two",
            )
        _check_times(source, state, timed, query, origin)
        low, high = query.start_time, query.end_time
        return [v for v in changed if (low is None or _time(v) >= low) and (high is None or _time(v) <= high)]
    last = source.last_known(state)
    least = 0 if origin else timed[0].number + 1 if timed else last + 1
    for version in (query.start_version, query.end_version):
        if version is not None and not least <= version <= last:
            word = source.version_words[0]
            kept = f"those of {least} to {last} are kept" if least <= last else "none are"
            raise NotFoundError(
                ErrorCode.VERSION_NOT_FOUND,
                f"{state} of {source.path}: changes of {word} {version} are not kept; {kept}",
            )
    first = least if query.start_version is None else query.start_version
    stop = last if query.end_version is None else query.end_version
    return [version for version in changed if first <= version.number <= stop]


def _check_order(query: Query) -> None:
    start, end = query.start_time, query.end_time
    if start is not None and end is not None and start > end:
        raise InvalidInputError(
            ErrorCode.INVALID_RANGE,
            f"{query.mode} from {format_time(start)} to {format_time(end)}: the start is after the end; swap them",
        )
    first, last = query.start_version, query.end_version
    if first is not None and last is not None and first > last:
        raise InvalidInputError(
            ErrorCode.INVALID_RANGE, f"changes from version {first} to {last}: the start is after the end"
        )


def _check_times(source: Source, state: str, timed: list[Version], query: Query, origin: bool) -> None:
    """Raise NotFoundError TIME_NOT_KEPT for moments before the oldest version, if others were before it.

    Changes are also unknown at the moment of that version itself.
    """
    if not timed or origin:
        return
    exclusive = query.mode == "changes"
    first = _time(timed[0]) + exclusive
    asked = min((moment for moment in (query.start_time, query.end_time) if moment is not None), default=first)
    if asked < first:
        since = f"after {format_time(first - 1)}" if exclusive else f"from {format_time(first)} on"
        raise NotFoundError(
            ErrorCode.TIME_NOT_KEPT,
            f"{state} of {source.path} keeps {source.version_words[1]} {timed[0].number} to {timed[-1].number} and "
            f"{query.mode} {since}, asked for {format_time(asked)}",
        )


def _time(version: Version) -> int:
    assert version.time is not None
    return version.time
