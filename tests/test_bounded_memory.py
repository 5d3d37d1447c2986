"""A state of RocksDB streams through: reading ten times as much takes no more memory."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from rocksdict import Options, Rdict, WriteBatch

READ = """
import resource, sys
from pathlib import Path
from statestore.formats.rocksdb.scan import scan_rocksdb

rows = sum(scan_rocksdb(Path(sys.argv[1]), lambda batch: batch.num_rows))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
VALUE_BYTES = 100


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
