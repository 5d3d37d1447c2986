"""Programs in Java that tests run: compiled once a module of tests, with the jars that a Maven project names.

They need a JDK and Maven, which fetches Kafka's jars the first time and then finds them in its repository.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from support.maven import jars_of


def class_path(project: Path, folder: Path) -> str:
    """Compile the sources of ``project`` into ``folder``; return the class path to run them with.

    Skips the test where the tools or the jars cannot be had, unless STATESTORE_KAFKA=required, as in CI.
    """
    classes = folder / "classes"
    jars = jars_of(project, folder, "STATESTORE_KAFKA", tools=("javac", "java"))
    path = os.pathsep.join((str(classes), jars))
    sources = sorted(map(str, (project / "src" / "main" / "java").glob("*.java")))
    subprocess.run(["javac", "-d", str(classes), "-cp", path, *sources], check=True)
    return path
