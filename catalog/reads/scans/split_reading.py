"""The record batches of a split: the rows of its pieces that belong to the window and pass the filters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from statestore.catalog.reads.live_batches import joined, live_batches
from statestore.catalog.reads.row_ends import chosen_ends, pair_ends
from statestore.catalog.reads.scan import CHUNK_ROWS, VERSION_COLUMN, Piece, StoreSplit, TimeRange, judged
from statestore.catalog.reads.scans.gathered_batches import gathered_batches
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.errors import StateStoreError
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.kernels.compiled_use import is_loaded, load_if_copies_pay
from statestore.formats.segments.segment_write import end_column
from statestore.formats.values.filters import Filter, key_lookups, mask
from statestore.formats.values.key_codec import KeyCodec

GATHERED_ROWS = 8_192  # where loops are not compiled, the rows of smaller pieces are gathered
_LAST_HASH = (1 << 64) - 1


def read_split(
    files: SegmentFiles,
    split: StoreSplit,
    columns: tuple[str, ...],
    filters: tuple[Filter, ...] = (),
    in_order: bool = False,
    schema: pa.Schema | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield record batches with ``columns`` (names of stored columns, VERSION_COLUMN for the writing commit).

    Rows come in any order, unless they are to come ``in_order``. ``schema``: that of the batches, by default that of
    the columns as they are stored, all of them nullable.
    """
    schema = schema or _schema(files, columns)
    pieces: Sequence[Piece] = split.pieces
    if columns and not filters and split.hashes is None and not in_order:
        gathered = pieces if _has_loops(pieces) else [piece for piece in pieces if piece.rows < GATHERED_ROWS]
        yield from gathered_batches(files, gathered, split.window, schema)
        if len(gathered) == len(pieces):
            return
        pieces = [piece for piece in pieces if piece.rows >= GATHERED_ROWS]
    names = list(dict.fromkeys([*columns, *(f.column for f in filters)]))
    lookups = _lookup_hashes(files, filters) if filters and split.hashes is None else None
    batches = (
        batch for piece in pieces for batch in _read_piece(files, piece, split, names, list(columns), filters, lookups)
    )
    for batch in batches if in_order else joined(batches):
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema) if columns else batch


def _schema(files: SegmentFiles, columns: Sequence[str]) -> pa.Schema:
    stored = files.spec.segment_schema(False, False)
    return pa.schema([pa.field(name, stored.field(_physical(name)).type) for name in columns])


def _has_loops(pieces: Sequence[Piece]) -> bool:
    """Return whether rows are gathered by compiled loops, which are loaded when enough rows were read without them."""
    if not is_loaded():
        load_if_copies_pay(sum(piece.rows for piece in pieces if piece.cut))
    return is_loaded()


def _read_piece(
    files: SegmentFiles,
    piece: Piece,
    split: StoreSplit,
    names: list[str],
    columns: list[str],
    filters: tuple[Filter, ...],
    lookups: list[int] | None,
) -> Iterator[pa.RecordBatch]:
    found = (
        _all_rows(files, piece, split.window, names)
        if lookups is None
        else _looked_up(files, piece, split.window, names, lookups)
    )
    chosen = _hashed_rows(files, piece, split.hashes)
    for at, batch, alive in found:
        live = alive if chosen is None else _and(alive, chosen[at : at + batch.num_rows])
        selected = mask(filters, batch) if filters else None
        keep = _and(live, None if selected is None else selected.to_numpy(zero_copy_only=False))
        shown = batch.select(columns)
        yield from [shown] if keep is None else live_batches(shown, keep)


def _lookup_hashes(files: SegmentFiles, filters: tuple[Filter, ...]) -> list[int] | None:
    """Return the hashes of the keys that the filters pin.

    None if the filters pin no keys, or pin a key that no key of this type can be.
    """
    pinned = key_lookups(filters, files.spec.key_names)
    if pinned is None:
        return None
    codec = KeyCodec(files.spec.key)
    try:
        return [codec.hash(codec.normalize(key)) for key in pinned]
    except StateStoreError:
        return None


