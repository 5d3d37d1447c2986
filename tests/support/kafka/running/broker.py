"""A real broker of one node (KRaft) on the loopback interface, with its data in a folder of the test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.kafka.running.java_process import JavaProcess

STARTS = 3


@dataclass(frozen=True)
class Record:
    """A record to write. ``timestamp`` is in milliseconds; ``headers`` are pairs of name and bytes or None."""

    key: Any
    value: Any
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Broker:
    """A running broker. ``data`` holds a folder for each partition of a topic."""

    address: str
    data: Path
    process: JavaProcess

    def create_topics(self, names: Sequence[str], partitions: int) -> None:
        """Make topics that keep their records for ever, and the times that the producers gave them."""
        self.process.ask("create_topics", topics=list(names), partitions=partitions)

    def put(
        self, topic: str, records: Sequence[Record], serdes: tuple[str, str], compression: str = "none"
    ) -> list[tuple[int, int]]:
        """Write records to a topic; return the partition and offset of each."""
        rows = [
            {
                "key": record.key,
                "value": record.value,
                "timestamp": record.timestamp,
                "headers": [[name, None if value is None else value.hex()] for name, value in record.headers],
            }
            for record in records
        ]
        key_serde, value_serde = serdes
        places = self.process.ask(
            "put", topic=topic, key_serde=key_serde, value_serde=value_serde, compression=compression, records=rows
        )
        return [(partition, offset) for partition, offset in places]

    def records(self, topic: str) -> list[dict[str, Any]]:
        """Committed records of a topic in order of partition and offset: ``partition``, ``offset``, ``timestamp``,
        ``key``, ``value`` (hexadecimal digits or None), ``headers`` (pairs)."""
        found: list[dict[str, Any]] = self.process.ask("records", topic=topic)
        return found

    def log_directory(self, topic: str, partition: int) -> Path:
        """Folder of a partition's log segments, as the broker keeps them."""
        return self.data / f"{topic}-{partition}"


@contextmanager
def running_broker(class_path: str, folder: Path, *, compacting: bool = False) -> Iterator[Broker]:
    """A broker with its data below ``folder``. It is killed at the end, come what may.

    ``compacting``: topics are compacted as their settings say; by default records stay.
    """
    broker = _started(class_path, folder, *(["compacting"] if compacting else []))
    try:
        yield broker
    finally:
        broker.process.kill()


def _started(class_path: str, folder: Path, *options: str) -> Broker:
    for start in range(1, STARTS + 1):
        data = folder / f"data-{start}"
        try:
            process = JavaProcess(class_path, folder, "Broker", str(data), *options)
        except AssertionError as error:
            # Another process may have taken the controller's port between its choice and its use.
            if "BindException" not in str(error) or start == STARTS:
                raise
        else:
            return Broker(process.ready["address"], data, process)
    raise AssertionError("unreachable")
