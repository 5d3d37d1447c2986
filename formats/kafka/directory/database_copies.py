"""Private copies of a RocksDB directory, so that it can be opened while its application runs.

RocksDB writes into every directory that it opens, and an application deletes table files at any time. So a reader
never opens the directory itself. It opens a temporary one, which has

    table files, blob files      hard links: they never change, and a link keeps a file that the application deletes
    CURRENT, MANIFEST, options   copies: the application appends to them or replaces them
    write-ahead logs             copies

The tree itself is not written to, and no lock is taken. Where a link is not possible, the file is opened first and
copied when all others are held: on another file system, or where the system forbids links to files of other users.

The MANIFEST says which table files are live. It is copied between two listings, and then the files of the second one
are linked. A file of the first listing that is missing in the second, or when its turn comes, may be a live one: then
the attempt is repeated, unless the MANIFEST is still the same.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, CorruptError, NotFoundError, StateStoreError
from statestore.formats.kafka.directory.listings import (
    Entry,
    entries_of,
    is_link,
    not_a_file,
    open_unlinked,
    read_text,
)
from statestore.formats.places.disk_errors import disk_errors, storage_error
from statestore.formats.places.folder import Folder
from statestore.formats.places.local_directory import temporary_directory
from statestore.formats.places.regular_files import MAX_METADATA_BYTES, too_large
from statestore.formats.rocksdb.manifest import read_families
from statestore.formats.rocksdb.rocksdb_errors import Unreadable, naming

# Names of the files of a RocksDB directory, and the generation of their content


CURRENT = "CURRENT"
FIXED = re.compile(r"[0-9]{1,20}\.(sst|ldb|blob)")
"""Names of files that never change once RocksDB's MANIFEST refers to them."""
CHANGING = re.compile(r"CURRENT|MANIFEST-[0-9]{1,20}|OPTIONS-[0-9]{1,20}|[0-9]{1,20}\.log")
"""Names of other files that RocksDB needs to open a directory."""
MANIFEST = re.compile(r"MANIFEST-[0-9]{1,20}")


def generation_of_files(entries: Iterable[Entry]) -> str:
    """A text that changes with the files of a database that hold rows: their names, sizes and times of change."""
    return digest(
        {
            entry.name: [entry.size, entry.modified]
            for entry in entries
            if entry.kind == "file"
            and (entry.name == CURRENT or MANIFEST.fullmatch(entry.name) or FIXED.fullmatch(entry.name))
        }
    )


def digest(parts: Mapping[str, object]) -> str:
    """32 hexadecimal digits that differ where the parts differ."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


ATTEMPTS = 20
MAX_LOG_BYTES = 4 << 30
"""Upper bound of a write-ahead log that is copied. Kafka Streams writes none."""
_MANIFEST = re.compile(rb"(MANIFEST-[0-9]{1,20})\n?")
_PIECE = 8 << 20
_PAUSE = 0.002
_SETTLING = 0.1  # seconds
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)
_GONE = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True)
class _Version:
    """The facts that decide which table files are live: the MANIFEST's name and what was read of it."""

    name: str
    size: int


class _Changed(Exception):
    """The database changed while its files were taken."""


@contextmanager
def opened_copy(folder: Folder, parent: Path | None = None, *, family: str | None = None) -> Iterator[Path]:
    """A private directory with the files of a database, removed after the block or after the process has died.

    ``parent`` is an existing empty folder for it; by default a new one in the system's temporary directory. RocksDB and
    the scanner of table files may open the copy as they like. With ``family`` the copy has what a reader of this column
    family's table files needs, and RocksDB cannot open it.

    Raises CorruptError ROCKSDB_FILE where the folder is no RocksDB, CorruptError NOT_A_FILE where it or a file in it is
    a link, ConflictError STATE_CHANGED where the database changes again and again, NotFoundError VERSION_GONE where the
    folder is gone, and the storage's errors. A missing or damaged table file is left to those who read it.
    """
    if parent is not None:
        copy_database(folder, parent, family=family)
        with naming(parent, folder.path):
            yield parent
        return
    with temporary_directory() as files:
        copy_database(folder, files, family=family)
        with naming(files, folder.path):
            yield files


