"""The modes of batch writes."""

from __future__ import annotations

from typing import Any

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

_FOR_NEW_TABLES = ("error", "errorifexists", "default", "ignore")


def check_write_mode(mode: Any) -> None:
    """Raise InvalidInputError INVALID_OPTION for a mode that writes only where there is no table yet, as Spark's
    default does (None). Spark refuses such a mode to sources in Python by the name of the source."""
    if mode is None or (isinstance(mode, str) and mode.lower() in _FOR_NEW_TABLES):
        found = "errorifexists, the default" if mode is None else mode
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f'the mode of this write with format "statestore" is {found}; a store exists before it is written: give '
            '.mode("append"), which adds the rows as one version, or .mode("overwrite"), which makes them the whole '
            "current state",
        )
