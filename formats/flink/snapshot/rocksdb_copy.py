"""Private RocksDB directories, put together from the files of a snapshot, so that a state backend's rows can be read.

RocksDB writes into every directory that it opens, and a snapshot's files have other names than those that RocksDB
expects. So a reader opens a temporary directory, which has

    table files                 links to local files, else copies, of the parts that are read
    CURRENT, MANIFEST           copies
    OPTIONS                     a file of our own

Flink's own OPTIONS file names folders of the machine that wrote it, and RocksDB refuses to open a directory without
them. Ours names each column family with the operator that merges list states (``StringAppendTESTOperator``, delimiter
","), as ``org.apache.flink.contrib.streaming.state.RocksDBResourceContainer`` does.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError, StorageError, shown
from statestore.formats.flink.snapshot.handles import (
    FileHandle,
    RelativeHandle,
    RocksHandle,
    SegmentHandle,
    StreamHandle,
)
from statestore.formats.flink.snapshot.held_files import OPEN_FILES, OpenFiles
from statestore.formats.flink.snapshot.snapshot_files import PIECE_BYTES, SnapshotFiles, described_name
from statestore.formats.notices import is_verification
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.fetched_parts import forget_parts
from statestore.formats.places.folder import PARALLEL_REQUESTS
from statestore.formats.places.local_directory import temporary_directory
from statestore.formats.places.reading_threads import for_each
from statestore.formats.rocksdb.kept_tables import Files, Found, kept_families, looked_up
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.manifest import TableEntry, broken_frame, manifest_of
from statestore.formats.rocksdb.manifest_edits import keep_tables
from statestore.formats.rocksdb.opened_families import family_names
from statestore.formats.rocksdb.rocksdb_errors import Unreadable, corrupt, naming
from statestore.formats.rocksdb.sparse_copies import copy_parts, have_range_deletions
from statestore.formats.rocksdb.table_index import Bounds

DELIMITER = b","
"""The byte between the elements of a list state in a stored value (``ListDelimitedSerializer``)."""

_NAME = re.compile(r"(?!\.{1,2}$)[0-9A-Za-z._-]{1,255}")
_TABLE = re.compile(r"[0-9]{1,20}\.(sst|ldb|blob)")
_COPIED = re.compile(r"CURRENT|MANIFEST-[0-9]{1,20}|[0-9]{1,20}\.log")
_MOST_HELD = 128  # files that are open for a link; RocksDB opens each of them, too
_OPTIONS = "OPTIONS-999999"
_ESCAPED = str.maketrans({"\\": r"\\", "#": r"\#", ":": r"\:", "\r": r"\r", "\n": r"\n"})
_HEAD = """[Version]
  rocksdb_version=8.10.0
  options_file_version=1.1

[DBOptions]

"""
_FAMILY = """[CFOptions "{name}"]
  merge_operator={{id=StringAppendTESTOperator;delimiter=,;}}

[TableOptions/BlockBasedTable "{name}"]

