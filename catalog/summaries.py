"""Summaries of the tables at a path, from metadata, as `inspect` and the report show them; and newest versions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from statestore.catalog.describe.store_summary import summarize
from statestore.catalog.describe.table_summary import TableSummary
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.warehouse import Warehouse, open_warehouse
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.replaced_versions import again, is_gone
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.times import format_duration
from statestore.formats.values.types import shown_field

UNKNOWN = TableSummary(0, 0).as_json() | {"version": None, "oldest_version": None}


def summaries(path: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return an object for each table at ``path``: sizes in bytes, times as ISO-8601, null for unknown facts.

    ``status`` is ok, attention, damaged, or unreadable: whole, but in a form that is not supported, or out of reach.
    The other tables are listed, too. Of state that an edit made, ``edit`` is its receipt, or what is wrong with it.
    """

    def once() -> list[dict[str, Any]]:
        warehouse = open_warehouse(path, options).pin()
        edit = _edit_of(warehouse)
        return [summary_of(warehouse, name) | edit for name in warehouse.tables()]

    return again(once)


def _edit_of(warehouse: Warehouse) -> dict[str, Any]:
    try:
        receipt = warehouse.receipt()
    except CorruptError as error:
        return {"edit": {"damaged": str(error)}}
    return {} if receipt is None else {"edit": receipt.as_json()}


def summary_of(warehouse: Warehouse, name: str, bound: StateTable | None = None) -> dict[str, Any]:
    """Return the object of one table, as `summaries` has it.

    ``bound``: the table in the state that is described (`StateTable.for_plan`); None: in its state at each look. Raises
    NotFoundError VERSION_GONE where the engine has replaced that state, which is no damage.
    """
    item: dict[str, Any] = {"store": name, "kind": None, "key": None, "value": None}
    item |= {"retention": None, "retention_ms": None, **UNKNOWN}
    try:
        about = warehouse.about(name)
        kept = about.retention
        item |= {"facts": dict(about.facts)} if about.facts else {}
        item |= {"kind": about.kind, "retention": None if kept is None else format_duration(kept), "retention_ms": kept}
        item |= _columns(warehouse.open(name) if bound is None else bound)
        found = warehouse.summary(name) if bound is None else _summary_in(bound)
        item |= found.as_json() | ({"details": list(found.details)} if found.details else {})
        if found.kept is not None:
            item["retention"] = found.kept
    except StateStoreError as error:
        # The question is wrong, or comes too late: not the state.
        if is_gone(error) or error.code in (ErrorCode.CONFLICTING_OPTIONS, ErrorCode.STATE_SELECTION):
            raise
        is_damage = isinstance(error, CorruptError | NotFoundError)
        what = "damaged" if is_damage else "cannot be read"
        item |= {"health": [f"{what}: {error}"], "status": "damaged" if is_damage else "unreadable"}
    return item


def _summary_in(table: StateTable) -> TableSummary:
    """Return the summary of a table in the state that it is bound to."""
    if isinstance(table, VersionedTable):
        return summarize(table.storage, table.spec, table.leased())
    from statestore.catalog.engines.engine_metadata import summarize_state
    from statestore.catalog.engines.engine_table import EngineTable

    assert isinstance(table, EngineTable)
    return summarize_state(table)


def _columns(table: StateTable) -> dict[str, Any]:
    shown = {field.name: shown_field(field) for field in table.schema(Query())}
    keys = [name for name in table.row_key or table.key_columns if name not in table.placement_columns]
    values = [name for name in shown if name not in (*keys, "valid_from", "valid_to")]
    return {"key": {name: shown[name] for name in keys}, "value": {name: shown[name] for name in values}}


def newest_versions(warehouse: Warehouse) -> dict[str, tuple[str, int] | None]:
    """Return the identity and the newest version of each table; None for a damaged one.

    Neither says that the version can be read. An engine's directory is looked at once if the warehouse is pinned.
    """
    return {name: _newest(warehouse, name) for name in warehouse.tables()}


def _newest(warehouse: Warehouse, name: str) -> tuple[str, int] | None:
    try:
        table = warehouse.open(name)
        return table.identity, _version(table)
    except StateStoreError:
        return None


def _version(table: StateTable) -> int:
    if isinstance(table, VersionedTable):
        return table.kept_versions()[1]
    from statestore.catalog.engines.engine_table import EngineTable

    return table.source.newest(table.state) if isinstance(table, EngineTable) else table.kept_versions()[1]
