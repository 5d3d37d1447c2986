"""Files and names in a state directory of Kafka Streams."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import few_or_many

from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.kafka.directory.state_directory import (
    StorePath,
    changelog_topic,
    decode_process_metadata,
    decode_store_path,
    decode_task,
    encode_process_metadata,
    encode_store_path,
)
from statestore.formats.kafka.directory.task_offsets import decode_offsets, encode_offsets
from statestore.formats.kafka_rows import time_segments as segments

NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,8}", fullmatch=True)


# Offset files


@few_or_many(
    25,
    100,
    offsets=st.dictionaries(
        NAMES, st.dictionaries(st.integers(0, 9), st.none() | st.integers(0, 2**63 - 1), min_size=1), max_size=3
    ),
)
def test_offset_files_come_back(offsets: dict[str, dict[int, int | None]]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


@pytest.mark.parametrize(
    "text", ["0\r\n1\r\nt 0 5\r\n", "0\n1\nt 0 5", "0\n1\nt \t 0  5 \n", "0\n2\nt 0 5\nt 1 -7\n", "+0\n1\nt 0 +5\n"]
)
def test_whatever_kafka_accepts_is_accepted(text: str) -> None:
    """Other line ends and runs of white space; an offset below 0 that is not -4 counts as absent."""
    assert decode_offsets(text) == {"t": {0: 5}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "0",
        "0\n",
        "x\n0\n",
        "0\nx\n",
        "0\n-1\n",
        " 0\n1\nt 0 5\n",
        "0\n1\n\n",
        "0\n1\nt 0 5\n\n",
        "0\n1\n t 0 5\n",
        "0\n1\nt 0\n",
        "0\n1\nt 0 5 6\n",
        "0\n1\nt x 5\n",
        "0\n1\nt 0 1_0\n",
        "0\n1\nt -1 5\n",
        "0\n1\nt 2147483648 5\n",
        "0\n1\nt 0 9223372036854775808\n",
        "0\n2\nt 0 5\nt 0 5\n",
        "0\n0\nt 0 5\n",
    ],
)
def test_other_texts_are_no_offset_files(text: str) -> None:
    with pytest.raises(CorruptError, match=r"KAFKA_FILE.*s.position: found.*expected"):
        decode_offsets(text, "s.position")


def test_an_offset_file_is_utf_8() -> None:
    assert decode_offsets("0\n1\nté 0 5\n".encode()) == {"té": {0: 5}}
    with pytest.raises(CorruptError, match=r"KAFKA_FILE.*expected UTF-8"):
        decode_offsets(b"0\n1\n\xff 0 5\n")


@given(data=st.binary(max_size=20))
def test_any_bytes_are_an_offset_file_or_refused(data: bytes) -> None:
    try:
        decode_offsets(b"0\n1\n" + data)
    except CorruptError as error:
        assert error.code == "KAFKA_FILE"


# Process metadata


def test_process_metadata_ignores_other_fields() -> None:
    process = UUID(int=7)
    assert decode_process_metadata(encode_process_metadata(process)) == process
    assert decode_process_metadata(json.dumps({"new": [], "processId": str(process)}).encode()) == process
    assert decode_process_metadata("{}") is None
    assert decode_process_metadata('{"processId": null}') is None


@pytest.mark.parametrize("text", ["", "[]", "7", '{"processId": 7}', '{"processId": "x"}', '{"processId"', "[" * 9999])
def test_other_texts_are_no_process_metadata(text: str) -> None:
    with pytest.raises(CorruptError, match=r"KAFKA_FILE.*kafka-streams-process-metadata: found"):
        decode_process_metadata(text)


# Segments


@given(store=NAMES, number=st.integers(0, 10**6), interval=st.integers(1, 10**6), spelling=st.sampled_from(".:"))
def test_segment_names_come_back(store: str, number: int, interval: int, spelling: segments.Spelling) -> None:
    name = segments.encode_time_segment_name(store, number, interval, spelling)
    assert segments.decode_time_segment_name(store, name, interval) == (number * interval, number)
    assert segments.decode_time_segment_name(store, name).number is None


@given(store=NAMES, number=st.integers(0, 10**6), minutes=st.integers(1, 1440))
def test_segment_names_of_minutes_come_back(store: str, number: int, minutes: int) -> None:
    interval = minutes * segments.MINUTE
    name = segments.encode_time_segment_name(store, number, interval, "-")
    assert segments.decode_time_segment_name(store, name, interval) == (number * interval, number)
    assert segments.decode_original_time_segment_name(name) == (store, number * interval)


def test_a_segment_name_of_2016() -> None:
    assert segments.encode_time_segment_name("win", 1, 1_480_000_000_000 // 60_000 * 60_000, "-") == "win-201611241506"


@pytest.mark.parametrize(
    "name",
    [
        "win",
        "win.",
        "win.x",
        "win.1_0",
        "win. 1",
        "win.9223372036854775808",
        "win_60000",
        "wine.60000",
        "other.60000",
        "win-60000",
        "win-201613010000",
        "win-000001010000",
        "win-2016010100000",
        "",
    ],
)
def test_other_names_are_no_segments(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"SEGMENT_NAME.*expected win\.<ms>"):
        segments.decode_time_segment_name("win", name, 60_000)


@pytest.mark.parametrize("name", ["win", "-201601010000", "win-201613010000", "win-2016"])
def test_other_names_are_no_segments_of_2016(name: str) -> None:
    assert segments.decode_original_time_segment_name(name) is None


@pytest.mark.parametrize(("time", "number"), [(0, 0), (59, 0), (60, 1), (-1, 0), (-59, 0), (-60, -1), (-61, -1)])
def test_segments_are_counted_toward_zero(time: int, number: int) -> None:
    assert segments.time_segment(time, 60) == number


def test_intervals_of_window_stores() -> None:
    assert segments.interval_of_time_segments(300_000, 3) == 150_000
    assert segments.interval_of_time_segments(60_000, 3) == segments.MINUTE
    assert segments.original_retention(1_000, 2_000, 60_000, 3) == (60_000, 60_000)
    assert segments.original_retention(100_000, 50_000, 60_000, 3) == (300_002, 150_001)
    with pytest.raises(InvalidInputError, match="SEGMENT_COUNT"):
        segments.interval_of_time_segments(60_000, 1)


# Paths


@given(
    application=NAMES,
    task=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 99)),
    store=NAMES,
    time_segment=st.none() | st.integers(0, 9),
    front=st.sampled_from(["", "/", "/tmp/kafka-streams/"]),
)
def test_paths_come_back(
    application: str, task: tuple[int, int] | None, store: str, time_segment: int | None, front: str
) -> None:
    layout, name = ("keyvalue-or-versioned", None) if time_segment is None else ("segment", f"{store}.{time_segment}")
    subtopology, partition = task or (None, None)
    path = StorePath(application, subtopology, partition, store, layout, None, name)  # type: ignore[arg-type]
    assert decode_store_path(front + encode_store_path(path)) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "app/0_3",
        "0_3/rocksdb/counts",
        "app/0_3/counts",
        "app/x/rocksdb/counts",
        "app/0_/rocksdb/counts",
        "app/0_3/win/other.60000",
        "app/0_3/win/win.60000/000012.sst",
    ],
)
def test_other_paths_are_no_stores(path: str) -> None:
    with pytest.raises(InvalidInputError, match=r"STORE_PATH.*expected <application>/<task>"):
        decode_store_path(path)


def test_tasks_and_topics() -> None:
    assert decode_task("12_345") == (12, 345)
    assert [decode_task(name) for name in ("12", "1_2_3", "a_1", "-1_2", "\u0661_\u0662")] == [None] * 5
    assert changelog_topic("app", "counts", "topo") == "app-topo-counts-changelog"
