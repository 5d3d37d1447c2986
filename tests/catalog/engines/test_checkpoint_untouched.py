"""No read of a checkpoint changes a byte, name or time in it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.command_line import run
from support.parameters import mostly_slow

import statestore


def state_of(folder: Path) -> dict[str, tuple[int, str]]:
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        found[str(path)] = (path.stat().st_mtime_ns, content)
    return found


@pytest.mark.parametrize(
    "name",
    mostly_slow(
        [
            "spark4.3.0-agg__hdfs",
            "spark4.3.0-join__rkj4",
            "spark4.3.0-sess__rkcl",
            "spark4.3.0-twsttl__rkv2",
            "spark4.0.1-chain__rkcl",
        ],
        ["spark4.3.0-sess__rkcl"],
    ),
)
def test_reads_leave_a_checkpoint_as_it_was(name: str, tmp_path: Path) -> None:
    path = checkpoint_path(name)
    before = state_of(path)
    found = statestore.inspect(path)
    connection = statestore.attach(str(path))
    for table in found.tables():
        rows = found.table(table).scan().read_all()
        assert connection.sql(f'SELECT count(*) FROM "{table}"').fetchall() == [(rows.num_rows,)]
        first, last = found.table(table).table.kept_versions()
        found.table(table).scan(version=first).read_all()
        found.table(table).history().read_all()
        found.table(table).changes().read_all()
        found.table(table).diff(first, last).read_all()
        statestore.sql(str(path), f'SELECT * FROM "{table}$segments"')
    assert run("inspect", path).code == 0
    assert run("report", path, "-o", tmp_path / "report.html").code == 0
    assert run("compact", path).code == run("vacuum", path).code == 1
    assert state_of(path) == before
