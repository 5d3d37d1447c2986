"""The installed package: every subpackage, typed, light to import."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from support.paths import ROOT
from support.source_tree import modules, package_folders, setup_cfg

import statestore
from statestore.connector.supported_spark import KNOWN

SOURCES = ("connector", "catalog", "formats", "pyspark_statestore")


def test_every_folder_with_python_is_an_installed_package() -> None:
    """A folder that setup.cfg does not list works in the clone and is missing for users."""
    folders = {path.parent for source in SOURCES for path in (ROOT / source).rglob("*.py")}
    assert folders == set(package_folders().values())


def test_every_package_has_an_init() -> None:
    assert [name for name in package_folders() if name not in modules()] == []


def test_the_root_is_not_a_package() -> None:
    assert not (ROOT / "__init__.py").exists()


def test_the_version_is_that_of_the_installed_package() -> None:
    assert statestore.__version__ == metadata.version("statestore")


def test_top_packages_are_typed() -> None:
    folders = package_folders()
    assert (folders["statestore"] / "py.typed").exists()
    assert (folders["pyspark_statestore"] / "py.typed").exists()


def test_every_dependency_has_its_reason_written_down() -> None:
    """The pages of docs/decisions hold a sentence for each package a user must install."""
    options = setup_cfg()
    listed = [*options["options"]["install_requires"].split(), *options["options.extras_require"]["demo"].split()]
    reasons = "".join(page.read_text("utf-8") for page in (ROOT / "docs" / "decisions").glob("*.md"))
    assert [name for name in (entry.split(">")[0] for entry in listed) if f"**{name}**" not in reasons] == []


def test_the_tests_run_with_known_releases_of_spark() -> None:
    """Users may have a newer Spark; a release that is new on the day of a change must not fail its tests."""
    extras = setup_cfg()["options.extras_require"]
    (major, minor), newest = KNOWN[0], KNOWN[-1]
    assert f"pyspark>={major}.{minor}" in extras["spark"].split()
    assert f"pyspark[connect]<{newest[0]}.{newest[1] + 1}" in extras["dev"].split()


def test_the_installed_pandas_is_one_that_pyspark_supports() -> None:
    """PySpark warns of others, and warnings are errors here."""
    from pyspark.sql.pandas.utils import require_minimum_pandas_version

    require_minimum_pandas_version()


IMPORT_STATESTORE = """
import sys, time
start = time.perf_counter()
import statestore
seconds = time.perf_counter() - start
import json
print(json.dumps({"seconds": seconds, "loaded": sorted({name.split(".")[0] for name in sys.modules})}))
"""


def import_statestore() -> dict[str, object]:
    found = subprocess.run([sys.executable, "-c", IMPORT_STATESTORE], capture_output=True, text=True, check=True)
    answer: dict[str, object] = json.loads(found.stdout)
    return answer


def test_import_loads_neither_spark_nor_java() -> None:
    loaded = import_statestore()["loaded"]
    assert isinstance(loaded, list)
    assert {"pyspark", "py4j", "duckdb", "pandas", "polars", "IPython", "typer"}.isdisjoint(loaded)


def test_import_is_quick() -> None:
    """Well under half a second, once in three, because a busy machine says nothing about the import."""
    assert any(float(str(import_statestore()["seconds"])) < 0.25 for _ in range(3))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in a wheel built from a copy of the sources."""
    copy, out = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"  # what pip calls
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True)
    (path,) = out.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def installed_name(module: str, path: Path) -> str:
    folder = module if path.stem == "__init__" else module.rpartition(".")[0]
    return f"{folder.replace('.', '/')}/{path.name}"


def test_wheel_holds_every_module(wheel: set[str]) -> None:
    assert {installed_name(module, path) for module, path in modules().items()} == {
        name for name in wheel if name.endswith(".py")
    }


def test_wheel_is_typed_and_licensed(wheel: set[str]) -> None:
    assert {"statestore/py.typed", "pyspark_statestore/py.typed"} <= wheel
    assert any(name.endswith("licenses/LICENSE") for name in wheel)
