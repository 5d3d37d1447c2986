"""The tables of the stores in a warehouse directory.

A store is one table, with the name of the store. A keyed store is one table for each of its states, with the name
``store.state`` and the address ``warehouse/store/state``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from statestore.catalog.catalog import Catalog
from statestore.catalog.describe.metadata_table import MetadataTable
from statestore.catalog.describe.store_metadata import StoreMetadata
from statestore.catalog.describe.store_summary import summarize
from statestore.catalog.describe.table_summary import TableInfo, TableSummary
from statestore.catalog.engines.engine_metadata import EngineMetadata
from statestore.catalog.engines.engine_summary import summarize_state
from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.keyed.snapshots.shared_log import shared_log
from statestore.catalog.keyed.tables.keyed_table import keyed_table
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import KEYED, STORE_FILE, StoreSpec, decode_spec
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.store_upkeep import Upkeep, upkeep_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, StateStoreError
from statestore.formats.places.regular_files import MAX_METADATA_BYTES, read_regular
from statestore.formats.state_table import StateTable


@dataclass(frozen=True)
class StoreTables:
    """The tables of ``stores``, which lie in the folder ``root``.

    A damaged store is a table, too: opening it reports the damage, and the others can be read.
    """

    root: Path
    stores: tuple[str, ...]

    def pin(self) -> Self:
        """Return the tables themselves: plans of reads are pinned."""
        return self

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the tables of plain stores, and of the states in the newest snapshots of keyed stores."""
        names = set(self._plain)
        for name, spec in self._keyed.items():
            names |= self._state_tables(name, spec)
        return tuple(sorted(names))

    @property
    def schemas(self) -> tuple[str, ...]:
        """Names before the dot: keyed stores, and unreadable stores, which may be keyed."""
        return (*self._keyed, *self._damaged)

    def knows(self, name: str) -> bool:
        """Return whether such a table exists now, or a state of that name in an older snapshot."""
        if name in self.names:
            return True
        store, _, state = name.rpartition(".")
        if store in self._damaged:
            return True  # opening it reports the damage
        spec = self._keyed.get(store)
        return spec is not None and state in _states(self.root / store, spec, every=True)

    def open(self, name: str) -> StateTable:
        base, _, suffix = name.partition("$")
        keyed = self._state(base)
        if keyed is not None:
            return metadata_of(keyed, suffix) if suffix else keyed
        storage, spec = self._located(base)
        if spec.kind == KEYED:
            store, _, state = base.rpartition(".")
            return (
                only_state(self.root / base, spec) if base in self.stores else state_at(self.root / store, spec, state)
            )
        table = VersionedTable(storage, spec)
        return metadata_of(table, suffix) if suffix else table

    def about(self, name: str) -> TableInfo:
        keyed = self._state(name)
        if keyed is not None:
            return TableInfo(keyed.info.kind, None)
        _, spec = self._located(name)
        return TableInfo(spec.kind, spec.history_retention if spec.windowing is None else spec.windowing.retention)

    def summary(self, name: str) -> TableSummary:
        """Return the summary of a table. Raises CorruptError for a damaged one."""
        keyed = self._state(name)
        return summarize(*self._located(name)) if keyed is None else summarize_state(keyed)

    def path_of(self, name: str) -> str:
        """Return the path of a table below ``root``, with the suffix of a metadata table."""
        base, dollar, suffix = name.partition("$")
        keyed = self._state(base)
        path = base if keyed is None else f"{base.rpartition('.')[0]}/{keyed.state}"
        return f"{path}{dollar}{suffix}"

    @property
    def options(self) -> dict[str, str]:
        """None: the tables of stores have no options."""
        return {}

    def store_of(self, name: str) -> str | None:
        """Return the store that a name of a store or table means; None if no store has it."""
        base = name.partition("$")[0]
        if base in self.stores:
            return base
        return base.rpartition(".")[0] if self.knows(base) else None

    def upkeep(self, store: str) -> Upkeep:
        return upkeep_of(*Catalog(self.root).locate(store))

    @cached_property
    def _keyed(self) -> dict[str, StoreSpec]:
        return {name: spec for name, spec in self._specs.items() if spec is not None and spec.kind == KEYED}

    @cached_property
    def _specs(self) -> dict[str, StoreSpec | None]:
        """The description of each store; None for a store that cannot be read."""
        return {name: _spec(self.root / name) for name in self.stores}

    @cached_property
    def _damaged(self) -> frozenset[str]:
        """Stores whose descriptions cannot be read; it is unknown whether they are keyed."""
        return frozenset(name for name, spec in self._specs.items() if spec is None)

    def _located(self, name: str) -> tuple[Storage, StoreSpec]:
        """Return the store that has a table. Raises CorruptError STORE_CORRUPT, also for a state of a damaged store."""
        store = name.rpartition(".")[0]
        return Catalog(self.root).locate(store if name not in self._plain and store in self._damaged else name)

    @cached_property
    def _plain(self) -> frozenset[str]:
        return frozenset(self.stores) - self._keyed.keys()

    def _state(self, name: str) -> EngineTable | None:
        store, _, state = name.rpartition(".")
        if store not in self._keyed or name in self._plain:
            return None
        return keyed_table(self.root / store, self._keyed[store], state)

    def _state_tables(self, name: str, spec: StoreSpec) -> set[str]:
        try:
            return {f"{name}.{state}" for state in _states(self.root / name, spec)} - self._plain
        except StateStoreError:
            return {name}


