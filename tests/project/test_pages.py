"""The README and the pages of docs/ can not drift: their examples run and print what the page says."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.parameters import mostly_slow
from support.paths import ROOT
from support.quick_spark import ENVIRONMENT

README = ROOT / "README.md"
TASKS = (
    "capture-state",
    "time-travel",
    "spark-state",
    "keyed-state",
    "tracked-state",
    "debug-a-join",
    "point-in-time-features",
    "operate-a-store",
)
PAGES = {"README": README, **{name: ROOT / "docs" / f"{name}.md" for name in TASKS}}
WITHOUT_SPARK = ("operate-a-store", "time-travel", "point-in-time-features")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found.groups()) for found in BLOCK.finditer(page.read_text("utf-8"))]


def test_first_block_of_the_readme_is_the_two_commands() -> None:
    lines = blocks(README)[0].text.splitlines()
    assert len(lines) == 2
    programs = [shlex.split(line)[0] for line in lines]
    assert all(os.access(ROOT / program, os.X_OK) for program in programs)
    assert shlex.split(lines[0])[1:] == ["demo"]


@pytest.mark.parametrize("page", [README, *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.stem)
def test_links_to_files_resolve(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    linked = set(re.findall(r"\]\(docs/([^)#]+)\)", README.read_text("utf-8")))
    assert linked >= {page.name for page in (ROOT / "docs").glob("*.md")}


def test_every_fence_is_of_a_kind_that_is_checked() -> None:
    kinds = {(name, block.language) for name, page in PAGES.items() for block in blocks(page)[name == "README" :]}
    assert {language for _, language in kinds} <= {"python", "text", "console"}


@pytest.mark.parametrize("name", mostly_slow(PAGES, WITHOUT_SPARK))
def test_examples_print_what_the_page_says(name: str, tmp_path: Path) -> None:
    """The ``python`` blocks run in order as one script, and each ``text`` block is what the one before it prints; then
    each ``console`` block, which holds ``$ command`` and its output, finds the files that the script has made."""
    mine = blocks(PAGES[name])[name == "README" :]
    printed = run([sys.executable, "-c", joined(mine, "python")], tmp_path)
    assert printed == joined(mine, "text")
    for command, output in COMMAND.findall(joined(mine, "console")):
        assert run(["bash", "-c", command], tmp_path) == output, command


def test_the_reference_is_what_the_code_says() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))["reference"]()
    assert (ROOT / "docs" / "reference.md").read_text("utf-8") == made, "run python docs/make_reference.py"


def joined(parts: list[Block], language: str) -> str:
    return "".join(block.text for block in parts if block.language == language)


def run(command: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **ENVIRONMENT, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
    found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout
