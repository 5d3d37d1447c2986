"""A read that is about to fetch a data file which vacuum removed from the object store does as on a local disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from obstore.store import MemoryStore
from support.object_stores.doubles import location_in

from statestore.catalog.catalog import Catalog
from statestore.catalog.log.log_state import file_names
from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.formats.errors import NotFoundError
from statestore.formats.state_table import Query

ROWS = 2_000


class Warehouse:
    """A store of three commits, and readers who have nothing of it in their cache."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._location = location_in(MemoryStore())
        self.expected = {"k": list(range(ROWS)), "v": [2] * ROWS}
        with self._catalog("mine").create_store("s", key={"k": "bigint"}, value={"v": "bigint"}) as store:
            store.auto_compact = False
            for commit in range(3):
                times = [1_000 * (commit + 1)] * ROWS
                store.put_all(pa.table({"k": list(range(ROWS)), "v": [commit] * ROWS, "timestamp": times}))
                store.commit()

    def _catalog(self, cache: str) -> Catalog:
        return Catalog(self._location, local=str(self._folder / "local"), cache=str(self._folder / cache))

    def reader(self) -> Any:
        return self._catalog("theirs").open_store("s", read_only=True)

    def replace_all(self) -> set[str]:
        """Compact the store, and remove what was replaced as vacuum does after days."""
        with self._catalog("mine").open_store("s", auto_compact=False) as store:
            before = file_names(store._log_state)
            store.compact(full=True)
            gone = before - file_names(store._log_state)
            store._storage.delete_many(sorted(gone))
        assert len(gone) >= 3
        return gone

    def drop(self) -> None:
        self._catalog("mine").drop_store("s")


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path)


@pytest.fixture
def late(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Replace all files just before the first part of one is fetched; return the set that then has their names."""
    gone: set[str] = set()
    read, begun = ObjectStorage._read_part, list[str]()

    def reading(self: ObjectStorage, name: str, *given: Any) -> bytes:
        if not begun:
            begun.append(name)  # the compaction fetches, too
            gone.update(warehouse.replace_all())
        return read(self, name, *given)

    monkeypatch.setattr(ObjectStorage, "_read_part", reading)
    return gone


def test_planned_reads(warehouse: Warehouse) -> None:
    """Whether the parts of all files are fetched at once, or those of one when its bytes are verified."""
    query = Query()
    with warehouse.reader() as reader:
        files, meta = reader.table.files(), reader._log_state.segments[0]
        splits = reader.table.splits(query)
        warehouse.replace_all()
        with pytest.raises(NotFoundError, match=r"FILES_REPLACED.*run the read again"):
            for split in splits:
                list(reader.table.read(split, query))
        with pytest.raises(NotFoundError, match=r"FILES_REPLACED.*run the read again"):
            files.open_segment(meta)
        assert reader.scan(columns=["k", "v"]).read_all().sort_by("k").to_pydict() == warehouse.expected


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.get(7).value,
        lambda store: store.get(7, as_of=9_000).value,
        lambda store: store.get_many([7, 8])[0].value,
        lambda store: next(iter(store.get_versions(7))).value,
    ],
    ids=["newest", "as of", "many", "versions"],
)
def test_reads_of_keys_go_on(warehouse: Warehouse, late: set[str], read: Callable[[Any], object]) -> None:
    with warehouse.reader() as reader:
        assert read(reader) == 2
    assert late


def test_a_file_that_the_newest_version_needs_is_missing(warehouse: Warehouse) -> None:
    with warehouse.reader() as reader:
        reader._storage.delete_many(sorted(file_names(reader._log_state)))
        with pytest.raises(NotFoundError, match=r"FILE_NOT_FOUND.*restore it from a copy"):
            reader.get(7)
        with pytest.raises(NotFoundError, match=r"FILE_NOT_FOUND.*restore it from a copy"):
            reader.scan().read_all()


def test_the_store_is_gone_altogether(warehouse: Warehouse) -> None:
    query = Query()
    with warehouse.reader() as reader:
        splits = reader.table.splits(query)
        warehouse.drop()
        with pytest.raises(NotFoundError, match="STORE_REPLACED"):
            for split in splits:
                list(reader.table.read(split, query))
