"""Places whose files an engine replaces before the n-th request of a reader: this machine, S3, and fsspec.

The events are requests, so nothing depends on the timing of threads. The file system of fsspec keeps its listings, as
those of s3fs, gcsfs and adlfs do.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from support.object_store import ObjectStore

Files = Mapping[str, bytes]
_listening: list[Requests] = []
_added: list[bool] = []


@dataclass
class Requests:
    """Counts requests, and calls ``act`` before number ``at``, the first of which is 0."""

    at: int
    act: Callable[[], None]
    seen: int = 0
    done: bool = False

    def heard(self) -> None:
        self.seen += 1
        if self.seen > self.at and not self.done:
            self.done = True
            self.act()


class Place(Protocol):
    def lay(self, name: str, files: Files) -> str:
        """Lay files down in a new folder, and return its path or URI."""

    def change(self, put: Files, removed: list[str]) -> None:
        """Put files into the folder, then remove others."""


def replaced_at(place: Place, old: Files, new: Files, at: int) -> Requests:
    """Let the files of ``old`` become those of ``new`` before a request from now on."""
    requests = Requests(at, lambda: place.change(new, [name for name in old if name not in new]))
    _listening[:] = [requests]
    return requests


def stop_listening() -> None:
    _listening.clear()


def _heard() -> None:
    for each in _listening:
        each.heard()


@dataclass
class Local:
    """A folder of this machine; a request is the opening or listing of a file in it."""

    folder: Path
    inside: Path = Path()

    def __post_init__(self) -> None:
        if not _added:
            _added.append(True)
            sys.addaudithook(_audit)

    def lay(self, name: str, files: Files) -> str:
        self.inside = self.folder / uuid.uuid4().hex / name
        _LOCAL[:] = [str(self.inside)]
        self.change(files, [])
        return str(self.inside)

    def change(self, put: Files, removed: list[str]) -> None:
        for name, data in put.items():
            (self.inside / name).parent.mkdir(parents=True, exist_ok=True)
            (self.inside / name).write_bytes(data)
        for name in removed:
            (self.inside / name).unlink()
            if not any((self.inside / name).parent.iterdir()):
                (self.inside / name).parent.rmdir()


_LOCAL: list[str] = []


def _audit(event: str, given: Any) -> None:
    if _listening and event in ("open", "os.listdir", "os.scandir") and given and str(given[0]).startswith(_LOCAL[0]):
        _heard()


@dataclass
class S3:
    store: ObjectStore
    prefix: str = ""

    def lay(self, name: str, files: Files) -> str:
        def heard(method: str, path: str) -> int:
            _heard()
            return 0

        self.prefix = f"{uuid.uuid4().hex}/{name}"
        self.store.refuses = heard
        self.change(files, [])
        return self.store.uri(self.prefix)

    def change(self, put: Files, removed: list[str]) -> None:
        self.store.change(
            {f"{self.prefix}/{name}": data for name, data in put.items()}, [f"{self.prefix}/{each}" for each in removed]
        )


class KeepsListings(MemoryFileSystem):  # type: ignore[misc]
    """Files in memory, behind a cache of listings."""

    protocol = "kept"
    store: dict[str, Any] = {}  # noqa: RUF012 - fsspec's own form
    pseudo_dirs: list[str] = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("kept://", "/")))

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        path = self._strip_protocol(path)
        found = self._ls_from_cache(path)
        if found is None or any(each["name"] == path for each in found):
            _heard()
            found = self.dircache[path] = super().ls(path, detail=True)
        return found if detail else [each["name"] for each in found]

    def info(self, path: str, **options: Any) -> Any:
        path = self._strip_protocol(path)
        beside = self._ls_from_cache(self._parent(path)) or []
        found = [each for each in beside if each["name"].rstrip("/") == path]
        if found:
            return found[0]
        _heard()
        return super().info(path)

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode == "rb":
            _heard()
        return super()._open(path, mode, **options)


@dataclass
class Fsspec:
    prefix: str = ""
    files: Any = field(init=False)

    def __post_init__(self) -> None:
        fsspec.register_implementation("kept", KeepsListings, clobber=True)
        self.files = KeepsListings(skip_instance_cache=True)

    def lay(self, name: str, files: Files) -> str:
        KeepsListings.store.clear()
        KeepsListings.pseudo_dirs[:] = [""]
        self.prefix = f"/{uuid.uuid4().hex}/{name}"
        self.change(files, [])
        return f"kept:/{self.prefix}"

    def change(self, put: Files, removed: list[str]) -> None:
        for name, data in put.items():
            self.files.pipe_file(f"{self.prefix}/{name}", data)
        for name in removed:
            self.files.rm_file(f"{self.prefix}/{name}")
        full = {path.rpartition("/")[0] for path in KeepsListings.store}
        KeepsListings.pseudo_dirs[:] = [
            each for each in KeepsListings.pseudo_dirs if any(path.startswith(each) for path in full)
        ]
