"""The session of Spark whose processes may die."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

import statestore
from support.dying_workers.deaths import FOLDER


def dying_session(master: str) -> SparkSession:
    """Start a session, and register the data source in it."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        f"spark.executorEnv.{FOLDER}": os.environ[FOLDER],
        "spark.executor.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    statestore.register(spark)
    return spark
