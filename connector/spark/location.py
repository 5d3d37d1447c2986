"""Which path a read or write in Spark means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from statestore.formats.errors import InvalidInputError, UnsupportedError

PROVIDERS = ("arrow_statestore", "statestore")
URI = re.compile(r"[a-zA-Z][\w+.-]+:/")


def checked_path(options: Mapping[str, str]) -> str:
    """The absolute local path that the options name: tasks may run in another working directory.

    Raises InvalidInputError MISSING_PATH or INVALID_OPTION, UnsupportedError UNSUPPORTED_PATH.
    """
    provider = _option(options, "provider")
    if provider is not None and provider.lower() not in PROVIDERS:
        raise InvalidInputError(
            "INVALID_OPTION",
            f"option provider is {provider!r}; expected builtin, for Spark's own source, or nothing",
        )
    path = _option(options, "path")
    if not path:
        raise InvalidInputError("MISSING_PATH", "expected one path; write .load('warehouse/store') or .save(…)")
    local = path.removeprefix("file://") if path.startswith("file:///") else path.removeprefix("file:")
    if URI.match(local):
        raise UnsupportedError("UNSUPPORTED_PATH", f"{path}: this release reads and writes local directories only")
    return str(Path(local).absolute())


def _option(options: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)
