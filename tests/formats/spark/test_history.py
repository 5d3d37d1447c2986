"""History and changes of checkpoints against a plain model of the same batches, each read as it stands.

A state that is too large for memory is read in several passes, each for some of its keys, with the same rows.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from support.checkpoints.checkpoint_models import States, changes_of, history_of, shown_views, states_of
from support.checkpoints.spark_state_fixtures import QUICK, index, multiset, opened
from support.parameters import mostly_slow

from statestore.formats.bytes import hash_passes
from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.bytes.hash_passes import HashPass, HashRange
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.query_metadata import Batch
from statestore.formats.spark.checkpoint.state_views import StateView
from statestore.formats.spark.history import PartitionBatches, read_history, read_row_changes, tells_rows_apart
from statestore.formats.spark.providers import bulk_replay, replay
from statestore.formats.spark.providers.bulk_replay import KeyHashes, fitted, parts_kept, stored_passes
from statestore.formats.spark.providers.replay import Parts
from statestore.formats.spark.readable_batches import kept_batches, read_batches
from statestore.formats.spark.state_rows import read_state

KEY_CELLS = {"rows": 1, "map": 2, "timers": 2}
TYPES = pa.array(["insert", "update_preimage", "update_postimage", "delete"])
SOME = 3


@cache
def states_in_archive(name: str, view: StateView) -> States:
    """The states of a view of a checkpoint, read once for all tests."""
    return states_of(opened(name), view)


def check_history(checkpoint: Checkpoint, view: StateView, kept: list[Batch], states: States) -> None:
    parts = [PartitionBatches(checkpoint, view, number, kept) for number in view.store.partitions]
    found = [batch for part in parts for batch in read_history(part)]
    assert counted(found, ("from_batch", "to_batch")) == history_of(states)


def check_changes(checkpoint: Checkpoint, view: StateView, kept: list[Batch], states: States, first: int) -> None:
    """Compare the changes from batch ``first`` on."""
    parts = [PartitionBatches(checkpoint, view, number, kept[first:]) for number in view.store.partitions]
    before = kept[first - 1] if first else None
    found = [named(batch) for part in parts for batch in read_row_changes(part, before)]
    key_cells = KEY_CELLS[view.shape] if tells_rows_apart(view) else None
    assert counted(found, ("batch_id", "kind")) == changes_of(states, first, key_cells)


def counted(batches: list[pa.RecordBatch], last: tuple[str, str]) -> Counter[tuple[object, ...]]:
    """The rows with these columns, which are the first two, at the end."""
    found: Counter[tuple[object, ...]] = Counter()
    for batch in batches:
        found += multiset(pa.Table.from_batches([batch]).select([*batch.schema.names[2:], *last]))
    return found


def named(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(1, "kind", TYPES.take(batch.column("kind")))


SLOW = {"spark4.3.0-twsttl__rkav", "spark4.3.0-aggmulti__rkcl", "spark4.3.0-win__rkcl"}


@pytest.mark.parametrize("name", mostly_slow(sorted(index()), set(QUICK) - SLOW))
def test_every_batch_of_every_checkpoint(name: str) -> None:
    checkpoint = opened(name)
    for view in shown_views(name):
        states = states_in_archive(name, view)
        kept = read_batches(checkpoint, kept_batches(checkpoint, view.store))
        assert [batch.batch_id for batch in kept] == list(states)
        check_history(checkpoint, view, kept, states)
        for first in (0, SOME):
            check_changes(checkpoint, view, kept, states, first)


# Passes over a state of which only some rows are held


ALL, ONE = slice(None), slice(1, 2)
IN_PASSES = [
    ("spark4.3.0-agg__hdfsck", ALL),  # checksums
    ("spark4.3.0-join__hdfs", ONE),  # rows that repeat
    ("spark4.3.0-twsttl__rkcl", ONE),  # column families, merges
]
CASES = mostly_slow(
    [
        *IN_PASSES,
        ("spark4.3.0-agg__hdfs", ALL),
        ("spark4.3.0-join__hdfs", ALL),
        ("spark4.3.0-agg__rk", ALL),  # no changelogs
        ("spark4.3.0-join__rkcl", ALL),
        ("spark4.3.0-twsttl__rkcl", ALL),
    ],
    IN_PASSES,
)
A_FEW_ROWS = 4000
KEYS = pa.array([b"%d" % number for number in range(600)], pa.large_binary())
VALUES = pa.array([b"value"] * len(KEYS), pa.large_binary())


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[HashRange]:
    """The ranges that were read, for states of which only a few rows are held at a time."""
    found: list[HashRange] = []

    class Noted(HashPass):
        def __init__(self, kept: HashRange, most: int) -> None:
            super().__init__(kept, most)
            found.append(kept)

    monkeypatch.setattr(hash_passes, "HashPass", Noted)
    monkeypatch.setattr(bulk_replay, "HELD_BYTES", A_FEW_ROWS)
    monkeypatch.setattr(replay, "_FOLD_BYTES", 1)
    return found


@pytest.mark.parametrize(("name", "some"), CASES)
def test_rows_history_and_changes_are_those_of_one_pass(
    name: str, some: slice, passes: list[HashRange], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = opened(name)
    for view in list(shown_views(name))[some]:
        with monkeypatch.context() as whole:
            whole.setattr(bulk_replay, "HELD_BYTES", 1 << 30)
            states = states_in_archive(name, view)
        passes.clear()
        parts = [batch for number in view.store.partitions for batch in read_state(checkpoint, view, number)]
        assert multiset(pa.Table.from_batches(parts, view.schema)) == states[max(states)]
        kept = read_batches(checkpoint, kept_batches(checkpoint, view.store))
        check_history(checkpoint, view, kept, states)
        check_changes(checkpoint, view, kept, states, SOME)
        assert len(passes) > 3 * len(view.store.partitions) or sum(states[max(states)].values()) < 10


def test_each_key_comes_in_one_pass_and_no_pass_holds_much(passes: list[HashRange]) -> None:
    everything = np.zeros(len(KEYS), np.uint8), KEYS, VALUES
    found = list(stored_passes(HashRange(KeyHashes()), lambda part: read_in_turn(part, everything)))
    assert Counter(key for _, keys in found for key in keys) == Counter(KEYS.to_pylist())
    assert max(len(keys) for _, keys in found) <= A_FEW_ROWS // replay.weight_of(
        (everything[0][:1], KEYS[:1], VALUES[:1])
    )
    assert len(found) < 2 * replay.weight_of(everything) // A_FEW_ROWS


def test_a_key_with_too_many_rows_does_not_make_passes_without_end(passes: list[HashRange]) -> None:
    rows = pa.array([b"hot"] * 1000 + [b"cold", b"cool"], pa.large_binary())
    everything = np.zeros(len(rows), np.uint8), rows, rows
    found = list(stored_passes(HashRange(KeyHashes()), lambda part: read_in_turn(part, everything)))
    assert Counter(key for _, keys in found for key in keys) == {b"hot": 1000, b"cold": 1, b"cool": 1}
    assert len(found) < 50


@pytest.mark.usefixtures("passes")
def test_keys_that_must_not_be_parted_are_read_at_once() -> None:
    everything = np.zeros(len(KEYS), np.uint8), KEYS, VALUES
    ((_, keys),) = stored_passes(HashRange(None), lambda part: read_in_turn(part, everything))
    assert keys == KEYS.to_pylist()


def test_front_and_hole_of_a_key_do_not_count() -> None:
    keys = pa.array(
        [b"\1\0before-index---", b"\2\0before-INDEX___", b"\1\0before-index--", b"\1\0Before-index---"], pa.binary()
    )
    first, second, short, other = KeyHashes(2, 7).of(cells_of(keys)).tolist()
    assert first == second
    assert len({first, short, other}) == 3
    assert KeyHashes(2, 7).of(cells_of(keys[1:3])).tolist() == [second, short]


def read_in_turn(one: HashPass, everything: Parts) -> list[bytes]:
    """The keys of all rows in the range, read some at a time."""
    kind, keys, values = everything
    held: list[Parts] = []
    for at in range(0, len(kind), 100):
        held.append(parts_kept(one.kept, (kind[at : at + 100], keys[at : at + 100], values[at : at + 100])))
        held = fitted(one, held)
    return [key for part in held for key in part[1].to_pylist()]
