"""The moment of a table that a statement asks for: ``VERSION AS OF``, ``TIMESTAMP AS OF`` and options of readers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from statestore.connector.options import SESSION_TIME_ZONE, query_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.state_table import Mode, Query

_PRIVILEGES = ("INSERT", "UPDATE", "DELETE")


@dataclass(frozen=True)
class Asked:
    """What Spark asks of a table when it loads it.

    ``version`` and ``time`` (epoch microseconds) are those of the statement; ``options`` are those of a reader.
    ``writes``: the table is the target of a write.
    """

    version: str | None = None
    time: int | None = None
    options: tuple[tuple[str, str], ...] = ()
    writes: bool = False


def asked_of(given: tuple[Any, ...]) -> Asked:
    """The arguments of `TableCatalog.loadTable` after the name, in all releases.

    4.3 passes a `TableContext` and options; before, there are overloads with a version, a time or privileges.
    """
    if not given:
        return Asked()
    if len(given) == 2:
        context, options = given
        found = _time_travel(context.timeTravel())
        writes = bool(context.writePrivileges())
        return replace(found, options=_options(options), writes=writes)
    (only,) = given
    if isinstance(only, str):
        return Asked(version=only)
    if isinstance(only, int):
        return Asked(time=only)
    return Asked(writes=bool(only))


def query_for(mode: Mode, asked: Asked, zone: str) -> Query:
    """The query of a table that is read as ``mode``. Raises InvalidInputError INVALID_VERSION or INVALID_OPTION."""
    query = query_of({**dict(asked.options), SESSION_TIME_ZONE: zone})
    if mode != "state":
        if query.mode not in ("state", mode):
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION, f"the name asks for {mode}, the options for {query.mode}; give one of them"
            )
        query = replace(query, mode=mode)
    if asked.version is not None:
        query = replace(query, version=_number(asked.version))
    if asked.time is not None:
        if mode != "state":
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"TIMESTAMP AS OF asks for one moment, which does not go with {mode}; filter by valid_from and valid_to",
            )
        query = replace(query, as_of=asked.time)
    return query


def _time_travel(found: Any) -> Asked:
    if not found.isPresent():
        return Asked()
    moment = found.get()
    if str(moment.getClass().getName()).endswith("AsOfVersion"):
        return Asked(version=str(moment.version()))
    return Asked(time=int(moment.micros()))


def _options(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((str(name), str(options[name])) for name in options)


def _number(text: str) -> int:
    if not re.fullmatch(r"\s*[0-9]{1,18}\s*", text):
        raise InvalidInputError(ErrorCode.INVALID_VERSION, f"VERSION AS OF {text!r}; expected a whole number")
    return int(text)
