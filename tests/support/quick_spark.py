"""Settings for processes that make Spark quick to start and cheap to ask."""

from __future__ import annotations

import os
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from support.paths import TESTS

JVM = [
    # The second compiler of the JVM and its parallel collector cost more than they save in minutes of small queries.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    # Spark's classes are those of an installed package, and checking their code is a fifth of a start.
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
]
if sys.platform == "linux":
    # For each file of a checkpoint Hadoop runs `chmod`: without a helper process in between.
    JVM.append("-Djdk.lang.Process.launchMechanism=VFORK")


def _is_before(*release: int) -> bool:
    """Return whether an older PySpark than a release is installed."""
    try:
        found = re.match(r"(\d+)\.(\d+)", version("pyspark"))
    except PackageNotFoundError:
        return False
    return found is not None and (int(found[1]), int(found[2])) < release


FILE_MANAGER = (
    "spark.sql.streaming.checkpointFileManagerClass",
    "org.apache.spark.sql.execution.streaming."
    f"{'' if _is_before(4, 1) else 'checkpointing.'}FileSystemBasedCheckpointFileManager",
)
"""A setting: the default one runs `readlink` twenty times a batch."""
CLASSES = Path(sys.prefix) / "spark-classes.jsa"
"""An archive of the classes of Spark, where .ci/spark_classes.py has written one: a third of a start less."""


# Of an archive that does not fit, as for jars that were installed later, the JVM would warn on the standard output.
_MAPPED = (f"-XX:SharedArchiveFile={CLASSES}", "-Xlog:disable") if CLASSES.exists() else ()


def submit_options(*more: str) -> str:
    """Options of a JVM that Spark's launcher starts."""
    return " ".join([*JVM, f"-D{'='.join(FILE_MANAGER)}", *more])


_INHERITED = filter(None, [os.environ.get("PYTHONPATH")])
ENVIRONMENT = {
    # Executors that are processes of their own get the same by a setting, which is one option with spaces.
    "SPARK_SUBMIT_OPTS": submit_options(*_MAPPED, f'"-Dspark.executor.extraJavaOptions={" ".join((*JVM, *_MAPPED))}"'),
    # For a session's search for installed sources: with an interpreter that lacks PySpark it fails, and each stream
    # repeats it. The workers of a session are started with another variable.
    "PYSPARK_DRIVER_PYTHON": sys.executable,
    # For Spark's Python workers: see the file there.
    "PYTHONPATH": os.pathsep.join([str(TESTS / "support" / "workers"), *_INHERITED]),
}
if _is_before(4, 2):  # whose workers would be those of another Python, without packages
    ENVIRONMENT["PYSPARK_PYTHON"] = sys.executable
