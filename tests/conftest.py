"""Spark for all tests: quick to start and cheap to ask, in this process and in those that tests start."""

from __future__ import annotations

import os

from support.paths import TESTS

# The second compiler of the JVM and its parallel collector cost more than they save in minutes of small queries.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
# For Spark's Python workers: see the file there.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(TESTS / "support" / "workers"), os.environ.get("PYTHONPATH")])
)
