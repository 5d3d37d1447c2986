"""A state of a keyed store as a table."""

from __future__ import annotations

from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.keyed.tables.keyed_source import KeyedOpening
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec


def keyed_table(storage: Storage, spec: StoreSpec, state: str) -> EngineTable:
    """Return the table of one state of the store in ``storage``; its name is ``store.state``."""
    return EngineTable(KeyedOpening(storage, spec), f"{spec.name}.{state}", state)
