"""A small store with its model, and the error that a wrong call or a damaged file must give."""

from __future__ import annotations

import atexit
import copy
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import statestore
from statestore import StateStoreError
from statestore.catalog.reads.segment_files import _shared
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from support.stores.versioned_checks import Put, as_table, check_answers, check_points, create
from support.stores.versioned_model import Model

TIMES = (None, 2, 5, 9)
ROWS: list[list[Put]] = [
    [("a", 1, 2), ("b", 2, 3), ("c", 3, 4)],
    [("a", 4, 8), ("b", None, 9)],
    [("a", 5, 5), ("c", 6, 10)],
]


@dataclass
class Warehouse:
    root: Path
    model: Model

    @property
    def folder(self) -> Path:
        return self.root / "s"

    def open(self) -> VersionedStore:
        _shared.clear()  # as a process that starts now
        store: VersionedStore = statestore.connect(self.root).open_store("s", auto_compact=False)
        return store

    def check(self) -> None:
        with self.open() as store:
            check_points(store, self.model)
            check_answers(store, self.model, TIMES)

    def entry(self, version: int) -> Path:
        return self.folder / f"log/{version:020d}.json"


def three_commits(root: Path) -> Warehouse:
    """A store of three commits and a pending put: a copy of one that is made once."""
    made = _three_commits()
    shutil.copytree(made.root, root, dirs_exist_ok=True)
    return Warehouse(root, copy.deepcopy(made.model))


@cache
def _three_commits() -> Warehouse:
    folder = TemporaryDirectory(prefix="statestore-test-")
    atexit.register(folder.cleanup)
    model = Model()
    with create(statestore.connect(folder.name)) as store:
        _write(store, model)
        store.put("d", 7, timestamp=11)
        model.put("d", 7, 11)
    return Warehouse(Path(folder.name), model)


def committed(root: Path) -> Warehouse:
    """The three commits alone."""
    model = Model()
    with create(statestore.connect(root)) as store:
        _write(store, model)
    return Warehouse(root, model)


def _write(store: VersionedStore, model: Model) -> None:
    for rows in ROWS:
        store.write(as_table(rows))
        for row in rows:
            model.put(*row)
        model.commit()


def refused(kind: type[StateStoreError], code: str, call: Callable[[], object], *parts: str) -> StateStoreError:
    """The error of ``call``; its message holds the parts, and it crosses a process border unchanged."""
    with pytest.raises(StateStoreError) as caught:
        call()
    error = caught.value
    assert (type(error), error.code) == (kind, code), error
    for part in parts:
        assert part in error.message, f"{part!r} is not in: {error.message}"
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), copied.code, str(copied)) == (kind, code, str(error))
    return error
