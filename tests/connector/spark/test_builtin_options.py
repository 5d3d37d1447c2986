"""Code written for Spark's own state source runs with this package's source: the same columns, rows and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, StructType, VariantType
from support.checkpoints.spark_state_fixtures import MORE, checkpoint_path, index
from support.parameters import mostly_slow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

AGGREGATION, HDFS = "spark4.3.0-agg__rkcl", "spark4.3.0-agg__hdfs"
CHAIN, JOIN, VARIABLES = "spark4.0.1-chain__rkcl", "spark4.3.0-join__rkcl", "spark4.3.0-twsttl__rkcl"
VARIANT = "spark4.1.4-variant__hdfs"


Copy = Callable[[str | Path], str]


def state(spark: SparkSession, name: str, options: dict[str, Any], copy: Copy | None = None) -> DataFrame:
    """The state as this package reads it, or in a copy as Spark's own source does."""
    reader, path = spark.read.format("statestore").options(**options), checkpoint_path(name)
    return reader.load(str(path)) if copy is None else reader.option("provider", "builtin").load(copy(path))


def shape(kind: DataType) -> Any:
    """A type without properties that Python sources cannot express: nullability, and repeated names in a struct."""
    document: Any = kind.jsonValue()

    def bare(part: Any) -> Any:
        if isinstance(part, dict) and "fields" in part:
            return [bare(field["type"]) for field in part["fields"]]
        if isinstance(part, dict):
            return {key: bare(value) for key, value in part.items() if key not in ("containsNull", "valueContainsNull")}
        return part

    return bare(document)


def cells(rows: DataFrame) -> list[str]:
    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return sorted((str(bare(key)), str(bare(item))) for key, item in value.items())
        return tuple(map(bare, value)) if isinstance(value, tuple | list) else value

    return sorted(str(bare(row)) for row in rows.collect())


ANSWERED: list[tuple[str, dict[str, Any]]] = [
    (AGGREGATION, {"BATCHID": "1"}),
    (AGGREGATION, {"snapshotStartBatchId": 2, "snapshotPartitionId": 0, "batchId": 4}),
    (AGGREGATION, {"readChangeFeed": True, "changeStartBatchId": 1, "changeEndBatchId": 2}),
    (HDFS, {"snapshotStartBatchId": 3, "snapshotPartitionId": 0}),
    (CHAIN, {"operatorId": 1, "batchId": 3}),
    (JOIN, {"joinSide": "right", "batchId": 2}),
    (JOIN, {"storeName": "right-keyWithIndexToValue", "readChangeFeed": "true", "changeStartBatchId": 1}),
]
ANSWERED_TOO: list[tuple[str, dict[str, Any]]] = [
    (AGGREGATION, {}),
    (AGGREGATION, {"batchId": 2, "operatorId": 0, "storeName": "default", "joinSide": "none"}),
    (AGGREGATION, {"snapshotStartBatchId": 2, "snapshotPartitionId": 1}),
    (AGGREGATION, {"readChangeFeed": "true", "changeStartBatchId": 0}),
    (HDFS, {"readChangeFeed": "true", "changeStartBatchId": 2}),
    (CHAIN, {}),
    (JOIN, {"joinSide": "left"}),
    (JOIN, {"storeName": "left-keyToNumValues"}),
]


@pytest.mark.quick("*options6")
@pytest.mark.parametrize(("name", "options"), mostly_slow([*ANSWERED, *ANSWERED_TOO], ANSWERED[::2]))
def test_the_same_rows(spark: SparkSession, copy_for_spark: Copy, name: str, options: dict[str, Any]) -> None:
    theirs, ours = (state(spark, name, options, copy) for copy in (copy_for_spark, None))
    assert ours.columns == theirs.columns
    assert [shape(field.dataType) for field in ours.schema] == [shape(field.dataType) for field in theirs.schema]
    assert cells(ours) == cells(theirs)


