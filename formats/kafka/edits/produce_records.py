"""Write the records of an edit to their topics, in one transaction: all of them or none.

    python produce.py HOST:PORT [--config FILE] [--expect-end TOPIC=PARTITION:OFFSET,...] [FOLDER]

The records are those in the files <topic>.jsonl of the folder, by default the one of this program. Stop the application
first. It needs the package confluent-kafka, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SECONDS = 30.0


def main(arguments: Sequence[str]) -> str:
    """Produce the records; return what was done. Raises SystemExit with what is wrong, and then nothing was written."""
    given = _parsed(arguments)
    files = sorted(Path(given.folder).glob("*.jsonl"))
    if not files:
        return f"{given.folder}: no file of records, so nothing is to be done"
    config = {"bootstrap.servers": given.servers, **_config(given.config)}
    _check_topics(config, files, dict(map(_expected, given.expect_end)))
    count = _produce(config, files)
    return f"{count} records written to {', '.join(file.stem for file in files)}"


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", metavar="HOST:PORT")
    parser.add_argument("folder", nargs="?", default=str(Path(__file__).parent), metavar="FOLDER")
    parser.add_argument("--config", metavar="FILE", help="settings of the client, name=value on each line")
    parser.add_argument("--expect-end", action="append", default=[], metavar="TOPIC=PARTITION:OFFSET,...")
    return parser.parse_args(arguments)


def _config(path: str | None) -> dict[str, str]:
    lines = [] if path is None else Path(path).read_text("utf-8").splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, value in pairs}


def _expected(text: str) -> tuple[str, dict[int, int]]:
    topic, _, offsets = text.partition("=")
    return topic, {int(at): int(end) for at, end in (each.split(":") for each in offsets.split(","))}


def _check_topics(config: dict[str, str], files: Sequence[Path], expected: dict[str, dict[int, int]]) -> None:
    """End the program where a topic is not there, or is no longer as it was when it was read.

    The end counts records of open transactions, too, so that one that was begun since is found.
    """
    from confluent_kafka import Consumer, TopicPartition

    own = {"group.id": "statestore-edit", "enable.auto.commit": "false", "isolation.level": "read_uncommitted"}
    consumer = Consumer({**config, **own})
    try:
        for file in files:
            topic = file.stem
            found = consumer.list_topics(topic, timeout=SECONDS).topics[topic]
            if found.error is not None or not found.partitions:
                sys.exit(f"topic {topic}: {found.error or 'no partition'}; nothing was written")
            wanted = {record["partition"] for record in _records(file)}
            if not wanted <= set(found.partitions):
                sys.exit(f"topic {topic} has partitions {sorted(found.partitions)}, expected {sorted(wanted)}, too")
            for partition, end in expected.get(topic, {}).items():
                _, now = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=SECONDS)
                if now != end:
                    sys.exit(
                        f"partition {partition} of {topic} ends at offset {now}, expected {end}: it was written to "
                        "since the edit was made; stop the application, and make the edit anew; nothing was written"
                    )
    finally:
        consumer.close()


def _produce(config: dict[str, str], files: Sequence[Path]) -> int:
    from confluent_kafka import Producer

    failed: list[Any] = []
    producer = Producer({**config, "transactional.id": f"statestore-edit-{uuid.uuid4()}", "acks": "all"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    count = 0
    try:
        for file in files:
            for record in _records(file):
                _send(producer, file.stem, record, failed)
                count += 1
        producer.flush()
        if failed:
            raise RuntimeError(f"a record was not taken: {failed[0]}")
        producer.commit_transaction()
    except BaseException:
        producer.abort_transaction()
        raise
    return count


def _send(producer: Any, topic: str, record: dict[str, Any], failed: list[Any]) -> None:
    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    value = {
        "partition": record["partition"],
        "timestamp": record["timestamp"],
        "key": bytes.fromhex(record["key"]),
        "value": _bytes(record["value"]),
        "headers": [(each["name"], _bytes(each["value"])) for each in record["headers"]],
        "on_delivery": delivered,
    }
    while True:
        try:
            producer.produce(topic, **value)
            break
        except BufferError:  # the queue is full
            producer.poll(SECONDS)
    producer.poll(0)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _records(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


if __name__ == "__main__":
    print(main(sys.argv[1:]))
