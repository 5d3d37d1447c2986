"""Mapped files that other processes truncate, and reading without mapping."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.parameters import mostly_slow

import statestore
from statestore import InvalidInputError
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.formats.places import regular_files

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
ROWS = 70_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with segments larger than a page, indexes and closures."""
    folder = tmp_path_factory.mktemp("mapping") / "made"
    catalog = statestore.connect(folder)
    catalog.create_store("s", **COLUMNS).close()
    with catalog.open_store("s", auto_compact=False) as store:
        keys = [f"k{i}" for i in range(ROWS)]
        for time in (1_000, 2_000):
            store.write(pa.table({"k": keys, "v": list(range(ROWS)), "timestamp": [time] * ROWS}))
    return folder


@pytest.fixture
def warehouse(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "wh")
    return tmp_path / "wh"


def _opened(warehouse: Path) -> VersionedStore:
    return statestore.connect(warehouse).open_store("s", read_only=True)  # type: ignore[no-any-return]


def _cut(folder: Path) -> None:
    for path in (folder / "s/segments").iterdir():
        os.truncate(path, 4096)


@pytest.mark.parametrize(
    "ask",
    mostly_slow(
        [
            "store.scan(filter=('v', '>', 5)).read_all()",
            "store.history().read_all()",
            "store.changes(start_version=0).read_all()",
            "store.diff(1, 2).read_all()",
            "store.compact(full=True)",
            "[batch for batch in open_scan]",
            "statestore.sql(sys.argv[1], 'SELECT sum(v) FROM s')",
        ],
        ["[batch for batch in open_scan]", "store.compact(full=True)"],
    ),
)
def test_a_file_that_was_cut_between_two_reads_is_damage(warehouse: Path, ask: str) -> None:
    """Read in a process of its own: touching the part that is gone would end it by SIGBUS."""
    code = f"""
import glob, os, sys, statestore
store = statestore.connect(sys.argv[1]).open_store("s")
store.history().read_all(), store.get("k1"), store.changes(start_version=0).read_all()
open_scan = store.scan()
open_scan.read_next_batch()
for file in glob.glob(sys.argv[1] + "/s/segments/*"): os.truncate(file, 4096)
try: {ask}
except statestore.CorruptError as error: print(error.code)
"""
    done = subprocess.run([sys.executable, "-c", code, warehouse], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "SEGMENT_TRUNCATED\n"), done.stderr


def test_a_file_that_was_cut_is_damage_for_point_reads_of_the_next_version(warehouse: Path) -> None:
    """A point read looks at lengths when the handle follows the log, not for each key."""
    code = """
import glob, os, sys, statestore
store = statestore.connect(sys.argv[1]).open_store("s", auto_compact=False)
store.get("k1")
other = statestore.connect(sys.argv[1]).open_store("s", auto_compact=False)
other.put("new", 1, timestamp=3_000); other.commit()
for file in glob.glob(sys.argv[1] + "/s/segments/*"):
    if os.path.getsize(file) > 100_000: os.truncate(file, 4096)
try: store.get("k1")
except statestore.CorruptError as error: print(error.code)
"""
    done = subprocess.run([sys.executable, "-c", code, warehouse], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "SEGMENT_TRUNCATED\n"), done.stderr


def test_a_file_that_vacuum_removed_is_read_on(warehouse: Path) -> None:
    with _opened(warehouse) as store:
        expected = store.scan().read_all()
        open_scan = store.scan()
        for path in (warehouse / "s/segments").iterdir():
            path.unlink()
        assert open_scan.read_all().equals(expected)
        assert store.scan().read_all().equals(expected)


def test_without_mapping_the_answers_are_the_same(warehouse: Path) -> None:
    with _opened(warehouse) as store:
        expected = store.history().read_all(), store.get("k7")
    code = """
import sys, statestore, pyarrow as pa
pa.memory_map = None
store = statestore.connect(sys.argv[1]).open_store("s", read_only=True)
maps = lambda: "segments" in open("/proc/self/maps").read()
print(store.history().read_all().num_rows, store.get("k7").value, maps())
"""
    environment = {**os.environ, regular_files.MAPPING: "off"}
    done = subprocess.run([sys.executable, "-c", code, warehouse], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == [str(expected[0].num_rows), "7", "False"], done.stderr


def test_without_mapping_a_file_that_is_cut_under_a_reader_changes_nothing(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(regular_files.MAPPING, "off")
    with _opened(warehouse) as store:
        batches = list(store.scan())
        _cut(warehouse)
        assert sum(sum(batch.column("v").to_pylist()) for batch in batches) == sum(range(ROWS))


@pytest.mark.parametrize("value", ["", "0", "OFF", "yes"])
def test_a_value_that_is_neither_on_nor_off(warehouse: Path, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(regular_files.MAPPING, value)
    with (
        pytest.raises(InvalidInputError, match=r"INVALID_OPTION.*STATESTORE_MMAP"),
        _opened(warehouse) as store,
    ):
        store.scan().read_all()


def test_a_file_that_is_cut_before_it_is_opened(warehouse: Path) -> None:
    _cut(warehouse)
    code = "import sys, statestore; statestore.connect(sys.argv[1]).open_store('s').history().read_all()"
    done = subprocess.run([sys.executable, "-c", code, warehouse], capture_output=True, text=True)
    assert "SEGMENT_TRUNCATED" in done.stderr and done.returncode == 1
