"""`statestore inspect --compatible-with`: what becomes of a snapshot when a job is started from it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from statestore.catalog.engines.engine_states import EngineStates
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.terminal import DELIMITERS, Grid, cell, say, show_delimited, show_grid, show_line
from statestore.formats.engines import describe_only
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.jobs import RestoreFinding
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.locations import parse_location

COLUMNS = ("operator", "state", "verdict", "reason")
_MOST_BYTES = 16 << 20


def show_restore(path: str, job: str, options: Mapping[str, str], form: str, *, full: bool) -> None:
    """Print a row for each operator and state. Exits with 1 where something prevents the restore."""
    found = check_restore(path, job, options)
    rows = [{name: getattr(each, name) for name in COLUMNS} for each in found]
    if form == "json":
        for row in rows:
            show_line(row)
    elif form in DELIMITERS:
        show_delimited(list(COLUMNS), [list(row.values()) for row in rows], DELIMITERS[form])
    elif rows:
        names = list(rows[0])
        show_grid(
            Grid(names, [False] * len(names), [[cell(row[name] or "") for name in names] for row in rows]), full=full
        )
    counts = Counter(each.verdict for each in found)
    say(", ".join(f"{number} {verdict}" for verdict, number in counts.items()) or "no operators")
    if any(each.prevents for each in found):
        say("the restore is refused")
        raise typer.Exit(1)
    if counts["unknown"]:
        say("nothing is known to prevent the restore; what is unknown was not checked")


def check_restore(
    path: str | os.PathLike[str], job: str | os.PathLike[str], options: Mapping[str, str] | None = None
) -> Sequence[RestoreFinding]:
    """Findings about the newest state at ``path`` for a job that is started from it.

    ``job`` is a snapshot of that job, or a file that describes it. Of the ``options`` of engines those that describe
    states go for both.

    Raises UnsupportedError UNSUPPORTED_ENGINE where the engine cannot tell, InvalidInputError INVALID_OPTION for a file
    that describes no job, and the errors of `open_warehouse`.
    """
    given = dict(options or {})
    opened = open_warehouse(path, given)
    check = opened.held.source.restore_check() if isinstance(opened.held, EngineStates) else None
    if check is None:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_ENGINE,
            f"{opened.path}: what a job restores is told for savepoints and checkpoints of Flink only",
        )
    place = parse_location(job)
    if place.is_local and Path(place.path).is_file() and Path(place.path).name != "_metadata":
        return check.for_description(_text(Path(place.path)), str(place))
    other = open_warehouse(job, {name: value for name, value in given.items() if describe_only([name])})
    if not isinstance(other.held, EngineStates):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"{other.path} has stores of statestore itself; name a snapshot of the job"
        )
    return check.for_job(other.held.source)


def _text(path: Path) -> str:
    with disk_errors("read", path):
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"{path} has {size} bytes, expected at most {_MOST_BYTES}: a file as statestore describe prints it",
            )
        data = path.read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"{path} is no text in UTF-8; expected a file as statestore describe prints it"
        ) from None
