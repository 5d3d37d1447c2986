"""Commands that make a store, put one value, and remove a store."""

from __future__ import annotations

from typing import Annotated

import typer

from statestore.connector.cli.grammar import arguments as args
from statestore.connector.terminal.output import say
from statestore.connector.terminal.questions import agreed

NewStore = Annotated[str, typer.Argument(help="The name of the new store.", show_default=False)]
Duration = str | None


def create(
    path: args.Path_,
    store: NewStore,
    key: Annotated[str, typer.Option("--key", help="Key columns with their types: item:string,shop:bigint.")],
    value: Annotated[
        str | None,
        typer.Option("--value", help="Value columns with their types: price:double. A keyed store has none."),
    ] = None,
    kind: Annotated[
        str, typer.Option("--kind", help="versioned, key_value, window, join_window, session or keyed.")
    ] = "versioned",
    history_retention: Annotated[
        Duration, typer.Option("--history-retention", help="Of a versioned store: keep history so long (30 days).")
    ] = None,
    retention: Annotated[
        Duration, typer.Option("--retention", help="Of windows and sessions: keep them so long (1 day).")
    ] = None,
    window_size: Annotated[
        Duration, typer.Option("--window-size", help="Of a window store: from a window's start to its end.")
    ] = None,
    window_before: Annotated[
        Duration, typer.Option("--window-before", help="Of a join-window store: how far before its own time.")
    ] = None,
    window_after: Annotated[
        Duration, typer.Option("--window-after", help="Of a join-window store: how far after its own time.")
    ] = None,
    segment_interval: Annotated[
        Duration, typer.Option("--segment-interval", help="Width of the segments that expire as a whole.")
    ] = None,
    num_segments: Annotated[
        int | None, typer.Option("--num-segments", help="Of a join-window store: parts of its retention (3).")
    ] = None,
    retain_duplicates: Annotated[
        bool, typer.Option("--retain-duplicates", help="Of a window store: keep every put of a key and window.")
    ] = False,
    time_ordered: Annotated[
        bool, typer.Option("--time-ordered", help="Of a window store: windows in order of start, then key.")
    ] = False,
    batched_changelog: Annotated[
        bool, typer.Option("--batched-changelog", help="Of a join-window store: log a key's last value only.")
    ] = False,
    serde: Annotated[str | None, typer.Option("--serde", help="natural (the default) or kafka.")] = None,
    key_groups: Annotated[int | None, typer.Option("--key-groups", help="Parts that keys are hashed into.")] = None,
) -> None:
    """Create a store, and the warehouse where it does not exist."""
    from statestore.connector.cli.grammar.argument_texts import duration
    from statestore.connector.cli.writing.commits import create_store

    options = {
        "history_retention": duration(history_retention),
        "retention": duration(retention),
        "window_size": duration(window_size),
        "window_before": duration(window_before),
        "window_after": duration(window_after),
        "segment_interval": duration(segment_interval),
        "num_segments": num_segments,
        "retain_duplicates": retain_duplicates or None,
        "time_ordered": time_ordered or None,
        "batched_changelog": batched_changelog or None,
        "serde": serde,
        "key_groups": key_groups,
    }
    create_store(path, store, kind, key, value, {name: of for name, of in options.items() if of is not None})
    say(f"created {store}, a {kind} store, in {path}")


def put(
    path: args.Path_,
    store: args.Store,
    key: args.Key,
    value: Annotated[
        str, typer.Argument(help="The value: its text for one column, JSON for several.", show_default=False)
    ],
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", help="State time: ISO-8601 with a zone, or epoch milliseconds. Default: now."),
    ] = None,
) -> None:
    """Put one value and commit it.

    The key of a window or session has its times too, as in the output of `get`.
    """
    from statestore.catalog.warehouse import open_warehouse
    from statestore.connector.cli.grammar.argument_texts import say_seconds
    from statestore.connector.cli.writing.commits import put_value, say_written

    if timestamp is not None:
        say_seconds(open_warehouse(path), store, {"--timestamp": timestamp})

    say_written(put_value(path, store, key, value, timestamp), store)


def drop(
    path: args.Path_,
    store: args.Store,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a store and everything in it, after a question."""
    from statestore.connector.cli.writing.commits import drop_store, existing

    existing(path, store)
    if not yes and not agreed(f"Remove {store} and all its history from {path}?"):
        say(f"{store} stays")
        raise typer.Exit(1)
    drop_store(path, store)
    say(f"removed {store}")


COMMANDS = (create, put, drop)
