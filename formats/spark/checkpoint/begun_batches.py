"""The batches that a query began and never committed, whose state is shown on request.

A task writes its partition's state of a batch as soon as it is done, and the query commits the batch when all are. A
query that dies between leaves state of a batch that did not happen: it runs that batch again, perhaps with other rows.
Spark 2.1 logged no commits, so all that it left is such state.
"""

from __future__ import annotations

from collections.abc import Iterator

from statestore.formats.places.folder import NUMBER, Folder
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile, data_files
from statestore.formats.spark.checkpoint.query_metadata import committed_batches, operator_ids
from statestore.formats.spark.checkpoint.state_errors import unsupported


def begun_batches(root: Folder) -> list[int]:
    """Ids of the batches after the newest commit of which at least one partition has its state, ascending.

    Raises UnsupportedError SPARK_STATE_UNSUPPORTED for checkpoint format 2, where only a commit names the files.
    """
    last = max(committed_batches(root), default=-1)
    begun = [number for number in root.at("offsets").numbered() if number > last]
    if not begun:
        return []
    files = [file for file in _files(root) if file.version - 1 in begun]
    if any(file.uid is not None for file in files):
        raise unsupported(
            f"{root.path}: state of batch {begun[-1]}, which was not committed, in checkpoint format 2: only its "
            "commit names the files; leave out uncommitted"
        )
    written = {file.version - 1 for file in files}
    return [number for number in begun if number in written]


def begun_notice(batch_id: int) -> str:
    """The reason why rows of such a batch may not be those of any batch."""
    return (
        f"batch {batch_id} was begun, and no commit of it is there; Spark computes it again when the query goes on, "
        "perhaps with other rows"
    )


def _files(root: Folder) -> Iterator[DataFile]:
    for operator_id in operator_ids(root):
        operator = root.at("state", operator_id)
        for partition in (operator.at(name) for name in operator.folders() if NUMBER.fullmatch(name)):
            yield from data_files(partition)
            for name in partition.folders():
                yield from data_files(partition.at(name))
