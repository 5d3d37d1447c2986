"""The bytes of a keyed store's files, which tests change behind its back, wherever the store lies."""

from __future__ import annotations

import gc
import os
import shutil

import obstore

from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots import snapshot_log
from statestore.catalog.log.storage import LocalStorage
from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.formats.places.object_clients import object_client


def stored_bytes(store: KeyedStore, name: str) -> bytes:
    return store._storage.read(name)


def every_file(store: KeyedStore) -> dict[str, bytes]:
    """All files of a store, its description among them."""
    return {item.name: stored_bytes(store, item.name) for item in store._storage.list("")}


def put_bytes(store: KeyedStore, name: str, data: bytes | None) -> None:
    """Replace the bytes of a file, or remove it; copies that this machine has of it go, too."""
    storage = store._storage
    if isinstance(storage, LocalStorage):
        path = storage.root / name
        path.unlink() if data is None else path.write_bytes(data)
        return
    assert isinstance(storage, ObjectStorage)
    bucket = object_client(storage.location).store
    if data is None:
        obstore.delete(bucket, storage._key(name))
    else:
        obstore.put(bucket, storage._key(name), data)
    forget()


def forget() -> None:
    """Forget what this process has read of stores: logs, and copies of objects."""
    gc.collect()
    snapshot_log._known.clear()
    shutil.rmtree(os.environ.get("STATESTORE_CACHE", "nowhere"), ignore_errors=True)
