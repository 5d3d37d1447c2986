"""Writing of the segments of a compaction, block by block, from rows of several input segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from statestore.catalog.commits import new_files
from statestore.catalog.commits.new_files import NewFiles, RowBlock, block_table, late_rows
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import LocalStorage
from statestore.catalog.reads.scattered_rows import GatheredRows
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep.closure_folding import FoldedRows, Inputs, Numbers
from statestore.formats.kernels.arrays import Hashes
from statestore.formats.kernels.compiled_use import rewrites_pay
from statestore.formats.segments.compressed_write import Compression
from statestore.formats.segments.ipc_file import Batches, encode_file, write_file
from statestore.formats.segments.key_index import KeyIndex, entries_batch
from statestore.formats.segments.segment_meta import FileRef, Role, SegmentMeta
from statestore.formats.segments.segment_write import RowsOfBlock, write_blocks, write_segment
from statestore.formats.values.key_hash import hash_keys, key_groups_of

COLD = replace(new_files.REMOTE, batch_rows=0)
# Roles that are compressed even where they are read often, if each byte of theirs is fetched from an object store.
FETCHED = ("open", "closed")


class GivenUpError(Exception):
    """A step was given up before it was written."""


@dataclass(frozen=True)
class Output:
    """The inputs of a rewriting, and the place where its files are recorded.

    ``stop`` is asked before each block whether the work is given up.
    """

    files: SegmentFiles
    log_state: LogState
    new: NewFiles
    inputs: Inputs
    tombstone: bool
    stop: Callable[[], bool] = lambda: False

    @property
    def column_names(self) -> tuple[str, ...]:
        spec = self.files.spec
        return spec.key_names if self.tombstone else (*spec.key_names, *spec.value_names)


def write_output(output: Output, rows: FoldedRows, role: Role, blocks: Sequence[Numbers], cold: bool) -> None:
    """Write one segment of ``blocks``, positions in ``rows`` sorted by start each, and its key index; record both."""
    spec, new = output.files.spec, output.new
    cold = cold or spec.captured is not None or (role in FETCHED and not output.files.is_local)
    name = new.new_name(".arrow")
    hashes: list[Hashes] = []

    def write(name: str, schema: pa.Schema, batches: Batches) -> FileRef:
        return _create(output, name, schema, batches)

    def tables() -> Iterator[RowsOfBlock]:
        for chosen in blocks:
            if output.stop():
                raise GivenUpError
            mine = rows.take(chosen)
            block = _block(output, mine, role)
            hashes.append(_hashes(output, mine, block.columns[: len(spec.key)]))
            yield RowsOfBlock(block_table(spec, block, role, output.tombstone), late_rows(output.log_state, block))

    if len(blocks) == 1 and not cold:
        (only,) = tables()
        meta = write_segment(
            write,
            name,
            only.table,
            role=role,
            tombstone=output.tombstone,
            key_names=spec.key_names,
            late=only.late,
            key_groups=(0, 0),
        )
        del only
    else:
        columns = spec.segment_schema(output.tombstone, role == "belief")
        meta = write_blocks(
            write,
            name,
            columns,
            tables(),
            role=role,
            tombstone=output.tombstone,
            key_names=spec.key_names,
            compression=_compression(output, role) if cold else None,
        )
    whole = np.concatenate(hashes)
    groups = key_groups_of(np.array([whole.min(), whole.max()], np.uint64), spec.key_groups)
    meta = replace(meta, key_groups=(int(groups[0]), int(groups[1])))
    if meta.rows >= new_files.INDEX_MIN_ROWS or meta.blocks:
        meta = _with_index(output, meta, whole, rows, blocks)
    new.segments.append(meta)


def _compression(output: Output, role: Role) -> Compression:
    """Return how rows are compressed: in short batches where reads fetch the first batches of many blocks."""
    return COLD if output.files.is_local or role == "open" else new_files.REMOTE


def _with_index(
    output: Output, meta: SegmentMeta, hashes: Hashes, rows: FoldedRows, blocks: Sequence[Numbers]
) -> SegmentMeta:
    index = KeyIndex.build(hashes)
    ordered, entries = index.hashes, index.rows
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(again):
        starts = rows.start.take(np.concatenate(blocks))
        backward = starts.take(entries.take(again + 1)) < starts.take(entries.take(again))
        if backward.any():  # two keys share a hash, and their rows lie in blocks of different times
            entries = entries[np.lexsort((starts[entries], ordered))]
    batch = entries_batch(ordered, entries)
    return replace(meta, index=_create(output, output.new.new_name(".index.arrow"), batch.schema, [batch]))


def _create(output: Output, name: str, schema: pa.Schema, batches: Batches) -> FileRef:
    """Create a data file, on a local disk without a copy of its bytes in memory."""
    storage = output.files.storage
    output.new.written[name] = 0  # so that it is removed if the step fails
    if isinstance(storage, LocalStorage):
        ref = storage.create_streamed(name, lambda file: write_file(file, name, schema, batches))
    else:
        data, ref = encode_file(name, schema, batches, paged=True)
        storage.create_many({name: data})
    output.new.written[name] = ref.bytes
    return ref


def _hashes(output: Output, rows: FoldedRows, keys: Sequence[pa.Array]) -> Hashes:
    """Return the key hash of each row. Where most rows of an input stay, their hashes are those of its index."""
    counts = np.bincount(rows.source)
    number = int(counts.argmax())
    meta = output.inputs.segments[number].meta
    if meta.index is None or 2 * counts[number] < meta.rows or not output.files.is_local:
        return hash_keys(keys)
    index = output.files.index(meta)
    known = np.empty(meta.rows, np.uint64)
    known[index.rows] = index.hashes
    others = np.flatnonzero(rows.source != number)
    if len(others) == 0:
        return known.take(rows.row)
    found = np.empty(len(rows), np.uint64)
    mine = np.flatnonzero(rows.source == number)
    found[mine] = known.take(rows.row.take(mine))
    found[others] = hash_keys([key.take(pa.array(others)) for key in keys])
    return found


def _block(output: Output, mine: FoldedRows, role: Role) -> RowBlock:
    inputs = output.inputs
    gather = GatheredRows(
        inputs.opened, mine.source, mine.row, compiled=rewrites_pay(len(mine)), kept_bytes=inputs.kept_bytes
    )
    return RowBlock(
        [gather.column(name) for name in output.column_names],
        mine.start,
        mine.end,
        mine.added.astype(np.int64),
        mine.closed.astype(np.int64),
        mine.split,
        mine.dropped.astype(np.int64) if role == "belief" else None,
    )
