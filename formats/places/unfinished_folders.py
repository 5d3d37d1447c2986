"""Folders of an object store as they will be: the objects that are there, and files that are still in memory.

Objects cannot be renamed, so what makes a folder whole is put last. To read the folder before, as its readers will, it
is lent under a location of its own, ``unfinished://…``, for as long as a block lasts. It is read by the client that
writes it, and listed from what is known of it.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from statestore.formats.places.locations import UNFINISHED, Location, lend_filesystem, take_back_filesystem
from statestore.formats.places.object_clients import object_client
from statestore.formats.places.s3_objects import S3Object

_numbers = itertools.count(1)


@contextmanager
def unfinished_folder(location: Location, objects: Mapping[str, int], held: Mapping[str, bytes]) -> Iterator[Location]:
    """Lend the folder at a location: sizes of its objects, and contents of further files, by path below it.

    Other threads of this process may read it, other processes cannot.
    """
    client = object_client(location)
    lent = Location(location.path, UNFINISHED, str(next(_numbers)))
    prefix = f"{location.path}/" if location.path else ""
    handler = _Handler(
        client.store,
        client.identity,
        {f"{prefix}{path}": size for path, size in objects.items()},
        {f"{prefix}{path}": content for path, content in held.items()},
    )
    lend_filesystem(lent.authority, pafs.PyFileSystem(handler))
    try:
        yield lent
    finally:
        take_back_filesystem(lent.authority)


class _Handler(pafs.FileSystemHandler):  # type: ignore[misc]
    """A file system of paths that are known. It is only read."""

    def __init__(self, store: Any, identity: str, objects: Mapping[str, int], held: Mapping[str, bytes]) -> None:
        self._store, self._identity, self._objects, self._held = store, identity, objects, held
        self._names: dict[str, dict[str, pafs.FileInfo]] = {"": {}}
        for path, size in (*objects.items(), *((path, len(content)) for path, content in held.items())):
            self._add(pafs.FileInfo(path, pafs.FileType.File, size=size))

    def _add(self, info: pafs.FileInfo) -> None:
        folder = posixpath.dirname(info.path)
        if folder not in self._names:
            self._names[folder] = {}
            self._add(pafs.FileInfo(folder, pafs.FileType.Directory))
        self._names[folder][info.base_name] = info

    def get_type_name(self) -> str:
        return UNFINISHED

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> pafs.FileInfo:
        path = path.rstrip("/")
        if path in self._names:
            return pafs.FileInfo(path, pafs.FileType.Directory)
        found = self._names.get(posixpath.dirname(path), {}).get(posixpath.basename(path))
        return found or pafs.FileInfo(path, pafs.FileType.NotFound)

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        base = selector.base_dir.rstrip("/")
        if base not in self._names:
            if selector.allow_not_found:
                return []
            raise FileNotFoundError(base)
        found = list(self._names[base].values())
        if selector.recursive:
            for info in [each for each in found if each.type == pafs.FileType.Directory]:
                found += self.get_file_info_selector(pafs.FileSelector(info.path, recursive=True))
        return found

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        if path in self._held:
            return pa.BufferReader(self._held[path])
        if path not in self._objects:
            raise FileNotFoundError(path)
        # An object of S3Object is one of any store: its path begins with a bucket, which the client knows.
        found = S3Object(self._store, self._identity, f"/{path}", self._objects[path])
        return pa.PythonFile(_ObjectFile(found), mode="r")

    def _refuse(self, *_: object) -> Any:
        raise OSError("the folder is only read")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse


class _ObjectFile:
    """An object as a file that is read at any place."""

    def __init__(self, found: S3Object) -> None:
        self._object, self._at, self.closed = found, 0, False

    def read(self, size: int = -1) -> bytes:
        assert self._object.size is not None
        left = self._object.size - self._at
        data = self._object.read_at(self._at, left if size < 0 else min(size, left))
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        assert self._object.size is not None
        self._at = offset + (0, self._at, self._object.size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self.closed = True
