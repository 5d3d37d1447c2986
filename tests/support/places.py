"""Where the warehouses of tests lie: in a local directory, in an object store in memory, in a real S3 server."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

import statestore
from statestore.catalog.log.storage import Storage
from statestore.catalog.upkeep import vacuum
from statestore.formats.places.locations import parse_location
from support.object_stores.doubles import memory_location

DIRECTORY, MEMORY, S3 = "directory", "memory", "S3"
PLACES = [DIRECTORY, pytest.param(S3, marks=pytest.mark.slow)]
TASKS_END_SECONDS = 60


def in_places(*places: str) -> pytest.MarkDecorator:
    """Run a test with a fixture ``place`` in these places only."""
    return pytest.mark.parametrize("place", places, indirect=True)


def warehouse_in(place: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """The path or URI of an empty warehouse, or of one that does not exist yet; ``folder`` is the test's own.

    What this process keeps of objects is in ``folder``, until the scope of ``request`` ends.
    """
    if place == DIRECTORY:
        return str(folder)
    patch = pytest.MonkeyPatch()
    request.addfinalizer(patch.undo)
    patch.setenv("STATESTORE_CACHE", str(folder / "cache"))
    patch.setenv("STATESTORE_LOCAL", str(folder / "own"))
    if place == MEMORY:
        return memory_location().uri
    uri: str = request.getfixturevalue("s3_server").warehouse(f"{folder.name}-{uuid.uuid4().hex[:8]}/w")
    return uri


def below(place: str | Path, name: str) -> str:
    """The path or URI of a store, or of a table, in a warehouse; or of a warehouse in a folder."""
    return parse_location(place).at(name).uri


def warehouse_of(path: str) -> str:
    """The path or URI of the warehouse of a store."""
    return parse_location(path).parent.uri


def opened(path: str, **given: Any) -> Any:
    """The store at a path or URI, open."""
    location = parse_location(path)
    return statestore.connect(location.parent.uri).open_store(location.name, **given)


def storage_of(path: str) -> Storage:
    """The storage of the files of a store."""
    location = parse_location(path)
    return statestore.connect(location.parent.uri).locate(location.name)[0]


def files_below(path: str, folder: str) -> list[str]:
    """The names of the files in a folder of a store, and in the folders there."""
    return [item.name for item in storage_of(path).list(f"{folder}/")]


def vacuumed(store: Any) -> list[str]:
    """The names of files that a vacuum removes which nobody writes beside: of any age, also in an object store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vacuum, "GRACE_US", 0)
        return [item.name for item in store.vacuum(older_than=0)]


def left_by_tasks(path: str, store: Any) -> list[str]:
    """The files that no commit names when the tasks of a failed job have ended, and a vacuum came after them.

    A task may outlive its job for a moment, and writes its files after the driver has removed those of the others.
    """
    end = time.monotonic() + TASKS_END_SECONDS
    while (left := unnamed(path)) and time.monotonic() < end:
        vacuumed(store)
    return left


def unnamed(path: str) -> list[str]:
    """The files that no commit names of a store that is whole."""
    location = parse_location(path)
    verified = statestore.connect(location.parent.uri).verify(location.name)
    assert verified.ok, verified.problems
    return [name for name, _ in verified.unreferenced]
