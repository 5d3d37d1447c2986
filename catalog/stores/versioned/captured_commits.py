"""Rules of the commits of a captured store: each is one version of the source, and follows the one that it changes."""

from __future__ import annotations

from typing import Literal

from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.source_versions import SourceVersion
from statestore.catalog.log.store_spec import Captured, StoreSpec
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, InvalidInputError, ReadOnlyError
from statestore.formats.values.times import format_time


def check_capture(
    name: str, captured: Captured, base: LogState, source: SourceVersion, after: int | Literal["any"] | None
) -> None:
    """Raise ConflictError VERSION_TAKEN unless ``after`` is the newest captured version of the store (None: there is
    none), InvalidInputError INVALID_COMMIT for a version that cannot follow it.
    """
    word = captured.words[0]
    newest = None if base.captured is None else base.captured.newest
    found = None if newest is None else newest.version
    if after not in (found, "any"):
        raise ConflictError(
            ErrorCode.VERSION_TAKEN,
            f"store {name!r}: {word} {source.version} was to follow {_called(word, after)}, and the newest that "
            f"was captured is {_called(word, found)}: another capture was first; go on from there",
        )
    if newest is not None and (source.version <= newest.version or source.time < newest.time):
        raise InvalidInputError(
            ErrorCode.INVALID_COMMIT,
            f"store {name!r}: {word} {source.version} of {format_time(source.time)} cannot follow {word} "
            f"{newest.version} of {format_time(newest.time)}; expected a later one, with a time that is no earlier",
        )


def check_takes_rows(spec: StoreSpec) -> None:
    """Raise ReadOnlyError READ_ONLY for a captured store, before its rows are asked for."""
    if spec.captured is not None:
        raise not_writable(spec.name, spec.captured)


def not_writable(name: str, captured: Captured) -> ReadOnlyError:
    return ReadOnlyError(
        ErrorCode.READ_ONLY,
        f"store {name!r} keeps the versions of state {captured.state!r} of {captured.path}, and only its capture "
        "writes to it; write to another store",
    )


def _called(word: str, version: object) -> str:
    return "none" if version is None else f"{word} {version}"
