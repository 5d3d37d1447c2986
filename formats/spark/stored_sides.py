"""The rows of a checkpoint as they are stored, to compare a copy in another layout with its source.

A copy has the bytes of each key and value as the source has them, in another partition, or in the frame of the other
provider. So nothing is decoded but the columns by which rows are placed: of each family there is the bag of its rows,
without what belongs to the layout, the id of a column family and the version in front of rows in RocksDB.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.bytes.row_bags import NO_ROWS, RowBag, bag_of
from statestore.formats.edits import StoredSide
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Provider, Store
from statestore.formats.spark.checkpoint.schema_files import FamilySchema
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.providers.partition_load import FAMILY_BYTES, open_partition, stored_rows
from statestore.formats.spark.providers.stored_rows import StoredRows
from statestore.formats.spark.row_places import check_places, key_encoder, places_of
from statestore.formats.spark.rows.row_encoding import without_version

Family = tuple[int, str, str]
"""A family by its operator, store and name."""
Names = Mapping[Family, tuple[str, ...]]
"""The states that show a family; in a copy, only families that are compared."""
Bag = Callable[[StoredRows], RowBag]


def compared_families(
    checkpoint: Checkpoint, provider: Provider, states: Mapping[str, Family], changed: Collection[Family]
) -> Names:
    """The families whose rows a copy has as they are stored, with the states that show them.

    Rows with checksums are left out: their readers verify these. So are keys of two parts, which the other provider
    stores in another form, and families that are ``changed``.
    """
    if checkpoint.has_checksums:
        return {}
    found = {}
    for operator in checkpoint.operators:
        for store in operator.stores:
            for family in store.families:
                place = (operator.operator_id, store.name, family.name)
                is_framed = provider != checkpoint.provider
                if place in changed or (is_framed and key_encoder(store, family, bare=False).ordering != "none"):
                    continue
                hidden = f"family {family.name} of store {store.name} of operator {operator.operator_id}"
                found[place] = tuple(name for name, shown in states.items() if shown == place) or (hidden,)
    return found


def names_in(compared: Names, store: Store, family: FamilySchema, partition: int, *, staying: bool) -> tuple[str, ...]:
    """The names of the bag of a family's rows in a partition; one is that of the partition, if rows are ``staying``."""
    names = compared.get((store.operator_id, store.name, family.name), ())
    if not names or not staying:
        return names
    return (*names, f"family {family.name} of store {store.name} of operator {store.operator_id} in {partition}")


def bag_in(checkpoint: Checkpoint, store: Store, *, framed: bool) -> Bag:
    """The function from rows of a store to their bag, the same for the rows of a copy.

    ``framed``: source and copy have different providers.
    """
    front = FAMILY_BYTES if store.has_families else 0
    versioned = framed and checkpoint.provider == "rocksdb"

    def bare(cells: Cells) -> Cells:
        return without_version(cells) if versioned else cells

    def bag(rows: StoredRows) -> RowBag:
        keys = rows.keys.behind(front, "a key", corrupt_row) if front else rows.keys
        return bag_of(bare(keys), bare(rows.values))

    return bag


@dataclass(frozen=True)
class _StorePart:
    """A partition of a store."""

    operator_id: int
    store: str
    partition: int


@dataclass(frozen=True)
class StoredCheckpoint(StoredSide):
    """A checkpoint as it is stored, in the families of ``names``.

    ``framed`` as in `bag_in`; ``staying``: rows stay in their partitions. ``placed`` is the number of partitions by
    which each row is to lie where its hash says, None where that is not asked for.
    """

    checkpoint: Checkpoint
    names: Names
    framed: bool
    staying: bool
    placed: int | None

    def parts(self) -> Sequence[_StorePart]:
        return [
            _StorePart(operator.operator_id, store.name, number)
            for operator in self.checkpoint.operators
            for store in operator.stores
            for number in store.partitions
        ]

    def bags(self, part: _StorePart) -> Mapping[str, RowBag]:
        operator = self.checkpoint.operator(part.operator_id)
        store = next(each for each in operator.stores if each.name == part.store)
        found: dict[str, RowBag] = {}
        for family in store.families:
            names = names_in(self.names, store, family, part.partition, staying=self.staying)
            if names:
                own = sum(self._bags(store, family, part), NO_ROWS)
                found.update((name, own) for name in names)
        return found

    def _bags(self, store: Store, family: FamilySchema, part: _StorePart) -> Iterator[RowBag]:
        source = open_partition(self.checkpoint, store, part.partition, family.name)
        bag = bag_in(self.checkpoint, store, framed=self.framed)
        if self.placed is None or store.written.single:
            return stored_rows(source, bag)
        count = self.placed
        places = places_of(self.checkpoint, self.checkpoint.operator(part.operator_id), store, family)
        check = check_places(source.folder.path, part.partition, count)

        def checked(rows: StoredRows) -> RowBag:
            check(places.of(rows.keys, count))
            return bag(rows)

        return stored_rows(source, checked)


@dataclass(frozen=True)
class KnownSide(StoredSide):
    """A side whose bags were taken as it was read."""

    known: tuple[Mapping[str, RowBag], ...]

    def parts(self) -> Sequence[int]:
        return range(len(self.known))

    def bags(self, part: int) -> Mapping[str, RowBag]:
        return self.known[part]
