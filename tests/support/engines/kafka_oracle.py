"""The real stores and joins of Kafka Streams, asked through a small program (``tests/engines/kafka/semantics``).

It needs a JDK and Maven, which fetches Kafka's jars the first time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from support.paths import TESTS

PROJECT = TESTS / "engines" / "kafka" / "semantics"


def build(folder: Path) -> str:
    """Compile the program; return its class path.

    Skips the test where the tools or the jars cannot be had, unless STATESTORE_KAFKA=required, as in CI.
    """
    missing = [tool for tool in ("mvn", "javac", "java") if shutil.which(tool) is None]
    if missing:
        _do_without(f"no {', '.join(missing)} here")
    jars, classes = folder / "jars", folder / "classes"
    fetch = ["mvn", "-q", "-B", "-f", str(PROJECT / "pom.xml"), "dependency:copy-dependencies"]
    fetched = subprocess.run([*fetch, f"-DoutputDirectory={jars}"], cwd=folder, capture_output=True, text=True)
    if fetched.returncode:
        _do_without(f"Maven could not fetch Kafka's jars: {fetched.stdout[-500:]}")
    sources = sorted(map(str, (PROJECT / "src" / "main" / "java").glob("*.java")))
    path = f"{classes}{os.pathsep}{jars}/*"
    subprocess.run(["javac", "-d", str(classes), "-cp", path, *sources], check=True)
    return path


def _do_without(reason: str) -> None:
    if os.environ.get("STATESTORE_KAFKA") == "required":
        pytest.fail(f"{reason}, and STATESTORE_KAFKA=required")
    pytest.skip(reason)


class Oracle:
    """A running program. Each history is answered by stores or a topology of its own."""

    def __init__(self, class_path: str) -> None:
        command = ["java", "-Xmx512m", "-cp", class_path, "Oracle"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()

    def answers(self, history: dict[str, Any]) -> list[Any]:
        """The answer to each operation of a store, or the records that each input of a join emits."""
        sender, receiver = self._process.stdin, self._process.stdout
        assert sender is not None and receiver is not None
        sender.write(json.dumps(history) + "\n")
        sender.flush()
        line = receiver.readline()
        assert line, "the program has ended"
        found: list[Any] = json.loads(line)["answers"]
        return found
