"""What is at a path: a warehouse of ours, one store of it, or the checkpoint of a streaming query."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from statestore.catalog.catalog import Catalog
from statestore.catalog.checkpoint_metadata import CheckpointMetadata
from statestore.catalog.checkpoint_selection import StateSelection, selected_table
from statestore.catalog.checkpoint_table import CheckpointTable, checkpoint_tables
from statestore.catalog.metadata_table import TABLES, MetadataTable
from statestore.catalog.store_metadata import StoreMetadata
from statestore.catalog.store_spec import STORE_FILE
from statestore.catalog.versioned_table import VersionedTable
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.locations import Location, open_location, parse_location
from statestore.formats.spark.checkpoint_files import Folder
from statestore.formats.state_table import StateTable

OPERATOR_STATE = "state_0"


@dataclass(frozen=True)
class TableInfo:
    """What a table's rows are: the kind of state, and how long it is kept (milliseconds; None: for ever)."""

    kind: str
    retention: int | None


@dataclass(frozen=True)
class Warehouse:
    """The tables at one path; nothing is read until a table is."""

    location: Location
    names: tuple[str, ...]
    open: Callable[[str], StateTable]
    about: Callable[[str], TableInfo]

    @property
    def path(self) -> str:
        """The location as it may be shown: without credentials."""
        return str(self.location)

    def address(self, name: str) -> str:
        """What `open_table` takes for a table; it has the credentials that were given with the location."""
        _, dollar, suffix = name.partition("$")
        root = Path(self.location.path).absolute()
        if self.location.is_local and (root / STORE_FILE).is_file():  # the location is that one store
            return f"{root}{dollar}{suffix}"
        return self.location.at(name).uri

    def tables(self) -> list[str]:
        """Names of the tables with state, without their metadata tables."""
        return list(self.names)

    def metadata_tables(self) -> list[str]:
        return [f"{name}${suffix}" for name in self.names for suffix in TABLES]

    def table(self, name: str) -> StateTable:
        """A table, or a metadata table (`prices$versions`); NotFoundError TABLE_NOT_FOUND names the nearest."""
        base, _, suffix = name.partition("$")
        if base not in self.names or (suffix and suffix not in TABLES):
            known = [*self.names, *self.metadata_tables()]
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else "name one of them"
            raise NotFoundError(
                "TABLE_NOT_FOUND",
                f"no table {name!r} in {self.path}, which has {', '.join(self.names) or 'none'}; {hint}",
            )
        return self.open(name)


def open_warehouse(path: str | os.PathLike[str]) -> Warehouse:
    """The warehouse at ``path``, or the one store at ``path`` as a warehouse of one table, or the state in the
    checkpoint of a Structured Streaming query, which may lie in an object store or HDFS
    (``statestore.formats.locations``).

    Raises NotFoundError PATH_NOT_FOUND, or NOTHING_HERE if the directory holds neither; InvalidInputError
    INVALID_LOCATION or NO_ACCESS; UnsupportedError UNSUPPORTED_PATH.
    """
    location = parse_location(path)
    if not location.is_local:
        return _elsewhere(location)
    root = Path(location.path)
    if not root.is_dir():
        raise NotFoundError(
            "PATH_NOT_FOUND",
            f"{root} is not a directory; expected a warehouse, a store or the checkpoint of a Spark query",
        )
    if (root / STORE_FILE).is_file():
        return Warehouse(location, (root.resolve().name,), *_openers(root.resolve().parent))
    if _is_checkpoint(location):
        return _checkpoint(location)
    stores = tuple(Catalog(root).stores())
    if not stores:
        raise NotFoundError(
            "NOTHING_HERE",
            f"{root} holds no store; expected a warehouse made with statestore.connect, or a checkpoint of Structured "
            "Streaming",
        )
    return Warehouse(location, stores, *_openers(root))


