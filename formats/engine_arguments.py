"""Options of engines in Python and on the command line: ``batchId`` is ``batch_id=`` and ``--batch-id``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from statestore.formats.engine_offer import EngineOption
from statestore.formats.engines import built_in_engines, engines
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, close_matches, shown

CHANGE_FEED = "readChangeFeed"
"""The option that Spark needs beside an engine's own change feed; Python and the command line add it."""
_KINDS = {"int": int, "bool": bool, "text": str}


def python_name(option: str) -> str:
    """Return ``batch_id`` for ``batchId``."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", option).lower()


def flag(option: str) -> str:
    """Return ``--batch-id`` for ``batchId``."""
    return f"--{python_name(option).replace('_', '-')}"


def arguments_of_engines(*, installed: bool = True) -> dict[str, EngineOption]:
    """Return the options of engines by their names in Python, with or without those of installed packages."""
    asked = engines() if installed else built_in_engines()
    return {python_name(option.name): option for engine in asked for option in engine.read_options}


def engine_options_of(call: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Return arguments of ``call`` as options of a read, by their names in Spark.

    Raises InvalidInputError UNKNOWN_OPTION, which names the nearest argument, or INVALID_OPTION for a value of another
    type.
    """
    known = arguments_of_engines() if given else {}
    found: dict[str, str] = {}
    for name, value in given.items():
        if name not in known:
            alike = {spelled.replace("_", ""): spelled for spelled in known}
            close = close_matches(name.lower().replace("_", ""), alike, 1, 0.5)
            hint = f"did you mean {alike[close[0]]}?" if close else f"engines have {', '.join(known)}"
            raise InvalidInputError(ErrorCode.UNKNOWN_OPTION, f"{call}(…) has no argument {name!r}; {hint}")
        option = known[name]
        if type(value) is not _KINDS[option.kind]:
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION, f"{name} is {shown(value)}; expected {_KINDS[option.kind].__name__}"
            )
        found[option.name] = str(value).lower() if option.kind == "bool" else str(value)
        if option.feed:
            found[CHANGE_FEED] = "true"
    return found
