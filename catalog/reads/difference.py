"""The difference between two points of a table: keys that were added, removed, or have other values.

A point is a version, a state time, or both (the belief of commit 7 about that moment). Either point may be the later
one, so the reversed question is the undo view. Values are compared null-safe; NaN equals NaN, 0.0 equals -0.0, and the
order of a map's entries is ignored. Rows of stores that are valid at both points are left out by their intervals alone,
so the cost follows the size of the difference; of other tables both states are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa

from statestore.catalog.log.leases import Lease, holding
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.arguments import Point
from statestore.catalog.reads.belief import Piece, TimeRange, live_mask
from statestore.catalog.reads.captured import has_own_key, shown_columns_of
from statestore.catalog.reads.plan import CHUNK_ROWS, plan
from statestore.catalog.reads.row_pairs import (
    Side,
    counted_rows,
    differences,
    keyed_rows,
    others,
    pairs,
    repeats,
    with_distinct_keys,
)
from statestore.catalog.reads.rows import Pieces, Rows
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.reads.versioned_table import VersionedTable, window_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Bools, Hashes, Ints
from statestore.formats.segments.segment_meta import SegmentMeta
from statestore.formats.state_table import Query, StateTable, column_names
from statestore.formats.table_columns import unknown_column
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.comparison import has_maps
from statestore.formats.values.filters import Filter
from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.wider_types import cast_wider, widest_type

PART_ROWS = 1 << 20  # about so many differing rows are compared at a time
CHANGE, OLD, NEW, CHANGED = "_change", "_old", "_new", "_changed_columns"
KINDS = ("added", "changed", "removed")
ADDED, MODIFIED, REMOVED = range(3)
INTERVAL = ("valid_from", "valid_to")


@dataclass(frozen=True)
class Columns:
    """The columns of a comparison.

    ``keys`` identify a row. ``values`` are shown and compared, except those in ``placement``, which say where a row is
    stored and are only shown.
    """

    keys: tuple[str, ...]
    values: tuple[str, ...]
    placement: frozenset[str] = frozenset()

    @property
    def compared(self) -> Bools:
        """A mask of the ``values`` that are compared."""
        return np.array([name not in self.placement for name in self.values], bool)


def difference(
    table: StateTable,
    old: Point,
    new: Point,
    columns: Iterable[str] | None = None,
    found: Callable[[int], None] = lambda rows: None,
    of_keys: Sequence[Filter] = (),
) -> Rows:
    """Return the rows that differ between ``old`` and ``new``, in no particular order.

    Columns: ``_change`` (``added``, ``changed``, ``removed``), the key, ``_old`` and ``_new`` (structs of the value
    columns, null where there is no row) and ``_changed_columns`` (names, null except for ``changed``). With ``columns``
    only these value columns are compared and shown. Without it, the partition in which Spark keeps a row is shown and
    not compared.

    If no columns identify the rows of a table (a list, a side of a join), whole rows are added and removed, as often as
    there are more or fewer of them. A column that got a wider type between the points has the wider type, whichever
    point comes first. A column that only one of the points has is null at the other.

    What differs in a store is found before the first row is returned, segment by segment. ``found`` is called with the
    number of rows that each may add, which take 16 bytes each, and may raise an error.

    With ``of_keys``, filters on columns that identify rows, only these rows are read at both points, and compared.

    Raises NotFoundError for a version or time outside the kept range and for an unknown column,
    InvalidInputError INCOMPATIBLE_STATE for a column whose two types have no common one.
    """
    if isinstance(table, VersionedTable) and not of_keys:
        key, value = shown_columns_of(table.spec)
        names = _chosen(table.name, table.row_key or table.key_columns, [*_further(table, key), *value.names], columns)
        schema = _schema(table.schema(Query()), names)
        planned = table.for_plan()
        points = tuple(_stated(planned, point) for point in (old, new))
        first = _of_store(table.files(), *planned.leased(), points, names, schema, found)

        def again() -> Pieces:
            return iter([_of_store(table.files(), *table.leased(), points, names, schema, found)])

        return Rows(_title(table, old, new), schema, iter([first]), again)
    bound = table.pin()
    queries = [replace(_query_at(bound, point), filters=tuple(of_keys)) for point in (old, new)]
    shown = _shared_schema(bound.name, *(bound.schema(query) for query in queries))
    keys = bound.row_key or bound.key_columns
    names = _chosen(bound.name, keys, [n for n in shown.names if n not in (*keys, *INTERVAL)], columns)
    if columns is None:
        names = replace(names, placement=frozenset(bound.placement_columns))
    schema = _schema(shown, names)
    # All rows decide how keys with maps are compared.
    whole = of_keys or any(has_maps(shown.field(name).type) for name in keys)
    if bound.row_key and not whole:
        return _rows_in_pairs(_title(bound, old, new), bound, queries, names, schema)
    if not whole:
        filters = tuple(bound.difference_filters(*queries))
        queries = [replace(query, filters=filters) for query in queries]
    return _rows_of_tables(_title(bound, old, new), (bound, bound), queries, names, schema)


def _title(table: StateTable, old: Point, new: Point) -> str:
    return f"{table.name}: differences from {old} to {new}"


def compare(
    old: StateTable, new: StateTable, columns: Iterable[str] | None = None, filters: Sequence[Filter] = ()
) -> Rows:
    """Return the rows that differ between the newest states of two tables, as `difference` does between two points.

    Columns that only one of them has are left out, and where a row is stored is not compared. Rows that only their
    places tell apart are compared as wholes. ``filters`` are on columns of both. Raises InvalidInputError
    INCOMPATIBLE_STATE for tables whose rows are not identified by the same columns, and as `difference`.
    """
    tables = old.pin(), new.pin()
    placement = frozenset((*tables[0].placement_columns, *tables[1].placement_columns))
    keys, others_keys = (
        tuple(name for name in table.row_key or table.key_columns if name not in placement) for table in tables
    )
    if keys != others_keys:
        raise InvalidInputError(
            ErrorCode.INCOMPATIBLE_STATE,
            f"rows of {old.name!r} are identified by {', '.join(keys)}, those of {new.name!r} by "
            f"{', '.join(others_keys)}; compare tables of one kind",
        )
    query = Query(filters=tuple(filters))
    schemas = [table.schema(query) for table in tables]
    common = [[field for field in schema if field.name in other.names] for schema, other in (schemas, schemas[::-1])]
    shown = _shared_schema(new.name, *map(pa.schema, common))
    names = _chosen(new.name, keys, [n for n in shown.names if n not in (*keys, "valid_to")], columns)
    names = replace(names, placement=placement)
    schema = _schema(shown, names)
    # What the newest states are is settled now, for all readings of the result.
    bound = [table.repeatable(query) for table in tables]
    queries = [query if found is None else found for found in bound]
    return _rows_of_tables(f"differences from {tables[0].name} to {tables[1].name}", tables, queries, names, schema)


def difference_of_rows(name: str, old: pa.Table, new: pa.Table, keys: Sequence[str], *, is_keyed: bool) -> pa.Table:
    """Return the rows in which two tables with the same columns differ, in the columns of `difference`.

    ``is_keyed``: the ``keys`` identify a row. Otherwise whole rows are added and removed.
    """
    names = _chosen(name, keys, [column for column in new.schema.names if column not in keys], None)
    schema = _schema(new.schema, names)
    before, after = (_side(rows.to_batches(), rows.schema, names, schema) for rows in (old, new))
    return pa.Table.from_batches(_of_sides(before, after, names, schema, is_keyed=is_keyed), schema)


def _rows_of_tables(
    title: str, tables: Sequence[StateTable], queries: Sequence[Query], names: Columns, schema: pa.Schema
) -> Rows:
    def again() -> Pieces:
        return iter([_of_tables(tables, queries, names, schema)])

    return Rows(title, schema, again(), again)


def _rows_in_pairs(title: str, table: StateTable, queries: Sequence[Query], names: Columns, schema: pa.Schema) -> Rows:
    """Compare the pairs of rows of `StateTable.differing`, or both states in whole where there are none."""

    def compared() -> Iterator[pa.RecordBatch]:
        asked = [_asked(table, query, names) for query in queries]
        found = table.differing(*asked)
        if found is None:
            filters = tuple(table.difference_filters(*queries))
            filtered = [replace(query, filters=filters) for query in queries]
            yield from _of_tables((table, table), filtered, names, schema)
            return
        for pair in found:
            before, after = (
                _side(batches, table.schema(query), names, schema) for batches, query in zip(pair, asked, strict=True)
            )
            yield from _of_sides(before, after, names, schema, is_keyed=True)

    def again() -> Pieces:
        rows = compared()
        first = next(rows, None)  # its errors are those of the question, which may be asked again
        return iter([chain(() if first is None else (first,), rows)])

    return Rows(title, schema, again(), again)


def _chosen(name: str, keys: Sequence[str], values: Sequence[str], asked: Iterable[str] | None) -> Columns:
    if asked is None:
        return Columns(tuple(keys), tuple(values))
    chosen = tuple(dict.fromkeys(c for c in column_names(asked, "columns") if c not in keys))
    unknown = [c for c in chosen if c not in values]
    if unknown:
        raise unknown_column(unknown[0], f"the value of {name!r}", values)
    if not chosen:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"columns: name value columns of {name!r}: {', '.join(values)}"
        )
    return Columns(tuple(keys), chosen)


def _schema(shown: pa.Schema, names: Columns) -> pa.Schema:
    values = pa.struct([shown.field(n) for n in names.values])
    keys = [shown.field(n) for n in names.keys]
    rest = [pa.field(OLD, values), pa.field(NEW, values), pa.field(CHANGED, pa.list_(pa.string()))]
    return pa.schema([pa.field(CHANGE, pa.string()), *keys, *rest])


# Stores


def _further(table: VersionedTable, key: pa.Schema) -> list[str]:
    """Return columns of keys that do not tell the rows apart, as rows are compared."""
    return [name for name in key.names if name not in (table.row_key or table.key_columns)]


def _stated(table: VersionedTable, point: Point) -> Point:
    """Return a point with its version. Raises the errors of a read."""
    query = table.repeatable(Query(version=point.version, as_of=point.as_of))
    assert query is not None, "a state at a moment"
    table.notify(query, table.log_state())
    return replace(point, version=query.version)


@dataclass(frozen=True)
class _Rows:
    """Rows of one segment that are valid at only one of the points, with their key hashes."""

    meta: SegmentMeta
    rows: Ints
    hashes: Hashes


def _of_store(
    files: SegmentFiles,
    log_state: LogState,
    lease: Lease | None,
    points: Sequence[Point],
    names: Columns,
    schema: pa.Schema,
    found: Callable[[int], None],
) -> Iterator[pa.RecordBatch]:
    """Check the points at once, and return an iterator that reads lazily."""
    windows = [window_of(files.spec.name, log_state, Query(version=p.version, as_of=p.as_of)) for p in points]
    is_keyed = files.spec.captured is None or bool(files.spec.captured.row_key)
    before, after = _only(files, log_state, windows, found, None if is_keyed else names.keys)
    total = sum(len(item.rows) for item in (*before, *after))
    bits = max(-(-total // PART_ROWS) - 1, 0).bit_length()
    compared = _compared if is_keyed else _as_bags
    batches = (
        batch
        for part in range(1 << bits)
        for batch in compared(
            _gather(files, before, names, part, bits), _gather(files, after, names, part, bits), names, schema
        )
    )
    return holding(lease, batches)


def _only(
    files: SegmentFiles,
    log_state: LogState,
    windows: list[TimeRange],
    found: Callable[[int], None],
    by: tuple[str, ...] | None,
) -> tuple[list[_Rows], list[_Rows]]:
    """Return the rows that are valid at the first point only, and those that are valid at the second only.

    ``by`` are the columns that equal rows of a bag have in common, by which they are divided; None: the key.
    """
    pieces = [_by_segment(plan(files, log_state, window, ())) for window in windows]
    sides: tuple[list[_Rows], list[_Rows]] = [], []
    for meta in log_state.segments:
        mine = [side.get(meta.name, []) for side in pieces]
        spans = [(p.start, p.stop) for side in mine for p in side]
        same = [[(p.start, p.stop, p.cut) for p in side] for side in mine]
        if not spans or (same[0] == same[1] and not any(cut for _, _, cut in same[0])):
            continue
        first, last = min(start for start, _ in spans), max(stop for _, stop in spans)
        live = [_live_rows(files, mine[i], windows[i], first, last) for i in (0, 1)]
        for side, ours, theirs in ((sides[0], live[0], live[1]), (sides[1], live[1], live[0])):
            rows = first + np.flatnonzero(ours & ~theirs)
            found(len(rows))
            if len(rows):
                side.append(_Rows(meta, rows, _hashes(files, meta, rows, by)))
    return sides


def _by_segment(pieces: Sequence[Piece]) -> dict[str, list[Piece]]:
    found: dict[str, list[Piece]] = {}
    for piece in pieces:
        found.setdefault(piece.segment.meta.name, []).append(piece)
    return found


def _live_rows(files: SegmentFiles, pieces: Sequence[Piece], window: TimeRange, first: int, last: int) -> Bools:
    """Return a mask of the rows [first, last) of a segment that are valid at the point."""
    live = np.zeros(last - first, bool)
    for piece in pieces:
        mine = live_mask(files, piece, window)
        live[piece.start - first : piece.stop - first] = True if mine is None else mine
    return live


def _hashes(files: SegmentFiles, meta: SegmentMeta, rows: Ints, by: tuple[str, ...] | None) -> Hashes:
    """Return the key hashes of these rows; the keys of about CHUNK_ROWS rows are in memory at a time."""
    if by == ():
        return np.zeros(len(rows), np.uint64)
    file = files.open_segment(meta)
    parts = [rows[at : at + CHUNK_ROWS] for at in range(0, len(rows), CHUNK_ROWS)]
    if by is not None:
        return np.concatenate([hash_keys([comparable(file.take(n, part)) for n in by]) for part in parts])
    return np.concatenate([hash_keys([file.take(n, part) for n in files.spec.key_names]) for part in parts])


def _gather(files: SegmentFiles, side: list[_Rows], names: Columns, part: int, bits: int) -> Side:
    """Return the rows of a side whose hashes begin with the bits of ``part``."""
    spec = files.spec
    chosen = []
    for item in side:
        mine = slice(None) if not bits else (item.hashes >> np.uint64(64 - bits)) == part
        chosen.append(_Rows(item.meta, item.rows[mine], item.hashes[mine]))
    fields = {f.name: f.type for f in (*spec.key, *spec.value)}
    columns = {}
    for name in (*names.keys, *names.values):
        parts = [files.open_segment(r.meta).take(name, r.rows) for r in chosen]
        columns[name] = pa.concat_arrays([pa.array([], fields[name]), *parts])
    if not has_own_key(spec) and names.keys:
        return keyed_rows([columns[n] for n in names.keys], [columns[n] for n in names.values])
    hashes = np.concatenate([np.empty(0, np.uint64), *(r.hashes for r in chosen)])
    return Side([columns[n] for n in names.keys], [columns[n] for n in names.values], hashes)


# Any table


def _query_at(table: StateTable, point: Point) -> Query:
    version = table.kept_versions()[1] if point.version is None else point.version
    return Query(version=version, as_of=point.as_of)


def _shared_schema(name: str, old: pa.Schema, new: pa.Schema) -> pa.Schema:
    """Return the columns of both points, those of ``new`` first, in types that hold the values of both."""
    fields = []
    for field in new:
        kind = widest_type(field.type, old.field(field.name).type) if field.name in old.names else field.type
        if kind is None:
            raise InvalidInputError(
                ErrorCode.INCOMPATIBLE_STATE,
                f"column {field.name!r} of {name!r} is {old.field(field.name).type} at one point and "
                f"{field.type} at the other, which have no common type; compare points between which "
                "the type of the column did not change",
            )
        fields.append(field.with_type(kind))
    return pa.schema([*fields, *(field for field in old if field.name not in new.names)])


def _of_tables(
    tables: Sequence[StateTable], queries: Sequence[Query], names: Columns, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    before, after = (_read(table, query, names, schema) for table, query in zip(tables, queries, strict=True))
    return _of_sides(before, after, names, schema, is_keyed=bool(tables[1].row_key))


def _of_sides(
    before: Side, after: Side, names: Columns, schema: pa.Schema, *, is_keyed: bool
) -> Iterator[pa.RecordBatch]:
    before, after = with_distinct_keys(before, after)
    if is_keyed and not any(repeats(side) for side in (before, after)):
        return _compared(before, after, names, schema)
    return _as_bags(before, after, names, schema)


def _asked(table: StateTable, query: Query, names: Columns) -> Query:
    """Return the query for those of the columns that the state has."""
    known = table.schema(replace(query, columns=None)).names
    return replace(query, columns=tuple(name for name in (*names.keys, *names.values) if name in known))


def _read(table: StateTable, query: Query, names: Columns, schema: pa.Schema) -> Side:
    query = _asked(table, query, names)
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    return _side(batches, table.schema(query), names, schema)


def _side(batches: Sequence[pa.RecordBatch], read: pa.Schema, names: Columns, schema: pa.Schema) -> Side:
    """Return rows with the columns of the schema ``read`` in the types of ``schema``."""
    asked, known = (*names.keys, *names.values), read.names
    rows = pa.Table.from_batches(batches, schema=read)
    values = schema.field(NEW).type
    kinds = [*(schema.field(n).type for n in names.keys), *(values.field(n).type for n in names.values)]
    columns = [
        cast_wider(_one_array(rows[name]), kind) if name in known else pa.nulls(rows.num_rows, kind)
        for name, kind in zip(asked, kinds, strict=True)
    ]
    keys = columns[: len(names.keys)]
    values_read = columns[len(names.keys) :]
    return keyed_rows(keys, values_read) if keys else Side([], values_read, np.zeros(rows.num_rows, np.uint64))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([pa.array([], column.type), *column.chunks])


def _as_bags(before: Side, after: Side, names: Columns, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Return the rows that one bag has and the other has not, equal rows as often as there are more of them."""
    left, right = pairs(*(counted_rows([*side.keys, *_compared_values(side, names)]) for side in (before, after)))
    nothing = np.zeros((len(left), len(names.values)), bool)
    return _differing_rows(before, after, names, schema, (left, right, nothing))


