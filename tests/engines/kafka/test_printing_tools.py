"""Random records of a real topic, printed by kcat, kafka-console-consumer and kafka-dump-log, are read as they were."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.kafka.running.broker import Broker
from support.kafka.running.java_process import LOGGING, OPTIONS

from statestore.formats.kafka.changelogs.export_forms import RecordOptions
from statestore.formats.kafka.changelogs.file_records import record_files

pytestmark = pytest.mark.slow
pytest_plugins = ["support.kafka.running.broker_fixtures"]

TOPIC = "shop-prices-changelog"
TEXTS = [b"", b"v", "é☃\U0001f600".encode(), b"null", b"a,b", b'{"n": 1, "t": "\\t"}', b"\x00\x01\x7f", b" "]
BREAKS = [b"a\tb", b"l1\nl2\n", b"\r", b" payload: x key: y", b"]"]
BYTES = [b"\xff", b"\xc3", b"\xf0\x9f\x98"]
HEADERS = [[], [("h", b"1")], [("h", b"1"), ("h", None), ("é", b"")]]
FIRST = 1_714_550_400_000
TOLD = ("partition", "offset", "timestamp", "key", "value")
Row = dict[str, Any]


def produced(broker: Broker, topic: str, cells: list[bytes], headers: list[Any], seed: int) -> list[Row]:
    """The records of a new topic, as a consumer gets them."""
    from confluent_kafka import Producer

    chance = random.Random(seed)
    broker.create_topics([topic], 2)
    producer = Producer({"bootstrap.servers": broker.address})
    choices: list[bytes | None] = [None, *cells]
    for n in range(200):
        key, value, header = chance.choice(choices), chance.choice(choices), chance.choice(headers)
        producer.produce(topic, value, key, chance.randrange(2), timestamp=FIRST + n, headers=header)
    producer.flush()
    return broker.records(topic)


def read(path: Path, options: RecordOptions) -> list[Row]:
    """The records of a file without headers, in the form of `Broker.records`."""
    batches = [each.batch(TOLD) for log in record_files(path, options=options) for each in log.read()]
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [{name: each.hex() if isinstance(each, bytes) else each for name, each in row.items()} for row in rows]


def told(records: list[Row]) -> list[Row]:
    return [{name: row[name] for name in TOLD} for row in records]


def java(programs: str, output: Path, *arguments: str) -> None:
    encoding = ("-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8")
    with output.open("wb") as file:
        command = ["java", *OPTIONS, LOGGING, *encoding, "-cp", programs, *arguments]
        subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=True)


def test_kcat(broker: Broker, tmp_path: Path) -> None:
    if shutil.which("kcat") is None:
        if os.environ.get("STATESTORE_KAFKA") == "required":
            pytest.fail("no kcat here, and STATESTORE_KAFKA=required")
        pytest.skip("no kcat here")
    records = produced(broker, "kcat", [*TEXTS, *BREAKS, *BYTES], HEADERS, 1)
    path = tmp_path / f"{TOPIC}.jsonl"
    with path.open("wb") as file:
        command = ["kcat", "-C", "-q", "-e", "-J", "-o", "beginning", "-t", "kcat", "-b", broker.address]
        subprocess.run(command, stdout=file, check=True)
    assert read(path, RecordOptions()) == told(records)


@pytest.mark.parametrize("separator", ["\t", " || "])
def test_console_consumer(programs: str, broker: Broker, tmp_path: Path, separator: str) -> None:
    topic = f"console-{len(separator)}"
    records = produced(broker, topic, [*TEXTS, *BYTES], HEADERS, 2)
    path = tmp_path / f"{TOPIC}.txt"
    shown = {"print.key": "true", "print.timestamp": "true", "print.partition": "true", "print.offset": "true"}
    shown |= {"print.headers": "true", "print.delivery": "true", "null.literal": "<none>", "key.separator": separator}
    properties = [each for name, text in shown.items() for each in ("--formatter-property", f"{name}={text}")]
    program = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    asked = ["--bootstrap-server", broker.address, "--topic", topic, "--from-beginning", "--max-messages", "200"]
    java(programs, path, program, *asked, *properties)
    assert read(path, RecordOptions(separator=separator, null="<none>")) == told(records)


def test_log_dump(programs: str, broker: Broker, tmp_path: Path) -> None:
    records = produced(broker, "dump", [*TEXTS, *BREAKS], HEADERS, 3)
    path = tmp_path / f"{TOPIC}.txt"
    files = [str(each) for partition in (0, 1) for each in broker.log_directory("dump", partition).glob("*.log")]
    java(programs, path, "org.apache.kafka.tools.DumpLogSegments", "--print-data-log", "--files", ",".join(files))
    assert read(path, RecordOptions()) == told(records)
