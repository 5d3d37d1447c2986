"""Backends of a small keyed store, an aggregate for them, and the error that a call must give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import statestore
from statestore import StateStoreError
from statestore.catalog.catalog import Catalog
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.log.storage import LocalStorage, local_root
from statestore.catalog.log.storage_objects import ObjectStorage


class Mean:
    """The mean of whole numbers; its accumulator is no result."""

    accumulator_type: Any = "struct<count:bigint,total:bigint>"

    def create(self) -> dict[str, int]:
        return {"count": 0, "total": 0}

    def add(self, value: int, accumulator: dict[str, int]) -> dict[str, int]:
        return {"count": accumulator["count"] + 1, "total": accumulator["total"] + value}

    def result(self, accumulator: dict[str, int]) -> float:
        return accumulator["total"] / accumulator["count"]

    def merge(self, left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
        return {name: left[name] + right[name] for name in left}


def keyed_store(root: str | Path, key: Mapping[str, str] | None = None, key_groups: int = 128) -> KeyedStore:
    """A new store ``s``."""
    catalog = statestore.connect(root)
    return catalog.create_store("s", kind="keyed", key=key or {"k": "string"}, key_groups=key_groups)


def catalog_of(store: KeyedStore) -> Catalog:
    """The warehouse of a store, opened once more."""
    storage = store._storage
    if isinstance(storage, LocalStorage):
        return statestore.connect(storage.root.parent)
    assert isinstance(storage, ObjectStorage)
    return statestore.connect(storage.location.parent.uri)


def folder_of(store: KeyedStore) -> Path:
    """The folder of a store in a local directory."""
    root = local_root(store._storage)
    assert root is not None
    return root


def local(root: Path) -> Path:
    """The folder for the local files of backends in these tests."""
    return root / "local"


@contextmanager
def refused(code: str, *told: str) -> Iterator[None]:
    """Expect that the block raises the library's error of this code, with a message that contains all of ``told``."""
    with pytest.raises(StateStoreError) as caught:
        yield
    assert caught.value.code == code, caught.value
    for text in told:
        assert text in str(caught.value), f"{text!r} is not in: {caught.value}"
