"""The cost of a batch of tracked state as the state grows, also against ``applyInPandasWithState``. Prints JSON lines.

    python benchmarks/tracked.py            states of 10k, 100k, 1M and 5M keys; the peer at 1M
    python benchmarks/tracked.py --quick    10k, 100k and 300k; the peer at 100k

Each batch has 10k records of as many keys with a state; it counts them and emits the counts. Times are those of the
streaming query itself (``triggerExecution``), in one session with two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import statestore
from statestore.tracked import State, StateSpec

BATCH = 10_000
BATCHES = 9
WARM = 3
SCHEMA = "word string, n bigint"


def report(name: str, **fields: Any) -> None:
    print(json.dumps({"measure": name, **fields}), flush=True)


def words(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return pc.binary_join_element_wise("word", pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 9, "0"), "-")


def write(folder: Path, number: int, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:03d}.parquet"
    pq.write_table(pa.table({"word": words(numbers), "n": pa.array(np.ones(len(numbers), np.int64))}), path)
    os.utime(path, (1000 + number, 1000 + number))


def inputs(folder: Path, keys: int, *, whole: bool) -> None:
    """Write files of one batch each; with ``whole`` the first has all keys."""
    random = np.random.default_rng(keys)
    if whole:
        write(folder, 0, np.arange(keys))
    for number in range(1, BATCHES + 1):
        write(folder, number, random.choice(keys, BATCH, replace=False))


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def milliseconds(query: StreamingQuery) -> list[int]:
    query.awaitTermination()
    return [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress if progress["numInputRows"]]


def count(value: int, state: State) -> int:
    total = value + (state.get_option() or 0)
    state.update(total)
    return int(total)


def count_columns(time: Any, keys: pa.Array, rows: pa.RecordBatch, states: pa.RecordBatch) -> Any:
    added = np.zeros(len(keys), np.int64)
    np.add.at(added, rows.column("key").to_numpy(), rows.column("n").to_numpy())
    after = pc.add(pc.fill_null(states.column("state"), 0), pa.array(added))
    return after, pa.record_batch({"value": after})


def measure_ours(spark: SparkSession, root: Path, keys: int, form: str) -> float:
    folder, store = root / f"in-{form}-{keys}", root / "warehouse" / f"{form}_{keys}"
    inputs(folder, keys, whole=False)
    every = spark.range(keys).selectExpr("concat('word-', lpad(string(id), 9, '0')) as word", "1L as n")
    spec = StateSpec.function(count) if form == "records" else StateSpec.vectorized(count_columns)
    tracked = statestore.track_state_by_key(
        stream(spark, folder),
        key="word",
        spec=spec.num_partitions(2).initial_state(every),
        store=store,
        state_type="bigint",
        output_type="bigint",
    )
    query = tracked.start(
        lambda emitted, batch: emitted.write.format("noop").mode("overwrite").save(),
        checkpoint=root / f"checkpoint-{form}-{keys}",
        trigger={"availableNow": True},
    )
    return statistics.median(milliseconds(query)[WARM:])


def count_group(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    total = sum(len(frame) for frame in frames) + (state.get[0] if state.exists else 0)
    state.update((total,))
    yield pd.DataFrame({"value": [total]})


def measure_peer(spark: SparkSession, root: Path, keys: int) -> float:
    folder = root / f"in-peer-{keys}"
    inputs(folder, keys, whole=True)
    counted = (
        stream(spark, folder)
        .groupBy("word")
        .applyInPandasWithState(count_group, "value bigint", "total bigint", "update", GroupStateTimeout.NoTimeout)
    )
    query = (
        counted.writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(root / f"checkpoint-peer-{keys}"))
        .trigger(availableNow=True)
        .start()
    )
    return statistics.median(milliseconds(query)[1 + WARM :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    sizes = (10_000, 100_000, 300_000) if quick else (10_000, 100_000, 1_000_000, 5_000_000)
    peer = 100_000 if quick else 1_000_000
    root = Path(tempfile.mkdtemp())
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.shuffle.partitions", "2")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    statestore.register(spark)
    try:
        ours: dict[tuple[str, int], float] = {}
        for form in ("records", "columns"):
            for keys in sizes:
                ours[form, keys] = measure_ours(spark, root, keys, form)
                report(f"batch of {BATCH} keys, {form}", keys_in_state=keys, milliseconds=ours[form, keys])
            report(
                f"batch at {sizes[-1]} keys / batch at {sizes[0]}, {form}",
                ratio=round(ours[form, sizes[-1]] / ours[form, sizes[0]], 2),
                goal="at most 1.5",
            )
        theirs = measure_peer(spark, root, peer)
        for form in ("records", "columns"):
            report(
                f"applyInPandasWithState on RocksDB / ours, {form}, at {peer} keys",
                ratio=round(theirs / ours[form, peer], 2),
                goal="at least 1",
                theirs_ms=theirs,
                ours_ms=ours[form, peer],
            )
    finally:
        spark.stop()
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
