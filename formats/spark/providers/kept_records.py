"""Records of small local files, parsed and kept between look-ups: those of the changes since a base, and of a snapshot.

A look-up of a key in an HDFS-backed partition, or in changelogs of RocksDB, reads these files in whole. Kept, they are
searched again without being read, unpacked and verified. Larger files are read each time (`copied_records`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TypeVar

import pyarrow as pa

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.notices import is_verification
from statestore.formats.places.folder import Folder
from statestore.formats.places.kept_results import MOST_OF_A_RESULT, kept_result
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile
from statestore.formats.spark.checkpoint.crc_files import side_name
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.providers.copied_records import found_in_copies, is_searched_alone
from statestore.formats.spark.providers.file_records import Changes
from statestore.formats.spark.providers.stored_rows import KeyBounds, changes_of_keys, changes_within, rows_within

_MOST_STORED = 2 << 20
"""Bytes of files that are kept, as they are stored; they take several times as much when they are unpacked."""
_BYTES_OF_A_CHANGE = 33
T = TypeVar("T")


def changes_in_ranges(
    folder: Folder,
    files: Sequence[DataFile],
    read: Callable[[Sequence[DataFile]], Iterator[Changes]],
    form: tuple[object, ...],
    ranges: Sequence[KeyBounds],
) -> Iterator[Changes]:
    """Yield those changes that are of keys in some ranges. ``read`` reads all of some files; ``form`` is all else on
    which its result depends.
    """

    def with_keys() -> Iterator[tuple[Changes, pa.BinaryArray]]:
        return ((changes, changes.keys.copied(corrupt_row)) for changes in read(files))

    found = _kept(folder, files, ("changes", *form), with_keys, _size_of)
    if found is not None:
        for changes, keys in found:
            yield changes_of_keys(changes, keys, ranges)
        return

    def search(some: Sequence[DataFile]) -> Iterator[Changes]:
        return (changes_within(changes, ranges) for changes in read(some))

    for alone, some in groupby(files, lambda file: is_searched_alone(folder, file, ranges)):
        if not alone:
            yield from search(list(some))
            continue
        for file in some:
            own = found_in_copies(
                folder, file, ("changes", *form), ranges, partial(_copied, search([file])), _size_alone
            )
            yield from search([file]) if own is None else own


def rows_in_ranges(
    folder: Folder, file: DataFile, read: Callable[[], Iterator[pa.RecordBatch]], ranges: Sequence[KeyBounds]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows (key, value) of a snapshot in some ranges. ``read`` reads all of them."""
    found = _kept(folder, [file], ("snapshot",), read, lambda batch: batch.nbytes)
    if found is None and is_searched_alone(folder, file, ranges):
        search = partial(_rows_within, read, ranges)
        own = found_in_copies(folder, file, ("snapshot",), ranges, search, lambda batch: batch.nbytes)
        if own is not None:
            yield from own
            return
    for batch in read() if found is None else found:
        yield rows_within(batch, ranges)


def _rows_within(read: Callable[[], Iterator[pa.RecordBatch]], ranges: Sequence[KeyBounds]) -> Iterator[pa.RecordBatch]:
    for batch in read():
        rows = rows_within(batch, ranges)
        if rows.num_rows:
            yield rows


def _copied(found: Iterable[Changes]) -> Iterator[Changes]:
    """Yield changes in memory of their own, which does not keep that of the others in their file."""
    for changes in found:
        if len(changes):
            keys, values = (cells_of(cells.copied(corrupt_row)) for cells in (changes.keys, changes.values))
            yield Changes(changes.kind, keys, values)


def _size_alone(changes: Changes) -> int:
    return int(changes.keys.data.nbytes + changes.values.data.nbytes + _BYTES_OF_A_CHANGE * len(changes))


def _kept(
    folder: Folder,
    files: Sequence[DataFile],
    form: tuple[object, ...],
    read: Callable[[], Iterable[T]],
    size_of: Callable[[T], int],
) -> list[T] | None:
    """Return the result of ``read`` of files, kept or made anew; None where it is too much to be held."""
    if not folder.is_local or is_verification() or sum(file.size for file in files) > _MOST_STORED:
        return None

    def held() -> tuple[list[T] | None, int]:
        found: list[T] = []
        size = 0
        for each in read():
            found.append(each)
            size += size_of(each)
            if size > MOST_OF_A_RESULT:
                return None, 0
        return found, size

    names = [name for file in files for name in (file.name, side_name(file.name))]
    key = (folder.path, form, tuple((file.name, file.size) for file in files))
    return kept_result(key, [folder.at(name).path for name in names], held)


def _size_of(kept: tuple[Changes, pa.BinaryArray]) -> int:
    changes, keys = kept
    return int(changes.keys.data.nbytes + keys.nbytes + _BYTES_OF_A_CHANGE * len(changes))
