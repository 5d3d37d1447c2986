"""Programs in Java that tests run: compiled once a module of tests, with the jars that a Maven project names.

They need a JDK and Maven, which fetches Kafka's jars the first time and then finds them in its repository.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.paths import TESTS


def class_path(project: Path, folder: Path) -> str:
    """Compile the sources of ``project`` into ``folder``; return the class path to run them with.

    Skips the test where the tools or the jars cannot be had, unless STATESTORE_KAFKA=required, as in CI.
    """
    missing = [tool for tool in ("mvn", "javac", "java") if shutil.which(tool) is None]
    if missing:
        _do_without(f"no {', '.join(missing)} here")
    classes, jars = folder / "classes", folder / "jars.txt"
    ask = ["mvn", "-q", "-B", "-f", str(project / "pom.xml"), "dependency:build-classpath", f"-Dmdep.outputFile={jars}"]
    # Without a look at the network where all jars are there; that is quicker, and they are the same each time.
    with (TESTS / "conftest.py").open() as one_at_a_time:  # two Mavens may spoil each other's repository
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        for way in (["--offline"], []):
            asked = subprocess.run([*ask, *way], cwd=folder, capture_output=True, text=True)
            if asked.returncode == 0:
                break
    if asked.returncode:
        _do_without(f"Maven could not fetch Kafka's jars: {asked.stdout[-500:]}")
    path = os.pathsep.join((str(classes), jars.read_text().strip()))
    sources = sorted(map(str, (project / "src" / "main" / "java").glob("*.java")))
    subprocess.run(["javac", "-d", str(classes), "-cp", path, *sources], check=True)
    return path


def _do_without(reason: str) -> None:
    if os.environ.get("STATESTORE_KAFKA") == "required":
        pytest.fail(f"{reason}, and STATESTORE_KAFKA=required")
    pytest.skip(reason)
