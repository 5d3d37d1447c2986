"""The project's own sources, for tests about its structure: the file of each module, and its imports."""

from __future__ import annotations

import ast
import configparser
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.paths import ROOT

BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # the fields of a statement that hold statements


@dataclass(frozen=True)
class Import:
    """``module`` imports the module ``name`` at a line of its file."""

    module: str
    name: str
    line: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.name}"


@functools.cache
def setup_cfg() -> configparser.ConfigParser:
    """``setup.cfg``, parsed."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    return config


def package_folders() -> dict[str, Path]:
    """Folder of each package that ``setup.cfg`` installs, by its import name."""
    config = setup_cfg()
    roots = dict(line.split(" = ") for line in config["options"]["package_dir"].strip().splitlines())
    folders = {}
    for package in config["options"]["packages"].split():
        root = max((name for name in roots if f"{package}.".startswith(f"{name}.")), key=len)
        folders[package] = ROOT / roots[root] / package.removeprefix(root).lstrip(".").replace(".", "/")
    return folders


@functools.cache
def modules() -> dict[str, Path]:
    """File of each installed module, by its import name."""
    found = {}
    for package, folder in package_folders().items():
        for path in sorted(folder.glob("*.py")):
            found[package if path.stem == "__init__" else f"{package}.{path.stem}"] = path
    return found


@functools.cache
def imports(module: str, path: Path) -> tuple[Import, ...]:
    """Every import of ``module``, those inside functions and under TYPE_CHECKING too."""
    found: list[Import] = []
    for node in statements(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [Import(module, alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [Import(module, _module_of(node, alias.name), node.lineno) for alias in node.names]
    return tuple(found)


def statements(block: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a block and of the blocks inside it. Expressions, which hold none, are passed over."""
    for name in BLOCKS:
        for inner in getattr(block, name, ()):
            if isinstance(inner, ast.stmt):
                yield inner
            yield from statements(inner)


def _module_of(statement: ast.ImportFrom, name: str) -> str:
    """The module that ``from x import name`` loads: ``x.name`` where that is one of ours, else ``x``."""
    base = "." * statement.level + (statement.module or "")
    return f"{base}.{name}" if f"{base}.{name}" in modules() else base
