"""Opening of a path: a warehouse, one store of it, or the state of an engine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from statestore.catalog.engines.located_states import (
    nothing_here,
    one_state,
    options_at,
    selected_states,
    served_states,
    states_at,
    states_in,
)
from statestore.catalog.log.log_names import STORE_FILE
from statestore.catalog.pinned_stores import PinnedStores
from statestore.catalog.reads.shown import Facts, NamedItems, listed
from statestore.catalog.reads.table import Table
from statestore.formats.edits import UNFINISHED_FILE
from statestore.formats.engine_arguments import engine_options_of
from statestore.formats.engines import (
    EngineOpening,
    describe_only,
    engine_named,
    engine_options,
    expected,
    recognised,
    unreadable,
)
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import (
    CorruptError,
    InvalidInputError,
    NotFoundError,
    ReadOnlyError,
    UnsupportedError,
    close_matches,
    shown,
)
from statestore.formats.notices import is_strict
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.folder import Folder, folder_at
from statestore.formats.places.locations import Location, is_object_store, parse_location
from statestore.formats.state_table import StateTable

if TYPE_CHECKING:
    from statestore.catalog.describe.table_summary import TableInfo, TableSummary
    from statestore.catalog.edits.receipt import Receipt
    from statestore.catalog.engines.engine_states import EngineStates
    from statestore.catalog.log.store_spec import StoreSpec
    from statestore.catalog.reads.versioned_table import VersionedTable
    from statestore.catalog.store_upkeep import Upkeep
    from statestore.formats.jobs import Job


class Tables(Protocol):
    """The tables at a location, by name."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tables with state."""

    @property
    def stores(self) -> tuple[str, ...]:
        """Names of the stores that have upkeep."""

    @property
    def schemas(self) -> tuple[str, ...]:
        """Names that SQL may write before the dot in the name of a table."""

    def pin(self, pinned: PinnedStores | None = None) -> Tables:
        """Return the tables bound to one view of each source. ``pinned``: what is seen of stores is kept there."""

    def pin_anew(self) -> Tables:
        """Return the tables bound to views of each source that are later than this call."""

    def knows(self, name: str) -> bool:
        """Return whether ``open`` finds a table with state, including one that is not listed."""

    def open(self, name: str) -> StateTable:
        """Return a table, or one of its metadata tables."""

    def about(self, name: str) -> TableInfo: ...

    def summary(self, name: str) -> TableSummary: ...

    def address(self, name: str) -> str:
        """Return the path by which `open_table` opens a table."""

    @property
    def options(self) -> Mapping[str, str]:
        """The options with which `open_table` opens a table."""

    def store_of(self, name: str) -> str | None:
        """Return the store that a name means; None if no store has it."""

    def upkeep(self, store: str) -> Upkeep:
        """Return the upkeep of a store. Raises ReadOnlyError READ_ONLY for read-only state."""


