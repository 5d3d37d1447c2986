"""The fault library (syscalls.c): built once a session, and driven from inside a process that it was preloaded into."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("syscalls.c")
WAYS = ("never", "once", "from then on", "short", "kill", "kill after", "pause")
KINDS = (
    "open to read", "open to write", "read", "write", "sync", "link", "rename", "unlink", "mkdir", "truncate", "map",
    "lock", "look",
)  # fmt: skip
CHANGING = ("open to write", "write", "sync", "link", "rename", "unlink", "mkdir", "truncate")
DOING = tuple(kind for kind in KINDS if kind != "look")
PRELOADED = "STATESTORE_FAULT_LIBRARY"


@functools.cache
def built_library() -> Path:
    """The shared object; skips the test on a machine without a C compiler (STATESTORE_CC=required: fails it)."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        if os.environ.get("STATESTORE_CC") == "required":
            pytest.fail("no C compiler `cc`, which the fault library needs")
        pytest.skip(
            "no C compiler `cc`: system calls cannot be made to fail; install one (apt-get install gcc libc6-dev)"
        )
    folder = Path(tempfile.mkdtemp(prefix="statestore-faults-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / "faults.so"
    command = [compiler, "-O1", "-Wall", "-shared", "-fPIC", "-o", str(target), str(SOURCE), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


class Faults:
    """The library inside the present process, which must have been started with it (`faults.children`)."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ[PRELOADED])
        longs = [ctypes.c_long] * 4
        self._library.faults_arm.argtypes = [*longs, ctypes.c_char_p]
        self._library.faults_count.restype = ctypes.c_long
        self._library.faults_count_of.restype = ctypes.c_long
        self._library.faults_clock.argtypes = [ctypes.c_long]

    def below(self, folder: Path) -> None:
        """Count only calls for files in this folder."""
        self._library.faults_below(os.fsencode(folder))

    def arm(self, kinds: Iterable[str], way: str, at: int, errno: int = 0, gate: str = "") -> None:
        """Strike the call number ``at`` of these kinds in this way from now on."""
        chosen = sum(1 << KINDS.index(kind) for kind in kinds)
        self._library.faults_arm(chosen, WAYS.index(way), at, errno, gate.encode())

    def disarm(self) -> None:
        self._library.faults_disarm()

    @property
    def count(self) -> int:
        """Calls of the kinds since ``arm``."""
        return int(self._library.faults_count())

    @property
    def counts(self) -> dict[str, int]:
        """Calls of each requested kind since ``arm``."""
        return {kind: int(self._library.faults_count_of(number)) for number, kind in enumerate(KINDS)}

    @property
    def fired(self) -> bool:
        return bool(self._library.faults_fired())

    def trace(self, file: Path) -> None:
        """Write every call that changes the disk to ``file`` from now on."""
        self._library.faults_trace(os.fsencode(file))

    def mark(self, text: str) -> None:
        """Put a line of text into the trace, in its order among the calls."""
        self._library.faults_mark(text.encode())

    def clock(self, seconds: int) -> None:
        """Move the time of day, like a machine whose clock is wrong by this much."""
        self._library.faults_clock(seconds)

    def swap(self, file: str, other: Path) -> None:
        """Open ``other`` for every open of ``file``."""
        self._library.faults_swap(file.encode(), os.fsencode(other))
