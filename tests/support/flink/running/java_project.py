"""Programs in Java that run Flink: compiled once a module of tests, with the jars that a Maven project names.

They need a JDK and Maven, which fetches Flink's jars the first time and then finds them in its repository.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.paths import TESTS

PROJECTS = TESTS / "engines" / "flink"
VERSION = "2.3.0"


def class_path(project: str, folder: Path, version: str = VERSION, *, beside: str = "jobs") -> str:
    """Compile the sources of a project of ``tests/engines/flink`` and of a folder beside it; return the class path.

    Skips the test where the tools or the jars cannot be had, unless STATESTORE_FLINK=required, as in CI.
    """
    jars = jars_of(project, folder, f"-Dflink.version={version}")
    return compiled(jars, folder, PROJECTS / beside, PROJECTS / project)


def compiled(jars: str, folder: Path, *projects: Path) -> str:
    """Compile the sources below the projects; return the class path of the programs, with the jars."""
    classes = folder / "classes"
    path = os.pathsep.join((str(classes), jars))
    sources = {str(each) for project in projects for each in project.rglob("*.java")}
    compiler = ["javac", "-nowarn", "-proc:none", "-d", str(classes), "-cp", path]
    subprocess.run([*compiler, *sorted(sources)], check=True, capture_output=True)
    return path


def jars_of(project: str, folder: Path, *options: str) -> str:
    """The class path of the jars that a project of ``tests/engines/flink`` names, fetched where they are not there.

    Skips as `class_path` does.
    """
    missing = [tool for tool in ("mvn", "javac", "java") if shutil.which(tool) is None]
    if missing:
        _do_without(f"no {', '.join(missing)} here")
    folder.mkdir(parents=True, exist_ok=True)
    jars = folder / "jars.txt"
    ask = ["mvn", "-q", "-B", "-f", str(PROJECTS / project / "pom.xml"), *options]
    ask += ["dependency:build-classpath", f"-Dmdep.outputFile={jars}"]
    # Without a look at the network where all jars are there; that is quicker, and they are the same each time.
    with (TESTS / "conftest.py").open() as one_at_a_time:  # two Mavens may spoil each other's repository
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        for way in (["--offline"], []):
            asked = subprocess.run([*ask, *way], cwd=folder, capture_output=True, text=True)
            if asked.returncode == 0:
                break
    if asked.returncode:
        _do_without(f"Maven could not fetch Flink's jars: {asked.stdout[-500:]}")
    return jars.read_text().strip()


def _do_without(reason: str) -> None:
    if os.environ.get("STATESTORE_FLINK") == "required":
        pytest.fail(f"{reason}, and STATESTORE_FLINK=required")
    pytest.skip(reason)
