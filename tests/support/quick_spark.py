"""Settings for processes that make Spark quick to start and cheap to ask."""

from __future__ import annotations

import os

from support.paths import TESTS

_INHERITED = filter(None, [os.environ.get("PYTHONPATH")])
ENVIRONMENT = {
    # The second compiler of the JVM and its parallel collector cost more than they save in minutes of small queries.
    "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # For Spark's Python workers: see the file there.
    "PYTHONPATH": os.pathsep.join([str(TESTS / "support" / "workers"), *_INHERITED]),
}
