"""The jars of Hadoop's client of S3, which PySpark lacks. Maven fetches them once, and then finds them by itself."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parent / "s3a" / "pom.xml"


class NoSparkError(RuntimeError):
    """Spark cannot read from S3 on this machine; the message says why."""


def s3a_jars() -> list[str]:
    """Return the paths of the jars for the Hadoop of the installed PySpark. Raises NoSparkError without them."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        raise NoSparkError(f"no {', '.join(missing)} here")
    ask = ["mvn", "-q", "-B", "-f", str(PROJECT), f"-Dhadoop.version={_hadoop()}", "dependency:build-classpath"]
    # Without a look at the network where all jars are there. Two Mavens may spoil each other's repository.
    with tempfile.TemporaryDirectory() as folder, PROJECT.open() as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        found = Path(folder) / "jars.txt"
        for way in (["--offline"], []):
            command = [*ask, f"-Dmdep.outputFile={found}", *way]
            asked = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if asked.returncode == 0:
                return found.read_text().strip().split(":")
    raise NoSparkError(f"Maven could not fetch hadoop-aws: {asked.stdout[-500:]}")


def _hadoop() -> str:
    """The version of Hadoop in the installed PySpark: another client would lack methods of it."""
    try:
        import pyspark
    except ImportError as error:
        raise NoSparkError("PySpark is not installed") from error
    prefix = "hadoop-client-api-"
    jars = list((Path(pyspark.__file__).parent / "jars").glob(f"{prefix}*.jar"))
    if not jars:
        raise NoSparkError("the installed PySpark has no Hadoop")
    return jars[0].stem.removeprefix(prefix)