@dataclass(frozen=True, repr=False)
class Warehouse(NamedItems):
    """The tables at one path, by name; no data is read before a table is read, except the logs of keyed stores."""

    location: Location
    held: Tables

    def pin(self) -> Warehouse:
        """Return the tables bound to one version of each source, which is looked at once for all questions.

        An engine's directory is bound as it was when it was opened, or as it is now where the engine has replaced its
        newest version since. A store of this package is bound when one of its
        tables is first asked something: its rows, history, changes and metadata, and all states of a keyed store, are
        then of one version. Several stores have no commit in common, so each has a version of its own. No file is kept
        for a pinned store: a read raises NotFoundError where an expiry, or the discarding of a snapshot, has removed
        what the version had.
        """
        return replace(self, held=self.held.pin())

    @property
    def path(self) -> str:
        """The location in the form that may be shown: without credentials."""
        return str(self.location)

    def address(self, name: str) -> str:
        """Return the path by which `open_table` opens a table, with `options`; it has the credentials that were given
        with the location.
        """
        return self.held.address(name)

    @property
    def options(self) -> Mapping[str, str]:
        """The options of an engine that select the state, by their names in Spark."""
        return self.held.options

    def tables(self) -> list[str]:
        """Return the names of the tables with state; each also has metadata tables, like ``prices$versions``."""
        return list(self.held.names)

    def metadata_tables(self) -> list[str]:
        from statestore.catalog.describe.metadata_table import TABLES

        return [f"{name}${suffix}" for name in self.held.names for suffix in TABLES]

    def schemas(self) -> list[str]:
        """Return the names of the keyed stores, whose tables have names like ``store.state``."""
        return list(self.held.schemas)

    def waiting(self) -> list[str]:
        """Return the keyed stores that have no table, because they have no snapshot yet."""
        return [name for name in self.held.schemas if not self._of_schema(name)]

    def about(self, name: str) -> TableInfo:
        return self.held.about(name)

    def table(self, name: str) -> Table:
        """Return a table by name, or a metadata table (``prices$versions``), with its reads.

        Raises NotFoundError TABLE_NOT_FOUND, which names the nearest one.
        """
        return Table(self.open(name), self.location.is_local)

    def open(self, name: str) -> StateTable:
        """Return a table, or a metadata table, as doors read it. Raises NotFoundError TABLE_NOT_FOUND."""
        if not isinstance(name, str):
            raise InvalidInputError(ErrorCode.INVALID_NAME, f"table name {shown(name)}; expected a text")
        base, _, suffix = name.partition("$")
        if (suffix and not _is_metadata(suffix)) or not self.held.knows(base):
            raise self._not_found(name)
        return self.held.open(name)

    def describe(self) -> str:
        """Return the text of a file that says what is known and guessed of an engine's states, to be corrected.

        Later reads take it as an option (``stores_file`` of Kafka Streams), or a check of a restore takes it (Flink).
        Raises UnsupportedError NOTHING_TO_DESCRIBE where there is nothing to say.
        """
        states = _states_of_engine(self.held)
        text = None if states is None else states.pin().ask(lambda source: source.described())
        if text is None:
            raise UnsupportedError(
                ErrorCode.NOTHING_TO_DESCRIBE,
                f"{self.path}: nothing of its tables is guessed, so there is nothing to describe; statestore inspect "
                "shows them",
            )
        return text

    def beside(self) -> list[str]:
        """Return the local folders directly in this place that are places of their own and no part of it, such as a
        checkpoint in the folder of another one."""
        if not self.location.is_local or (Path(self.location.path) / STORE_FILE).is_file():
            return []
        from statestore.catalog.engines.places_below import places_beside

        states = _states_of_engine(self.held)
        opening = None if states is None else states.opening
        engine = engine_named(opening.engine) if isinstance(opening, EngineOpening) else None
        return places_beside(Path(self.location.path), engine)

    def job(self) -> Job | None:
        """Return what is recorded of the job that keeps the states; None where they are of no job."""
        states = _states_of_engine(self.held)
        return None if states is None else states.ask(lambda source: source.job_info())

    def receipt(self) -> Receipt | None:
        """Return the receipt of the edit that made this state; None where none did.

        Raises CorruptError FILE_DAMAGED for one that is not as an edit wrote it.
        """
        states = _states_of_engine(self.held)
        if states is None and self.held.stores:
            return None
        from statestore.catalog.edits.receipt import read_receipt

        return read_receipt(folder_at(self.location if states is None else states.location))

    def summary(self, name: str) -> TableSummary:
        """Return the summary of a table, from metadata. Raises CorruptError or NotFoundError for a damaged table."""
        return self.held.summary(name)

    def stores(self, name: str | None = None) -> list[str]:
        """Return the stores that have upkeep: all, or the one that a name of a store or table means.

        Raises NotFoundError TABLE_NOT_FOUND.
        """
        if name is None:
            return list(self.held.stores)
        store = self.held.store_of(name)
        if store is None:
            raise self._not_found(name)
        return [store]

    def upkeep(self, store: str) -> Upkeep:
        """Return the upkeep of a store. Raises ReadOnlyError READ_ONLY for an engine's state."""
        return self.held.upkeep(store)

    def __contains__(self, name: object) -> bool:
        """Return whether there is such a table, or such a metadata table."""
        base, dollar, suffix = name.partition("$") if isinstance(name, str) else ("", "", "")
        return bool(base) and (not dollar or _is_metadata(suffix)) and self.held.knows(base)

    def _names(self) -> list[str]:
        return self.tables()

    def _item(self, name: str) -> Table:
        return self.table(name)

    def _about(self) -> tuple[str, Facts]:
        tables = self.tables() if self.location.is_local else list(self.held.stores)
        return f"tables at {self.path}", [("tables", listed(tables) or "none"), *self._edit()]

    def _edit(self) -> Facts:
        """Return what is known of the edit that made the state; none of a place that is not local."""
        try:
            receipt = self.receipt() if self.location.is_local else None
        except CorruptError as error:
            return [("edit", str(error))]
        return [] if receipt is None else [("edit", receipt.lines()[0])]

    def _of_schema(self, store: str) -> list[str]:
        return [name for name in self.held.names if name == store or name.rpartition(".")[0] == store]

    def _not_found(self, name: str) -> NotFoundError:
        names = [*self.tables(), *self.metadata_tables()]
        close = close_matches(name, names, 1)
        hint = f"did you mean {close[0]!r}?" if close else "name one of them"
        if name in self.held.schemas:
            hint = (
                "that is a keyed store; name one of its states" if self._of_schema(name) else "it has no snapshot yet"
            )
        return NotFoundError(
            ErrorCode.TABLE_NOT_FOUND,
            f"no table {name!r} in {self.path}, which has {', '.join(self.tables()) or 'none'}; {hint}",
        )


