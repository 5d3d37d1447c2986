"""File systems of fsspec as those of pyarrow, whose failures are OSErrors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs


def fsspec_files(filesystem: Any) -> pafs.FileSystem:
    """Return a file system of fsspec as one of pyarrow, whose failures are OSErrors."""
    return pafs.PyFileSystem(_Handler(filesystem))


@contextmanager
def _os_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


class _Handler(pafs.FSSpecHandler):  # type: ignore[misc]
    """The handler of pyarrow, which takes a folder that cannot be asked for as one that does not exist.

    Many file systems of fsspec keep their listings as long as the process lives. In an old listing what an engine has
    removed is still there, and what it has written since is not, so the keeping is turned off.
    """

    def __init__(self, filesystem: Any) -> None:
        super().__init__(filesystem)
        kept: Any = getattr(filesystem, "dircache", None)
        if hasattr(kept, "use_listings_cache"):
            kept.use_listings_cache = False
            kept.clear()

    def __reduce__(self) -> tuple[object, ...]:
        return _Handler, (self.fs,)

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        with _os_errors():
            found: list[pafs.FileInfo] = super().get_file_info(paths)
            return found

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        (base,) = self.get_file_info([selector.base_dir])
        if base.type == pafs.FileType.NotFound and selector.allow_not_found:
            return []
        with _os_errors():
            if selector.recursive or base.type != pafs.FileType.Directory:
                found: list[pafs.FileInfo] = super().get_file_info_selector(selector)
                return found
            listed = self.fs.ls(selector.base_dir, detail=True)  # fsspec's find leaves out what it cannot list
            own = selector.base_dir.strip("/")
            return [self._create_file_info(each["name"], each) for each in listed if each["name"].strip("/") != own]

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self._opened(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self._opened(path)

    def _opened(self, path: str) -> pa.NativeFile:
        (info,) = self.get_file_info([path])
        if info.type != pafs.FileType.File:
            raise FileNotFoundError(path)
        with _os_errors():
            return pa.PythonFile(_File(self.fs.open(path, mode="rb")), mode="r")


class _File:
    """An open file of fsspec whose failures are OSErrors."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        with _os_errors():
            found: bytes = self._file.read(size)
            return found

    def seek(self, offset: int, whence: int = 0) -> int:
        with _os_errors():
            position: int = self._file.seek(offset, whence)
            return position

    def tell(self) -> int:
        with _os_errors():
            position: int = self._file.tell()
            return position

    def close(self) -> None:
        with _os_errors():
            self._file.close()

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)
