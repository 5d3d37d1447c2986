"""Claims, which keep the files of a commit that is under way from vacuum.

A writer takes a claim before it creates data files. It gives the claim up when the commit that names the files exists,
or when it abandons the commit. The names of the files begin with the claim's id. Vacuum removes an unreferenced file
only if no writer holds its claim, and it checks the claims before it reads the log, so no clock decides. A claim is a
lock of the operating system on a file below ``claims/``: a writer that dies loses it, a writer that stalls keeps it.

A *gate* is a lock on the folder of claims, and another on the folder of changelogs. A writer holds it, shared, while it
makes a file there. A rebuild holds both alone while it looks for such files and exchanges the stores.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from statestore.catalog.log.storage import Storage, local_root
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.file_presence import names_in

FOLDER = "claims"
DIGITS = 16
CLAIM = re.compile(rf"{FOLDER}/[0-9a-f]{{{DIGITS}}}")
CLAIMED_FILE = re.compile(
    rf"segments/([0-9a-f]{{{DIGITS}}})[0-9a-f]{{{32 - DIGITS}}}(?:\.index|\.closures|\.moves)?\.arrow"
)


@contextlib.contextmanager
def claim(storage: Storage) -> Iterator[str]:
    """Hold a new claim and yield its id, with which the names of new files begin.

    Object stores have no locks. There the id is empty, and vacuum decides by age alone.
    """
    root = local_root(storage)
    if root is None:
        yield ""
        return
    with disk_errors("claim the files of a commit in", root), at_gate(root / FOLDER):
        path, file = _take(root)
    try:
        yield path.name
    finally:
        with contextlib.suppress(OSError):  # vacuum removes an unlocked claim
            path.unlink()
        os.close(file)


@contextlib.contextmanager
def at_gate(folder: Path) -> Iterator[None]:
    """Hold the gate of a folder, shared with other writers; wait while a rebuild holds it. The folder is made if it
    does not exist.

    The store may have been replaced meanwhile, which the caller finds out by its identity.
    """
    gate = _open_folder(folder)
    try:
        fcntl.flock(gate, fcntl.LOCK_SH)
        yield
    finally:
        os.close(gate)


@contextlib.contextmanager
def alone_at_gates(folders: Iterable[Path]) -> Iterator[bool]:
    """Hold the gates of folders alone, so that no writer makes a file there; yield False if writers are at them."""
    with contextlib.ExitStack() as held:
        try:
            for folder in folders:
                gate = _open_folder(folder)
                held.callback(os.close, gate)
                fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _open_folder(folder: Path) -> int:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        folder.mkdir(exist_ok=True)
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def held_claims(root: Path, ids: Iterable[str]) -> set[str]:
    """Return the claims among ``ids`` that a living writer holds."""
    return {name for name in ids if not _abandoned(root / FOLDER / name)}


def remove_abandoned_claims(root: Path) -> None:
    """Remove the claims of writers that died."""
    for name in names_in(root / FOLDER):
        if CLAIM.fullmatch(f"{FOLDER}/{name}"):
            _abandoned(root / FOLDER / name)


def any_claim_held(root: Path) -> bool:
    """Return whether a commit is under way in the store at ``root``."""
    return bool(held_claims(root, claims_in(root)))


def claims_in(root: Path) -> list[str]:
    """Return all claims, held or abandoned, of the store at ``root``."""
    return [name for name in names_in(root / FOLDER) if CLAIM.fullmatch(f"{FOLDER}/{name}")]


def _take(root: Path) -> tuple[Path, int]:
    folder = root / FOLDER
    while True:
        path = folder / uuid.uuid4().hex[:DIGITS]
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileNotFoundError:
            folder.mkdir(exist_ok=True)
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:  # otherwise vacuum removed the file between the two calls
                return path, file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _abandoned(path: Path) -> bool:
    """Return whether no writer holds a claim, and remove an abandoned one."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except OSError:
        return False
    finally:
        os.close(file)
    return True
