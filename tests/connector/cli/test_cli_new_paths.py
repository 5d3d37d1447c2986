"""A command at a path where nothing is: it fails, says so, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path

import pytest
from support.command_line import run
from typer.main import get_command

from statestore.connector.cli.main import app

COLUMNS = ("--key", "k:string", "--value", "v:int")
AT_A_PATH = {
    "inspect": (),
    "describe": (),
    "sql": ("SELECT 1",),
    "shell": (),
    "get": ("s", "k"),
    "history": ("s", "k"),
    "scan": ("s",),
    "versions": ("s",),
    "report": ("-o", "page.html"),
    "diff": ("s", "--from", "1"),
    "compare": ("other",),
    "changes": ("s",),
    "watch": ("s",),
    "explore": ("--no-browser",),
    "export": ("s", "-o", "rows.csv"),
    "put": ("s", "k", "1"),
    "load": ("s", "rows.csv"),
    "drop": ("s", "--yes"),
    "import": ("copy/s",),
    "verify": (),
    "compact": (),
    "expire": ("--before", "2024-01-01T00:00Z"),
    "vacuum": (),
    "hold": ("--", "true"),
}


def test_no_command_is_left_out() -> None:
    assert {*AT_A_PATH, "create", "demo"} == set(get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", AT_A_PATH)
def test_a_path_where_nothing_is(tmp_path: Path, command: str) -> None:
    with chdir(tmp_path):
        found = run(command, "new", *AT_A_PATH[command])
    assert (found.code, found.out) == (1, "") and "new" in found.err
    assert "PATH_NOT_FOUND" in found.err or "STORE_NOT_FOUND" in found.err
    assert list(tmp_path.iterdir()) == []


WRONG: list[tuple[Sequence[str], str]] = [
    (("s", "--key", "k:nosuch", "--value", "v:int"), "'nosuch' is not a type"),
    (("s", "--key", "k:string", "--value", "v:nosuch"), "'nosuch' is not a type"),
    (("s", "--key", "k", "--value", "v:int"), "--key is 'k'"),
    (("s", "--key", "k:string"), "needs --value"),
    (("a/b", *COLUMNS), "store name 'a/b'"),
    (("s", *COLUMNS, "--kind", "foo"), "store kind 'foo'"),
    (("s", *COLUMNS, "--serde", "foo"), "serde 'foo'"),
    (("s", *COLUMNS, "--key-groups", "0"), "--key-groups is 0"),
    (("s", *COLUMNS, "--retention", "1h"), "did you mean --history-retention?"),
    (("s", *COLUMNS, "--kind", "session"), "a session store needs --retention"),
    (("s", *COLUMNS, "--history-retention", "soon"), "--history-retention is 'soon'"),
]


@pytest.mark.parametrize("path", ["new", "new/below"])
def test_create_with_a_wrong_option(tmp_path: Path, path: str) -> None:
    for arguments, said in WRONG:
        found = run("create", tmp_path / path, *arguments)
        assert (found.code, found.out) == (2, "") and said in found.err, arguments
        assert list(tmp_path.iterdir()) == [], arguments