"""


@dataclass(frozen=True)
class Lookup:
    """The only rows that are read of a database: those of a column family in some ranges of stored keys.

    ``whole``: these are all of its rows, so that its table files are read in whole.
    """

    family: str
    ranges: Sequence[KeyRange]
    whole: bool = False


def looked_up_rows(files: SnapshotFiles, handle: RocksHandle, family: str, ranges: Sequence[KeyRange]) -> Found:
    """Return what a column family has in ranges of few keys, read from local files where they lie, and the ranges that
    need a private directory, also for the errors of files."""
    if not files.folder.is_local:
        return [], list(ranges)

    def find() -> list[Files]:
        wanted = dict(_wanted(files, handle))

        def place(entry: TableEntry) -> str:
            table = wanted[entry.name]
            if not isinstance(table, FileHandle | RelativeHandle):
                raise Unreadable(f"{files.path}: {entry.name} is a part of a file")
            return files.locate(table).path

        listing = listing_files(files, handle)
        return [(kept_families(listing, files.path, whole=True)[family], place)]

    found = looked_up(find, ranges, DELIMITER)
    return ([], list(ranges)) if found is None else found[0]


def listing_files(files: SnapshotFiles, handle: RocksHandle) -> Mapping[str, bytes]:
    """Return the files of a handle's database that say which table files it has, such as MANIFEST, by name.

    Raises as `opened_database`.
    """
    return {name: files.read(each) for name, each in _wanted(files, handle) if _COPIED.fullmatch(name)}


@contextmanager
def opened_tables(files: SnapshotFiles, handle: RocksHandle, names: Collection[str]) -> Iterator[Path]:
    """A private directory with some table files of a handle and nothing else, removed after the block.

    Raises as `opened_database`.
    """
    wanted = [pair for pair in _wanted(files, handle) if pair[0] in names]
    opened = files.opened()
    with temporary_directory() as directory, naming(directory, files.path), ExitStack() as held:
        try:
            _fill(files, directory, wanted, held, opened)
            yield directory
        except (CorruptError, StorageError, NotFoundError) as error:
            if not files.folder.is_local:
                forget_parts()
            _check_links(files, directory, wanted, error)
            _name_stored(wanted, error)
            raise


@contextmanager
def opened_database(files: SnapshotFiles, handle: RocksHandle, lookup: Lookup | None = None) -> Iterator[Path]:
    """A private directory with the RocksDB files of a handle, removed after the block or after the process has died.

    Readers may open it as they like; the snapshot is never written to. Each state is the column family of its name; a
    state without one has no rows. The rows of key groups outside of the handle's range do not count. With ``lookup``,
    copies have what is read of these rows, and table files without any of them may be missing.

    Raises NotFoundError FLINK_FILE_MISSING, CorruptError FLINK_FILE, CorruptError FLINK_METADATA for names that are not
    those of files of RocksDB, CorruptError ROCKSDB_FILE where the MANIFEST is damaged, StorageError DISK_FAILED, and
    InvalidInputError NO_ACCESS.
    """
    wanted = _wanted(files, handle)
    opened = files.opened()  # and stay so during the block
    with temporary_directory() as directory, naming(directory, files.path), ExitStack() as held:
        try:
            if lookup is None or files.folder.is_local or is_verification():
                _fill(files, directory, wanted, held, opened)
            else:
                _fill_sparsely(files, directory, wanted, lookup)
        except CorruptError:
            forget_parts()
            raise
        try:
            _check_manifest(files, directory, [name for name, _ in wanted if name.startswith("MANIFEST-")])
            _write_options(directory)
            yield directory
        except (CorruptError, StorageError, NotFoundError) as error:
            if not files.folder.is_local:
                forget_parts()  # a table file that is restored has the name of the damaged one
            _check_links(files, directory, wanted, error)
            _name_stored(wanted, error)
            raise


def _wanted(files: SnapshotFiles, handle: RocksHandle) -> list[tuple[str, StreamHandle]]:
    """The files to put into the directory. Others are left out: RocksDB does not need them, or writes them itself."""
    pairs = [*handle.shared, *handle.private]
    seen: set[str] = set()
    for name, _ in pairs:
        if not _NAME.fullmatch(name):
            raise _damaged(files, f"found {shown(name)}, expected the name of a file of RocksDB")
        if name in seen:
            raise _damaged(files, f"found file {name} of RocksDB twice in a handle, expected it once")
        seen.add(name)
    if "CURRENT" not in seen:
        raise _damaged(files, "found no file CURRENT of RocksDB in a handle, expected one")
    return [(name, each) for name, each in pairs if _TABLE.fullmatch(name) or _COPIED.fullmatch(name)]


def _fill(
    files: SnapshotFiles,
    directory: Path,
    wanted: Sequence[tuple[str, StreamHandle]],
    held: ExitStack,
    opened: OpenFiles | None,
) -> None:
    def put(pair: tuple[str, StreamHandle]) -> None:
        _put(files, pair[1], directory / pair[0])

    if files.folder.is_local:
        tables = [pair for pair in wanted if _is_linked(files, *pair)]
        for number, (name, handle) in enumerate(tables):
            _link(files, handle, directory / name, held if number < _MOST_HELD else None, opened)
        linked = {name for name, _ in tables}
        for pair in wanted:
            if pair[0] not in linked:
                put(pair)
        return
    for_each(put, wanted, PARALLEL_REQUESTS)


def _fill_sparsely(
    files: SnapshotFiles, directory: Path, wanted: Sequence[tuple[str, StreamHandle]], lookup: Lookup
) -> None:
    """Fetch the MANIFEST, which says in which table files the rows may be, and then these, or parts of them."""

    def put(wanted: Sequence[tuple[str, StreamHandle]], bounds: Sequence[Bounds] | None = None) -> None:
        for_each(lambda pair: _put(files, pair[1], directory / pair[0], bounds), wanted, PARALLEL_REQUESTS)

    put([pair for pair in wanted if _COPIED.fullmatch(pair[0])])
    tables = [pair for pair in wanted if _TABLE.fullmatch(pair[0])]
    kept = _kept_tables(directory, lookup)
    bounds = None if kept is None or lookup.whole else [(each.first, each.stop) for each in lookup.ranges]
    if kept is not None:
        tables = [pair for pair in tables if int(pair[0].partition(".")[0]) in kept]
    put(tables, bounds)
    if bounds is not None and have_range_deletions(directory / name for name, _ in tables):
        put(tables)


def _kept_tables(directory: Path, lookup: Lookup) -> set[int] | None:
    """The numbers of the table files that a look-up needs; None where the MANIFEST does not tell, so all."""
    try:
        with disk_errors("read", directory):
            if broken_frame(manifest_of(directory).read_bytes()) is not None:
                return None
        return keep_tables(directory, lookup.family, lookup.ranges)
    except (Unreadable, CorruptError):  # RocksDB itself decides about such a MANIFEST
        return None


def _is_linked(files: SnapshotFiles, name: str, handle: StreamHandle) -> bool:
    """Return whether a file is linked: what RocksDB may write to, such as CURRENT, is never a link."""
    return files.folder.is_local and bool(_TABLE.fullmatch(name)) and isinstance(handle, FileHandle | RelativeHandle)


def _put(files: SnapshotFiles, handle: StreamHandle, target: Path, ranges: Sequence[Bounds] | None = None) -> None:
    """Copy a file, of a table file only what reads of key ranges need."""
    if ranges is not None:
        with files.open_at(handle) as part:
            copy_parts(part, target, ranges, lambda *_: _damaged(files, f"found fewer bytes in {target.name}"))
        return
    with files.open_at(handle) as part, disk_errors("write", target), target.open("wb") as copy:
        for at in range(0, part.size, PIECE_BYTES):
            copy.write(part.read_at(at, PIECE_BYTES))


def _link(
    files: SnapshotFiles, handle: StreamHandle, target: Path, held: ExitStack | None, opened: OpenFiles | None
) -> None:
    """Link a table file. Where it is ``opened``, or with ``held``, the link is to the open file, whose rows stay when
    Flink removes it.

    A hard link would keep them, too, and would change the file's time of change, which backups look at.
    """
    assert isinstance(handle, FileHandle | RelativeHandle)
    path = files.locate(handle).path
    kept = None if opened is None else opened.path(path)
    if kept is not None:
        path = kept
    elif held is not None and OPEN_FILES.is_dir():
        with contextlib.suppress(OSError):
            number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            held.callback(os.close, number)
            path = str(OPEN_FILES / str(number))
    with disk_errors("link", target):
        target.symlink_to(path)


def _check_links(
    files: SnapshotFiles, directory: Path, wanted: Sequence[tuple[str, StreamHandle]], error: Exception
) -> None:
    """Raise NotFoundError FLINK_FILE_MISSING where a table file was removed since it was linked."""
    for name, handle in wanted:
        linked = directory / name
        if linked.is_symlink() and not linked.exists():
            raise files.missing(handle, [str(linked.readlink())]) from error


def _name_stored(wanted: Sequence[tuple[str, StreamHandle]], error: StateStoreError) -> None:
    """Add to an error the file of the snapshot that holds the file of RocksDB of which it tells."""
    for name, handle in wanted:
        if name in error.message and isinstance(handle, FileHandle | RelativeHandle | SegmentHandle):
            error.message += f"; the snapshot has {name} of RocksDB in {described_name(handle)}"
            error.args = (error.code, error.message)


def _check_manifest(files: SnapshotFiles, directory: Path, names: Sequence[str]) -> None:
    for name in names:
        with disk_errors("read", directory):
            found = broken_frame((directory / name).read_bytes())
        if found is not None:
            raise corrupt(files.path, f"{name} of RocksDB: {found}")


def _write_options(directory: Path) -> None:
    text = _HEAD + "".join(
        _FAMILY.format(name=name.translate(_ESCAPED)) for name in sorted(family_names(directory), key=_default_first)
    )
    with disk_errors("write", directory):
        (directory / _OPTIONS).write_text(text)


def _default_first(name: str) -> tuple[bool, str]:
    return name != "default", name


def _damaged(files: SnapshotFiles, found: str) -> CorruptError:
    return CorruptError(ErrorCode.FLINK_METADATA, f"{files.path}: {found}; restore the file from a copy")
