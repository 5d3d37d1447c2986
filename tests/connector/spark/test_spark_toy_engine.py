"""The Spark source reads the state of an engine from an installed package, also in tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.engines.toys import VERSIONS, as_toys, write_package, write_toys

from statestore.connector.spark.session.register import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def package(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package, installed here and sent to the processes that plan and read."""
    file = write_package(tmp_path / "toys.zip")
    monkeypatch.syspath_prepend(file)
    spark.sparkContext.addPyFile(str(file))
    register(spark)  # sources get the files that the session had when they were registered
    yield


@pytest.mark.usefixtures("package")
def test_reads_of_a_third_engine(spark: SparkSession, tmp_path: Path) -> None:
    reader = spark.read.format("statestore")
    path = str(write_toys(tmp_path / "toys"))
    rows = reader.load(path).collect()
    assert as_toys([row.asDict() for row in rows]) == VERSIONS[5]
    older = reader.option("toyVersion", 2).load(path).where("n > 3").collect()
    assert {row.n for row in older} == {20, 4}
    changes = spark.read.format("statestore").option("readChangeFeed", "true").load(path)
    assert changes.where("_change_type = 'delete'").count() == 2
