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


# Runs in a process of its own, because touching a part that is gone would end it by SIGBUS. Each line that it is given
# has a warehouse, the moment at which its files are cut, and what is read then.
SCRIPT = """
import glob, os, sys, statestore

def cut(folder, least=0):
    for file in glob.glob(folder + "/s/segments/*"):
        if os.path.getsize(file) > least: os.truncate(file, 4096)

def between_two_reads(folder, ask):
    store = statestore.connect(folder).open_store("s")
    store.history().read_all(), store.get("k1"), store.changes(start_version=0).read_all()
    open_scan = store.scan()
    open_scan.read_next_batch()
    cut(folder)
    eval(ask, {**globals(), **locals()})

def before_the_next_version(folder, ask):
    store = statestore.connect(folder).open_store("s", auto_compact=False)
    store.get("k1")
    other = statestore.connect(folder).open_store("s", auto_compact=False)
    other.put("new", 1, timestamp=3_000); other.commit()
    cut(folder, 100_000)
    eval(ask, {**globals(), **locals()})

def before_it_is_opened(folder, ask):
    cut(folder)
    store = statestore.connect(folder).open_store("s")
    eval(ask, {**globals(), **locals()})

for line in sys.stdin.read().splitlines():
    folder, moment, ask = line.split(" ", 2)
    try: globals()[moment](folder, ask)
    except statestore.CorruptError as error: print(error.code, moment, ask, flush=True)
"""
BETWEEN = "between_two_reads"
CUTS = [
    (BETWEEN, "[batch for batch in open_scan]"),
    (BETWEEN, "store.compact(full=True)"),
    # A point read looks at lengths when the handle follows the log, not for each key.
    ("before_the_next_version", "store.get('k1')"),
    ("before_it_is_opened", "store.history().read_all()"),
]
MORE_CUTS = [
    (BETWEEN, "store.scan(filter=('v', '>', 5)).read_all()"),
    (BETWEEN, "store.history().read_all()"),
    (BETWEEN, "store.changes(start_version=0).read_all()"),
    (BETWEEN, "store.diff(1, 2).read_all()"),
    (BETWEEN, "statestore.sql(folder, 'SELECT sum(v) FROM s')"),
]


@pytest.mark.parametrize("cuts", [CUTS, pytest.param(MORE_CUTS, marks=pytest.mark.slow)])
def test_a_file_that_was_cut_is_damage(made: Path, cuts: list[tuple[str, str]], tmp_path: Path) -> None:
    folders = [shutil.copytree(made, tmp_path / str(number)) for number in range(len(cuts))]
    lines = "".join(f"{folder} {moment} {ask}\n" for folder, (moment, ask) in zip(folders, cuts, strict=True))
    done = subprocess.run([sys.executable, "-c", SCRIPT], input=lines, capture_output=True, text=True)
    expected = [f"SEGMENT_TRUNCATED {moment} {ask}" for moment, ask in cuts]
    assert (done.returncode, done.stdout.splitlines()) == (0, expected), done.stderr


def test_a_file_that_vacuum_removed_is_read_on(warehouse: Path) -> None:
    with _opened(warehouse) as store:
        expected = store.scan().read_all()
        open_scan = store.scan()
        for path in (warehouse / "s/segments").iterdir():
            path.unlink()
        assert open_scan.read_all().equals(expected)
        assert store.scan().read_all().equals(expected)


def test_without_mapping_the_answers_are_the_same(made: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _opened(made) as store:
        expected = store.history().read_all(), store.get("k7")
    monkeypatch.setenv(regular_files.MAPPING, "off")
    monkeypatch.setattr(pa, "memory_map", None)
    with _opened(warehouse) as store:
        assert (store.history().read_all(), store.get("k7")) == expected
        assert f"{warehouse}/s/segments" not in Path("/proc/self/maps").read_text()


def test_without_mapping_a_file_that_is_cut_under_a_reader_changes_nothing(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(regular_files.MAPPING, "off")
    with _opened(warehouse) as store:
        batches = list(store.scan())
        _cut(warehouse)
        assert sum(sum(batch.column("v").to_pylist()) for batch in batches) == sum(range(ROWS))


def test_a_value_that_is_neither_on_nor_off(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "0", "OFF", "yes"):
        monkeypatch.setenv(regular_files.MAPPING, value)
        with pytest.raises(InvalidInputError, match=r"INVALID_OPTION.*STATESTORE_MMAP"), _opened(made) as store:
            store.scan().read_all()
