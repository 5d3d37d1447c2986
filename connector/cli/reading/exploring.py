"""`explore`: serves the explorer until Ctrl-C."""

from __future__ import annotations

from typing import Annotated

import typer

from statestore.connector.cli.grammar.engine_flags import Selected
from statestore.connector.terminal.output import say
from statestore.formats.errors import StateStoreError

NONE: Selected = {}


def explore(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Warehouses, stores or state of engines.")],
    port: Annotated[int, typer.Option("--port", help="The port of 127.0.0.1 to listen at; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address and open no browser.")] = False,
    selected: Selected = NONE,
) -> None:
    """Serve a page on this machine that scrubs through the past of the state at the paths, until Ctrl-C.

    A folder of several of them, such as the checkpoints of several queries, stands for all that it holds now.
    """
    from statestore.catalog.warehouse import open_warehouse
    from statestore.connector.explorer.server import explorer, opened_paths

    places = opened_paths(paths, selected)
    for path in places:
        try:
            open_warehouse(path, selected)  # a wrong path is reported before a browser opens
        except StateStoreError as error:
            if path in paths:
                raise
            say(f"{path} is shown with its error: {error}")
    made = explorer(places, selected, port)
    typer.echo(made.url)
    say("Ctrl-C ends it; the address holds a token, so keep it to yourself")
    made.run(in_browser=not no_browser)
