"""Commands that edit one row of an engine's state, for the row that the page shows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from statestore.connector.edit.editing import Editing, engine_states, newest_version
from statestore.connector.edit.row_statements import statements_of_row
from statestore.connector.explorer.copies import absolute, flags_of
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.pages import READ_AT_ONCE, shown_rows
from statestore.connector.explorer.questions import number_of, query_of, sorting_of
from statestore.connector.explorer.row_files import RowFiles
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.state_table import Query, StateTable

_TAKEN_BY_SHELLS = frozenset('"$`\\!')


def edits_of(
    table: StateTable, given: Mapping[str, str], places: OpenedPaths, row_files: RowFiles, limits: Limits
) -> dict[str, Any]:
    """Return the ``cells`` of the row that has the number ``row`` in a question for rows, as the page shows them, and
    commands: ``update``, ``delete`` and, where the row is not all of its key, ``delete_key``, each a ``text`` or the
    reason ``why`` there is none.

    Raises InvalidInputError, UnsupportedError EDIT_UNSUPPORTED for stores, and what reads raise.
    """
    place = number_of(given, "place", 0) or 0
    query = query_of(table, given)
    if query.as_of is not None:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, "a version is edited, and no state time; clear the state time"
        )
    warehouse = places.warehouse(place)
    states = engine_states(warehouse)
    row = _row(table, query, given, row_files, limits)
    version = states.ask(newest_version) if query.version is None else query.version
    found = statements_of_row(Editing(warehouse, states.source, version), table.name, row)
    path = absolute(places.paths[place])
    asked = number_of(given, "version", None)
    options = [*([] if asked is None else [f"--version={asked}"]), *flags_of(places.options)]
    commands: dict[str, Any] = {
        name: {"why": each.message} if isinstance(each, UnsupportedError) else {"text": command_of(path, each, options)}
        for name, each in (("update", found.update), ("delete", found.delete), ("delete_key", found.delete_key))
        if each is not None
    }
    return {"cells": [column[0].as_py() for column in shown_rows(row).columns], **commands}


def command_of(path: str, statement: str, options: list[str]) -> str:
    """Return a command that edits the state at a path by a statement, into a new folder beside it."""
    name = path.rstrip("/").rpartition("/")[2]
    target = f"{name}-edited" if "://" in path else f"{path.rstrip('/')}-edited"
    words = ["statestore", "edit", path, "--into", target, *options]
    return f"{shlex.join(words)} {_shell_text(statement)}\n"


def _shell_text(text: str) -> str:
    """Return a statement as one word of a shell, between the quotes in which it stays as it is, if there are some."""
    return f'"{text}"' if "'" in text and not _TAKEN_BY_SHELLS & set(text) else shlex.quote(text)


def _row(table: StateTable, query: Query, given: Mapping[str, str], row_files: RowFiles, limits: Limits) -> pa.Table:
    """Return the row of a number, in the order in which the page shows rows."""
    number, sorting = number_of(given, "row", None), sorting_of(table, given)
    if number is None:
        raise InvalidInputError(ErrorCode.MISSING_OPTION, "row: name a row by its number, from 0 on")
    if sorting is not None or number >= READ_AT_ONCE:
        file = row_files.of(number_of(given, "place", 0) or 0, table, query, limits)
        found = file.rows(sorting, number, 1, limits)
    else:
        found, before = table.schema(query).empty_table(), 0
        for batch in limits.read(table, query):
            if before + batch.num_rows > number:
                found = pa.Table.from_batches([batch.slice(number - before, 1)])
                break
            before += batch.num_rows
    if not found.num_rows:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"there is no row {number}; read the rows again")
    return found
