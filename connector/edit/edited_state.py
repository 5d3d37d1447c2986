"""A state while it is edited: rows as the source has them, rows as statements have left them, and both as one table.

Only units that a statement may change are loaded, each once. All other rows are read where they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.engines.engine_table import EngineSplit, EngineTable, PartSplit
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.connector.edit.rows_in_tasks import Kept, rows_in_tasks
from statestore.connector.edit.units import Units, one_array, unit_numbers
from statestore.formats.engine import StateAt, WholePart
from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.places.held_tables import held_rows
from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.replaced_versions import again
from statestore.formats.state_table import Query
from statestore.formats.values.comparison import has_floats, has_maps
from statestore.formats.values.filters import MAX_LOOKUPS, Filter
from statestore.formats.values.without_pandas import arrow_numbers

FEW_KEYS = 64
"""Keys with nulls, which no filter names together, are read one by one up to this number."""


@dataclass(frozen=True)
class _Rows:
    before: pa.Table
    now: pa.Table
    loaded: Units
    whole: bool


class EditedState:
    """One state of a version.

    ``before`` are the rows of the units that were loaded, as the source has them, ``now`` the rows that they have by
    now, both in the order of the state and in all columns. ``is_keyed``: a unit has one row. ``whole``: every unit is
    loaded. With ``runs`` tasks look for the units that are loaded, unless those are all, or looked up.
    """

    def __init__(self, table: EngineTable, version: int, runs: TaskRuns | None = None) -> None:
        self.table = replace(table, bound=version)
        self.runs = runs
        self.version = version
        info = self.table.info
        self.name = table.name
        self.kind = info.kind
        self.schema = self.table.schema(Query(version=version))
        self.placement = tuple(name for name in info.placement if name in self.schema.names)
        named = [name for name in info.row_key or info.key if name not in self.placement]
        self.unit = tuple(name for name in named if name in self.schema.names)
        self.is_keyed = bool(info.row_key)
        self.one_zero = info.one_zero
        self.own = pa.schema([field for field in self.schema if field.name not in self.placement])
        # `empty_table` of a schema would load pandas.
        nothing = pa.Table.from_batches([], schema=self.schema)
        self._rows = _Rows(nothing, nothing, Units(nothing.select(list(self.unit))), False)

    @property
    def before(self) -> pa.Table:
        return self._rows.before

    @property
    def now(self) -> pa.Table:
        return self._rows.now

    @property
    def loaded(self) -> Units:
        return self._rows.loaded

    @property
    def whole(self) -> bool:
        return self._rows.whole

    # Loading

    def load_all(self) -> None:
        """Load every unit that is not loaded yet."""
        if not self.whole:
            self._take(self._read((), self._others(), here=True))
            self._rows = replace(self._rows, whole=True)

    def load_where(self, filters: Sequence[Filter]) -> None:
        """Load the units that have a row which passes the filters."""
        if self.whole:
            return
        if not {each.column for each in filters} <= set(self.unit):
            self.load(self._read(filters))  # of a unit some rows may not pass
            return
        self._take(self._read(filters, self._others()))

    def load(self, rows: pa.Table) -> None:
        """Load the units of rows, whether the source has rows of them or not."""
        if not self.unit:
            self.load_all()
            return
        units = Units.of(rows, self.unit).without(self.loaded)
        if not len(units):
            return
        if not self.whole:
            found = [self._read(filters, units.have) for filters in self._look_ups(units)]
            self._append(pa.concat_tables([pa.Table.from_batches([], schema=self.schema), *found]))
        self._rows = replace(self._rows, loaded=self.loaded.joined(units))

    def _take(self, rows: pa.Table) -> None:
        self._append(rows)
        if self.unit:
            self._rows = replace(self._rows, loaded=self.loaded.joined(Units.of(rows, self.unit)))

    def _append(self, rows: pa.Table) -> None:
        before, now = (pa.concat_tables([known, rows]) for known in (self.before, self.now))
        self._rows = replace(self._rows, before=before, now=now)

    def _others(self) -> Kept:
        """Return which rows are of units that are not loaded by now."""
        return partial(_not_among, self.loaded) if len(self.loaded) else _every

    def _read(self, filters: Sequence[Filter], kept: Kept | None = None, *, here: bool = False) -> pa.Table:
        """Return the rows that pass filters, in all columns and in the order of the state; of them those ``kept``.

        Tasks look for them, unless this process is to have them ``here``, or one part has them all, as look-ups do.
        """
        query = Query(version=self.version, filters=tuple(filters))
        runs = None if here else self.runs

        def of_split(split: EngineSplit) -> list[pa.RecordBatch]:
            batches = self.table.read(split, query)
            return list(batches if kept is None else (batch.filter(arrow_numbers(kept(batch))) for batch in batches))

        def once() -> pa.Table:
            splits = self.table.splits(query)
            if runs is not None and len(splits) > 1:
                return rows_in_tasks(self.table, splits, query, kept or _every, self.schema, runs)
            found = in_order(of_split, splits, reading_threads())
            return held_rows(self.schema, (batch for batches in found for batch in batches))

        return again(once)

    def _look_ups(self, units: Units) -> Sequence[Sequence[Filter]]:
        """Return the filters of one read or several, which together find the rows of the units, and others."""
        names = next((names for names in self.table.lookup_columns if names and set(names) <= set(self.unit)), None)
        if names is None or len(units) > MAX_LOOKUPS:
            return [()]
        keys = Units.of(units.keys, names).keys
        columns = {name: one_array(keys.column(name)) for name in names}
        found = of_values(columns)
        if found is not None:
            return [found]
        # Of keys with nulls each is read by itself. No two of these reads have a row in common.
        cells = [_plain(column) for column in columns.values()]
        known = [each for each in cells if each is not None]
        unclear = any(has_floats(column.type) or has_maps(column.type) for column in columns.values())
        if keys.num_rows > FEW_KEYS or len(known) < len(cells) or unclear:
            return [()]
        rows = zip(*known, strict=True)
        return [[_of_cell(name, cell) for name, cell in zip(names, row, strict=True)] for row in rows]

    # Change

    def replace_rows(self, now: pa.Table) -> None:
        """Set the rows that the loaded units have by now."""
        self._rows = replace(self._rows, now=now)

    def kept(self) -> object:
        """Return what `restore` takes to undo all changes from now on."""
        return self._rows

    def restore(self, kept: object) -> None:
        """Undo all changes since `kept`; all there were where it is None."""
        if kept is None:
            self._rows = replace(self._rows, now=self._rows.before)
            return
        assert isinstance(kept, _Rows)
        self._rows = kept

    # Reading

    def edited_table(self) -> StateTableOfEdit:
        """Return the state as statements have left it so far."""
        rows = EditedRows(self.now, self.loaded, self.whole)
        fields = {
            name: getattr(self.table, name) for name in ("opening", "called", "state", "pinned", "bound", "strict")
        }
        return StateTableOfEdit(**fields, rows=rows)

    def numbers(self, *tables: pa.Table) -> list[Ints]:
        """Return a number for each row of each table, the same for rows of one unit."""
        if not self.unit:
            return [np.zeros(table.num_rows, np.int64) for table in tables]
        keys = [table.select(list(self.unit)) for table in tables]
        numbers = unit_numbers(pa.concat_tables(keys), self.unit)
        return np.split(numbers, np.cumsum([table.num_rows for table in tables])[:-1])


def _every(rows: pa.RecordBatch) -> Bools:
    return np.ones(rows.num_rows, np.bool_)


def _not_among(units: Units, rows: pa.RecordBatch) -> Bools:
    return ~units.have(rows)


def of_values(columns: Mapping[str, pa.Array]) -> list[Filter] | None:
    """Return filters that name all values of some columns; None where "in" does not find each of them.

    It finds no null, and none of floats and maps for certain.
    """
    found = []
    for name, column in columns.items():
        if has_floats(column.type) or has_maps(column.type) or has_nulls(column):
            return None
        values = _plain(column if pa.types.is_nested(column.type) else column.unique())
        if values is None or len(values) > MAX_LOOKUPS:
            return None
        found.append(Filter(name, "in", tuple(values)))
    return found


def _plain(column: pa.Array) -> list[Any] | None:
    """Return values as Python has them; None where Python has not all of them."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):  # times beyond its years, or finer than its microseconds
        return None


