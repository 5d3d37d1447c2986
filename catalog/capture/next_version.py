"""The version of a source that is captured next, and the versions before it that nobody can read any more."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from statestore.catalog.capture.version_records import NextVersion
from statestore.catalog.log.source_versions import SourceVersion
from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.engine import Source, Version
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, CorruptError, NotFoundError
from statestore.formats.replaced_versions import is_gone
from statestore.formats.values.times import TICK

APPLICATION = "capture:"


def transaction_of(spec: StoreSpec, version: int) -> tuple[str, int]:
    """Return the transaction under which a version is committed: it is the same for every capture of the source."""
    assert spec.captured is not None, "a store that captures a state"
    return f"{APPLICATION}{spec.captured.source}", version


def next_version(
    source: Source, state: str, taken: SourceVersion | None, since: int | None = None
) -> tuple[NextVersion, SourceVersion, pa.Schema] | None:
    """Return the oldest version after ``taken`` that can be read, what its commit says of it, and its columns; None if
    there is none. Where nothing was taken, versions before ``since`` are left out.

    Raises ConflictError CAPTURE_CONFLICT where the source has another version under the number that was taken, or none
    that is as new, and NotFoundError TIME_NOT_KEPT for a version without a time.
    """
    if taken is not None and _is_newest(source, state, taken.version):
        _check_goes_on(source, state, taken, [taken.version])
        return None
    kept = kept_versions(source, state)
    if not kept:
        return None
    if not source.keeps_versions:
        return _present(source, state, taken)
    if taken is not None:
        _check_goes_on(source, state, taken, kept)
    least = taken.version + 1 if taken is not None else kept[0] if since is None else since
    numbers = [number for number in kept if number >= least]
    begun = _begun(source, state, numbers) if taken is None else numbers[:1]
    if not begun:
        return None
    columns = source.at(state, begun[0]).schema
    version = next(iter(source.versions(state, begun)))
    if version.time is None:
        raise source.no_time(state, version.number)
    missing = _missing(source, state, taken, version.number) if begun == numbers[:1] else None
    return *_next(source, state, taken, version, missing), columns


def _present(
    source: Source, state: str, taken: SourceVersion | None
) -> tuple[NextVersion, SourceVersion, pa.Schema] | None:
    """Return the present state of a format that keeps one moment only; None where it was taken."""
    found = source.moment(state, _before(taken))
    if found is None or (taken is not None and found[0].number == taken.version):
        return None
    return *_next(source, state, taken, *found), source.at(state, source.newest(state)).schema


def _next(
    source: Source, state: str, taken: SourceVersion | None, version: Version, missing: tuple[int, int] | None
) -> tuple[NextVersion, SourceVersion]:
    # A clock that was set back: the version took effect when it came, which is not before the one that it follows.
    assert version.time is not None, "a version with a time"
    moment = version.time if taken is None else max(version.time, taken.time)
    offsets = version.facts.get("offsets")
    said = SourceVersion(
        version.number, moment, version.stream_time, None if offsets is None else str(offsets), missing
    )
    return NextVersion(source, state, version, moment, _before(taken)), said


def _before(taken: SourceVersion | None) -> Version | None:
    if taken is None:
        return None
    facts = {} if taken.offsets is None else {"offsets": taken.offsets}
    return Version(taken.version, taken.time, stream_time=taken.watermark, facts=facts)


def _begun(source: Source, state: str, numbers: Sequence[int]) -> Sequence[int]:
    """Return the first of these versions that has the state, which a job may have got later; none where none has it."""
    for number in numbers:
        try:
            source.at(state, number)
        except NotFoundError as error:
            if is_gone(error) or number == numbers[-1]:
                raise
            continue
        return [number]
    return []


def versions_behind(source: Source, state: str, taken: SourceVersion | None) -> int:
    """Return how many versions can be read that were not taken."""
    if taken is not None and _is_newest(source, state, taken.version):
        return 0
    return sum(taken is None or number > taken.version for number in kept_versions(source, state))


def kept_versions(source: Source, state: str) -> Sequence[int]:
    """Return the versions that can be read, none where there is no version yet.

    Raises the error of `Source.kept` where there is one, and files of it are missing.
    """
    try:
        return source.kept(state)
    except NotFoundError as error:
        if is_gone(error):
            raise
        try:
            source.newest(state)
        except NotFoundError:
            return ()
        raise


def _is_newest(source: Source, state: str, version: int) -> bool:
    """Return whether a version is the newest. The files of the others, which may be many to list, are not asked for."""
    try:
        return source.keeps_versions and source.newest(state) == version
    except (NotFoundError, CorruptError):
        return False  # an older one may be readable


def _missing(source: Source, state: str, taken: SourceVersion | None, number: int) -> tuple[int, int] | None:
    if taken is not None:
        return source.missing_between(state, taken.version, number)
    if source.is_origin(state):
        return None
    first = source.versions(state)[0].number
    return (first, number - 1) if first < number else None


def _check_goes_on(source: Source, state: str, taken: SourceVersion, kept: Sequence[int]) -> None:
    """Raise ConflictError CAPTURE_CONFLICT where the source is not the one that was captured, gone on."""
    word = source.version_words[0]
    if kept[-1] < taken.version:
        raise ConflictError(
            ErrorCode.CAPTURE_CONFLICT,
            f"{state} of {source.path} has {word} {kept[-1]} as its newest, and {word} {taken.version} was captured: "
            "the source went back. Capture it into another warehouse",
        )
    if taken.version not in kept:
        return
    found = next(iter(source.versions(state, [taken.version])), None)
    if found is not None and found.time is not None and found.time // TICK > taken.time // TICK:
        raise ConflictError(
            ErrorCode.CAPTURE_CONFLICT,
            f"{word} {taken.version} of {state} of {source.path} is another one than was captured under this number: "
            "the source went back, and wrote it again. Capture it into another warehouse",
        )
