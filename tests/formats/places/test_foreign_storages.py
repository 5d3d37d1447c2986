"""File systems of other libraries: their exceptions and their silence are errors that say what was tried."""

from __future__ import annotations

import importlib.util
import os
import signal
import threading
from functools import partial
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from support.refusals import refused

import statestore
from statestore.formats.errors import InvalidInputError, NotFoundError, UnsupportedError
from statestore.formats.places import foreign_storages, locations
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import parse_location

AZURE_LOCATION = "abfss://box@account.dfs.core.windows.net/checkpoint"

WITHOUT_SETTINGS = [
    ("github://x", "GithubFileSystem"),
    ("jupyter://x/a", "JupyterFileSystem"),
    ("reference://x", "fo"),
    ("generic://x", "generic"),
    ("ftp://host:port/a", "port"),
    ("webhdfs://host:port/a", "port"),
    ("cached://x", "target_protocol"),
]

ELSEWHERE = [
    ("dbfs:/mnt/x/checkpoint", "/dbfs/mnt/x/checkpoint"),
    ("dbfs:///mnt/x", "/dbfs/mnt/x"),
    ("dbfs://mnt/x", "/dbfs/mnt/x"),
    ("wasb://box@account.blob.core.windows.net/a/b", "abfss://box@account.dfs.core.windows.net/a/b"),
    ("wasbs://box@account.blob.core.windows.net/a", "abfss://box@account.dfs.core.windows.net/a"),
    ("adl://account.azuredatalakestore.net/a", "abfss://container@account.dfs.core.windows.net/folder"),
]


@pytest.fixture(autouse=True)
def no_storage_was_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locations, "_reached", set())
    locations._opened.cache_clear()


@pytest.mark.parametrize(("text", "names"), WITHOUT_SETTINGS)
def test_what_fsspec_raises_is_one_error(text: str, names: str) -> None:
    refused(InvalidInputError, "INVALID_LOCATION", partial(statestore.inspect, text), names)


@pytest.mark.parametrize("fsspec_there", [True, False])
@pytest.mark.parametrize(("text", "advice"), ELSEWHERE)
def test_addresses_that_other_tools_show_come_with_the_one_to_give(
    text: str, advice: str, fsspec_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fsspec_there:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    needs_settings = fsspec_there and text.startswith("dbfs")
    error, code = (InvalidInputError, "INVALID_LOCATION") if needs_settings else (UnsupportedError, "UNSUPPORTED_PATH")
    refused(error, code, partial(statestore.inspect, text), advice)


class _Azure:
    """What pyarrow does without credentials: a bare ArrowException, at the first request."""

    type_name = "abfs"

    def get_file_info(self, path: Any) -> Any:
        raise pa.ArrowException("Failed to get token from DefaultAzureCredential")


def test_azure_without_credentials_says_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locations, "_opened", lambda uri: (_Azure(), "box"))
    open_it = partial(statestore.inspect, AZURE_LOCATION)
    refused(
        InvalidInputError, "NO_ACCESS", open_it, AZURE_LOCATION, "DefaultAzureCredential", "account.dfs", "az login"
    )


def test_a_storage_is_reached_once_and_its_later_failures_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Files(_Azure):
        def get_file_info(self, path: Any) -> Any:
            asked.append(path)
            return super().get_file_info(path) if len(asked) > 1 else None

    monkeypatch.setattr(locations, "_opened", lambda uri: (Files(), "box"))
    location = parse_location(AZURE_LOCATION)
    folder = folder_at(location)
    folder_at(location.at("state"))
    assert asked == ["box/checkpoint"]
    refused(InvalidInputError, "NO_ACCESS", folder.entries, "DefaultAzureCredential")


@pytest.mark.parametrize("silent", ["opening", "asking"])
def test_a_storage_that_never_answers(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()

    class Files:
        def get_file_info(self, path: Any) -> Any:
            never.wait()

    def opened(uri: str) -> Any:
        if silent == "opening":
            never.wait()
        return Files(), "bucket"

    monkeypatch.setattr(locations, "_opened", opened)
    monkeypatch.setattr(foreign_storages, "CONTACT_SECONDS", 0.02)
    open_it = partial(statestore.inspect, "gs://bucket/checkpoint")
    refused(InvalidInputError, "NO_ACCESS", open_it, "no answer", "storage.googleapis.com", "GOOGLE_APPLICATION")
    never.set()


def test_google_is_not_asked_for_a_quarter_of_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    uris: list[str] = []

    def opened(uri: str) -> tuple[None, str]:
        uris.append(uri)
        return None, "bucket"

    monkeypatch.setattr(locations, "_opened", opened)
    for text in ("gs://bucket/a", "gcs://bucket/a?scheme=http", "gs://bucket/a?retry_limit_seconds=60"):
        locations.open_location(parse_location(text))
    assert uris == [
        "gs://bucket/?retry_limit_seconds=8",
        "gs://bucket/?scheme=http&retry_limit_seconds=8",
        "gs://bucket/?retry_limit_seconds=60",
    ]


class _Lost(MemoryFileSystem):  # type: ignore[misc]
    """A file system of fsspec whose ``lost`` requests raise what their package likes."""

    protocol = "lost"
    lost: str = ""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("lost://", "/")))

    def info(self, path: str, **options: Any) -> Any:
        return self._or_lost("info", path, **options)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        return self._or_lost("ls", path, detail=detail, **options)

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return self._or_lost("open", path, mode=mode, **options)

    def _or_lost(self, request: str, *arguments: Any, **options: Any) -> Any:
        if self.lost == request:
            raise RuntimeError(f"{request} has no connection")
        return getattr(MemoryFileSystem, request)(self, *arguments, **options)


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> type[_Lost]:
    fsspec.register_implementation("lost", _Lost, clobber=True)
    with fsspec.filesystem("memory").open("/box/file", "wb") as stream:
        stream.write(b"bytes")
    monkeypatch.setattr(_Lost, "lost", "")
    return _Lost


def test_files_of_fsspec_are_listed_and_read(lost: type[_Lost]) -> None:
    folder = folder_at(parse_location("lost://box"))
    assert (folder.files(), folder.read_small("file")) == ({"file": 5}, b"bytes")
    assert folder.random_access("file", 5).read_at(1, 3) == b"yte"
    assert folder.at("none").entries() == []
    refused(NotFoundError, "FILE_NOT_FOUND", partial(folder.read_small, "none"))


@pytest.mark.parametrize("request_", ["info", "ls", "open"])
def test_a_lost_connection_is_no_missing_folder(request_: str, lost: type[_Lost]) -> None:
    """fsspec's own questions (``isdir``, ``exists``, ``find``) answer with nothing when a request fails."""
    folder = folder_at(parse_location("lost://box"))
    lost.lost = request_
    read: Any = partial(folder.read_small, "file") if request_ == "open" else folder.entries
    refused(InvalidInputError, "NO_ACCESS", read, f"{request_} has no connection")
    locations._reached.clear()
    if request_ == "info":
        refused(InvalidInputError, "NO_ACCESS", partial(statestore.inspect, "lost://box"), "lost://box")


def test_ctrl_c_ends_the_wait_for_a_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()

    def opened(uri: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        never.wait()

    monkeypatch.setattr(locations, "_opened", opened)
    with pytest.raises(KeyboardInterrupt):
        statestore.inspect("gs://bucket/checkpoint")
    never.set()
