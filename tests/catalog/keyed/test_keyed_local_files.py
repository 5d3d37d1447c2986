"""Local files of keyed backends are removed with their backend, or by the next backend if a process died."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from support.keyed.keyed_backends import local
from support.keyed.keyed_gates import KINDS, WAIT

import statestore
from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots import take_snapshot as taking
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind
from statestore.formats.places import local_directory

pytest_plugins = ["support.keyed.keyed_fixtures"]


def test_a_backend_that_nobody_has_any_more_leaves_no_files(store: KeyedStore, tmp_path: Path) -> None:
    """Though it was not disposed of."""
    backend: KeyedBackend | None = store.backend(directory=local(tmp_path))
    assert backend is not None
    backend.value_state("s", "bigint")
    backend.set_current_key("a")
    assert len(list(local(tmp_path).iterdir())) == 1
    backend = None
    gc.collect()
    assert list(local(tmp_path).iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_holds_its_backend(
    kind: SnapshotKind, store: KeyedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend's local files are kept until its snapshot is written, even if the backend is no longer referenced."""
    dropped = threading.Event()
    whole = getattr(taking, f"_{kind}")

    def late(*arguments: Any) -> Any:
        assert dropped.wait(WAIT)
        return whole(*arguments)

    monkeypatch.setattr(taking, f"_{kind}", late)
    backend: KeyedBackend | None = store.backend(directory=local(tmp_path))
    assert backend is not None
    backend.set_current_key("a")
    backend.value_state("s", "bigint").update(1)
    running = backend.snapshot(kind)
    backend = None
    gc.collect()
    dropped.set()
    version = store.commit([running.result(WAIT)])
    assert store.scan("s", version=version).read_all().to_pylist() == [{"k": "a", "value": 1}]


DYING = """
import os, signal, sys
import statestore
backend = statestore.connect(sys.argv[1]).open_store("s").backend(directory=sys.argv[2])
os.write(1, backend._local.path.name.encode())
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_directories_of_dead_processes_are_removed_and_no_others(store: KeyedStore, tmp_path: Path) -> None:
    """Directories of living backends stay, and all other entries of the folder, however old and similar in name."""
    folder = local(tmp_path)
    for name in ("new-orders", "dead-letters", "data", "0" * 31, "owner.lock"):
        (folder / name).mkdir(parents=True)
        (folder / name / "precious").touch()
        os.utime(folder / name, (0, 0))
    (folder / "data/owner.lock").touch()
    (folder / ("f" * 32)).touch()
    before = {path.name for path in folder.iterdir()}
    with store.backend(directory=folder) as backend:
        living = {path.name for path in folder.iterdir()} - before
        died = subprocess.run(
            [sys.executable, "-c", DYING, str(tmp_path), str(folder)], capture_output=True, text=True, check=False
        )
        assert died.returncode == -signal.SIGKILL, died.stderr
        name = died.stdout
        assert (folder / name / "database").is_dir(), "the dead process's"
        with store.backend(directory=folder):
            assert not (folder / name).exists()
        assert {path.name for path in folder.iterdir()} == before | living
        assert backend.num_entries() == 0
    assert {path.name for path in folder.iterdir()} == before
    assert all((folder / name / "precious").exists() for name in ("new-orders", "dead-letters", "data"))


def test_a_default_directory_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with monkeypatch.context() as other:
        other.setattr(os, "getuid", lambda: 12345)
        with pytest.raises(statestore.InvalidInputError, match="FOREIGN_DIRECTORY"):
            local_directory.take_directory(None)
