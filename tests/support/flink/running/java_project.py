"""Programs in Java that run Flink: compiled once a module of tests, with the jars that a Maven project names.

They need a JDK and Maven, which fetches Flink's jars the first time and then finds them in its repository.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from support import maven
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
    return maven.jars_of(PROJECTS / project, folder, "STATESTORE_FLINK", options, ("javac", "java"))
