"""The public names: what stands at the top, what in modules of its own, and what the old spellings say."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import statestore

MOVED = {
    "Emitted": "joins",
    "StreamTableJoin": "joins",
    "TableAggregation": "joins",
    "TableTableJoin": "joins",
    "count_by": "joins",
    "State": "tracked",
    "StateSpec": "tracked",
}
# What the page that settles the names for others writes at the top.
SETTLED = ("connect", "inspect", "attach", "sql", "register", "StateStoreError")
HEAVY = ("pyspark", "py4j", "duckdb", "numba", "pandas", "rocksdict")


def test_every_name_at_the_top_is_there() -> None:
    assert [name for name in statestore.__all__ if getattr(statestore, name).__name__ != name] == []


@pytest.mark.parametrize("module", ["engines", "joins", "kafka", "tracked"])
def test_every_name_of_a_module_is_there(module: str) -> None:
    part = getattr(statestore, module)
    assert part is importlib.import_module(f"statestore.{module}")
    assert [name for name in part.__all__ if getattr(part, name).__name__ != name] == []
    assert not set(part.__all__) & set(statestore.__all__)


def test_what_a_user_holds_has_a_public_name(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    catalog.create_store("s", key={"k": "string"}, value={"v": "int"}).close()
    warehouse = statestore.inspect(tmp_path)
    assert isinstance(catalog, statestore.Catalog) and isinstance(warehouse, statestore.Warehouse)
    assert isinstance(warehouse.table("s"), statestore.Table)
    assert isinstance(catalog.verify("s"), statestore.Verification)
    assert set(SETTLED) <= set(statestore.__all__)


@pytest.mark.parametrize("serde", ["natural", "kafka"])
def test_a_versioned_store_is_one_whatever_its_serde(tmp_path: Path, serde: str) -> None:
    given: dict[str, Any] = {"serde": serde, "history_retention": "1 day"}
    store = statestore.connect(tmp_path).create_store("s", "versioned", key={"k": "int"}, value={"v": "int"}, **given)
    with store:
        assert isinstance(store, statestore.VersionedStore)
        assert isinstance(store.put(1, 2, timestamp=3), statestore.PutResult)
        assert isinstance(store.get(1), statestore.Record)
    with statestore.connect(tmp_path).open_store("s") as again:
        assert isinstance(again, statestore.VersionedStore)
    assert not isinstance(statestore.connect(tmp_path), statestore.VersionedStore)


@pytest.mark.parametrize(("name", "module"), MOVED.items())
def test_an_old_name_says_where_it_stands_now(name: str, module: str) -> None:
    there = f"from statestore.{module} import {name}"
    with pytest.raises(AttributeError, match=there):
        getattr(statestore, name)
    with pytest.raises(ImportError, match=there):
        exec(f"from statestore import {name}")
    assert not hasattr(statestore, name) and name not in dir(statestore)
    assert hasattr(importlib.import_module(f"statestore.{module}"), name)


def test_an_unknown_name_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = statestore.nothing
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from statestore import nothing")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = statestore.tracked.nothing


def test_imports_are_light() -> None:
    """One after the other in one process: what is loaded stays loaded."""
    script = f"""
import json, sys
loaded = {{}}
for module in ("statestore", "statestore.engines", "statestore.kafka", "statestore.tracked"):
    __import__(module)
    loaded[module] = [name for name in {HEAVY} if name in sys.modules]
print(json.dumps(loaded))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert len(found) == 4 and [module for module, heavy in found.items() if heavy] == []
