"""Parts of a write: records that one process has resolved among themselves and against a version of the store.

A part is a segment of values and one of tombstones, as a commit would name them, with what another process needs to
join the part with others: key indexes, the order of arrival, rows of the store that the part ends, and the records that
could not be resolved alone. The files are those of a `StagingFolder`, no commit names them yet, and `StagedPart` can be
pickled.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.commits.new_files import INDEX_MIN_ROWS, RowBlock, block_table, remote_compression
from statestore.catalog.commits.parts.staging_folder import StagingFolder
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.segments.ipc_file import open_file, verify_column
from statestore.formats.segments.key_index import KeyIndex, entries_batch
from statestore.formats.segments.regions import VerifiedBytes, corrupt
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import FileRef, SegmentMeta
from statestore.formats.segments.segment_write import RowsOfBlock, write_blocks, write_segment
from statestore.formats.values.key_hash import key_groups_of

Rows = npt.NDArray[np.uint32]

NEVER = -(2**63)  # the latest time of a part without records

ARRIVALS = pa.schema([pa.field("arrival", pa.uint32(), nullable=False)])
TIMES = pa.schema([pa.field("time", pa.int64(), nullable=False)])
ENDED = pa.schema(
    [
        pa.field("key_hash", pa.uint64(), nullable=False),
        pa.field("segment", pa.uint32(), nullable=False),
        pa.field("row", pa.uint32(), nullable=False),
        pa.field("valid_to", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class StagedPart:
    """The files of one part in ``folder``, by their names in the store, and their statistics.

    Times are epoch microseconds.

    ``order`` decides which of several parts arrived first. ``version`` is the version of the store with the id
    ``store`` against which the part was resolved. ``values`` and ``tombstones`` have a key index whatever their size.
    ``superseded`` are the times of records that a later one of the same key and time replaced, and ``left`` the records
    that are still to be resolved, in the order of their arrival. ``ended`` are rows of ``segments`` that the part ends.
    ``arrivals`` are the positions at which the rows of ``values``, then of ``tombstones``, arrived; None if that is the
    order of their times. ``begun`` (epoch seconds) is when the part was staged: vacuum goes by the age of its files.
    """

    order: tuple[int, ...]
    folder: str
    store: str
    version: int
    earliest: int
    latest: int
    refused: int
    values: SegmentMeta | None = None
    tombstones: SegmentMeta | None = None
    arrivals: FileRef | None = None
    superseded: FileRef | None = None
    left: FileRef | None = None
    ended: FileRef | None = None
    segments: tuple[str, ...] = ()
    begun: float = field(default_factory=time.time)

    @property
    def names(self) -> list[str]:
        """The names of the part's files."""
        refs = [self.arrivals, self.superseded, self.left, self.ended]
        refs += [ref for meta in (self.values, self.tombstones) if meta is not None for ref in (meta.file, meta.index)]
        return [ref.name for ref in refs if ref is not None]


def stage_columns(folder: StagingFolder, ending: str, schema: pa.Schema, columns: Sequence[pa.Array]) -> FileRef:
    """Write columns to a file of a part."""
    batch = pa.RecordBatch.from_arrays(list(columns), schema=schema)
    return folder.create(folder.new_name(ending), schema, [batch])


def stage_segment(
    spec: StoreSpec,
    folder: StagingFolder,
    log_state: LogState,
    block: RowBlock,
    tombstone: bool,
    hashes: Hashes,
    rows: Rows,
) -> SegmentMeta:
    """Write rows, sorted by start, as a segment of the version after ``log_state``, with its key index.

    ``hashes``, ascending, and ``rows`` are the entries of the index.
    """
    groups = key_groups_of(hashes[[0, -1]], spec.key_groups)
    key_groups = int(groups[0]), int(groups[1])
    table = block_table(spec, block, "delta", tombstone)
    late = block.start <= log_state.stream_time_us
    name = folder.new_name(".arrow", named=True)
    create = partial(folder.create, paged=True)
    compression = None if folder.is_linked else remote_compression(len(block))
    if compression is None:
        meta = write_segment(
            create, name, table, role="delta", tombstone=tombstone, key_names=spec.key_names, late=late,
            key_groups=key_groups,
        )  # fmt: skip
    else:
        meta = write_blocks(
            create, name, table.schema, [RowsOfBlock(table, late)], role="delta", tombstone=tombstone,
            key_names=spec.key_names, compression=compression,
        )  # fmt: skip
        meta = replace(meta, key_groups=key_groups)
    entries = entries_batch(hashes, rows)
    index = folder.new_name(".index.arrow", named=meta.rows >= INDEX_MIN_ROWS)
    return replace(meta, index=create(index, entries.schema, [entries]))


@dataclass(frozen=True)
class StagedSegment:
    """A segment of a part, mapped, with the entries of its key index."""

    meta: SegmentMeta
    file: Segment
    hashes: Hashes
    rows: Rows


class OpenedPart:
    """The files of a part, mapped on first use and checked like every file of the store."""

    def __init__(self, storage: Storage, spec: StoreSpec, part: StagedPart) -> None:
        self.part = part
        self.folder = StagingFolder(storage, part.folder)
        self._spec = spec

    @property
    def key_names(self) -> tuple[str, ...]:
        return self._spec.key_names

    @cached_property
    def values(self) -> StagedSegment | None:
        return self._segment(self.part.values)

    @cached_property
    def tombstones(self) -> StagedSegment | None:
        return self._segment(self.part.tombstones)

    @cached_property
    def arrivals(self) -> Rows | None:
        """Positions of arrival of the rows of ``values``, then of ``tombstones``."""
        if self.part.arrivals is None:
            return None
        arrivals: Rows = self._columns(self.part.arrivals, ARRIVALS)[0].to_numpy()
        return arrivals

    @cached_property
    def superseded(self) -> Ints:
        if self.part.superseded is None:
            return np.empty(0, np.int64)
        times: Ints = self._columns(self.part.superseded, TIMES)[0].to_numpy()
        return times

    @cached_property
    def left(self) -> list[pa.Array] | None:
        """Columns of the record schema."""
        return None if self.part.left is None else self._columns(self.part.left, self._spec.record_schema())

    @cached_property
    def ended(self) -> tuple[Hashes, Rows, Rows, Ints] | None:
        """Return (key hash ascending, number in ``segments``, row, new end) of the rows that the part ends."""
        if self.part.ended is None:
            return None
        columns = [column.to_numpy() for column in self._columns(self.part.ended, ENDED)]
        return columns[0], columns[1], columns[2], columns[3]

    def _segment(self, meta: SegmentMeta | None) -> StagedSegment | None:
        if meta is None:
            return None
        assert meta.index is not None
        schema = self._spec.segment_schema(meta.tombstone, False)
        index = KeyIndex.open(meta.index, self.folder.opened(meta.index))
        return StagedSegment(meta, Segment(meta, self.folder.opened(meta.file), schema), index.hashes, index.rows)

    def _columns(self, ref: FileRef, schema: pa.Schema) -> list[pa.Array]:
        verified = VerifiedBytes(ref, self.folder.opened(ref))
        _, batches = open_file(verified, partial(_check_schema, ref, schema))
        if len(batches) != 1:
            raise corrupt(ref, f"it has {len(batches)} batches, expected one")
        return [verify_column(verified, batches[0], number) for number in range(len(schema))]


def _check_schema(ref: FileRef, expected: pa.Schema, stored: pa.Schema) -> None:
    if not stored.equals(expected):
        raise corrupt(ref, "it has other columns than a part of this store")
