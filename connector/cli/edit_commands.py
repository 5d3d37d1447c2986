"""The command that changes the state of a stopped job, in a copy from which the engine goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from statestore.connector.cli import arguments as args
from statestore.connector.cli.arguments import NO_SETTINGS, NONE, Selected, Settings
from statestore.connector.terminal import form_of, human_bytes, progress, say, show_grid, show_line
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError

if TYPE_CHECKING:
    from statestore.catalog.edits.receipt import Receipt
    from statestore.connector.edit.preview import ChangedRows

STDIN = "-"
INSTRUCTIONS = "README.md"
"""The page that a target has where its engine does not start from it."""

EditedSource = Annotated[
    str,
    typer.Argument(
        help="A checkpoint of Spark, a savepoint or checkpoint of Flink, or a directory of Kafka Streams. It stays as "
        "it is.",
        show_default=False,
        autocompletion=args.complete_path,
    ),
]


def edit(
    source: EditedSource,
    statements: Annotated[
        str | None,
        typer.Argument(
            help="UPDATE, DELETE, INSERT and MERGE in DuckDB's SQL, separated by semicolons; from stdin if it is -. "
            "Without statements TARGET is the same state.",
            show_default=False,
        ),
    ] = None,
    *,
    into: Annotated[
        str | None, typer.Option("--into", help="The place of the changed copy, which must not exist.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="A file with the statements; - is stdin.", show_default=False)
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", help="The batch, checkpoint or snapshot to edit (default: the newest).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and write nothing.")] = False,
    as_batch: Annotated[
        bool, typer.Option("--as-batch", help="Make the edit a version of its own, where the engine can have one.")
    ] = False,
    allow_late: Annotated[
        bool, typer.Option("--allow-late", help="Let rows come that the watermark of the job removes at once.")
    ] = False,
    keep_rows: Annotated[
        bool, typer.Option("--keep-rows", help="Keep the changed rows in the receipt, before and after.")
    ] = False,
    keep_statements: Annotated[
        bool, typer.Option("--keep-statements", help="Keep statements that remove rows in the receipt.")
    ] = False,
    with_engine: Annotated[
        bool,
        typer.Option("--with-engine", help="Let the engine's own reader confirm TARGET; for Spark that of PySpark."),
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Print at most this many rows of each state.")] = 20,
    as_json: args.Json = False,
    full: args.Full = False,
    allow_external_access: Annotated[
        bool, typer.Option("--allow-external-access", help="Let statements read data files.")
    ] = False,
    selected: Selected = NONE,
    settings: Settings = NO_SETTINGS,
) -> None:
    """Change the state of a stopped job: SOURCE stays as it is, and the engine goes on from TARGET, a changed copy.

    For example: statestore edit checkpoint --into mended "UPDATE state SET value.sum = 26 WHERE key.dish = 'curry'".
    TARGET is read again and compared before it appears, and has a receipt, edit.json.
    """
    from statestore.connector.edit.edit import EditTerms, edit_of

    form = form_of(None, as_json)
    if into is None and not dry_run:
        raise InvalidInputError(
            ErrorCode.MISSING_OPTION, "--into is missing; name the place of the changed copy, or give --dry-run"
        )
    texts = _texts(statements, file)
    with progress() as advance:
        terms = EditTerms(
            version,
            as_batch=as_batch,
            allow_late=allow_late,
            keep_rows=keep_rows,
            keep_statements=keep_statements,
            allow_external_access=allow_external_access,
            settings=settings,
            with_engine=with_engine,
            progress=lambda event: advance(event.step, event.done, event.total),
        )
        begun = edit_of(source, into, selected, terms)
        for text in texts:
            begun.sql(text)
        preview = begun.preview() if dry_run else None
        try:
            receipt = None if dry_run else begun.apply()
        except StateStoreError:
            if begun.receipt is not None and into is not None:  # the target is there, and only was not handed on
                _say_written(begun.receipt, into)
            raise
    changes = begun.changes() if preview is None else preview.changes
    for each in changes:
        _show(each, form, limit, full=full)
    if not changes:
        say("no row changes")
    if preview is None:
        assert receipt is not None and into is not None
        _say_written(receipt, into)
        for note in receipt.notes:
            say(f"note: {note}")
        explained = any(each.path == INSTRUCTIONS for each in receipt.written)
        say(
            f"next: {into}/{INSTRUCTIONS} says how the job goes on; {source} is as it was"
            if explained
            else f"next: start the job from {into} in place of {source}, which is as it was"
        )
        return
    for note in preview.notes:
        say(f"note: {note}")
    if preview.refused is not None:
        raise preview.refused
    say(
        f"nothing was written: {human_bytes(preview.written_bytes)} would be, as version {preview.target_version}, and "
        f"{human_bytes(preview.copied_bytes)} in {preview.copied_files} files copied"
    )


def _texts(statements: str | None, file: Path | None) -> list[str]:
    """Return the texts of statements in the order in which they run.

    Raises NotFoundError PATH_NOT_FOUND, CorruptError NOT_A_FILE, InvalidInputError INVALID_SQL for a file that is no
    text.
    """
    found = [] if file is None else [sys.stdin.read() if str(file) == STDIN else _text_of(file)]
    if statements is not None:
        found.append(sys.stdin.read() if statements == STDIN else statements)
    return found


def _text_of(file: Path) -> str:
    from statestore.formats.places.regular_files import read_regular

    try:
        return read_regular(file).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(ErrorCode.PATH_NOT_FOUND, f"-f {file} does not exist; expected a file of SQL") from None
    except UnicodeDecodeError as error:
        raise InvalidInputError(ErrorCode.INVALID_SQL, f"-f {file} is not UTF-8 text: {error}") from None


def _show(changed: ChangedRows, form: str, limit: int, *, full: bool) -> None:
    """Print the first rows of a state that change, and say how many there are."""
    from statestore.connector.cli.differences import as_grid, objects

    shown = changed.rows.slice(0, limit).combine_chunks()
    if form == "json":
        for item in objects(shown):
            show_line({"state": changed.state, **item})
    elif shown.num_rows:
        show_grid(as_grid(shown), title=changed.state, full=full)
    along = ", which follow from the other changes" if changed.followed else ""
    say(f"{changed.state}: {changed.numbers()}{along}")
    if changed.rows.num_rows > limit:
        say(f"only {limit} rows are shown; --limit shows more")


def _say_written(receipt: Receipt, target: str) -> None:
    """Say what was written, and how its receipt is read."""
    from statestore.catalog.edits.receipt import KEYED

    for state in receipt.states:
        if state.follows:
            say(f"{state.name}: {state}, which follow from the other changes")
    copied = receipt.copied
    say(
        f"{target} has version {receipt.target_version}, verified: {len(receipt.written)} files written, "
        f"{copied.files} copied; receipt in {target}/edit.json"
    )
    is_digested = receipt.states or any(each.startswith(KEYED) for each in receipt.statements)
    if receipt.key is not None and is_digested and not any(each.rows_before is not None for each in receipt.states):
        say(f"its digests have the key {receipt.key}, which is nowhere else: keep it to prove what was edited")
