"""A server of Spark Connect; it prints its port and runs until its input ends."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

if __name__ == "__main__":
    settings = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(Path("local").absolute()),
        "spark.sql.warehouse.dir": str(Path("tables").absolute()),
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    service = getattr(builder.getOrCreate()._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    print(getattr(service, "MODULE$").localPort(), flush=True)
    sys.stdin.read()
