"""What the rows of a view were over several batches, and what each batch changed in them.

Both are found in the stored bytes: those of the keys that changed, with what they had before, are held in memory; the
rest of the state only streams past. Of each batch the delta or changelog is read; where there is none, its state is
compared with that of the batch before.

A row that is written again as it was has not changed. Where the key of a view tells its rows apart, another value is an
update. Elements of a list and rows of a join's side, of which equal ones may be there at a time, come and go: of equal
ones the newest goes first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from statestore.formats.spark.checkpoint import Checkpoint
from statestore.formats.spark.decoding import Decoder, decode_columns, decoder_of
from statestore.formats.spark.key_bounds import KeyBounds, changes_within
from statestore.formats.spark.partition_load import (
    Partition,
    has_change_file,
    of_family,
    open_partition,
    stored_rows,
    uid_of,
    version_changes,
)
from statestore.formats.spark.query_metadata import Batch
from statestore.formats.spark.records import Changes
from statestore.formats.spark.replay import Overlay, Parts, changed_rows, parts_of
from statestore.formats.spark.row_presence import OPEN, intervals, net_changes
from statestore.formats.spark.spans import Ints, spans_of
from statestore.formats.spark.state_difference import changes_between
from statestore.formats.spark.state_rows import row_form
from statestore.formats.spark.views import View
from statestore.formats.spark.written_rows import WrittenRows, joined_writes, puts, written_rows

INSERT, PREIMAGE, POSTIMAGE, REMOVAL = range(4)
FROM_BATCH, TO_BATCH, BATCH, KIND = "from_batch", "to_batch", "batch_id", "kind"
_OUTPUT_ROWS = 65536
_LOOKED_UP = 64  # more keys than this are not looked up, but found while the state streams past
Held = list[tuple[int, Parts]]


@dataclass(frozen=True)
class PartitionBatches:
    """One partition of a flat view in ``batches``, which follow each other.

    ``columns`` are decoded, all by default. ``lookup`` are [from, to) of keys without the id of a column family,
    ascending and apart: other rows are left out, but for some between them if there are many.
    """

    checkpoint: Checkpoint
    view: View
    partition: int
    batches: Sequence[Batch]
    columns: Collection[str] | None = None
    lookup: Sequence[KeyBounds] | None = None

    def decoder(self, columns: Collection[str] | None) -> Decoder:
        return decoder_of(self.checkpoint, self.view, row_form(self.checkpoint, self.view), columns)

    def opened(self, batch: Batch) -> Partition:
        """The partition as of a batch; the settings that concern state stay with a query for life."""
        checkpoint = replace(self.checkpoint, batch=replace(batch, settings=self.checkpoint.batch.settings))
        return open_partition(checkpoint, self.view.store, self.partition, self.view.family.name)

    def ranges(self) -> Sequence[KeyBounds] | None:
        """``lookup`` as ranges of stored keys."""
        return None if self.lookup is None else of_family(self.opened(self.batches[-1]), self.lookup)


def tells_rows_apart(view: View) -> bool:
    """Whether no two rows of the view have the same key at a time."""
    return view.shape != "join-side" and not view.listed


def read_history(source: PartitionBatches) -> Iterator[pa.RecordBatch]:
    """The rows with the batches they were there: ``from_batch``, and ``to_batch`` that changed or deleted them, null if
    the last batch has them; the columns and ``partition_id``. What the first batch has counts as written by it.

    Raises as `read_state`.
    """
    first, decoder = source.batches[0], source.decoder(source.columns)
    held = list(_written(source, source.batches))
    before: Held = []
    for changed, rest in _base(source, first, held, decoder):
        if changed is not None:
            before.append((first.batch_id, puts(changed)))
        if rest is not None:
            count = len(rest[0])
            yield _batch(source, rest, _batch_columns(np.full(count, first.batch_id), np.full(count, OPEN)))
    rows = written_rows(source.decoder(None), joined_writes(before + held))
    content, start, end = intervals(rows.content, rows.start, rows.end)
    for at in range(0, len(content), _OUTPUT_ROWS):
        some = slice(at, at + _OUTPUT_ROWS)
        yield _batch(source, rows.columns(decoder, content[some]), _batch_columns(start[some], end[some]))


def read_row_changes(source: PartitionBatches, before: Batch | None) -> Iterator[pa.RecordBatch]:
    """What the batches changed, in their order: ``batch_id``, ``kind`` (INSERT, PREIMAGE, POSTIMAGE or REMOVAL), the
    columns and ``partition_id``; a postimage follows its preimage. ``before`` is the batch before the first; None: its
    state is empty.

    Raises as `read_state`.
    """
    held = list(_written(source, source.batches if before is None else [before, *source.batches], before is None))
    base: Held = []
    if before is not None and held:
        found = _base(source, before, held, None)
        base = [(before.batch_id, puts(changed)) for changed, _ in found if changed is not None]
    rows = written_rows(source.decoder(None), joined_writes(base + held))
    content, batch, kind = _events(source.view, rows, source.batches[0].batch_id)
    decoder = source.decoder(source.columns)
    for at in range(0, len(content), _OUTPUT_ROWS):
        some = slice(at, at + _OUTPUT_ROWS)
        told = {BATCH: pa.array(batch[some]), KIND: pa.array(kind[some], pa.int8())}
        yield _batch(source, rows.columns(decoder, content[some]), told)


def _written(
    source: PartitionBatches, batches: Sequence[Batch], with_first: bool = False
) -> Iterator[tuple[int, Parts]]:
    """What each batch after the first wrote, or each."""
    ranges = source.ranges()
    for number, batch in enumerate(batches):
        if number or with_first:
            for changes in _changes_of(source, batches[number - 1] if number else None, batch, ranges):
                if ranges is not None:
                    changes = changes_within(changes, ranges)
                if len(changes):
                    yield batch.batch_id, parts_of(changes)


def _changes_of(
    source: PartitionBatches, before: Batch | None, batch: Batch, ranges: Sequence[KeyBounds] | None
) -> Iterator[Changes]:
    after = source.opened(batch)
    uid = uid_of(after, batch.uids)
    if has_change_file(after, batch.version, uid):
        return version_changes(after, batch.version, uid)
    return changes_between(None if before is None else source.opened(before), after, ranges)


def _base(
    source: PartitionBatches, batch: Batch, held: Held, decoder: Decoder | None
) -> Iterator[tuple[pa.RecordBatch | None, list[pa.Array] | None]]:
    """The state as of a batch: stored rows of the keys that are written later, and the columns of the others if there
    is a decoder."""
    keys = pa.concat_arrays([parts_of(None)[1], *(parts[1] for _, parts in held)]).unique()
    later = Overlay(np.empty(len(keys), np.uint8), keys, keys, b"")
    partition, ranges = source.opened(batch), source.ranges()
    if decoder is None and len(keys) <= _LOOKED_UP and partition.checkpoint.provider == "rocksdb":
        ranges = [(key, key + b"\0") for key in sorted(keys.to_pylist())]

    def parted(rows: pa.RecordBatch) -> tuple[pa.RecordBatch | None, list[pa.Array] | None]:
        changed, _ = changed_rows(rows.column("key"), later)
        rest = np.ones(rows.num_rows, np.bool_)
        rest[changed] = False
        found = rows.take(pa.array(changed)) if len(changed) else None
        if decoder is None or not rest.any():
            return found, None
        others = rows if found is None else rows.filter(pa.array(rest))
        return found, decode_columns(decoder, spans_of(others.column(0)), spans_of(others.column(1))).columns

    yield from stored_rows(partition, parted, key_ranges=ranges)


def _events(view: View, rows: WrittenRows, first: int) -> tuple[Ints, Ints, Ints]:
    """(content, batch, kind) of what changed in the batches from ``first`` on, by batch and key."""
    content, batch, net = net_changes(rows.content, rows.start, rows.end)
    told = batch >= first
    content, batch, net = content[told], batch[told], net[told]
    kind = np.where(net > 0, INSERT, REMOVAL)
    key = rows.key[rows.example[content]] if len(content) else content
    if tells_rows_apart(view):
        order = np.lexsort((net, key, batch))  # what goes, then what comes
        content, batch, net, kind, key = content[order], batch[order], net[order], kind[order], key[order]
        pairs = np.flatnonzero((key[1:] == key[:-1]) & (batch[1:] == batch[:-1]))
        kind[pairs], kind[pairs + 1] = PREIMAGE, POSTIMAGE
    else:
        order = np.lexsort((content, net > 0, key, batch))
        content, batch, net, kind = content[order], batch[order], net[order], kind[order]
    count = np.abs(net)
    return np.repeat(content, count), np.repeat(batch, count), np.repeat(kind, count)


def _batch_columns(start: Ints, end: Ints) -> dict[str, pa.Array]:
    return {FROM_BATCH: pa.array(start), TO_BATCH: pa.array(end, mask=end == OPEN)}


def _batch(source: PartitionBatches, columns: list[pa.Array], about: dict[str, pa.Array]) -> pa.RecordBatch:
    """The columns of the view, with those about them in front."""
    number = pa.array(np.full(len(columns[0]), source.partition, np.int32))
    found = [
        (field.name, column)
        for field, column in zip(source.view.schema, [*columns, number], strict=True)
        if source.columns is None or field.name in source.columns
    ]
    names, shown = [name for name, _ in found], [column for _, column in found]
    return pa.RecordBatch.from_arrays([*about.values(), *shown], names=[*about, *names])
