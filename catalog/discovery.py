"""What is at a path: a warehouse of ours, one store of it, or the checkpoint of a streaming query."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from statestore.catalog.catalog import Catalog
from statestore.catalog.checkpoint_table import checkpoint_tables
from statestore.catalog.metadata_tables import TABLES, MetadataTable
from statestore.catalog.store_spec import STORE_FILE
from statestore.catalog.versioned_table import VersionedTable
from statestore.formats.errors import NotFoundError
from statestore.formats.state_table import StateTable


@dataclass(frozen=True)
class TableInfo:
    """What a table's rows are: the kind of state, and how long it is kept (milliseconds; None: for ever)."""

    kind: str
    retention: int | None


@dataclass(frozen=True)
class Warehouse:
    """The tables at one path; nothing is read until a table is."""

    path: str
    names: tuple[str, ...]
    open: Callable[[str], StateTable]
    about: Callable[[str], TableInfo]
    suffixes: tuple[str, ...] = tuple(TABLES)
    """Of the metadata tables that each table has."""

    def tables(self) -> list[str]:
        """Names of the tables with state, without their metadata tables."""
        return list(self.names)

    def metadata_tables(self) -> list[str]:
        return [f"{name}${suffix}" for name in self.names for suffix in self.suffixes]

    def table(self, name: str) -> StateTable:
        """A table, or a metadata table (`prices$versions`); NotFoundError TABLE_NOT_FOUND names the nearest."""
        base, _, suffix = name.partition("$")
        if base not in self.names or (suffix and suffix not in self.suffixes):
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
    checkpoint of a Structured Streaming query.

    Raises NotFoundError PATH_NOT_FOUND, or NOTHING_HERE if the directory holds neither.
    """
    root = Path(path)
    if not root.is_dir():
        raise NotFoundError("PATH_NOT_FOUND", f"{root} is not a directory; expected a warehouse or a store directory")
    if (root / STORE_FILE).is_file():
        return Warehouse(str(root), (root.resolve().name,), *_openers(root.resolve().parent))
    if _is_checkpoint(root):
        return _checkpoint(root)
    stores = tuple(Catalog(root).stores())
    if not stores:
        raise NotFoundError(
            "NOTHING_HERE",
            f"{root} holds no store; expected a warehouse made with statestore.connect, or a checkpoint of Structured "
            "Streaming",
        )
    return Warehouse(str(root), stores, *_openers(root))


def open_table(path: str | os.PathLike[str]) -> StateTable:
    """The table of a store directory, or with a suffix (`warehouse/prices$versions`) one of its metadata tables; of a
    checkpoint its only table, or with a name (`checkpoint/left`) one of several."""
    root = Path(path)
    if _is_checkpoint(root):
        found = _checkpoint(root)
        if len(found.names) != 1:
            names = ", ".join(f"{root}/{name}" for name in found.names)
            raise NotFoundError("TABLE_NOT_FOUND", f"{root} has several tables; name one of them: {names}")
        return found.table(found.names[0])
    if _is_checkpoint(root.parent) and not (root / STORE_FILE).is_file():
        return _checkpoint(root.parent).table(root.name)
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


def _is_checkpoint(root: Path) -> bool:
    return (root / "commits").is_dir() and (root / "state").is_dir()


def _checkpoint(root: Path) -> Warehouse:
    tables = checkpoint_tables(str(root))
    return Warehouse(
        str(root),
        tuple(sorted(tables)),
        lambda name: tables[name][0],
        lambda name: TableInfo(tables[name][1] or "Spark state", None),
        suffixes=(),
    )


def _openers(root: Path) -> tuple[Callable[[str], StateTable], Callable[[str], TableInfo]]:
    return (lambda name: _table(root, name)), (lambda name: _about(root, name))


def _about(root: Path, name: str) -> TableInfo:
    _, spec = Catalog(root).locate(name)
    return TableInfo(spec.kind, spec.history_retention if spec.windowing is None else spec.windowing.retention)


def _table(root: Path, name: str) -> StateTable:
    base, _, suffix = name.partition("$")
    storage, spec = Catalog(root).locate(base)
    return MetadataTable(storage, spec, suffix) if suffix else VersionedTable(storage, spec)
