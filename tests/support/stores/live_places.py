"""Warehouses for tests of live stores: in a directory, or with the commits in an object store of this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from obstore.store import MemoryStore

import statestore
from statestore.catalog.catalog import Catalog
from statestore.catalog.log.storage import own_folder
from support.object_stores.doubles import location_in

PLACES = ("directory", "objects")
"""Places that `warehouse_in` makes: a directory, or objects in memory beside a directory for what a machine keeps."""


def warehouse_in(folder: Path, place: str) -> Catalog:
    """Return a new warehouse, with all that it keeps on the disk in ``folder``."""
    return statestore.connect(folder) if place == "directory" else machine(MemoryStore(), folder)


def machine(objects: Any, folder: Path) -> Catalog:
    """Return the warehouse in an object store as one machine sees it, which is a local directory."""
    return Catalog(location_in(objects), local=str(folder / "local"), cache=str(folder / "cache"))


def machines(objects: Any, folder: Path, count: int = 2) -> list[Catalog]:
    """Return the same warehouse as several machines see it."""
    location = location_in(objects)
    return [Catalog(location, local=str(folder / f"machine-{n}"), cache=str(folder / "cache")) for n in range(count)]


def kept_of(catalog: Catalog, name: str = "s") -> Path:
    """Return the directory with the hot tier and the changelogs of a store."""
    folder = own_folder(catalog.locate(name)[0])
    assert folder is not None
    return folder
