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
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.folder import Folder, folder_at
from statestore.formats.places.foreign_storages import STORAGE_ERRORS
from statestore.formats.places.locations import no_access
from statestore.formats.places.s3_objects import s3_object

MOST_TOLD = 3
Seen = tuple[int, int | None, int | str]
"""Size, time of modification and number of a file; of an object of S3 its entity tag in place of the number."""


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


def local_root(source: Source) -> Path | None:
    """Return the local folder or file of a source; None for one elsewhere."""
    location = source.place
    return Path(location.path) if location is not None and location.is_local else None


def files_of(source: Source) -> SourceFiles:
    """Return the files below the place of a source, hidden ones, too. Raises InvalidInputError NO_ACCESS."""
    root = local_root(source)
    if root is None:
        return SourceFiles(None, {} if source.place is None else _objects_at(folder_at(source.place)))
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


def with_copied(listed: SourceFiles, files: Iterable[CopiedFile]) -> SourceFiles:
    """Return the listing with what it does not cover: of other folders the files that are copied."""
    found = dict(listed.found)
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
        if f"{folder.path}/{file.name}" not in listed.found:
            folders.setdefault(folder.path, (folder.fresh(), set()))[1].add(file.name)
    for path, (folder, names) in folders.items():
        for entry in folder.entries():
            if entry.base_name in names:
                found[f"{path}/{entry.base_name}"] = (entry.size or 0, entry.mtime_ns, 0)
    return SourceFiles(listed.root, found)


def _objects_at(folder: Folder) -> dict[str, Seen]:
    """Return the files at and below a path of another storage. Raises InvalidInputError NO_ACCESS.

    An entity tag tells objects of one size apart that were put within one second, which is what S3 tells of times.
    """
    import pyarrow.fs as pafs

    storage: Any = folder.filesystem
    try:
        found = [storage.get_file_info(folder.path)]
        known = s3_object(storage, folder.path)
        if found[0].type != pafs.FileType.File and known is not None:
            return {path: (size, time_ns, tag) for path, size, time_ns, tag in known.below()}
        found += storage.get_file_info(pafs.FileSelector(folder.path, allow_not_found=True, recursive=True))
    except STORAGE_ERRORS as error:
        raise no_access(folder.path, error) from error
    return {info.path: (info.size or 0, info.mtime_ns, 0) for info in found if info.type == pafs.FileType.File}
