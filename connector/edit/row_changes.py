"""Changes of the rows of a state, by their numbers among the loaded ones: values that are set, rows that go and come.

A row whose unit changes goes from one unit and comes to the other. A row that comes never takes the place of another
one: where its unit has a row, and may have one alone, the change is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from statestore.connector.edit.edited_state import EditedState
from statestore.connector.edit.fitted_values import in_type, with_rows, with_values
from statestore.connector.edit.units import in_pieces, one_array, repeated_row
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.kernels.arrays import Ints
from statestore.formats.values.comparison import has_floats
from statestore.formats.values.without_pandas import arrow_numbers, bools, numbers_or_zero

Path = tuple[str, ...]


def set_values(state: EditedState, rows: Ints, values: Mapping[Path, pa.Array]) -> None:
    """Set columns, or fields behind them, of some rows; each row has a number once. The values have the state's types.

    Raises InvalidInputError EDIT_REFUSED for a field of a struct that is null, and as `insert_rows`.
    """
    moved, new = set_in_place(state, rows, values)
    delete_rows(state, moved)
    insert_rows(state, new)


def set_in_place(state: EditedState, rows: Ints, values: Mapping[Path, pa.Array]) -> tuple[Ints, pa.Table]:
    """Set values as `set_values` does of those rows whose unit stays, which keep their places.

    Return the others, and what they are to be: they go, and come to their new units.
    """
    new = state.now.take(arrow_numbers(rows))
    for path, cells in values.items():
        place = new.schema.get_field_index(path[0])
        column = one_array(new.column(place))
        _check_present(state, column, path)
        new = new.set_column(place, new.schema.field(place), with_values(column, path[1:], cells))
    names = [path[0] for path in values]
    moves = np.zeros(len(rows), np.bool_)
    if set(names) & set(state.unit):
        before, after = state.numbers(state.now.take(arrow_numbers(rows)), new)
        moves = before != after
    stays = np.flatnonzero(~moves)
    _put_back(state, rows[stays], new.take(arrow_numbers(stays)), names)
    return rows[moves], new.filter(arrow_numbers(moves)).select(state.own.names)


def _put_back(state: EditedState, rows: Ints, new: pa.Table, names: list[str]) -> None:
    now = state.now
    if not len(rows):
        return
    for name in dict.fromkeys(names):
        place = now.schema.get_field_index(name)
        column = with_rows(one_array(now.column(place)), rows, one_array(new.column(place)))
        now = now.set_column(place, now.schema.field(place), column)
    state.replace_rows(now)


def _check_present(state: EditedState, column: pa.Array, path: Path) -> None:
    for depth in range(1, len(path)):
        if column.null_count:
            where = ".".join(path[:depth])
            raise InvalidInputError(
                ErrorCode.EDIT_REFUSED,
                f"{state.name!r} has a row in which {where} is null, so that its field {path[depth]} cannot be set; "
                f"set {where} as a whole, or leave such rows out with WHERE {where} IS NOT NULL",
            )
        column = column.field(path[depth])


def delete_rows(state: EditedState, rows: Ints) -> None:
    """Remove rows; a number may be given several times."""
    if not len(rows):
        return
    kept = np.ones(state.now.num_rows, np.bool_)
    kept[rows] = False
    state.replace_rows(state.now.filter(arrow_numbers(kept)))


def insert_rows(state: EditedState, rows: pa.Table) -> None:
    """Add rows, in the columns of the state without those of its placement; in a list they come last.

    Raises InvalidInputError EDIT_REFUSED for a row whose key the state has, or another one of the rows.
    """
    if not rows.num_rows:
        return

    def typed(some: pa.Table) -> pa.Table:
        columns = [
            _stored(state, field.name, in_type(one_array(some.column(field.name)), field.type)) for field in state.own
        ]
        return pa.Table.from_arrays(columns, schema=state.own)

    rows = in_pieces(rows, typed, state.own)
    state.load(rows)
    if state.is_keyed:
        _check_new(state, rows)
    columns = [
        rows.column(field.name) if field.name in state.own.names else pa.nulls(rows.num_rows, field.type)
        for field in state.schema
    ]
    state.replace_rows(pa.concat_tables([state.now, pa.Table.from_arrays(columns, schema=state.schema)]))


def _stored(state: EditedState, name: str, column: pa.Array) -> pa.Array:
    """Return a column as the engine stores it: one zero and one NaN in keys, where it has no others."""
    if not state.one_zero or name not in state.unit or not has_floats(column.type):
        return column
    return with_one_zero(column)


def with_one_zero(column: pa.Array) -> pa.Array:
    """Return values with 0.0 for -0.0, and the usual NaN for others, in fields of structs as well."""
    kind = column.type
    if pa.types.is_struct(kind):
        members = [with_one_zero(column.field(number)) for number in range(kind.num_fields)]
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return pa.StructArray.from_arrays(members, fields=fields, mask=column.is_null() if column.null_count else None)
    if not pa.types.is_floating(kind):
        return column
    values = numbers_or_zero(column)
    values += values.dtype.type(0)
    values[np.isnan(values)] = np.nan
    return arrow_numbers(values, bools(column.is_null()))


def _check_new(state: EditedState, rows: pa.Table) -> None:
    known, new = state.numbers(state.now, rows)
    again = repeated_row(new)
    there = np.flatnonzero(np.isin(new, known))
    if len(there):
        key = key_text(state, rows, int(there[0]))
        raise InvalidInputError(
            ErrorCode.EDIT_REFUSED,
            f"{state.name!r} has a row of {key} already; change it with UPDATE, write MERGE INTO for rows that may be "
            "there, or delete it first",
        )
    if again is not None:
        raise InvalidInputError(
            ErrorCode.EDIT_REFUSED,
            f"two rows of {key_text(state, rows, again)} are to be written to {state.name!r}, which has one row of a "
            "key; give one of them",
        )


def key_text(state: EditedState, rows: pa.Table, row: int) -> str:
    """Return the key of a row, as messages name it."""
    return ", ".join(f"{name} {shown(rows.column(name)[row].as_py())}" for name in state.unit) or "no key"
