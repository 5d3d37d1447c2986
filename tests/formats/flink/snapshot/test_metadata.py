"""Metadata of savepoints and checkpoints: those that Flink wrote, and versions written by hand."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from support.flink import metadata_bytes as made
from support.flink.fixtures import NAMES, fixture, manifest, snapshots
from support.flink.metadata_bytes import Operator, i32, i64, metadata, subtask, utf

from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.snapshot.handles import (
    EmptyHandle,
    FileHandle,
    InPlace,
    KeyedHandle,
    KeyGroupHandle,
    OperatorHandle,
    OperatorStateOffsets,
    RelativeHandle,
    RocksHandle,
    SegmentHandle,
    UnreadableHandle,
    unreadable,
)
from statestore.formats.flink.snapshot.metadata import SnapshotMetadata, Subtask, parse_metadata
from statestore.formats.flink.snapshot.operator_ids import is_operator_id, operator_id

SNAPSHOTS = snapshots()
VERSIONS = [3, 4, 5, 6]


def read(name: str, path: str) -> SnapshotMetadata:
    return parse_metadata((fixture(name) / path / "_metadata").read_bytes(), path)


def keyed_of(found: SnapshotMetadata) -> list[KeyedHandle]:
    handles = [subtask.managed_keyed for operator in found.operators for subtask in operator.subtasks]
    return [handle for handle in handles if handle is not None]


@pytest.mark.parametrize(("name", "facts"), SNAPSHOTS, ids=lambda value: value if isinstance(value, str) else "")
def test_metadata_of_flink_says_what_the_manifest_says(name: str, facts: dict[str, Any]) -> None:
    found = read(name, facts["path"])
    assert found.version == facts["metadata_version"]
    assert found.checkpoint_id == facts["checkpoint_id"]
    assert found.is_savepoint == facts["kind"].startswith("savepoint")
    assert found.is_unaligned == (name == "unaligned")
    ids = manifest(name)["operator_ids"]
    assert set(ids.values()) <= {operator.id for operator in found.operators}
    if found.version == 6:
        stored = {operator.uid: operator.id for operator in found.operators if operator.uid}
        assert ids.items() <= stored.items()
        assert stored == {uid: operator_id(uid) for uid in stored}
        assert all(operator.name for operator in found.operators)
    else:
        assert {(operator.uid, operator.name) for operator in found.operators} == {(None, None)}


@pytest.mark.parametrize(("name", "facts"), SNAPSHOTS, ids=lambda value: value if isinstance(value, str) else "")
def test_every_key_group_with_state_is_in_one_subtask(name: str, facts: dict[str, Any]) -> None:
    for operator in read(name, facts["path"]).operators:
        handles = [subtask.managed_keyed for subtask in operator.subtasks if subtask.managed_keyed is not None]
        covered = [group for each in handles for group in range(each.first_group, each.first_group + each.groups)]
        assert sorted(covered) == (list(range(operator.max_parallelism)) if handles else [])


def test_the_form_of_keyed_state_is_that_of_the_kind_of_snapshot() -> None:
    for name, facts in SNAPSHOTS:
        if name == "changelog":
            continue
        for handle in keyed_of(read(name, facts["path"])):
            if facts["kind"] == "savepoint-canonical":
                assert isinstance(handle, KeyGroupHandle) and handle.form == "savepoint"
            elif "hashmap" in name:
                assert isinstance(handle, KeyGroupHandle) and handle.form == "heap"
            else:
                assert isinstance(handle, RocksHandle)
                assert [pair for pair, _ in handle.private if pair == "CURRENT"] == ["CURRENT"]
                assert all(pair.endswith(".sst") for pair, _ in handle.shared)


def test_timers_on_the_heap_are_raw_keyed_state() -> None:
    facts = manifest("heap-timers")["snapshots"][0]
    subtasks = [each for operator in read("heap-timers", facts["path"]).operators for each in operator.subtasks]
    raw = [each.raw_keyed for each in subtasks if each.raw_keyed is not None]
    assert raw
    assert all(isinstance(handle, KeyGroupHandle) and handle.form == "heap" for handle in raw)
    assert any(each.raw_keyed is not None and each.managed_keyed is None for each in subtasks)


def test_keyed_state_of_the_changelog_backend_is_there_and_refused_by_name() -> None:
    found = read("changelog", manifest("changelog")["snapshots"][0]["path"])
    handles = keyed_of(found)
    assert [type(handle) for handle in handles] == [UnreadableHandle] * 2
    assert isinstance(handles[0], UnreadableHandle)
    error = unreadable(handles[0], "folder/_metadata, operator kv-long")
    assert isinstance(error, UnsupportedError)
    assert error.code == "FLINK_UNSUPPORTED"
    assert "operator kv-long: found handle type 14" in error.message
    assert "changelog state backend: take a canonical savepoint" in error.message


def test_uids_give_the_ids_that_flink_stores() -> None:
    uids = {uid: number for name in NAMES for uid, number in manifest(name)["operator_ids"].items()}
    assert len(uids) >= 15
    assert {uid: operator_id(uid) for uid in uids} == uids
    assert all(map(is_operator_id, uids.values()))
    assert not is_operator_id("kv-long")


# Published results of the hash for seed 0, as two numbers; they have lengths that no uid of the fixtures has.
@pytest.mark.parametrize(
    ("uid", "numbers"),
    [
        ("", (0, 0)),
        ("hello", (0xCBD8A7B341BD9B02, 0x5B1E906A48AE1D19)),
        ("hello, world", (0x342FAC623A5EBC8E, 0x4CDCBC079642414D)),
        ("19 Jan 2038 at 3:14:07 AM", (0xB89E5988B737AFFC, 0x664FC2950231B2CB)),
        ("The quick brown fox jumps over the lazy dog.", (0xCD99481F9EE902C9, 0x695DA1A38987B6E7)),
    ],
)
def test_ids_of_uids_of_any_length(uid: str, numbers: tuple[int, int]) -> None:
    assert operator_id(uid) == b"".join(number.to_bytes(8, "little") for number in numbers).hex()


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_is_read(version: int) -> None:
    first = Operator(
        subtasks=[
            subtask(1, keyed=made.key_groups(7, 0, [0, 55], made.relative("uuid", 9))),
            i32(-1),
            subtask(2, raw=made.key_groups(12, 3, [-1, 4], made.in_place(b"timers", "name"))),
        ],
        name="Map",
        uid="map",
        parallelism=3,
        coordinator=made.in_place(b"coordinator"),
    )
    second = Operator("f" * 32, None, parallelism=1)
    found = parse_metadata(metadata(first, second, version=version, masters=[b"", b"state"]), "_metadata")
    assert (found.version, found.checkpoint_id) == (version, 7)
    assert found.is_savepoint is (None if version == 3 else False)
    one, two = found.operators
    assert (one.name, one.uid) == (("Map", "map") if version >= 5 else (None, None))
    assert (one.id, one.parallelism, one.max_parallelism, one.finished) == (first.id, 3, 128, False)
    assert one.subtasks == (
        Subtask(1, False, KeyGroupHandle("savepoint", 0, (0, 55), RelativeHandle("uuid", 9))),
        Subtask(0, True),
        Subtask(2, False, None, KeyGroupHandle("heap", 3, (-1, 4), InPlace("name", b"timers"))),
    )
    assert (two.finished, two.subtasks, two.name, two.uid) == (True, (), None, None)
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("version", VERSIONS)
def test_channel_states_are_counted(version: int) -> None:
    kind = b"\x01" if version == 6 else b""
    channel = kind + i32(0, 1, 2) + i32(2) + i64(5, 6) + i64(100) + made.relative("uuid", 100)
    operator = Operator(subtasks=[subtask(channels=[channel, channel])])
    found = parse_metadata(metadata(operator, version=version), "_metadata")
    assert found.is_unaligned
    assert (found.operators[0].subtasks[0].channels, found.operators[0].subtasks[0].channel_bytes) == (2, 200)


def test_merged_channel_states_are_counted() -> None:
    channel = b"\x03" + i32(0) + i64(70) + made.relative("uuid", 70) + i32(3) + b"abc"
    found = parse_metadata(metadata(Operator(subtasks=[subtask(channels=[channel])])), "_metadata")
    assert found.operators[0].subtasks[0].channel_bytes == 70


def test_operator_state_has_offsets_by_name() -> None:
    states = i32(2) + utf("union") + b"\1" + i32(2) + i64(3, 4) + utf("broad") + b"\2" + i32(0)
    expected = (OperatorStateOffsets("union", "union", (3, 4)), OperatorStateOffsets("broad", "broadcast", ()))
    for kind, tail in ((4, b""), (17, utf("owned") + utf("shared") + b"\0")):
        handle = bytes([kind]) + states + tail + made.segment("file:/a/b", 5, 6)
        found = parse_metadata(metadata(Operator(subtasks=[subtask(operator=handle)])), "_metadata")
        stream = SegmentHandle("file:/a/b", 5, 6, "logical")
        assert found.operators[0].subtasks[0].managed_operator == OperatorHandle(expected, stream)


def test_handles_of_older_releases_are_read() -> None:
    files = [("000001.sst", made.file("file:/base/shared/uuid", 3)), ("000002.sst", b"\x10")]
    nested = b"\x03" + i32(0, 1) + i64(0) + made.relative("inner", 2)
    old = made.rocksdb(0, 64, nested, files, [("CURRENT", made.in_place(b"x"))])
    heap = made.key_groups(3, 64, [0] * 64, made.relative("heap", 1))
    found = parse_metadata(metadata(Operator(subtasks=[subtask(0, keyed=old), subtask(1, keyed=heap)])), "_metadata")
    assert keyed_of(found) == [
        RocksHandle(
            9,
            "backend",
            0,
            64,
            RelativeHandle("inner", 2),
            (("000001.sst", FileHandle("file:/base/shared/uuid", 3)), ("000002.sst", EmptyHandle())),
            (("CURRENT", InPlace("bytes", b"x")),),
        ),
        KeyGroupHandle("heap", 64, (0,) * 64, RelativeHandle("heap", 1)),
    ]


@pytest.mark.parametrize("kind", [8, 9, 10, 13, 14])
def test_changelog_handles_leave_the_rest_of_the_metadata_readable(kind: int) -> None:
    changes = i32(2) + i32(0, 2) + b"ab" + i32(1, 0)
    files = i32(1) + i64(0) + made.relative("uuid", 4)
    inner = made.key_groups(3, 0, [0, 0], made.relative("heap", 1))
    body = {
        8: i64(10) + i32(1) + inner + i32(0) + i64(1) + utf("id"),
        9: i64(1, 2) + changes + utf("id"),
        10: files + i64(4, 4) + utf("id"),
        13: files + i64(4, 4) + utf("id") + utf("filesystem"),
        14: i64(10) + i32(1) + inner + i32(0) + i64(1) + i64(3) + utf("id"),
    }[kind]
    handle = bytes([kind]) + i32(0, 2) + body
    one = Operator(subtasks=[subtask(keyed=handle), subtask(1)])
    found = parse_metadata(metadata(one, Operator("f" * 32, uid="other")), "_metadata")
    (read_handle,) = keyed_of(found)
    assert isinstance(read_handle, UnreadableHandle)
    assert (read_handle.type, read_handle.first_group, read_handle.groups) == (kind, 0, 2)
    assert found.operators[1].uid == "other"