def _has_only_stores(folder: Folder, root: Path) -> bool:
    """Return whether all that a local folder shows is stores, so that no engine has to be asked about it."""
    names = folder.folders()
    return 0 < len(names) == len(folder.entries()) and all((root / name / STORE_FILE).is_file() for name in names)


def _states_of_engine(tables: Tables) -> EngineStates | None:
    """Return the tables as states of an engine; None where they are of stores."""
    from statestore.catalog.engines.engine_states import EngineStates

    return tables if isinstance(tables, EngineStates) else None


def _is_metadata(suffix: str) -> bool:
    """Return whether tables have a metadata table of this name."""
    from statestore.catalog.describe.metadata_table import TABLES

    return suffix in TABLES


def pinned_anew(warehouse: Warehouse) -> Warehouse:
    """Return the tables pinned at versions that are the newest at some moment after this call, for a transaction."""
    return replace(warehouse, held=warehouse.held.pin_anew())


def pinned_with(warehouse: Warehouse, pinned: PinnedStores) -> Warehouse:
    """Return the tables pinned; ``pinned`` is what was seen of stores, which other warehouses of the place share."""
    return replace(warehouse, held=warehouse.held.pin(pinned))


def pinned_for_statement(warehouse: Warehouse) -> Warehouse:
    """Return the tables pinned for one statement: files of a store that is looked at stay as long as the tables."""
    return pinned_with(warehouse, PinnedStores(keeps_files=True))


def inspect(path: str | os.PathLike[str], **options: Any) -> Warehouse:
    """Return the tables at ``path``: a warehouse, one store, or the state of an engine, such as a Spark checkpoint.

    State of an engine may also be at s3://bucket/folder, gs://…, abfs://…, hdfs://… or a location that an installed
    fsspec opens. ``options`` are those of engines that select state, such as ``operator_id=1`` and ``batch_id=3``
    (docs/reference.md).

    Raises NotFoundError PATH_NOT_FOUND or NOTHING_HERE, InvalidInputError INVALID_LOCATION or NO_ACCESS,
    UnsupportedError UNSUPPORTED_PATH.
    """
    return open_warehouse(path, engine_options_of("inspect", options))


def _is_strict(options: Mapping[str, str] | None) -> bool:
    return is_strict({name.lower(): value for name, value in (options or {}).items()})


