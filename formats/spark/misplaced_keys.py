"""Keys in files of another partition than theirs, as where a file was put in place of its neighbour.

Such a file has the right form, so its rows are read. A lookup of one of their keys searches the partition of the key,
and does not find it. Spark places a row by the hash of its key (`statestore.formats.spark.rows.key_placement`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.engine import FileFinding
from statestore.formats.errors import StateStoreError
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.checkpoint_files import CHANGES, DataFile
from statestore.formats.spark.checkpoint.spark_schema import SparkType
from statestore.formats.spark.checkpoint.state_views import StateView, state_fields
from statestore.formats.spark.key_lookup import placed_columns
from statestore.formats.spark.providers.partition_load import (
    Partition,
    files_of_batch,
    keys_of_files,
    open_partition,
)
from statestore.formats.spark.rows.key_placement import partitions_of
from statestore.formats.spark.state_columns import Decoder, decode_columns, decoder_of
from statestore.formats.spark.state_rows import row_form

_KEY = "key"
_MOST_SHOWN = 3


@dataclass
class PlacementCheck:
    """The check of one partition; ``kinds`` are the types of the columns whose hash is the place of a row."""

    checkpoint: Checkpoint
    state_view: StateView
    partition: int
    kinds: Sequence[SparkType]
    misplaced: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self.misplaced += int(np.count_nonzero(self._is_misplaced(self._places(rows.column(_KEY)))))

    def findings(self) -> Sequence[FileFinding]:
        """Return the files of the batch that have keys of other partitions; none where no row is misplaced."""
        if not self.misplaced:
            return ()
        partition, decoder = self._opened(), self._decoder()
        # The keys of tables are those of the zip that names them.
        files = [file for file in files_of_batch(partition) if file.kind != "table"]
        found = (self._in_file(partition, file, decoder, keys) for file, keys in keys_of_files(partition, files))
        return [each for of_file in found for each in of_file]

    def findings_in_changes(self, batches: Collection[int]) -> Iterator[FileFinding]:
        """Yield the files of changes of batches that have keys of other partitions; each is read once.

        A state that begins with a snapshot is read without the changes before it, and the history with them. A file
        that cannot be read is left to the reads of its batch.
        """
        partition, decoder = self._opened(), self._decoder()
        files = [file for file in partition.files if file.kind in CHANGES and file.version - 1 in batches]
        for file, keys in keys_of_files(partition, files):
            with suppress(StateStoreError):
                yield from self._in_file(partition, file, decoder, keys)

    def _opened(self) -> Partition:
        return open_partition(self.checkpoint, self.state_view.store, self.partition, self.state_view.family.name)

    def _decoder(self) -> Decoder:
        form = row_form(self.checkpoint, self.state_view)
        return decoder_of(self.checkpoint, self.state_view, form, (_KEY,), partition=self.partition)

    def _in_file(
        self, partition: Partition, file: DataFile, decoder: Decoder, pieces: Iterable[Cells]
    ) -> Iterator[FileFinding]:
        places = [self._places(_keys(decoder, keys)) for keys in pieces if len(keys)]
        elsewhere = Counter(each for found in places for each in found[self._is_misplaced(found)].tolist())
        if elsewhere:
            yield self._finding(partition, file, sum(map(len, places)), elsewhere)

    def _finding(self, partition: Partition, file: DataFile, keys: int, elsewhere: Counter[int]) -> FileFinding:
        path = partition.folder.at(file.name).path
        names = ", ".join(str(number) for number, _ in elsewhere.most_common(_MOST_SHOWN))
        more = f" and {len(elsewhere) - _MOST_SHOWN} more" if len(elsewhere) > _MOST_SHOWN else ""
        word = "partition" if len(elsewhere) == 1 else "partitions"
        text = (
            f"{path}: {elsewhere.total()} of {keys} keys belong to {word} {names}{more}, expected keys of partition "
            f"{self.partition} of {self.state_view.store.count}: it is a file of another partition, or of another "
            "number of partitions, and lookups do not find these keys; restore it from a copy"
        )
        return FileFinding(path, text)

    def _places(self, keys: pa.StructArray) -> Ints:
        """The partition of each key; -1 where it is not known."""
        is_whole = self.state_view.shape in ("map", "timers")
        columns = [keys] if is_whole else keys.flatten()[: len(self.kinds)]
        found = partitions_of(columns, self.kinds, self.state_view.store.count)
        return np.full(len(keys), -1, np.int64) if found is None else found

    def _is_misplaced(self, places: Ints) -> Bools:
        found: Bools = (places >= 0) & (places != self.partition)
        return found


def placement_check(checkpoint: Checkpoint, state_view: StateView, partition: int) -> PlacementCheck | None:
    """Return the check of a partition; None where the places of rows are not certain."""
    columns = placed_columns(checkpoint, state_view)
    if not columns:
        return None
    kinds = [field.type for field in state_view.family.key.fields[:columns]]
    return PlacementCheck(checkpoint, state_view, partition, kinds)


def misplaced_in_changes(
    checkpoint: Checkpoint, state_view: StateView, batches: Collection[int]
) -> Iterator[FileFinding]:
    """Yield the files of changes of batches, in all partitions, that have keys of another partition.

    The batches place rows alike. What cannot be read is left to the reads of its batch.
    """
    for number in state_view.store.partitions:
        check = placement_check(checkpoint, state_view, number)
        if check is not None:
            with suppress(StateStoreError):
                yield from check.findings_in_changes(batches)


def _keys(decoder: Decoder, keys: Cells) -> pa.StructArray:
    """Decode stored keys, as those of deletions are decoded, which have no values."""
    nothing = Cells(np.empty(0, np.uint8), np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64))
    found = decode_columns(decoder, keys, nothing, np.ones(len(keys), np.bool_))
    number = [field.name for field in state_fields(decoder.state_view)].index(_KEY)
    return found.columns[number]
