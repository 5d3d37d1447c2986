"""The paths that the explorer was opened with, and their tables."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.summaries import newest_versions, summary_of
from statestore.catalog.warehouse import Warehouse, open_warehouse
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, StateStoreError
from statestore.formats.replaced_versions import again
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.filters import Filter, resolved

FOLLOWED = 8  # tables that are kept open to see their news
MOVED = (ErrorCode.FILES_REPLACED, ErrorCode.STORE_REPLACED, ErrorCode.VERSION_GONE)
"""Errors of a pinned table whose files are gone, because it was compacted, expired or dropped since, or because its
engine went on."""
RENEWED = (*MOVED, ErrorCode.VERSION_NOT_FOUND, ErrorCode.TIME_NOT_KEPT)
"""Errors of a pinned table that its newest state may not have: an expiry, too, removes what the pinned one reads."""


@dataclass
class OpenedPaths:
    """The given paths in their order; nothing else is read.

    A path is pinned when it is first asked for, so that all questions have answers of one version of each store or
    directory, until `renew`, which also other pages cause. Questions therefore name the version that the page has seen
    (`query_of`).
    """

    paths: Sequence[str]
    options: Mapping[str, str]
    _pinned: dict[int, Warehouse] = field(default_factory=dict)
    _watched: dict[tuple[int, str], StateTable] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _opening: dict[int, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))

    def warehouse(self, number: int) -> Warehouse:
        """Return a place in its pinned state. Raises NotFoundError PATH_NOT_FOUND for a number without a path."""
        if not 0 <= number < len(self.paths):
            raise NotFoundError(
                ErrorCode.PATH_NOT_FOUND,
                f"place {number}: expected 0 to {len(self.paths) - 1}; go back to the overview",
            )
        with self._lock:
            found = self._pinned.get(number)
            opening = self._opening[number]
        if found is not None:
            return found
        with opening:  # of this place, so that one that takes long keeps no other from its answers
            found = self._pinned.get(number)
            if found is None:
                found = self._pinned[number] = open_warehouse(self.paths[number], self.options).pin()
            return found

    def table(self, number: int, name: str) -> StateTable:
        return self.warehouse(number).open(name)

    def renew(self, number: int) -> None:
        """Let the next question see the newest state of a place."""
        with self._lock:
            opening = self._opening[number]
        with opening:
            self._pinned.pop(number, None)

    def renew_after(self, number: int, error: StateStoreError) -> None:
        """Renew a place after an error of a pinned table that its newest state may not have.

        Raises the error itself where it is another one, or where the place has nothing any more.
        """
        if error.code not in RENEWED:
            raise error
        self.renew(number)
        try:
            self.warehouse(number)
        except NotFoundError:
            raise error from None

    def news(self, number: int, name: str) -> dict[str, Any]:
        """Return the versions of a table that can be read at this moment, as ``first`` and ``last``, and its identity.

        What the place is pinned to is left where it is equal to that, and renewed where it is not.
        """
        self.warehouse(number)  # checks the number
        table = self._followed(number, name)
        try:
            first, last = table.kept_versions()
            identity = table.pin().identity
        except (StateStoreError, OSError):
            with self._lock:
                self._watched.pop((number, name), None)
            self.renew(number)
            raise
        try:
            pinned = self.table(number, name)
            is_same = pinned.kept_versions() == (first, last) and pinned.identity == identity
        except (StateStoreError, OSError):
            is_same = False
        if not is_same:
            self.renew(number)
        return {"first": first, "last": last, "identity": identity}

    def _followed(self, number: int, name: str) -> StateTable:
        """Return a table that sees its newest version at each question; the FOLLOWED that were asked last are kept."""
        key = number, name
        with self._lock:
            table = self._watched.pop(key, None)
        if table is None:
            table = open_warehouse(self.paths[number], self.options).open(name)
        with self._lock:
            self._watched[key] = table
            for old in list(self._watched)[:-FOLLOWED]:
                del self._watched[old]
        return table

    def marks(self) -> list[dict[str, Any]]:
        """Return for each place a text of every table that is another one when it has a newer version.

        Only logs are looked at, and folders are listed; what the place is pinned to is left.
        """
        return [self._marks(number) for number in range(len(self.paths))]

    def _marks(self, number: int) -> dict[str, Any]:
        try:
            found = newest_versions(open_warehouse(self.paths[number], self.options).pin())
        except (StateStoreError, OSError) as error:
            return {"place": number, "error": str(error), "tables": {}}
        marks = {name: "" if each is None else f"{each[1]} of {each[0]}" for name, each in found.items()}
        return {"place": number, "error": None, "tables": marks}

    def tables(self, number: int, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return what is known now from metadata of some tables of a place; those that are gone are left out."""

        def once() -> list[dict[str, Any]]:
            self.renew(number)
            warehouse = self.warehouse(number)
            known = set(warehouse.tables())
            return [_facts(warehouse, name) for name in names if name in known]

        return again(once)

    def job(self, number: int) -> dict[str, Any] | None:
        """Return what is recorded of the job that keeps the states of a place; None where they are of no job."""
        found = self.warehouse(number).job()
        return None if found is None else asdict(found)

    def overview(self) -> list[dict[str, Any]]:
        """Return what is known of each place from metadata: its tables, or the error that keeps it closed."""
        return [self._overview(number) for number in range(len(self.paths))]

    def _overview(self, number: int) -> dict[str, Any]:
        place: dict[str, Any] = {"place": number, "path": self.paths[number], "tables": [], "error": None}
        marks = self._marks(number)  # before the tables, so that no change after them is missed
        place["marks"] = marks["tables"] if marks["error"] is None else None

        def once() -> None:
            self.renew(number)
            warehouse = self.warehouse(number)
            place["path"] = warehouse.path
            place["tables"] = [_facts(warehouse, name) for name in warehouse.tables()]

        try:
            again(once)
        except (StateStoreError, OSError) as error:
            place["error"] = str(error)
        return place


def _facts(warehouse: Warehouse, name: str) -> dict[str, Any]:
    return {**summary_of(warehouse, name), **_span(warehouse, name), "operator": _operator(warehouse, name)}


def _operator(warehouse: Warehouse, name: str) -> str | None:
    """Return the operator of the job that keeps the state of a table; None where that is not recorded."""
    try:
        return warehouse.about(name).operator
    except (StateStoreError, OSError):
        return None


def _span(warehouse: Warehouse, name: str) -> dict[str, Any]:
    """Return the versions that can be read now; None where a table is damaged."""
    try:
        table = warehouse.open(name)
        first, last = table.kept_versions()
        schema = table.schema(Query())
    except (StateStoreError, OSError):
        return {"first": None, "last": None, "columns": [], "fields": [], "editable": False}
    editable = isinstance(table, EngineTable)
    return {
        "first": first,
        "last": last,
        "columns": schema.names,
        "fields": fields_of(schema),
        "editable": editable,
    }


def fields_of(schema: pa.Schema) -> list[str]:
    """Return the columns, each before the fields of its struct, by the names that filters have for them."""
    found = []
    for path in _paths(schema, ()):
        meant = resolved((Filter(".".join(path), "is_null"),), schema.names)[0]
        if (meant.column, *meant.path) == path:
            found.append(meant.name)
    return found


def _paths(fields: Iterable[pa.Field], within: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for each in fields:
        yield (*within, each.name)
        if pa.types.is_struct(each.type):
            yield from _paths(each.type, (*within, each.name))
