"""Settings with which Spark writes state in one layout or another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "spark.sql.streaming.stateStore."
ROCKSDB = {f"{PREFIX}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"}
CHANGELOGS = {f"{PREFIX}rocksdb.changelogCheckpointing.enabled": "true"}
SECOND_FORMAT = {f"{PREFIX}checkpointFormatVersion": "2"}
CHECKSUMS = {f"{PREFIX}rowChecksum.enabled": "true"}


def join_format(version: int) -> dict[str, str]:
    return {"spark.sql.streaming.join.stateFormatVersion": str(version)}


@contextmanager
def conf(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    former = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in former.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)