@pytest.mark.parametrize(
    ("name", "options"),
    mostly_slow(
        [
            (AGGREGATION, {"batchId": -1}),
            (AGGREGATION, {"batchId": 99}),
            (AGGREGATION, {"operatorId": -1}),
            (AGGREGATION, {"operatorId": 5}),
            (AGGREGATION, {"storeName": "x"}),
            (AGGREGATION, {"joinSide": "x"}),
            (AGGREGATION, {"joinSide": "left"}),
            (AGGREGATION, {"stateVarName": "v"}),
            (AGGREGATION, {"snapshotStartBatchId": 1}),
            (AGGREGATION, {"snapshotPartitionId": 1}),
            (AGGREGATION, {"snapshotStartBatchId": -1, "snapshotPartitionId": 0}),
            (AGGREGATION, {"snapshotStartBatchId": 4, "snapshotPartitionId": 0, "batchId": 2}),
            (AGGREGATION, {"readChangeFeed": "true", "changeEndBatchId": 2}),
            (AGGREGATION, {"readChangeFeed": "true", "changeStartBatchId": 3, "changeEndBatchId": 2}),
            (AGGREGATION, {"readChangeFeed": "true", "changeStartBatchId": 1, "batchId": 2}),
            (JOIN, {}),
            (JOIN, {"joinSide": "left", "storeName": "left-keyToNumValues"}),
            (JOIN, {"joinSide": "left", "readChangeFeed": "true", "changeStartBatchId": 1}),
        ],
        [(AGGREGATION, {"batchId": 99}), (AGGREGATION, {"joinSide": "left"}), (JOIN, {})],
    ),
)
def test_the_same_refusals(spark: SparkSession, copy_for_spark: Copy, name: str, options: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"STDS_|STATE_STORE|CANNOT_LOAD"):
        state(spark, name, options, copy_for_spark).collect()
    codes = "STATE_SELECTION|VERSION_NOT_FOUND|SPARK_STATE_NOT_FOUND|TABLE_NOT_FOUND"
    with pytest.raises(PySparkException, match=rf"\[({codes})\]"):
        state(spark, name, options).collect()


@pytest.mark.slow
def test_what_a_refusal_of_spark_leaves_in_a_checkpoint_does_not_matter(
    spark: SparkSession, copy_for_spark: Copy
) -> None:
    """Spark 4.1 leaves folders of an operator that does not exist."""
    checkpoint = copy_for_spark(checkpoint_path(AGGREGATION))
    reader = spark.read.format("statestore").options(provider="builtin", operatorId=5)
    with pytest.raises(Exception, match="STDS_FAILED_TO_READ_STATE_SCHEMA"):
        reader.load(checkpoint).collect()
    found = spark.read.format("statestore").load(checkpoint)
    assert cells(found) == cells(state(spark, AGGREGATION, {}))


READS = [read for read in index()[VARIABLES]["reads"].values() if "error" not in read]
BY_VARIABLE = {read["options"].get("stateVarName"): read for read in READS}
BY_OPTIONS = {str(sorted(read["options"])): read for read in READS}


@pytest.mark.quick("?0, 3, 'mp', 'false'?")
@pytest.mark.parametrize(
    "asked",
    mostly_slow(READS, [*BY_VARIABLE.values(), *BY_OPTIONS.values()]),
    ids=lambda read: str(list(read["options"].values())),
)
def test_variables_lists_maps_and_timers(spark: SparkSession, asked: dict[str, Any]) -> None:
    """Spark's own source cannot read these where they lie now: it follows the path they were written at."""
    found = state(spark, VARIABLES, asked["options"])
    assert shape(found.schema) == shape(StructType.fromJson(asked["schema"]))
    assert found.columns == [field["name"] for field in asked["schema"]["fields"]]
    assert found.count() == asked["rows"]


def test_metadata_stays_what_it_is(spark: SparkSession, copy_for_spark: Copy) -> None:
    rows = spark.read.format("state-metadata").load(copy_for_spark(checkpoint_path(CHAIN))).collect()
    assert {row.operatorId for row in rows} == {0, 1}


def both(spark: SparkSession, copy: Copy, name: str) -> tuple[DataFrame, DataFrame]:
    """The rows of this package's source, and in a copy of Spark's."""
    reader, path = spark.read.format("statestore"), checkpoint_path(name, MORE)
    return reader.load(str(path)), spark.read.format("statestore").option("provider", "builtin").load(copy(path))


@pytest.mark.parametrize(
    "name", mostly_slow([VARIANT, "spark4.1.4-repeated__hdfs", "spark4.1.4-scalagroups__hdfs"], [])
)
def test_types_of_spark_and_repeated_names(spark: SparkSession, copy_for_spark: Copy, name: str) -> None:
    ours, theirs = both(spark, copy_for_spark, name)
    assert cells(ours) == cells(theirs)


def test_variants_are_variants(spark: SparkSession, copy_for_spark: Copy) -> None:
    ours, theirs = both(spark, copy_for_spark, VARIANT)
    for rows in (ours, theirs):
        value = rows.schema["value"].dataType
        assert isinstance(value, StructType)
        assert isinstance(value.fields[0].dataType, VariantType)
        listed = value.fields[4].dataType
        assert isinstance(listed, ArrayType) and isinstance(listed.elementType, VariantType)
    assert cells(ours) == cells(theirs)
    found = [row.a for row in ours.selectExpr("variant_get(value.first, '$.a', 'int') AS a").collect()]
    assert sorted(found) == sorted(row.value[0].toPython()["a"] for row in theirs.collect())
