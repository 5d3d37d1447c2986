"""Types that Spark's own state source shows as types of Spark, and names that it lets a struct have twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import ArrayType, StructType, VariantType
from support.checkpoints.spark_state_fixtures import MORE, checkpoint_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VARIANT = "spark4.1.4-variant__hdfs"


Copy = Callable[[str | Path], str]


def both(spark: SparkSession, copy: Copy, name: str) -> tuple[DataFrame, DataFrame]:
    """The rows of this package's source, and in a copy of Spark's."""
    reader, path = spark.read.format("statestore"), checkpoint_path(name, MORE)
    return reader.load(str(path)), spark.read.format("statestore").option("provider", "builtin").load(copy(path))


def cells(rows: DataFrame) -> list[str]:
    """The rows without the names of fields."""

    def bare(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(bare, value))
        if isinstance(value, list):
            return list(map(bare, value))
        return {key: bare(value[key]) for key in sorted(value)} if isinstance(value, dict) else value

    return sorted(str(bare(row)) for row in rows.collect())


@pytest.mark.parametrize("name", [VARIANT, "spark4.1.4-repeated__hdfs", "spark4.1.4-scalagroups__hdfs"])
def test_rows_are_those_of_spark(spark: SparkSession, copy_for_spark: Copy, name: str) -> None:
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
    found = [row.a for row in ours.selectExpr("variant_get(value.first, '$.a', 'int') AS a").collect()]
    assert sorted(found) == sorted(row.value[0].toPython()["a"] for row in theirs.collect())