def copy_database(folder: Folder, target: Path, *, family: str | None = None) -> None:
    """Fill an empty folder with the files of a database. Raises as `opened_copy`."""
    if is_link(folder):
        raise not_a_file(folder.path)
    for attempt in range(ATTEMPTS):
        try:
            _take(folder, target, family)
            return
        except _Changed:
            pass
        except CorruptError:
            if _is_settled(folder):
                raise
        _clear(target)
        time.sleep(_PAUSE * attempt)
    raise ConflictError(
        ErrorCode.STATE_CHANGED,
        f"{folder.path}: the application changed the database while its files were taken, {ATTEMPTS} times in a row; "
        "read again, or read a copy of the directory",
    )


def metadata_of(folder: Folder) -> dict[str, bytes]:
    """Return CURRENT, the MANIFEST that it names, and write-ahead logs that are not empty, of a local database.

    Raises `Unreadable` where the folder or a table file is a link, and as `opened_copy`.
    """
    if not folder.is_local or is_link(folder):
        raise Unreadable(f"{folder.path} is not local, or a link")
    found: dict[str, bytes] = {}
    for entry in entries_of(folder).values():
        if entry.kind != "file":
            raise Unreadable(f"{folder.path}/{entry.name} is not a file")
        if entry.name.endswith(".log") and entry.size:
            found[entry.name] = b"\0"
    try:
        version, manifest = _version(folder)
    except _Changed:
        raise Unreadable(f"{folder.path} changes") from None
    return {**found, CURRENT: f"{version.name}\n".encode(), version.name: manifest}


def _is_settled(folder: Folder) -> bool:
    """Return whether a folder that holds no whole database stays as it is.

    An application that drops a segment, or wipes a store to restore it after a kill, removes file by file. So what is
    not whole is damaged only where nothing is removed or made any more.
    """
    before = entries_of(folder).keys()
    if folder.is_local:
        time.sleep(_SETTLING)
    return before == entries_of(folder).keys() and (not folder.is_local or Path(folder.path).is_dir())


def _take(folder: Folder, target: Path, family: str | None) -> None:
    before = entries_of(folder)
    version, manifest = _version(folder)
    listed = entries_of(folder)
    gone = {name for name in before if FIXED.fullmatch(name)} - listed.keys()
    with disk_errors("write", target):
        (target / version.name).write_bytes(manifest)
        (target / CURRENT).write_text(f"{version.name}\n")
    if family is not None:
        wanted = _tables_of(target, family)
        listed = {name: entry for name, entry in listed.items() if name in wanted}
    with ExitStack() as opened:
        held: list[tuple[int, Path]] = []
        for entry in listed.values():
            if entry.name in (CURRENT, version.name) or (entry.name.endswith(".log") and not entry.size):
                continue  # an empty log, which Kafka Streams has always, holds nothing of this version
            try:
                if FIXED.fullmatch(entry.name):
                    descriptor = _hold(folder, entry, target)
                    if descriptor is not None:
                        opened.callback(os.close, descriptor)
                        held.append((descriptor, target / entry.name))
                elif CHANGING.fullmatch(entry.name):
                    _copy_changing(folder, entry, target)
            except _GONE:
                gone.add(entry.name)
        if gone and _version(folder)[0] != version:
            raise _Changed
        for descriptor, path in held:
            _copy(descriptor, path)


def _tables_of(copy: Path, family: str) -> set[str]:
    """Names of the table files of a family by the MANIFEST; none where this reader does not know its form."""
    try:
        found = read_families(copy).get(family)
    except Unreadable:
        return set()
    return set() if found is None else {entry.name for entry in found.files}


