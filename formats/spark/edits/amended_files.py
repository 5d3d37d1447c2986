"""The files of one partition with an edit in them: those of the newest committed version, under their own names.

Spark loads a version from its snapshot or zip if it has one, else from its delta or changelog, and what came before.
Readers of changes need the latter in any case. So each file that the version has gets the edit.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence

from statestore.formats.edits import Target
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Store
from statestore.formats.spark.checkpoint.checkpoint_files import CHANGES, DataFile
from statestore.formats.spark.checkpoint.state_errors import missing
from statestore.formats.spark.edits.change_file_edits import edited_pieces
from statestore.formats.spark.edits.packed_streams import codec_of, packed
from statestore.formats.spark.edits.stored_edits import PartitionEdit
from statestore.formats.spark.edits.zip_edits import write_edited_zip
from statestore.formats.spark.providers.partition_load import Partition, files_of_batch, open_partition, uid_of


def amended_files(checkpoint: Checkpoint, edit: PartitionEdit) -> Sequence[DataFile]:
    """The files of the checkpoint's version in a partition, which an edit changes.

    Raises NotFoundError SPARK_STATE_NOT_FOUND if the version has none, or cannot be read.
    """
    partition = partition_of_edit(checkpoint, edit)
    version, uid = checkpoint.batch.version, uid_of(partition, checkpoint.batch.uids)
    found = [file for file in partition.files if file.version == version and file.uid == uid]
    needed = [file for file in files_of_batch(partition) if file.version == version]
    if not needed or not set(needed) <= set(found):
        raise missing(partition.folder.path, f"no file of version {version}, which an edit of its batch changes")
    return found


def place_of(checkpoint: Checkpoint, edit: PartitionEdit) -> str:
    """The folder of a partition, below the root."""
    root = checkpoint.root.path.rstrip("/")
    return checkpoint.folder(store_of(checkpoint, edit), edit.partition).path.removeprefix(f"{root}/")


def write_amended(checkpoint: Checkpoint, edit: PartitionEdit, target: Target) -> Mapping[str, int]:
    """Write the files of `amended_files` with an edit; return the sizes of all that is written by path.

    Raises the errors of reads, UnsupportedError EDIT_UNSUPPORTED for a codec that cannot be written, StorageError.
    """
    partition, where = partition_of_edit(checkpoint, edit), place_of(checkpoint, edit)
    sizes: dict[str, int] = {}
    for file in sorted(amended_files(checkpoint, edit), key=lambda file: file.kind not in CHANGES):
        path = posixpath.join(where, file.name)
        if file.kind == "zip":
            sizes |= write_edited_zip(partition.folder, file, edit, checkpoint.delimiter, target, path)
            continue
        pieces = edited_pieces(partition.folder, file, edit, checkpoint.has_checksums)
        sizes[path] = write_pieces(target, path, packed(codec_of(checkpoint.batch), pieces))
    return sizes


def write_pieces(target: Target, path: str, pieces: Iterable[bytes]) -> int:
    """Write a file; return its size."""
    size = 0
    with target.create(path) as stream:
        for piece in pieces:
            stream.write(piece)
            size += len(piece)
    return size


def store_of(checkpoint: Checkpoint, edit: PartitionEdit) -> Store:
    stores = checkpoint.operator(edit.operator_id).stores
    return next(store for store in stores if store.name == edit.store)


def partition_of_edit(checkpoint: Checkpoint, edit: PartitionEdit) -> Partition:
    store = store_of(checkpoint, edit)
    return open_partition(checkpoint, store, edit.partition, store.families[0].name)
