"""The record batches of a split: the rows of its pieces that belong to the window and pass the filters.

A batch costs its maker and its consumer some ten microseconds each, and a history has its rows in hundreds of pieces.
So only long parts whose rows all belong to the answer are passed as views of the file. The rows of all others are
judged together and copied together. Filters are applied piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby, pairwise

import numpy as np
import pyarrow as pa

from statestore.catalog.reads.added_columns import VERSION_COLUMN
from statestore.catalog.reads.belief import Piece, TimeRange, cells_of, ends_of_rows, judged, live_mask
from statestore.catalog.reads.chosen_rows import (
    ChosenRows,
    Part,
    all_chosen,
    chosen_rows,
    groups_of_parts,
    stored_columns,
)
from statestore.catalog.reads.fetching import fetch_files, fetch_rows
from statestore.catalog.reads.gathered_columns import GatheredColumns, TooMuchTextError, rows_between, usual_bytes
from statestore.catalog.reads.plan import CHUNK_ROWS, StoreSplit
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.errors import StateStoreError
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.kernels.compiled_use import copies_pay
from statestore.formats.segments.segment_columns import end_column, open_end_column
from statestore.formats.segments.segment_meta import SegmentMeta
from statestore.formats.state_table import MARK_TYPE, MaskedSplit, mark_bytes
from statestore.formats.values.filters import Filter, key_lookups, mask, with_whole_structs
from statestore.formats.values.key_codec import KeyCodec
from statestore.formats.values.without_pandas import bools

# Where loops are not compiled, the rows of smaller pieces are gathered. Were those of all pieces, a scan of 400,000
# rows of which 10 % were updated would take 1.4 to 1.9 times as long.
GATHERED_ROWS = 8_192
_LAST_HASH = (1 << 64) - 1
# A part of so many bytes is passed as a view of the file. Were all parts copied, a scan would take 1.5 to 2.0 times as
# long (scans.py, 10x as delivered), as of now 2.9 times for two numbers.
VIEWED_BYTES = 1 << 17
BATCH_BYTES = 1 << 22  # of a batch of copied rows
END = "valid_to"
BELIEFS = ("_added", "_closed", "_split")  # of which a read by version needs what earlier commits believed


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
    fetch_pieces(files, split, [*columns, *(f.column for f in filters)])
    if columns and not filters and split.hashes is None and not in_order:
        compiled = copies_pay(split.rows)
        gathered = pieces if compiled else [piece for piece in pieces if piece.rows < GATHERED_ROWS]
        yield from gathered_batches(files, gathered, split.window, schema, compiled)
        if len(gathered) == len(pieces):
            return
        pieces = [piece for piece in pieces if piece.rows >= GATHERED_ROWS]
    names = list(dict.fromkeys([*columns, *(f.column for f in filters)]))
    lookups = lookup_hashes(files, filters) if filters and split.hashes is None else None
    if lookups is None:
        parts = (_read_piece(files, piece, split, names, list(columns), filters) for piece in pieces)
    else:
        parts = (
            _read_keys(files, list(mine), split.window, names, list(columns), filters, lookups)
            for _, mine in groupby(pieces, key=lambda piece: piece.segment.meta.name)
        )
    batches = chain.from_iterable(parts)
    for batch in batches if in_order else joined(batches):
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema) if columns else batch


def fetch_pieces(files: SegmentFiles, split: StoreSplit, columns: Sequence[str]) -> None:
    """Fetch what a read of these columns needs."""
    if not files.is_local:
        named = {_physical(name) for name in columns} | set(() if split.window.newest else BELIEFS)
        if split.hashes is not None:
            fetch_files(files, [segment.meta.index for segment in split.segments])
        fetch_rows(files, [(piece.segment, piece.start, piece.stop) for piece in split.pieces], named)


def _schema(files: SegmentFiles, columns: Sequence[str]) -> pa.Schema:
    stored = files.spec.segment_schema(False, False)
    return pa.schema([pa.field(name, stored.field(_physical(name)).type) for name in columns])


def gathered_batches(
    files: SegmentFiles, pieces: Sequence[Piece], window: TimeRange, schema: pa.Schema, compiled: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of pieces that belong to the window, in any order, with the columns of ``schema``.

    VERSION_COLUMN is the commit that wrote a row.
    """
    reading = _Reading(files, window, schema, compiled)
    waiting: list[ChosenRows] = []
    rows = 0
    for parts in groups_of_parts(files, pieces):
        plain = [part for part in parts if reading.is_plain(part)]
        yield from reading.views(plain, None)
        others = parts if not plain else [part for part in parts if not reading.is_plain(part)]
        if not others:
            continue
        chosen = chosen_rows(files, others, window, reading.shows_ends, compiled)
        whole = reading.whole_parts(chosen)
        if whole:
            found = chosen.only(whole)
            yield from reading.views(found.parts, found)
            left = set(range(len(others))) - set(whole)
            chosen = chosen.only(sorted(left))
        waiting.append(chosen)
        rows += chosen.count
        if 2 * rows >= reading.kept_rows:
            yield from reading.copies(all_chosen(waiting))
            waiting, rows = [], 0
    if rows:
        yield from reading.copies(all_chosen(waiting))


