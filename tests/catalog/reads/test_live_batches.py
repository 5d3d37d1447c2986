"""Batches without dead rows, against Arrow's own filter."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.catalog.reads.plan import CHUNK_ROWS
from statestore.catalog.reads.scan import JOINED_ROWS, joined, live_batches

ROWS = 6_000
BATCH = pa.RecordBatch.from_pydict(
    {
        "n": np.arange(ROWS),
        "s": [None if n % 7 == 0 else f"text {n}" for n in range(ROWS)],
        "b": [n % 3 == 0 for n in range(ROWS)],
        "l": [[n] * (n % 4) for n in range(ROWS)],
    }
)


def _mask(lengths: list[int], first: bool) -> np.ndarray:
    """Runs of these lengths, dead and live in turn, up to the rows of the batch."""
    states = np.arange(len(lengths)) % 2 == int(not first)
    return np.resize(np.repeat(states, lengths), ROWS) if lengths else np.full(ROWS, first)


@given(st.lists(st.sampled_from([1, 2, 3, 100, 200, 2_000, 3_000]), max_size=40), st.booleans())
@settings(max_examples=60, deadline=None)
def test_rows_are_those_of_a_filter(lengths: list[int], first: bool) -> None:
    keep = _mask(lengths, first)
    found = list(live_batches(BATCH, keep))
    assert pa.Table.from_batches(found, BATCH.schema) == pa.Table.from_batches([BATCH.filter(pa.array(keep))])
    assert all(batch.num_rows for batch in found)


def test_long_runs_are_not_copied() -> None:
    keep = np.ones(ROWS, bool)
    keep[[10, 11, 2_500]] = False
    found = list(live_batches(BATCH, keep))
    assert [batch.num_rows for batch in found] == [1_022, 1_024, 1_023, 2_048, 880]
    data = BATCH.column("n").buffers()[1]
    shared = [batch.column("n").buffers()[1].address == data.address for batch in found]
    assert shared == [False, True, False, True, True]


def test_small_batches_are_joined_and_large_ones_passed() -> None:
    parts = [BATCH.slice(at, 60) for at in range(0, ROWS, 60)]
    large = BATCH.slice(0, JOINED_ROWS)
    found = list(joined([*parts[:50], large, *parts[50:]]))
    assert [batch.num_rows for batch in found] == [JOINED_ROWS, ROWS]
    assert found[1].equals(BATCH)
    assert list(joined([])) == [] and list(joined([BATCH.slice(0, 0)])) == []


def test_joining_holds_few_rows() -> None:
    small = BATCH.slice(0, JOINED_ROWS - 1)
    found = list(joined([small] * 200))
    assert sum(batch.num_rows for batch in found) == 200 * small.num_rows
    assert all(batch.num_rows < CHUNK_ROWS + JOINED_ROWS for batch in found) and len(found) == 2
