"""One statement of any kind, run."""

from __future__ import annotations

from statestore.connector.edit.editing import Editing
from statestore.connector.edit.run_merge import run_merge
from statestore.connector.edit.run_statement import run_delete, run_insert, run_update
from statestore.connector.edit.statements import Delete, Insert, Statement, Text, Update


def run_statement(editing: Editing, text: Text, statement: Statement) -> None:
    """Change the rows of a state as a statement says. Raises the errors of `Edit.sql`."""
    match statement:
        case Update():
            run_update(editing, text, statement)
        case Delete():
            run_delete(editing, text, statement)
        case Insert():
            run_insert(editing, text, statement)
        case _:
            run_merge(editing, text, statement)
