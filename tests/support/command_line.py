"""The command line in this process, through its entry point, as run by a script or at a terminal."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from unittest.mock import patch

import typer.main

from statestore.connector.cli.program import main

_command = cache(typer.main.get_command)  # made of 26 signatures, which takes longer than most commands


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """JSON lines; NaN and Infinity, which Python would read, are no JSON."""
        return [json.loads(line, parse_constant=_refuse) for line in self.out.splitlines()]


class Run(Protocol):
    def __call__(self, *arguments: str | Path) -> Answer: ...


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def run(*arguments: str | Path) -> Answer:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = exit_code(*arguments)
    return Answer(code, out.getvalue(), err.getvalue())


def in_encoding(encoding: str, *arguments: str | Path, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    """Run with the streams of a process, of bytes in an encoding that may lack characters. Return both outputs."""
    given = io.TextIOWrapper(io.BytesIO(stdin), encoding)
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding, errors) for errors in ("strict", "backslashreplace"))
    with patch.object(sys, "stdin", given), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = exit_code(*arguments)
        out.flush()
        err.flush()
        return code, out.buffer.getvalue(), err.buffer.getvalue()


def exit_code(*arguments: str | Path) -> int:
    """Run with the streams of this process."""
    code: int | str | None = 0
    with (
        patch.object(sys, "argv", ["statestore", *map(str, arguments)]),
        patch("typer.main.get_command", _command),
    ):
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code
    assert isinstance(code, int)
    return code


def at_terminal(width: int, *arguments: str | Path) -> Answer:
    """Run on a terminal with this many columns."""
    with patch("statestore.connector.terminal.terminal_width", lambda: width):
        return run(*arguments)


def cells(answer: Answer) -> list[list[str]]:
    """The cells of a printed table, its header first."""
    lines = [line for line in answer.out.splitlines() if line[:1] in "│┃"]
    return [[text.strip() for text in line.strip("│┃").replace("┃", "│").split("│")] for line in lines]
