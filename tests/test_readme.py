"""The README can not drift: its first block is the two commands; the later examples run and print what they say."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from source_tree import ROOT

README = ROOT / "README.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    language: str
    text: str


def blocks() -> list[Block]:
    return [Block(*found.groups()) for found in BLOCK.finditer(README.read_text("utf-8"))]


def test_first_block_is_the_two_commands() -> None:
    lines = blocks()[0].text.splitlines()
    assert len(lines) == 2
    programs = [shlex.split(line)[0] for line in lines]
    assert all(os.access(ROOT / program, os.X_OK) for program in programs)
    assert shlex.split(lines[0])[1:] == ["demo"]


def test_links_to_files_resolve() -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", README.read_text("utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """All ``python`` blocks in order, run as one script: the folder they ran in, and what they printed."""
    folder = tmp_path_factory.mktemp("readme")
    return folder, run([sys.executable, "-c", text_of("python")], folder)


def text_of(language: str) -> str:
    """The later blocks of one language, joined."""
    return "".join(block.text for block in blocks()[1:] if block.language == language)


def test_python_examples_print_what_the_page_says(printed: tuple[Path, str]) -> None:
    """Each ``text`` block is what the ``python`` block before it prints."""
    assert printed[1] == text_of("text")


def test_shell_examples_print_what_the_page_says(printed: tuple[Path, str]) -> None:
    """``console`` blocks hold ``$ command`` and its output; they find the warehouse the Python examples made."""
    for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text_of("console"), re.MULTILINE):
        assert run(["bash", "-c", command], printed[0]) == output, command


def run(command: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout
