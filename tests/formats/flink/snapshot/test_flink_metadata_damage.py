"""Damaged and forged metadata: our errors, whatever the bytes are, and no memory for counts that cannot be true."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import strategies as st
from support.flink import metadata_bytes as made
from support.flink.fixtures import fixture, snapshots
from support.flink.metadata_bytes import MAGIC, Operator, i32, i64, metadata, properties, subtask, utf
from support.parameters import named
from support.properties import few_or_many

from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.flink.snapshot.metadata import parse_metadata

WHOLE = {
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
    yield from sorted({*range(60), *range(60, len(data), 397), *range(len(data) - 700, len(data), 23)})


@pytest.mark.parametrize("which", WHOLE)
def test_metadata_that_is_cut_short_is_refused(which: str) -> None:
    for end in cuts(WHOLE[which]):
        refused(WHOLE[which][:end])


@pytest.mark.slow
@pytest.mark.parametrize("which", [which for which in WHOLE if len(WHOLE[which]) < 10_000])
def test_metadata_that_is_cut_short_anywhere_is_refused(which: str) -> None:
    for end in range(len(WHOLE[which])):
        refused(WHOLE[which][:end])


@pytest.mark.parametrize("which", WHOLE)
def test_metadata_with_more_bytes_behind_it_is_refused(which: str) -> None:
    assert "expected the end" in refused(WHOLE[which] + b"\0")


@few_or_many(
    300,
    5000,
    st.sampled_from(sorted(WHOLE)),
    st.lists(st.tuples(st.integers(0), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_changed_bytes_give_metadata_or_an_error_of_ours(which: str, changes: list[tuple[int, int]]) -> None:
    data = bytearray(WHOLE[which])
    for at, change in changes:
        data[at % len(data)] ^= change
    try:
        parse_metadata(bytes(data), "_metadata")
    except (CorruptError, UnsupportedError) as error:
        assert error.code in ("FLINK_METADATA", "FLINK_UNSUPPORTED")


@few_or_many(200, 5000, st.binary(max_size=200))
def test_any_bytes_behind_a_good_beginning_are_metadata_or_an_error_of_ours(tail: bytes) -> None:
    for version in (3, 4, 5, 6):
        try:
            parse_metadata(MAGIC + i32(version) + i64(1) + i32(0) + i32(1) + tail, "_metadata")
        except (CorruptError, UnsupportedError) as error:
            assert error.code in ("FLINK_METADATA", "FLINK_UNSUPPORTED")


def test_another_file_is_named_by_its_magic_number() -> None:
    assert "found magic number 0x50415231, expected 0x4960672D" in refused(b"PAR1" + bytes(100))
    assert "found" in refused(b"")


@pytest.mark.parametrize("version", [-1, 0, 1, 2, 7, LARGE])
def test_other_versions_are_refused_by_number(version: int) -> None:
    with pytest.raises(UnsupportedError, match=f"found version {version} of the metadata, expected 3 to 6") as raised:
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
