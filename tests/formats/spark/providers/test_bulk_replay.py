"""Changes on top of a base, of which only hashes of keys are held, against a dictionary."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.formats.bytes import newest_of_keys
from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.bytes.hash_passes import HashRange
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.providers import bulk_replay
from statestore.formats.spark.providers.bulk_replay import FoundMerges, bulk_rows
from statestore.formats.spark.providers.file_records import DELETE, MERGE, PUT, Changes

KEYS = st.integers(0, 40).map(lambda number: b"%d" % number * (number % 12))
CHANGES = st.lists(st.lists(st.tuples(st.sampled_from([PUT, PUT, DELETE]), KEYS, st.binary(max_size=5)), max_size=40))


def binary(cells: list[bytes]) -> pa.Array:
    return pa.array(cells, pa.binary())


def run_of(changes: list[tuple[int, bytes, bytes]]) -> Changes:
    kind = np.array([kind for kind, _, _ in changes], np.uint8)
    keys, values = binary([key for _, key, _ in changes]), binary([value for _, _, value in changes])
    return Changes(kind, cells_of(keys), cells_of(values))


@settings(deadline=None, max_examples=50)  # the first example may load compiled code
@given(
    st.dictionaries(KEYS, st.binary(max_size=5)), CHANGES, st.sampled_from([1, 5, 1000]), st.sampled_from([0, 1 << 20])
)
def test_rows_are_those_of_a_dictionary(
    base: dict[bytes, bytes], runs: list[list[tuple[int, bytes, bytes]]], most_keys: int, held: int
) -> None:
    expected = dict(base)
    for kind, key, value in (change for run in runs for change in run):
        expected.pop(key, None)
        if kind == PUT:
            expected[key] = value
    reads = 0

    def changes() -> Iterator[Changes]:
        nonlocal reads
        reads += 1
        return map(run_of, runs)

    batch = pa.RecordBatch.from_arrays([binary(list(base)), binary(list(base.values()))], schema=ROW_SCHEMA)
    found: list[tuple[bytes, bytes]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newest_of_keys, "FIRST_SLOTS", 4)
        patch.setattr(bulk_replay, "HELD_BYTES", held)
        pairs = bulk_rows(
            changes,
            lambda over: (rows for at in range(0, len(base), 7) for rows in over(batch.slice(at, 7))),
            HashRange(None),
            lambda rows: list(zip(*(column.to_pylist() for column in rows.batch.columns), strict=True)),
            most_keys,
        )
        for rows in pairs:
            assert rows
            found += rows
    assert sorted(found) == sorted(expected.items())
    assert reads == 1 or held == 0


def test_merges_are_left_to_the_other_replay() -> None:
    runs = [run_of([(PUT, b"a", b"1")]), run_of([(MERGE, b"a", b"2")])]
    with pytest.raises(FoundMerges):
        next(bulk_rows(lambda: iter(runs), lambda over: iter(()), HashRange(None), lambda rows: rows))
