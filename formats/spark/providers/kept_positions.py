"""Places of records in the local files of an HDFS-backed partition, kept between look-ups of whole keys.

Eight bytes are kept of a record: a hash of its key, and its place in the plain bytes of the files. So the keys of large
states fit where their rows do not. A look-up unpacks the blocks of lz4 in which its records lie; their checksums, and
the key of a record itself, say whether they are those that were read before.

What this way does not read, also damage, is left to those who read the files in whole, and to their errors.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.crc32c import crc32c, crc32c_of_cells
from statestore.formats.errors import StateStoreError
from statestore.formats.kernels.arrays import Ints, U32s
from statestore.formats.notices import is_verification
from statestore.formats.places.folder import Folder
from statestore.formats.places.kept_results import MOST_OF_A_RESULT, kept_result
from statestore.formats.places.regular_files import open_regular
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile
from statestore.formats.spark.checkpoint.crc_files import side_name
from statestore.formats.spark.providers.change_runs import local_contents
from statestore.formats.spark.providers.compression import lz4_block, lz4_blocks, whole_lz4
from statestore.formats.spark.providers.file_records import DELETE, changes_at, whole_records
from statestore.formats.spark.providers.stored_rows import KeyBounds, bare_deletions
from statestore.formats.spark.rows.row_encoding import CHECKSUM_BYTES

LEAST_STORED, _MOST_STORED = 64 << 10, 8 << 20
"""Bytes of the files of a partition, as they are stored. The records of smaller ones are kept (`kept_records`), and
larger ones are read each time."""
_MOST_PLAIN = 32 << 20
_BYTES_OF_A_RECORD, _BYTES_OF_A_BLOCK = 8, 32
_MOST_KEYS = 256
"""More keys of a partition are compared with all of its records at once."""
_MOST_ALIKE = 64
"""Records with the hash of a key that are compared with it; more are left to a comparison of all records at once."""


class _Other(Exception):
    """The files are not of a form whose records can be placed."""


@dataclass(frozen=True)
class _Positions:
    """``hashes`` of keys, ascending, and the place of each record; those of one hash are in the order of the files.

    ``blocks`` are those of lz4, one row each: where it begins in the plain bytes of all files, the number of its file,
    where it begins in that, and its bytes there.
    """

    hashes: U32s
    places: U32s
    blocks: Ints


def found_rows(
    folder: Folder, files: Sequence[DataFile], checksums: bool, ranges: Sequence[KeyBounds]
) -> pa.RecordBatch | None:
    """Return the rows (key, value) of whole keys as of the newest of ``files``: perhaps a snapshot, and deltas after
    it.

    ``checksums`` says whether checksums precede the keys of deletions. None: these files or ranges are not for this
    way.
    """
    keys = [first for first, stop in ranges if first is not None and stop == first + b"\0"]
    fits = len(keys) == len(ranges) <= _MOST_KEYS and LEAST_STORED <= sum(each.size for each in files) <= _MOST_STORED
    if not fits or not folder.is_local or is_verification():
        return None
    try:
        known = _kept(folder, files, checksums)
        if known is None:
            return None
        with ExitStack() as opened:
            stored = _Stored(folder, files, known.blocks, opened)
            found = [(key, value) for key in keys if (value := _newest(known, stored, key, checksums)) is not None]
    except (OSError, StateStoreError, _Other):
        return None
    columns = [pa.array([row[number] for row in found], pa.binary()) for number in (0, 1)]
    return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)


def _newest(known: _Positions, stored: _Stored, key: bytes, checksums: bool) -> bytes | None:
    """Return the value of a key by its newest record; None where it is deleted, or has no record."""
    wanted = np.uint32(crc32c(key))
    first, stop = (int(np.searchsorted(known.hashes, wanted, side)) for side in ("left", "right"))
    if stop - first > _MOST_ALIKE:
        raise _Other
    for place in known.places[first:stop][::-1].tolist():
        found, value = stored.record(place)
        if found[CHECKSUM_BYTES if checksums and value is None else 0 :] == key:
            return value
    return None


class _Stored:
    """The plain bytes of files, of which blocks are unpacked when they are asked for."""

    def __init__(self, folder: Folder, files: Sequence[DataFile], blocks: Ints, opened: ExitStack) -> None:
        self._folder, self._files, self._blocks, self._opened = folder, files, blocks, opened
        self._descriptors: dict[int, int] = {}
        self._unpacked: dict[int, bytes] = {}

    def record(self, at: int) -> tuple[bytes, bytes | None]:
        """Return the key and the value of the record at a place; the value of a deletion is None."""
        size = self._size(at)
        key = self._bytes(at + 4, size)
        behind = at + 4 + size
        size = self._size(behind)
        return key, None if size < 0 else self._bytes(behind + 4, size)

    def _size(self, at: int) -> int:
        return int.from_bytes(self._bytes(at, 4), signed=True)

    def _bytes(self, at: int, size: int) -> bytes:
        """Return plain bytes, which may lie in several blocks."""
        number = int(np.searchsorted(self._blocks[:, 0], at, "right")) - 1
        begin = at - int(self._blocks[number, 0])
        block = self._block(number)
        while len(block) < begin + size:
            number += 1
            if size < 0 or number == len(self._blocks):
                raise _Other
            block += self._block(number)
        return block[begin : begin + size]

    def _block(self, number: int) -> bytes:
        found = self._unpacked.get(number)
        if found is None:
            _, file, at, size = self._blocks[number].tolist()
            descriptor = self._descriptors.get(file)
            if descriptor is None:
                descriptor = open_regular(self._folder.at(self._files[file].name).path)
                self._opened.callback(os.close, descriptor)
                self._descriptors[file] = descriptor
            found = lz4_block(os.pread(descriptor, size, at))
            if found is None:  # the file was replaced meanwhile
                raise _Other
            self._unpacked[number] = found
        return found


def _kept(folder: Folder, files: Sequence[DataFile], checksums: bool) -> _Positions | None:
    def read() -> tuple[_Positions | None, int]:
        found = _positions(folder, files, checksums)
        return found, 0 if found is None else found.hashes.nbytes + found.places.nbytes + found.blocks.nbytes

    names = [name for file in files for name in (file.name, side_name(file.name))]
    key = ("positions", folder.path, checksums, tuple((file.name, file.size) for file in files))
    return kept_result(key, [folder.at(name).path for name in names], read)


def _positions(folder: Folder, files: Sequence[DataFile], checksums: bool) -> _Positions | None:
    """Return the places of all records; None where the files are not of this form. Raises the errors of reading."""
    plains: list[bytes] = []
    starts: list[int] = []
    blocks: list[tuple[int, int, int, int]] = []
    at = rows = 0
    for number, (file, small) in enumerate(local_contents(folder, files)):
        content = _content(folder, file) if small is None else small
        plain, own = whole_lz4(content, _MOST_PLAIN - at), lz4_blocks(content)
        found = None if plain is None else whole_records(plain, False, file.name)
        if plain is None or own is None or found is None:
            return None
        starts += [at + start for start in found]
        plains.append(plain)
        rows = len(starts) if file.kind == "snapshot" else rows
        for begin, size, unpacked in own:
            blocks.append((at, number, begin, size))
            at += unpacked
        if _BYTES_OF_A_RECORD * len(starts) + _BYTES_OF_A_BLOCK * len(blocks) > MOST_OF_A_RESULT:
            return None
    changes = changes_at(b"".join(plains), starts, False, folder.path)
    if bool((changes.kind[:rows] == DELETE).any()):
        return None
    hashes = crc32c_of_cells((bare_deletions(changes) if checksums else changes).keys)
    order = np.argsort(hashes, kind="stable")
    return _Positions(hashes[order], np.array(starts, np.uint32)[order], np.array(blocks, np.int64).reshape(-1, 4))


def _content(folder: Folder, file: DataFile) -> bytes:
    with folder.stream(file.name) as stream:
        return stream.read(_MOST_STORED + 1)
