"""The units of an edit, each with the records that hold its rows now.

A row is found by what its record decodes to, so that a key is edited under the bytes that the application gave it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import pack
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.edits import StateEdit
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.kafka.changelogs.record_log import RecordLog
from statestore.formats.kafka.columns.store_kinds import logged_rows
from statestore.formats.kafka.edits.edited_store import EditedStore, present_records

Row = tuple[Any, ...]


@dataclass(frozen=True)
class StoredRow:
    """A row of now: the partition, key and value of its record, and its cells as `cells_of_rows` gives them."""

    partition: int
    key: bytes
    value: bytes
    cells: Row


@dataclass
class Unit:
    """Rows that are equal in the unit of the edit: positions of those that go and come, and the records they have."""

    removed: list[int] = field(default_factory=list)
    added: list[int] = field(default_factory=list)
    stored: list[StoredRow] = field(default_factory=list)


def found_units(store: EditedStore, edit: StateEdit) -> dict[Row, Unit]:
    """Return the units of an edit by their cells, each with the records of its rows.

    Raises InvalidInputError EDIT_REFUSED where the rows that go are not those that are there.
    """
    removed, added = (rows_of(store, table) for table in (edit.removed, edit.added))
    units: dict[Row, Unit] = {}
    for number, cells in enumerate(cells_of_rows(removed, store.unit)):
        units.setdefault(cells, Unit()).removed.append(number)
    for number, cells in enumerate(cells_of_rows(added, store.unit)):
        units.setdefault(cells, Unit()).added.append(number)
    for log in store.logs:
        _find(store, log, units, _values(removed, added, store.unit[0]))
    gone = list(cells_of_rows(removed, store.schema.names))
    for cells, unit in units.items():
        if Counter(gone[number] for number in unit.removed) != Counter(row.cells for row in unit.stored):
            named = ", ".join(f"{name} = {shown(value, 60)}" for name, value in zip(store.unit, cells, strict=True))
            is_new = not unit.removed
            raise store.refused(
                f"a row with {named} is there already; change it, or delete it first"
                if is_new
                else f"the row with {named} is not there as the edit has it; read the state again, and state the edit "
                "anew"
            )
    return units


def _find(store: EditedStore, log: RecordLog, units: dict[Row, Unit], values: pa.Array | None) -> None:
    """Add the records of a partition to the units of their rows. ``values``: those that the first column may have."""
    for records in present_records(store, log):
        keys, timestamps, headers = records["key"], records["timestamp"], records["headers"]
        rows = logged_rows(store.form, keys, records["value"], timestamps, headers)
        if values is not None:
            likely = pc.is_in(rows.column(store.unit[0]), value_set=values)
            rows = rows.filter(likely)
        known = enumerate(cells_of_rows(rows, store.unit))
        wanted = [(number, unit) for number, cells in known if (unit := units.get(cells)) is not None]
        if not wanted:
            continue
        chosen = rows.take(pa.array([number for number, _ in wanted]))
        places = chosen.column("record")
        found = zip(
            keys.take(places).to_pylist(),
            records["value"].take(places).to_pylist(),
            cells_of_rows(chosen, store.schema.names),
            strict=True,
        )
        for (_, unit), (key, value, cells) in zip(wanted, found, strict=True):
            unit.stored.append(StoredRow(log.partition, key, value, cells))


def _values(removed: pa.RecordBatch, added: pa.RecordBatch, name: str) -> pa.Array | None:
    """The values of a column in both; None for a type that Arrow does not look up by its bits."""
    kind = removed.schema.field(name).type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_integer(kind)):
        return None
    return pa.concat_arrays([removed.column(name), added.column(name)])


def rows_of(store: EditedStore, table: pa.Table) -> pa.RecordBatch:
    """The rows of an edit in the columns of the store. Raises InvalidInputError WRONG_SCHEMA where one is missing."""
    missing = [name for name in store.schema.names if name not in table.column_names]
    if missing:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"{store.where}: the rows of the edit have no column {missing[0]}, expected "
            f"{', '.join(store.schema.names)}",
        )
    chosen = table.select(store.schema.names).cast(store.schema).combine_chunks()
    columns = [pa.concat_arrays(each.chunks) if each.num_chunks else pa.nulls(0, each.type) for each in chosen.columns]
    return pa.RecordBatch.from_arrays(columns, schema=store.schema)


def cells_of_rows(rows: pa.RecordBatch, names: tuple[str, ...] | list[str]) -> Iterator[Row]:
    """The cells of these columns row by row, so that cells are equal if their bits are; times in microseconds."""
    columns = (rows.column(name) for name in names)
    plain = (each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in columns)
    return zip(*(map(_exact, each.to_pylist()) for each in plain), strict=True)


def _exact(cell: Any) -> Any:
    """A value to compare and to hash, in which NaN equals itself and -0.0 is not 0.0."""
    if isinstance(cell, float):
        return pack(">d", cell)
    if isinstance(cell, dict):
        return tuple(map(_exact, cell.values()))
    return tuple(map(_exact, cell)) if isinstance(cell, list | tuple) else cell
