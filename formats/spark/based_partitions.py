"""The base of each new partition of a store: all rows that belong there, as a snapshot or as a zip.

An edit takes part: rows that it erases or changes are left behind as they are read, and those that it puts join the
others. So a base has no trace of what was erased. Where the number of partitions stays, so does each row.

Rows that lie in partition p of P belong to partition q of Q only if both have the same remainder by the greatest common
divisor of P and Q. So partitions are written in groups, apart from each other, and each row is read and moved once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.bytes.byte_parts import joined_parts, repeated
from statestore.formats.bytes.row_bags import NO_ROWS, RowBag
from statestore.formats.edits import Target
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.local_directory import temporary_directory
from statestore.formats.spark.checkpoint.checkpoint import DEFAULT_STORE, Checkpoint, Operator, Provider, Store
from statestore.formats.spark.checkpoint.schema_files import FamilySchema
from statestore.formats.spark.checkpoint.state_errors import corrupt_row, not_editable
from statestore.formats.spark.edits.change_file_edits import snapshot_pieces
from statestore.formats.spark.edits.fresh_zips import ZipForm, form_of, write_fresh_zip
from statestore.formats.spark.edits.packed_streams import packed
from statestore.formats.spark.edits.rerouted_rows import ReroutedRows, in_key_order
from statestore.formats.spark.edits.stored_edits import StoredEdit
from statestore.formats.spark.providers.partition_load import (
    FAMILY_BYTES,
    family_of,
    on_whole_base,
    open_partition,
    stored_rows,
)
from statestore.formats.spark.providers.rocksdb_provider import family_prefix
from statestore.formats.spark.providers.stored_rows import StoredRows
from statestore.formats.spark.reframed_rows import frame_of
from statestore.formats.spark.row_places import check_places, places_of
from statestore.formats.spark.stored_sides import Bag, Names, bag_in, names_in
from statestore.formats.values.without_pandas import bools

_FORMAT = "stateStore.rocksdb.formatVersion"
_TABLE_FORMATS = ("2", "3", "4", "5")


@dataclass(frozen=True)
class Layout:
    """How the target stores state: the partitions of a shuffle, the provider, the codec of snapshots.

    ``partitions`` is None where each row stays in its partition. ``uids`` are the names of files in checkpoint format
    2, by operator, partition and store; else there are none.
    """

    partitions: int | None
    provider: Provider
    codec: str
    uids: Mapping[str, list[list[str]]]


@dataclass(frozen=True)
class PartitionGroup:
    """A part of the writing: the partitions of a store among which rows move, with the edits of their rows."""

    operator_id: int
    store: str
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    edits: tuple[StoredEdit, ...] = ()


def groups_of(checkpoint: Checkpoint, layout: Layout, edits: Iterable[StoredEdit]) -> list[PartitionGroup]:
    """The groups of all stores, which together have each partition once."""
    placed: dict[tuple[int, str, int], list[StoredEdit]] = {}
    for edit in edits:
        placed.setdefault((edit.operator_id, edit.store, edit.partition), []).append(edit)
    found = []
    for operator in checkpoint.operators:
        for store in operator.stores:
            for sources, targets in _moves(store, layout):
                own = [each for at in sources for each in placed.get((operator.operator_id, store.name, at), ())]
                found.append(PartitionGroup(operator.operator_id, store.name, sources, targets, tuple(own)))
    return found


def _moves(store: Store, layout: Layout) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield groups of partitions of a store, and those to which their rows go."""
    if layout.partitions is None:
        yield from (((number,), (number,)) for number in store.partitions)
    elif store.written.single:
        yield tuple(range(store.count)), (0,)
    else:
        divisor = math.gcd(store.count, layout.partitions)
        for number in range(divisor):
            yield tuple(range(number, store.count, divisor)), tuple(range(number, layout.partitions, divisor))


def write_group(
    checkpoint: Checkpoint, group: PartitionGroup, layout: Layout, compared: Names, target: Target
) -> tuple[Mapping[str, int], Mapping[str, RowBag]]:
    """Write the bases of a group; return the sizes of their files by path below the target, and the bags of the rows
    that were read of the source, of the families that are compared.

    Raises the errors of reads, InvalidInputError EDIT_REFUSED for rows that lie elsewhere than their hash says,
    StorageError.
    """
    operator = checkpoint.operator(group.operator_id)
    store = next(each for each in operator.stores if each.name == group.store)
    form = base_form(checkpoint, store, group.sources, layout)
    sizes: dict[str, int] = {}
    bags: dict[str, RowBag] = {}
    with temporary_directory() as directory, ReroutedRows(directory) as rows:
        for family in store.families:
            for number in group.sources:
                edits = [each for each in group.edits if (each.partition, each.family) == (number, family.name)]
                names = names_in(compared, store, family, number, staying=layout.partitions is None)
                framed = layout.provider != checkpoint.provider
                bag = bag_in(checkpoint, store, framed=framed) if names else no_bag
                for moved, read in moved_rows(checkpoint, operator, store, family, number, layout, form, edits, bag):
                    if moved is not None:
                        rows.add(*moved)
                    bags.update((name, bags.get(name, NO_ROWS) + read) for name in names)
        for number in group.targets:
            sizes |= write_base(checkpoint, store, number, rows.of(number), layout, form, target)
    return sizes, bags


Moved = tuple[Ints, Cells, Cells]
"""The new partition of rows, their keys and their values."""


