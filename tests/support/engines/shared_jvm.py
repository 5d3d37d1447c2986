"""A JVM in which Spark sessions of several processes run, one after the other: a start of one costs ten seconds."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock


@dataclass(frozen=True)
class SharedJvm:
    """A running JVM. Its working directory cannot change, so each process has to run in ``folder``."""

    folder: Path
    _gateway: Any

    def environment(self) -> dict[str, str]:
        """Return the variables that make a process with PySpark use this JVM."""
        found = self._gateway.java_parameters
        return {"PYSPARK_GATEWAY_PORT": str(found.port), "PYSPARK_GATEWAY_SECRET": found.auth_token}

    @contextmanager
    def emptied(self) -> Iterator[Path]:
        """Lend the folder to one process; then stop its Spark and empty the folder."""
        try:
            yield self.folder
        finally:
            contexts = getattr(self._gateway.jvm.org.apache.spark, "SparkContext$")
            active = getattr(contexts, "MODULE$").getActive()
            if active.isDefined():
                active.get().stop()
            for left in self.folder.iterdir():
                if left.is_dir() and not left.is_symlink():
                    shutil.rmtree(left)
                else:
                    left.unlink()


@contextmanager
def shared_jvm(folder: Path, environment: Mapping[str, str]) -> Iterator[SharedJvm]:
    """Start a JVM that works in an empty folder, with these variables."""
    from pyspark.java_gateway import launch_gateway

    options: Any = {"cwd": folder, "stderr": subprocess.DEVNULL}
    with mock.patch.dict(os.environ, environment):
        gateway: Any = launch_gateway(popen_kwargs=options)  # type: ignore[no-untyped-call]
    try:
        yield SharedJvm(folder, gateway)
    finally:
        gateway.close()
        gateway.proc.stdin.close()  # the JVM ends with its input
        gateway.proc.wait()
