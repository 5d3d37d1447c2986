"""A state of RocksDB streams through: reading ten times as much takes no more memory. So do the rows of a report, and
the changes of the HDFS-backed provider, of which only some keys are held at a time."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from rocksdict import Options, Rdict, WriteBatch
from support.checkpoints.large_checkpoints import write_checkpoint

import statestore

READ = """
import resource, sys
from pathlib import Path
from statestore.formats.rocksdb.scan import scan_rocksdb

rows = sum(scan_rocksdb(Path(sys.argv[1]), lambda batch: batch.num_rows))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
VALUE_BYTES = 100


REPORT = """
import sys
from pathlib import Path
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.report.figures import figures_of

figures = figures_of(open_warehouse(sys.argv[1]).open(sys.argv[2]))
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(sum(cell["rows"] for cell in figures.heat), status["VmHWM"].split()[0])  # ru_maxrss has the parent's before exec
"""


@pytest.mark.slow
def test_memory_of_a_report_does_not_grow_with_the_keys(tmp_path: Path) -> None:
    few, many, versions = 100_000, 1_000_000, 3
    small, large = (report_kib(tmp_path / str(keys), keys, versions) for keys in (few, many))
    # More than the half are pages of mapped files, 120 MiB a batch and decoded columns. As dicts, the rows had 1 GiB.
    assert large - small < 340 << 10


def report_kib(folder: Path, keys: int, versions: int) -> int:
    with statestore.connect(folder).create_store("v", key={"k": "string"}, value={"a": "bigint"}) as store:
        names = pa.array([f"key-{number:08}" for number in range(keys)])
        for version in range(versions):
            times = pa.array(np.full(keys, 1_000 * version))
            store.write(pa.table({"k": names, "a": pa.array(np.arange(keys) + version), "timestamp": times}))
    return peak_of_report(folder, "v", keys * versions)


def peak_of_report(folder: Path, table: str, rows: int) -> int:
    command = [sys.executable, "-c", REPORT, str(folder), table]
    # Without this, what glibc keeps of freed arrays comes and goes by tens of MB with the order in which threads end.
    exact = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | exact)
    counted, peak = map(int, found.stdout.split())
    assert counted == rows
    return peak


@pytest.mark.slow
def test_memory_of_a_report_does_not_grow_with_the_keys_of_the_hdfs_backed_provider(tmp_path: Path) -> None:
    batches, peaks = 3, []
    for keys in (100_000, 1_000_000):
        folder = write_checkpoint(tmp_path / str(keys), keys, batches)
        peaks.append(peak_of_report(folder, "state", keys + (batches - 1) * keys // 10))
    small, large = peaks
    assert large - small < 320 << 10  # 450 MB where all that changed is held


@pytest.mark.slow
def test_memory_does_not_grow_with_the_state(tmp_path: Path) -> None:
    few, many = 300_000, 3_000_000
    small, large = (peak_kib(database(tmp_path / str(rows), rows), rows) for rows in (few, many))
    grown_by = (many - few) * VALUE_BYTES >> 10
    assert large - small < grown_by // 4


def database(folder: Path, rows: int) -> Path:
    options = Options(raw_mode=True)
    table = Rdict(str(folder), options)
    noise = random.Random(0).randbytes(1 << 20)
    for start in range(0, rows, 50_000):
        batch = WriteBatch(raw_mode=True)
        for number in range(start, start + 50_000):
            batch.put(b"%012d" % number, noise[number % 1_000_000 : number % 1_000_000 + VALUE_BYTES])
        table.write(batch)
    table.flush()
    table.close()
    return folder


def peak_kib(folder: Path, rows: int) -> int:
    environment = {**os.environ, "STATESTORE_ROCKSDB_READER": "scanner"}
    command = [sys.executable, "-c", READ, str(folder)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert int(found[0]) == rows
    return int(found[1])
