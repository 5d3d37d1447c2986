"""Names of the arguments of reads. A range has one spelling; an error for any other one names it."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

RANGE = ("start_version", "end_version", "start_time", "end_time")
_ENDS = {"starting": "start", "start": "start", "from": "start", "since": "start", "first": "start", "begin": "start"}
_ENDS |= {"ending": "end", "end": "end", "to": "end", "until": "end", "last": "end"}
_UNITS = {"version": "version", "commit": "version", "batch": "version", "batchid": "version"}
_UNITS |= {"time": "time", "timestamp": "time", "date": "time", "moment": "time"}
_POINTS = {"timestampasof": "as_of", "timestamp": "as_of", "asoftime": "as_of", "time": "as_of", "at": "as_of"}
_POINTS |= {"asof": "as_of", "versionasof": "version", "asofversion": "version", "commit": "version"}
_RANGED = re.compile(f"({'|'.join(_ENDS)})(.*)")


def right_names(given: str, known: Sequence[str]) -> list[str]:
    """Return the names of ``known`` that another spelling means; none if nothing is close to it.

    ``startingVersion``, ``from_version`` and ``since-commit`` mean ``start_version``; ``start`` may mean
    ``start_version`` or ``start_time``.
    """
    word = re.sub(r"[^a-z]", "", given.lower())
    ranged = _RANGED.fullmatch(word)
    meant = [_POINTS[word]] if word in _POINTS else []
    if ranged is not None and (not ranged[2] or ranged[2] in _UNITS):
        units = [_UNITS[ranged[2]]] if ranged[2] else ["version", "time"]
        meant = [f"{_ENDS[ranged[1]]}_{unit}" for unit in units]
    return [name for name in meant if name in known] or difflib.get_close_matches(given.lower(), known, 2, 0.5)


def unknown_argument(call: str, given: str, known: Sequence[str]) -> str:
    """Return the message for an argument that ``call`` does not have."""
    names = right_names(given, known)
    hint = f"write {' or '.join(names)}" if names else f"it has {', '.join(known)}"
    return f"{call}(…) has no argument {given!r}; {hint}"


def one_spelling(
    **also: str,
) -> Callable[[Callable[Arguments, Answer]], Callable[Arguments, Answer]]:
    """Refuse arguments by a name that a read does not have. ``also``: names that older programs use, and their
    present names.

    Raises InvalidInputError UNKNOWN_OPTION, which names the right spelling.
    """

    def checked(read: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
        code = read.__code__
        known = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        names = frozenset(known)

        @functools.wraps(read)
        def named(*args: Arguments.args, **given: Arguments.kwargs) -> Answer:
            if not given.keys() <= names:
                given = _renamed(read.__name__, given, known, also)  # type: ignore[assignment]
            return read(*args, **given)

        return named

    return checked


def _renamed(call: str, given: Mapping[str, Any], known: Sequence[str], also: Mapping[str, str]) -> dict[str, Any]:
    """Return arguments by their present names. Raises InvalidInputError UNKNOWN_OPTION."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        present = name if name in known else also.get(name)
        if present is None:
            raise InvalidInputError(ErrorCode.UNKNOWN_OPTION, unknown_argument(call, name, known))
        if present in found:
            raise InvalidInputError(ErrorCode.UNKNOWN_OPTION, f"{call}(…) is given {present} twice; write it once")
        found[present] = value
    return found
