"""Tables that commands print: as Rich draws them, and without pandas."""

from __future__ import annotations

import io
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text
from support.checkpoints.small_checkpoints import write_small_checkpoint

from statestore.connector.terminal import Grid, show_grid

TEXTS = [
    "",
    "a",
    "null",
    "日本語テキスト",
    "é" * 5,
    "x" * 40,
    "[bold]no[/bold]",
    "👩‍👩‍👧",
    "e\u0301",
    "ﬁ",
    "  two",
    "two  ",
]
STYLE = re.compile(rb"\x1b\[[0-9;]*m")
COMMANDS = """
import sys
from statestore.connector.cli.main import app
for command in (["versions"], ["changes"], ["history", "state", {word!r}], ["diff", "--from", "1", "--to", "2"]):
    app([command[0], {path!r}, *command[1:]], standalone_mode=False)
assert "pandas" not in sys.modules
import pyarrow
assert list(pyarrow.table({{"n": [1]}}).to_pandas().n) == [1]
assert pyarrow.array(sys.modules["pandas"].Series([1.5, None])).null_count == 1
"""


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def random_grid(chance: random.Random) -> Grid:
    columns, rows = chance.randrange(1, 6), chance.randrange(5)
    numeric = [chance.random() < 0.4 for _ in range(columns)]

    def cell(column: int) -> str | None:
        if chance.random() < 0.2:
            return None
        return str(chance.randrange(-9, 10**6)) if numeric[column] else chance.choice(TEXTS)

    names = [f"{chance.choice(TEXTS).rstrip()}{number}" for number in range(columns)]
    return Grid(names, numeric, [[cell(column) for column in range(columns)] for _ in range(rows)])


def written(text: str | None) -> str | None:
    return None if text is None else ascii(text)


def drawn_by_rich(grid: Grid, output: io.TextIOWrapper, width: int) -> None:
    table = Table(header_style="bold")
    for name, right in zip(grid.names, grid.numeric, strict=True):
        table.add_column(Text(name), justify="right" if right else "left", no_wrap=True)
    for row in grid.rows:
        table.add_row(*(Text("null", style="dim") if text is None else Text(text) for text in row))
    Console(file=output, width=width, highlight=False).print(table)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("kind", [io.TextIOWrapper, Terminal])
def test_tables_are_those_of_rich(kind: type[io.TextIOWrapper], encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("TERM", "xterm-256color")
    chance = random.Random(7)
    for _ in range(40):
        grid = random_grid(chance)
        if encoding == "ascii":
            grid = replace(grid, names=[*map(ascii, grid.names)], rows=[[*map(written, row)] for row in grid.rows])
        found, expected = io.BytesIO(), io.BytesIO()
        monkeypatch.setattr("sys.stdout", kind(found, encoding, errors="backslashreplace"))
        show_grid(grid, full=True)
        sys.stdout.flush()
        other = kind(expected, encoding, errors="backslashreplace")
        drawn_by_rich(grid, other, 400)
        other.flush()
        assert STYLE.sub(b"", found.getvalue()) == STYLE.sub(b"", expected.getvalue())
        styled = kind is Terminal
        assert (b"\x1b[1m" in found.getvalue()) == styled
        assert (b"\x1b[2m" in found.getvalue()) == (styled and any(None in row for row in grid.rows))


def test_commands_load_no_pandas(tmp_path: Path) -> None:
    made = write_small_checkpoint(tmp_path / "checkpoint", 3, 2)
    word = next(iter(made.state()))
    script = COMMANDS.format(path=str(made.folder), word=word)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
