"""Random histories with late, deleted and half-compacted rows: each way to scan has the answers of the model."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from support.properties import few_or_many
from support.stores.scan_loops import WAYS, read_by
from support.stores.versioned_checks import HORIZON, check_answers
from support.stores.versioned_pair import Pair

import statestore
from statestore.catalog.reads import scan
from statestore.formats.kernels import compiled_use

keys, values, times = st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, HORIZON - 1)
puts = st.lists(st.tuples(keys, values, times), min_size=1, max_size=6)
steps = st.one_of(
    st.tuples(st.just("write"), puts),
    st.tuples(st.just("write"), puts),
    st.tuples(st.just("compact"), st.booleans()),
)


@few_or_many(3, 20, st.lists(steps, min_size=4, max_size=12), st.sampled_from([None, 5]))
def test_each_way_answers_as_the_model(program: list[tuple[str, Any]], retention: int | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(folder, retention, False)
        for name, argument in program:
            pair.step(name, argument)
        pair.step("commit", None)
        for way in WAYS:
            with pytest.MonkeyPatch.context() as patch:
                read_by(patch, way)
                check_answers(pair.store, pair.model, [None, *range(0, HORIZON, 5)])
        pair.store.close()


@pytest.mark.parametrize("compiled", [True, False])
def test_small_pieces_are_read_as_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    """Each commit leaves a segment; a batch costs its consumer as much as a thousand rows."""
    monkeypatch.setattr(scan, "copies_pay", lambda rows: compiled)
    with statestore.connect(tmp_path).create_store("s", key={"k": "bigint"}, value={"v": "string"}) as store:
        for number in range(20):
            store.put(number, f"value {number}", number * 10)
            store.put(number // 2, None, number * 10 + 5)
            store.commit()
        batches = list(store.scan(as_of=120))
    assert len(batches) == 1
    assert sorted(batches[0]["k"].to_pylist()) == list(range(6, 13))


def test_loops_are_used_when_enough_rows_were_copied_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading them takes as long as copying a million rows, and numba itself as ten million."""
    monkeypatch.setattr(compiled_use, "_copied_before", 0)
    monkeypatch.setattr(compiled_use, "is_loaded", lambda: True)
    assert not compiled_use.copies_pay(999_999)
    assert compiled_use.copies_pay(1)
    monkeypatch.setattr(compiled_use, "is_loaded", lambda: False)
    monkeypatch.setattr(compiled_use, "_copied_before", 0)
    loaded: list[str] = []
    monkeypatch.setattr(importlib, "import_module", loaded.append)
    assert not compiled_use.copies_pay(9_999_999)
    assert loaded == []
    compiled_use.copies_pay(1)
    assert loaded == [compiled_use.COMPILED]
