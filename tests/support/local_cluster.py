"""A cluster of processes on this machine: executors that share nothing with the driver but its files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark

MASTER = "local-cluster[2,1,1024]"


def linked_home(folder: Path) -> Path:
    """Make a SPARK_HOME of links in ``folder``, and return it: a cluster keeps its files there."""
    home = folder / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    return home


def executor_settings() -> dict[str, str]:
    """Return settings by which executors find the modules of the tests, and this interpreter."""
    return {
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(sys.path),
        "spark.pyspark.python": sys.executable,
        "spark.executor.memory": "1g",
    }
