"""Beliefs of versions about rows of several segments, against the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.stores.versioned_model import end_of
from support.stores.versioned_pair import Pair, random_puts
from support.stores.versioned_pair import small_thresholds as small_thresholds

from statestore.catalog.reads.belief import with_closures
from statestore.catalog.reads.picked_rows import PickedRows
from statestore.formats.kernels.arrays import OPEN


@pytest.mark.parametrize("compiled", [False, True])
def test_each_version_has_the_rows_and_ends_of_the_model(compiled: bool, tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    pair = Pair(str(tmp_path), None, False)
    for number in range(14):
        pair.step("put_all", random_puts(random, "abc"))
        pair.step("commit", None)
        if number % 3 == 2:
            pair.step("compact", number % 2 == 0)
        check_versions(pair, compiled)
    pair.store.close()


def check_versions(pair: Pair, compiled: bool) -> None:
    files, log_state = pair.store._files, pair.store._files.log.newest()
    segments = with_closures(log_state.segments, log_state.closures)
    counts = [segment.meta.rows for segment in segments]
    source = np.repeat(np.arange(len(segments), dtype=np.int32), counts)
    row = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
    tombstone = np.array([segment.meta.tombstone for segment in segments])[source]
    picked = PickedRows(files, segments, source, row, compiled)
    keys, starts = picked.keys()[0].to_pylist(), picked.numbers("valid_from").tolist()
    for version, state in enumerate(pair.model.states):
        ends = picked.ends_at(np.full(len(row), version)).tolist()
        rows = zip(keys, starts, ends, tombstone.tolist(), strict=True)
        found = {(key, start // 1000, end, gone) for key, start, end, gone in rows if end > start and not gone}
        expected = {
            (key, time, OPEN if (end := end_of(times, time)) is None else end * 1000, False)
            for key, times in state.items()
            for time, value in times.items()
            if value is not None
        }
        assert found == expected
