"""Imports run one way, connector -> catalog -> formats, and from room to room. Each class has one import name."""

from __future__ import annotations

import graphlib
import importlib
import subprocess
import sys
from collections.abc import Callable
from itertools import chain

from support.paths import ROOT
from support.source_tree import Import, imports, modules, package_folders

FOLDERS = ("connector", "catalog", "formats", "facade")  # importable by accident from the root of a clone
SOURCES = tuple(str(ROOT / folder) for folder in (*FOLDERS, "tests"))
LAYERS = ("statestore.formats", "statestore.catalog", "statestore.connector")  # each may import itself and those before


def all_imports() -> list[Import]:
    return list(chain.from_iterable(imports(module, path) for module, path in modules().items()))


def layer(name: str) -> int:
    """Position in ``LAYERS``; the public face and the Spark entry package are above all of them."""
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


# Rooms


def room(module: str) -> str:
    """The folder of a module; a module directly in a layer is a room of its own."""
    package = module.rpartition(".")[0]
    return module if package in LAYERS else package


def graph_of(node: Callable[[str], str], within: str) -> dict[str, set[str]]:
    """Imports between rooms: each node below ``within`` with the nodes that its modules import."""
    graph: dict[str, set[str]] = {}
    for module in modules():
        if module.startswith(f"{within}.") and module not in package_folders():
            graph.setdefault(node(module), set())
    for found in all_imports():
        if found.module in modules() and found.module.startswith(f"{within}.") and found.name.startswith(f"{within}."):
            source, target = node(found.module), node(found.name)
            if source in graph and target in graph and source != target:
                graph[source].add(target)
    return graph


def test_rooms_do_not_import_each_other_in_a_circle() -> None:
    graph = graph_of(room, "statestore")
    assert len(graph) > 40
    graphlib.TopologicalSorter(graph).prepare()


def test_every_test_and_helper_has_a_room() -> None:
    assert [path.name for path in (ROOT / "tests").glob("*.py")] == ["conftest.py"]


# Engines


def test_no_line_above_the_formats_names_an_engine() -> None:
    """Engines are found by `statestore.formats.engines`; the rest works through the seam, ``formats/engine.py``.

    A module of the public face with an engine's name, such as ``statestore.kafka``, is that engine's.
    """
    folders = [path.parent.name for path in (ROOT / "formats").glob("*/engine.py")]
    assert {"spark", "flink", "kafka"} <= set(folders)
    rooms = tuple(f"statestore.formats.{name}" for name in folders)
    faces = [f"statestore.{name}" for name in folders]
    above = [i for i in all_imports() if layer(i.module) > LAYERS.index("statestore.formats") and i.module not in faces]
    assert [str(i) for i in above if f"{i.name}.".startswith(tuple(f"{name}." for name in rooms))] == []


def test_engines_know_only_what_all_formats_share() -> None:
    """An engine imports neither another engine nor what finds the engines."""
    engines = {path.parent.name for path in (ROOT / "formats").glob("*/engine.py")}
    others = [
        str(i)
        for i in all_imports()
        for mine in engines
        for other in (*(engines - {mine}), "engines")
        if i.module.startswith(f"statestore.formats.{mine}.")
        and f"{i.name}.".startswith(f"statestore.formats.{other}.")
    ]
    assert others == []


def test_opening_a_store_of_ours_loads_no_engine() -> None:
    """No engine is asked about a folder in which all is stores."""
    script = (
        "import sys, tempfile, statestore; folder = tempfile.mkdtemp(); "
        "statestore.connect(folder).create_store('s', key={'k': 'string'}, value={'v': 'int'}).close(); "
        "statestore.inspect(folder).table('s').scan().read_all(); "
        "of_engines = tuple(f'statestore.formats.{name}.' for name in ('spark', 'flink', 'kafka')); "
        "print(sorted(m for m in sys.modules if m.startswith(of_engines)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_the_connector_knows_spark() -> None:
    below = [i for i in all_imports() if layer(i.module) < LAYERS.index("statestore.connector")]
    assert [str(i) for i in below if i.name.split(".")[0] in ("pyspark", "py4j")] == []


def test_every_module_imports_by_its_one_name() -> None:
    for name in sorted(modules()):
        members = vars(importlib.import_module(name)).values()
        foreign = [v for v in members if isinstance(v, type) and v.__module__.split(".")[0] in FOLDERS]
        assert foreign == [], name


def test_no_file_is_loaded_under_two_names() -> None:
    """Looks at everything the tests have loaded so far."""
    assert [name for name in sys.modules if name.split(".")[0] in FOLDERS] == []
    files: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        if is_ours(name) or path.startswith(SOURCES):
            assert files.setdefault(path, name) == name
