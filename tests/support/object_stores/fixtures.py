"""Real object stores, one of each kind a process of tests, started by the first test that asks for it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from statestore.formats.places.locations import parse_location
from support.object_stores.azure_server import AzureServer, running_azure_server
from support.object_stores.doubles import memory_location
from support.object_stores.elsewhere import chosen, warehouses_at
from support.object_stores.gcs_server import GcsServer, running_gcs_server
from support.object_stores.s3_server import S3Server, running_s3_server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server of S3 that the tests of this process share; each takes prefixes or buckets of its own."""
    with running_s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """A server of Azure's blobs that the tests of this process share; each takes prefixes or containers of its own."""
    with running_azure_server(tmp_path_factory.mktemp("azure")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    """An emulator of Google Cloud Storage that the tests of this process share; each takes prefixes of its own."""
    with running_gcs_server(tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def warehouses_elsewhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Put the warehouses of all tests into an object store where that was asked for."""
    where = chosen()
    if where == "local":
        yield
        return
    os.environ["STATESTORE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["STATESTORE_LOCAL"] = str(tmp_path_factory.mktemp("local"))
    if where == "memory":
        root = memory_location("tests")
    else:
        root = parse_location(request.getfixturevalue("s3_server").warehouse("tests"))
    with warehouses_at(root, Path(tempfile.gettempdir())):
        yield
