"""Object stores in the test process: stores of obstore in memory or in a folder, in place of a bucket."""

from __future__ import annotations

import itertools
from typing import Any

from obstore.store import MemoryStore

from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.formats.places.locations import Location
from statestore.formats.places.object_clients import keep_client

_numbers = itertools.count()


def location_in(store: Any, path: str = "warehouse") -> Location:
    """Return a location whose bucket is ``store``, in this process only."""
    location = Location(path, "s3", f"double-{next(_numbers)}")
    keep_client(location, store)
    return location


def memory_location(path: str = "warehouse") -> Location:
    """Return a location in an empty bucket in memory."""
    return location_in(MemoryStore(), path)


def object_storage(store: Any, path: str = "") -> ObjectStorage:
    """Return the storage of a store at a path of a bucket."""
    return ObjectStorage(location_in(store, path))
