"""Files and names in a state directory of Kafka Streams."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from support.parameters import named
from support.stores.kafka_vectors import encodings

from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.kafka.directory.state_directory import (
    changelog_topic,
    decode_process_metadata,
    decode_store_path,
    decode_task,
)

# Process metadata


def test_process_metadata_of_kafka() -> None:
    for case in encodings("file:process-metadata"):
        assert str(decode_process_metadata(case["text"])) == case["decoded"]["processId"]


def test_process_metadata_ignores_other_fields() -> None:
    process = UUID(int=7)
    assert decode_process_metadata(json.dumps({"new": [], "processId": str(process)}).encode()) == process
    assert decode_process_metadata("{}") is None
    assert decode_process_metadata('{"processId": null}') is None


@pytest.mark.parametrize("text", ["", "[]", "7", '{"processId": 7}', '{"processId": "x"}', '{"processId"', "[" * 9999])
def test_other_texts_are_no_process_metadata(text: str) -> None:
    with pytest.raises(CorruptError, match=r"KAFKA_FILE.*kafka-streams-process-metadata: found"):
        decode_process_metadata(text)


# Paths


def test_paths_of_stores() -> None:
    """Any path may precede the application's directory."""
    for case in encodings("path"):
        for front in ("", "/", "/tmp/kafka-streams/"):
            with named(case):
                found = decode_store_path(front + case["text"])
                parts = {n: value for n, value in vars(found).items() if value is not None and n != "time_segment"}
                assert parts == case["decoded"]


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
    for case in encodings("changelog-topic"):
        assert changelog_topic(**case["params"]) == case["text"]
    assert decode_task("12_345") == (12, 345)
    assert [decode_task(name) for name in ("12", "1_2_3", "a_1", "-1_2", "\u0661_\u0662")] == [None] * 5
    assert changelog_topic("app", "counts", "topo") == "app-topo-counts-changelog"