def keyed_spec(folder: Path) -> StoreSpec | None:
    """Return the description of the keyed store in a folder; None if there is none, or if it cannot be read."""
    spec = _spec(folder)
    return spec if spec is not None and spec.kind == KEYED else None


def _spec(folder: Path) -> StoreSpec | None:
    try:
        data = read_regular(folder / STORE_FILE, MAX_METADATA_BYTES)
        return decode_spec(data, str(folder / STORE_FILE))
    except (OSError, StateStoreError):
        return None


def metadata_of(table: StateTable, suffix: str) -> MetadataTable:
    """Return the metadata table of an opened table; nothing of the store is read again."""
    if isinstance(table, EngineTable):
        return MetadataTable(EngineMetadata(table), suffix)
    assert isinstance(table, VersionedTable)
    return MetadataTable(StoreMetadata(table.storage, table.spec), suffix)


def only_state(folder: Path, spec: StoreSpec) -> EngineTable:
    """Return the only state of a keyed store.

    Raises NotFoundError NO_SNAPSHOT, or TABLE_NOT_FOUND, which lists the states if there are several.
    """
    states = _states(folder, spec)
    if len(states) == 1:
        return keyed_table(folder, spec, states[0])
    if not shared_log(folder, spec.store_id).kept_snapshots():
        raise NotFoundError(
            ErrorCode.NO_SNAPSHOT, f"keyed store {spec.name!r} has no snapshot yet; take and commit one"
        )
    addresses = ", ".join(f"{folder}/{state}" for state in states) or "none"
    raise NotFoundError(
        ErrorCode.TABLE_NOT_FOUND, f"{folder} is a keyed store with {len(states)} states; name one of them: {addresses}"
    )


def state_at(folder: Path, spec: StoreSpec, state: str) -> EngineTable:
    """Return a state by name, including one that only older snapshots have. Raises NotFoundError TABLE_NOT_FOUND."""
    if state not in _states(folder, spec, every=True):
        addresses = ", ".join(f"{folder}/{other}" for other in _states(folder, spec)) or "none"
        raise NotFoundError(
            ErrorCode.TABLE_NOT_FOUND,
            f"no state {state!r} in keyed store {folder}; there are {addresses}; name one of them",
        )
    return keyed_table(folder, spec, state)


def _states(folder: Path, spec: StoreSpec, every: bool = False) -> list[str]:
    """Return the states of the newest kept snapshot, or of all kept snapshots."""
    entries = list(shared_log(folder, spec.store_id).kept_snapshots().values())
    return sorted({s.name for entry in entries[0 if every else -1 :] for part in entry.parts for s in part.states})