def _version(folder: Folder) -> tuple[_Version, bytes]:
    """The MANIFEST that counts now, and its bytes."""
    current = read_text(folder, CURRENT)
    if current is None:
        raise _without_current(folder)
    name = _MANIFEST.fullmatch(current[:64])
    if name is None:
        raise _no_database(folder, f"CURRENT holds {current[:40]!r}, expected the name of a MANIFEST file")
    found = name[1].decode()
    data = _read_manifest(folder, found)
    if data is None:
        if read_text(folder, CURRENT) != current:
            raise _Changed
        raise _no_database(folder, f"{found} is missing, which CURRENT names")
    return _Version(found, len(data)), data


def _read_manifest(folder: Folder, name: str) -> bytes | None:
    if not folder.is_local:
        return read_text(folder, name)
    try:
        descriptor = open_unlinked(f"{folder.path}/{name}")
    except _GONE:
        return None
    with os.fdopen(descriptor, "rb") as file, disk_errors("read", f"{folder.path}/{name}"):
        size = os.fstat(file.fileno()).st_size
        if size > MAX_METADATA_BYTES:
            raise too_large(f"{folder.path}/{name}", size, MAX_METADATA_BYTES)
        return file.read(MAX_METADATA_BYTES)


def _without_current(folder: Folder) -> StateStoreError:
    listed = entries_of(folder)
    if listed:
        return _no_database(folder, f"file {CURRENT} is missing among {len(listed)} entries")
    if folder.is_local and Path(folder.path).is_dir():
        return _no_database(folder, "the folder is empty: its application has just made it, or a copy is not complete")
    return NotFoundError(
        ErrorCode.VERSION_GONE,
        f"{folder.path}: no such folder any more: the application has dropped the segment or store; read again",
    )


def _no_database(folder: Folder, found: str) -> CorruptError:
    return CorruptError(
        ErrorCode.ROCKSDB_FILE, f"{folder.path}: {found}; the database cannot be opened, restore it from a copy"
    )


def _hold(folder: Folder, entry: Entry, target: Path) -> int | None:
    """Link a file that never changes, or copy it from a storage; a descriptor: the file is held, and to be copied.

    Raises FileNotFoundError where it has gone meanwhile.
    """
    path = f"{folder.path}/{entry.name}"
    if entry.kind != "file":
        raise not_a_file(path)
    if not folder.is_local:
        _fetch(folder, entry.name, target / entry.name)
        return None
    try:
        os.link(path, target / entry.name, follow_symlinks=False)
    except _GONE:
        raise
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise storage_error(error, "link", path) from error
        return open_unlinked(path)
    if stat.S_ISREG((target / entry.name).lstat().st_mode):
        return None
    raise not_a_file(path)


def _copy_changing(folder: Folder, entry: Entry, target: Path) -> None:
    path = f"{folder.path}/{entry.name}"
    if entry.kind != "file":
        raise not_a_file(path)
    if entry.size > MAX_LOG_BYTES:
        raise too_large(path, entry.size, MAX_LOG_BYTES)
    if not folder.is_local:
        _fetch(folder, entry.name, target / entry.name)
        return
    descriptor = open_unlinked(path)
    try:
        _copy(descriptor, target / entry.name)
    finally:
        os.close(descriptor)


def _copy(descriptor: int, target: Path) -> None:
    with disk_errors("copy", target), os.fdopen(os.dup(descriptor), "rb") as source, target.open("wb") as copy:
        shutil.copyfileobj(source, copy, _PIECE)


def _fetch(folder: Folder, name: str, target: Path) -> None:
    try:
        with folder.stream(name) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, _PIECE)
    except StateStoreError:
        if name in entries_of(folder):
            raise
        target.unlink(missing_ok=True)
        raise FileNotFoundError(name) from None
    except OSError as error:
        raise storage_error(error, "copy", target) from error


def _clear(target: Path) -> None:
    with disk_errors("remove", target):
        for path in target.iterdir():
            path.unlink()
