"""Leases on versions: who has them, and that they end with their holder."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from support.open_files import open_below

from statestore.catalog.log.leases import (
    FIRST,
    FOLDER,
    LONGEST_US,
    Lease,
    _Lock,
    leased_versions,
    leave_lease,
    remove_expired_leases,
    take_lease,
)
from statestore.catalog.log.log_names import STORE_FILE

HOLDER = """
import sys
from pathlib import Path
from statestore.catalog.log.leases import take_lease
lease = take_lease(Path(sys.argv[1]), int(sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / STORE_FILE).write_bytes(b"{}")
    return tmp_path


def test_no_weak_reference_finds_a_lease_whose_lock_is_being_given_up(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a read of another thread would take such a lease, and vacuum would not see it."""
    lease = take_lease(root, 3)
    assert lease is not None
    reference, close, found = weakref.ref(lease), _Lock.__del__, []

    def closing(lock: _Lock) -> None:
        found.append(reference())
        close(lock)

    monkeypatch.setattr(_Lock, "__del__", closing)
    del lease
    assert found == [None] and leased_versions(root) == set()


def test_a_lease_lasts_as_long_as_its_object(root: Path) -> None:
    assert leased_versions(root) == set()
    held = [take_lease(root, version) for version in (7, 0, 10**18 - 1, 7)]
    assert all(held) and leased_versions(root) == {0, 7, 10**18 - 1}
    held.pop()
    assert leased_versions(root) == {0, 7, 10**18 - 1}, "one of two leases on the version is left"
    held.pop(0)
    assert leased_versions(root) == {0, 10**18 - 1}
    held.clear()
    assert leased_versions(root) == set()


def test_many_leases_are_all_found(root: Path) -> None:
    held = [take_lease(root, version) for version in range(0, 600, 3)]
    assert leased_versions(root) == set(range(0, 600, 3))
    del held


def test_nothing_is_written_for_a_lease(root: Path) -> None:
    """So a user who may only read the store has leases, too."""
    (root / STORE_FILE).chmod(0o444)
    held = take_lease(root, 3)
    assert held is not None and leased_versions(root) == {3}
    assert [path.name for path in root.iterdir()] == [STORE_FILE]
    assert (root / STORE_FILE).read_bytes() == b"{}"


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_lease_ends_with_its_process(root: Path, how: signal.Signals) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root), "5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        assert leased_versions(root) == {5}
        holder.send_signal(how)
        holder.wait()
    assert leased_versions(root) == set()


def test_a_fork_keeps_the_lease_of_a_read_that_it_inherits(root: Path) -> None:
    held: list[Any] = [take_lease(root, 4)]
    inside, outside = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(outside)
        os.read(inside, 1)  # until the parent has closed its end
        os._exit(0)
    os.close(inside)
    held.clear()
    assert leased_versions(root) == {4}
    os.close(outside)
    os.waitpid(child, 0)
    assert leased_versions(root) == set()


def test_a_lease_does_not_leave_its_process(root: Path) -> None:
    lease = take_lease(root, 1)
    assert pickle.loads(pickle.dumps(("split", lease))) == ("split", None)
    del lease
    gc.collect()
    assert leased_versions(root) == set()


def test_a_lease_leaves_no_descriptor(root: Path) -> None:
    before = open_below(root)
    for version in range(100):
        take_lease(root, version)
        leased_versions(root)
    assert open_below(root) == before


def test_where_the_store_is_gone_there_is_no_lease(tmp_path: Path) -> None:
    assert take_lease(tmp_path / "dropped", 1) is None
    assert leased_versions(tmp_path / "dropped") is None


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EINVAL, errno.EOPNOTSUPP])
def test_where_there_are_no_locks_nothing_is_known(root: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*given: Any) -> bytes:
        raise OSError(code, os.strerror(code))

    before = open_below(root)
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    assert take_lease(root, 1) is None
    assert leased_versions(root) is None
    assert open_below(root) == before


def test_a_foreign_lock_is_no_lease(root: Path) -> None:
    """A lock over all bytes says nothing about versions, and must not be taken for 10^18 leases."""
    with (root / STORE_FILE).open("rb") as file:
        lock = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, FIRST, 0, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
        assert leased_versions(root) is None
    assert leased_versions(root) == set()


def test_a_timed_lease_ends_by_the_clock(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_lease(root, 12, seconds=60)
    leave_lease(root, 13, seconds=600)
    held = take_lease(root, 14)
    assert leased_versions(root) == {12, 13, 14}
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 61 * 10**9)
    assert leased_versions(root) == {13, 14}
    remove_expired_leases(root)
    assert len(list((root / FOLDER).iterdir())) == 1
    monkeypatch.setattr(time, "time_ns", lambda: now + 601 * 10**9)
    remove_expired_leases(root)
    assert list((root / FOLDER).iterdir()) == [] and leased_versions(root) == {14}
    assert isinstance(held, Lease)


def test_a_timed_lease_that_claims_to_last_for_years_is_ignored(root: Path) -> None:
    (root / FOLDER).mkdir()
    late = time.time_ns() // 1000 + 2 * LONGEST_US
    for name in (f"{5:020}-{late:020}-{'a' * 16}", "5", f"{5:020}-{'9' * 20}-{'a' * 16}.tmp", "notes.txt"):
        (root / FOLDER / name).write_bytes(b"")
    assert leased_versions(root) == set()
    remove_expired_leases(root)
    assert sorted(path.name for path in (root / FOLDER).iterdir()) == sorted(
        ["5", f"{5:020}-{'9' * 20}-{'a' * 16}.tmp", "notes.txt"]
    )


def test_a_store_that_cannot_be_written_gets_no_timed_lease(root: Path) -> None:
    (root / FOLDER).write_bytes(b"a file, where the folder would be")
    leave_lease(root, 1, seconds=60)
    assert leased_versions(root) == set()
