"""Snapshots of shapes that are rare: operator state, finished subtasks, other parallelisms, merged files."""

from __future__ import annotations

import pytest
from support.flink.fixtures import MORE_NAMES, fixture, manifest
from support.flink.snapshot_reads import files_at, rocks_of, streams_of

from statestore.formats.flink.snapshot.handles import KeyGroupHandle, RocksHandle, stream_size
from statestore.formats.flink.snapshot.metadata import OperatorSnapshot


def operators(name: str, index: int = 0) -> dict[str, OperatorSnapshot]:
    """The operators of a run's snapshot, by uid."""
    facts = manifest(name)
    uids = {number: uid for uid, number in facts["operator_ids"].items()}
    found = files_at(fixture(name) / facts["snapshots"][index]["path"]).metadata()
    return {uids[each.id]: each for each in found.operators if each.id in uids}


@pytest.mark.parametrize("name", MORE_NAMES)
def test_every_handle_has_its_bytes(name: str) -> None:
    for facts in manifest(name)["snapshots"]:
        files = files_at(fixture(name) / facts["path"])
        found = files.metadata()
        assert (found.version, found.checkpoint_id) == (facts["metadata_version"], facts["checkpoint_id"])
        for handle in streams_of(found):
            with files.open_at(handle) as part:
                assert part.size == stream_size(handle)
                assert len(part.read_at(0, part.size)) == part.size


def test_a_finished_operator_has_no_subtasks() -> None:
    found = operators("finished-rocksdb")
    assert len(found["short-keyed"].subtasks) == 0
    assert len(found["keyed"].subtasks) == 2


def test_states_of_an_operator_are_named_with_their_modes() -> None:
    found = operators("operator-rocksdb")
    states = [subtask.managed_operator for subtask in found["buffers"].subtasks]
    modes = {(state.name, state.mode) for handle in states if handle is not None for state in handle.states}
    assert modes == {("split", "split"), ("orders", "split"), ("union", "union"), ("empty", "split")}
    rules = [subtask.managed_operator for subtask in found["rules"].subtasks]
    modes = {(state.name, state.mode) for handle in rules if handle is not None for state in handle.states}
    assert modes == {("counts", "split"), ("rules", "broadcast"), ("pri\u00e7es", "broadcast")}


@pytest.mark.parametrize("name", ["rescaled-small", "rescaled-small-1.20"])
def test_key_groups_cover_the_maximum_after_each_restart(name: str) -> None:
    for facts in manifest(name)["snapshots"]:
        found = files_at(fixture(name) / facts["path"]).metadata()
        ranges: dict[str, list[tuple[int, int]]] = {}
        for operator, handle in rocks_of(found):
            ranges.setdefault(operator, []).append((handle.first_group, handle.groups))
        assert set(ranges) >= {manifest(name)["operator_ids"]["accounts"]}
        for parts in ranges.values():
            assert len(parts) == facts["parallelism"]
            assert sum(groups for _, groups in sorted(parts)) == 128


def test_a_snapshot_of_each_kind_of_backend_is_there() -> None:
    found = [each for name in MORE_NAMES for each in operators(name).values()]
    kinds = {type(subtask.managed_keyed) for each in found for subtask in each.subtasks}
    assert {KeyGroupHandle, RocksHandle} <= kinds


def test_records_in_flight_make_a_checkpoint_unaligned() -> None:
    for facts in manifest("in-flight")["snapshots"]:
        assert files_at(fixture("in-flight") / facts["path"]).metadata().is_unaligned
