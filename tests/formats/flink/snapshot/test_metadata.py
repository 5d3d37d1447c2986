"""Metadata of savepoints and checkpoints: those that Flink wrote, and versions written by hand."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import strategies as st
from support.flink import metadata_bytes as made
from support.flink.fixtures import MORE_NAMES, NAMES, fixture, manifest, snapshots
from support.flink.metadata_bytes import MAGIC, Operator, i32, i64, metadata, properties, subtask, utf
from support.flink.snapshot_reads import files_at, rocks_of, streams_of
from support.parameters import named, thinned
from support.properties import few_or_many

from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.flink.snapshot.handles import (
    ChangelogHandle,
    ChangeSet,
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
    stream_size,
    unreadable,
)
from statestore.formats.flink.snapshot.metadata import OperatorSnapshot, SnapshotMetadata, Subtask, parse_metadata
from statestore.formats.flink.snapshot.operator_ids import is_operator_id, operator_id

VERSIONS = [3, 4, 5, 6]


def read(name: str, path: str) -> SnapshotMetadata:
    return parse_metadata((fixture(name) / path / "_metadata").read_bytes(), path)


def keyed_of(found: SnapshotMetadata) -> list[KeyedHandle]:
    handles = [subtask.managed_keyed for operator in found.operators for subtask in operator.subtasks]
    return [handle for handle in handles if handle is not None]


@pytest.mark.parametrize("name", NAMES)
def test_metadata_of_flink_says_what_the_manifest_says(name: str) -> None:
    for facts in manifest(name)["snapshots"]:
        found = read(name, facts["path"])
        check_facts(name, facts, found)
        check_key_groups(found)


def check_facts(name: str, facts: dict[str, Any], found: SnapshotMetadata) -> None:
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


def check_key_groups(found: SnapshotMetadata) -> None:
    """Check that every key group with state is in one subtask."""
    for operator in found.operators:
        handles = [subtask.managed_keyed for subtask in operator.subtasks if subtask.managed_keyed is not None]
        covered = [group for each in handles for group in range(each.first_group, each.first_group + each.groups)]
        assert sorted(covered) == (list(range(operator.max_parallelism)) if handles else [])


def test_the_form_of_keyed_state_is_that_of_the_kind_of_snapshot() -> None:
    for name, facts in snapshots():
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


def test_keyed_state_of_the_changelog_backend_names_its_changes() -> None:
    found = read("changelog", manifest("changelog")["snapshots"][0]["path"])
    handles = keyed_of(found)
    assert [type(handle) for handle in handles] == [ChangelogHandle] * 2
    for handle in handles:
        assert isinstance(handle, ChangelogHandle)
        assert handle.materialized == ()
        assert [type(each) for each in handle.changes] == [ChangeSet]
        assert handle.size > 0


def test_changes_without_a_changelog_are_refused_by_name() -> None:
    error = unreadable(
        UnreadableHandle(10, 0, 2, "changes in files without a changelog"), "folder/_metadata, operator a"
    )
    assert error.code == "FLINK_UNSUPPORTED"
    assert "operator a: found handle type 10 (changes in files without a changelog)" in error.message
    assert "take a canonical savepoint" in error.message


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


def test_version_2_has_neither_coordinators_nor_channels() -> None:
    keyed = made.key_groups(3, 0, [0, 55], made.in_place(b"state", "name"))
    operator = Operator(subtasks=[subtask(1, keyed=keyed, version=2), subtask(0, version=2)], parallelism=2)
    found = parse_metadata(metadata(operator, version=2, masters=[b"state"]), "_metadata")
    assert (found.version, found.checkpoint_id, found.is_savepoint) == (2, 7, None)
    (one,) = found.operators
    assert (one.id, one.parallelism, one.max_parallelism, one.finished) == (operator.id, 2, 128, False)
    handle = KeyGroupHandle("heap", 0, (0, 55), InPlace("name", b"state"))
    assert one.subtasks == (Subtask(1, False, handle), Subtask(0, False))
    refused(metadata(Operator(subtasks=[subtask(version=2, states=1)]), version=2))
    refused(metadata(Operator(subtasks=[subtask(-1, version=2)]), version=2))
    refused(metadata(Operator(subtasks=None), version=2))


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
    assert (read_handle.first_group, read_handle.groups) == (0, 2)
    if kind in (8, 14):
        heap = KeyGroupHandle("heap", 0, (0, 0), RelativeHandle("heap", 1))
        assert read_handle == ChangelogHandle(0, 2, (heap,), (), 0)
    else:
        assert isinstance(read_handle, UnreadableHandle) and read_handle.type == kind
    assert found.operators[1].uid == "other"


@cache
def whole() -> dict[str, bytes]:
    """The metadata of each snapshot of the fixtures."""
    return {
        f"{name}-{facts['kind']}-{facts['checkpoint_id']}": (fixture(name) / facts["path"] / "_metadata").read_bytes()
        for name, facts in snapshots()
    }


LARGE = 2**31 - 1


def refused(data: bytes) -> str:
    """The message of the error that the bytes must give."""
    with pytest.raises((CorruptError, UnsupportedError)) as raised:
        parse_metadata(data, "folder/_metadata")
    assert raised.value.code in ("FLINK_METADATA", "FLINK_UNSUPPORTED")
    assert raised.value.message.startswith("folder/_metadata: ")
    assert "found" in raised.value.message
    return raised.value.message


def cuts(data: bytes) -> Iterator[int]:
    """Ends of truncated files: all near both ends, and some between."""
    yield from sorted({*range(60), *range(60, len(data), 997), *range(len(data) - 700, len(data), 97)})


def test_metadata_that_is_cut_short_or_has_more_bytes_behind_it_is_refused() -> None:
    for which, data in whole().items():
        with named(which):
            for end in cuts(data):
                refused(data[:end])
            assert "expected the end" in refused(data + b"\0")


@pytest.mark.slow
def test_metadata_that_is_cut_short_anywhere_is_refused() -> None:
    short = {which: data for which, data in whole().items() if len(data) < 10_000}
    for which, data in thinned(list(short.items()), 3):
        with named(which):
            for end in range(len(data)):
                refused(data[:end])


@few_or_many(
    100,
    5000,
    st.deferred(lambda: st.sampled_from(sorted(whole()))),
    st.lists(st.tuples(st.integers(0), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_changed_bytes_give_metadata_or_an_error_of_ours(which: str, changes: list[tuple[int, int]]) -> None:
    data = bytearray(whole()[which])
    for at, change in changes:
        data[at % len(data)] ^= change
    try:
        parse_metadata(bytes(data), "_metadata")
    except (CorruptError, UnsupportedError) as error:
        assert error.code in ("FLINK_METADATA", "FLINK_UNSUPPORTED")


@few_or_many(100, 5000, st.binary(max_size=200))
def test_any_bytes_behind_a_good_beginning_are_metadata_or_an_error_of_ours(tail: bytes) -> None:
    for version in (3, 4, 5, 6):
        try:
            parse_metadata(MAGIC + i32(version) + i64(1) + i32(0) + i32(1) + tail, "_metadata")
        except (CorruptError, UnsupportedError) as error:
            assert error.code in ("FLINK_METADATA", "FLINK_UNSUPPORTED")


def test_another_file_is_named_by_its_magic_number() -> None:
    assert "found magic number 0x50415231, expected 0x4960672D" in refused(b"PAR1" + bytes(100))
    assert "found" in refused(b"")


@pytest.mark.parametrize("version", [-1, 0, 1, 7, LARGE])
def test_other_versions_are_refused_by_number(version: int) -> None:
    with pytest.raises(UnsupportedError, match=f"found version {version} of the metadata, expected 2 to 6") as raised:
        parse_metadata(metadata(Operator(), version=version), "_metadata")
    assert raised.value.code == "FLINK_UNSUPPORTED"


def keyed(handle: bytes) -> bytes:
    return metadata(Operator(subtasks=[subtask(keyed=handle)]))


def operator_of(count: int) -> bytes:
    return b"\4" + i32(count) + utf("s") + b"\0" + i32(count) + made.in_place(b"")


UNKNOWN: dict[str, Callable[[int], bytes]] = {
    "stream": lambda kind: metadata(Operator(coordinator=bytes([kind]))),
    "keyed": lambda kind: keyed(bytes([kind])),
    "operator": lambda kind: metadata(Operator(subtasks=[subtask(operator=bytes([kind]))])),
    "channel": lambda kind: metadata(Operator(subtasks=[subtask(channels=[bytes([kind]) + bytes(20)])])),
}


@pytest.mark.parametrize("where", UNKNOWN)
@pytest.mark.parametrize("kind", [18, 99, 255])
def test_an_unknown_type_is_refused_with_its_byte_and_offset(where: str, kind: int) -> None:
    data = UNKNOWN[where](kind)
    with pytest.raises(UnsupportedError) as raised:
        parse_metadata(data, "_metadata")
    assert raised.value.code == "FLINK_UNSUPPORTED"
    at = int(raised.value.message.split("at byte ")[1].split(":")[0])
    assert data[at] == kind
    assert f"found type {kind} of" in raised.value.message


COUNTS: dict[str, Callable[[int], bytes]] = {
    "master states": lambda n: MAGIC + i32(6) + i64(1) + i32(n),
    "length of a master state": lambda n: MAGIC + i32(6) + i64(1) + i32(1) + bytes.fromhex("c96b1696") + i32(n),
    "operators": lambda n: MAGIC + i32(6) + i64(1) + i32(0) + i32(n) + bytes(100),
    "key groups": lambda n: keyed(b"\7" + i32(0, n) + bytes(200)),
    "first key group": lambda n: keyed(b"\7" + i32(n, 1) + bytes(200)),
    "bytes in place": lambda n: keyed(b"\7" + i32(0, 0) + b"\1" + utf("") + i32(n)),
    "files": lambda n: keyed(b"\5" + i64(1) + utf("") + i32(0, 1) + made.in_place(b"") + i32(n) + bytes(100)),
    "operator states": lambda n: metadata(Operator(subtasks=[subtask(operator=b"\4" + i32(n))])),
    "offsets": lambda n: metadata(Operator(subtasks=[subtask(operator=b"\4" + i32(1) + utf("s") + b"\0" + i32(n))])),
    "changelog": lambda n: keyed(b"\x08" + i32(0, 1) + i64(1) + i32(n) + bytes(100)),
    "changes": lambda n: keyed(b"\x09" + i32(0, 1) + i64(1, 1) + i32(n) + bytes(100)),
    "files of changes": lambda n: keyed(b"\x0a" + i32(0, 1) + i32(n) + bytes(100)),
    "channels": lambda n: metadata(Operator(subtasks=[i32(0, 0, 0) + b"\0\0" + i32(n)])),
    "parallelism": lambda n: metadata(Operator(max_parallelism=n if n > 0 else -2)),
}


@pytest.mark.parametrize("count", [LARGE, 1 << 30, 1 << 24, -1, -(2**31)])
def test_a_count_beyond_the_bytes_is_refused_before_memory_is_taken(count: int) -> None:
    for where, written in COUNTS.items():
        data = written(count)
        tracemalloc.start()
        try:
            with named(where):
                refused(data)
                assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()


def test_subtasks_beyond_the_bytes_are_refused() -> None:
    whole = metadata(Operator(subtasks=[]), version=3)
    assert whole.endswith(i32(0))
    assert f"found {LARGE} subtasks" in refused(whole[:-4] + i32(LARGE))


@pytest.mark.parametrize("size", [-1, -(2**63)])
def test_negative_sizes_are_refused(size: int) -> None:
    for stream in (made.relative("uuid", size), made.file("file:/x", size), made.segment("file:/x", size, 1)):
        assert f"found size {size}" in refused(keyed(made.key_groups(7, 0, [0], stream)))
    assert "found offset -1 of a key group" in refused(keyed(made.key_groups(7, 0, [-1], made.in_place(b""))))


def test_handles_inside_each_other_are_counted() -> None:
    deep = (b"\x03" + i32(0, 0)) * 70 + made.in_place(b"")
    assert "more than 64 handles inside each other" in refused(keyed(made.key_groups(7, 0, [0], deep)))
    changelogs = (b"\x08" + i32(0, 0) + i64(0) + i32(1)) * 5000
    assert "more than 64 handles inside each other" in refused(keyed(changelogs))


def test_a_key_group_in_two_subtasks_is_refused() -> None:
    """Its rows would be read twice."""
    for kind in (7, 12):
        handles = [made.key_groups(kind, first, [0] * 64, made.relative("uuid", 1)) for first in (63, 0)]
        managed = [subtask(number, keyed=handle) for number, handle in enumerate(handles)]
        raw = [subtask(number, raw=handle) for number, handle in enumerate(handles)]
        for parts in (managed, raw):
            assert "found key group 63 in two subtasks" in refused(metadata(Operator(subtasks=parts)))


def test_a_key_group_beyond_the_max_parallelism_is_refused() -> None:
    handle = made.key_groups(7, 100, [0] * 29, made.relative("uuid", 1))
    assert "found key group 128" in refused(keyed(handle))


def test_a_subtask_or_an_operator_that_is_there_twice_is_refused() -> None:
    assert "twice" in refused(metadata(Operator(subtasks=[subtask(1), i32(-2)])))
    assert "twice" in refused(metadata(Operator(), Operator()))


def test_a_missing_handle_is_refused() -> None:
    assert "found no handle for keyed state" in refused(keyed(b"\7" + i32(0, 0) + b"\0"))


def test_properties_must_be_one_whole_java_object() -> None:
    good = metadata(Operator())
    head = good[: -len(properties())]
    parse_metadata(good, "_metadata")
    text = b"\x74" + utf("x")
    class_of = b"\x72" + utf("C") + i64(1)
    for body in (
        b"",
        b"\xac\xed\x00\x04p",
        b"\xac\xed\x00\x05",
        b"\xac\xed\x00\x05\x7d",  # a proxy, which Flink's properties do not have
        b"\xac\xed\x00\x05\x71" + i32(0x7E0000),
        b"\xac\xed\x00\x05\x73\x70",
        b"\xac\xed\x00\x05" + text + text,
        b"\xac\xed\x00\x05\x75" + class_of.replace(b"C", b"[") + b"\2\0\0\x78\x70" + i32(LARGE),
        b"\xac\xed\x00\x05\x73" + class_of + b"\4\0\0\x78\x70",
        b"\xac\xed\x00\x05\x73" + class_of + b"\2\0\1Q" + utf("f"),
        b"\xac\xed\x00\x05" + b"\x73" * 5000,
        b"\xac\xed\x00\x05\x73" + class_of * 5000,
        b"\xac\xed\x00\x05\x73" + (class_of + b"\2\0\0\x78") * 5000,
        b"\xac\xed\x00\x05\x7c" + i64(2**62),
        b"\xac\xed\x00\x05\x7a" + i32(-1),
    ):
        refused(head + body)


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
