"""Point reads of every layout against the plain-Python model: in Python, in compiled code, and with shared hashes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.stores.shared_hashes import POINT_LOOKUP, share_hashes
from support.stores.versioned_checks import HORIZON, INTERVAL, check_points, rows_of
from support.stores.versioned_pair import Pair, small_thresholds

from statestore.catalog.reads import segment_files
from statestore.catalog.reads.lookup import lookup_table, value_readers
from statestore.catalog.stores.versioned import versioned_reads
from statestore.formats.kernels import compiled_use
from statestore.formats.segments import segment_write

__all__ = ["small_thresholds"]  # a fixture: a dozen rows reach every layout

KEYS = "abcd"


def check(pair: Pair, is_compiled: bool) -> None:
    lookup = pair.store._live.lookup
    lookup.count_reads(1)
    assert lookup.is_compiled == is_compiled
    check_points(pair.store, pair.model)
    version = pair.store.version
    for key in KEYS:
        history = pair.model.history(version, key)
        assert set(rows_of(pair.store.history(key), *INTERVAL, "_commit_version")) == history
        for low, high in ((0, 7), (5, 5), (9, HORIZON)):
            found = rows_of(pair.store.history(key, start_time=low, end_time=high), *INTERVAL)
            expected = {row[:4] for row in history if row[2] <= high and (row[3] is None or row[3] > low)}
            assert sorted(found) == sorted(expected)


@pytest.mark.quick("compiled-shared hashes-0", "python--0")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
@pytest.mark.parametrize("shared", [False, True], ids=["", "shared hashes"])
@pytest.mark.parametrize("is_compiled", [False, True], ids=["python", "compiled"])
def test_every_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_compiled: bool, shared: bool, seed: int
) -> None:
    monkeypatch.setattr(versioned_reads, "FEW_KEYS", 0)
    monkeypatch.setattr(value_readers, "ROWS_A_TAKE", seed % 3)
    monkeypatch.setattr(segment_write, "COMPRESSED_BATCH_ROWS", 3)
    monkeypatch.setattr(segment_files, "MAPPED_BYTES", seed % 2 << 18)
    if is_compiled:
        monkeypatch.setattr(lookup_table, "WARM_READS", 0)
        monkeypatch.setattr(compiled_use, "_read_before", compiled_use._COLD_BYTES)
    else:
        monkeypatch.setattr(lookup_table, "is_loaded", lambda: False)
        monkeypatch.setattr(lookup_table, "load_if_it_pays", lambda size: None)
    if shared:
        share_hashes(monkeypatch)
    random = np.random.default_rng(seed)

    def puts(count: int) -> list[tuple[str, int | None, int]]:
        return [
            (
                KEYS[random.integers(len(KEYS))],
                None if random.random() < 0.2 else int(random.integers(10)),
                int(random.integers(HORIZON)),
            )
            for _ in range(count)
        ]

    pair = Pair(str(tmp_path), None, seed % 2 == 0)
    for step in range(12):
        pair.step("put_all", puts(int(random.integers(1, 9))))
        pair.step("commit", None)
        if step % 5 == 2:
            check(pair, is_compiled)
        if step in (5, 9):
            pair.step("compact", step == 9)
            check(pair, is_compiled)
        if step == 10:
            pair.step("reopen", None)
    check(pair, is_compiled)
    pair.store.close()


def test_reads_go_on_in_python_where_numba_cannot_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise RuntimeError("this version of Python is not supported")

    monkeypatch.setattr(f"{POINT_LOOKUP}.LookupTable", fails)
    monkeypatch.setattr(f"{POINT_LOOKUP}.reads_pay", lambda reads, more: reads >= 0)
    pair = Pair(str(tmp_path), None, True)
    pair.step("put_all", [(key, 1, 2) for key in KEYS])
    pair.step("commit", None)
    check(pair, is_compiled=False)
    check(pair, is_compiled=False)
    pair.store.close()
