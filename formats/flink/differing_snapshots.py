"""Rows in which a keyed state differs between two snapshots with RocksDB, found by the table files that they share.

Incremental checkpoints share table files, and rows whose only entries are in these are the same. So the databases of
each subtask are compared (`rocksdb_difference`), in place of a read of both states.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence

import pyarrow as pa

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.engine import StateAt
from statestore.formats.flink.serializers.type_search import of_kryo
from statestore.formats.flink.snapshot.handles import RocksHandle
from statestore.formats.flink.snapshot.rocksdb_copy import DELIMITER, Lookup, opened_database
from statestore.formats.flink.state_at import KeyedAt
from statestore.formats.flink.streams.keyed_columns import framed_rows
from statestore.formats.flink.streams.keyed_reading import KeyedReading
from statestore.formats.flink.streams.state_form import KEY, MAP_KEY, NAMESPACE, KeyedForm
from statestore.formats.rocksdb.opened_families import family_names
from statestore.formats.rocksdb.rows import BATCH_ROWS
from statestore.formats.rocksdb.scan import scan_rocksdb
from statestore.formats.rocksdb.stored_difference import NOTHING, Differing
from statestore.formats.rocksdb.table_difference import rocksdb_difference
from statestore.formats.state_table import RowPair

_WITHOUT_ROWS = ("CURRENT", "MANIFEST-", "OPTIONS-", "IDENTITY", "LOCK", "LOG")
"""Files of RocksDB that differ in each checkpoint and hold no rows; a write-ahead log does."""


def differing_groups(
    old: StateAt, new: StateAt, groups: range, columns: Sequence[Collection[str]]
) -> Iterator[RowPair] | None:
    """Pairs of rows of some key groups that hold all which differ, in the columns of each side.

    None where the databases are not compared: those of another backend, of other key groups, in an object store, or
    with other types.
    """
    if not isinstance(old, KeyedAt) or not isinstance(new, KeyedAt) or not _are_alike(old, new):
        return None
    return _differing(old, new, groups, columns)


def _are_alike(old: KeyedAt, new: KeyedAt) -> bool:
    """Return whether equal rows are equal bytes in databases of the same key groups, all of them local."""
    found = stored_as(new)
    return found is not None and found == stored_as(old) and all(each.files_of.folder.is_local for each in (old, new))


def stored_as(at: KeyedAt) -> tuple[object, ...] | None:
    """The facts that two snapshots share where equal rows of theirs are equal bytes in databases of the same key
    groups; None where no other snapshot shares them."""
    spans = _spans(at)
    if spans is None or at.code or any(form != at.form for _, form in at.stored) or at.form.schema != at.columns:
        return None
    return (at.form, at.columns, at.key, at.groups, tuple(spans)) if _has_one_form_of_keys(at.form) else None


def _has_one_form_of_keys(form: KeyedForm) -> bool:
    """Return whether rows that are told apart have other stored keys, and equal ones the same.

    Two values of Kryo may be shown alike. Maps are equal in any order, and so are all NaNs.
    """
    names = [name for name in (KEY, NAMESPACE, MAP_KEY) if name in form.schema.names]
    if form.undivided or any(_has_many_forms(form.schema.field(name).type) for name in names):
        return False
    return not any(of_kryo(kind) for kind in (form.key, form.namespace, form.map_key) if kind is not None)


def _has_many_forms(kind: pa.DataType) -> bool:
    if pa.types.is_floating(kind) or pa.types.is_map(kind):
        return True
    return any(_has_many_forms(kind.field(number).type) for number in range(kind.num_fields))


def _spans(at: KeyedAt) -> list[tuple[int, int]] | None:
    """The key groups of each subtask; None where one has no RocksDB."""
    handles = [stored.handle for stored, _ in at.stored]
    spans = [(each.first_group, each.groups) for each in handles if isinstance(each, RocksHandle)]
    return spans if len(spans) == len(handles) and len(set(spans)) == len(spans) else None


def _differing(old: KeyedAt, new: KeyedAt, groups: range, columns: Sequence[Collection[str]]) -> Iterator[RowPair]:
    for number, (stored, _) in enumerate(old.stored):
        handle, other = stored.handle, new.stored[number][0].handle
        assert isinstance(handle, RocksHandle)
        assert isinstance(other, RocksHandle)
        first = max(groups.start, handle.first_group)
        last = min(groups.stop, handle.first_group + handle.groups) - 1
        if first > last or _files(handle) == _files(other):
            continue
        readings = [at.reading(first, last, names) for at, names in zip((old, new), columns, strict=True)]
        with old.explaining(old.form, stored.handle), new.explaining(new.form, other):
            yield from _of_databases(readings, (handle, other))


def content_of_groups(at: StateAt, groups: range) -> Hashable | None:
    """A value that is equal for two snapshots only if the key groups have the same rows in both; None: unknown."""
    if not isinstance(at, KeyedAt):
        return None
    found: list[Hashable] = []
    for each, _ in at.stored:
        handle = each.handle
        if handle.first_group >= groups.stop or handle.first_group + handle.groups <= groups.start:
            continue
        if not isinstance(handle, RocksHandle):
            return None
        found.append((handle.first_group, handle.groups, _files(handle)))
    return (str(at.schema), tuple(found))


def _files(handle: RocksHandle) -> Hashable:
    """The files with rows of a database and where they are."""
    files = [pair for pair in (*handle.shared, *handle.private) if not pair[0].startswith(_WITHOUT_ROWS)]
    return tuple(sorted(files, key=lambda pair: pair[0]))


def _of_databases(readings: Sequence[KeyedReading], handles: Sequence[RocksHandle]) -> Iterator[RowPair]:
    before, after = readings
    held: list[Differing] = []
    for each in compared_databases(before, after, handles):
        held.append(each)
        if sum(one.count for one in held) >= BATCH_ROWS:
            yield _decoded(before, after, held)
            held = []
    if held:
        yield _decoded(before, after, held)


def compared_databases(
    before: KeyedReading, after: KeyedReading, handles: Sequence[RocksHandle]
) -> Iterator[Differing]:
    """Yield the stored rows of some key groups in which two local databases differ. Raises as reads of both."""
    family, within = before.form.name, before.stored_range
    wanted = Lookup(family, [within], whole=True)
    with (
        opened_database(before.files, handles[0], wanted) as old,
        opened_database(after.files, handles[1], wanted) as new,
    ):
        if all(family in family_names(each) for each in (old, new)):
            yield from rocksdb_difference(
                old, new, lambda one: one, family=family, key_ranges=[within], delimiter=DELIMITER
            )
            return
        for directory in (old, new):  # one lacks the state
            if family in family_names(directory):
                rows = scan_rocksdb(
                    directory, lambda rows: rows, family=family, key_ranges=[within], delimiter=DELIMITER
                )
                for each in rows:
                    yield Differing(*((NOTHING, each) if directory is old else (each, NOTHING)), NOTHING, NOTHING)


def _decoded(before: KeyedReading, after: KeyedReading, found: Sequence[Differing]) -> RowPair:
    gone = [batch for each in found for batch in (each.removed, each.before)]
    come = [batch for each in found for batch in (each.added, each.after)]
    return [stored_rows(before, pa.concat_batches(gone))], [stored_rows(after, pa.concat_batches(come))]


def stored_rows(reading: KeyedReading, stored: pa.RecordBatch) -> pa.RecordBatch:
    """Stored keys and values as rows of a read."""
    keys, values = cells_of(stored.column(0)), cells_of(stored.column(1))
    return framed_rows(reading.form, keys, values, reading.stored_groups, reading.columns, reading.origin)
