"""The files of a batch whose rows a checksum covers: beside the file, in its rows, in its codec, or in its blocks."""

from __future__ import annotations

from statestore.formats.engine import StateFile
from statestore.formats.errors import StateStoreError
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.crc_files import side_checksums
from statestore.formats.spark.providers.compression import has_checksums

_OF_ROCKSDB = ("zip", "table")
_HEAD_BYTES = 8


def has_checksum(checkpoint: Checkpoint, file: StateFile) -> bool | None:
    """Return whether a read of the rows in a file compares a checksum; None for a file that cannot be opened."""
    if file.role in _OF_ROCKSDB or checkpoint.has_checksums:
        return True
    *folders, name = file.name.split("/")
    folder = checkpoint.root.at(*folders)
    if folder.is_local and side_checksums(folder.at(name).path) is not None:
        return True
    try:
        with folder.stream(name) as stream:
            return has_checksums(stream.read(_HEAD_BYTES))
    except (OSError, StateStoreError):
        return None