def open_table(path: str | os.PathLike[str], selection: StateSelection | None = None) -> StateTable:
    """The table of a store directory, or with a suffix (`warehouse/prices$versions`) one of its metadata tables; of a
    checkpoint what ``selection`` says, or its only table, or with a name (`checkpoint/left`) one of several."""
    location = parse_location(path)
    if selection is not None:
        if not _is_checkpoint(location):
            raise InvalidInputError(
                "STATE_SELECTION",
                f"{location} is no checkpoint of Structured Streaming; options like batchId and operatorId select "
                "state in one (Spark: STDS_COMMITTED_BATCH_UNAVAILABLE)",
            )
        return selected_table(location, selection)
    if _is_checkpoint(location):
        found = _checkpoint(location)
        if OPERATOR_STATE in found.names:  # of several operators the one at the sink, as Spark's own source has it
            return found.table(OPERATOR_STATE)
        if len(found.names) != 1:
            names = ", ".join(f"{location}/{name}" for name in found.names)
            raise NotFoundError(
                "TABLE_NOT_FOUND",
                f"{location} has several tables; name one of them: {names}; or in Spark, say joinSide or stateVarName",
            )
        return found.table(found.names[0])
    root = Path(location.path)
    if _is_checkpoint(location.parent) and not (location.is_local and (root / STORE_FILE).is_file()):
        return _checkpoint(location.parent).table(location.name)
    if not location.is_local:
        raise _no_checkpoint(location)
    base, _, suffix = root.name.partition("$")
    if suffix and suffix not in TABLES:
        raise NotFoundError(
            "TABLE_NOT_FOUND", f"{path}: no metadata table ${suffix}; there are {', '.join('$' + t for t in TABLES)}"
        )
    if not (root.parent / base / STORE_FILE).is_file():
        raise NotFoundError(
            "STORE_NOT_FOUND", f"no store at {root.parent / base}; create it with statestore.connect(…).create_store"
        )
    return _table(root.parent, root.name)


def _is_checkpoint(location: Location) -> bool:
    if location.is_local:
        return all(Path(location.path, name).is_dir() for name in ("commits", "state"))
    return {"commits", "state"} <= set(Folder(*open_location(location)).folders())


def _checkpoint(location: Location) -> Warehouse:
    tables = checkpoint_tables(location)
    return Warehouse(
        location,
        tuple(sorted(tables)),
        lambda name: _of_checkpoint(tables, name),
        lambda name: TableInfo(tables[name][1] or "Spark state", None),
    )


def _of_checkpoint(tables: Mapping[str, tuple[CheckpointTable, str]], name: str) -> StateTable:
    base, _, suffix = name.partition("$")
    table = tables[base][0]
    return MetadataTable(CheckpointMetadata(table), suffix) if suffix else table


def _elsewhere(location: Location) -> Warehouse:
    if not _is_checkpoint(location):
        raise _no_checkpoint(location)
    return _checkpoint(location)


def _no_checkpoint(location: Location) -> NotFoundError:
    if Folder(*open_location(location)).entries():
        what = "holds no checkpoint of Structured Streaming; other state is read in local directories only"
        return NotFoundError("NOTHING_HERE", f"{location} {what}")
    what = "does not exist, or has nothing in it; expected a folder with a checkpoint of Structured Streaming"
    return NotFoundError("PATH_NOT_FOUND", f"{location} {what}")


def _openers(root: Path) -> tuple[Callable[[str], StateTable], Callable[[str], TableInfo]]:
    return (lambda name: _table(root, name)), (lambda name: _about(root, name))


def _about(root: Path, name: str) -> TableInfo:
    _, spec = Catalog(root).locate(name)
    return TableInfo(spec.kind, spec.history_retention if spec.windowing is None else spec.windowing.retention)


def _table(root: Path, name: str) -> StateTable:
    base, _, suffix = name.partition("$")
    storage, spec = Catalog(root).locate(base)
    return MetadataTable(StoreMetadata(storage, spec), suffix) if suffix else VersionedTable(storage, spec)
