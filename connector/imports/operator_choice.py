"""The operator of a source that is imported, the version, and the states of it."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import replace

from statestore.formats.engine import Source
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, UnsupportedError, shown
from statestore.formats.jobs import KeyedOperator
from statestore.formats.state_table import column_names


def chosen_operator(source: Source, operator: str | None, version: int | None) -> tuple[KeyedOperator, int]:
    """Return the operator with this name or id, by default the only one, and the version whose states are read.

    Raises UnsupportedError UNSUPPORTED_ENGINE, NotFoundError STATE_NOT_FOUND or VERSION_NOT_FOUND, InvalidInputError
    MISSING_OPTION if there are several operators and none is named.
    """
    recorded = source.keyed_operators(version)
    if recorded is None:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_ENGINE,
            f"{source.path} is state of an engine without operators that have keyed state; name a savepoint or "
            "checkpoint that has such operators",
        )
    operators = [each for each in recorded if each.states]
    found = _named(operators, operator, source.path)
    if version is None:
        version = max(source.kept(each.state)[-1] for each in found.states)
    for each in found.states:
        source.check_readable(each.state, version)
    return found, version


def with_states(operator: KeyedOperator, names: Collection[str] | None) -> KeyedOperator:
    """Return the operator with only these of its states, by default all. Raises NotFoundError STATE_NOT_FOUND."""
    if names is None:
        return operator
    names = column_names(names, "states")
    if not names:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"states is {shown(names)}; expected a list of names")
    known = {name for each in operator.states for name in (each.name, each.state)}
    for name in names:
        if name not in known:
            raise NotFoundError(
                ErrorCode.STATE_NOT_FOUND,
                f"operator {operator.name!r} has no keyed state {name!r}; "
                f"{_hint(name, [each.name for each in operator.states])}",
            )
    kept = tuple(each for each in operator.states if each.name in names or each.state in names)
    return replace(operator, states=kept)


def _named(operators: Sequence[KeyedOperator], asked: str | None, path: str) -> KeyedOperator:
    names = [each.name for each in operators]
    if not operators:
        raise NotFoundError(ErrorCode.STATE_NOT_FOUND, f"{path} has no operator with keyed state; nothing to import")
    if asked is None:
        if len(operators) > 1:
            raise InvalidInputError(
                ErrorCode.MISSING_OPTION,
                f"{path} has several operators with keyed state, and each becomes a store of its own; name one with "
                f"operator=, as {names[0]!r}: there are {', '.join(names)}",
            )
        return operators[0]
    for each in operators:
        if asked == each.name or asked in each.ids:
            return each
    raise NotFoundError(ErrorCode.STATE_NOT_FOUND, f"{path} has no operator {asked!r}; {_hint(asked, names)}")


def _hint(asked: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(asked, names, 1)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}"