def moved_rows(
    checkpoint: Checkpoint,
    operator: Operator,
    store: Store,
    family: FamilySchema,
    number: int,
    layout: Layout,
    form: ZipForm,
    edits: Sequence[StoredEdit],
    bag: Bag,
) -> Iterator[tuple[Moved | None, RowBag]]:
    """Yield the rows that a family in a partition has after its edits, with the bag of the rows before.

    Bags are taken of what the reader of the source yields, before anything is done with it: they say what the files of
    the source have, whatever becomes of the rows here. So the source need not be read again to verify the target.
    """
    source = open_partition(checkpoint, store, number, family.name)
    frame = frame_of(checkpoint, store, family, layout.provider)
    found, wanted = family_of(source), form.families.get(family.name)
    partitions = layout.partitions
    places = None if partitions is None or store.written.single else places_of(checkpoint, operator, store, family)
    check = check_places(source.folder.path, number, store.count)
    gone = pa.concat_arrays([column for each in edits for column in (each.put.column(0), each.erased)]) if edits else ()

    def moved(rows: StoredRows) -> Moved:
        keys, values = frame(rows)
        if found is not None and wanted is not None and found != wanted:
            keys = _of_family(keys, wanted)
        if places is None or partitions is None:
            return np.full(len(keys), number if partitions is None else 0, np.int64), keys, values
        at = places.of(rows.keys, math.lcm(store.count, partitions))
        check(at % store.count)
        return at % partitions, keys, values

    def kept(rows: StoredRows) -> tuple[Moved | None, RowBag]:
        found = bag(rows)
        if edits:
            left = np.flatnonzero(~bools(pc.is_in(rows.keys.copied(corrupt_row), value_set=gone)))
            rows = StoredRows((rows.keys.select(left), rows.values.select(left)))
        return moved(rows) if len(rows.keys) else None, found

    if found is not None and found != wanted and checkpoint.has_checksums:
        raise not_editable(
            f"{source.folder.path}: family {family.name} has the id {found}, and {wanted} in another partition, and "
            "the checksums of rows cover it; let Spark run the query without row checksums, or edit before"
        )
    yield from stored_rows(source, kept)
    yield from ((moved(StoredRows(each.put)), NO_ROWS) for each in edits if each.put.num_rows)


def no_bag(rows: StoredRows) -> RowBag:
    """Return no bag, where none is asked for."""
    return NO_ROWS


def _of_family(keys: Cells, number: int) -> Cells:
    bare = keys.cut(FAMILY_BYTES)
    return joined_parts([repeated(family_prefix(number), len(keys)), bare], len(keys))


def base_form(checkpoint: Checkpoint, store: Store, sources: Sequence[int], layout: Layout) -> ZipForm:
    """The form of zips: that of a zip of these partitions, with the ids of all families."""
    if layout.provider != "rocksdb":
        return ZipForm(0)
    table_format = _table_format(checkpoint)
    form = ZipForm(table_format, _NEW_DOCUMENT if store.prefix_columns is not None else {})
    families: dict[str, int] = {}
    for number in sources:
        if checkpoint.provider != "rocksdb":
            break
        partition = open_partition(checkpoint, store, number, store.families[0].name)
        base = on_whole_base(partition, lambda base: base)
        if base is None or base.kind != "zip":
            continue
        found = form_of(partition.folder, base, table_format)
        _check_families(partition.folder.at(base.name).path, store, found)
        if len(found.families) >= len(form.families) or form.options is None:
            form = found
        if not store.has_families:
            break
    if not store.has_families:
        return form
    families = dict(form.families)
    for family in store.families:
        for number in sources:
            if family.name in families:
                break
            found_id = family_of(open_partition(checkpoint, store, number, family.name))
            if found_id is not None:
                families[family.name] = max([found_id, *(each + 1 for each in families.values())])
    return form.with_families(families)


def _table_format(checkpoint: Checkpoint) -> int:
    found = checkpoint.batch.setting(_FORMAT, "5")
    if found not in _TABLE_FORMATS:
        raise not_editable(
            f"{checkpoint.root.path}: spark.sql.streaming.{_FORMAT} is {found[:40]!r}, and table files can be written "
            f"in {', '.join(_TABLE_FORMATS)}"
        )
    return int(found)


def _check_families(path: str, store: Store, form: ZipForm) -> None:
    """Raise for families whose rows would be left behind."""
    unknown = sorted(form.families.keys() - {family.name for family in store.families} - {DEFAULT_STORE})
    if store.has_families and unknown:
        raise not_editable(
            f"{path}: no schema file says what is in its column families {', '.join(unknown[:5])}, so their rows "
            "cannot be placed; let the query run a batch, or restore the schema files from a copy"
        )


_NEW_DOCUMENT = {
    "numInternalKeys": 0,
    "columnFamilyMapping": {},
    "columnFamilyTypeMap": {},
    "maxColumnFamilyId": 0,
}
"""What Spark 4 says in the metadata of a zip of a store without families."""


def write_base(
    checkpoint: Checkpoint,
    store: Store,
    number: int,
    rows: Iterator[pa.RecordBatch],
    layout: Layout,
    form: ZipForm,
    target: Target,
) -> Mapping[str, int]:
    """Write the base of a partition with its rows, which come in any order; return sizes as `write_group` does."""
    where = f"state/{store.operator_id}/{number}{'' if store.name == DEFAULT_STORE else f'/{store.name}'}"
    version = checkpoint.batch.version
    if layout.provider == "hdfs":
        path = f"{where}/{version}.snapshot"
        size = 0
        with target.create(path) as stream:
            for piece in packed(layout.codec, snapshot_pieces(rows)):
                stream.write(piece)
                size += len(piece)
        return {path: size}
    stores = layout.uids.get(str(store.operator_id))
    named = ""
    if stores:
        of_partition = stores[number]
        named = f"_{of_partition[store.number if len(of_partition) > 1 else 0]}"
    with temporary_directory() as directory:
        return write_fresh_zip(directory, in_key_order(rows), form, target, where, f"{version}{named}.zip")
