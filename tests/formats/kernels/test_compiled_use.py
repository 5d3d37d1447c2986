"""Compiled loops are loaded beside a commit, which goes on without them and never waits for them."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from statestore.formats.kernels import compiled_use
from statestore.formats.kernels.compiled_use import COMPILED, is_loaded, load_beside

ENOUGH = compiled_use._COLD_BYTES


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Return the threads that import the loops, which this process does not seem to have before."""
    threads: list[threading.Thread] = []
    loaded = importlib.import_module(COMPILED)
    monkeypatch.delitem(sys.modules, COMPILED)
    monkeypatch.setattr(compiled_use, "_read_before", 0)

    def imported(name: str) -> None:
        assert name == COMPILED
        threads.append(threading.current_thread())
        sys.modules[COMPILED] = loaded  # as soon as an import begins

    monkeypatch.setattr(importlib, "import_module", imported)
    return threads


def test_only_the_thread_that_loads_the_loops_has_them_meanwhile(imports: list[threading.Thread]) -> None:
    calling, called = threading.Event(), threading.Event()
    seen: list[bool] = []

    def first_use() -> Iterator[None]:
        seen.append(is_loaded())
        calling.set()
        called.wait(30)
        yield

    load_beside(ENOUGH - 1, first_use)
    assert not imports
    load_beside(1, first_use)
    assert calling.wait(30)
    assert COMPILED in sys.modules and not is_loaded()
    compiled_use.load_if_it_pays(ENOUGH)  # does not wait
    load_beside(ENOUGH, first_use)
    assert not is_loaded() and len(imports) == 1
    called.set()
    imports[0].join(30)
    assert is_loaded() and seen == [True]
    assert imports[0] is not threading.current_thread() and not imports[0].daemon


def test_where_the_loops_cannot_be_loaded_it_is_tried_seldom(
    imports: list[threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[threading.Thread] = []

    def refused(name: str) -> None:
        tried.append(threading.current_thread())
        raise ImportError(name)

    def first_use() -> Iterator[None]:
        raise AssertionError

    monkeypatch.setattr(importlib, "import_module", refused)
    for _ in range(5):
        load_beside(ENOUGH // 2, first_use)
        for thread in tried:
            thread.join(30)
        assert not is_loaded()
    assert len(tried) == 2


COMMITS = """
import sys, threading
import numpy as np, pyarrow as pa
import statestore
from statestore.formats.kernels import compiled_use
from statestore.formats.kernels.compiled_use import is_loaded

store = statestore.connect(sys.argv[1]).create_store("s", key={"k": "string"}, value={"v": "bigint"})
random, sizes = np.random.default_rng(1), []
compiled_use._read_before = compiled_use._COLD_BYTES - 300_000
for number in range(8):
    rows = 9_000
    times = 1_000 + number * rows + np.arange(rows)
    times[::90] -= random.integers(1, 900, len(times[::90]))
    keys = pa.array([f"key-{key}" for key in random.integers(0, 12_000, rows)])
    kinds = pa.array(np.where(random.random(rows) < 0.03, "delete", "insert"))
    store.put_all(pa.table({"k": keys, "v": times, "timestamp": times, "_change_type": kinds}))
    store.commit()
    if number == 4:
        store.compact(full=True)
    for thread in threading.enumerate():
        if thread.name == "statestore-loops":
            thread.join()
    if is_loaded():
        from statestore.formats.kernels import key_kernels
        found = [loop for loop in vars(key_kernels).values() if hasattr(loop, "signatures")]
        sizes.append(sum(len(loop.signatures) for loop in found))
assert len(sizes) > 5 and len(set(sizes)) == 1, sizes
"""


@pytest.mark.slow
def test_no_commit_loads_or_compiles_a_loop_after_that(tmp_path: object) -> None:
    """With late records, deletes, new keys, and a compaction that moves the open rows."""
    done = subprocess.run([sys.executable, "-c", COMMITS, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    assert not done.returncode, done.stderr
