"""The view that the page shows: a state, the life of a key, or the comparison of two moments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from statestore.catalog.engines.history_columns import ends_of
from statestore.catalog.reads.difference import Point
from statestore.catalog.reads.plan import VERSION_COLUMN
from statestore.connector.explorer.questions import Sorting, number_of, query_of, sorting_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.filters import Filter
from statestore.formats.values.times import parse_time

Kind = Literal["state", "life", "compare"]
NOW = Point()


@dataclass(frozen=True)
class ShownView:
    """The ``kind`` of view with its moments and filters. ``old`` is used by comparisons alone, and ``key`` is the text
    of the key of a life, if it was typed."""

    kind: Kind
    new: Point = NOW
    old: Point = NOW
    filters: Sequence[Filter] = ()
    sorting: Sorting | None = None
    key: str = ""

    def life_start(self, table: StateTable) -> str:
        """Return the column by which a life is ordered, in which a null is older than all else."""
        return ends_of(self.life_columns(table))[0]

    def life_columns(self, table: StateTable) -> list[str]:
        """Return the columns of a life: those of the state, and the interval and the commit of each version."""
        names = table.schema(Query(mode="history")).names
        return list(dict.fromkeys((*names, *ends_of(names), VERSION_COLUMN)))


def view_of(table: StateTable, given: Mapping[str, str]) -> ShownView:
    """Return the view of ``kind`` with the parameters of the questions that the page asks for it.

    Raises InvalidInputError for what is not understood.
    """
    kind = given.get("kind") or "state"
    if kind == "state":
        query = query_of(table, given)
        return ShownView("state", Point(query.version, query.as_of), Point(), query.filters, sorting_of(table, given))
    if kind == "life":
        query = query_of(table, {"key": given.get("key", ""), "where": given.get("where", "")}, "history")
        if not query.filters:
            raise InvalidInputError(ErrorCode.MISSING_OPTION, "key: type a key, or its first parts")
        return ShownView("life", filters=query.filters, key=given.get("key", ""))
    if kind == "compare":
        filters = query_of(table, {"where": given.get("where", "")}).filters
        return ShownView("compare", point_of(given, "to_"), point_of(given, "from_"), filters)
    raise InvalidInputError(
        ErrorCode.INVALID_OPTION, f"kind is {shown(kind)}; expected one of {', '.join(get_args(Kind))}"
    )


def point_of(given: Mapping[str, str], prefix: str) -> Point:
    """Return the moment of ``…version`` and ``…as_of``."""
    as_of = given.get(f"{prefix}as_of") or None
    moment = None if as_of is None else parse_time(as_of, f"{prefix}as_of")
    return Point(number_of(given, f"{prefix}version", None), moment)
