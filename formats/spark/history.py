"""History of the rows of a state view over several batches, and the changes of each batch.

Both come from the stored bytes. The bytes of changed keys, before and after, are held in memory; the rest of the state
only streams past. Where too many keys changed, everything is read several times, each time for some of them. For each
batch the delta or changelog is read; where there is none, its state is compared with that of the batch before.

Spark may have repartitioned the state between batches. That changed no row, but from then on a row is in another
partition. Partitions between which rows moved are read together.

A row that is written again unchanged has not changed. Where the key of a state view identifies its rows, another value
is an update. Elements of a list and rows of a join's side are inserted and deleted, and equal ones may exist at a time:
of equal rows the newest is deleted first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.bytes.hash_passes import HashPass, HashRange
from statestore.formats.kernels.arrays import OPEN, Ints
from statestore.formats.rocksdb.rows import BATCH_ROWS
from statestore.formats.rocksdb.stored_difference import Differing
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.checkpoint_files import CHANGES
from statestore.formats.spark.checkpoint.query_metadata import Batch, moves_rows
from statestore.formats.spark.checkpoint.state_views import StateView
from statestore.formats.spark.providers.bulk_replay import changes_kept, fitted, parts_kept, rows_kept, stored_passes
from statestore.formats.spark.providers.file_records import DELETE, PUT, Changes
from statestore.formats.spark.providers.partition_load import (
    FAMILY_BYTES,
    Partition,
    family_of,
    has_change_file,
    hashes_of_keys,
    of_family,
    open_partition,
    stored_rows,
    uid_of,
    version_changes,
)
from statestore.formats.spark.providers.replay import Overlay, Parts, changed_rows, parts_of, weight_of
from statestore.formats.spark.providers.rocksdb_provider import changes_of_family, rows_of_family
from statestore.formats.spark.providers.stored_rows import (
    MANY_RANGES,
    KeyBounds,
    StoredRows,
    changes_within,
    rows_within,
)
from statestore.formats.spark.rows.unsafe_row import decode_fields, slot_of
from statestore.formats.spark.state_columns import Decoder, decode_columns, decoder_of
from statestore.formats.spark.state_difference import are_zips, changes_between, changes_of, differing_rows
from statestore.formats.spark.state_rows import row_form
from statestore.formats.spark.written_rows import (
    WrittenRows,
    intervals,
    joined_writes,
    net_changes,
    puts,
    written_rows,
)

INSERT, PREIMAGE, POSTIMAGE, REMOVAL = range(4)
FROM_BATCH, TO_BATCH, BATCH, KIND = "from_batch", "to_batch", "batch_id", "kind"
Write = tuple[int, int, Parts]
Held = list[Write]


@dataclass(frozen=True)
class PartitionBatches:
    """One partition of a flat state view in ``batches``, which follow each other.

    With ``groups``, it is all partitions whose number has the remainder ``partition`` when divided by ``groups``. Rows
    stay among these when the state is repartitioned. ``columns`` are decoded, all by default. ``lookup`` are [from, to)
    of keys without the id of a column family, ascending and apart. Other rows are left out, except some between the
    ranges if there are many. Rows whose keys are not in ``hashes`` are left out, too.
    """

    checkpoint: Checkpoint
    state_view: StateView
    partition: int
    batches: Sequence[Batch]
    columns: Collection[str] | None = None
    lookup: Sequence[KeyBounds] | None = None
    groups: int | None = None
    hashes: HashRange | None = None

    @property
    def all_hashes(self) -> HashRange:
        """The range of all keys, with hashes that never separate rows which are compared with each other."""
        if is_parted_anywhere(self.state_view):
            return HashRange(hashes_of_keys(self.state_view.store))
        store, names = self.state_view.store, self.state_view.family.key.names
        form = row_form(self.checkpoint, self.state_view)
        is_plain = form.bare or (self.state_view.family.encoder.ordering == "none" and not store.prefix_columns)
        if not is_plain or form.whole is not decode_fields:
            return HashRange(None)
        return HashRange(hashes_of_keys(store, (not form.bare) + slot_of(names.index("index"), len(names))))

    def decoder(self, columns: Collection[str] | None) -> Decoder:
        form = row_form(self.checkpoint, self.state_view)
        partition = self.partition if self.groups is None else None
        return decoder_of(self.checkpoint, self.state_view, form, columns, partition=partition)

    def numbers(self, batch: Batch) -> list[int]:
        """The partitions as of a batch. Raises NotFoundError SPARK_STATE_NOT_FOUND if one is missing."""
        if self.groups is None:
            return [self.partition]
        store = self.state_view.store.at(batch)
        store.check_partitions(self.checkpoint.root.path)
        return [number for number in store.partitions if number % self.groups == self.partition]

    def opened(self, batch: Batch) -> list[Partition]:
        """Open the partitions as of a batch. Settings that concern state never change during a query's life."""
        checkpoint = replace(self.checkpoint, batch=replace(batch, settings=self.checkpoint.batch.settings))
        store = self.state_view.store.at(batch)
        return [
            open_partition(checkpoint, store, number, self.state_view.family.name) for number in self.numbers(batch)
        ]

    @cached_property
    def family_id(self) -> int | None:
        """The id of the column family under which the keys of all batches are returned."""
        if not self.state_view.store.has_families:
            return None
        ids = (family_of(each) for batch in reversed(self.batches) for each in self.opened(batch))
        return next((number for number in ids if number is not None), None)

    @cached_property
    def _ids(self) -> dict[tuple[int, int], int | None]:
        """The id of the family by batch and partition."""
        return {}

    def id_in(self, partition: Partition) -> int | None:
        """The family id that keys of a partition have as of its batch. Only a repartition assigns new ids."""
        if self.groups is None:
            return self.family_id
        key = partition.checkpoint.batch.batch_id, partition.number
        if key not in self._ids:
            self._ids[key] = family_of(partition)
        return self._ids[key]

    def ranges(self, partition: Partition) -> Sequence[KeyBounds] | None:
        """``lookup`` as ranges of stored keys."""
        return None if self.lookup is None else of_family(self.id_in(partition), self.lookup)

    def other_id(self, partition: Partition) -> int | None:
        """The id under which keys of a partition are to be returned, None if they have it already."""
        if self.groups is None or self.family_id is None:
            return None
        return None if self.id_in(partition) == self.family_id else self.family_id

    @property
    def takes_all(self) -> bool:
        """Return whether `named` and `stored` return what they are given."""
        is_whole = self.hashes is None or self.hashes.is_whole
        return is_whole and self.lookup is None and self.groups is None

    def named(self, partition: Partition, changes: Changes) -> Changes:
        """Changes of a partition within the lookup, under the id of `family_id`."""
        ranges, other = self.ranges(partition), self.other_id(partition)
        if ranges is not None:
            changes = changes_within(changes, ranges)
        if self.hashes is not None:
            changes = changes_kept(self.hashes, changes)
        return changes if other is None else changes_of_family(changes, other, self.checked)

    def stored(self, partition: Partition, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of a partition within the lookup, under the id of `family_id`."""
        ranges, other = self.ranges(partition), self.other_id(partition)
        if ranges is not None:
            rows = rows_within(rows, ranges)
        if self.hashes is not None:
            rows = rows_kept(self.hashes, rows)
        return rows if other is None else rows_of_family(rows, other, self.checked)

    @property
    def checked(self) -> bytes | None:
        """The delimiter between merged values; None for rows without checksums."""
        return self.checkpoint.delimiter if self.checkpoint.has_checksums else None


def tells_rows_apart(state_view: StateView) -> bool:
    """Return whether no two rows of the state view have the same key at a time."""
    return state_view.shape != "join-side" and not state_view.listed


def is_parted_anywhere(state_view: StateView) -> bool:
    """Return whether the history of some keys can be read without the other keys.

    It cannot where a join's side stores the rows of one join key under the key and a number: when one row is removed,
    the last of them gets its number.
    """
    return state_view.shape != "join-side" or "index" not in state_view.family.key.names


def read_history(source: PartitionBatches) -> Iterator[pa.RecordBatch]:
    """The rows with the batches in which they existed.

    ``from_batch`` wrote a row, and ``to_batch`` changed or deleted it; null if the last batch has it. The columns of
    the state view follow, and ``partition_id``, the partition in the first of these batches. The rows of the first
    batch count as written by it.

    Raises as `read_state`.
    """
    for part, writes in _in_passes(source, source.batches):
        yield from _history(part, writes)
        del part, writes


def _history(source: PartitionBatches, writes: Held) -> Iterator[pa.RecordBatch]:
    first, decoder = source.batches[0], source.decoder(source.columns)
    before: Held = []
    for partition, changed, rest in _base(source, first, writes, decoder):
        if changed is not None:
            before.append((first.batch_id, partition, puts(changed)))
        if rest is not None:
            count = len(rest[0])
            about = _batch_columns(np.full(count, first.batch_id), np.full(count, OPEN))
            yield _batch(source, rest, about, np.full(count, partition))
    rows = written_rows(source.decoder(None), joined_writes(before + writes))
    content, start, end = intervals(rows.content, rows.start, rows.end)
    partition_ids = _partition_ids(source, rows, content, start)
    for at in range(0, len(content), BATCH_ROWS):
        some = slice(at, at + BATCH_ROWS)
        columns = rows.columns(decoder, content[some])
        yield _batch(source, columns, _batch_columns(start[some], end[some]), partition_ids[some])


def read_row_changes(source: PartitionBatches, before: Batch | None) -> Iterator[pa.RecordBatch]:
    """The changes of the batches, of each key in their order.

    Columns are ``batch_id``, ``kind`` (INSERT, PREIMAGE, POSTIMAGE or REMOVAL), the columns of the state view and
    ``partition_id``, the partition in that batch. A postimage follows its preimage. ``before`` is the batch before the
    first; None: its state is empty.

    Raises as `read_state`.
    """
    if _are_compared(source, before):
        yield from _compared_changes(source, before)
        return
    batches = source.batches if before is None else [before, *source.batches]
    for part, writes in _in_passes(source, batches, before is None):
        yield from _row_changes(part, before, writes)
        del part, writes


def read_written_ends(source: PartitionBatches, before: Batch) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield the rows of keys to which the batches wrote: those as of ``before``, and those as of the last batch.

    Columns are those of the state view. Raises as `read_state`.
    """
    for part, writes in _in_passes(source, [before, *source.batches]):
        rows, decoder = _written_since(part, before, writes), part.decoder(part.columns)
        ends = rows.content[rows.start == before.batch_id], rows.content[rows.end == OPEN]
        old, new = (
            _batch(part, rows.columns(decoder, content), {}, np.full(len(content), part.partition)) for content in ends
        )
        yield old, new
        del part, writes, rows


def _row_changes(source: PartitionBatches, before: Batch | None, writes: Held) -> Iterator[pa.RecordBatch]:
    rows = _written_since(source, before, writes)
    content, batch, kind = _events(source.state_view, rows, source.batches[0].batch_id)
    partition_ids = _partition_ids(source, rows, content, batch)
    decoder = source.decoder(source.columns)
    for at in range(0, len(content), BATCH_ROWS):
        some = slice(at, at + BATCH_ROWS)
        about = {BATCH: pa.array(batch[some]), KIND: pa.array(kind[some], pa.int8())}
        yield _batch(source, rows.columns(decoder, content[some]), about, partition_ids[some])


def _written_since(source: PartitionBatches, before: Batch | None, writes: Held) -> WrittenRows:
    """The rows that were written, and those that their keys had as of ``before``."""
    base: Held = []
    if before is not None and writes:
        base_rows = _base(source, before, writes, None)
        base = [
            (before.batch_id, partition, puts(changed)) for partition, changed, _ in base_rows if changed is not None
        ]
    return written_rows(source.decoder(None), joined_writes(base + writes))


def _are_compared(source: PartitionBatches, before: Batch | None) -> bool:
    """Return whether each batch has a whole state and no file of changes, and its rows are told apart by their keys."""
    if source.groups is not None or (source.lookup is not None and len(source.lookup) > 1):
        return False
    if not tells_rows_apart(source.state_view):
        return False
    last = before
    for batch in source.batches:
        if last is None or last.version != batch.version:
            (partition,) = source.opened(batch)
            if has_change_file(partition, batch.version, uid_of(partition, batch.uids)) or not are_zips(partition):
                return False
        last = batch
    return before is None or are_zips(*source.opened(before))


def _compared_changes(source: PartitionBatches, before: Batch | None) -> Iterator[pa.RecordBatch]:
    """Yield the changes of one batch after the other, of which none is held."""
    decoder, last = source.decoder(source.columns), before
    for batch in source.batches:
        if last is None or last.version != batch.version:
            (partition,) = source.opened(batch)
            then = None if last is None else source.opened(last)[0]
            for found in differing_rows(then, partition, source.ranges(partition)):
                rows, kind = _in_turn(found)
                columns = decode_columns(decoder, cells_of(rows.column(0)), cells_of(rows.column(1))).columns
                about = {
                    BATCH: pa.array(np.full(len(kind), batch.batch_id)),
                    KIND: pa.array(kind, pa.int8()),
                }
                yield _batch(source, columns, about, np.full(len(kind), source.partition))
        last = batch


def _in_turn(found: Differing) -> tuple[pa.RecordBatch, Ints]:
    """The rows of a difference with the kind of each; the row after a change follows the row before it."""
    parts = (found.removed, found.before, found.after, found.added)
    gone, changed, _, come = (part.num_rows for part in parts)
    pairs = gone + np.arange(2 * changed).reshape(2, changed).T.ravel()
    order = np.concatenate([np.arange(gone), pairs, gone + 2 * changed + np.arange(come)])
    kind = np.repeat([REMOVAL, PREIMAGE, POSTIMAGE, INSERT], [gone, changed, changed, come])[order]
    return pa.concat_batches(parts).take(pa.array(order)), kind


def _in_passes(
    source: PartitionBatches, batches: Sequence[Batch], with_first: bool = False
) -> Iterator[tuple[PartitionBatches, Held]]:
    """The writes of each batch after the first, or of each batch.

    The writes of all keys are returned at once or, where they are too many to be held, of some keys after the others.
    """

    def written(one: HashPass) -> tuple[PartitionBatches, Held]:
        asked = replace(source, hashes=one.kept)
        writes: Held = []
        weight = 0
        for batch, partition, parts in _written(asked, batches, with_first):
            some = parts if one.kept is asked.hashes else parts_kept(one.kept, parts)
            writes.append((batch, partition, some))
            weight += weight_of(writes[-1][2])
            if weight > one.most:
                fitting = zip(writes, fitted(one, [parts for _, _, parts in writes]), strict=True)
                writes = [(batch, partition, some) for (batch, partition, _), some in fitting if len(some[0])]
                weight = one.weight
        one.weight = weight
        return asked, writes

    for kept, (part, writes) in stored_passes(source.all_hashes, written):
        yield part if part.hashes == kept else replace(part, hashes=kept), writes
        del part, writes


def _written(source: PartitionBatches, batches: Sequence[Batch], with_first: bool = False) -> Iterator[Write]:
    """The writes of each batch after the first, or of each batch."""
    number = 0 if with_first else 1
    while number < len(batches):
        before = batches[number - 1] if number else None
        logged = _logged(source, before, batches[number:])
        if logged:
            yield from _logged_writes(source, logged)
        else:
            for partition, changes in _changes_of(source, before, batches[number]):
                if len(changes):
                    yield batches[number].batch_id, partition, parts_of(changes)
        number += len(logged) or 1


def _logged_writes(source: PartitionBatches, batches: Sequence[Batch]) -> Iterator[Write]:
    """The writes of batches that have files of changes in one partition, as `_logged` finds them."""
    ids = {batch.version: batch.batch_id for batch in batches}
    partition = source.opened(batches[-1])[0]
    for run in version_changes(partition, [(batch.version, uid_of(partition, batch.uids)) for batch in batches]):
        if source.takes_all:
            kind, keys, values = parts_of(run.changes)
            for file, some in run.slices():
                count = some.stop - some.start
                parts = kind[some], keys.slice(some.start, count), values.slice(some.start, count)
                yield ids[file.version], partition.number, parts
            continue
        for single in run.by_file():
            changes = source.named(partition, single.changes)
            if len(changes):
                yield ids[single.files[0].version], partition.number, parts_of(changes)


def _logged(source: PartitionBatches, before: Batch | None, batches: Sequence[Batch]) -> Sequence[Batch]:
    """The first of these batches that follow each other and have files of changes in one partition."""
    if source.groups is not None:
        return ()
    partition = source.opened(batches[0])[0]
    for number, batch in enumerate(batches):
        version = batch.version
        is_next = before is None or (before.version + 1 == version if number else before.version != version)
        if not is_next or not has_change_file(partition, version, uid_of(partition, batch.uids)):
            return batches[:number]
        before = batch
    return batches


def _changes_of(source: PartitionBatches, before: Batch | None, batch: Batch) -> Iterator[tuple[int, Changes]]:
    """Yield (partition, changes in it) of the rows in the lookup, under the family id of all batches."""
    if before is not None and before.version == batch.version:  # the batch was skipped
        return
    after = source.opened(batch)
    if before is not None and source.numbers(before) != source.numbers(batch):
        then = source.opened(before)
        if not (moves_rows(before, batch) and _is_copied([*then, *after], batch)):
            yield from changes_between(then, after, source.stored, source.ranges, source.hashes)
        return
    then = []
    for number, partition in enumerate(after):
        uid = uid_of(partition, batch.uids)
        if has_change_file(partition, batch.version, uid):
            yield from (
                (partition.number, source.named(partition, run.changes))
                for run in version_changes(partition, [(batch.version, uid)])
            )
            continue
        if before is not None and not then:
            then = source.opened(before)
        if source.groups is None:
            for found in differing_rows(then[0] if then else None, partition, source.ranges(partition)):
                for changes in (changes_of(PUT, found.added, found.after), changes_of(DELETE, found.removed)):
                    yield partition.number, source.named(partition, changes)
            continue
        yield from changes_between(then[number : number + 1], [partition], source.stored, source.ranges, source.hashes)


def _is_copied(partitions: Sequence[Partition], batch: Batch) -> bool:
    """Return whether a batch wrote all state though other batches write only changes: Spark copied the state."""
    logs = {file.version for partition in partitions for file in partition.files if file.kind in CHANGES}
    return bool(logs) and batch.version not in logs


def _base(
    source: PartitionBatches, batch: Batch, writes: Held, decoder: Decoder | None
) -> Iterator[tuple[int, pa.RecordBatch | None, list[pa.Array] | None]]:
    """The state as of a batch, by partition: stored rows of the keys that are written later.

    With a decoder, the columns of the other rows are returned, too.
    """
    keys = pa.concat_arrays([parts_of(None)[1], *(parts[1] for _, _, parts in writes)]).unique()
    later = Overlay(np.empty(len(keys), np.uint8), keys, keys, b"")
    few = decoder is None and len(keys) <= MANY_RANGES and source.checkpoint.provider == "rocksdb"
    for partition in source.opened(batch):
        ranges, other = source.ranges(partition), source.other_id(partition)
        if few:
            asked: list[bytes] = sorted(keys.to_pylist())
            ranges = [(key, key + b"\0") for key in asked]
            if other is not None:
                bare = [(key[FAMILY_BYTES:], key[FAMILY_BYTES:] + b"\0") for key in asked]
                ranges = of_family(source.id_in(partition), bare)
        each = partial(_parted, source, later, decoder, other)
        for changed, rest in stored_rows(partition, each, key_ranges=ranges, hashes=source.hashes):
            yield partition.number, changed, rest


def _parted(
    source: PartitionBatches, later: Overlay, decoder: Decoder | None, other: int | None, stored: StoredRows
) -> tuple[pa.RecordBatch | None, list[pa.Array] | None]:
    """(stored rows of the keys of ``later``, the columns of the others if there is a decoder)."""
    rows = stored.batch
    if other is not None:
        rows = rows_of_family(rows, other, source.checked)
    changed, _ = changed_rows(rows.column("key"), later)
    rest = np.ones(rows.num_rows, np.bool_)
    rest[changed] = False
    touched = rows.take(pa.array(changed)) if len(changed) else None
    if decoder is None or not rest.any():
        return touched, None
    others = rows if touched is None else rows.filter(pa.array(rest))
    return touched, decode_columns(decoder, cells_of(others.column(0)), cells_of(others.column(1))).columns


def _events(state_view: StateView, rows: WrittenRows, first: int) -> tuple[Ints, Ints, Ints]:
    """(content, batch, kind) of the changes in the batches from ``first`` on, by batch and key."""
    content, batch, net = net_changes(rows.content, rows.start, rows.end)
    reported = batch >= first
    content, batch, net = content[reported], batch[reported], net[reported]
    kind = np.where(net > 0, INSERT, REMOVAL)
    key = rows.key[rows.example[content]] if len(content) else content
    if tells_rows_apart(state_view):
        order = np.lexsort((net, key, batch))  # removals before additions
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


def _partition_ids(source: PartitionBatches, rows: WrittenRows, content: Ints, batch: Ints) -> Ints:
    return np.full(len(content), source.partition) if source.groups is None else rows.partitions(content, batch)


def _batch(
    source: PartitionBatches, columns: list[pa.Array], about: dict[str, pa.Array], partition_ids: Ints
) -> pa.RecordBatch:
    """The columns of the state view with their partitions, preceded by the columns about each row."""
    number = pa.array(partition_ids.astype(np.int32))
    pairs = [
        (field.name, column)
        for field, column in zip(source.state_view.schema, [*columns, number], strict=True)
        if source.columns is None or field.name in source.columns
    ]
    names, shown = [name for name, _ in pairs], [column for _, column in pairs]
    return pa.RecordBatch.from_arrays([*about.values(), *shown], names=[*about, *names])
