"""Operations of a peer, and the list of installed peers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pyarrow as pa

MODULES = {"Delta": "delta_table", "Iceberg": "iceberg_table", "Lance": "lance_table", "DuckDB": "duckdb_log"}
PACKAGES = {"Delta": "deltalake", "Iceberg": "pyiceberg[sql-sqlite]", "Lance": "pylance", "DuckDB": "duckdb"}


class Peer(Protocol):
    """A table with a version for each commit.

    A commit has one row for each of its keys, the columns of the store, ``timestamp`` and ``deleted``. A change that is
    older than the row it meets has no effect. Deletes are rows, too, because a later commit may bring an older change
    of that key; reads leave them out. ``at`` opens a version and returns a call that reads its rows: opening is not
    timed, since a store is open before it is read, too.
    """

    def commit(self, rows: pa.Table) -> None: ...

    def at(self, commits: int) -> Callable[[], pa.RecordBatchReader]: ...

    def close(self) -> None: ...


def open_peer(name: str, folder: Path) -> Peer:
    """An empty table of a peer. Raises ImportError where its package is missing."""
    module = importlib.import_module(f"benchmarks.peers.{MODULES[name]}")
    folder.mkdir(parents=True)
    peer: Peer = module.open_table(folder)
    return peer


def absence(name: str) -> str | None:
    """Why a peer cannot be measured, or None."""
    try:
        importlib.import_module(f"benchmarks.peers.{MODULES[name]}")
    except ImportError as error:
        return f"{name} is not measured: {error}. Install it with: pip install '{PACKAGES[name]}'"
    return None
