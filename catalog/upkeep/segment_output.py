"""Writing of the segments of a compaction, block by block, from rows of several input segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.commits import new_files
from statestore.catalog.commits.new_files import NewFiles, RowBlock, block_table, late_rows
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import LocalStorage
from statestore.catalog.reads.chosen_rows import MOST_TEXT, SPARE, bit_width, is_text
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep.closure_folding import FoldedRows, Inputs, Numbers
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.kernels.compiled_use import rewrites_pay
from statestore.formats.segments.column_checks import check_values
from statestore.formats.segments.compressed_write import Compression
from statestore.formats.segments.ipc_file import Batches, encode_file, write_file
from statestore.formats.segments.key_index import KeyIndex, entries_batch
from statestore.formats.segments.regions import corrupt
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import FileRef, Role, SegmentMeta
from statestore.formats.segments.segment_write import RowsOfBlock, write_blocks, write_segment
from statestore.formats.segments.stored_column import StoredColumn
from statestore.formats.values.key_hash import hash_keys, key_groups_of
from statestore.formats.values.without_pandas import arrow_numbers

COLD = replace(new_files.REMOTE, batch_rows=0)
# Roles that are compressed even where they are read often, if each byte of theirs is fetched from an object store.
FETCHED = ("open", "closed")
UNPACKED = 4  # compressed columns take at most so many bytes in memory for one on disk, for the bound of memory

_Sources = npt.NDArray[np.int16 | np.int32]


@dataclass(frozen=True)
class Output:
    """The inputs of a rewriting, and the place where its files are recorded."""

    files: SegmentFiles
    log_state: LogState
    new: NewFiles
    inputs: Inputs
    tombstone: bool

    @property
    def column_names(self) -> tuple[str, ...]:
        spec = self.files.spec
        return spec.key_names if self.tombstone else (*spec.key_names, *spec.value_names)


def write_output(output: Output, rows: FoldedRows, role: Role, blocks: Sequence[Numbers], cold: bool) -> None:
    """Write one segment of ``blocks``, positions in ``rows`` sorted by start each, and its key index; record both."""
    spec, new = output.files.spec, output.new
    cold = cold or (role in FETCHED and not output.files.is_local)
    name = new.new_name(".arrow")
    hashes: list[Hashes] = []

    def write(name: str, schema: pa.Schema, batches: Batches) -> FileRef:
        return _create(output, name, schema, batches)

    def tables() -> Iterator[RowsOfBlock]:
        for chosen in blocks:
            block = _block(output, rows, role, chosen)
            hashes.append(hash_keys(block.columns[: len(spec.key)]))
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
        meta = _with_index(output, meta, whole, rows.start[np.concatenate(blocks)])
    new.segments.append(meta)


def _compression(output: Output, role: Role) -> Compression:
    """Return how rows are compressed: in short batches where reads fetch the first batches of many blocks."""
    return COLD if output.files.is_local or role == "open" else new_files.REMOTE


def _with_index(output: Output, meta: SegmentMeta, hashes: Hashes, starts: Ints) -> SegmentMeta:
    index = KeyIndex.build(hashes)
    ordered, entries = index.hashes, index.rows
    backward = (ordered[1:] == ordered[:-1]) & (starts[entries[1:]] < starts[entries[:-1]])
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


def _block(output: Output, rows: FoldedRows, role: Role, chosen: Numbers) -> RowBlock:
    gather = GatheredRows(output.inputs, rows.source[chosen], rows.row[chosen])
    return RowBlock(
        [gather.column(name) for name in output.column_names],
        rows.start[chosen],
        rows.end[chosen],
        rows.added[chosen].astype(np.int64),
        rows.closed[chosen].astype(np.int64),
        rows.split[chosen],
        rows.dropped[chosen].astype(np.int64) if role == "belief" else None,
    )


class GatheredRows:
    """The rows ``row`` of the inputs ``source``, of which columns are copied.

    Compiled loops take a number in two nanoseconds and a short text in ten; Arrow takes 80. Where the loops are not
    loaded, and for nested columns, Arrow takes the rows of each input and then puts them in order.
    """

    def __init__(self, inputs: Inputs, source: _Sources, row: Numbers) -> None:
        self._inputs, self._source, self._row = inputs, source, row
        self._sorted: _SortedRows | None = None
        self._placed = _placed(inputs, source, row) if len(row) and rewrites_pay(len(row)) else None

    def column(self, name: str) -> pa.Array:
        """Return a column. Raises CorruptError SEGMENT_CORRUPT for bytes that are wrong."""
        found = None if self._placed is None else _compiled_column(self._placed, name)
        if found is not None:
            return found
        if self._sorted is None:
            self._sorted = _SortedRows.of(self._inputs, self._source, self._row)
        return self._sorted.column(name)


@dataclass(frozen=True)
class _PlacedRows:
    """Rows by the batches that have them: row i is the row ``rows[i]`` of the batch with the number ``part[i]``."""

    batches: list[tuple[Segment, list[int]]]  # numbers of batches of each file, in the order of the parts
    part: Numbers
    rows: Numbers


def _placed(inputs: Inputs, source: _Sources, row: Numbers) -> _PlacedRows | None:
    """Return the batch of each row; None where the columns of these batches may be too large to hold at once."""
    from statestore.formats.kernels.gather_kernels import place_rows

    numbers = np.flatnonzero(np.bincount(source)).tolist()
    opened = [inputs.opened(number) for number in numbers]
    starts = [file.batch_starts for file in opened]
    bounds = np.zeros(numbers[-1] + 2, np.int64)  # parts of the input s: bounds[s] : bounds[s + 1]
    bounds[np.array(numbers) + 1] = [len(each) for each in starts]
    bounds = bounds.cumsum()
    part, rows = np.empty(len(row), np.int32), np.empty(len(row), np.int32)
    place_rows(source, row, bounds, np.concatenate(starts), part, rows)
    touched = np.bincount(part, minlength=int(bounds[-1])) > 0
    if not touched.all():  # what no row needs is not decompressed
        part = (np.cumsum(touched) - 1).astype(np.int32)[part]
    batches = [
        (file, np.flatnonzero(touched[bounds[number] : bounds[number + 1]]).tolist())
        for number, file in zip(numbers, opened, strict=True)
    ]
    placed = _PlacedRows(batches, part, rows)
    return placed if _decoded_bytes(placed) <= inputs.kept_bytes else None


def _decoded_bytes(placed: _PlacedRows) -> float:
    total = 0.0
    for file, numbers in placed.batches:
        if file.is_compressed and numbers:
            total += len(numbers) / len(file.batch_starts) * file.meta.file.bytes * UNPACKED
    return total


def _compiled_column(placed: _PlacedRows, name: str) -> pa.Array | None:
    """Return a column; None if its type or its buffers are not for compiled loops, or it has too many bytes."""
    stored = [column for file, numbers in placed.batches for column in file.stored(name, numbers)]
    kind = stored[0].array.type
    width = bit_width(kind)
    if not (width or is_text(kind)) or not all(column.values for column in stored):
        return None
    values = np.array([column.values for column in stored])
    if is_text(kind):
        buffers = _texts(placed, name, stored, values)
        if buffers is None:
            return None
    elif width == 1:
        buffers = [_bits(placed, values)[0]]
    else:
        buffers = [_values(placed, values, width // 8)]
    validity, nulls = None, 0
    if any(column.validity for column in stored):
        validity, nulls = _bits(placed, np.array([column.validity for column in stored]))
    return pa.Array.from_buffers(kind, len(placed.rows), [validity if nulls else None, *buffers], nulls)


def _values(placed: _PlacedRows, address: Ints, width: int) -> pa.Buffer:
    from statestore.formats.kernels.gather_kernels import scattered_values

    target = pa.allocate_buffer(len(placed.rows) * width)
    scattered_values(address, placed.part, placed.rows, width, target.address)
    return target


def _bits(placed: _PlacedRows, address: Ints) -> tuple[pa.Buffer, int]:
    """Return gathered bits, and how many of them are not set."""
    from statestore.formats.kernels.gather_kernels import scattered_bits

    target = pa.allocate_buffer(-(-len(placed.rows) // 8))
    return target, len(placed.rows) - scattered_bits(address, placed.part, placed.rows, target.address)


def _texts(placed: _PlacedRows, name: str, stored: list[StoredColumn], address: Ints) -> list[pa.Buffer] | None:
    """Return the offsets and bytes of texts; None for more bytes than an array can have."""
    from statestore.formats.kernels.gather_kernels import TOO_MUCH, scattered_offsets, scattered_texts

    sizes = np.array([column.text_bytes for column in stored])
    begins = np.empty(len(placed.rows), np.int32)
    offsets = pa.allocate_buffer(4 * len(placed.rows) + 4)
    size = scattered_offsets(address, sizes, placed.part, placed.rows, MOST_TEXT, begins, offsets.address)
    if size == TOO_MUCH:
        return None
    if size < 0:
        raise _wrong(placed, name, stored)
    texts = pa.allocate_buffer(size + SPARE)
    values = np.array([column.text for column in stored])
    scattered_texts(values, sizes, placed.part, begins, offsets.address, texts.address)
    return [offsets, texts.slice(0, size)]


def _wrong(placed: _PlacedRows, name: str, stored: list[StoredColumn]) -> Exception:
    """Return the error for offsets that a loop has found to be wrong, though they were right when checked."""
    files = [file for file, numbers in placed.batches for _ in numbers]
    for file, column in zip(files, stored, strict=True):
        try:
            check_values(column.array)
        except pa.ArrowException as error:
            return corrupt(file.meta.file, f"column {name!r}: {error}")
    return corrupt(files[0].meta.file, f"column {name!r} changed while it was read")


@dataclass(frozen=True)
class _SortedRows:
    """Rows by input, as Arrow takes them: (file, its rows) each, and the position of each row of the answer."""

    parts: list[tuple[Segment, Ints]]
    position: pa.Array | None

    @staticmethod
    def of(inputs: Inputs, source: _Sources, row: Numbers) -> _SortedRows:
        is_sorted = bool((source[1:] >= source[:-1]).all())
        order: Any = slice(None) if is_sorted else np.argsort(source, kind="stable")  # 16 bits are sorted fastest
        ordered = source[order]
        first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        numbers = ordered[first].tolist()
        parts = [
            (inputs.opened(number), rows.astype(np.int64))
            for number, rows in zip(numbers, np.split(row[order], first[1:]), strict=True)
        ]
        if is_sorted:
            return _SortedRows(parts, None)
        position = np.empty(len(source), np.int32)
        position[order] = np.arange(len(source), dtype=np.int32)
        return _SortedRows(parts, arrow_numbers(position))

    def column(self, name: str) -> pa.Array:
        taken = [file.take(name, rows) for file, rows in self.parts]
        whole = taken[0] if len(taken) == 1 else pa.concat_arrays(taken)
        return whole if self.position is None else whole.take(self.position)
