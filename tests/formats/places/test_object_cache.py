"""Copies of objects: fetched by region, verified by checksums, bounded, shared, and repaired."""

from __future__ import annotations

import errno
import gc
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from statestore.formats.errors import CorruptError, InvalidInputError, StorageError
from statestore.formats.places import object_cache
from statestore.formats.places.object_cache import CachedObject, cached_object, sweep
from statestore.formats.segments.regions import REGION_BYTES, VerifiedBytes, checksum_regions
from statestore.formats.segments.segment_meta import FileRef

CONTENT = random.Random(1).randbytes(3 * REGION_BYTES + 1_000)
REF = FileRef("segments/a.arrow", len(CONTENT), checksum_regions(pa.py_buffer(CONTENT)))


class Remote:
    """An object, and the parts of it that were asked for."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.asked: list[tuple[int, int]] = []

    def read(self, start: int, stop: int) -> bytes:
        self.asked.append((start, stop))
        return self.content[start:stop]

    def opened(self, folder: Path, name: str = "a") -> CachedObject:
        return cached_object(name, len(CONTENT), self.read, str(folder))


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    gc.collect()


def test_only_what_is_read_is_fetched(tmp_path: Path) -> None:
    remote = Remote()
    verified = VerifiedBytes(REF, remote.opened(tmp_path))
    assert remote.asked == []
    assert verified.slice(REGION_BYTES + 5, 10).to_pybytes() == CONTENT[REGION_BYTES + 5 : REGION_BYTES + 15]
    assert remote.asked == [(REGION_BYTES, 2 * REGION_BYTES)]
    (copy,) = [path for path in tmp_path.iterdir() if path.name != ".lock"]
    assert copy.stat().st_blocks * 512 < 2 * REGION_BYTES


def test_neighbours_are_one_request(tmp_path: Path) -> None:
    remote = Remote()
    verified = VerifiedBytes(REF, remote.opened(tmp_path))
    assert verified.slice(0, len(CONTENT)).to_pybytes() == CONTENT
    assert remote.asked == [(0, len(CONTENT))]


def test_another_process_finds_what_was_fetched(tmp_path: Path) -> None:
    first, second = Remote(), Remote()
    VerifiedBytes(REF, first.opened(tmp_path)).verify(0, 10)
    object_cache._objects.clear()  # as in another process
    verified = VerifiedBytes(REF, second.opened(tmp_path))
    verified.verify(0, 10)
    assert second.asked == []
    verified.verify(2 * REGION_BYTES, 10)
    assert second.asked == [(2 * REGION_BYTES, 3 * REGION_BYTES)]


@pytest.mark.parametrize("damage", [b"\0", b"damaged"])
def test_a_damaged_copy_is_fetched_again(tmp_path: Path, damage: bytes) -> None:
    VerifiedBytes(REF, Remote().opened(tmp_path)).verify_all()
    object_cache._objects.clear()
    gc.collect()
    (copy,) = [path for path in tmp_path.iterdir() if path.name != ".lock"]
    with copy.open("r+b") as file:
        file.seek(REGION_BYTES + 17)
        file.write(damage)
    remote = Remote()
    assert VerifiedBytes(REF, remote.opened(tmp_path)).slice(0, len(CONTENT)).to_pybytes() == CONTENT
    assert remote.asked == [(REGION_BYTES, 2 * REGION_BYTES)]


def test_a_damaged_object_is_reported(tmp_path: Path) -> None:
    remote = Remote(CONTENT[:REGION_BYTES] + b"x" + CONTENT[REGION_BYTES + 1 :])
    verified = VerifiedBytes(REF, remote.opened(tmp_path))
    with pytest.raises(CorruptError, match=r"SEGMENT_CORRUPT.*region 1 "):
        verified.slice(REGION_BYTES, 5)


def test_the_copy_of_another_length_is_replaced(tmp_path: Path) -> None:
    cached_object("a", 10, lambda start, stop: b"0123456789"[start:stop], str(tmp_path)).fetch([(0, 10)])
    remote = Remote()
    assert VerifiedBytes(REF, remote.opened(tmp_path)).slice(0, 4).to_pybytes() == CONTENT[:4]


def test_what_was_not_used_for_the_longest_time_goes(tmp_path: Path) -> None:
    for number in range(4):
        VerifiedBytes(REF, Remote().opened(tmp_path, str(number))).verify_all()
    copies = sorted((path for path in tmp_path.iterdir() if path.name != ".lock"), key=lambda p: p.stat().st_mtime_ns)
    for age, copy in enumerate(copies):
        os.utime(copy, (1_000 + age, 1_000 + age))
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"stays")
    sweep(tmp_path, 2 * len(CONTENT) + REGION_BYTES)
    assert [copy.exists() for copy in copies] == [False, False, True, True]
    assert foreign.exists()


def test_a_reader_keeps_a_copy_that_was_removed(tmp_path: Path) -> None:
    remote = Remote()
    verified = VerifiedBytes(REF, remote.opened(tmp_path))
    verified.verify(0, 10)
    sweep(tmp_path, 0)
    assert verified.slice(0, len(CONTENT)).to_pybytes() == CONTENT


@pytest.mark.parametrize("setting", [{"STATESTORE_CACHE_BYTES": "0"}, {"STATESTORE_MMAP": "off"}])
def test_nothing_need_be_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: dict[str, str]) -> None:
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    verified = VerifiedBytes(REF, Remote().opened(tmp_path, "in memory"))
    assert verified.slice(0, len(CONTENT)).to_pybytes() == CONTENT
    assert list(tmp_path.iterdir()) == []


def test_a_bound_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATESTORE_CACHE_BYTES", "10 GiB")
    with pytest.raises(InvalidInputError, match=r"INVALID_SETTING.*STATESTORE_CACHE_BYTES.*'10 GiB'"):
        object_cache.cache_bytes()


def test_other_copies_make_room_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    VerifiedBytes(REF, Remote().opened(tmp_path, "old")).verify_all()
    old, is_full = {path.name for path in tmp_path.iterdir()} - {".lock"}, False
    write = os.pwrite

    def full(file: int, data: memoryview, offset: int) -> int:
        if is_full or old & {path.name for path in tmp_path.iterdir()}:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    remote = Remote()
    assert VerifiedBytes(REF, remote.opened(tmp_path, "new")).slice(0, len(CONTENT)).to_pybytes() == CONTENT
    monkeypatch.setattr(
        os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device"))
    )
    with pytest.raises(StorageError, match=r"DISK_FAILED.*free space"):
        VerifiedBytes(REF, Remote().opened(tmp_path, "newer")).verify_all()


def test_an_error_is_raised_when_no_work_goes_on() -> None:
    """The caller of a failed commit removes the objects that were made, and later ones would stay."""
    begun, failed, made = threading.Event(), threading.Event(), []

    def work(number: int) -> None:
        if number == 0:
            assert begun.wait(30)
            failed.set()
            raise ZeroDivisionError
        begun.set()
        assert failed.wait(30)
        made.append(number)

    with pytest.raises(ZeroDivisionError):
        object_cache.in_parallel(work, [0, 1])
    assert made == [1]


def test_parallel_work_may_begin_parallel_work_again() -> None:
    def level(depth: int) -> int:
        return 1 if depth == 0 else sum(object_cache.in_parallel(level, [depth - 1] * 3, 2))

    assert level(4) == 81
