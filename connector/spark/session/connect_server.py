"""Spark Connect: whether the server's Python workers can run this package.

A client cannot choose their interpreter: it is ``PYSPARK_PYTHON`` of the server's environment when the server starts,
or ``python3`` on its path. A server without this package would report an error of a pickle, or a worker that died.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHOWN = 300  # characters of an error of Spark


class WorkerCheck(DataSource):
    """A source whose schema the server's workers can say if they can import this module."""

    @classmethod
    def name(cls) -> str:
        return "statestore_worker_check"

    def schema(self) -> str:
        return "works boolean"

    def reader(self, schema: StructType) -> DataSourceReader:
        raise NotImplementedError


def check_workers(spark: SparkSession) -> None:
    """Raise UnsupportedError UNSUPPORTED_SPARK if the workers of a Connect server cannot import this package."""
    if hasattr(spark, "_jsparkSession"):  # a classic session, whose workers `register` chooses
        return
    spark.dataSource.register(WorkerCheck)
    try:
        _ = spark.read.format(WorkerCheck.name()).load().schema
    except PySparkException as error:
        lines = [line.strip() for line in str(error).partition("\nJVM stacktrace")[0].splitlines()]
        said = [line for line in lines if line and not line.startswith("SQLSTATE")]
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_SPARK,
            "the Python workers of this Spark Connect server cannot load statestore "
            f"({said[-1][:_SHOWN] if said else 'no reason is given'}); install it for their interpreter, or set "
            f"PYSPARK_PYTHON before the server starts, here to {sys.executable}",
        ) from error
