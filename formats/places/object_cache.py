"""Local copies of immutable objects, fetched part by part and shared by the processes of a machine.

A copy is a file of the object's length in one folder, in which the parts that were not fetched are holes. Nothing
records which parts are there: whoever reads a part compares it with the checksum that a commit has of it, and fetches
it if they differ. So a copy that was torn by a crash, or damaged, is repaired by the next reader, and processes need no
agreement. Copies that were not used for the longest time go when all together exceed a bound.

``STATESTORE_CACHE`` names the folder (default: ``statestore/objects`` in the user's cache), ``STATESTORE_CACHE_BYTES``
the bound (default: 10 GiB; 0: nothing is kept on disk).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import resource
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.regular_files import is_mapping

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

FOLDER_VARIABLE, BYTES_VARIABLE = "STATESTORE_CACHE", "STATESTORE_CACHE_BYTES"
DEFAULT_BYTES = 10 << 30
PAGE_BYTES = 1 << 14
"""Unit of what is fetched: every range begins at a multiple of it."""

REQUEST_BYTES = 8 << 20  # a longer part is fetched by several requests at the same time
PARALLEL_REQUESTS = 32
PARALLEL_SMALL_REQUESTS = 64
SWEEP_BYTES = 64 << 20  # fetched by a process between two looks at the size of the folder

Item = TypeVar("Item")
Result = TypeVar("Result")
Part = tuple[int, int]
"""The bytes [start, stop) of an object."""
ReadPart = Callable[[int, int], bytes]
"""Read a part of an object."""


class CachedObject:
    """The bytes of an immutable object of ``size`` bytes: a buffer in which only fetched pages are valid."""

    def __init__(self, size: int, read: ReadPart, path: Path | None) -> None:
        self.size = size
        self.explain: Callable[[NotFoundError], NotFoundError] | None = None
        """Function that returns a fuller error where the object is gone; set by code that knows why it may be."""
        self.described: object = None
        """Knowledge of the object from verified bytes, which a reader leaves for the next one in this process."""
        self._read = read
        self._present = bytearray(-(-size // PAGE_BYTES))
        self._file: int | None = None
        self._memory: mmap.mmap | None = None
        self._folder = None if path is None else path.parent
        if path is None or not size:
            self._memory = mmap.mmap(-1, max(size, 1))
            self.buffer = pa.py_buffer(self._memory).slice(0, size)
            return
        self._file = _opened(path, size)
        weakref.finalize(self, os.close, self._file)
        with disk_errors("map", path), pa.memory_map(f"/dev/fd/{self._file}", "r+") as mapped:
            self.buffer = mapped.read_buffer()

    def is_present(self, start: int, stop: int) -> bool:
        """Return whether this process knows that the bytes [start, stop) were fetched; another process may have fetched
        others.
        """
        return self._present.find(0, start // PAGE_BYTES, -(-stop // PAGE_BYTES)) < 0

    def is_hole(self, start: int, stop: int) -> bool:
        """Return whether nobody has written the bytes [start, stop) of the copy, as far as that is known."""
        if self._file is None:
            return not self.is_present(start, stop)
        try:
            return os.lseek(self._file, start, os.SEEK_DATA) >= stop
        except OSError as error:
            return error.errno == errno.ENXIO  # there is no data behind

    def know(self, start: int, stop: int) -> None:
        """Record that the bytes [start, stop) were found in the copy; ``start`` is a multiple of PAGE_BYTES."""
        first, last = start // PAGE_BYTES, -(-stop // PAGE_BYTES)
        self._present[first:last] = b"\1" * (last - first)

    def fetch(self, parts: Iterable[Part]) -> None:
        """Fetch parts, neighbours by one request. Raises the errors of the object store; DISK_FAILED for the copy."""
        fetch_all([(self, part) for part in parts])

    def fetch_part(self, start: int, stop: int) -> None:
        """Fetch the bytes [start, stop) by one request."""
        try:
            data = self._read(start, stop)
        except NotFoundError as error:
            if self.explain is None:
                raise
            raise self.explain(error) from None
        self.store(start, data)
        self.know(-(-start // PAGE_BYTES) * PAGE_BYTES, stop)
        _count(stop - start)

    def keep(self, data: memoryview) -> None:
        """Write the whole object, which this process has just put, into the copy."""
        self.store(0, data)
        self.know(0, self.size)
        _count(len(data))

    def store(self, start: int, data: bytes | memoryview) -> None:
        """Write bytes of the object into the copy."""
        view = memoryview(data).cast("B")
        if self._memory is not None:
            self._memory[start : start + len(view)] = view
            return
        assert self._file is not None
        folder = self._folder
        with disk_errors("write the cache of objects in", folder):
            while len(view):
                try:
                    written = os.pwrite(self._file, view, start)
                except OSError as error:
                    if error.errno != errno.ENOSPC or folder is None or not sweep(folder, 0):
                        raise
                    continue  # other copies made room
                view, start = view[written:], start + written

    def link_to(self, target: Path) -> bool:
        """Give the copy another name, which nobody may write to; return False where that is not possible."""
        if self._file is None:
            return False
        try:
            # With a descriptor Python calls linkat, which follows the link to the copy, whatever became of its name.
            os.link(f"/proc/self/fd/{self._file}", target, src_dir_fd=self._file, follow_symlinks=True)
        except OSError:  # another file system, or one without such links
            return False
        return True


def fetch_all(wanted: Iterable[tuple[CachedObject, Part]]) -> None:
    """Fetch parts of several objects, with PARALLEL_REQUESTS at the same time."""
    of_object: dict[int, tuple[CachedObject, list[Part]]] = {}
    for found, part in wanted:
        of_object.setdefault(id(found), (found, []))[1].append(part)
    requests = [(found, request) for found, parts in of_object.values() for request in joined(parts)]
    in_parallel(lambda each: each[0].fetch_part(*each[1]), requests)


def joined(parts: Iterable[Part]) -> list[Part]:
    """Return the ranges that requests ask for: neighbours are joined, and long ranges are cut."""
    runs: list[Part] = []
    for start, stop in sorted(parts):
        if runs and start <= runs[-1][1]:
            runs[-1] = runs[-1][0], max(stop, runs[-1][1])
        else:
            runs.append((start, stop))
    return [(at, min(at + REQUEST_BYTES, stop)) for start, stop in runs for at in range(start, stop, REQUEST_BYTES)]


def in_parallel(work: Callable[[Item], Result], items: Sequence[Item], most: int = PARALLEL_REQUESTS) -> list[Result]:
    """Return what ``work`` returns for each item, in their order; up to ``most`` at the same time.

    The first error is raised when no work goes on any more.
    """
    if len(items) < 2:
        return [work(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor, wait

    if getattr(_worker, "is_one", False):  # its own pool may have no thread left
        with ThreadPoolExecutor(min(len(items), most), initializer=_begin_worker) as pool:
            return list(pool.map(work, items))
    with _objects_lock:
        kept = _pools.get(most)
        if kept is None:
            kept = _pools[most] = ThreadPoolExecutor(most, "statestore-requests", _begin_worker)
    begun = [kept.submit(work, item) for item in items]
    try:
        return [future.result() for future in begun]
    except BaseException:
        for future in begun:
            future.cancel()
        wait(begun)  # the caller may remove what they make
        raise


_worker = threading.local()
_pools: dict[int, ThreadPoolExecutor] = {}
"""Threads that wait for requests, by their number: to start some for each read would take as long as a request."""


def _begin_worker() -> None:
    _worker.is_one = True


_objects: weakref.WeakValueDictionary[str, CachedObject] = weakref.WeakValueDictionary()
_objects_lock = threading.Lock()
_fetched_bytes = 0


def _after_fork() -> None:
    """Replace the lock in a forked child, and forget the threads: the child does not have them."""
    global _objects_lock
    _objects_lock = threading.Lock()
    _pools.clear()


os.register_at_fork(after_in_child=_after_fork)


def cached_object(identity: str, size: int, read: ReadPart, folder: str | None = None) -> CachedObject:
    """Return the object with an ``identity`` that no other object ever has; it is shared in this process.

    ``folder`` is that of the cache, by default the one of the environment.
    """
    import hashlib

    name = hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()[:40]
    key = f"{folder or ''}/{name}"
    with _objects_lock:
        found = _objects.get(key)
        if found is None or found.size != size:
            root = cache_folder(folder) if is_mapping() and len(_objects) < _most_open() else None
            found = _objects[key] = CachedObject(size, read, None if root is None else root / name)
        return found


def cache_folder(folder: str | None = None) -> Path | None:
    """Return the folder of the cache, which exists; None where nothing is kept on disk, or no folder can be made.

    Raises InvalidInputError INVALID_SETTING.
    """
    if not cache_bytes():
        return None
    given = folder or os.environ.get(FOLDER_VARIABLE)
    for path in [Path(given)] if given else _default_folders():
        with contextlib.suppress(OSError):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.stat().st_uid == os.getuid() and os.access(path, os.W_OK):
                return path
    return None


def cache_bytes() -> int:
    """Return the bound of the cache. Raises InvalidInputError INVALID_SETTING."""
    given = os.environ.get(BYTES_VARIABLE)
    if given is None:
        return DEFAULT_BYTES
    if not given.isdecimal():
        raise InvalidInputError(
            ErrorCode.INVALID_SETTING,
            f"the environment variable {BYTES_VARIABLE} is {given!r}; set it to a number of bytes, such as "
            f"{DEFAULT_BYTES}, or unset it",
        )
    return int(given)


def sweep(folder: Path, most: int) -> int:
    """Remove the copies that were not used for the longest time until those that stay take ``most`` bytes of disk.

    Processes that read a removed copy keep it until they are done. Return the number of bytes that were removed.
    """
    removed = 0
    with contextlib.suppress(OSError):
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # another process that sweeps is enough
            files = [(about.st_mtime_ns, about.st_blocks * 512, path) for path, about in _copies(folder)]
            total = sum(size for _, size, _ in files)
            for _, size, path in sorted(files):
                if total <= most:
                    break
                path.unlink(missing_ok=True)
                total, removed = total - size, removed + size
        finally:
            os.close(lock)
    return removed


def _copies(folder: Path) -> Iterable[tuple[Path, os.stat_result]]:
    for entry in os.scandir(folder):
        if len(entry.name) == 40 and entry.is_file(follow_symlinks=False):
            yield Path(entry.path), entry.stat()


def _default_folders() -> list[Path]:
    folders = []
    with contextlib.suppress(RuntimeError):  # a user of a container may have no home
        folders.append(
            Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "statestore" / "objects"
        )
    import tempfile

    return [*folders, Path(tempfile.gettempdir()) / f"statestore-{os.getuid()}" / "objects"]


def _most_open() -> int:
    """Return how many copies this process keeps open; further ones are kept in memory."""
    return max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, 64)


def _opened(path: Path, size: int) -> int:
    with disk_errors("open the cache of objects in", path.parent):
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            found = os.fstat(file).st_size
            if found in (0, size):
                os.ftruncate(file, size)
                os.utime(file)
                return file
            os.close(file)  # not of this object: whoever has it open keeps it
            path.unlink(missing_ok=True)


def _count(size: int) -> None:
    """Count fetched bytes, and look at the size of the cache now and then."""
    global _fetched_bytes
    most = cache_bytes()
    with _objects_lock:
        _fetched_bytes += size
        due = _fetched_bytes >= min(SWEEP_BYTES, most // 8)
        if due:
            _fetched_bytes = 0
    folder = cache_folder() if due else None
    if folder is not None:
        sweep(folder, most)