def _of_cell(name: str, value: Any) -> Filter:
    return Filter(name, "is_null") if value is None else Filter(name, "=", value, exact=True)


def has_nulls(column: pa.Array) -> bool:
    """Return whether a column has a null at any depth."""
    if column.null_count:
        return True
    if pa.types.is_struct(column.type) or pa.types.is_list(column.type) or pa.types.is_map(column.type):
        return any(map(has_nulls, column.flatten() if pa.types.is_struct(column.type) else [column.values]))
    return False


# The state as one table: rows of the source whose units are not loaded, and those of the loaded units.


@dataclass(frozen=True)
class EditedRows:
    """The rows of loaded units, in the place of those that the source has of them."""

    now: pa.Table
    loaded: Units
    whole: bool


@dataclass(frozen=True)
class StateTableOfEdit(EngineTable):
    """A state as of one version, in which the rows of some units are others."""

    rows: EditedRows | None = None

    def splits(self, query: Query) -> Sequence[EngineSplit]:
        """Return the pieces of the answer; those of other questions than the present state are of the source."""
        rows = self.rows
        if rows is None or query.mode != "state" or query.as_of is not None:
            return super().splits(query)
        found: list[EngineSplit] = []
        for split in super().splits(query):
            assert isinstance(split, PartSplit), "a state as of a version"
            if not rows.whole:
                found.append(PartSplit(_OtherUnits(split.at, rows.loaded), split.part))
        version = self.kept_versions()[1] if query.version is None else query.version
        return [*found, PartSplit(_LoadedUnits(version, rows.now), WholePart(rows.now.num_rows))]

    def count(self, query: Query) -> int | None:
        return None


@dataclass(frozen=True)
class _OtherUnits(StateAt):
    """A state without the rows of some units."""

    of: StateAt
    units: Units

    @property
    def version(self) -> int:
        return self.of.version

    @property
    def schema(self) -> pa.Schema:
        return self.of.schema

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        return self._kept(self.of.rows(part, {*columns, *self.units.unit}, filters))

    def rows_with_fields(
        self, part: Any, columns: Collection[str], fields: Mapping[str, Collection[str]], filters: Sequence[Filter]
    ) -> Iterator[pa.RecordBatch]:
        others = {name: members for name, members in fields.items() if name not in self.units.unit}
        return self._kept(self.of.rows_with_fields(part, {*columns, *self.units.unit}, others, filters))

    def _kept(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            mine = self.units.have(batch)
            yield batch.filter(arrow_numbers(~mine)) if mine.any() else batch

    def explain_loss(self, error: StateStoreError, state: str, versions: Sequence[int]) -> StateStoreError:
        return self.of.explain_loss(error, state, versions)

    def explain_damage(self, error: CorruptError, state: str) -> CorruptError:
        return self.of.explain_damage(error, state)


@dataclass(frozen=True)
class _LoadedUnits(StateAt):
    """Rows in memory."""

    number: int
    now: pa.Table

    @property
    def version(self) -> int:
        return self.number

    @property
    def schema(self) -> pa.Schema:
        return self.now.schema

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        return iter(self.now.to_batches())