def open_warehouse(path: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Warehouse:
    """Open the warehouse at ``path``, or one store as a warehouse of its tables, or the state of an engine.

    State of an engine, such as a checkpoint of Structured Streaming, may lie in an object store or HDFS
    (``statestore.formats.places.locations``). ``options`` of engines, by their names in Spark, select some of it, or
    the version up to which it is read.

    Raises NotFoundError PATH_NOT_FOUND, or NOTHING_HERE if the directory holds none of these; InvalidInputError
    INVALID_LOCATION or NO_ACCESS; UnsupportedError UNSUPPORTED_PATH.
    """
    found = _open_warehouse(path, options)
    if _is_strict(options):
        from statestore.catalog.store_tables import StoreTables

        if isinstance(found.held, StoreTables):
            return replace(found, held=replace(found.held, strict=True))
    return found


def _open_warehouse(path: str | os.PathLike[str], options: Mapping[str, str] | None) -> Warehouse:
    location = parse_location(path)
    options = options_at(location, options or {})
    served = served_states(location, options)
    if served is not None:
        return Warehouse(served.location, served)
    one = one_state(location, options)
    if one is not None:
        return Warehouse(location.parent, one)
    if options:
        return Warehouse(location, selected_states(location, options))
    if not location.is_local:
        return _warehouse_elsewhere(location)
    root = Path(location.path)
    with disk_errors("look at", root):
        if not root.is_dir():
            by_file = states_at(location) if root.is_file() else None
            if by_file is not None:
                return Warehouse(location, by_file)
            raise NotFoundError(
                ErrorCode.PATH_NOT_FOUND, f"{root} is not a directory; expected a warehouse, a store or {expected()}"
            )
        if (root / STORE_FILE).is_file():
            from statestore.catalog.store_tables import TablesOfStore

            whole = root.resolve()
            return Warehouse(location, TablesOfStore(Location(str(whole.parent)), (whole.name,), location))
        folder = folder_at(location).remembering()
        stores: tuple[str, ...] = ()
        if _has_only_stores(folder, root) or recognised(folder, installed=False) is None:
            from statestore.catalog.named_stores import store_names

            stores = tuple(store_names(location))
        engine_state = None if stores else states_in(folder, location)
    if engine_state is not None:
        return Warehouse(location, engine_state)
    if not stores and not _is_edit_without_state(folder):
        raise nothing_here(folder_at(location), root)
    from statestore.catalog.store_tables import TablesOfStores

    return Warehouse(location, TablesOfStores(location, stores))


def open_table(path: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> StateTable:
    """Open the table of a store directory, or with a suffix (`warehouse/prices$versions`) one of its metadata tables.

    Of a keyed store it is the named state (`warehouse/sessions/counts`), or the only one. Of an engine's state it is
    the table that the engine's ``options`` select, or the only table, or with a name (`checkpoint/left`) one of
    several.
    """
    found = _open_table(path, options)
    if _is_strict(options):
        from statestore.catalog.reads.versioned_table import VersionedTable

        return replace(found, strict=True) if isinstance(found, VersionedTable) else found
    return found


def _open_table(path: str | os.PathLike[str], options: Mapping[str, str] | None) -> StateTable:
    location = parse_location(path)
    given = dict(options_at(location, options or {}))
    described = given if describe_only(given) else {}
    served = served_states(location, given)
    if served is not None:
        return served.only() if served.one is None else served.open(location.path)
    names_state = any(engine_options(name) for name in given)
    if not names_state and is_object_store(location):
        from statestore.catalog.store_tables import table_of_store

        store = table_of_store(location)
        if store is not None:
            return store
    folder = None if location.is_local else _listed(location)
    if folder is not None and not names_state and is_object_store(location):
        from statestore.catalog.store_tables import has_store, stored_table

        if has_store(location, folder):
            return stored_table(location)
    engine_state = states_at(location, given, optional=bool(described), folder=folder)
    if engine_state is not None:
        return engine_state.only()
    root = Path(location.path)
    with disk_errors("look at", root):
        is_store = location.is_local and (root / STORE_FILE).is_file()
        within = None if is_store else states_at(location.parent, described)
        if within is not None:
            return Warehouse(location.parent, within).open(location.name)
        if not location.is_local:
            raise _no_state(location, _listed(location))
        from statestore.catalog.store_tables import stored_table

        return stored_table(location)


def rows_spec(path: str | os.PathLike[str]) -> StoreSpec:
    """Return the description of the store at ``path`` that takes rows as they come; errors as `rows_table`."""
    return rows_table(path).spec


def rows_table(path: str | os.PathLike[str]) -> VersionedTable:
    """Return the table of the store at ``path`` that takes rows as they come.

    Raises NotFoundError like `open_table`, ReadOnlyError READ_ONLY for read-only tables, UnsupportedError KEYED_WRITE.
    """
    from statestore.catalog.engines.engine_table import EngineTable
    from statestore.catalog.keyed.tables.keyed_source import KeyedOpening
    from statestore.catalog.reads.versioned_table import VersionedTable
    from statestore.catalog.store_tables import keyed_spec, no_store

    location = parse_location(path)
    can_hold_stores = location.is_local or is_object_store(location)
    keyed = keyed_spec(location) if can_hold_stores else None
    try:
        table = None if keyed is not None else open_table(path)
    except NotFoundError as error:
        if error.code in (ErrorCode.PATH_NOT_FOUND, ErrorCode.NOTHING_HERE):
            raise no_store(location) from None
        raise
    if isinstance(table, EngineTable) and isinstance(table.opening, KeyedOpening):
        keyed = table.opening.spec
    if keyed is not None:
        raise UnsupportedError(
            ErrorCode.KEYED_WRITE,
            f"{location} belongs to keyed store {keyed.name!r}, which takes no rows: its states are "
            "written key by key with store.backend(), and become a version with their snapshots "
            "(store.commit)",
        )
    if not isinstance(table, VersionedTable):
        raise ReadOnlyError(
            ErrorCode.READ_ONLY, f"{location} is read-only: metadata of a store, or the state of a query"
        )
    if table.spec.captured is not None:
        from statestore.catalog.stores.versioned.captured_commits import not_writable

        raise not_writable(table.name, table.spec.captured)
    return table


def _warehouse_elsewhere(location: Location) -> Warehouse:
    """Open what is at a location that is no local directory: stores, where they can be, or the state of an engine.

    One listing says which of them. An object store is listed as engines list it, so that nothing is listed twice.
    """
    folder = _listed(location)
    if is_object_store(location):
        from statestore.catalog.log.store_locations import names_a_store
        from statestore.catalog.store_tables import (
            TablesOfStore,
            TablesOfStores,
            has_copied_stores,
            names_in,
            stores_in,
        )
        from statestore.formats.places.object_clients import MARKER

        names = names_in(location, folder)
        if location.path and names_a_store(names, location):
            return Warehouse(location, TablesOfStore(location.parent, (location.name,), location))
        engine_state = None if MARKER in names else states_in(folder, location)
        if engine_state is None and (MARKER in names or has_copied_stores(location, folder)):
            stores = stores_in(location, folder)
            if stores:
                return Warehouse(location, TablesOfStores(location, tuple(stores), known=stores))
    else:
        engine_state = states_in(folder, location)
    if engine_state is None:
        if _is_edit_without_state(folder):
            from statestore.catalog.store_tables import TablesOfStores

            return Warehouse(location, TablesOfStores(location, ()))
        raise _no_state(location, folder)
    return Warehouse(location, engine_state)


def _is_edit_without_state(folder: Folder) -> bool:
    """Return whether a folder has the receipt of an edit and no state, as the records of an edit without changes."""
    from statestore.catalog.edits.receipt import read_receipt

    if UNFINISHED_FILE in folder.files():
        return False
    try:
        return read_receipt(folder) is not None
    except CorruptError:
        return False


def _listed(location: Location) -> Folder:
    """Return the folder at a location that is no local directory, with a memory."""
    from statestore.formats.places.object_clients import listed_folder

    return listed_folder(location)


def _no_state(location: Location, folder: Folder) -> NotFoundError:
    begun = unreadable(folder)
    if begun:
        return NotFoundError(ErrorCode.NOTHING_HERE, f"{location} {begun}")
    if folder.entries():
        what = f"holds no store, and not {expected()}"
        return NotFoundError(
            ErrorCode.NOTHING_HERE, f"{location} {what}; expected a warehouse, a store or one of these"
        )
    what = f"does not exist, or has nothing in it; expected a folder with a warehouse, a store or {expected()}"
    return NotFoundError(ErrorCode.PATH_NOT_FOUND, f"{location} {what}")
