"""Changelogs of real jobs with damaged bytes: rows, or a clear error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from struct import pack_into, unpack_from

import pytest
from support.flink.fixtures import copied, manifest
from support.flink.snapshot_reads import rows_of, source_at
from support.parameters import mostly_slow

from statestore.formats.errors import CorruptError, StateStoreError

RUNS = ("logged-windows-1.20", "logged-generic", "changelog")
CASES = [(run, seed) for run in RUNS for seed in range(60)]


@pytest.mark.parametrize(("run", "seed"), mostly_slow(CASES, [("logged-windows-1.20", 0), ("changelog", 1)]))
def test_damaged_changes_are_rows_or_a_clear_error(run: str, seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    folder = copied(run, tmp_path)
    for each in sorted(folder.rglob("*")):
        if not each.is_file() or "dstl" not in each.parts:
            continue
        data = bytearray(each.read_bytes())
        if random.random() < 0.2:
            del data[random.randrange(len(data)) :]
        for _ in range(random.randint(0, 4) if data else 0):
            data[random.randrange(len(data))] = random.randrange(256)
        each.write_bytes(data)
    source = source_at(folder / manifest(run)["snapshots"][0]["path"])
    try:
        states = source.states()
    except StateStoreError:
        return
    for state in states:
        try:
            rows_of(source, state)
        except StateStoreError as error:
            assert error.code in ("FLINK_FILE", "FLINK_ROW", "FLINK_METADATA", "FLINK_UNSUPPORTED", "FLINK_OPAQUE")


def changes_of_states(data: bytearray) -> Iterator[int]:
    """Yield where each change of a state begins, in a file whose sets are not packed."""
    at = 1
    while at < len(data):
        (groups,), at = unpack_from(">i", data, at), at + 4
        for _ in range(groups):
            (count, group), at = unpack_from(">ii", data, at), at + 8
            for _ in range(count):
                if group >= 0:
                    yield at + 4
                at += 4 + unpack_from(">i", data, at)[0]


@pytest.mark.parametrize("place", [0, -1], ids=["the first", "the last"])
def test_a_change_of_a_state_that_nothing_describes_is_refused(place: int, tmp_path: Path) -> None:
    folder = copied("changelog", tmp_path)
    for each in folder.rglob("*"):
        if each.is_file() and "dstl" in each.parts:
            data = bytearray(each.read_bytes())
            at = list(changes_of_states(data))[place]
            pack_into(">h", data, at + 1, 99)
            each.write_bytes(data)
    with pytest.raises(CorruptError, match=r"FLINK_FILE.*a change of state 99, which no change before it describes"):
        for state in (source := source_at(folder / manifest("changelog")["snapshots"][0]["path"])).states():
            rows_of(source, state)
