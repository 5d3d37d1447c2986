"""Capture of a running query's state beside the query itself. Prints JSON lines.

    python benchmarks/capture.py             500,000 keys, of which each of 20 batches changes a hundredth
    python benchmarks/capture.py --quick     50,000 keys, 8 batches

A real query of Spark counts and sums by key: HDFS-backed, and in RocksDB with changelogs and without. It runs as fast
as it can, in turns without a capture and with ``statestore capture --follow`` in a process of its own. Then:

    bytes    read of the checkpoint for a version, to those of a scan of the state (with strace; mapped files in whole)
    disk     of the store with all versions, to that of the files of each version, as copies of checkpoints have them
    CPU      of the capture after its first version, to that of the query's JVM meanwhile
    batches  of the query beside a capture, to those without one, by the median of their times
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))  # a script does not have it among its modules

from support.capture.followers import newest
from support.quick_spark import FILE_MANAGER

import statestore
from statestore.formats.places.locations import parse_location
from statestore.formats.spark.source import open_source

STATE = "spark.sql.streaming.stateStore."
ROCKSDB = {f"{STATE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"}
LAYOUTS: dict[str, dict[str, str]] = {
    "HDFS-backed": {},
    "RocksDB, changelogs": {**ROCKSDB, f"{STATE}rocksdb.changelogCheckpointing.enabled": "true"},
    "RocksDB": {**ROCKSDB, f"{STATE}rocksdb.changelogCheckpointing.enabled": "false"},
}
PARTITIONS = 2
WARM = 3
"""Batches that are not counted: the JVM compiles, and all keys are new in the first one."""
BYTES, DISK, CPU = 0.05, 0.2, 0.1
"""The goals."""
_READ = re.compile(r"(?:read|pread64|readv|preadv|preadv2)\(\d+<([^>]*)>.* = (\d+)$")
_MAPPED = re.compile(r"mmap\([^,]*, (\d+), [^,]*, [^,]*, \d+<([^>]*)>")
SCAN = """
import sys, statestore
table = statestore.inspect(sys.argv[1]).table("state")
print(sum(batch.num_rows for batch in table.scan(version=int(sys.argv[2]))))
"""


@dataclass(frozen=True)
class Run:
    """A run of the query: times of its batches in ms, CPU seconds of the JVM and of the capture beside it."""

    checkpoint: Path
    batches: tuple[int, ...]
    engine: float
    capture: float = 0.0
    start: float = 0.0
    """CPU seconds of the capture until it had its first version: imports, compiled loops, all keys."""
    warehouse: Path | None = None


def session(folder: Path) -> SparkSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", PARTITIONS)
        .config(*FILE_MANAGER)
        .config("spark.driver.extraJavaOptions", "-Djdk.lang.Process.launchMechanism=VFORK")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.local.dir", str(folder))
        .getOrCreate()
    )
    return spark


def write_inputs(folder: Path, keys: int, batches: int) -> None:
    """Write the rows of each batch: each key, and then a hundredth of them."""
    folder.mkdir()
    for number in range(batches):
        chance = np.random.default_rng(number)
        chosen = chance.choice(keys, keys // 100, replace=False) if number else np.arange(keys)
        names = pa.array([f"key-{each:010d}" for each in chosen.tolist()])
        amounts = pa.array(chance.integers(0, 1 << 40, len(chosen)))
        pq.write_table(pa.table({"k": names, "n": amounts}), folder / f"{number:03d}.parquet")
        os.utime(folder / f"{number:03d}.parquet", (1_780_000_000 + number,) * 2)


def ran(spark: SparkSession, inputs: Path, folder: Path, layout: str, batches: int, *, captured: bool) -> Run:
    """Run the query over all inputs, and a capture beside it."""
    (folder / "in").mkdir(parents=True)
    checkpoint, warehouse = folder / "checkpoint", folder / "warehouse"
    query: StreamingQuery | None = None
    capture: subprocess.Popen[bytes] | None = None
    try:
        for name, value in LAYOUTS[layout].items():
            spark.conf.set(name, value)
        rows = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
        sums = rows.groupBy("k").agg(F.count("*"), F.sum("n"), F.max("n"))
        give(inputs, folder, range(WARM))
        writer = sums.writeStream.outputMode("update").format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(processingTime="0 seconds").start()
        query.processAllAvailable()
        start = 0.0
        if captured:
            command = [sys.executable, "-m", "statestore", "capture", str(checkpoint), str(warehouse)]
            capture = subprocess.Popen(
                [*command, "--follow", "--every", "1s"], stderr=(folder / "capture.txt").open("w")
            )
            await_version(warehouse, WARM - 1, capture)
            start = cpu_of(capture.pid)
        jvm = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
        before = cpu_of(jvm)
        give(inputs, folder, range(WARM, batches))
        query.processAllAvailable()
        engine, spent = cpu_of(jvm) - before, 0.0
        if capture is not None:
            await_version(warehouse, batches - 1, capture)
            spent = cpu_of(capture.pid) - start
        times = [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]
        return Run(checkpoint, tuple(times[WARM:]), engine, spent, start, warehouse if captured else None)
    finally:
        if capture is not None:
            capture.terminate()
            capture.wait()
        if query is not None:
            query.stop()
        for name in LAYOUTS[layout]:
            spark.conf.unset(name)


def give(inputs: Path, folder: Path, numbers: range) -> None:
    for number in numbers:
        os.link(inputs / f"{number:03d}.parquet", folder / "in" / f"{number:03d}.parquet")


def await_version(warehouse: Path, batch: int, capture: subprocess.Popen[bytes]) -> None:
    while newest(warehouse, "state") < batch:
        if capture.poll() is not None:
            said = (warehouse.parent / "capture.txt").read_text()[-2000:]
            raise ChildProcessError(f"the capture ended with status {capture.returncode}: {said}")
        time.sleep(0.1)


def cpu_of(process: int) -> float:
    """CPU seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def bytes_below(folder: Path, *command: str) -> int:
    """The bytes that a program reads of the files of a folder."""
    with tempfile.NamedTemporaryFile("r") as calls:
        calls_of = "read,pread64,readv,preadv,preadv2,mmap"
        trace = ["strace", "-f", "-y", "-q", "-e", f"trace={calls_of}", "-s", "0", "-o", calls.name]
        subprocess.run([*trace, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return sum(size for path, size in _sizes(calls) if Path(path).is_relative_to(folder))


def _sizes(lines: Any) -> Iterator[tuple[str, int]]:
    for line in lines:
        if found := _READ.search(line.rstrip()):
            yield found[1], int(found[2])
        elif found := _MAPPED.search(line):
            yield found[2], int(found[1])


def read_figure(layout: str, run: Run, batches: int, folder: Path) -> None:
    """Capture all versions but the last, then the last one alone."""
    if shutil.which("strace") is None:
        print(f"{layout}: without strace, bytes are not counted")
        return
    newest = batches - 1
    commit, aside = run.checkpoint / "commits" / str(newest), folder / "commit"
    commit.rename(aside)
    statestore.capture(run.checkpoint, folder / "by-version")
    aside.rename(commit)
    program = [sys.executable, "-m", "statestore", "capture", str(run.checkpoint), str(folder / "by-version")]
    ours = bytes_below(run.checkpoint, *program)
    whole = bytes_below(run.checkpoint, sys.executable, "-c", SCAN, str(run.checkpoint), str(newest))
    show("bytes read for a version", layout, ours / whole, BYTES, bytes=[ours, whole])


def disk_figure(layout: str, run: Run, batches: int) -> None:
    assert run.warehouse is not None
    source = open_source(parse_location(run.checkpoint))
    copies = sum(source.at("state", number).total_bytes() for number in range(batches))
    ours = sum(path.stat().st_size for path in run.warehouse.rglob("*") if path.is_file())
    show("disk of all versions", layout, ours / copies, DISK, mb=[round(each / 1e6, 2) for each in (ours, copies)])


def show(measure: str, layout: str, ratio: float, goal: float | None, **details: object) -> None:
    found = {"measure": measure, "layout": layout, "ratio": round(ratio, 4), "goal": goal, **details}
    print(json.dumps({name: each for name, each in found.items() if each is not None}), flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--quick", action="store_true", help="a tenth of the keys, and fewer batches")
    arguments.add_argument("--rounds", type=int, default=2, help="runs without a capture and with one, each")
    arguments.add_argument("--only", default="", help=f"a layout: {'; '.join(LAYOUTS)}")
    given = arguments.parse_args()
    keys, batches = (50_000, 8) if given.quick else (500_000, 20)
    with tempfile.TemporaryDirectory(prefix="statestore-capture-") as name:
        folder = Path(name)
        spark = session(folder)
        write_inputs(folder / "inputs", keys, batches)
        for layout in LAYOUTS:
            if given.only and given.only != layout:
                continue
            place = folder / layout
            place.mkdir()
            alone, beside = [], []
            for number in range(given.rounds):
                inputs = folder / "inputs"
                alone.append(ran(spark, inputs, place / f"alone-{number}", layout, batches, captured=False))
                beside.append(ran(spark, inputs, place / f"beside-{number}", layout, batches, captured=True))
            read_figure(layout, alone[-1], batches, place)
            disk_figure(layout, beside[-1], batches)
            cpu, engine = min(each.capture for each in beside), min(each.engine for each in beside)
            first = round(min(each.start for each in beside), 2)
            seconds = [round(cpu, 2), round(engine, 2)]
            show("CPU of a capture", layout, cpu / engine, CPU, seconds=seconds, versions=batches - WARM, first=first)
            ms = [statistics.median(each for run in runs for each in run.batches) for runs in (beside, alone)]
            show("batch beside a capture", layout, ms[0] / ms[1], None, ms=ms)
            shutil.rmtree(place)
        spark.stop()


if __name__ == "__main__":
    main()
