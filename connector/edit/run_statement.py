"""UPDATE, DELETE and INSERT: the rows of a state that a statement means, and the values that it gives them.

Each is one query or several over the state as the statements before it left it, and over whatever else it names. The
units that it may change are loaded first, and its query then gives, for a row by its number among the loaded ones, the
values that it gets. So a row keeps every value that is not set as the source has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from sqlglot import exp

from statestore.connector.edit.chosen_in_tasks import chosen_in_tasks, is_of_the_row
from statestore.connector.edit.edited_state import EditedState
from statestore.connector.edit.editing import ROW, ROWS, Editing, shared
from statestore.connector.edit.fitted_values import fitted, in_type
from statestore.connector.edit.named_rows import BY_CHANCE, Columns, Path, load_named, query_of, spelled, type_at
from statestore.connector.edit.row_changes import delete_rows, insert_rows, key_text, set_values
from statestore.connector.edit.statements import Assignment, Delete, Insert, Target, Text, Update
from statestore.connector.edit.units import in_pieces, one_array, repeated_row
from statestore.connector.edit.written_names import WrittenNames
from statestore.connector.sql.sql_statement import located, replace_table
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.values.without_pandas import numbers


def run_update(editing: Editing, text: Text, update: Update) -> None:
    """Set columns of the rows for which the condition holds.

    Raises InvalidInputError EDIT_REFUSED for a row that several rows of other tables mean.
    """
    state = editing.target(update.target)
    columns = Columns.of(update.target.alias, state.schema, update.sources)
    sources, with_ = update.sources, update.with_
    update = WrittenNames(columns, lambda: names_in(editing, text, sources, with_)).update(update)
    assert update.assignments is not None, "None is of a MERGE"
    paths = [assigned_path(state, columns, each) for each in update.assignments]
    check_apart(paths, update.target.position)
    load_meant(editing, text, state, update)
    values = [each.value.copy() for each in update.assignments]
    found = over_rows(editing, text, state, update, [_number(update.target), *values])
    rows = numbers_of(found)
    again = repeated_row(rows)
    if again is not None:
        raise InvalidInputError(
            ErrorCode.EDIT_REFUSED,
            f"{state.name!r}: several rows of FROM mean the row of {key_text(state, state.now, int(rows[again]))}, so "
            "that its new values are not determined; let one row of FROM match it, as by GROUP BY",
        )
    set_values(state, rows, fitted_to(editing, state, paths, found.remove_column(0)))


def run_delete(editing: Editing, text: Text, delete: Delete) -> None:
    """Remove the rows for which the condition holds."""
    state = editing.target(delete.target)
    columns = Columns.of(delete.target.alias, state.schema, delete.sources)
    sources, with_ = delete.sources, delete.with_
    delete = WrittenNames(columns, lambda: names_in(editing, text, sources, with_)).delete(delete)
    load_meant(editing, text, state, delete)
    delete_rows(state, numbers_of(over_rows(editing, text, state, delete, [_number(delete.target)])))


def run_insert(editing: Editing, text: Text, insert: Insert) -> None:
    """Add the rows of a query. Raises InvalidInputError EDIT_REFUSED for a row whose key is there."""
    state = editing.target(insert.target)
    tree = insert.query.copy()
    if insert.with_ is not None:
        _add_with(tree, insert.with_)
    found = editing.select(tree, text)
    rows = whole_rows(editing, state, found, insert.columns, insert.by_name, insert.target, insert.positions)
    insert_rows(state, rows)


# The rows that a statement means


def load_meant(editing: Editing, text: Text, state: EditedState, statement: Update | Delete) -> None:
    """Load the units of which a statement may change a row: by look-ups where it names them, or by a scan."""
    columns = Columns.of(statement.target.alias, state.schema, statement.sources)

    def select(tree: exp.Query) -> pa.Table:
        return editing.select(with_tables(tree, statement.with_), text)

    if statement.where is None or not can_ask_units(state) or _is_by_chance(statement):
        state.load_all()
    elif not load_named(state, columns, statement.sources, statement.where, select):
        unit = [exp.column(name, table=statement.target.alias, quoted=True) for name in state.unit]
        tree = query_of(unit, [statement.target.node, *statement.sources], statement.where)
        if editing.runs is not None and is_of_the_row(statement):
            state.load(as_units(state, chosen_in_tasks(editing.warehouse, state, tree, text, editing.runs)))
        else:
            state.load(as_units(state, select(tree)))


def names_in(editing: Editing, text: Text, sources: Sequence[exp.Expr], with_: exp.With | None) -> Sequence[str]:
    """Return the names of the columns of tables."""
    tree = query_of([exp.Star()], sources, None)
    tree.set("limit", exp.Limit(expression=exp.Literal.number(0)))
    return list(editing.select(with_tables(tree, with_), text).schema.names)


def _is_by_chance(statement: Update | Delete) -> bool:
    """Return whether a statement may mean other rows when it is asked again. Its rows are then asked for once."""
    parts = [statement.where, statement.with_, *statement.sources]
    return any(each is not None and each.find(*BY_CHANCE) is not None for each in parts)


def can_ask_units(state: EditedState) -> bool:
    """Return whether a query gives the units of rows as the state has them."""
    return bool(state.unit) and all(_comes_back(state.schema.field(name).type) for name in state.unit)


def _comes_back(kind: pa.DataType) -> bool:
    """Return whether DuckDB returns each value of a type as it was: it has intervals for durations, and microseconds
    for some times in nanoseconds."""
    types = pa.types
    if types.is_duration(kind) or types.is_interval(kind):
        return False
    if types.is_time64(kind) or (types.is_timestamp(kind) and kind.tz is not None):
        return bool(kind.unit != "ns")
    return all(_comes_back(kind.field(number).type) for number in range(kind.num_fields))


def as_units(state: EditedState, found: pa.Table) -> pa.Table:
    """Return rows of the columns of the unit in the types that they have in the state."""
    fields = [state.schema.field(name) for name in state.unit]
    schema = pa.schema(fields)

    def typed(some: pa.Table) -> pa.Table:
        columns = [in_type(one_array(each), field.type) for each, field in zip(some.columns, fields, strict=True)]
        return pa.Table.from_arrays(columns, schema=schema)

    return in_pieces(found, typed, schema)


def over_rows(
    editing: Editing, text: Text, state: EditedState, statement: Update | Delete, columns: Sequence[exp.Expr]
) -> pa.Table:
    """Return columns for each loaded row, joined with the other tables, for which the condition holds."""
    tree = query_of(columns, [statement.target.node, *statement.sources], statement.where)
    replace_table(tree.args["from_"].this, ROWS, statement.target.alias)
    return editing.select(with_tables(tree, statement.with_), text, {ROWS: editing.rows_of(state)})


def numbers_of(found: pa.Table) -> Ints:
    """Return the first column of an answer, which has numbers of rows."""
    return numbers(one_array(found.column(0))).astype(np.int64)


def _number(target: Target) -> exp.Expr:
    return exp.column(ROW, table=target.alias, quoted=True)


def with_tables(tree: exp.Query, with_: exp.With | None) -> exp.Query:
    """Return a query behind the common table expressions of its statement."""
    if with_ is not None:
        tree.set("with_", with_.copy())
    return tree


def _add_with(tree: exp.Query, with_: exp.With) -> None:
    own = tree.args.get("with_")
    tables = with_.copy()
    if own is not None:
        tables.set("expressions", [*tables.expressions, *own.expressions])
        tables.set("recursive", tables.args.get("recursive") or own.args.get("recursive"))
    tree.set("with_", tables)


# The columns that a statement sets


def assigned_path(state: EditedState, columns: Columns, assignment: Assignment) -> Path:
    """Return the column that is set, and the fields behind it. Raises NotFoundError COLUMN_NOT_FOUND, InvalidInputError
    EDIT_REFUSED for a column of the placement."""
    path = replace(columns, others=frozenset()).resolved(assignment.names)
    if path is None:
        raise _at(_no_column(state, ".".join(assignment.names)), assignment.position)
    if path[0] in state.placement:
        raise _at(
            InvalidInputError(
                ErrorCode.EDIT_REFUSED,
                f"column {path[0]!r} of {state.name!r} says where the engine keeps a row, which follows from its key; "
                "leave it out",
            ),
            assignment.position,
        )
    return path


def check_apart(paths: Sequence[Path], position: str) -> None:
    """Raise InvalidInputError INVALID_SQL for a column that is set twice, or with a field of it."""
    for number, path in enumerate(paths):
        for other in paths[:number]:
            shorter = min(len(path), len(other))
            if path[:shorter] == other[:shorter]:
                raise _at(
                    InvalidInputError(
                        ErrorCode.INVALID_SQL, f"SET gives {'.'.join(path[:shorter])} twice; set it once, or its fields"
                    ),
                    position,
                )


def fitted_to(editing: Editing, state: EditedState, paths: Sequence[Path], found: pa.Table) -> Mapping[Path, pa.Array]:
    """Return computed columns in the types that they have at paths of the state."""
    wanted = pa.schema([pa.field(".".join(path), type_at(state.schema, path)) for path in paths])
    return {
        path: one_array(column)
        for path, column in zip(paths, fitted(found, wanted, state.name, editing.connection).columns, strict=True)
    }


def whole_rows(
    editing: Editing,
    state: EditedState,
    found: pa.Table,
    columns: Sequence[str] | None,
    by_name: bool,
    target: Target,
    positions: Sequence[str] = (),
) -> pa.Table:
    """Return the answer of a query as whole rows of a state, in its types; columns that are not given are null.

    Raises InvalidInputError INVALID_SQL for other columns than the state has, or none for its key.
    """
    given = _given_columns(state, found, columns, by_name, target, positions)
    missing = [name for name in state.unit if name not in given]
    if missing:
        raise _at(
            InvalidInputError(
                ErrorCode.INVALID_SQL,
                f"rows for {state.name!r} have no {shared(missing)}, by which they are found; give each its whole key",
            ),
            target.position,
        )
    wanted = pa.schema([state.own.field(name) for name in given])
    whole = pa.schema([field.with_nullable(True) for field in state.own])

    def of_some(some: pa.Table) -> pa.Table:
        rows = fitted(some, wanted, state.name, editing.connection)
        return pa.Table.from_arrays(
            [
                one_array(rows.column(field.name)) if field.name in given else pa.nulls(rows.num_rows, field.type)
                for field in whole
            ],
            schema=whole,
        )

    return in_pieces(found.select(list(given.values())), of_some, whole)


def _given_columns(
    state: EditedState,
    found: pa.Table,
    columns: Sequence[str] | None,
    by_name: bool,
    target: Target,
    positions: Sequence[str],
) -> dict[str, int]:
    """Return the position in an answer of each column that it gives."""
    names = found.schema.names
    if by_name or columns is not None:
        asked = names if columns is None else columns
        paths = [spelled(state.schema, (name,)) for name in asked]
        places = positions or [target.position] * len(paths)
        for name, path, position in zip(asked, paths, places, strict=True):
            if path is None:
                raise _at(_no_column(state, name), position)
        whole = [path[0] for path in paths if path is not None]
        if columns is not None and len(names) != len(columns):
            raise _at(_wrong_number(f"INSERT INTO {state.name} names", list(columns), len(names)), target.position)
        if columns is not None and set(whole) & set(state.placement):
            raise _at(
                InvalidInputError(
                    ErrorCode.EDIT_REFUSED,
                    f"{shared(state.placement)} of {state.name!r} says where the engine keeps a row, which follows "
                    "from its key; leave it out",
                ),
                target.position,
            )
        twice = [name for number, name in enumerate(whole) if name in whole[:number]]
        if twice:
            raise _at(
                InvalidInputError(ErrorCode.INVALID_SQL, f"column {twice[0]!r} is given twice; give it once"),
                target.position,
            )
        return {name: number for number, name in enumerate(whole) if name not in state.placement}
    if len(names) == len(state.schema) and [name.lower() for name in names] == [n.lower() for n in state.schema.names]:
        return {name: number for number, name in enumerate(state.schema.names) if name not in state.placement}
    if len(names) != len(state.own):
        raise _at(_wrong_number(f"{state.name!r} has", state.own.names, len(names)), target.position)
    return {name: number for number, name in enumerate(state.own.names)}


def _wrong_number(begun: str, names: Sequence[str], found: int) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.INVALID_SQL,
        f"{begun} {len(names)} columns, {shared(names)}; the rows given have {found}. Give as many, or name columns: "
        "INSERT INTO state (a, b), or INSERT INTO state BY NAME",
    )


def _no_column(state: EditedState, name: str) -> NotFoundError:
    return NotFoundError(
        ErrorCode.COLUMN_NOT_FOUND,
        f"{state.name!r} has no column {name!r}; it has {', '.join(_described(field) for field in state.own)}",
    )


def _described(field: pa.Field) -> str:
    if not pa.types.is_struct(field.type):
        return str(field.name)
    return f"{field.name} ({', '.join(each.name for each in field.type)})"


def _at(error: StateStoreError, position: str) -> StateStoreError:
    return located(error, position)
