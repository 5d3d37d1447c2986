"""Queries of Spark over files of rows, one file a batch, in the layouts of state files that Spark can write."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from statestore.formats.engine import StateAt
from statestore.formats.places.locations import parse_location
from statestore.formats.spark.source import CheckpointSource, open_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BEGAN = 1_780_000_000  # seconds
PREFIX = "spark.sql.streaming.stateStore."
ROCKSDB = {f"{PREFIX}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"}
CHANGELOGS = {f"{PREFIX}rocksdb.changelogCheckpointing.enabled": "true"}
SECOND_FORMAT = {f"{PREFIX}checkpointFormatVersion": "2"}
CHECKSUMS = {f"{PREFIX}rowChecksum.enabled": "true"}
LAYOUTS: dict[str, dict[str, str]] = {
    "deltas": {},
    "deltas in zstd": {f"{PREFIX}compression.codec": "zstd"},
    "deltas in snappy": {f"{PREFIX}compression.codec": "snappy"},
    "deltas in lzf": {f"{PREFIX}compression.codec": "lzf"},
    "deltas with checksums": CHECKSUMS,
    "zips": ROCKSDB,
    "zips with checksums": ROCKSDB | CHECKSUMS,
    "changelogs": ROCKSDB | CHANGELOGS,
    "changelogs with checksums": ROCKSDB | CHANGELOGS | CHECKSUMS,
    "zips of format 2": ROCKSDB | SECOND_FORMAT,
    "changelogs of format 2": ROCKSDB | CHANGELOGS | SECOND_FORMAT,
    "changelogs of format 2 with checksums": ROCKSDB | CHANGELOGS | SECOND_FORMAT | CHECKSUMS,
}


@contextmanager
def conf(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    former = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, before in former.items():
            spark.conf.unset(name) if before is None else spark.conf.set(name, before)


def run(
    spark: SparkSession,
    folder: Path,
    checkpoint: Path,
    schema: str,
    batches: Sequence[Sequence[Mapping[str, Any]]],
    result: Callable[[DataFrame], DataFrame],
    mode: str = "update",
    sink: str | Callable[[DataFrame, int], None] = "noop",
) -> None:
    """Run a query over further files of rows, in ``folder/rows``, to ``folder/out`` or a function of each batch."""
    inputs = folder / "rows"
    inputs.mkdir(exist_ok=True)
    for batch in batches:
        number = len(list(inputs.iterdir()))
        (inputs / f"{number:03d}.json").write_text("".join(json.dumps(row) + "\n" for row in batch))
        os.utime(inputs / f"{number:03d}.json", (_BEGAN + number, _BEGAN + number))  # the order in which they are read
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(inputs))
    writer = result(rows).writeStream.outputMode(mode)
    writer = writer.format(sink) if isinstance(sink, str) else writer.foreachBatch(sink)
    writer = writer.option("checkpointLocation", str(checkpoint)).option("path", str(folder / "out"))
    writer.trigger(availableNow=True).start().awaitTermination()


def opened(checkpoint: Path) -> CheckpointSource:
    return open_source(parse_location(checkpoint))


def rows_of(source: CheckpointSource, state: str = "state") -> pa.Table:
    """The rows of a state without their placement."""
    at: StateAt = source.at(state, source.newest(state))
    batches = [batch for part in at.parts(()) for batch in at.rows(part, at.schema.names, ())]
    return pa.Table.from_batches(batches, at.schema).drop_columns(["partition_id"])


def content(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
