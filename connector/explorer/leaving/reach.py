"""How many rows a filtered question may have to look at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from statestore.connector.explorer.leaving.shown_view import ShownView
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.filters import key_lookups, with_whole_structs


def reach_of(table: StateTable, view: ShownView) -> dict[str, Any]:
    """Return whether the filters name whole keys, as ``lookup``, and the most rows that are read with them and without
    any, as ``read`` and ``all``; None where only a read finds a number."""
    query = Query(filters=tuple(view.filters), version=view.new.version, as_of=view.new.as_of)
    filters = with_whole_structs(view.filters, table.schema(replace(query, filters=())))
    is_lookup = any(key_lookups(filters, names) is not None for names in table.lookup_columns)
    whole = Query(version=view.new.version, as_of=view.new.as_of)
    return {"lookup": is_lookup, "read": _rows(table, query), "all": _rows(table, whole)}


def _rows(table: StateTable, query: Query) -> int | None:
    bounds = [split.rows for split in table.splits(query)]
    known = [each for each in bounds if each is not None]
    return sum(known) if len(known) == len(bounds) else None
