"""Opening the files of a store: regular files only, without blocking, mapped or read as the user chose.

Opening a FIFO in the place of a file would block for ever, and a device might return bytes without end. So a file is
opened without blocking, and its type is checked before a byte of it is read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, StateStoreError
from statestore.formats.places.disk_errors import storage_error

MAPPING = "STATESTORE_MMAP"
"""The environment variable that switches mapping off. It is read whenever a file is opened."""

MAX_METADATA_BYTES = 1 << 30
"""Upper bound of a log entry, log checkpoint or description. The size of a file that is read whole is checked first."""

_NEVER_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}
_CHUNK = 1 << 24
_COMPARED = 1 << 20


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """Open a regular file and return its descriptor; ``flags`` are those of ``os.open``.

    Raises FileNotFoundError or NotADirectoryError where there is no file, CorruptError NOT_A_FILE where something else
    has its name, StorageError DISK_FAILED where the system refuses.
    """
    with _errors("open", path):
        descriptor = os.open(path, flags | _NEVER_WAIT, 0o644)
    try:
        with _errors("open", path):
            mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise _not_a_file(path, _kind(mode))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_strange(path: str | os.PathLike[str]) -> bool:
    """Return whether something other than a file, or a link to one, has this name.

    That is one look at the name: of two, a file that is removed between them would be strange.
    """
    try:
        return not stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:
        return False


def read_regular_once(name: str, most: int, *, within: int | None = None) -> bytes | None:
    """Read a file whose size is expected to be small: at most ``most`` bytes and one more; None for what is no file.

    ``within``: the descriptor of the folder of the name. Raises OSError as the system does.
    """
    descriptor = os.open(name, os.O_RDONLY | _NEVER_WAIT, dir_fd=within)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        found = os.read(descriptor, min(status.st_size, most) + 1)
        if len(found) != status.st_size:  # it changed, or the system returned a part of it
            parts = [found]
            while sum(map(len, parts)) <= most and (part := os.read(descriptor, _CHUNK)):
                parts.append(part)
            found = b"".join(parts)
    finally:
        os.close(descriptor)
    return found


def read_regular(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """Read the whole file. Raises as `open_regular`, and CorruptError FILE_TOO_LARGE for more than ``most`` bytes."""
    descriptor = open_regular(path)
    try:
        with _errors("read", path):
            size = os.fstat(descriptor).st_size
            if most is not None and size > most:
                raise too_large(path, size, most)
            parts: list[bytes] = []
            while part := os.read(descriptor, min(size + 1, _CHUNK)):
                parts.append(part)
                if most is not None and sum(map(len, parts)) > most:  # the file grew while it was read
                    raise too_large(path, sum(map(len, parts)), most)
    finally:
        os.close(descriptor)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def same_content(path: str, other: str) -> bool:
    """Return whether two regular files have the same bytes, or there is nothing at both paths; False also for files
    that cannot be read."""
    with contextlib.ExitStack() as opened:
        try:
            files = [opened.enter_context(stream_regular(each)) for each in (path, other)]
            if os.path.sameopenfile(*(file.fileno() for file in files)):
                return True
            while True:
                parts = [file.read(_COMPARED) for file in files]
                if parts[0] != parts[1] or not parts[0]:
                    return parts[0] == parts[1]
        except FileNotFoundError:
            return not os.path.lexists(path) and not os.path.lexists(other)
        except (OSError, StateStoreError):
            return False


def map_regular(path: str | os.PathLike[str]) -> pa.Buffer:
    """The bytes of the whole file: mapped, or read where ``STATESTORE_MMAP`` is off.

    Raises as `open_regular`, and InvalidInputError INVALID_OPTION.
    """
    if not is_mapping():
        return pa.py_buffer(read_regular(path))
    descriptor = open_regular(path)
    try:
        with _errors("map", path):
            if os.fstat(descriptor).st_size == 0:
                return pa.py_buffer(b"")
            # By path, because Python's mmap would keep a descriptor open.
            with pa.memory_map(os.fsencode(path)) as mapped:
                return mapped.read_buffer()
    finally:
        os.close(descriptor)


def stream_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open the file for reading. Raises as `open_regular`."""
    return os.fdopen(open_regular(path), "rb")


def is_mapping() -> bool:
    """Return whether files are mapped.

    Raises InvalidInputError INVALID_OPTION for a value that is neither on nor off.
    """
    value = os.environ.get(MAPPING, "on")
    if value not in ("on", "off"):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"the environment variable {MAPPING} is {value!r}; set it to on or off, or unset it",
        )
    return value == "on"


def too_large(path: object, size: int, most: int) -> CorruptError:
    return CorruptError(
        ErrorCode.FILE_TOO_LARGE, f"{path} has {size} bytes, expected at most {most}; restore the file from a copy"
    )


@contextlib.contextmanager
def _errors(doing: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise as `disk_errors`, except that FileNotFoundError stays, and a file of the wrong type is named."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, StateStoreError):
        raise
    except OSError as error:
        raise _irregular_file(path, error) or storage_error(error, doing, path) from error
    except ValueError as error:  # a NUL in the path
        raise InvalidInputError(ErrorCode.INVALID_LOCATION, f"{os.fspath(path)!r} is no path ({error})") from None


def _irregular_file(path: str | os.PathLike[str], error: OSError) -> CorruptError | None:
    """The error that names another kind of file under this path, if that is why it cannot be read; else None."""
    if error.errno == errno.ELOOP:
        return _not_a_file(path, "a symbolic link that leads back to itself")
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return None
    return None if stat.S_ISREG(mode) else _not_a_file(path, _kind(mode))


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), f"a file of mode {mode:#o}")


def _not_a_file(path: object, found: str) -> CorruptError:
    return CorruptError(
        ErrorCode.NOT_A_FILE, f"{path} is {found}, expected a regular file; restore the file from a copy"
    )
