"""The name "statestore" is this package's after `register`, Spark's after `unregister`, and both sources stay
available."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import readwriter

import pyspark_statestore
import statestore
from statestore.connector.spark.source import SOURCE_NAME, StateStoreSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
BUILTIN = "STDS_"  # how errors of Spark's own state source begin


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("named")
    with statestore.connect(folder).create_store("prices", key={"item": "string"}, value={"price": "int"}) as store:
        store.write(pa.table({"item": ["curry"], "price": [8], "timestamp": [1]}))
    return str(folder / "prices")


def test_a_client_of_spark_connect_needs_no_py4j() -> None:
    """The package pyspark-client has none. What speaks to a JVM is loaded for a session that has one."""
    script = "import statestore.connector.spark.session.register, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    mine = [name for name in loaded if name.startswith("statestore.connector.spark")]
    assert "statestore.connector.spark.session.register" in mine
    assert not [name for name in mine if name.endswith(".jvm") or ".planner" in name or ".catalog" in name]


def test_every_way_of_naming_it(spark: SparkSession, path: str) -> None:
    for name in ("statestore", "StateStore", "arrow_statestore"):
        assert spark.read.format(name).load(path).count() == 1
        assert spark.read.load(path, format=name).count() == 1
        assert spark.read.format(name).option("path", path).load().count() == 1
    assert spark.read.format("statestore").load(f"file://{path}").count() == 1


def test_the_builtin_source_stays_reachable(spark: SparkSession, path: str) -> None:
    with pytest.raises(PySparkException, match=BUILTIN):
        spark.read.format("statestore").option("provider", "builtin").load(path)
    with pytest.raises(PySparkException, match=BUILTIN):
        spark.read.option("provider", "builtin").format("statestore").load(path)
    with pytest.raises(PySparkException, match=BUILTIN):
        spark.read.load(path, format="statestore", provider="builtin")


def test_other_formats_are_untouched(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.format("parquet").option("compression", "none").save(str(tmp_path / "p"))
    assert spark.read.format("parquet").load(str(tmp_path / "p")).count() == 3


def test_registering_twice_is_registering_once(spark: SparkSession, path: str) -> None:
    before = readwriter.DataFrameReader.format
    statestore.register(spark)
    assert readwriter.DataFrameReader.format is before
    assert spark.read.format("statestore").load(path).count() == 1


@pytest.mark.slow
def test_unregister_takes_all_of_it_back(spark: SparkSession, path: str) -> None:
    routed = readwriter.DataFrameReader.format
    loaded = spark.read.format("statestore").load(path).where("item = 'curry'")
    statestore.unregister(spark)
    try:
        assert readwriter.DataFrameReader.format is not routed
        assert spark.conf.get(PUSHDOWN) == "false"
        with pytest.raises(PySparkException, match=BUILTIN):
            spark.read.format("statestore").load(path)
        assert loaded.count() == 1  # what was loaded before goes on
        assert spark.read.format("arrow_statestore").load(path).count() == 1
        statestore.unregister(spark)
    finally:
        statestore.register(spark)
    assert spark.conf.get(PUSHDOWN) == "true"
    assert spark.read.format("statestore").load(path).count() == 1


def test_a_setting_of_the_user_outlives_unregister(spark: SparkSession) -> None:
    statestore.unregister(spark)
    spark.conf.set(PUSHDOWN, "true")
    try:
        statestore.register(spark)
        statestore.unregister(spark)
        assert spark.conf.get(PUSHDOWN) == "true"
    finally:
        spark.conf.unset(PUSHDOWN)
        statestore.register(spark)


def test_another_session_of_the_application(spark: SparkSession, path: str) -> None:
    other = spark.newSession()
    statestore.register(other)
    try:
        assert other.read.format("statestore").load(path).count() == 1
    finally:
        statestore.unregister(other)
        statestore.register(spark)


def test_workers_run_this_interpreter(spark: SparkSession) -> None:
    assert spark.sparkContext.pythonExec == sys.executable
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_the_entry_package_names_the_source() -> None:
    assert issubclass(pyspark_statestore.DefaultSource, StateStoreSource)
    assert pyspark_statestore.DefaultSource.name() == SOURCE_NAME == "arrow_statestore"


FOUND_BY_SPARK = """
import statestore
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("found", spark.read.format("arrow_statestore").load({path!r}).count())
statestore.register(spark)
print("routed", spark.read.format("statestore").load({path!r}).count())
"""


@pytest.mark.slow
def test_an_installed_package_is_found_without_any_call(path: str, tmp_path: Path) -> None:
    """An editable install is not on the path that Spark searches; a link puts the package there."""
    (tmp_path / "pyspark_statestore").symlink_to(Path(pyspark_statestore.__file__).parent)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    script = FOUND_BY_SPARK.format(path=path)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.split() == ["found", "1", "routed", "1"], done.stderr[-2000:]
