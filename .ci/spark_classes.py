"""Write the classes of Spark, as the JVM has loaded and checked them, into an archive in the environment.

``.venv/bin/python .ci/spark_classes.py``, from the root of the clone. Spark sessions of tests that start afterwards map
the archive (see tests/support/quick_spark.py), and many tests start some. A JVM with other options or jars leaves it
alone.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.quick_spark import CLASSES, submit_options

STATE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main() -> None:
    CLASSES.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = submit_options(f"-XX:ArchiveClassesAtExit={CLASSES}", "-Xlog:disable")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        use_spark(Path(folder))
    if not CLASSES.exists():
        print("this Java writes no archive of classes; tests with Spark take longer", file=sys.stderr)


def use_spark(folder: Path) -> None:
    """Load the classes that tests use: of queries, of files and of a stream with a state."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE)
    spark.createDataFrame([(1, "a"), (2, "b")], "id long, name string").write.parquet(str(folder / "in"))
    rows = spark.read.parquet(str(folder / "in"))
    rows.mapInArrow(unchanged, rows.schema).join(rows, "id").groupBy("id").count().collect()
    counts = spark.readStream.schema(rows.schema).parquet(str(folder / "in")).groupBy("id").count()
    writer = counts.writeStream.outputMode("complete").format("memory").queryName("counts")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with its input, and writes the archive then
    gateway.proc.wait()


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


if __name__ == "__main__":
    main()
