"""A process that is killed while it takes, commits, restores or discards keyed snapshots loses and leaks nothing.

The last completed snapshot can be restored with another number of tasks, `verify` finds all its files, vacuum removes
what was left behind, and the next backend removes the local files of the dead process.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.processes.scripts import command


def killed(root: Path, first: int, step: int) -> tuple[int, str]:
    """Run the script; return the number of processes that died, and the problems found afterwards."""
    run = subprocess.run(command("dying_backend", root, first, step), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    *wrong, last = run.stdout.splitlines()
    return int(last.split()[1]), "\n".join(wrong)


@pytest.mark.slow
def test_killed_at_every_third_step(tmp_path: Path) -> None:
    died, wrong = killed(tmp_path, 1, 3)
    assert not wrong, wrong
    assert died >= 40
