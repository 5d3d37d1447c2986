"""A state of a keyed store as a table."""

from __future__ import annotations

from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.engine import Opening


def keyed_table(opening: Opening, spec: StoreSpec, state: str) -> EngineTable:
    """Return the table of one state of the store that ``opening`` opens; its name is ``store.state``."""
    return EngineTable(opening, f"{spec.name}.{state}", state)
