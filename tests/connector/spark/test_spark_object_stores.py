"""Spark reads a checkpoint in an object store, with a client in each executor, and one at a ``file:`` URI."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from support.checkpoints.spark_state_fixtures import checkpoint_path, index, multiset, truth
from support.object_store import BUCKET, object_store

import statestore
from statestore.connector.spark.location import with_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "spark4.3.0-agg__rkcl"


@pytest.mark.slow
def test_a_checkpoint_in_an_object_store(spark: SparkSession) -> None:
    expected = multiset(truth(index()[NAME]["reads"]["op0~last"]))
    with object_store() as store:
        uri = store.upload(checkpoint_path(NAME), "a b%20ü/ck")
        before = store.contents("a b%20ü")
        assert multiset(spark.read.format("statestore").load(uri).toArrow()) == expected
        assert multiset(statestore.sql(uri, "SELECT * FROM state", spark).toArrow()) == expected
        assert store.contents("a b%20ü") == before
        with pytest.raises(PySparkException, match=r"\[READ_ONLY\] s3://states/a b%20ü/ck is read-only") as found:
            spark.range(1).write.format("statestore").mode("append").save(uri)
        assert "us:er" not in str(found.value)


@pytest.mark.slow
def test_settings_of_hadoops_client(spark: SparkSession) -> None:
    """Settings may be options of a read or of a registered session; those of one bucket come before those of all."""
    expected = multiset(truth(index()[NAME]["reads"]["op0~last"]))
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    with object_store() as store:
        store.upload(checkpoint_path(NAME), "ck")
        path = f"s3a://{BUCKET}/ck"
        settings = {
            "fs.s3a.endpoint": f"http://{store.host}:{store.port}", "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.access.key": "us+/=", "fs.s3a.secret.key": "s@e:c/r%et",
        }  # fmt: skip
        reader = spark.read.format("arrow_statestore").options(**settings)
        assert multiset(reader.load(path).toArrow()) == expected
        settings[f"fs.s3a.bucket.{BUCKET}.endpoint"] = settings["fs.s3a.endpoint"]
        settings["fs.s3a.endpoint"] = "nowhere.invalid"
        before = {name: hadoop.get(name) for name in settings}
        try:
            for name, value in settings.items():
                hadoop.set(name, value)
            assert multiset(spark.read.format("statestore").load(path).toArrow()) == expected
            assert multiset(statestore.sql(path, "SELECT * FROM state", spark).toArrow()) == expected
        finally:
            for name, value in before.items():
                hadoop.unset(name) if value is None else hadoop.set(name, value)


@pytest.mark.parametrize(
    ("settings", "uri"),
    [
        ({}, "s3a://b/x"),
        ({"fs.s3a.endpoint": "s3.amazonaws.com"}, "s3a://b/x"),
        ({"fs.s3a.endpoint": "h:1", "fs.s3a.connection.ssl.enabled": "false"}, "s3a://b/x?endpoint_override=h%3A1&scheme=http"),
        ({"fs.s3a.access.key": "a", "fs.s3a.secret.key": "b/", "fs.s3a.session.token": "t"}, "s3a://a:b%2F@b/x?session_token=t"),
        ({"fs.s3a.access.key": "a"}, "s3a://b/x"),
        ({"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"}, "s3a://b/x?anonymous=true"),
        ({"fs.s3a.endpoint": "https://s3.eu-central-1.amazonaws.com"}, "s3a://b/x?region=eu-central-1"),
        ({"fs.s3a.endpoint.region": "eu", "fs.s3a.bucket.b.endpoint.region": "us"}, "s3a://b/x?region=us"),
    ],
)  # fmt: skip
def test_settings_become_parts_of_the_uri(settings: dict[str, str], uri: str) -> None:
    assert with_settings("s3a://b/x", settings) == uri
    assert with_settings("/local", settings) == "/local"


def test_what_a_uri_says_comes_first() -> None:
    settings = {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "b", "fs.s3a.endpoint.region": "us"}
    assert with_settings("s3://me:too@b/x?region=eu", settings) == "s3://me:too@b/x?region=eu"
    settings = {"fs.s3a.endpoint": "h:9000"}
    assert with_settings("s3://b/x?scheme=http", settings) == "s3://b/x?scheme=http&endpoint_override=h%3A9000"


def test_names_that_a_uri_would_encode(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a b%20ü"
    shutil.copytree(checkpoint_path(NAME), path)
    for text in (f"{path}/", f"file:{path}", f"file://{path}", path.as_uri()):
        assert spark.read.format("statestore").load(text).count() == 57
