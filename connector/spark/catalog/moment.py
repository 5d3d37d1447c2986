"""The moment of a table, or the range of its changes, that a statement asks for.

``VERSION AS OF``, ``TIMESTAMP AS OF``, options of readers, and ``CHANGES FROM VERSION 3 TO VERSION 7`` of Spark 4.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.connector.options import SESSION_TIME_ZONE, query_of
from statestore.connector.spark.jvm import entries
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.state_table import Mode, Query, StateTable


@dataclass(frozen=True)
class Asked:
    """The question that Spark asks of a table when it loads it.

    ``version`` and ``time`` (epoch microseconds) are those of the statement; ``options`` are those of a reader.
    ``privileges``: what a statement is going to do with the rows, such as INSERT; none for a read.
    """

    version: str | None = None
    time: int | None = None
    options: tuple[tuple[str, str], ...] = ()
    privileges: frozenset[str] = frozenset()


def asked_of(given: tuple[Any, ...]) -> Asked:
    """The arguments of `TableCatalog.loadTable` after the name, in all releases.

    4.3 passes a `TableContext` and options; before, there are overloads with a version, a time or privileges.
    """
    if not given:
        return Asked()
    if len(given) == 2:
        context, options = given
        found = _time_travel(context.timeTravel())
        return replace(found, options=_options(options), privileges=_privileges(context.writePrivileges()))
    (only,) = given
    if isinstance(only, str):
        return Asked(version=only)
    if isinstance(only, int):
        return Asked(time=only)
    return Asked(privileges=_privileges(only))


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
        if query.mode == "changes":
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                "VERSION AS OF asks for one version, not for changes; write CHANGES FROM VERSION a TO VERSION b, or "
                "filter by _commit_version",
            )
        query = replace(query, version=version_number(asked.version))
    if asked.time is not None:
        if mode != "state":
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"TIMESTAMP AS OF asks for one moment, not for {mode}; filter by valid_from and valid_to",
            )
        query = replace(query, as_of=asked.time)
    return query


def change_query(table: StateTable, context: Any) -> Query:
    """The query of a range of changes. A bound that is left out is that of the kept changes.

    Raises UnsupportedError UNSUPPORTED_STATEMENT for net changes.
    """
    if str(context.deduplicationMode().toString()) == "NET_CHANGES":
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_STATEMENT,
            "net changes are not computed; compare two versions with a join, or in Python with table.diff",
        )
    span = context.range()
    kind = str(span.getClass().getSimpleName())
    query = Query(mode="changes")
    if kind == "VersionRange":
        first = version_number(str(span.startingVersion())) + (0 if span.startingBoundInclusive() else 1)
        last = None
        if span.endingVersion().isPresent():
            last = version_number(str(span.endingVersion().get())) - (0 if span.endingBoundInclusive() else 1)
        return replace(query, start_version=first, end_version=last)
    if kind == "TimestampRange":
        start = int(span.startingTimestamp()) + (0 if span.startingBoundInclusive() else 1)
        end = None
        if span.endingTimestamp().isPresent():
            end = int(span.endingTimestamp().get()) - (0 if span.endingBoundInclusive() else 1)
        return replace(query, start_time=start, end_time=end)
    return query


def pinned(table: StateTable, query: Query) -> Query:
    """The query bound to the newest version there is, so that a DataFrame always shows the same rows."""
    if not isinstance(table, VersionedTable):
        return query  # bound by `StateTable.pin`
    newest = table.kept_versions()[1]
    if query.mode == "changes":
        timed = query.start_time is not None or query.end_time is not None
        return query if timed or query.end_version is not None else replace(query, end_version=newest)
    return query if query.version is not None else replace(query, version=newest)


def _privileges(found: Any) -> frozenset[str]:
    return frozenset() if found.isEmpty() else frozenset(str(each.toString()) for each in found.toArray())


def _time_travel(found: Any) -> Asked:
    if not found.isPresent():
        return Asked()
    moment = found.get()
    if str(moment.getClass().getName()).endswith("AsOfVersion"):
        return Asked(version=str(moment.version()))
    return Asked(time=int(moment.micros()))


def _options(options: Any) -> tuple[tuple[str, str], ...]:
    return () if options.isEmpty() else tuple(entries(options).items())


def version_number(text: str) -> int:
    if not re.fullmatch(r"\s*[0-9]{1,18}\s*", text):
        raise InvalidInputError(ErrorCode.INVALID_VERSION, f"VERSION AS OF {text!r}; expected a whole number")
    return int(text)
