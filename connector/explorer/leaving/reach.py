"""How many rows a filtered question may have to look at."""

from __future__ import annotations

from typing import Any

from statestore.catalog.reads.arguments import keys_named
from statestore.connector.explorer.leaving.shown_view import ShownView
from statestore.formats.state_table import Query, StateTable


def reach_of(table: StateTable, view: ShownView) -> dict[str, Any]:
    """Return whether the filters name whole keys, as ``lookup``, and the most rows that are read with them and without
    any, as ``read`` and ``all``; None where only a read finds a number."""
    query = Query(filters=tuple(view.filters), version=view.new.version, as_of=view.new.as_of)
    whole = Query(version=view.new.version, as_of=view.new.as_of)
    return {"lookup": keys_named(table, query) is not None, "read": _rows(table, query), "all": _rows(table, whole)}


def _rows(table: StateTable, query: Query) -> int | None:
    bounds = [split.rows for split in table.splits(query)]
    known = [each for each in bounds if each is not None]
    return sum(known) if len(known) == len(bounds) else None