class _Reading:
    """One read: its columns and how they are passed on."""

    def __init__(self, files: SegmentFiles, window: TimeRange, schema: pa.Schema, compiled: bool) -> None:
        self._files = files
        self._compiled = compiled
        self._window = window
        self._stored = ["_added" if name == VERSION_COLUMN else name for name in schema.names]
        self._all_open = window.is_now  # the ends of all rows are known, and need not be found
        self.shows_ends = END in schema.names and not self._all_open
        self._schema = schema
        row_bytes = max(sum(usual_bytes(kind) for kind in schema.types), 1)
        self._viewed_rows = VIEWED_BYTES / row_bytes
        self.kept_rows = min(BATCH_BYTES / row_bytes, CHUNK_ROWS)  # half of them are copied before more are judged

    def is_plain(self, part: Part) -> bool:
        """Return whether a part is passed as a view of the file, and no end need be computed."""
        if part.cut or part.length < self._viewed_rows:
            return False
        return not self.shows_ends or (self._window.newest and not part.segment.closures)

    def whole_parts(self, chosen: ChosenRows) -> list[int]:
        """Return the numbers of parts that are passed as views, but for their ends."""
        counts = (chosen.bounds[1:] - chosen.bounds[:-1]).tolist()
        return [
            number
            for number, (part, count) in enumerate(zip(chosen.parts, counts, strict=True))
            if count == part.length >= self._viewed_rows
        ]

    def views(self, parts: list[Part], chosen: ChosenRows | None) -> Iterator[pa.RecordBatch]:
        """Yield all rows of each part as a view, with the ends of ``chosen`` if there are any."""
        if not parts:
            return
        bounds = [] if chosen is None else chosen.bounds.tolist()
        makes_ends = chosen is not None or self._all_open
        stored = [() if makes_ends and name == END else stored_columns(parts, name) for name in self._stored]
        for number, part in enumerate(parts):
            first, stop = bounds[number : number + 2] or (0, part.length)
            arrays = [
                columns[number].array.slice(part.first, part.length) if columns else self._ends(chosen, first, stop)
                for columns in stored
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def copies(self, chosen: ChosenRows) -> Iterator[pa.RecordBatch]:
        """Yield copies of the chosen rows."""
        for file in {id(part.file): part.file for part in chosen.parts}.values():
            self._files.check_length(file.meta.file)  # the consumer may have taken its time
        columns = GatheredColumns(chosen, [name for name in self._stored if name != END], self._compiled)
        row_bytes = columns.row_bytes + (8 if END in self._stored else 0)
        most = int(min(max(BATCH_BYTES / row_bytes, 1), CHUNK_ROWS))
        batches = -(-chosen.count // most)
        for number in range(batches):
            first, stop = number * chosen.count // batches, (number + 1) * chosen.count // batches
            yield from self._copied(columns, chosen, first, stop)

    def _copied(self, columns: GatheredColumns, chosen: ChosenRows, first: int, stop: int) -> Iterator[pa.RecordBatch]:
        try:
            arrays = columns.rows(rows_between(chosen, first, stop))
        except TooMuchTextError:
            if stop - first == 1:
                raise
            middle = (first + stop) // 2
            yield from self._copied(columns, chosen, first, middle)
            yield from self._copied(columns, chosen, middle, stop)
            return
        if END in self._stored:
            arrays.insert(self._stored.index(END), self._ends(chosen, first, stop))
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _ends(self, chosen: ChosenRows | None, first: int, stop: int) -> pa.Array:
        if self._all_open:
            return open_end_column(stop - first)
        assert chosen is not None
        assert chosen.ends is not None
        return end_column(chosen.ends[first:stop])


def _read_piece(
    files: SegmentFiles,
    piece: Piece,
    split: StoreSplit,
    names: list[str],
    columns: list[str],
    filters: tuple[Filter, ...],
) -> Iterator[pa.RecordBatch]:
    # The ends of rows that live now are known, and need not be copied.
    adds_ends = split.window.is_now and END in columns[1:] and all(f.column != END for f in filters)
    read, kept = ([n for n in given if n != END or not adds_ends] for given in (names, columns))
    chosen = _hashed_rows(files, piece, split.hashes)
    for at, batch, alive in _all_rows(files, piece, split.window, read):
        live = alive if chosen is None else _and(alive, chosen[at : at + batch.num_rows])
        selected = mask(filters, batch) if filters else None
        keep = _and(live, None if selected is None else bools(selected))
        shown = batch.select(kept)
        for found in [shown] if keep is None else live_batches(shown, keep):
            yield found.add_column(columns.index(END), END, open_end_column(found.num_rows)) if adds_ends else found


def lookup_hashes(files: SegmentFiles, filters: tuple[Filter, ...]) -> list[int] | None:
    """Return the hashes of the keys that the filters pin.

    None if the filters pin no keys, or pin a key that no key of this type can be.
    """
    pinned = key_lookups(with_whole_structs(filters, files.spec.key), files.spec.key_names)
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


def _read_keys(
    files: SegmentFiles,
    pieces: list[Piece],
    window: TimeRange,
    names: list[str],
    columns: list[str],
    filters: tuple[Filter, ...],
    lookups: list[int],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of pieces of one segment that have a requested key hash, and pass the filters.

    The index is looked into once for all pieces. Only rows of the window are taken: of a hot key nearly all are others.
    """
    segment = pieces[0].segment
    matched = matched_rows(files, segment.meta, lookups)
    bounds = matched.searchsorted([(piece.start, piece.stop) for piece in pieces])
    for cut in (False, True):
        mine = [
            matched[low:high] for piece, (low, high) in zip(pieces, bounds.tolist(), strict=True) if piece.cut == cut
        ]
        chosen = np.concatenate([np.empty(0, np.int64), *mine])
        for at in range(0, len(chosen), CHUNK_ROWS):
            rows = chosen[at : at + CHUNK_ROWS]
            whole = Piece(segment, int(rows[0]), int(rows[-1]) + 1, cut)
            ends = ends_of_rows(files, whole, rows, window, END in names)
            if ends is not None and cut:
                live = window.has(ends, partial(cells_of, files.open_segment(segment.meta), "valid_from", rows))
                rows, ends = rows[live], ends[live]
            if len(rows):
                batch = _columns_at(files, segment.meta, names, rows, ends)
                passing = mask(filters, batch)  # which drops other keys of the same hash, too
                shown = batch.select(columns)
                yield shown if passing is None else shown.filter(passing)


def matched_rows(files: SegmentFiles, meta: SegmentMeta, lookups: list[int]) -> Ints:
    """Return the rows of a segment that have one of these key hashes, ascending."""
    # Not np.unique, whose first call loads numpy.ma: a tenth of the time to the first answer of a process.
    _, matches = files.match(meta, np.array(sorted(set(lookups)), np.uint64))
    return np.sort(matches)


def taken_rows(
    files: SegmentFiles, piece: Piece, window: TimeRange, names: list[str], rows: Ints
) -> tuple[pa.RecordBatch, Bools | None]:
    """Return the columns of these rows of a piece, and a mask of those that belong to the window or None for all."""
    ends = ends_of_rows(files, piece, rows, window, END in names)
    batch = _columns_at(files, piece.segment.meta, names, rows, ends)
    if ends is None or not piece.cut:
        return batch, None
    return batch, window.has(ends, partial(cells_of, files.open_segment(piece.segment.meta), "valid_from", rows))


def _columns_at(
    files: SegmentFiles, meta: SegmentMeta, names: list[str], rows: Ints, ends: Ints | None
) -> pa.RecordBatch:
    """Return columns of these rows, whose ends are the stored ones if no others are given."""
    physical = [_physical(name) for name in names if ends is None or name != END]
    arrays = dict(zip(physical, files.open_segment(meta).take_columns(physical, rows), strict=True))
    if ends is not None:
        arrays[END] = end_column(ends)
    return pa.RecordBatch.from_arrays([arrays[_physical(name)] for name in names], names=names)


def _physical(name: str) -> str:
    return "_added" if name == VERSION_COLUMN else name


def _with_ends(stored: pa.RecordBatch, names: list[str], ends: Ints | None) -> pa.RecordBatch:
    """Return the stored columns under their public names, with ``valid_to`` replaced by the ends of this version."""
    arrays = list(stored.columns)
    if ends is not None and "valid_to" in names:
        arrays[names.index("valid_to")] = end_column(ends)
    return pa.RecordBatch.from_arrays(arrays, names=names)


# Batches without their dead rows, copied as little as pays: stretches in which all rows live are passed as slices, and
# the live rows between them are copied.

# Rows that must live together to be passed as a slice. Were all rows copied, 131,072 rows of which 1 to 60 are dead
# would take 1.6 to 2.0 times as long, written as a stream.
SLICED_ROWS = 1 << 10


def live_batches(batch: pa.RecordBatch, keep: Bools) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch that are marked in ``keep``, in their order."""
    edges: list[int] = []
    if len(keep) >= SLICED_ROWS:
        blocks = keep[: len(keep) // SLICED_ROWS * SLICED_ROWS].reshape(-1, SLICED_ROWS)
        is_live = np.append(blocks.all(axis=1), False)
        edges = ((np.flatnonzero(is_live[1:] != is_live[:-1]) + 1) * SLICED_ROWS).tolist()
    for start, stop in pairwise([0, *edges, len(keep)]):
        mine, rows = keep[start:stop], batch.slice(start, stop - start)
        live = int(np.count_nonzero(mine))
        if live:
            yield rows if live == len(mine) else rows.filter(_bits(mine))


def _bits(marks: Bools) -> pa.Array:
    """Return marks as an Arrow array, which Arrow itself makes ten times as slowly."""
    data = pa.py_buffer(np.packbits(marks, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(marks), [None, data], 0)


# Smaller batches are joined. Without, a filtered scan of 1,000 commits of 50 rows, written as a stream, takes 1.2 times
# as long.
JOINED_ROWS = 1_000


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of these batches, those of small ones together and later than those of large ones."""
    small: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows >= JOINED_ROWS:
            yield batch
        elif batch.num_rows:
            small.append(batch)
            rows += batch.num_rows
            if rows >= CHUNK_ROWS:
                yield pa.concat_batches(small)
                small, rows = [], 0
    if small:
        yield small[0] if len(small) == 1 else pa.concat_batches(small)


# Rows with their dead rows, and beside them a column that tells which live. An engine that filters batches itself, such
# as DuckDB, skips dead rows faster than they can be cut out: the columns stay views of the mapped files, and nothing is
# copied. The marks are a column of bytes whose nulls are the dead rows, because an engine tests for null by the
# validity bits alone. They take one bit a row, and all marks share one buffer of bytes. Where few rows live, they are
# copied out instead.

# Where fewer than one row in so many lives, rows are copied. Were they never, four queries of an attached store would
# take 1.4 times as long (scans.py, 100x never compacted, middle and now).
SPARSE = 32


def masked(files: SegmentFiles, split: StoreSplit) -> list[MaskedSplit]:
    """Return the rows of a split as splits that are read whole, each with the marks of its live rows.

    The times of pieces that are cut are read now, and no other column.
    """
    if split.hashes is not None:
        return [MaskedSplit(split, None, None)]
    fetch_rows(files, [(piece.segment, piece.start, piece.stop) for piece in split.pieces if piece.cut], ())
    whole: list[Piece] = []
    dense: list[Piece] = []
    sparse: list[Piece] = []
    masks: list[Bools] = []
    left = 0
    for piece in split.pieces:
        live = live_mask(files, piece, split.window)
        if live is None:
            whole.append(Piece(piece.segment, piece.start, piece.stop, False))
            continue
        for at in range(0, len(live), CHUNK_ROWS):
            part = live[at : at + CHUNK_ROWS]
            start, stop = piece.start + at, piece.start + at + len(part)
            alive = int(np.count_nonzero(part))
            if alive == len(part):
                whole.append(Piece(piece.segment, start, stop, False))
            elif alive * SPARSE > len(part):
                dense.append(Piece(piece.segment, start, stop, False))
                masks.append(part)
            elif alive:
                sparse.append(Piece(piece.segment, start, stop, True))
                left += alive
    found = []
    if whole:
        found.append(MaskedSplit(_of(split, whole), None, sum(p.rows for p in whole)))
    if dense:
        marks = _marks(np.concatenate(masks))
        found.append(MaskedSplit(_of(split, dense), marks, len(marks) - marks.null_count))
    if sparse:
        found.append(MaskedSplit(_of(split, sparse), None, left))
    return found


def _of(split: StoreSplit, pieces: list[Piece]) -> StoreSplit:
    """Return a split of other pieces; neighbours that are one slice of a segment are read as one."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last is not None and last.segment is piece.segment and last.stop == piece.start:
            joined[-1] = Piece(piece.segment, last.start, piece.stop, piece.cut)
        else:
            joined.append(piece)
    return StoreSplit(tuple(joined), split.window, sum(p.rows for p in joined), lease=split.lease)


def _marks(live: Bools) -> pa.Array:
    """Return a column whose nulls are the rows that do not live."""
    bits = np.packbits(live, bitorder="little")
    dead = len(live) - int(np.count_nonzero(live))
    return pa.Array.from_buffers(MARK_TYPE, len(live), [pa.py_buffer(bits), mark_bytes(len(live))], dead)
