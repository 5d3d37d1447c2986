"""What a checkpoint keeps of one store, from its logs and the sizes of its files: no state is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Store
from statestore.formats.spark.checkpoint.checkpoint_files import Folder
from statestore.formats.spark.checkpoint.query_metadata import Batch
from statestore.formats.spark.kept_batches import begin_times, read_batches


@dataclass(frozen=True)
class CheckpointSummary:
    """``oldest`` and ``newest`` are the batches that can be read, ``first_time`` and ``last_time`` (epoch microseconds)
    when these began, None where the checkpoint does not tell. ``bytes`` are those of all files that the store
    has, for whatever batch; variables of `transformWithState` share them. ``partitions`` are (first batch, last batch,
    number of partitions): several where Spark has repartitioned the state."""

    oldest: int
    newest: int
    first_time: int | None
    last_time: int | None
    bytes: int
    partitions: tuple[tuple[int, int, int], ...]


def summarize_checkpoint(checkpoint: Checkpoint, store: Store, kept: Sequence[int]) -> CheckpointSummary:
    """Raises InvalidInputError NO_ACCESS."""
    ends = read_batches(checkpoint, sorted({kept[0], kept[-1]}))
    times = begin_times(checkpoint, ends).tolist() if all(batch.timestamp_ms is not None for batch in ends) else None
    return CheckpointSummary(
        kept[0],
        kept[-1],
        None if times is None else times[0],
        None if times is None else times[-1],
        sum(_bytes(checkpoint.folder(store, number)) for number in store.folders),
        _partitions(store, read_batches(checkpoint, kept)),
    )


def _partitions(store: Store, batches: Sequence[Batch]) -> tuple[tuple[int, int, int], ...]:
    found: list[tuple[int, int, int]] = []
    for batch in batches:
        number, count = batch.batch_id, store.at(batch).count
        if found and found[-1][2] == count:
            found[-1] = found[-1][0], number, count
        else:
            found.append((number, number, count))
    return tuple(found)


def _bytes(folder: Folder) -> int:
    return sum(folder.files().values()) + sum(folder.at("SSTs").files().values())