def _hashed_rows(files: SegmentFiles, piece: Piece, hashes: tuple[int, int] | None) -> Bools | None:
    """Return a mask of the rows of a segment whose key hashes lie in a range; None for all rows."""
    if hashes is None:
        return None
    index = files.index(piece.segment.meta)
    bounds = np.array([min(bound, _LAST_HASH) for bound in hashes], np.uint64)
    low, high = np.searchsorted(index.hashes, bounds)
    if hashes[1] > _LAST_HASH:
        high = index.entries
    found = np.zeros(index.entries, bool)
    found[index.rows[low:high]] = True
    return found


def _and(left: Bools | None, right: Bools | None) -> Bools | None:
    if left is None or right is None:
        return right if left is None else left
    return left & right


def _all_rows(
    files: SegmentFiles, piece: Piece, window: TimeRange, names: list[str]
) -> Iterator[tuple[int, pa.RecordBatch, Bools | None]]:
    """Yield (first row, batch, mask of the rows that belong to the window or None for all)."""
    meta = piece.segment.meta
    file = files.open_segment(meta)
    physical = [_physical(name) for name in names]
    for start in range(piece.start, piece.stop, CHUNK_ROWS):
        stop = min(start + CHUNK_ROWS, piece.stop)
        live, ends = judged(files, piece, start, stop, window, "valid_to" in names)
        if live is not None and not live.any():
            continue
        files.check_length(meta.file)  # a scan may take hours
        at = start
        for stored in file.batches(physical, start, stop, CHUNK_ROWS):
            mine = slice(at - start, at - start + stored.num_rows)
            shown = _with_ends(stored, names, None if ends is None else ends[mine])
            yield at, shown, None if live is None else live[mine]
            at += stored.num_rows


def _looked_up(
    files: SegmentFiles, piece: Piece, window: TimeRange, names: list[str], lookups: list[int]
) -> Iterator[tuple[int, pa.RecordBatch, Bools | None]]:
    """Yield only the rows that have a requested key hash; the caller's filters drop other keys of the same hash."""
    meta = piece.segment.meta
    probes = np.array(lookups, np.uint64)
    _, matches = files.match(meta, np.unique(probes))
    rows = np.sort(matches[(matches >= piece.start) & (matches < piece.stop)])
    if not len(rows):
        return
    ends = _chosen_ends(files, piece, window, rows, "valid_to" in names)
    live = None
    file = files.open_segment(meta)
    if ends is not None and piece.cut:
        live = ends > window.low
        if window.low < window.high:
            live &= ends > file.int64("valid_from")[rows]
    arrays = [file.take(_physical(name), rows) for name in names]
    stored = pa.RecordBatch.from_arrays(arrays, names=[_physical(n) for n in names])
    yield piece.start, _with_ends(stored, names, ends), live


def _chosen_ends(files: SegmentFiles, piece: Piece, window: TimeRange, rows: Ints, shows_ends: bool) -> Ints | None:
    """Return the ends of these rows; None if those of the answer are the stored ones."""
    segment = piece.segment
    if window.newest:
        return chosen_ends(files, segment, rows) if piece.cut or (shows_ends and segment.closures) else None
    if not piece.cut and not shows_ends:
        return None
    return pair_ends(files, segment, rows, np.full(len(rows), window.version))


def _physical(name: str) -> str:
    return "_added" if name == VERSION_COLUMN else name


def _with_ends(stored: pa.RecordBatch, names: list[str], ends: Ints | None) -> pa.RecordBatch:
    """Return the stored columns under their public names, with ``valid_to`` replaced by the ends of this version."""
    arrays = list(stored.columns)
    if ends is not None and "valid_to" in names:
        arrays[names.index("valid_to")] = end_column(ends)
    return pa.RecordBatch.from_arrays(arrays, names=names)
