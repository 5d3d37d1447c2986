"""Savepoints and checkpoints that Flink 1.20.3 and 2.3.0 wrote, with what is true of them.

``tests/data/flink/snapshots.tar.xz`` holds a folder per job run. Its ``manifest.json`` names the operators and the
snapshots; a snapshot's ``truth`` file has a line per operator, state, key and namespace, as the job itself counted.
"""

from __future__ import annotations

import json
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from support.archives import unpacked
from support.paths import DATA

NAMES = (
    "changelog",
    "file-merging",
    "hashmap",
    "hashmap-1.20",
    "heap-timers",
    "odd-names",
    "opaque-hashmap",
    "rocksdb",
    "rocksdb-1.20",
    "sql",
    "sql-1.20",
    "types-hashmap",
    "types-rocksdb",
    "unaligned",
    "wide-hashmap",
    "wide-rocksdb",
)

# Runs of the jobs of ``tests/engines/flink``, whose README says how their truth is written: ``more.tar.xz``.
MORE_NAMES = (
    "avro-hashmap",
    "avro-rocksdb",
    "custom-hashmap",
    "custom-rocksdb",
    "finished-rocksdb",
    "in-flight",
    "max-1024-hashmap",
    "max-32768-rocksdb-snappy",
    "merged-operator",
    "operator-1.20",
    "operator-hashmap-snappy",
    "operator-rocksdb",
    "rescaled-small",
    "rescaled-small-1.20",
    "shapes-hashmap",
    "shapes-rocksdb",
    "sql-distinct",
    "sql-top",
    "sql-types",
    "sql-types-hashmap",
    "sql-window",
    "upgrade-hashmap",
    "upgrade-rocksdb",
    "void-hashmap",
    "void-rocksdb",
    "windows-hashmap",
    "windows-rocksdb",
)

# Runs on the changelog backend, on ForSt, and of asynchronous state on other backends: ``backends.tar.xz``.
BACKEND_NAMES = (
    "async-forst",
    "async-forst-local",
    "async-hashmap",
    "async-rocksdb",
    "async-sql-2.1",
    "logged-generic",
    "logged-hashmap-snappy",
    "logged-rocksdb",
    "logged-windows",
    "logged-windows-1.20",
)

# Two canonical savepoints of one SQL job, a minute apart, with keys of DOUBLE, FLOAT, TIMESTAMP_LTZ(9) and ROW: both
# zeros, NaNs of two bits, nulls. It has no manifest.
SQL_KEYS = "sql-keys"


def fixture(name: str) -> Path:
    """The folder of a job run. It is shared: tests never write to it.

    The archive has lost when the snapshots were taken. Here each ``_metadata`` has the time `taken_us` of its
    checkpoint id.
    """
    if name == SQL_KEYS:
        return _unpacked(SQL_KEYS) / name
    archive = "backends" if name in BACKEND_NAMES else "more" if name in MORE_NAMES else "snapshots"
    return _unpacked(archive) / name


def taken_us(checkpoint_id: int) -> int:
    """When the fixtures say that a checkpoint was taken, epoch microseconds: minute 1 of 2026 for id 1, and so on."""
    return (1_767_225_600 + 60 * checkpoint_id) * 1_000_000


def copied(name: str, folder: Path) -> Path:
    """A copy of a job run below ``folder``, for a test that damages files."""
    return Path(shutil.copytree(fixture(name), folder / name))


def manifest(name: str) -> dict[str, Any]:
    """The facts of a job run: ``engine``, ``operator_ids`` by uid, ``snapshots``."""
    found: dict[str, Any] = json.loads((fixture(name) / "manifest.json").read_text())
    return found


def snapshots() -> list[tuple[str, dict[str, Any]]]:
    """Every snapshot of every run: the run's name and the snapshot's facts."""
    return [(name, snapshot) for name in NAMES for snapshot in manifest(name)["snapshots"]]


def more_snapshots() -> list[tuple[str, dict[str, Any]]]:
    """Every snapshot of the runs in ``more.tar.xz``: the run's name and the snapshot's facts."""
    return [(name, snapshot) for name in MORE_NAMES for snapshot in manifest(name)["snapshots"]]


def truth(name: str, file: str) -> list[dict[str, Any]]:
    """The lines of a ``truth`` file of a run."""
    return [json.loads(line) for line in (fixture(name) / file).read_text().splitlines()]


@cache
def _unpacked(archive_name: str) -> Path:
    return unpacked(DATA / "flink" / f"{archive_name}.tar.xz", _dated)


def _dated(folder: Path) -> None:
    for facts in folder.glob("*/manifest.json"):
        for snapshot in json.loads(facts.read_text())["snapshots"]:
            taken = taken_us(snapshot["checkpoint_id"]) * 1000
            os.utime(facts.parent / snapshot["path"] / "_metadata", ns=(taken, taken))
