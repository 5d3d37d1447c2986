"""The part of `test_fault_library` that runs in children."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from faults.library import Faults


def write_a_file(folder: str, kinds: Sequence[str], way: str, at: int, errno: int) -> str:
    """Write abcd, ef and gh, sync and rename; return the resulting files."""
    faults, path = Faults(), Path(folder) / "a"
    faults.below(Path(folder))
    faults.arm(kinds, way, at, errno)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        for piece in (b"abcd", b"ef", b"gh"):
            os.write(file, piece)
        os.fsync(file)
        path.rename(Path(folder) / "b")
    except OSError as error:
        faults.disarm()
        return f"{'EIO' if error.errno == errno else error} after {path.read_text() if path.exists() else 'nothing'}"
    faults.disarm()
    return f"{(Path(folder) / 'b').read_text()} {faults.count} calls"


def write_elsewhere(folder: str, other: str) -> str:
    faults = Faults()
    faults.below(Path(folder))
    faults.arm(("write", "open to write"), "from then on", 1, 5)
    path = Path(f"{folder}x")  # a longer name that begins with the folder's is not below it
    path.write_text("abcd")
    path.unlink()
    (Path(other) / "a").write_text("abcdefgh")
    faults.disarm()
    return (Path(other) / "a").read_text()


def move_the_clock(folder: str, days: int) -> dict[str, Any]:
    faults, before = Faults(), time.time()
    faults.clock(days * 86_400)
    file, other = Path(folder) / "file", Path(folder) / "other"
    file.write_text("file")
    other.write_text("other")
    faults.swap(str(file), other)
    return {"days": round((time.time() - before) / 86_400), "swapped": file.read_text()}


def record(folder: str, trace: str) -> None:
    """Make every form of a call that the trace must follow."""
    faults, root = Faults(), Path(folder)
    faults.below(root)
    faults.trace(Path(trace))
    (root / "sub").mkdir()
    sub = os.open(root / "sub", os.O_RDONLY)
    file = os.open("a", os.O_RDWR | os.O_CREAT, 0o644, dir_fd=sub)
    os.write(file, b"one")
    os.writev(file, [b"tw", b"o!"])
    os.ftruncate(file, 5)
    os.fsync(file)
    os.pwrite(file, b"X", 1)
    faults.mark("a mark")
    os.link("a", root / "b", src_dir_fd=sub)
    os.unlink("a", dir_fd=sub)
    unnamed = os.open(root, os.O_TMPFILE | os.O_WRONLY, 0o644)
    os.write(unnamed, b"unnamed")
    os.link(f"/proc/self/fd/{unnamed}", root / "c", src_dir_fd=sub, follow_symlinks=True)
    (root / "c").rename(root / "d")
    parent = os.open(root, os.O_RDONLY)
    os.fsync(parent)
    for each in (sub, file, unnamed, parent):
        os.close(each)
