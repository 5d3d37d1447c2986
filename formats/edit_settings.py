"""The settings of edits that engines offer, as flags of the command line, and those that a user gives, checked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from statestore.formats.engine_offer import Engine, EngineOption
from statestore.formats.engines import built_in_engines, engines
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, close_matches, shown

_INTEGER = re.compile(r"-?[0-9]{1,18}")
_EXPECTED = {"int": "a whole number", "bool": "True or False", "text": "a text"}


def settings_of_engines(*, installed: bool = True) -> dict[str, EngineOption]:
    """Return the settings of all engines by name; the meaning of each says which engines have it.

    A name that engines use for values of different kinds is a text.
    """
    found: dict[str, EngineOption] = {}
    for engine in engines() if installed else built_in_engines():
        for setting in engine.edit_settings:
            meaning, kind = f"{engine.name}: {setting.meaning}", setting.kind
            if setting.name in found:
                known = found[setting.name]
                meaning, kind = f"{known.meaning}; {meaning}", kind if known.kind == kind else "text"
            found[setting.name] = EngineOption(setting.name, kind, meaning)
    return found


def checked_settings(engine: Engine, given: Mapping[str, Any], source: str) -> dict[str, str]:
    """Return settings of an edit of a source of an engine as texts: digits for numbers, true or false.

    Raises InvalidInputError INVALID_OPTION for a setting that the engine has not, and for a value of another kind.
    """
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"settings is {shown(given)}; expected a dict of names and values"
        )
    known = {setting.name: setting for setting in engine.edit_settings}
    return {str(name): _checked(known, engine, str(name), value, source) for name, value in given.items()}


def _checked(known: Mapping[str, EngineOption], engine: Engine, name: str, value: Any, source: str) -> str:
    setting = known.get(name)
    if setting is None:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"option {name} is no setting for edits of {source}, a {engine.expects}, which {_offer(name, known)}",
        )
    text = _text_of(setting.kind, value)
    if text is None:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"option {name} is {shown(value)}; expected {_EXPECTED[setting.kind]}"
        )
    return text


def _offer(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    if not names:
        return "has none; leave it out"
    close = close_matches(name.lower(), names, 1, 0.6)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"has the settings {', '.join(names)}{hint}"


def _text_of(kind: str, value: Any) -> str | None:
    """Return a value as text; None for one of another kind."""
    if kind == "bool":
        text = str(value).lower() if isinstance(value, bool | str) else ""
        return text if text in ("true", "false") else None
    if isinstance(value, bool):
        return None
    if kind == "int":
        text = str(value).strip() if isinstance(value, int | str) else ""
        return str(int(text)) if _INTEGER.fullmatch(text) else None
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else str(value) if isinstance(value, int) else None
    return path or None if isinstance(path, str) else None
