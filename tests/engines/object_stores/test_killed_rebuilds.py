"""Rebuilds in a real object store by processes that are killed at any moment."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.object_stores.s3_server import S3Server
from support.places import vacuumed

import statestore
from statestore.catalog.log.store_locations import replaced_stores

pytestmark = pytest.mark.slow
COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
OF_A_STORE = ("log", "segments", "owners", "store.json")
_warehouses = itertools.count()

# Rebuilds for ever, with another number of key groups each time; says when it begins.
REBUILDER = """
import os, sys, statestore
catalog = statestore.connect(sys.argv[1], local=sys.argv[2], cache=sys.argv[2] + "-cache")
if catalog.locate("s")[1].kind != "versioned":
    catalog.open_store("s", takeover=True).close()
os.write(1, b"begin\\n")
for number in range(1, 1_000):
    catalog.rebuild("s", key_groups=number, spark=session).close()
"""

IN_ONE_PROCESS = "session = None"
IN_TASKS = """
from statestore.catalog.upkeep import compaction_rules
from statestore.catalog.upkeep.ranges import task_runs

class Runs:
    parallelism = 2

    def run(self, work, count):
        assert count == 2
        answers = [[work(number) for _ in range(2)] for number in range(count)]
        return [first for first, _ in answers]  # the files of the second are nobody's

session = Runs()
task_runs._made[:] = [lambda session: session]
compaction_rules.DEFAULT = compaction_rules.Rules(task_rows=1)
"""


@pytest.mark.parametrize(
    ("kind", "session"), [("versioned", IN_ONE_PROCESS), ("key_value", IN_ONE_PROCESS), ("versioned", IN_TASKS)]
)
def test_a_store_survives_rebuilds_that_are_killed(
    s3_server: S3Server, tmp_path: Path, kind: str, session: str
) -> None:
    uri = s3_server.warehouse(f"rebuilt-{kind}-{next(_warehouses)}")
    catalog = statestore.connect(uri, local=tmp_path / "own", cache=tmp_path / "cache")
    decide = random.Random(kind)
    expected: dict[str, int] = {}
    catalog.create_store("s", kind, **COLUMNS).close()
    for number in range(8):
        with catalog.open_store("s", **({} if kind == "versioned" else {"takeover": True})) as store:
            for key in range(3):
                name = f"{number}-{key}"
                store.put(name, key, *([1_000 * number] if kind == "versioned" else []))
                expected[name] = key
            store.commit()
        command = [sys.executable, "-c", session + REBUILDER, uri, str(tmp_path / "other")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline() == b"begin\n", process.stderr.read().decode()[-3000:]
            time.sleep(decide.random() * 0.5)
            process.kill()
        with catalog.open_store("s", read_only=True) as reader:
            table = reader.scan(columns=["k", "v"]).read_all()
            assert dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True)) == expected
        assert catalog.stores() == ["s"] and catalog.verify("s").ok
    with catalog.open_store("s", auto_compact=False, **({} if kind == "versioned" else {"takeover": True})) as store:
        vacuumed(store)
        assert vacuumed(store) == []
    storage = catalog.object_storage("s")
    folders = {found for item in storage.list("") if (found := item.name.partition("/")[0]) not in OF_A_STORE}
    assert len(folders) == len(replaced_stores(storage))  # a folder for each store that was replaced, and no other
    catalog.rebuild("s", key_groups=77).close()
    with_segments = {item.name.partition("/segments/")[0] for item in storage.list("") if "/segments/" in item.name}
    assert len(with_segments) == 1
    catalog.drop_store("s")
    assert [item.name for item in storage.list("") if not item.name.startswith("dropped/")] == []
