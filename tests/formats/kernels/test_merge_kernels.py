"""The merge of sorted runs against a plain model: all entries of a key from new to old, the newest decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.formats.kernels.block_kernels import (
    DELETE,
    MERGE,
    NO_OPERATOR,
    PUT,
    SAME_VERSION,
    SINGLE_DELETE,
    UNSORTED,
)
from statestore.formats.kernels.compiled import SLACK
from statestore.formats.kernels.merge_kernels import common_prefix, gather_rows, measure_rows, merge_runs

Rows = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Entry:
    """A stored version of a key."""

    key: bytes
    sequence: int
    kind: int
    value: bytes

    @property
    def tag(self) -> int:
        return self.sequence << 8 | self.kind


Run = list[Entry]


class Refused(Exception):
    """A refusal of a kernel, with its ``status``."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def merged(runs: Sequence[Run], delimiter: bytes | None, batch_rows: int = 1000, skip: int | None = None) -> Rows:
    """The rows of the runs, merged by the kernels."""
    entries = [entry for run in runs for entry in run]
    ends = np.cumsum([len(run) for run in runs]).astype(np.int64)
    first, stop = ends - np.array([len(run) for run in runs], np.int64), ends.copy()
    # Behind the last key lies what would order wrongly if it were looked at.
    keys = b"".join(entry.key + entry.tag.to_bytes(8, "little") for entry in entries) + b"\xee" * SLACK
    values = b"".join(entry.value for entry in entries) + b"\xee" * SLACK
    key_start = np.cumsum([0, *(len(entry.key) + 8 for entry in entries)]).astype(np.int64)
    value_size = np.array([len(entry.value) for entry in entries], np.int64)
    tag = np.array([entry.tag for entry in entries], np.uint64)
    piece, row_end = np.empty(len(tag), np.int64), np.empty(len(tag), np.int64)
    key_bytes, count = np.frombuffer(keys, np.uint8).copy(), np.zeros(2, np.int64)
    prefix = common_prefix(key_bytes, key_start, first, stop) if skip is None else skip
    head = np.empty_like(tag)
    status = merge_runs(
        key_bytes, key_start, tag, head, first, stop, prefix, delimiter is not None, piece, row_end, count
    )
    if status:
        raise Refused(status)
    plain, value_start = np.frombuffer(values, np.uint8).copy(), np.cumsum([0, *value_size[:-1]]).astype(np.int64)
    joint, total = np.frombuffer((delimiter or b"") + b"\0", np.uint8), np.zeros(2, np.int64)
    rows: Rows = []
    while len(rows) < count[0]:
        at = len(rows)
        until = measure_rows(
            key_start, value_size, piece, row_end, count[0], at, batch_rows, 1 << 30, len(joint) - 1, total
        )
        key_end, value_end = np.empty(until - at + 1, np.int32), np.empty(until - at + 1, np.int32)
        key_out, value_out = (np.full(size + SLACK, 0xDD, np.uint8) for size in total.tolist())
        gather_rows(
            key_bytes, key_start, plain, value_start, value_size, piece, row_end, at, until, joint, len(joint) - 1,
            key_end, key_out, value_end, value_out,
        )  # fmt: skip
        assert (key_end[-1], value_end[-1]) == tuple(total)
        for i in range(until - at):
            key, value = key_out[key_end[i] : key_end[i + 1]], value_out[value_end[i] : value_end[i + 1]]
            rows.append((key.tobytes(), value.tobytes()))
    return rows


def model(entries: Sequence[Entry], delimiter: bytes) -> Rows:
    rows: Rows = []
    for key in sorted({entry.key for entry in entries}):
        pieces: list[bytes] = []
        for entry in sorted((entry for entry in entries if entry.key == key), key=lambda entry: -entry.sequence):
            if entry.kind in (PUT, MERGE):
                pieces.insert(0, entry.value)
            if entry.kind != MERGE:
                break
        if pieces:
            rows.append((key, delimiter.join(pieces)))
    return rows


def in_order(entries: Sequence[Entry]) -> Run:
    return sorted(entries, key=lambda entry: (entry.key, -entry.sequence))


STEMS = [b"", b"a", b"a\0", b"abcdefg", b"abcdefgh", b"abcdefgh\0", b"abcdefgh\0\0", b"abcdefghi", b"\xff" * 8]
KEYS = st.sampled_from(STEMS) | st.binary(max_size=20) | st.binary(max_size=3).map(lambda end: b"abcdefghijklm" + end)
KINDS = st.sampled_from([PUT, PUT, PUT, DELETE, SINGLE_DELETE, MERGE])
CHANGES = st.lists(st.tuples(KEYS, KINDS, st.binary(max_size=12), st.integers(0, 4)), max_size=40)


