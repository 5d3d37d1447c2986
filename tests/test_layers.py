"""Imports run one way: connector -> catalog -> formats. No circles, and one import name for each class."""

from __future__ import annotations

import graphlib
import importlib
import sys
from itertools import chain

import pytest
from source_tree import ROOT, Import, imports, modules

FOLDERS = ("connector", "catalog", "formats", "facade")  # importable by accident from the root of a clone
SOURCES = tuple(str(ROOT / folder) for folder in (*FOLDERS, "tests"))
LAYERS = ("statestore.formats", "statestore.catalog", "statestore.connector")  # each may import itself and those before


def all_imports() -> list[Import]:
    return list(chain.from_iterable(imports(module, path) for module, path in modules().items()))


def layer(name: str) -> int:
    """Position in ``LAYERS``; the public face and the Spark entry package stand above all of them."""
    found = [i for i, prefix in enumerate(LAYERS) if f"{name}.".startswith(f"{prefix}.")]
    return found[0] if found else len(LAYERS)


def is_ours(name: str) -> bool:
    return name.split(".")[0] in ("statestore", "pyspark_statestore")


def test_no_module_imports_a_higher_layer() -> None:
    """Neither at load, nor inside a function, nor for types."""
    upward = [str(i) for i in all_imports() if is_ours(i.name) and layer(i.name) > layer(i.module)]
    assert upward == []


def test_imports_are_absolute() -> None:
    """A relative or bare import (``import catalog``) would make a second copy of each class."""
    bare = [str(i) for i in all_imports() if i.name.split(".")[0] in ("", "connector", "catalog", "formats", "tests")]
    assert bare == []


def test_every_import_of_ours_exists() -> None:
    known = modules()
    assert [str(i) for i in all_imports() if is_ours(i.name) and i.name not in known] == []


def test_no_circular_imports() -> None:
    """Imports inside functions count: they hide a circle, they do not remove it."""
    graph: dict[str, set[str]] = {module: set() for module in modules()}
    for found in all_imports():
        if is_ours(found.name) and found.module not in ("statestore", found.name):
            graph[found.module].add(found.name)
    graphlib.TopologicalSorter(graph).prepare()


def test_only_the_connector_knows_spark() -> None:
    below = [i for i in all_imports() if layer(i.module) < LAYERS.index("statestore.connector")]
    assert [str(i) for i in below if i.name.split(".")[0] in ("pyspark", "py4j")] == []


@pytest.mark.parametrize("name", sorted(modules()))
def test_every_module_imports_by_its_one_name(name: str) -> None:
    module = importlib.import_module(name)
    foreign = [v for v in vars(module).values() if isinstance(v, type) and v.__module__.split(".")[0] in FOLDERS]
    assert foreign == []


def test_no_file_is_loaded_under_two_names() -> None:
    """Looks at everything the tests have loaded so far."""
    assert [name for name in sys.modules if name.split(".")[0] in FOLDERS] == []
    files: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        if is_ours(name) or path.startswith(SOURCES):
            assert files.setdefault(path, name) == name
