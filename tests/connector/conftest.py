"""One Spark session for all tests in a process: starting one takes seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.quick_spark import ENVIRONMENT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ.update(ENVIRONMENT)  # before a session starts; processes that tests start inherit it

ZONE = "America/New_York"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": ZONE,
    "spark.log.level": "OFF",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore PySpark's warnings about pandas 3, which these tests do not use, and about its own sockets at exit."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A registered session, in a time zone that is not UTC."""
    from pyspark.sql import SparkSession

    from statestore.connector.spark.register import register, unregister

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("statestore tests").master("local[2]")
    folder = tmp_path_factory.mktemp("spark")
    for name, value in {**SETTINGS, "spark.sql.warehouse.dir": str(folder), "spark.local.dir": str(folder)}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    register(session)
    yield session
    unregister(session)
    session.stop()
