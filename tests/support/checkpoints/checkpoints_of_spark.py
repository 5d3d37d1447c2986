"""The checkpoints with which Spark tests that it goes on with those of earlier releases: 2.1 to 4.0.

They are in the jar of its tests, which Maven fetches the first time. Nothing of it is kept in this repository.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from support.paths import TESTS

PROJECT = TESTS / "engines" / "spark" / "checkpoints" / "pom.xml"
INSIDE = "structured-streaming/"


def unpacked_checkpoints(folder: Path) -> Path:
    """Unpack the checkpoints below a folder; return the folder in which they are.

    Skips the test where Maven or the jar cannot be had, unless STATESTORE_SPARK_CHECKPOINTS=required, as in CI.
    """
    if shutil.which("mvn") is None:
        _do_without("no mvn here")
    jars = folder / "jars.txt"
    ask = ["mvn", "-q", "-B", "-f", str(PROJECT), "dependency:build-classpath", f"-Dmdep.outputFile={jars}"]
    with (TESTS / "conftest.py").open() as one_at_a_time:  # two Mavens may spoil each other's repository
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        for way in (["--offline"], []):
            asked = subprocess.run([*ask, *way], cwd=folder, capture_output=True, text=True)
            if asked.returncode == 0:
                break
    if asked.returncode:
        _do_without(f"Maven could not fetch the jar of Spark's tests: {asked.stdout[-500:]}")
    (jar,) = jars.read_text().strip().split(os.pathsep)
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(INSIDE)])
    return folder / INSIDE


def _do_without(reason: str) -> None:
    if os.environ.get("STATESTORE_SPARK_CHECKPOINTS") == "required":
        pytest.fail(f"{reason}, and STATESTORE_SPARK_CHECKPOINTS=required")
    pytest.skip(reason)
