"""The command that starts the SQL shell."""

from __future__ import annotations

import sys

import typer

from statestore.connector.cli import arguments as args
from statestore.connector.cli.engine_flags import Selected
from statestore.connector.cli.read_commands import NONE


def shell(path: args.Path_, selected: Selected = NONE) -> None:
    """Start an SQL shell over the tables at PATH, or run the statements of a pipe.

    Statements end in ; and .help lists further commands. Exit code 1 if a statement of a pipe failed.
    """
    from statestore.catalog.warehouse import open_warehouse
    from statestore.connector.shell.session import Session, piped

    open_warehouse(path, selected)  # a wrong path is reported before the first statement
    session = Session(str(path), selected)
    if not sys.stdin.isatty():
        session.run(piped(sys.stdin))
        if session.failures:
            raise typer.Exit(1)
        return
    from statestore.connector.shell.terminal_prompt import terminal_prompt

    session.run(terminal_prompt(session))
