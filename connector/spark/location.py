"""The path or URI that a read or write in Spark names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.places.locations import parse_location

PROVIDERS = ("arrow_statestore", "statestore")


def checked_path(options: Mapping[str, str]) -> str:
    """The absolute local path, or the URI, in the options. Tasks may run in another working directory.

    Raises InvalidInputError MISSING_PATH, INVALID_OPTION or INVALID_LOCATION.
    """
    provider = _option(options, "provider")
    if provider is not None and provider.lower() not in PROVIDERS:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"option provider is {provider!r}; expected builtin, for Spark's own source, or nothing",
        )
    path = _option(options, "path")
    if not path:
        raise InvalidInputError(ErrorCode.MISSING_PATH, "expected one path; write .load('warehouse/store') or .save(…)")
    location = parse_location(path)
    return str(Path(location.path).absolute()) if location.is_local else location.uri


def _option(options: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)
