"""A process that is killed while it takes, commits, restores or discards keyed snapshots loses and leaks nothing.

The last completed snapshot can be restored with another number of tasks, `verify` finds all its files, vacuum removes
what was left behind, and the next backend removes the local files of the dead process.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from support.object_stores.s3_server import S3Server
from support.parameters import SHARE
from support.places import below
from support.processes.scripts import command

import statestore

EACH = 3 * SHARE.denominator
"""A process is killed at each of so many steps."""


def killed(root: Path, first: int, step: int) -> tuple[int, str]:
    """Run the script; return the number of processes that died, and the problems found afterwards."""
    run = subprocess.run(command("dying_backend", root, first, step), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    *wrong, last = run.stdout.splitlines()
    return int(last.split()[1]), "\n".join(wrong)


@pytest.mark.slow
def test_killed_at_many_steps(tmp_path: Path) -> None:
    died, wrong = killed(tmp_path, 1, EACH)
    assert not wrong, wrong
    assert died >= 120 // EACH


@pytest.mark.slow
def test_killed_at_requests_of_an_object_store(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every committed snapshot is complete, no batch is there twice, and vacuum removes the rest after a day."""
    for name in ("STATESTORE_CACHE", "STATESTORE_LOCAL"):
        monkeypatch.setenv(name, str(tmp_path / name))
    warehouse = s3_server.warehouse("crash")
    run = subprocess.run(
        command("keyed.dying_objects", below(warehouse, "s"), tmp_path / "local", EACH),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    *wrong, last = run.stdout.splitlines()
    assert not wrong, wrong
    assert int(last.split()[1]) >= 75 // EACH
    catalog = statestore.connect(warehouse)
    with catalog.open_store("s") as store:
        assert store.vacuum("1 day") == []
        now = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: now() + 25 * 3_600_000_000_000)
        assert store.vacuum("1 day")
    verified = catalog.verify("s")
    assert verified.ok and verified.unreferenced == ()