def runs_of(changes: list[tuple[bytes, int, bytes, int]], stem: bytes = b"") -> list[Run]:
    """Five runs, some possibly empty; any run may have the newest version of a key."""
    entries = [
        (Entry(stem + key, number + 1, kind, value), run) for number, (key, kind, value, run) in enumerate(changes)
    ]
    return [in_order([entry for entry, own in entries if own == run]) for run in range(5)]


@settings(max_examples=120, deadline=None)
@given(
    changes=CHANGES,
    delimiter=st.sampled_from([b"", b",", b"--"]),
    stem=st.sampled_from([b"", b"s", b"12345678", b"a stem of 17 byte"]),
    batch_rows=st.sampled_from([1, 3, 1000]),
)
def test_rows_are_those_of_the_model(
    changes: list[tuple[bytes, int, bytes, int]], delimiter: bytes, stem: bytes, batch_rows: int
) -> None:
    runs = runs_of(changes, stem)
    assert merged(runs, delimiter, batch_rows) == model([entry for run in runs for entry in run], delimiter)


@settings(max_examples=60, deadline=None)
@given(changes=CHANGES)
def test_operands_without_an_operator(changes: list[tuple[bytes, int, bytes, int]]) -> None:
    """Operands that decide a row are refused; operands hidden by a later put or delete do not matter."""
    runs = runs_of(changes)
    entries = [entry for run in runs for entry in run]
    newest = {entry.key: entry for entry in sorted(entries, key=lambda entry: entry.sequence)}
    if any(entry.kind == MERGE for entry in newest.values()):
        with pytest.raises(Refused) as caught:
            merged(runs, None)
        assert caught.value.status == NO_OPERATOR
    else:
        assert merged(runs, None) == model(entries, b"")


@settings(max_examples=50, deadline=None)
@given(keys=st.lists(KEYS, min_size=2, max_size=12, unique=True), data=st.data())
def test_a_run_out_of_order(keys: list[bytes], data: st.DataObject) -> None:
    run = [Entry(key, number + 1, PUT, b"") for number, key in enumerate(data.draw(st.permutations(keys)))]
    if run == in_order(run):
        assert len(merged([run], None)) == len(run)
        return
    with pytest.raises(Refused) as caught:
        merged([run, []], None, skip=0)
    assert caught.value.status == UNSORTED


@pytest.mark.parametrize("others", [[], [Entry(b"a", 99, PUT, b"")], [Entry(b"z", 99, PUT, b"")]])
def test_versions_of_a_key_from_old_to_new(others: Run) -> None:
    run = [Entry(b"k", 5, PUT, b""), Entry(b"k", 6, PUT, b"")]
    with pytest.raises(Refused) as caught:
        merged([others, run], None)
    assert caught.value.status == UNSORTED


@pytest.mark.parametrize("split", [False, True])
def test_one_version_of_a_key_twice(split: bool) -> None:
    twice = Entry(b"key", 7, PUT, b"")
    with pytest.raises(Refused) as caught:
        merged([[twice], [twice]] if split else [[twice, twice]], None)
    assert caught.value.status == SAME_VERSION


@settings(max_examples=60, deadline=None)
@given(runs=st.lists(st.lists(KEYS, max_size=6), max_size=4), stem=st.binary(max_size=20))
def test_the_common_prefix(runs: list[list[bytes]], stem: bytes) -> None:
    keys = [[stem + key for key in sorted(run)] for run in runs]
    flat = [key for run in keys for key in run]
    ends = np.cumsum([0, *(len(run) for run in keys)]).astype(np.int64)
    array = np.frombuffer(b"".join(key + bytes(8) for key in flat) + bytes(SLACK), np.uint8).copy()
    key_start = np.cumsum([0, *(len(key) + 8 for key in flat)]).astype(np.int64)
    found = common_prefix(array, key_start, ends[:-1].copy(), ends[1:].copy())
    expected = 0
    while flat and expected < min(map(len, flat)) and len({key[: expected + 1] for key in flat}) == 1:
        expected += 1
    assert found == expected


def test_sequences_up_to_the_greatest() -> None:
    """56 bits of sequence: as signed numbers the newest would come last."""
    runs = [[Entry(b"k", (1 << 56) - 1, PUT, b"new")], [Entry(b"k", 1, PUT, b"old")]]
    assert merged(runs, None) == merged(runs[::-1], None) == [(b"k", b"new")]
