"""The tables of the stores in a warehouse, and which of them a location names.

A store is one table, with the name of the store. A keyed store is one table for each of its states, with the name
``store.state`` and the address ``warehouse/store/state``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from statestore.catalog.log.log_names import STORE_FILE
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_locations import (
    described,
    is_described,
    names_a_store,
    spec_at,
    storage_at,
    stores_in_turn,
)
from statestore.catalog.log.store_spec import KEYED, StoreSpec
from statestore.catalog.named_stores import located
from statestore.catalog.pinned_stores import PinnedStores
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.notices import STRICT
from statestore.formats.places.folder import Folder
from statestore.formats.places.locations import Location
from statestore.formats.places.object_cache import in_parallel
from statestore.formats.state_table import StateTable

if TYPE_CHECKING:
    from statestore.catalog.describe.metadata_table import MetadataTable
    from statestore.catalog.describe.table_summary import TableInfo, TableSummary
    from statestore.catalog.engines.engine_table import EngineTable
    from statestore.catalog.store_upkeep import Upkeep
    from statestore.formats.engine import Opening

Found: TypeAlias = tuple[Storage, StoreSpec] | None
"""The storage and the description of a store; None for a store that cannot be read."""
LOOKED_INTO = 16  # folders of a location that may be a warehouse without the object of warehouses


@dataclass(frozen=True)
class StoreTables:
    """The tables of ``stores``, which lie at ``root``.

    A damaged store is a table, too: opening it reports the damage, and the others can be read. Opening a table looks
    at its store, unless the tables are ``pinned``: then each store is described once, and is at the version that was
    the newest when the first of its tables was asked something. A table that is named costs no look at other stores.
    """

    root: Location
    stores: tuple[str, ...]
    pinned: PinnedStores | None = field(default=None, kw_only=True, repr=False, compare=False)
    # What `stores_in` has found of the stores.
    known: Mapping[str, Found] | None = field(default=None, kw_only=True, repr=False, compare=False)
    strict: bool = field(default=False, kw_only=True)

    def pin(self, pinned: PinnedStores | None = None) -> Self:
        if self.pinned is not None and pinned is None:
            return self
        return replace(self, pinned=pinned or PinnedStores(), known=vars(self).get("_found", self.known))

    def pin_anew(self) -> Self:
        return self.pin(PinnedStores())

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
        if name in self._named:
            spec = self._keyed_spec(name)
            if spec is None or name in self._state_tables(name, spec):
                return True
        store, _, state = name.rpartition(".")
        if self._is_damaged(store):
            return True  # opening it reports the damage
        spec = self._keyed_spec(store)
        return spec is not None and (
            name in self._state_tables(store, spec) or state in self._states(store, spec, every=True)
        )

    def open(self, name: str) -> StateTable:
        base, _, suffix = name.partition("$")
        keyed = self._state(base)
        if keyed is not None:
            return metadata_of(keyed, suffix) if suffix else keyed
        storage, spec = self._located(base)
        if spec.kind == KEYED:
            store, _, state = (base, "", "") if base in self.stores else base.rpartition(".")
            return _shown(state_of(self._opening(store, storage, spec), storage, spec, state))
        table = VersionedTable(storage, spec, strict=self.strict)
        table = table if self.pinned is None else table.at(self.pinned.log(base))
        return metadata_of(table, suffix) if suffix else table

    def about(self, name: str) -> TableInfo:
        from statestore.catalog.describe.table_summary import TableInfo

        keyed = self._state(name)
        if keyed is not None:
            return TableInfo(keyed.info.kind, None)
        _, spec = self._located(name)
        if spec.captured is not None:
            captured = spec.captured
            facts = {"captured_from": captured.path, "captured_state": captured.state}
            return TableInfo(f"captured {captured.kind}", None, facts)
        return TableInfo(spec.kind, spec.history_retention if spec.windowing is None else spec.windowing.retention)

    def summary(self, name: str) -> TableSummary:
        """Return the summary of a table. Raises CorruptError for a damaged one."""
        keyed = self._state(name)
        if keyed is not None:
            from statestore.catalog.engines.engine_metadata import summarize_state

            return summarize_state(keyed)
        from statestore.catalog.describe.store_summary import summarize

        storage, spec = self._located(name)
        if self.pinned is None:
            return summarize(storage, spec)
        # Of the newest version, because it describes the files that are there; the first look binds the tables.
        files = SegmentFiles(storage, spec)
        seen = files.log.leased()
        self.pinned.log(name).log_state(files.log, seen)
        return summarize(storage, spec, seen)

    def path_of(self, name: str) -> str:
        """Return the path of a table below ``root``, with the suffix of a metadata table."""
        base, dollar, suffix = name.partition("$")
        keyed = self._state(base)
        path = base if keyed is None else f"{base.rpartition('.')[0]}/{keyed.state}"
        return f"{path}{dollar}{suffix}"

    @property
    def options(self) -> dict[str, str]:
        """None but strict: the tables of stores have no others."""
        return {STRICT: "true"} if self.strict else {}

    def store_of(self, name: str) -> str | None:
        """Return the store that a name of a store or table means; None if no store has it."""
        base = name.partition("$")[0]
        if base in self.stores:
            return base
        return base.rpartition(".")[0] if self.knows(base) else None

    def upkeep(self, store: str) -> Upkeep:
        from statestore.catalog.store_upkeep import upkeep_of

        return upkeep_of(*located(self.root, store))

    @cached_property
    def _keyed(self) -> dict[str, StoreSpec]:
        specs = {name: found[1] for name, found in self._found.items() if found is not None}
        return {name: spec for name, spec in specs.items() if spec.kind == KEYED}

    @cached_property
    def _found(self) -> Mapping[str, Found]:
        return _all_described(self.root, self.stores) if self.known is None else self.known

    def _storage(self, name: str) -> Storage:
        return keyed_storage(self.root.at(name), self._keyed_spec(name))

    @cached_property
    def _named(self) -> frozenset[str]:
        return frozenset(self.stores)

    @cached_property
    def _looked_at(self) -> dict[str, Found]:
        """Return what was found of single stores that were named."""
        return {}

    def _found_of(self, store: str) -> Found:
        """Return what is found of one of the stores; the others are not looked at for it."""
        every: Mapping[str, Found] | None = vars(self).get("_found", self.known)
        if every is not None:
            return every[store]
        if store not in self._looked_at:
            self._looked_at[store] = _described(self.root.at(store))
        return self._looked_at[store]

    def _keyed_spec(self, store: str) -> StoreSpec | None:
        """Return the description of a keyed store of this name; None if there is none that can be read."""
        found = self._found_of(store) if store in self._named else None
        return found[1] if found is not None and found[1].kind == KEYED else None

    def _is_damaged(self, store: str) -> bool:
        """Return whether there is such a store whose description cannot be read; it is unknown whether it is keyed."""
        return store in self._named and self._found_of(store) is None

    @cached_property
    def _damaged(self) -> frozenset[str]:
        """The stores of `_is_damaged`."""
        return frozenset(name for name, found in self._found.items() if found is None)

    def _located(self, name: str) -> tuple[Storage, StoreSpec]:
        """Return the store that has a table. Raises CorruptError STORE_CORRUPT, also for a state of a damaged store."""
        known = None if self.pinned is None or name not in self._named else self._found_of(name)
        if known is not None:
            return known
        store = name.rpartition(".")[0]
        return located(self.root, store if not self._is_plain(name) and self._is_damaged(store) else name)

    def _is_plain(self, name: str) -> bool:
        return name in self._named and self._keyed_spec(name) is None

    @cached_property
    def _plain(self) -> frozenset[str]:
        return self._named - self._keyed.keys()

    def _state(self, name: str) -> EngineTable | None:
        store, _, state = name.rpartition(".")
        spec = self._keyed_spec(store)
        if spec is None or self._is_plain(name):
            return None
        from statestore.catalog.keyed.tables.keyed_source import keyed_table

        return keyed_table(self._opening(store, self._storage(store), spec), spec, state)

    def _opening(self, store: str, storage: Storage, spec: StoreSpec) -> Opening:
        opening = keyed_opening(storage, spec)
        return opening if self.pinned is None else self.pinned.opening(store, opening)

    def _states(self, store: str, spec: StoreSpec, every: bool = False) -> list[str]:
        from statestore.catalog.keyed.tables.state_tables import state_names

        return state_names(self._opening(store, self._storage(store), spec), every)

    def _state_tables(self, name: str, spec: StoreSpec) -> set[str]:
        try:
            return {f"{name}.{state}" for state in self._states(name, spec)} - self._plain
        except StateStoreError:
            return {name}


@dataclass(frozen=True)
class TablesOfStores(StoreTables):
    """The tables of a warehouse."""

    def address(self, name: str) -> str:
        return self.root.at(self.path_of(name)).uri


@dataclass(frozen=True)
class TablesOfStore(StoreTables):
    """The tables of the one store at ``place``."""

    place: Location

    def address(self, name: str) -> str:
        path = f"{self.place.path}{self.path_of(name).removeprefix(self.stores[0])}"
        return replace(self.place, path=path).uri


def keyed_opening(storage: Storage, spec: StoreSpec) -> Opening:
    """Return what opens the states of a keyed store, whose modules are loaded where there is one."""
    from statestore.catalog.keyed.tables.keyed_source import KeyedOpening

    return KeyedOpening(storage, spec)


def state_of(opening: Opening, storage: Storage, spec: StoreSpec, state: str = "") -> EngineTable:
    """Return a state of a keyed store by name; "": the only one. Raises as `only_state` and `state_at`."""
    from statestore.catalog.keyed.tables.state_tables import only_state, state_at

    return state_at(opening, storage, spec, state) if state else only_state(opening, storage, spec)


def keyed_storage(location: Location, spec: StoreSpec | None) -> Storage:
    """Return the storage of the keyed store at a location, whose description is ``spec``."""
    storage = storage_at(location)
    return storage.within(spec.folder) if spec is not None and spec.folder else storage


def keyed_spec(location: Location) -> StoreSpec | None:
    """Return the description of the keyed store at a location; None if there is none, or if it cannot be read."""
    found = _described(location)
    return found[1] if found is not None and found[1].kind == KEYED else None


def _all_described(root: Location, names: Sequence[str]) -> dict[str, Found]:
    return dict(zip(names, in_parallel(lambda name: _described(root.at(name)), names), strict=True))


def _described(location: Location) -> Found:
    try:
        return described(storage_at(location))
    except (OSError, StateStoreError):
        return None


def metadata_of(table: StateTable, suffix: str) -> MetadataTable:
    """Return the metadata table of an opened table; nothing of the store is read again."""
    from statestore.catalog.describe.metadata_table import MetadataTable

    if isinstance(table, VersionedTable):
        from statestore.catalog.describe.store_metadata import StoreMetadata

        return MetadataTable(StoreMetadata(table), suffix)
    from statestore.catalog.engines.engine_metadata import EngineMetadata
    from statestore.catalog.engines.engine_table import EngineTable

    assert isinstance(table, EngineTable)
    return MetadataTable(EngineMetadata(table), suffix)


def stored_table(location: Location) -> StateTable:
    """Open ``warehouse/prices$versions``, ``warehouse/sessions/counts`` or ``warehouse/sessions.counts``.

    Raises NotFoundError STORE_NOT_FOUND, or TABLE_NOT_FOUND for a metadata table that does not exist.
    """
    found = _table_at(location)
    if found is None:
        raise no_store(location)
    return found


def table_of_store(location: Location) -> StateTable | None:
    """Return the table, or metadata table, of the store at a location in an object store.

    None if no store is there, or none that can be read: what a listing shows then says why. A store is described by
    one round of requests, so nothing is listed where there is one. Raises as `stored_table` for a keyed store.
    """
    from statestore.catalog.describe.metadata_table import TABLES

    folder, suffix = _without_suffix(location), location.name.partition("$")[2]
    if suffix and suffix not in TABLES:
        return None
    found = _described(folder)
    if found is None:
        return None
    if found[1].kind == KEYED:
        return _shown(_state_at(keyed_storage(folder, found[1]), found[1]), suffix)
    table = VersionedTable(*found)
    return metadata_of(table, suffix) if suffix else table


def named_table(root: Location, name: str) -> VersionedTable | None:
    """Return the table of the store with exactly this name in a warehouse of an object store, listing nothing.

    None for any other name, and for a store that has several tables, or cannot be read.
    """
    found = _described(root.at(name))
    return None if found is None or found[1].kind == KEYED else VersionedTable(*found)


def no_store(location: Location) -> NotFoundError:
    """Return the error for a location at which a store was expected."""
    return NotFoundError(
        ErrorCode.STORE_NOT_FOUND,
        f"no store at {_without_suffix(location)}; create it with statestore.connect(…).create_store",
    )


def _table_at(location: Location) -> StateTable | None:
    from statestore.catalog.describe.metadata_table import TABLES

    base, _, suffix = location.name.partition("$")
    if suffix and suffix not in TABLES:
        raise NotFoundError(
            ErrorCode.TABLE_NOT_FOUND,
            f"{location}: no metadata table ${suffix}; there are {', '.join('$' + t for t in TABLES)}",
        )
    folder, parent = _without_suffix(location), location.parent
    spec = spec_at(folder)
    if spec is not None and spec.kind == KEYED:
        return _shown(_state_at(keyed_storage(folder, spec), spec), suffix)
    if spec is not None or (location.is_local and (Path(folder.path) / STORE_FILE).is_file()):
        return StoreTables(parent, (base,)).open(location.name)
    keyed = keyed_spec(parent)
    if keyed is not None:
        return _shown(_state_at(keyed_storage(parent, keyed), keyed, base), suffix)
    store, _, state = base.rpartition(".")
    keyed = keyed_spec(parent.at(store)) if store else None
    if keyed is not None:
        return _shown(_state_at(keyed_storage(parent.at(store), keyed), keyed, state), suffix)
    return None


def _shown(state: EngineTable, suffix: str = "") -> StateTable:
    """Return a state of a keyed store, or its metadata table."""
    from statestore.catalog.engines.engine_states import state_table

    return state_table(state, suffix)


def _state_at(storage: Storage, spec: StoreSpec, state: str = "") -> EngineTable:
    return state_of(keyed_opening(storage, spec), storage, spec, state)


def _without_suffix(location: Location) -> Location:
    return location.parent.at(location.name.partition("$")[0])


def has_copied_stores(location: Location, folder: Folder) -> bool:
    """Return whether one of the first folders is a store, as in a warehouse that was copied here from a directory."""
    from statestore.formats.places.object_clients import is_only_for_stores, names_at

    names = names_at(location) if is_only_for_stores(location) else folder.folders()
    places = ((location.at(name), folder.at(name)) for name in names[:LOOKED_INTO])
    return any(names_a_store(names_in(place, inside), place) for place, inside in places)


def stores_in(location: Location, folder: Folder) -> dict[str, Found]:
    """Return the stores of a warehouse in an object store by their names, sorted; ``folder`` is its listing.

    They are described at the same time.
    """
    from statestore.formats.places.object_clients import folders_in, is_only_for_stores

    listed = folders_in(location) if is_only_for_stores(location) else folder.folders()
    names = sorted(name for name in listed if not name.startswith("."))
    found = in_parallel(lambda name: _described_or_absent(location.at(name)), names)
    return {name: each[0] for name, each in zip(names, found, strict=True) if each is not None}


def _described_or_absent(location: Location) -> tuple[Found] | None:
    """Return the description of a store, or None in its place where it cannot be read; None if no store is there."""
    turns = stores_in_turn(storage_at(location))
    try:
        last = next(turns)
    except NotFoundError:  # neither a description nor a copy of one
        return None
    except CorruptError:
        return (None,)
    except (OSError, StateStoreError):
        return (None,) if is_described(storage_at(location)) else None
    try:
        *_, last = last, *turns  # those that rebuilds put in its place
    except (OSError, StateStoreError):
        return (None,)
    return (last,)


def names_in(location: Location, folder: Folder) -> set[str]:
    """Return the names of files and folders at a location in an object store."""
    from statestore.formats.places.object_clients import is_only_for_stores, names_at

    if is_only_for_stores(location):
        return set(names_at(location))
    return {info.base_name for info in folder.entries()}


def has_store(location: Location, folder: Folder) -> bool:
    """Return whether a location in an object store names a table of a store there.

    What is around the location is only looked at where there is nothing at the location itself.
    """
    from statestore.formats.places.object_clients import listed_folder

    names = names_in(location, folder)
    if names or not location.path:
        return names_a_store(names, location)
    base = _without_suffix(location)
    around = [base] if base != location else []
    around += [base.parent, base.parent.at(base.name.rpartition(".")[0])] if base.parent.path else []
    return any(names_a_store(names_in(place, listed_folder(place)), place) for place in around)
