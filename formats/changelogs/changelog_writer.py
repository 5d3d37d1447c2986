"""Writing a changelog: appending acknowledged records, forcing them to the disk, and holding the file's lock.

A refusal of the operating system becomes a StorageError. A failed write leaves nothing: its part is cut off at once or,
where that fails too, before anything else is appended. After a failed fsync the kernel may have dropped pages, and a
later fsync proves nothing. So the file is then written anew, and nothing is appended before that has succeeded.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import uuid
from pathlib import Path

import pyarrow as pa
import xxhash

from statestore.formats.changelogs.changelog import FILE_NAME, MADE_AT, STORE, TEMPORARY, Changelog, read_changelog
from statestore.formats.changelogs.changelog_frames import (
    HEADER,
    MAGIC,
    MASKED,
    MASKED_MAGIC,
    MASKED_ROW_MAGIC,
    MAX_PAYLOAD,
    ROW,
    ROW_MAGIC,
    ROW_SEED,
    SEED,
    SMALL,
    VERSION,
    ZEROS,
    is_sparse,
    mark_frame,
    masked,
    open_changelog,
)
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StorageError
from statestore.formats.places.disk_errors import disk_errors, storage_error

COPIED_AT_ONCE = 1 << 20
CREATE_ATTEMPTS = 5

# Looked up once: a single row is written in little more than a microsecond.
_pack_header, _pack_row, _hash = HEADER.pack, ROW.pack, xxhash.xxh3_64_intdigest


class ChangelogWriter:
    """A writer that appends to a new file and holds its lock, which the system releases if this process dies.

    The file appears under its name with the lock held and the schema in it, so that no process can adopt it half made.
    ``made_at``: the store's newest version; only later versions can name the file. ``store``: its identity. `try_adopt`
    returns the writer of an existing file, which appends after `resume`.
    """

    def __init__(self, path: Path, schema: pa.Schema, made_at: int = -1, store: str = "") -> None:
        metadata = dict(schema.metadata or {})
        metadata |= {MADE_AT: str(made_at).encode()} if made_at >= 0 else {}
        metadata |= {STORE: store.encode(), FILE_NAME: path.name.encode()} if store else {}
        first = schema.with_metadata(metadata or None).serialize()
        with disk_errors("create", path):
            for attempt in range(CREATE_ATTEMPTS):
                self._begin(path, -1, schema)
                try:
                    self._make(first)
                    return
                except FileNotFoundError:  # vacuum removed the file before it was locked, or its folder is gone
                    if attempt == CREATE_ATTEMPTS - 1 or not path.parent.is_dir():
                        raise

    def _make(self, first: pa.Buffer) -> None:
        temporary = _temporary(self.path)
        self._file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._write_message(first)
            os.link(temporary, self.path)
        except BaseException:
            self.close()
            raise
        finally:
            with contextlib.suppress(OSError):  # the name does no harm; vacuum removes it
                temporary.unlink()

    def _begin(self, path: Path, file: int, schema: pa.Schema | None) -> None:
        self.path = path
        self._file = file
        self._schema = schema  # None: adopted, and nothing may be appended, not even a mark
        self._read_to = 0  # how far an adopted file was read
        self._can_go_on = False
        self._end = 0
        self._synced = 0
        self._marked = 0  # the end of the newest sync mark
        self._is_torn = False  # a failed write left bytes behind ``_end``
        self._is_suspect = False  # an fsync failed
        self._is_sound = True  # neither torn nor suspect
        self._are_folders_synced = False

    @classmethod
    def adopted(cls, path: Path, file: int) -> ChangelogWriter:
        """The owner of an existing file, whose locked descriptor is ``file``. It appends nothing yet."""
        writer = cls.__new__(cls)
        writer._begin(path, file, None)
        with disk_errors("read", path):
            writer._end = os.fstat(file).st_size
        return writer

    def take_note(self, found: Changelog) -> None:
        """Record, after reading an adopted file, how far it is acknowledged and how far it is synced."""
        self._read_to = max(self._read_to, found.end)
        self._synced, self._marked = max(self._synced, found.synced), max(self._marked, found.mark_end)
        self._can_go_on = found.version == VERSION and found.is_whole and found.end == self._end

    def __del__(self) -> None:
        """Give up the lock of a writer that is dropped without being closed."""
        with contextlib.suppress(Exception):
            self.close()

    def resume(self, schema: pa.Schema) -> bool:
        """Prepare to append to an adopted file; returns false, and does nothing, where that is impossible.

        That is so if the file was not read, has an older format, or does not end with a whole frame.
        """
        if self._can_go_on:
            self._schema = schema
        return self._can_go_on

    @property
    def end(self) -> int:
        """The end of the acknowledged bytes; 0 for an adopted file that was not read."""
        return self._read_to if self._schema is None else self._end

    @property
    def size(self) -> int:
        """The file's length. In an adopted file it may include bytes that were never acknowledged."""
        return self._end

    @property
    def synced(self) -> int:
        """The number of bytes that were forced to the disk, as far as this process knows."""
        return self._synced

    def append(self, batch: pa.RecordBatch) -> int:
        """Write one batch and return the file's new length.

        The batch survives the end of this process from here on, and a power cut from the next sync.
        """
        if batch.schema != self._schema:
            raise InvalidInputError(
                ErrorCode.WRONG_SCHEMA, f"{self.path}: batch of {batch.schema}, expected {self._schema}"
            )
        if not self._is_sound:
            self._mend()
        return self._write_message(batch.serialize())

    def append_row(self, key: bytes, value: bytes | None, time: int) -> int:
        """Write one row in the form of ROW_SCHEMA, like ``append``; this is the write path of single puts."""
        if not self._is_sound:
            self._mend()
        row = _pack_row(time, len(key), value is not None)
        payload = row + key if value is None else b"".join((row, key, value))
        size = len(payload)
        if size > SMALL:
            if ZEROS in payload:
                return self._write(MASKED_ROW_MAGIC, ROW_SEED | MASKED, masked(payload))
            return self._write(ROW_MAGIC, ROW_SEED, pa.py_buffer(payload))
        start = self._end
        frame = _pack_header(ROW_MAGIC, size, _hash(payload, start | ROW_SEED)) + payload
        try:
            written = os.write(self._file, frame)
            if written != len(frame):
                _write_all(self._file, memoryview(frame)[written:])
            self._end = end = start + len(frame)
        except BaseException as error:  # an interrupt, too: length and file must agree, or later frames would be lost
            self._undo(start)
            if isinstance(error, OSError):
                raise storage_error(error, "write", self.path) from error
            raise
        return end

    def sync(self) -> None:
        """Force the contents of the file to the disk, so that they survive a power cut."""
        if not self._is_sound:
            self._mend()
        end = self._end
        if end in (self._synced, self._marked):
            return
        try:
            os.fsync(self._file)
        except OSError:
            self._is_suspect, self._is_sound = True, False
            self._mend()
        if not self._are_folders_synced:  # the process that made them may have died before it synced them
            for folder in (self.path.parent, self.path.parent.parent):
                with disk_errors("sync", folder):
                    _sync_folder(folder)
            self._are_folders_synced = True
        self._synced = end
        if self._schema is not None:
            self._mark()

    def cut(self, end: int) -> None:
        """Take back all bytes from ``end`` on."""
        if end == self._end and self._is_sound:
            return
        self._end = end
        self._synced, self._marked = min(self._synced, end), min(self._marked, end)
        self._is_torn, self._is_sound = True, False
        self._mend()
        try:  # the next frames must not meet old frames that come back after a power cut
            os.fsync(self._file)
        except OSError:
            self._is_suspect, self._is_sound = True, False

    def close(self) -> None:
        if self._file >= 0:
            if self._is_torn:
                self._undo(self._end)
            self.leave()

    def leave(self) -> None:
        """Close the descriptor and leave the file alone: in a forked child it belongs to the parent."""
        if self._file >= 0:
            file, self._file = self._file, -1
            with contextlib.suppress(OSError):  # the data is synced, and the descriptor is closed anyway
                os.close(file)

    def discard(self) -> None:
        """Remove the file, then give up the lock."""
        with disk_errors("remove", self.path):
            self.path.unlink(missing_ok=True)
        self.close()

    # Inside

    def _write_message(self, payload: pa.Buffer) -> int:
        if payload.size > SMALL and is_sparse(payload):
            return self._write(MASKED_MAGIC, SEED | MASKED, masked(payload))
        return self._write(MAGIC, SEED, payload)

    def _write(self, magic: bytes, seed: int, body: pa.Buffer) -> int:
        if body.size > MAX_PAYLOAD:
            raise InvalidInputError(
                ErrorCode.BATCH_TOO_LARGE, f"{self.path}: a batch of {body.size} bytes, at most {MAX_PAYLOAD}; split it"
            )
        start = self._end
        header = _pack_header(magic, body.size, _hash(body, start | seed))
        total = HEADER.size + body.size
        try:
            written = os.writev(self._file, [header, body])
            if written != total:  # the system writes at most 2 GiB at once, and less on a full disk
                _write_all(self._file, memoryview(header + body.to_pybytes())[written:])
            self._end = start + total
        except BaseException as error:
            self._undo(start)
            if isinstance(error, OSError):
                raise storage_error(error, "write", self.path) from error
            raise
        return self._end

    def _mark(self) -> None:
        """Append a mark of what was forced to the disk. It may fail: nothing is lost without it."""
        start, frame = self._end, mark_frame(self._end, self._synced)
        try:
            _write_all(self._file, frame)
            self._end = self._marked = start + len(frame)
        except BaseException as error:
            self._undo(start)
            if not isinstance(error, OSError):
                raise

    def _undo(self, end: int) -> None:
        """Cut off the bytes of a failed write.

        Where that fails, too, it is repeated before anything else is written.
        """
        self._end = end
        self._is_torn, self._is_sound = True, False
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, end)
            self._is_torn, self._is_sound = False, not self._is_suspect

    def _mend(self) -> None:
        """Repair the file, so that it can be appended to. Raises StorageError while the disk refuses."""
        if self._is_torn:
            with disk_errors("cut off what a failed write left, before more is written", self.path):
                os.ftruncate(self._file, self._end)
            self._is_torn = False
        if self._is_suspect:
            with disk_errors("write anew after a failed sync", self.path):
                self._write_anew()
            self._is_suspect = False
        self._is_sound = True

    def _write_anew(self) -> None:
        """Replace the file by a copy that is on the disk. The copy is locked before it gets the name."""
        temporary = _temporary(self.path)
        copy = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(copy, fcntl.LOCK_EX)
            at = 0
            while data := os.pread(self._file, min(COPIED_AT_ONCE, self._end - at), at):
                at += len(data)
                _write_all(copy, data)
            found = read_changelog(temporary, None)
            for _ in found:
                pass
            if found.end < self.end:
                raise StorageError(
                    ErrorCode.DISK_FAILED,
                    f"{self.path}: cannot write anew after a failed sync: the system has lost what was acknowledged "
                    f"from byte {found.end} on, of {self.end}; close the store and open it again to continue with what "
                    "is left",
                )
            os.fsync(copy)
            temporary.rename(self.path)
        except BaseException:
            os.close(copy)
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self._file, old = copy, self._file
        self._are_folders_synced = False
        with contextlib.suppress(OSError):
            os.close(old)


def try_adopt(path: Path) -> ChangelogWriter | None:
    """Lock a changelog whose owner is gone, and return its writer (close it to give it up); None while its owner lives.

    Read which changelogs are committed after this, not before: the owner may have committed until the lock was free.
    """
    try:
        file = open_changelog(path, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
        return None
    try:
        with disk_errors("lock", path):
            if _take_lock(file) and _is_named(file, path):
                return ChangelogWriter.adopted(path, file)
    except BaseException:
        os.close(file)
        raise
    os.close(file)
    return None


def _take_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_named(file: int, path: Path) -> bool:
    """Return whether the file still has its name.

    Its owner may have removed it, or written it anew, before the lock.
    """
    try:
        return os.path.samestat(os.fstat(file), path.lstat())
    except FileNotFoundError:
        return False


def _write_all(file: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        written = os.write(file, rest)
        if not written:
            raise OSError(errno.EIO, "the system writes nothing")
        rest = rest[written:]


def _temporary(path: Path) -> Path:
    return path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
