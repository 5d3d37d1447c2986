"""Results kept of local files: used while these are unchanged, made again after any change, bounded in bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from statestore.formats.places import fetched_parts, kept_results
from statestore.formats.places.file_stamps import settled_stamps, stamp_of
from statestore.formats.places.kept_results import MOST_BYTES, OVERHEAD, kept_bytes, kept_result

pytestmark = pytest.mark.usefixtures("settled")


def changed(path: Path, change: Callable[[], object]) -> None:
    """Change a file until the system's clock has moved on, so that it has another stamp."""
    before = stamp_of(str(path))
    while True:
        change()
        if stamp_of(str(path)) != before:
            return


def read(path: Path, made: list[bytes]) -> bytes:
    def make() -> tuple[bytes, int]:
        made.append(path.read_bytes() if path.exists() else b"")
        return made[-1], len(made[-1])

    return kept_result("content", [str(path)], make)


def test_a_result_is_made_again_only_after_a_change(tmp_path: Path) -> None:
    path, other, made = tmp_path / "file", tmp_path / "other", list[bytes]()
    path.write_bytes(b"one")
    other.write_bytes(b"six")
    begun = path.stat()

    def restored() -> None:
        path.write_bytes(b"two")
        os.utime(path, ns=(begun.st_atime_ns, begun.st_mtime_ns))  # as a copy that keeps times

    assert [read(path, made), read(path, made)] == [b"one", b"one"]
    changed(path, restored)
    assert [read(path, made), read(path, made)] == [b"two", b"two"]
    changed(path, lambda: other.exists() and other.replace(path))
    assert [read(path, made), read(path, made)] == [b"six", b"six"]
    path.unlink()
    assert [read(path, made), read(path, made)] == [b"", b""]
    path.write_bytes(b"new")
    assert [read(path, made), read(path, made)] == [b"new", b"new"]
    assert made == [b"one", b"two", b"six", b"", b"new"]


def test_a_file_that_changed_a_moment_ago_is_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched_parts, "SETTLED_SECONDS", 3600.0)
    path, made = tmp_path / "file", list[bytes]()
    path.write_bytes(b"one")
    assert [read(path, made), read(path, made)] == [b"one", b"one"]
    assert len(made) == 2
    assert settled_stamps([str(path)], path.stat().st_ctime + 3600.1) is not None


def test_a_change_while_a_result_is_made_is_seen(tmp_path: Path) -> None:
    path, made = tmp_path / "file", list[int]()
    path.write_bytes(b"one")

    def make() -> tuple[int, int]:
        made.append(len(made))
        if len(made) == 1:
            changed(path, lambda: path.write_bytes(b"two"))
        return made[-1], 1

    assert [kept_result("number", [str(path)], make) for _ in range(3)] == [0, 1, 1]


def test_what_is_kept_is_bounded_and_what_was_used_last_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_results, "MOST_OF_A_RESULT", MOST_BYTES // 4)
    path, made = tmp_path / "file", list[int]()
    path.write_bytes(b"one")

    def ask(number: int, size: int) -> None:
        def make() -> tuple[int, int]:
            made.append(number)
            return number, size

        kept_result(number, [str(path)], make)

    fitting = MOST_BYTES // 4 - OVERHEAD
    for number in (0, 1, 2, 3, 0, 4, 0):
        ask(number, fitting)
        assert kept_bytes() <= MOST_BYTES
    assert made == [0, 1, 2, 3, 4]
    ask(1, fitting)
    ask(0, fitting)
    assert made == [0, 1, 2, 3, 4, 1]
    ask(5, MOST_BYTES)
    ask(5, MOST_BYTES)
    assert made[-2:] == [5, 5]
    assert kept_bytes() <= MOST_BYTES
