"""The states of one version of a source, as the statements of an edit have left them so far, and queries over these and
over other tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property

import duckdb
import numpy as np
import pyarrow as pa
from sqlglot import exp

from statestore.catalog.engines.engine_states import EngineStates
from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.catalog.warehouse import Warehouse, open_table
from statestore.connector.duckdb.attach import connect
from statestore.connector.edit.edited_state import EditedState
from statestore.connector.edit.named_rows import fields_of
from statestore.connector.edit.statements import Target, Text
from statestore.connector.sql.named_tables import find_table
from statestore.connector.sql.sql_duckdb import select_on_duckdb
from statestore.connector.sql.sql_statement import TableReference, located
from statestore.formats.engine import Source
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError, UnsupportedError
from statestore.formats.places.interrupts import stoppable
from statestore.formats.state_table import StateTable
from statestore.formats.values.unique_names import unique_names
from statestore.formats.values.without_pandas import arrow_numbers

DATA_FILES = (".parquet", ".csv", ".tsv", ".json", ".csv.gz", ".json.gz")
"""Ends of the names of files that DuckDB reads."""
_UNKNOWN = re.compile(r'Referenced column "([^"]+)" not found')
ROWS, ROW = "__statestore_rows", "__statestore_row"


@dataclass
class Editing:
    """The states of a version of a source while they are edited, by their names.

    ``paths`` are tables of other places that statements name by their paths. ``external``: statements may read files,
    as DuckDB does. With ``runs`` tasks look for the rows that statements change, where they can.
    """

    warehouse: Warehouse
    source: Source
    version: int
    external: bool = False
    runs: TaskRuns | None = None
    states: dict[str, EditedState] = field(default_factory=dict)
    paths: dict[str, StateTable] = field(default_factory=dict)

    @cached_property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection of all queries; to open one takes longer than most of them."""
        connection = connect(self.external)
        if not self.external:
            connection.execute("SET lock_configuration = true")
        return connection

    def state(self, name: str, position: str = "") -> EditedState:
        """Return a state by its name, or by what stands behind the dot in it where one state alone is called so.

        Raises NotFoundError TABLE_NOT_FOUND or VERSION_NOT_FOUND.
        """
        table = find_table(self.warehouse, self._whole_name(name), position)
        if not isinstance(table, EngineTable):
            raise located(
                UnsupportedError(
                    ErrorCode.UNSUPPORTED_STATEMENT, f"{name!r} is metadata, which cannot be changed; name a state"
                ),
                position,
            )
        if table.state not in self.states:
            self.states[table.state] = EditedState(table, self.version, self.runs)
        return self.states[table.state]

    def _whole_name(self, name: str) -> str:
        if self.warehouse.held.knows(name) or "$" in name:
            return name
        found = [each for each in self.warehouse.tables() if each.lower().endswith(f".{name.lower()}")]
        return found[0] if len(found) == 1 else name

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Leave every state as it was before a block that ends by an error."""
        before = {name: state.kept() for name, state in self.states.items()}
        try:
            yield
        except BaseException:
            for name, state in self.states.items():
                state.restore(before.get(name))
            raise

    def target(self, target: Target) -> EditedState:
        """Return the state that a statement changes."""
        return self.state(target.name, target.position)

    def select(self, tree: exp.Query, text: Text, given: Mapping[str, pa.Table] | None = None) -> pa.Table:
        """Run a query over the states, over ``given`` tables, and over whatever else it names.

        ``text`` is the statement that it is a part of, to which errors refer.
        """
        connection = self.connection

        def stop() -> None:
            with suppress(duckdb.Error):  # closed meanwhile
                connection.interrupt()

        for name, rows in (given or {}).items():
            connection.register(name, rows)
        try:
            return stoppable(
                lambda: select_on_duckdb(self.warehouse, connection, tree, text.placed, self._opened), stop
            )
        except InvalidInputError as error:
            raise self._explained(error, text) from error.__cause__
        finally:
            for name in given or {}:
                connection.unregister(name)

    def _explained(self, error: InvalidInputError, text: Text) -> InvalidInputError:
        """Return DuckDB's error about a name, or about a parameter, with what to write."""
        unknown = _UNKNOWN.search(error.message)
        if "Values were not provided" in error.message:
            return InvalidInputError(error.code, "a statement of an edit has no parameters; write the values in it")
        if unknown is None:
            return error
        name, advice = unknown[1], ""
        paths = [path for state in self.states.values() for path in fields_of(state.schema) if path[-1] == name]
        if paths:
            advice = f"\nA field is written with its column: {'.'.join(paths[0])}"
        elif f'"{name}"' in text.written:
            advice = f"\nA text stands in single quotes: '{name}'"
        return InvalidInputError(error.code, f"{error.message}{advice}")

    def _opened(self, reference: TableReference) -> tuple[StateTable, bool] | None:
        """Return a state as it is by now, or a table at a path; None for any other table of the source."""
        if not reference.qualified and ("/" in reference.name or reference.name.endswith(DATA_FILES)):
            return self._at_path(reference)
        if not reference.plain or "$" in reference.name:
            return None
        try:
            state = self.state(reference.name)
            return state.edited_table(), state.name.lower() == reference.name.lower()
        except NotFoundError as error:
            if error.code != ErrorCode.TABLE_NOT_FOUND:
                raise
            return None

    def _at_path(self, reference: TableReference) -> tuple[StateTable, bool] | None:
        name = reference.name
        if name.endswith(DATA_FILES) and self.external:
            return None  # DuckDB reads it
        try:
            if name.endswith(DATA_FILES):
                raise UnsupportedError(
                    ErrorCode.EXTERNAL_ACCESS_OFF,
                    f"{name!r} is a data file; pass allow_external_access=True if the statements are trusted",
                )
            if name not in self.paths:
                self.paths[name] = open_table(name).pin()
        except StateStoreError as error:
            raise located(error, reference.position) from None
        return self.paths[name], False

    def rows_of(self, state: EditedState) -> pa.Table:
        """Return the loaded rows of a state as DuckDB has its columns, and a column with their numbers."""
        rows = state.now
        names = unique_names(rows.schema.names, taken=(ROW,), first=2)
        return rows.rename_columns(names).append_column(ROW, arrow_numbers(np.arange(rows.num_rows)))


def newest_version(source: Source) -> int:
    """Return the newest version of any state of a source. Raises NotFoundError VERSION_NOT_FOUND."""
    found: list[int] = []
    last: NotFoundError | None = None
    for state in source.states():
        try:
            found.append(source.newest(state))
        except NotFoundError as error:
            last = error
    if found:
        return max(found)
    raise last or NotFoundError(ErrorCode.VERSION_NOT_FOUND, f"{source.path} has no state; expected one to edit")


def engine_states(warehouse: Warehouse) -> EngineStates:
    """Return the states of an engine. Raises UnsupportedError EDIT_UNSUPPORTED for stores of this package."""
    if isinstance(warehouse.held, EngineStates):
        return warehouse.held
    raise UnsupportedError(
        ErrorCode.EDIT_UNSUPPORTED,
        f"{warehouse.path} has stores, which are changed where they are: with put and drop, or with a commit in "
        "Python; edit is for the state of an engine",
    )


def shared(names: Sequence[str]) -> str:
    """Return names as a sentence has them."""
    return ", ".join(names) or "none"
