"""The command that makes a keyed store of an engine's keyed state."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from statestore.connector.cli.grammar import arguments as args
from statestore.connector.cli.grammar.engine_flags import NONE, Selected
from statestore.connector.terminal.grid import Grid
from statestore.connector.terminal.output import cell, say, show_grid
from statestore.connector.terminal.progress import progress

Source = Annotated[
    str,
    typer.Argument(
        help="A savepoint or checkpoint with keyed state, such as one of Flink.",
        show_default=False,
        autocompletion=args.complete_path,
    ),
]
NewStore = Annotated[
    str,
    typer.Argument(
        help="The path of the new keyed store, like warehouse/sessions.",
        show_default=False,
        autocompletion=args.complete_path,
    ),
]


def import_store(
    source: Source,
    store: NewStore,
    operator: Annotated[
        str | None, typer.Option("--operator", help="The operator, by name or id (needed if there are several).")
    ] = None,
    states: Annotated[str | None, typer.Option("--states", help="Only these states: a,b,c.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Names for the key columns: a,b,c.")] = None,
    whole_key: Annotated[
        bool, typer.Option("--whole-key", help="Keep a key of several fields as one column; fields may be null.")
    ] = False,
    last_access: Annotated[
        str | None,
        typer.Option("--last-access", help="Times of last access of states with a time to live: keep or drop."),
    ] = None,
    tasks: Annotated[
        int | None, typer.Option("--tasks", help="Divide the files as for so many tasks (default: as the operator).")
    ] = None,
    version: Annotated[int | None, typer.Option("--version", help="Of several checkpoints, this one.")] = None,
    as_json: args.Json = False,
    form: args.Form = None,
    full: args.Full = False,
    selected: Selected = NONE,
) -> None:
    """Make a keyed store of the keyed state of one operator, for run_keyed and run_keyed_stream to go on with.

    The store appears when everything is in it; an existing store is never changed.
    """
    from statestore.connector.cli.grammar.argument_texts import names_in
    from statestore.connector.imports.import_keyed import import_states
    from statestore.connector.terminal.forms import form_of, show_objects

    shown = form_of(form, as_json)  # a wrong form is reported before the import
    chosen: Any = last_access
    with progress() as advance:
        made = import_states(
            source,
            store,
            selected,
            operator=operator,
            states=names_in(states, "--states"),
            key=names_in(key, "--key"),
            whole_key=whole_key,
            last_access=chosen,
            tasks=tasks,
            version=version,
            progress=lambda state, rows, most: advance(f"import {state}", rows, most),
        )
    rows = [{"state": each.name, "from": each.source, "is": each.described, "rows": each.rows} for each in made.states]
    if not show_objects(list(rows[0]), rows, shown):
        show_grid(
            Grid(list(rows[0]), [False, False, False, True], [list(map(cell, row.values())) for row in rows]), full=full
        )
    keys = ", ".join(made.key.names)
    say(
        f"operator {made.operator} is version {made.version} of {made.path}, keyed by {keys}, in "
        f"{made.key_groups} key groups"
    )
