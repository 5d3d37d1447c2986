"""Runs of real Flink jobs, each in a process of its own, that leave snapshots and the truth about them.

A run's folder has the form of the fixtures (``tests/engines/flink/README.md``).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE_S = 120
# Packages of the JDK that Flink's serializers look into.
OPENED = ("lang", "lang.invoke", "util", "util.concurrent.atomic", "time", "math", "net", "io", "nio")
# A quick start counts for more than the code of the best compiler.
OPTIONS = ("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


@dataclass(frozen=True)
class Job:
    """A job (a class of ``tests/engines/flink``), the steps of its run and its options; see ``RunJob``."""

    name: str
    steps: str
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that a run took: ``kind`` is checkpoint, savepoint-canonical or savepoint-native."""

    kind: str
    folder: Path
    metadata_version: int
    parallelism: int
    max_parallelism: int
    truth: list[dict[str, Any]]


@dataclass(frozen=True)
class Run:
    """Results of a run. ``operators`` has the IDs of operators by their uids, ``names`` of those without by name."""

    operators: dict[str, str]
    names: dict[str, str]
    snapshots: list[Snapshot]


def run_job(class_path: str, folder: Path, job: Job, patience: float = PATIENCE_S) -> Run:
    """Run a job to its end; raises AssertionError with the end of its output where it fails.

    A job that takes longer than the seconds of ``patience`` raises TimeoutExpired.
    """
    with started_job(class_path, folder, job) as process:
        code = process.wait(patience)
    assert code == 0, f"{job.name} ended with {code}:\n{output_of(folder)}"
    return read_run(folder / "state")


@contextmanager
def started_job(class_path: str, folder: Path, job: Job) -> Iterator[subprocess.Popen[bytes]]:
    """Start a job, whose snapshots will be in ``folder/state``; it is killed where it still runs after the block."""
    options = [text for name, value in job.options for text in (f"--{name}", value)]
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED]
    command = ["java", *OPTIONS, *opened, "-cp", class_path, "RunJob", job.name]
    command += ["--dir", str(folder / "state"), "--steps", job.steps, *options]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def output_of(folder: Path) -> str:
    """The end of what a job has said."""
    return (folder / "log.txt").read_text(errors="replace")[-3000:]


def read_run(folder: Path) -> Run:
    """The run whose snapshots are in ``folder``."""
    manifest = json.loads((folder / "manifest.json").read_text())
    snapshots = [
        Snapshot(
            each["kind"],
            folder / each["path"],
            each["metadata_version"],
            each["parallelism"],
            each["max_parallelism"],
            [json.loads(line) for line in (folder / each["truth"]).read_text().splitlines()],
        )
        for each in manifest["snapshots"]
    ]
    return Run(manifest["operator_ids"], manifest["operator_names"], snapshots)
