"""Savepoints that real jobs left: from Kafka, and from files to files, with Flink 1.20.3.

The job of files wrote 40 lines of each of three files and counted to a billion, slowly; both sinks have open files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.archives import unpacked
from support.flink.snapshot_reads import rows_of, source_at
from support.paths import DATA

import statestore
from statestore.formats.errors import CorruptError, InvalidInputError, StateStoreError
from statestore.formats.flink.source import FlinkSource

SPLITS, WRITERS = "SourceReaderState", "writer_raw_states"
COMMITTERS = "streaming_committer_raw_states"


def place(name: str) -> Path:
    return unpacked(DATA / "flink" / "connectors.tar.xz") / name


def kafka(options: Mapping[str, str] | None = None) -> FlinkSource:
    return source_at(place("kafka-1.20"), {"uids": "events,last", **(options or {})})


def files() -> FlinkSource:
    return source_at(place("files-1.20"), {"uids": "files,slowly,sink,numbers,each,rolled"})


def rows(source: FlinkSource, state: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows_of(source, state).to_pylist()
    return found


def test_a_savepoint_says_where_it_stands_in_a_topic() -> None:
    found = {
        (each["topic"], each["partition"]): (each["offset"], each["offset_from"], each["stop_offset"], each["stop_at"])
        for each in rows(kafka(), f"events.{SPLITS}")
    }
    assert found == {
        ("opt-events", 0): (33, "offset", None, "none"),
        ("opt-events", 1): (167, "offset", None, "none"),
    }
    about = kafka().info(f"events.{SPLITS}").facts
    assert (about["written_by"], about["form"]) == ("a split of the Kafka source", "kafka_split")


def test_the_enumerator_of_the_source_has_the_partitions() -> None:
    found = rows(kafka(), "events.coordinator")
    assert sorted(each["partition"] for each in found) == [0, 1]
    assert {(each["topic"], each["assignment"]) for each in found} == {("opt-events", "assigned")}
    assert kafka().info("events.coordinator").kind == "coordinator state"


def test_statements_ask_for_offsets_of_a_topic() -> None:
    query = f'SELECT "partition", "offset" FROM "events.{SPLITS}" WHERE topic = \'opt-events\' AND "offset" > 40'
    source = str(place("kafka-1.20"))
    assert statestore.sql(source, query, uids="events").to_pylist() == [{"partition": 1, "offset": 167}]


@pytest.mark.parametrize("word", ["binary", "bytes"])
def test_the_bytes_of_a_known_form_are_shown_where_they_are_asked_for(word: str) -> None:
    found = rows(kafka({"type": f"events.{SPLITS}={word}"}), f"events.{SPLITS}")
    assert [each["value"][8:20] for each in found] == [b"\0\nopt-events"] * 2


def test_a_form_is_given_by_its_name() -> None:
    given = kafka({"type": f"{SPLITS}=kafka_split"})
    assert rows(given, f"events.{SPLITS}") == rows(kafka(), f"events.{SPLITS}")
    with pytest.raises(CorruptError, match="found version 0 of a split of the file source, expected 1 to 1"):
        rows(kafka({"type": f"events.{SPLITS}=file_split"}), f"events.{SPLITS}")


def test_a_type_is_that_of_the_bytes_behind_the_version() -> None:
    kind = "struct<topic: utf, partition: int, offset: bigint, stop: bigint>"
    found = rows(kafka({"type": f"events.{SPLITS}={kind}"}), f"events.{SPLITS}")
    assert [each["version"] for each in found] == [0, 0]
    assert sorted(each["value"]["offset"] for each in found) == [33, 167]
    with pytest.raises(StateStoreError, match="FLINK_ROW"):
        rows(kafka({"type": f"events.{SPLITS}=struct<topic: utf>"}), f"events.{SPLITS}")


def test_a_word_that_is_no_type_and_no_form_is_refused_with_the_forms() -> None:
    with pytest.raises(
        InvalidInputError, match="the forms of connectors are kafka_split, dynamic_kafka_split, file_split"
    ):
        kafka({"type": f"events.{SPLITS}=kafka"}).states()
    with pytest.raises(InvalidInputError, match="is a form of a connector, which does not fit"):
        kafka({"type": f"events.{SPLITS}=kafka_consumer"}).states()


def test_files_are_read_up_to_a_record() -> None:
    reading, waiting = rows(files(), f"files.{SPLITS}"), rows(files(), "files.coordinator")
    known = [each for each in waiting if each["state"] == "processed"]
    assert {Path(each["path"]).name for each in known} == {"part-0.txt", "part-1.txt", "part-2.txt"}
    assert len(reading) == 2 and all(0 < each["records_after_offset"] <= 40 for each in reading)
    assert all(each["reader_offset"] is None and each["file_bytes"] == each["length"] == 510 for each in reading)
    pending = [each["path"] for each in waiting if each["state"] == "pending"]
    assert sorted(pending + [each["path"] for each in reading]) == sorted(each["path"] for each in known)


def test_numbers_are_counted_up_to_the_next_one() -> None:
    found = {each["split_id"]: each for each in rows(files(), f"numbers.{SPLITS}")}
    assert {name: each["last_number"] for name, each in found.items()} == {"1": 500_000_000, "2": 1_000_000_000}
    assert 1 < found["1"]["next_number"] < 10_000 and 500_000_001 < found["2"]["next_number"] < 500_010_000


def test_a_file_sink_has_files_in_progress_and_files_to_commit() -> None:
    source = files()
    for each in rows(source, f"sink.{WRITERS}"):
        current = each["in_progress"]
        assert current["target"].startswith(each["path"])
        assert current["temporary"].replace("/.", "/").startswith(current["target"])
        assert current["bytes"] > 0 and current["stored"] is None and each["created"].year == 2026
    assert [each["in_progress"] for each in rows(source, f"rolled.{WRITERS}")] == [None, None]
    committers = [rows(source, name) for name in source.states() if name.endswith(COMMITTERS)]
    empty, whole = sorted(committers, key=lambda found: found[0]["expected"])
    assert [each["expected"] for each in empty] == [0, 0] and {each["checkpoint_id"] for each in empty} == {1}
    for each in whole:
        assert (each["expected"], each["state"], each["retries"], each["subtasks"]) == (1, "received", 0, 2)
        assert each["pending"]["target"].startswith("/tmp/files/rolled/") and each["pending"]["bytes"] > 0


def test_a_topic_that_kafka_cannot_have_is_bytes(tmp_path: Path) -> None:
    data = (place("kafka-1.20") / "_metadata").read_bytes()
    (tmp_path / "_metadata").write_bytes(data.replace(b"opt-events", b"opt events"))
    source = source_at(tmp_path, {"uids": "events,last"})
    assert source.states() == [f"events.{SPLITS}", "last._op_state"]
    assert all(b"opt events" in each["value"] for each in rows(source, f"events.{SPLITS}"))


def test_shards_of_the_kinesis_consumer_have_their_sequence_numbers() -> None:
    """Kryo wrote these; the connector's class is declared, or its jar given."""
    folder = unpacked(DATA / "flink" / "kinesis-consumer.tar.xz") / "kinesis-consumer"
    name = "org.apache.flink.streaming.connectors.kinesis.model.SequenceNumber"
    kind = f"class:{name}=class<String sequenceNumber, long subSequenceNumber, int cachedHash>"
    source = source_at(folder, {"uids": "src,shards", "type": kind})
    rows = [row["value"] for row in rows_of(source, "shards.Kinesis-Stream-Shard-State").to_pylist()]
    found = {row["f0"]["shardId"][-1]: (row["f1"]["sequenceNumber"], row["f1"]["subSequenceNumber"]) for row in rows}
    expected = {str(number): (f"49545986683{number}", -1) for number in range(6)}
    assert len(rows) == 6 and found == expected | {"3": ("LATEST_SEQUENCE_NUM", -1), "4": ("4954598", 7)}
    assert {row["f0"]["parentShardId"] for row in rows} == {"shardId-parent", None}
    assert {row["f0"]["streamName"] for row in rows} == {"orders"}
