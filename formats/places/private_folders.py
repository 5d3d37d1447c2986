"""Folders of the user for what is made once: compiled code, scripts of a page. No other user may write there."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def private_folder(name: str, root: Path | None = None) -> Path | None:
    """Return the folder of a name below ``root``, by default in the user's cache or else in a folder for temporary
    files; None if none can be made in which no other user writes.
    """
    for each in [*_of_home(), _temporary()] if root is None else [root]:
        try:
            each.mkdir(mode=0o700, parents=True, exist_ok=True)  # a call of its own: parents get the umask's mode
            folder = each / name
            folder.mkdir(mode=0o700, exist_ok=True)
            if _is_private(each) and _is_private(folder) and os.access(folder, os.W_OK):
                return folder
        except OSError:
            continue
    return None


def _of_home() -> list[Path]:
    """The folder below the user's home. A user of a container may have no home."""
    try:
        return [Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "statestore"]
    except RuntimeError:
        return []


def _temporary() -> Path:
    return Path(tempfile.gettempdir()) / f"statestore-{os.getuid()}"


def _is_private(folder: Path) -> bool:
    found = folder.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & others
