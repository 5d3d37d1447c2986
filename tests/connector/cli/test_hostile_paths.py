"""Paths that nobody would give on purpose end every command with one line, and nothing is read or written for ever."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command_line import run
from support.parameters import mostly_slow
from typer.main import get_command

from statestore.connector.cli.main import app

COMMANDS: dict[str, Any] = vars(get_command(app))["commands"]
PATHS = {"path", "paths", "source", "other", "file"}
WITHOUT_A_PATH = {"demo"}
STRANGE = [
    "", "-", "~", "fifo", "socket", "file", "file/in", "loop", "dangling", "a\nb", "a\x1b[31m\x7f", "\u202e", "x" * 300,
    "\udce4", "\x00", "%00", "../absent/..", "file:fifo", "file://fifo", "file:///dev/null", "/dev/null",
    "s3://", "//:",
]  # fmt: skip
QUICK = ("create", "explore", "import", "inspect", "load")
FEW = ["fifo", "file/in", "loop", "a\nb", "\udce4", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    found = tmp_path_factory.mktemp("hostile")
    os.mkfifo(found / "fifo")
    (found / "file").write_text("x")
    (found / "loop").symlink_to("loop")
    (found / "dangling").symlink_to("nowhere")
    for name in ("a\nb", "a\x1b[31m\x7f", "\u202e", "empty"):
        (found / name).mkdir()
    os.mkfifo(found / "empty" / "store.json")
    before = Path.cwd()
    os.chdir(found)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        yield found
    os.chdir(before)


def given(command: str, path: str) -> list[list[str]]:
    """The command with a path in the place of each of its paths."""
    names = [each.name for each in COMMANDS[command].params if each.param_type_name == "argument"]
    return [
        [command, "--", *(path if at == number else "empty" if name in PATHS else "k" for at, name in enumerate(names))]
        for number, each in enumerate(names)
        if each in PATHS
    ]


@pytest.mark.parametrize("command", mostly_slow(sorted(COMMANDS.keys() - WITHOUT_A_PATH), QUICK))
def test_a_command_ends_with_one_line(folder: Path, command: str) -> None:
    before = sorted(folder.rglob("*"))
    for path in STRANGE if command == "inspect" else FEW:
        for arguments in given(command, path):
            answer = run(*arguments)
            assert answer.code in (1, 2), (arguments, answer)
            *usage, said = answer.err.rstrip("\n").split("\n")
            assert not usage or usage[0].startswith("Usage: "), (arguments, answer.err)
            assert usage or said.startswith("statestore: ["), (arguments, answer.err)
            assert "Traceback" not in answer.err and said.isprintable(), (arguments, answer.err)
    assert sorted(folder.rglob("*")) == before
