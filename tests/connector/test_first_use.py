"""Modules that a new process loads before its first answer: no library and no door that the question does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.archives import unpacked
from support.paths import DATA

import statestore

LIBRARIES = {
    "pandas",
    "pyarrow.dataset",
    "duckdb",
    "numba",
    "numpy.ma",
    "pydantic",
    "llvmlite",
    "pyspark",
    "obstore",
    "fsspec",
    "polars",
    "rich",
}
OWN = {
    "catalog.catalog",
    "catalog.checks",
    "catalog.commits",
    "catalog.describe",
    "catalog.engines.engine_metadata",
    "catalog.engines.places_below",
    "catalog.keyed",
    "catalog.reads.change",
    "catalog.reads.replaced_rows",
    "catalog.upkeep.compaction",
    "formats.flink.snapshot.handles",
    "formats.places.fsspec_files",
    "formats.rocksdb.table_difference",
    "formats.spark.feed_source",
    "formats.spark.history",
    "formats.spark.misplaced_keys",
}
ENGINES = {
    "spark": "formats.spark.source",
    "flink": "formats.flink.serializers",
    "kafka": "formats.kafka.columns",
}
OF_ENGINES = ("formats.spark.", "formats.flink.", "formats.kafka.")
OFFERS = (".engine", "_options")
"""Modules that say what an engine reads and with which options; commands have them as flags."""
ASKED = """
import sys
import statestore
found = statestore.inspect({path!r}).table({table!r}).get({key!r})
assert found is not None
print("\\n".join(sys.modules))
"""


def loaded(script: str) -> set[str]:
    """The modules that a new process has loaded after a script."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def check(modules: set[str], *, engine: str = "") -> None:
    assert LIBRARIES & modules == set()
    unneeded = OWN | {module for name, module in ENGINES.items() if name != engine}
    found = {name for name in modules for part in unneeded if name.startswith(f"statestore.{part}")}
    assert not found


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("first") / "warehouse"
    catalog = statestore.connect(root)
    with catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
        store.put("tea", {"price": 1.5}, timestamp=1000)
        store.commit()
    return root


def test_a_key_of_a_store(warehouse: Path) -> None:
    modules = loaded(ASKED.format(path=str(warehouse), table="prices", key="tea"))
    check(modules)
    assert "importlib.metadata" not in modules  # which looks for the engines of installed packages
    assert {"tempfile", "logging", "concurrent.futures.thread"} & modules == set()
    of_engines = tuple(f"statestore.{each}" for each in ("formats.engine.", "catalog.engines.engine", *OF_ENGINES))
    assert not [name for name in modules if f"{name}.".startswith(of_engines)]


@pytest.mark.parametrize("name", ["spark4.3.0-agg__hdfs", "spark4.3.0-agg__rk"])
def test_a_key_of_spark(name: str) -> None:
    path = str(unpacked(DATA / "spark" / "checkpoints.tar.xz") / "checkpoints" / name)
    key = next(iter(statestore.inspect(path).table("state").scan().to_arrow()["key"].to_pylist()))
    modules = loaded(ASKED.format(path=path, table="state", key=key))
    check(modules, engine="spark")
    assert {"logging", "concurrent.futures.thread"} & modules == set()


def test_a_key_of_kafka_streams() -> None:
    path = str(unpacked(DATA / "kafka" / "orders.tar.xz") / "orders" / "state")
    key = next(iter(statestore.inspect(path).table("currencies").scan().to_arrow()["key"].to_pylist()))
    check(loaded(ASKED.format(path=path, table="currencies", key=key)), engine="kafka")


def test_the_version_of_the_program_loads_nothing_else() -> None:
    script = "import sys; sys.argv = ['statestore', '--version']\nfrom statestore.__main__ import main\n"
    modules = loaded(f"{script}try: main()\nexcept SystemExit: pass\nprint('\\n'.join(sys.modules))")
    assert (LIBRARIES | {"pyarrow", "numpy", "typer", "dataclasses", "importlib.metadata", "email"}) & modules == set()


ARGUMENTS = {"get": ["prices", "tea"], "inspect": [], "sql": ["SELECT price FROM prices"]}
DOORS = {"get": {"rich"}, "inspect": {"rich"}, "sql": {"rich", "duckdb", "importlib.metadata", "email"}}


@pytest.mark.parametrize("command", ARGUMENTS)
def test_a_command_loads_what_it_needs(command: str, warehouse: Path) -> None:
    words = ["statestore", command, str(warehouse), *ARGUMENTS[command], "--json"]
    script = f"import sys; sys.argv = {words!r}\nfrom statestore.__main__ import main\n"
    modules = loaded(f"{script}try: main()\nexcept SystemExit: pass\nprint('\\n'.join(sys.modules))")
    assert ((LIBRARIES | {"importlib.metadata", "email"}) - DOORS[command]) & modules == set()


def test_inspect_loads_nothing_that_writes(warehouse: Path) -> None:
    script = (
        f"import sys; sys.argv = ['statestore', 'inspect', {str(warehouse)!r}]\nfrom statestore.__main__ import main\n"
    )
    modules = loaded(f"{script}try: main()\nexcept SystemExit: pass\nprint('\\n'.join(sys.modules))")
    assert {"importlib.metadata", "email"} & modules == set()
    engines = tuple(f"statestore.{each}" for each in OF_ENGINES)
    asked = {name for name in modules if name.startswith(engines) and not name.endswith(OFFERS)}
    assert asked == set()
    writes = ("commits.publish_commit", "commits.open_rows", "upkeep.compaction", "upkeep.publish_compaction")
    assert {f"statestore.catalog.{name}" for name in writes} & modules == set()


def test_attach_loads_no_pandas(warehouse: Path) -> None:
    script = (
        f"import sys, statestore\nfound = statestore.attach({str(warehouse)!r}).execute('FROM prices').fetchall()\n"
    )
    modules = loaded(f"{script}assert len(found) == 1\nprint('\\n'.join(sys.modules))")
    assert (LIBRARIES - {"duckdb"}) & modules == set()
