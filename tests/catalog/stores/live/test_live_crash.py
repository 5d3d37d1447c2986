"""kill -9 during puts and commits of live stores: after reopening, exactly the acknowledged rows are there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.parameters import mostly_slow

import statestore

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
WINDOW: dict[str, Any] = {"retention": "1 hour", "window_size": "1 minute"}

DEATHS = [(0, 0), (50_123, 0), (99_999, 0), (2_500, 1_000), (2_999, 1_000)]

# Acknowledges by writing the number of the put; dies by its own hand right after one, or by the parent's at any point.
WRITER = """
import os, signal, sys, statestore
root, kind, puts, die_at, commit_every = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
store = statestore.connect(root).open_store("s")
for number in range(puts):
    if kind == "window":
        store.put(f"key-{number % 1000}", number, number)
    else:
        store.put(f"key-{number % 1000}", number)
    os.write(1, b"%d\\n" % number)
    if number == die_at:
        os.kill(os.getpid(), signal.SIGKILL)
    if commit_every and number % commit_every == commit_every - 1:
        store.commit()
"""


def write(root: Path, kind: str, puts: int, die_at: int, commit_every: int) -> int:
    """Run a writer that kills itself; return the number of its last acknowledged put."""
    command = [sys.executable, "-c", WRITER, str(root), kind, str(puts), str(die_at), str(commit_every)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    return int(done.stdout.split()[-1])


def expected(last: int) -> dict[str, int]:
    """The newest value of each key after the puts 0 to ``last``."""
    return {f"key-{number % 1000}": number for number in range(last + 1)}


@pytest.mark.quick("2999-1000")
@pytest.mark.parametrize(("die_at", "commit_every"), mostly_slow(DEATHS, [(0, 0), (2_500, 1_000), (2_999, 1_000)]))
def test_every_acknowledged_put_is_there(tmp_path: Path, die_at: int, commit_every: int) -> None:
    catalog = statestore.connect(tmp_path)
    catalog.create_store("s", kind="key_value", **COLUMNS).close()
    last = write(tmp_path, "key_value", 100_000, die_at, commit_every)
    assert last == die_at
    with catalog.open_store("s") as store:
        assert {row.key: row.value for row in store.all()} == expected(last)
        assert store.get("key-0") == expected(last)["key-0"]
        version = store.commit()
        table = store.scan(columns=["k", "v"], version=version).read_all()
        assert dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True)) == expected(last)


@pytest.mark.slow
def test_killed_from_outside(tmp_path: Path) -> None:
    """Whatever the writer was doing: the put that was under way may be there, too, but nothing else."""
    catalog = statestore.connect(tmp_path)
    catalog.create_store("s", kind="window", **COLUMNS, **WINDOW).close()
    command = [sys.executable, "-c", WRITER, str(tmp_path), "window", "100000", "-1", "700"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        said = b""
        while said.count(b"\n") < 5_000:
            said += os.read(writer.stdout.fileno(), 65_536)
        writer.kill()
        said += writer.stdout.read()
    last = int(said.rpartition(b"\n")[0].split()[-1])
    with catalog.open_store("s") as store:
        found = {(row.key, row.start): row.value for row in store.all()}
    rows = {(f"key-{number % 1000}", number): number for number in range(last + 1)}
    under_way = {(f"key-{(last + 1) % 1000}", last + 1): last + 1}
    assert found in (rows, rows | under_way)


@pytest.mark.slow
def test_several_deaths_in_a_row(tmp_path: Path) -> None:
    """Each writer takes over the rows that the one before had acknowledged."""
    catalog = statestore.connect(tmp_path)
    catalog.create_store("s", kind="key_value", **COLUMNS).close()
    for die_at, commit_every in ((300, 0), (700, 500), (1_500, 0), (40, 30)):
        write(tmp_path, "key_value", 2_000, die_at, commit_every)
    with catalog.open_store("s") as store:
        assert {row.key: row.value for row in store.all()} == expected(1_500) | expected(40)
