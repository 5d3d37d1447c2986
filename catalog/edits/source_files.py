"""The files of a source, by which a change of it during an edit is noticed.

A job that runs on while its state is edited would go on from state that the target does not have, and a copy of files
that change is a copy of nothing. So the listing is taken before anything is planned, and again when all is done.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from statestore.catalog.edits.target_errors import source_changed
from statestore.formats.edits import CopiedFile
from statestore.formats.engine import Source
from statestore.formats.errors import InvalidInputError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.folder import Folder
from statestore.formats.places.foreign_storages import STORAGE_ERRORS
from statestore.formats.places.locations import Location, bucket_of, no_access, parse_location

MOST_TOLD = 3
Seen = tuple[int, int | None, int]
"""Size, time of modification and number of a file."""


@dataclass(frozen=True)
class SourceFiles:
    """A listing: the files below a local source by relative path, and folders elsewhere by path and name."""

    root: str | None
    found: Mapping[str, Seen]

    @property
    def sizes(self) -> dict[str, int]:
        return {path: seen[0] for path, seen in self.found.items()}

    def check(self, now: SourceFiles) -> None:
        """Raise ConflictError SOURCE_CHANGED where a later listing differs."""
        before, after = self.found, now.found
        told = [f"{path} is new" for path in sorted(after.keys() - before.keys())]
        told += [f"{path} is gone" for path in sorted(before.keys() - after.keys())]
        told += [f"{path} was written" for path in sorted(before.keys() & after.keys()) if before[path] != after[path]]
        if told:
            left = len(told) - MOST_TOLD
            raise source_changed([*told[:MOST_TOLD], *([f"and {left} more"] if left > 0 else [])])


def place_of(source: Source) -> Location | None:
    """Return the folder or file of a source, without its options; None for one that has none, such as topics of a
    broker."""
    try:
        return parse_location(source.path)
    except InvalidInputError:
        return None


def local_root(source: Source) -> Path | None:
    """Return the local folder or file of a source; None for one elsewhere."""
    location = place_of(source)
    return Path(location.path) if location is not None and location.is_local else None


def files_of(source: Source) -> SourceFiles:
    """Return the files below a local source, hidden ones, too; of one elsewhere none."""
    root = local_root(source)
    if root is None:
        return SourceFiles(None, {})
    found: dict[str, Seen] = {}
    with disk_errors("list", root):
        if not root.is_dir():
            return SourceFiles(str(root), {root.name: _seen(os.stat(root))} if root.exists() else {})  # noqa: PTH116
        _list(str(root), "", found)
    return SourceFiles(str(root), found)


def _list(folder: str, below: str, found: dict[str, Seen]) -> None:
    try:
        listed = list(os.scandir(folder))
    except FileNotFoundError:  # removed meanwhile: so are its files
        return
    for entry in listed:
        path = f"{below}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            _list(entry.path, f"{path}/", found)
            continue
        try:
            found[path] = _seen(entry.stat())
        except FileNotFoundError:
            found[path] = (-1, None, 0)  # a link to nothing, or removed meanwhile


def _seen(status: os.stat_result) -> Seen:
    size = status.st_size if stat.S_ISREG(status.st_mode) else -1
    return size, status.st_mtime_ns, status.st_ino


def with_copied(listed: SourceFiles, place: Location | None, files: Iterable[CopiedFile]) -> SourceFiles:
    """Return the listing with what it does not cover of a source at ``place``: the files of a folder in another
    storage, all of them if one is copied, and of other folders those that are copied."""
    found = dict(listed.found)
    base = None if place is None or place.is_local else _path_in_storage(place)
    whole: dict[str, Folder] = {}
    root = None if listed.root is None else os.path.realpath(listed.root)

    @cache
    def is_listed(path: str) -> bool:
        """Return whether a local folder lies below the root: not by a link, which the listing does not follow."""
        inside = Path(path).is_relative_to(listed.root or path)
        return inside and os.path.realpath(path) == os.path.normpath(f"{root}/{os.path.relpath(path, listed.root)}")

    folders: dict[str, tuple[Folder, set[str]]] = {}
    for file in files:
        folder = file.folder
        if folder.is_local and listed.root is not None and is_listed(folder.path):
            continue
        if base is not None and not folder.is_local and f"{folder.path}/".startswith(f"{base}/"):
            whole[base] = folder
        else:
            folders.setdefault(folder.path, (folder.fresh(), set()))[1].add(file.name)
    for path, folder in whole.items():
        found |= _files_below(folder, path)
    for path, (folder, names) in folders.items():
        for entry in folder.entries():
            if entry.base_name in names:
                found[f"{path}/{entry.base_name}"] = (entry.size or 0, entry.mtime_ns, 0)
    return SourceFiles(listed.root, found)


def _path_in_storage(place: Location) -> str:
    """The path by which pyarrow knows a location: with the bucket before it."""
    bucket = bucket_of(place)
    return f"{bucket}/{place.path}".rstrip("/") if bucket else place.path


def _files_below(folder: Folder, path: str) -> dict[str, Seen]:
    """Return the files below a path in the storage of a folder. Raises InvalidInputError NO_ACCESS."""
    import pyarrow.fs as pafs

    storage: Any = folder.filesystem
    try:
        listed = storage.get_file_info(pafs.FileSelector(path, allow_not_found=True, recursive=True))
    except STORAGE_ERRORS as error:
        raise no_access(path, error) from error
    return {info.path: (info.size or 0, info.mtime_ns, 0) for info in listed if info.type == pafs.FileType.File}
