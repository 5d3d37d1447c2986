"""Encoding of the files of one commit: segments with their key indexes, and the closure list."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.kernels.arrays import Bools, Hashes, Ints
from statestore.formats.segments.closures import encode_closures
from statestore.formats.segments.compressed_write import Compression
from statestore.formats.segments.key_index import encode_index
from statestore.formats.segments.segment_columns import end_column, time_column
from statestore.formats.segments.segment_meta import ClosureSlice, Role, SegmentMeta
from statestore.formats.segments.segment_write import encode_segment
from statestore.formats.values.key_hash import hash_keys, key_groups_of
from statestore.formats.values.without_pandas import arrow_numbers

# An index of fewer rows is built in memory, so that small commits write one file less. Were none written, the first
# read of a key among 600,000 rows would take 7 times as long.
INDEX_MIN_ROWS = 1 << 17
REMOTE_INDEX_MIN_ROWS = 1 << 15  # in an object store, where building one fetches all keys
REMOTE = Compression(level=1, plain=("valid_from", "valid_to"), coded=True, batch_rows=1 << 12)
"""How files in object stores are compressed, where each byte is sent and fetched.

Times are stored plain, or coded, because every read judges rows by them. Reads as of the past fetch the first batches
of many blocks, and most rows of the last of them for nothing, so batches are short.
"""
REMOTE_MIN_ROWS = REMOTE.batch_rows  # a commit of fewer rows is fetched whole in any case
CAPTURED_MIN_ROWS = 1 << 7
"""Rows from which on a segment of a captured store is compressed, on a local disk, too: it keeps the past for good, and
what it takes there matters more than the time of a read."""


def compression_of(spec: StoreSpec, rows: int, *, is_remote: bool) -> Compression | None:
    """Return how a new segment of so many rows is compressed; None: it is not."""
    if spec.captured is not None and rows >= CAPTURED_MIN_ROWS:
        return REMOTE
    return remote_compression(rows) if is_remote else None


def remote_compression(rows: int) -> Compression | None:
    """Return how a new segment of so many rows in an object store is compressed; None: it is not."""
    return REMOTE if rows >= REMOTE_MIN_ROWS else None


@dataclass(frozen=True)
class RowBlock:
    """Rows in memory, with the columns of a segment.

    ``columns``: key columns, then value columns (none for tombstones).
    """

    columns: list[pa.Array | pa.ChunkedArray]
    start: Ints
    end: Ints
    added: Ints
    closed: Ints
    split: Bools
    dropped: Ints | None = None

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Ints) -> RowBlock:
        chosen = pa.array(rows)
        return RowBlock(
            [column.take(chosen) for column in self.columns],
            self.start[rows],
            self.end[rows],
            self.added[rows],
            self.closed[rows],
            self.split[rows],
            None if self.dropped is None else self.dropped[rows],
        )


@dataclass
class NewFiles:
    """Files to create, and their descriptions for the commit.

    ``claim`` is the id of the claim that keeps the files from vacuum until the commit is published. ``written`` has the
    lengths of files that exist already and are no longer in memory, ``kept`` those of files that stay if the commit is
    not made, because another attempt names them.
    """

    claim: str = ""
    begun: float = field(default_factory=time.monotonic)
    buffers: dict[str, pa.Buffer] = field(default_factory=dict)
    segments: list[SegmentMeta] = field(default_factory=list)
    closures: list[ClosureSlice] = field(default_factory=list)
    written: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        in_memory: int = sum(buffer.size for buffer in self.buffers.values())
        return in_memory + sum(self.written.values()) + sum(self.kept.values())

    @property
    def names(self) -> list[str]:
        return [*self.written, *self.buffers]

    def write(self, storage: Storage) -> None:
        """Create the files that are in memory, and forget their bytes."""
        sizes = {name: buffer.size for name, buffer in self.buffers.items()}
        try:
            storage.create_many(self.buffers)
        finally:
            self.written |= sizes
            self.buffers.clear()

    def new_name(self, ending: str) -> str:
        return f"segments/{self.claim}{uuid.uuid4().hex[len(self.claim) :]}{ending}"

    def add_segment(
        self, spec: StoreSpec, block: RowBlock, role: Role, tombstone: bool, late: Bools, hashes: Hashes | None = None
    ) -> SegmentMeta:
        """Encode rows that are sorted by start; ``late`` marks rows that were late when they were written."""
        if hashes is None:
            hashes = hash_keys([_one_chunk(c) for c in block.columns[: len(spec.key)]])
        groups = key_groups_of(np.array([hashes.min(), hashes.max()], np.uint64), spec.key_groups)
        name = self.new_name(".arrow")
        is_remote = not self.claim  # object stores have no claims
        data, meta = encode_segment(
            name,
            block_table(spec, block, role, tombstone),
            role=role,
            tombstone=tombstone,
            key_names=spec.key_names,
            late=late,
            key_groups=(int(groups[0]), int(groups[1])),
            compression=compression_of(spec, len(block), is_remote=is_remote),
            paged=is_remote,
        )
        self.buffers[name] = data
        if meta.rows >= (REMOTE_INDEX_MIN_ROWS if is_remote else INDEX_MIN_ROWS):
            index_name = self.new_name(".index.arrow")
            self.buffers[index_name], ref = encode_index(index_name, hashes, paged=is_remote)
            meta = replace(meta, index=ref)
        self.segments.append(meta)
        return meta

    def add_closures(self, parts: Sequence[tuple[str, int, Ints, Ints]]) -> None:
        """Encode closures: (segment, version, rows ascending, new ends) each."""
        if parts:
            name = self.new_name(".closures.arrow")
            self.buffers[name], slices = encode_closures(name, parts)
            self.closures += slices


def block_table(spec: StoreSpec, block: RowBlock, role: Role, tombstone: bool) -> pa.Table:
    schema = spec.segment_schema(tombstone, role == "belief")
    system: list[pa.Array] = [
        time_column(block.start),
        end_column(block.end),
        arrow_numbers(block.added),
        arrow_numbers(block.closed),
        arrow_numbers(block.split),
    ]
    if role == "belief" and block.dropped is not None:
        system.append(arrow_numbers(block.dropped))
    return pa.Table.from_arrays([*block.columns, *system], schema=schema)


def late_rows(log_state: LogState, block: RowBlock) -> Bools:
    """Return a mask of the rows whose start was not after the stream time before the commit that wrote them."""
    late: Bools = block.start <= log_state.versions.stream_time_before(block.added)
    return late


def _one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
