"""Archives of test data, unpacked once for all processes of a run. Their files are shared: tests only read them.

The last process of the run removes them.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from support.paths import DATA

RUN = "PYTEST_XDIST_TESTRUNUID"  # the processes of one run have the same one


def unpacked(archive: Path, finish: Callable[[Path], None] = lambda _: None) -> Path:
    """The folder with the content of an archive of ``tests/data``; ``finish`` is called once, with the new folder."""
    name = archive.relative_to(DATA).as_posix().replace("/", "-").removesuffix(".tar.xz")
    folder = _folder_of_the_run() / name
    if not folder.exists():
        with folder.with_name(f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                made = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=folder.parent))
                with tarfile.open(archive) as packed:
                    packed.extractall(made, filter=_of_this_user)
                finish(made)
                made.chmod(0o755)
                made.rename(folder)
    return folder


def _of_this_user(member: tarfile.TarInfo, _: str) -> tarfile.TarInfo:
    """A member without its owner. The archives are our own: the filter ``data`` takes as long as all else."""
    return member.replace(uid=None, gid=None, uname=None, gname=None, deep=False)  # type: ignore[arg-type]


@cache
def _folder_of_the_run() -> Path:
    process = os.getpid()
    folder = Path(tempfile.gettempdir(), f"statestore-archives-{os.environ.get(RUN, process)}")
    folder.mkdir(exist_ok=True)
    users = os.open(folder / "users.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(users, fcntl.LOCK_SH)

    def leave() -> None:
        if os.getpid() != process:  # a fork, which has no lock of its own
            return
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(leave)
    return folder
