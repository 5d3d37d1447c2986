"""A state of a keyed store as a table."""

from __future__ import annotations

from pathlib import Path

from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.keyed.tables.keyed_source import KeyedOpening
from statestore.catalog.log.store_spec import StoreSpec


def keyed_table(root: Path, spec: StoreSpec, state: str) -> EngineTable:
    """Return the table of one state of the store in the folder ``root``; its name is ``store.state``."""
    return EngineTable(KeyedOpening(root, spec), f"{spec.name}.{state}", state)
