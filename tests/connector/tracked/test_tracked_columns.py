"""Tracked functions over columns do what functions over records do."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.keyed.keyed_backends import refused
from support.keyed.tracked_scripts import LOOK, REMOVE, SEEN, ordered, scripted
from support.keyed.tracked_tasks import Tracking, as_table
from support.parameters import mostly_slow

from statestore.tracked import StateSpec

pytest_plugins = ["support.keyed.tracked_fixtures"]
pytestmark = pytest.mark.usefixtures("workers")


def scripted_columns(batch_time: datetime, keys: pa.Array, rows: pa.RecordBatch, states: pa.RecordBatch) -> Any:
    """Do the same as `scripted` for all keys at once; the records of a key are processed in order."""
    held, emitted = states.column("state").to_pylist(), []
    names = keys.to_pylist()
    for code, n in zip(rows.column("key").to_pylist(), rows.column("n").to_pylist(), strict=True):
        emitted.append((names[code], n, held[code], False))
        if n != LOOK:
            held[code] = None if n == REMOVE else (held[code] or 0) + n
    for code, out in enumerate(states.column("timing_out").to_pylist()):
        if out:
            emitted.append((names[code], None, held[code], True))
    schema = pa.schema([("word", "string"), ("n", "int64"), ("before", "int64"), ("out", "bool")])
    return pa.array(held, pa.int64()), as_table(emitted, schema).combine_chunks().to_batches()[0] if emitted else None


@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_slow(range(4), [1]))
def test_columns_do_what_records_do(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    timeout = 2000 if seed % 2 else None
    trackings = []
    for name, spec in (("r", StateSpec.function(scripted)), ("c", StateSpec.vectorized(scripted_columns))):
        trackings.append(Tracking(tmp_path / name, spec.timeout(timeout) if timeout else spec, output=SEEN))
        trackings[-1].put_initial([("w1", 5), ("w9", 6)])
    for number in range(15):
        count = int(random.integers(0, 10)) if number % 4 else 0
        words = [f"w{place}" for place in random.integers(0, 8, count)]
        records = list(zip(words, random.choice([LOOK, REMOVE, *range(4)], count).tolist(), strict=True))
        tasks = int(random.integers(1, 4))
        emitted = [ordered(tracking.batch(records, tasks=tasks, keeps=True)) for tracking in trackings]
        assert emitted[0] == emitted[1], f"batch {number}"
        assert trackings[0].states() == trackings[1].states()
        assert trackings[0].entries() == trackings[1].entries()


def test_columns_of_several_types(tmp_path: Path) -> None:
    """Keys of several columns, states that are structs, rows without a value; None leaves all states as they are."""

    def seen(batch_time: datetime, keys: pa.Array, rows: pa.RecordBatch, states: pa.RecordBatch) -> Any:
        counts = np.bincount(rows.column("key").to_numpy(), minlength=len(keys))
        before = [0 if state is None else state["n"] for state in states.column("state").to_pylist()]
        names = [key["word"] for key in keys.to_pylist()]
        after = [{"n": n + more, "name": name} for n, more, name in zip(before, counts, names, strict=True)]
        return pa.array(after, pa.struct([("name", pa.string()), ("n", pa.int32())]))

    kinds = {"word": "string", "n": "bigint"}
    spec = StateSpec.vectorized(seen)
    tracking = Tracking(tmp_path, spec, key=kinds, values={}, state={"n": "bigint", "name": "string"})
    for tasks in (1, 2):
        assert tracking.batch([("a", 1), ("a", 2), ("a", 1)], tasks=tasks) == []
    assert tracking.states() == {("a", 1): {"n": 4, "name": "a"}, ("a", 2): {"n": 2, "name": "a"}}
    tracking.spec = StateSpec.vectorized(lambda batch_time, keys, rows, states: None)
    tracking.batch([("a", 2), ("b", 2)])
    assert tracking.states() == {("a", 1): {"n": 4, "name": "a"}, ("a", 2): {"n": 2, "name": "a"}}


WRONG: dict[str, tuple[Any, str]] = {
    "too few": (pa.array([1]), "1 values"),
    "no array": ([1, 2], "list"),
    "of another type": (pa.array(["1", "2"]), "string"),
    "that do not fit": (pa.array([1.5, 2.0]), "double"),
    "with records of other columns": ((pa.array([1, 2]), pa.record_batch({"text": ["a"]})), "text"),
    "with records that are no batch": ((pa.array([1, 2]), [1]), "list"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_states_of_columns(tmp_path: Path, name: str) -> None:
    answer, told = WRONG[name]
    tracking = Tracking(tmp_path, StateSpec.vectorized(lambda batch_time, keys, rows, states: answer))
    with refused("FUNCTION_FAILED", told):
        tracking.batch([("a", 1), ("b", 1)])
    assert tracking.store.retained() == []
    assert tracking.store.vacuum(0) == []


def test_columns_keep_chunks_and_other_widths(tmp_path: Path) -> None:
    """Answers as computations give them: chunked, of 32 bits, all null."""
    answers: list[Any] = [pa.chunked_array([[1], [2]]), pa.array([3, 4], pa.int32()), pa.nulls(2)]
    tracking = Tracking(tmp_path, StateSpec.vectorized(lambda batch_time, keys, rows, states: answers.pop(0)))
    for expected in ({"a": 1, "b": 2}, {"a": 3, "b": 4}, {}):
        tracking.batch([("a", 1), ("b", 1)])
        assert tracking.states() == expected
