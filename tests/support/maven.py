"""Jars that a Maven project below the tests names: fetched the first time, and found in Maven's repository later."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.paths import TESTS


def jars_of(project: Path, folder: Path, required: str, options: Sequence[str] = (), tools: Sequence[str] = ()) -> str:
    """Return the class path of the jars that a project names; ``folder`` is for its list.

    Skips the test where Maven, one of the ``tools`` or the jars cannot be had, unless the variable of the environment
    ``required`` is "required", as in CI.
    """
    missing = [tool for tool in ("mvn", *tools) if shutil.which(tool) is None]
    if missing:
        _do_without(f"no {', '.join(missing)} here", required)
    folder.mkdir(parents=True, exist_ok=True)
    jars = folder / "jars.txt"
    ask = ["mvn", "-q", "-B", "-f", str(project / "pom.xml"), *options]
    ask += ["dependency:build-classpath", f"-Dmdep.outputFile={jars}"]
    # Without a look at the network where all jars are there; that is quicker, and they are the same each time.
    with (TESTS / "conftest.py").open() as one_at_a_time:  # two Mavens may spoil each other's repository
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        for way in (["--offline"], []):
            asked = subprocess.run([*ask, *way], cwd=folder, capture_output=True, text=True)
            if asked.returncode == 0:
                break
    if asked.returncode:
        _do_without(f"Maven could not fetch the jars of {project.name}: {asked.stdout[-500:]}", required)
    return jars.read_text().strip()


def _do_without(reason: str, required: str) -> None:
    if os.environ.get(required) == "required":
        pytest.fail(f"{reason}, and {required}=required")
    pytest.skip(reason)
