"""State directories of three applications of the real Kafka Streams, unpacked, with what their stores answered.

``data/kafka/<name>.tar.xz`` holds ``state/<name>/``, for some ``running/<name>/`` (copied while the application ran),
``truth.json`` (the stores' answers just before the close) and ``raw.jsonl`` (all rows of all column families, read by
RocksDB's Java library).
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import tarfile
from collections import defaultdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.fs as pafs

from statestore.formats.kafka.directory.applications import Application, find_applications
from statestore.formats.places.folder import Folder
from support.paths import DATA

APPLICATIONS = ("orders", "bookings", "ledger")
RUNNING = ("orders", "bookings")
ALIASES = {"in-memory-key-value": "key-value", "global-timestamped-key-value": "timestamped-key-value"}
Rows = dict[bytes, bytes]


@cache
def unpacked(name: str) -> Path:
    """The folder of an archive, unpacked once per process. Tests only read it."""
    folder = TemporaryDirectory(prefix="statestore-test-")
    atexit.register(folder.cleanup)
    with tarfile.open(DATA / "kafka" / f"{name}.tar.xz") as archive:
        archive.extractall(folder.name, filter="data")
    return Path(folder.name, name)


@cache
def truth(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((unpacked(name) / "truth.json").read_text("utf-8"))
    return found


def stores(name: str) -> dict[str, dict[str, Any]]:
    """The stores with files, by name."""
    return {
        store["name"]: store
        for store in truth(name)["stores"]
        if store["kind"] not in ("in-memory-key-value", "suppression-buffer")
    }


def kind_of(store: dict[str, Any]) -> str:
    kind: str = store["kind"]
    return ALIASES.get(kind, kind)


def partition_of(store: dict[str, Any], task: str) -> dict[str, Any]:
    """What a store answered in a task; "global" is the task of a global store."""
    (found,) = [part for part in store["partitions"] if part.get("task", "global") == task]
    answer: dict[str, Any] = found
    return answer


@cache
def raw(name: str) -> dict[tuple[str, str], Rows]:
    """Rows by path of the database below the application, and family."""
    found: dict[tuple[str, str], Rows] = defaultdict(dict)
    with (unpacked(name) / "raw.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            found[row["directory"], row["family"]][bytes.fromhex(row["key"])] = bytes.fromhex(row["value"])
    return dict(found)


def folder_of(path: Path) -> Folder:
    return Folder(pafs.LocalFileSystem(), str(path))


def opened(path: Path) -> Application:
    """The one application at or below a path."""
    (application,) = find_applications(folder_of(path))
    return application


def state(name: str) -> Application:
    """The application as it was after a clean close."""
    return opened(unpacked(name) / "state")


def running(name: str) -> Application:
    """The application as it was copied while it ran."""
    return opened(unpacked(name) / "running")


def copied(name: str, target: Path, *tasks: str) -> Path:
    """A copy of some tasks of an application, by default of all, for tests that damage it."""
    source = unpacked(name) / "state" / name
    kept = {path.name for path in source.iterdir() if path.is_file()} | set(tasks)

    def others(folder: str, names: list[str]) -> list[str]:
        return [each for each in names if tasks and folder == str(source) and each not in kept]

    return Path(shutil.copytree(source, target / name, ignore=others))


def fingerprint(folder: Path) -> dict[str, str]:
    """Names, kinds, sizes, times of change and contents of everything below a folder."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(root, name)
            status = path.lstat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            found[str(path.relative_to(folder))] = f"{status.st_mode} {status.st_size} {status.st_mtime_ns} {content}"
    return found
