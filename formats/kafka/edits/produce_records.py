"""Write the records of an edit to their topics, in one transaction: all of them or none.

    python produce.py HOST:PORT [--config FILE] [--expect-end TOPIC=PARTITION:OFFSET,...] [RECORDS]

RECORDS is a folder with a file <topic>.jsonl for each topic, by default the one of this program, or one file that has
the records of all topics. Stop the application first. It needs the package confluent-kafka, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

SECONDS = 30.0
TRIES = 4
TRANSACTION_MS = 300_000
"""The time for which a broker lets the transaction be open: a program that dies holds back readers for no longer."""
Headers = list[tuple[str, bytes | None]]
Record = tuple[str, int, int, bytes, bytes | None, Headers]
"""Topic, partition, timestamp, key, value and headers."""


def main(arguments: Sequence[str]) -> str:
    """Produce the records; return what was done. Raises SystemExit with what is wrong, and then nothing was written."""
    given = _parsed(arguments)
    place = Path(given.records)
    files = sorted(place.glob("*.jsonl")) if place.is_dir() else [place]
    wanted = _partitions(files)
    if not wanted:
        return f"{place}: no record, so nothing is to be done"
    config = {"bootstrap.servers": given.servers, **_config(given.config)}
    _check_topics(config, wanted, dict(map(_expected, given.expect_end)))
    try:
        count = write_all(config, (record for file in files for record in _records(file)))
    except OutcomeUnknown as error:
        sys.exit(f"{error}; the options --expect-end of the instructions keep a second run from writing twice")
    return f"{count} records written to {', '.join(wanted)}"


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", metavar="HOST:PORT")
    parser.add_argument("records", nargs="?", default=str(Path(__file__).parent), metavar="RECORDS")
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


def _partitions(files: Sequence[Path]) -> dict[str, set[int]]:
    """Return the partitions of each topic that get records."""
    found: dict[str, set[int]] = {}
    for file in files:
        for record in _records(file):
            found.setdefault(record[0], set()).add(record[1])
    return found


def _check_topics(
    config: dict[str, str], topics: Mapping[str, set[int]], expected: Mapping[str, dict[int, int]]
) -> None:
    """End the program where a topic is not there, or is no longer as it was when it was read.

    The end counts records of open transactions, too, so that one that was begun since is found.
    """
    from confluent_kafka import Consumer, TopicPartition

    own = {"group.id": "statestore-edit", "enable.auto.commit": "false", "isolation.level": "read_uncommitted"}
    consumer = Consumer({**config, **own})
    try:
        for topic, wanted in topics.items():
            found = consumer.list_topics(topic, timeout=SECONDS).topics[topic]
            if found.error is not None or not found.partitions:
                sys.exit(f"topic {topic}: {found.error or 'no partition'}; nothing was written")
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


class OutcomeUnknown(RuntimeError):
    """The broker has not said whether the transaction was committed."""


def write_all(config: Mapping[str, Any], records: Iterable[Record]) -> int:
    """Write records to their topics in one transaction, and return their number.

    Raises OutcomeUnknown where the broker did not answer the commit; after any other error nothing was written.
    """
    from confluent_kafka import Producer

    failed: list[Any] = []
    own = {"transactional.id": f"statestore-edit-{uuid.uuid4()}", "acks": "all"}
    producer = Producer({"transaction.timeout.ms": TRANSACTION_MS, **config, **own})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    count = 0
    try:
        for record in records:
            _send(producer, record, failed)
            count += 1
        producer.flush()
        if failed:
            raise RuntimeError(f"a record was not taken: {failed[0]}")
    except BaseException:
        producer.abort_transaction()
        raise
    _commit(producer)
    return count


def _commit(producer: Any) -> None:
    from confluent_kafka import KafkaException

    for _ in range(TRIES):
        try:
            producer.commit_transaction(SECONDS)
        except KafkaException as error:
            problem = error.args[0]
            if problem.txn_requires_abort():
                producer.abort_transaction()
                raise
            if not problem.retriable():
                raise OutcomeUnknown(f"{problem.str()}; whether the records were committed is unknown") from error
        else:
            return
    raise OutcomeUnknown(f"no answer to the commit in {TRIES * SECONDS:.0f} s; whether it was done is unknown")


def _send(producer: Any, record: Record, failed: list[Any]) -> None:
    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    topic, partition, timestamp, key, value, headers = record
    while True:
        try:
            producer.produce(
                topic,
                value,
                key,
                partition=partition,
                timestamp=timestamp,
                headers=headers,
                on_delivery=delivered,
            )
            break
        except BufferError:  # the queue is full
            producer.poll(SECONDS)
    producer.poll(0)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _records(file: Path) -> Iterator[Record]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            found: dict[str, Any] = json.loads(line)
            headers = [(each["name"], _bytes(each["value"])) for each in found["headers"]]
            key = bytes.fromhex(found["key"])
            topic = found.get("topic", file.stem)
            yield topic, found["partition"], found["timestamp"], key, _bytes(found["value"]), headers


if __name__ == "__main__":
    print(main(sys.argv[1:]))
