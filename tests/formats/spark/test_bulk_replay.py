"""Many changes on top of a base, of which only hashes of keys are held: against a dictionary and whole checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checkpoints.checkpoint_models import states_of
from support.checkpoints.spark_state_fixtures import multiset, opened
from support.parameters import mostly_slow
from test_checkpoint_history import shown

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.kernels import compiled_use
from statestore.formats.kernels.newest_kernels import sip_hashes
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.providers import bulk_replay, newest_changes, partition_load
from statestore.formats.spark.providers.bulk_replay import FoundMerges, bulk_rows
from statestore.formats.spark.providers.file_records import DELETE, MERGE, PUT, Changes
from statestore.formats.spark.providers.key_hashes import HashRange
from statestore.formats.spark.providers.newest_changes import NewestChanges, passes
from statestore.formats.spark.state_rows import read_state

KEYS = st.integers(0, 40).map(lambda number: b"%d" % number * (number % 12))
CHANGES = st.lists(st.lists(st.tuples(st.sampled_from([PUT, PUT, DELETE]), KEYS, st.binary(max_size=5)), max_size=40))


def binary(cells: list[bytes]) -> pa.Array:
    return pa.array(cells, pa.binary())


def run_of(changes: list[tuple[int, bytes, bytes]]) -> Changes:
    kind = np.array([kind for kind, _, _ in changes], np.uint8)
    keys, values = binary([key for _, key, _ in changes]), binary([value for _, _, value in changes])
    return Changes(kind, cells_of(keys), cells_of(values))


def test_hashes_of_keys_are_siphash() -> None:
    """The first outputs of 128 bits that the authors of SipHash publish: of 0, 1, 2 ... under the secret 0 to 15."""
    published = {
        0: "a3817f04ba25a8e66df67214c7550293",
        1: "da87c1d86b99af44347659119b22fc45",
        3: "9c70b60c5267a94e5f33b6b02985ed51",
        15: "5493e99933b0a8117e08ec0f97cfc3d9",
    }
    data, sizes = np.arange(64, dtype=np.uint8), np.array(list(published))
    low, high = np.empty(len(sizes), np.uint64), np.empty(len(sizes), np.uint64)
    sip_hashes(data, np.zeros(len(sizes), np.int64), sizes, np.frombuffer(bytes(range(16)), np.uint64), low, high)
    found = [int(a).to_bytes(8, "little") + int(b).to_bytes(8, "little") for a, b in zip(low, high, strict=True)]
    assert [digest.hex() for digest in found] == list(published.values())


@settings(deadline=None)  # the first example may load compiled code
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
        patch.setattr(newest_changes, "MOST_KEYS", most_keys)
        patch.setattr(newest_changes, "FIRST_SLOTS", 4)
        patch.setattr(bulk_replay, "HELD_BYTES", held)
        pairs = bulk_rows(
            changes,
            lambda over: (rows for at in range(0, len(base), 7) for rows in over(batch.slice(at, 7))),
            HashRange(None),
            lambda rows: list(zip(*(column.to_pylist() for column in rows.batch.columns), strict=True)),
        )
        for rows in pairs:
            assert rows
            found += rows
    assert sorted(found) == sorted(expected.items())
    assert reads == 1 or held == 0


def test_a_pass_holds_no_more_keys_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_changes, "FIRST_SLOTS", 64)
    keys = cells_of(binary([b"key %d" % number for number in range(5000)]))
    counts = []
    for noted in passes(600):
        noted.note(keys)
        counts.append(int(noted.newest(0, len(keys)).sum()))
        assert int((~_all(noted.unchanged(keys), len(keys))).sum()) >= counts[-1]
    assert sum(counts) == 5000
    assert max(counts) <= 1024 * 3 // 4  # a table of 512 slots holds fewer than 600 keys
    assert len(counts) < 30


def _all(found: np.ndarray | None, count: int) -> np.ndarray:
    return np.ones(count, np.bool_) if found is None else found


def test_merges_are_left_to_the_other_replay() -> None:
    runs = [run_of([(PUT, b"a", b"1")]), run_of([(MERGE, b"a", b"2")])]
    with pytest.raises(FoundMerges):
        next(bulk_rows(lambda: iter(runs), lambda over: iter(()), HashRange(None), lambda rows: rows))


CHECKPOINTS = mostly_slow(
    [
        "spark4.3.0-agg__hdfs",
        "spark4.3.0-agg__hdfsck",
        "spark4.3.0-join__hdfs",
        "spark4.3.0-join__rkcl",
        "spark4.3.0-twsttl__rkcl",  # merges
    ],
    ["spark4.3.0-agg__hdfsck", "spark4.3.0-twsttl__rkcl"],
)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_states_are_those_of_folded_changes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_use.load_if_it_pays(1 << 30)
    checkpoint = opened(name)
    used: list[NewestChanges] = []

    class Noted(NewestChanges):
        def __init__(self, secret: np.ndarray, first: int, most_keys: int) -> None:
            super().__init__(secret, first, most_keys)
            used.append(self)

    for state_view in shown(name):
        expected = states_of(checkpoint, state_view)
        with monkeypatch.context() as patch:
            patch.setattr(partition_load, "BULK_BYTES", 1)
            patch.setattr(newest_changes, "NewestChanges", Noted)
            rows = [batch for part in state_view.store.partitions for batch in read_state(checkpoint, state_view, part)]
        assert multiset(pa.Table.from_batches(rows, state_view.schema)) == expected[max(expected)]
    assert used