def _compared_values(side: Side, names: Columns) -> list[pa.Array]:
    return [column for column, compared in zip(side.values, names.compared, strict=True) if compared]


# The comparison


def _compared(before: Side, after: Side, names: Columns, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    left, right = pairs(before, after)
    return _differing_rows(
        before, after, names, schema, (left, right, differences(before, after, left, right) & names.compared)
    )


def _differing_rows(
    before: Side, after: Side, names: Columns, schema: pa.Schema, compared: tuple[Ints, Ints, Bools]
) -> Iterator[pa.RecordBatch]:
    """Yield the difference; ``compared`` has the matching rows of both sides, and the value columns in which they
    differ.
    """
    left, right, differs = compared
    changed = np.flatnonzero(differs.any(axis=1)) if names.values else np.empty(0, np.int64)
    removed, added = others(len(before.hashes), left), others(len(after.hashes), right)
    kind = np.repeat([ADDED, MODIFIED, REMOVED], [len(added), len(changed), len(removed)])
    if not len(kind):
        return
    count = len(added), len(changed), len(removed)
    keys = [
        pa.concat_arrays([theirs.take(pa.array(np.append(added, right[changed]))), ours.take(pa.array(removed))])
        for ours, theirs in zip(before.keys, after.keys, strict=True)
    ]
    old = _values(before, np.append(left[changed], removed), schema.field(OLD).type, count[0], 0)
    new = _values(after, np.append(added, right[changed]), schema.field(NEW).type, 0, count[2])
    columns = [
        pa.array(KINDS).take(pa.array(kind)),
        *keys,
        old,
        new,
        _names(differs[changed], names.values, count[0], count[2]),
    ]
    yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _values(side: Side, rows: Ints, kind: pa.StructType, nulls_before: int, nulls_after: int) -> pa.Array:
    """Return the values of these rows as structs, between nulls."""
    whole = np.concatenate([np.full(nulls_before, -1), rows, np.full(nulls_after, -1)])
    absent = whole < 0
    taken = pa.array(whole, mask=absent)
    fields = [kind.field(i) for i in range(kind.num_fields)]
    if not fields:
        return pa.array([None if gone else {} for gone in absent.tolist()], kind)
    return pa.StructArray.from_arrays([c.take(taken) for c in side.values], fields=fields, mask=pa.array(absent))


def _names(differs: Bools, names: tuple[str, ...], nulls_before: int, nulls_after: int) -> pa.Array:
    lengths = np.concatenate([np.zeros(nulls_before, np.int64), differs.sum(axis=1), np.zeros(nulls_after, np.int64)])
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    absent = np.ones(len(lengths), bool)
    absent[nulls_before : nulls_before + len(differs)] = False
    members = pa.array(names, pa.string()).take(pa.array(np.nonzero(differs)[1]))
    return pa.ListArray.from_arrays(pa.array(offsets), members, mask=pa.array(absent))
