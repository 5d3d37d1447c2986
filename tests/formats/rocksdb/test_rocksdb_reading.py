"""Reads around the scanner: the setting, a process without numba, abandoned reads, compiled code."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from support.open_files import open_below
from support.rocksdb.rocksdb_scans import Rows, pairs
from support.rocksdb.rocksdb_tables import PUT, ZSTD, Entry, Form, expected, stored, table, write_directory

from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels import compiled
from statestore.formats.places.reading_threads import in_order
from statestore.formats.rocksdb import scan, table_scan
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.scan import scan_rocksdb
from statestore.formats.rocksdb.table_scan import plan_scan, scan_ranges


def rows_of(directory: Path) -> Rows:
    return [row for batch in scan_rocksdb(directory, pairs) for row in batch]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return stored(tmp_path / "db", Form())


@pytest.mark.parametrize("value", ["Scanner", "numba", "0", " "])
def test_an_unknown_reader_is_refused(value: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scan.READER, value)
    with pytest.raises(InvalidInputError, match=r"STATESTORE_ROCKSDB_READER.*expected scanner or rocksdict") as caught:
        rows_of(directory)
    assert caught.value.code == "INVALID_SETTING"


@pytest.mark.parametrize("reader", ["scanner", "rocksdict"])
def test_the_reader_that_is_asked_for(reader: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scan.READER, reader)
    if reader == "scanner":
        monkeypatch.setattr(scan, "scan_family", None)
    else:
        monkeypatch.setattr(table_scan, "plan_scan", None)
    assert rows_of(directory) == expected()


class NoNumba:
    """An import hook for a process where numba is not installed, or refuses to load beside a newer numpy."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.split(".")[0] in ("numba", "llvmlite"):
            raise ImportError(f"{name} does not load")


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith(("numba", "llvmlite", "statestore.formats.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NoNumba(), *sys.meta_path])


@pytest.mark.usefixtures("without_numba")
def test_without_numba_rocksdb_reads(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(scan.READER, raising=False)
    monkeypatch.setattr(scan, "_wants_scanner", lambda *_: True)
    assert rows_of(directory) == expected()


@pytest.mark.usefixtures("without_numba")
def test_without_numba_the_scanner_can_not_be_asked_for(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scan.READER, "scanner")
    with pytest.raises(InvalidInputError, match="needs numba"):
        rows_of(directory)


# Reads that are given up ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("reader", ["scanner", "rocksdict"])
def test_a_read_that_is_given_up(threads: int, reader: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that is given up leaves no thread and no open file, and the next one reads all rows."""
    monkeypatch.setenv(scan.READER, reader)
    monkeypatch.setattr(scan, "reading_threads", lambda: threads)
    monkeypatch.setattr(table_scan, "RANGE_BYTES", 300)
    before = set(threading.enumerate())
    batches = scan_rocksdb(directory, pairs, batch_rows=3)
    assert next(batches) == expected()[:3]
    batches.close()  # type: ignore[attr-defined]
    assert set(threading.enumerate()) <= before and not open_below(directory)
    for batch in scan_rocksdb(directory, pairs, batch_rows=3):
        assert batch
        break
    del batch
    assert set(threading.enumerate()) <= before and not open_below(directory)
    assert rows_of(directory) == expected()
    assert set(threading.enumerate()) <= before and not open_below(directory)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_of_who_takes_the_batches(threads: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scan.READER, "scanner")
    monkeypatch.setattr(scan, "reading_threads", lambda: threads)
    monkeypatch.setattr(table_scan, "RANGE_BYTES", 300)
    seen: list[int] = []

    def each(batch: pa.RecordBatch) -> int:
        if batch.column("key")[0].as_py() > b"key-0070":
            raise ZeroDivisionError
        return int(batch.num_rows)

    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError):
        for count in scan_rocksdb(directory, each, batch_rows=10):
            seen.append(count)
    assert 50 < sum(seen) < 75
    assert set(threading.enumerate()) <= before and not open_below(directory)


def test_pieces_are_few_steps_ahead() -> None:
    """Memory holds the results of twice the threads, however slowly they are taken; order is that of the pieces."""
    begun: list[int] = []

    def work(piece: int) -> int:
        begun.append(piece)
        return piece

    results = in_order(work, iter(range(1000)), 2)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert len(begun) <= 5 + 2 * 2 + 1
    results.close()  # type: ignore[attr-defined]
    assert len(begun) < 20


def test_memory_follows_what_is_plain(tmp_path: Path) -> None:
    """Values that compress a hundredfold would make a range of raw blocks a hundred times as large."""
    entries: list[Entry] = [(b"%04d" % number, number + 1, PUT, bytes(100_000)) for number in range(600)]
    directory = write_directory(tmp_path / "db", [(0, entries, table(entries, Form(codec=ZSTD, block_entries=1)))])
    plan = plan_scan(directory, "default", KeyRange())
    sizes = [sum(rows) for _, rows in scan_ranges(plan, lambda batch: batch.nbytes, delimiter=None, batch_rows=1000)]
    assert sum(sizes) > 60_000_000 and max(sizes) < 2 * table_scan.RANGE_PLAIN


# Where compiled code is kept -----------------------------------------------------------------------------------------


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a temporary folder; nothing is compiled meanwhile."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path


def folder() -> Path | None:
    found = compiled._cache_folder.__wrapped__()
    return None if found is None else Path(found)


def in_temporary(homes: Path) -> Path:
    return homes / "temporary" / f"statestore-{os.getuid()}"


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o000])
def test_the_folder_is_the_users_alone(umask: int, homes: Path) -> None:
    before = os.umask(umask)
    try:
        found, again = folder(), folder()
    finally:
        os.umask(before)
    assert found is not None and found == again and found.parent == homes / "cache" / "statestore"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (found, found.parent)] == [0o700, 0o700]


def test_a_folder_that_others_may_write_to(homes: Path) -> None:
    root = homes / "cache" / "statestore"
    root.mkdir(parents=True)
    root.chmod(0o770)
    found = folder()
    assert found is not None and found.parent == in_temporary(homes)
    found.chmod(0o707)
    assert folder() is None


def test_a_folder_behind_a_link(homes: Path) -> None:
    (homes / "elsewhere").mkdir(mode=0o700)
    (homes / "cache").mkdir()
    for link in (homes / "cache" / "statestore", in_temporary(homes)):
        link.symlink_to(homes / "elsewhere")
    assert folder() is None


def test_folders_of_another_user(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    assert folder() is None


def test_a_home_that_can_not_be_written_to(homes: Path) -> None:
    (homes / "cache").write_bytes(b"a file, where a folder should be")
    found = folder()
    assert found is not None and found.parent == in_temporary(homes)


def test_a_user_without_a_home(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "expanduser", fail)
    found = folder()
    assert found is not None and found.parent == in_temporary(homes)


def test_a_folder_that_is_given(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(homes / "given"))
    found = folder()
    assert found is not None and found.parent == homes / "given" / "statestore"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(homes / "file"))
    (homes / "file").write_bytes(b"")
    assert folder() is None


@pytest.mark.slow
def test_processes_that_compile_at_once(homes: Path) -> None:
    """Processes share the folder, and a later one uses what they left."""
    program = (
        "import numpy as np; from statestore.formats.kernels.checksum_kernels import crc32c\n"
        "array = np.frombuffer(b'123456789' + bytes(64), np.uint8)\n"
        "print(int(crc32c(array, 0, 9)), sum(crc32c.stats.cache_hits.values()))"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(homes / "given")}
    command = [sys.executable, "-c", program]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = [process.communicate()[0].split() for process in running]
    assert [answer[0] for answer in found] == [str(0xE3069283)] * 2
    last = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert last == [str(0xE3069283), "1"]
