"""Commands that maintain stores: verify, compact, expire, vacuum, hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from statestore.connector.cli import arguments as args
from statestore.connector.terminal import (
    DELIMITERS,
    Grid,
    agreed,
    cell,
    form_of,
    human_bytes,
    say,
    show_grid,
    show_objects,
    show_text,
)
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError


def verify(
    path: args.Path_,
    store: args.AnyStore = None,
    as_json: args.Json = False,
    form: args.Form = None,
    full: args.Full = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Of an engine's state, read every version, not only the newest one.")
    ] = False,
    selected: args.Selected = args.NONE,
) -> None:
    """Read every checksum, log entry and index, check every invariant, and report what is verified.

    Of the state of an engine, the newest version of each state is read in full, with --deep every version. Exit code 1
    if anything is wrong. Needs no lock and writes nothing.
    """
    from statestore.connector.cli.each_store import SHOWN, as_grid, as_object, problems_grid, verifications

    chosen = form_of(form, as_json)
    found = [as_object(item) for item in verifications(path, store, selected, deep=deep)]
    if show_objects([*SHOWN, "verified"], found, chosen):
        for item in found if chosen in DELIMITERS else ():
            for problem in item["problems"]:
                say(f"{item['store']}: {problem['message']}")
    else:
        show_grid(as_grid(found), full=full)
        problems = problems_grid(found)
        if problems.rows:
            show_grid(problems, title="Problems", full=full)
        for item in found:
            outcome = f"verified: {item['verified']}" if item["ok"] else "not verified"
            show_text(f"{item['store']}: {outcome}")
            for text in (*item["notes"], *(problem["message"] for problem in item["problems"])):
                show_text(f"  {text}")
    if not all(item["ok"] for item in found):
        raise typer.Exit(1)


def compact(
    path: args.Path_,
    store: args.AnyStore = None,
    full: Annotated[bool, typer.Option("--full", help="Fold all that can be folded, not only what is due.")] = False,
    as_json: args.Json = False,
    form: args.Form = None,
    everything: Annotated[bool, typer.Option("--all", hidden=True)] = False,
) -> None:
    """Merge small files and fold closed rows, where due; no answer changes at any version and time."""
    from statestore.connector.cli import each_store

    if everything:
        raise InvalidInputError(
            ErrorCode.UNKNOWN_OPTION, "compact has no option --all; write --full, as compact(full=True)"
        )
    shown = Shown(each_store.COMPACTED, form_of(form, as_json), full=True)
    _upkeep(path, store, "compact", lambda _, of, progress: each_store.compact(of, full, progress), shown)


def expire(
    path: args.Path_,
    store: args.AnyStore = None,
    before: Annotated[
        str | None, typer.Option("--before", help="Expire before this state time instead of by the store's retention.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: args.Json = False,
    form: args.Form = None,
    full: args.Full = False,
) -> None:
    """Make moments older than the retention unreadable, and drop files that hold nothing else.

    A store without retention keeps everything, unless --before is given. Where that is later than all values of a
    store, its whole history would go but for what is valid, so a question is asked.
    """
    from statestore.catalog.warehouse import open_warehouse
    from statestore.connector.cli import each_store
    from statestore.connector.cli.argument_texts import moment, say_seconds
    from statestore.formats.values.times import format_time

    horizon = moment(before, "--before")
    if before is not None:
        warehouse = open_warehouse(path).pin()
        for name in warehouse.stores(store):
            say_seconds(warehouse, name, {"--before": before})
    shown = Shown(each_store.EXPIRED, form_of(form, as_json), full)
    if horizon is not None:
        for name, newest in each_store.all_ended_before(path, store, horizon):
            if not yes and not agreed(
                f"Remove all history of {name}, whose newest value is from {format_time(newest)}, except what is valid?"
            ):
                say("nothing is expired")
                raise typer.Exit(1)
    _upkeep(path, store, "expire", lambda _, of, progress: each_store.expire(of, horizon), shown)


def vacuum(
    path: args.Path_,
    store: args.AnyStore = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", help="Keep what versions of this age need: 7 days, 12h, or milliseconds."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the files.")] = False,
    as_json: args.Json = False,
    form: args.Form = None,
    full: args.Full = False,
) -> None:
    """Remove files that neither the newest version nor a read under way needs, and old remains of dead writers."""
    from statestore.connector.cli import each_store

    rows = _upkeep(
        path,
        store,
        "vacuum",
        lambda name, of, progress: each_store.vacuum(name, of, older_than, dry_run),
        Shown(each_store.REMOVED, form_of(form, as_json), full),
    )
    size = human_bytes(sum(row["bytes"] for row in rows))
    say(f"{len(rows)} files, {size} {'would be removed' if dry_run else 'removed'}")


def hold(
    path: args.Path_,
    command: Annotated[list[str], typer.Argument(help="The command and its arguments, after --.", metavar="COMMAND")],
) -> None:
    """Run a command, such as one that copies stores file by file, while vacuum removes no file that a copy needs.

    Exit code: that of the command.
    """
    from statestore.connector.cli import each_store

    status = each_store.hold(path, command)
    if status:
        raise typer.Exit(status)


@dataclass(frozen=True)
class Shown:
    """The names of what a command reports, and the form in which it prints them."""

    names: Sequence[str]
    form: str
    full: bool


def _upkeep(
    path: Any,
    store: str | None,
    what: str,
    work: Callable[[str, Any, Any], list[dict[str, Any]]],
    shown: Shown,
) -> list[dict[str, Any]]:
    from statestore.connector.cli.each_store import Failures, each_store

    failed = False
    try:
        rows = each_store(path, store, what, work)
    except Failures as failures:
        (rows,), failed = failures.args, True
    if not show_objects(shown.names, rows, shown.form) and rows:
        show_grid(_grid(rows), full=shown.full)
    if failed:
        raise typer.Exit(1)
    return rows


def _grid(rows: Sequence[dict[str, Any]]) -> Grid:
    names = list(rows[0])
    sizes = [name.startswith("bytes") for name in names]
    cells = [
        [human_bytes(row[name]) if size else cell(row[name]) for name, size in zip(names, sizes, strict=True)]
        for row in rows
    ]
    numeric = [type(rows[0][name]) in (int, float) for name in names]
    return Grid([name.replace("_", " ") for name in names], numeric, cells)
