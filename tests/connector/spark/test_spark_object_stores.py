"""Spark reads a checkpoint in an object store, with a client in each executor, and one at a ``file:`` URI."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from support.checkpoints.spark_state_fixtures import checkpoint_path, index, multiset, truth
from support.object_store import object_store

import statestore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "spark4.3.0-agg__rkcl"


def test_a_checkpoint_in_an_object_store(spark: SparkSession) -> None:
    expected = multiset(truth(index()[NAME]["reads"]["op0~last"]))
    with object_store() as store:
        uri = store.upload(checkpoint_path(NAME), "a b%20ü/ck")
        before = store.contents("a b%20ü")
        assert multiset(spark.read.format("statestore").load(uri).toArrow()) == expected
        assert multiset(statestore.sql(uri, "SELECT * FROM state", spark).toArrow()) == expected
        assert store.contents("a b%20ü") == before
        with pytest.raises(PySparkException, match=r"\[UNSUPPORTED_PATH\] s3://states/a b%20ü/ck: writing") as found:
            spark.range(1).write.format("statestore").mode("append").save(uri)
        assert "us:er" not in str(found.value)


def test_names_that_a_uri_would_encode(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a b%20ü"
    shutil.copytree(checkpoint_path(NAME), path)
    for text in (f"{path}/", f"file:{path}", f"file://{path}", path.as_uri()):
        assert spark.read.format("statestore").load(text).count() == 57
