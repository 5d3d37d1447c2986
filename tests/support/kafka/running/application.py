"""Real applications of Kafka Streams, each a process of its own, with stores that a test describes.

What the stores answer has the form of ``truth.json`` (``tests/data/kafka``), so that readers are compared with a
running application as they are with recorded ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.kafka.running.broker import Broker, Record
from support.kafka.running.java_process import JavaProcess

Row = dict[str, Any]

MEMTABLE_BYTES = "small.tables.memtable.bytes"  # a small one, such as 65536, makes a running application write tables
TABLE_COMPRESSION = "small.tables.compression"  # RocksDB's name, such as LZ4_COMPRESSION

KINDS = {
    "key-value": "key-value",
    "in-memory": "in-memory-key-value",
    "headers-key-value": "headers-key-value",
    "table": "timestamped-key-value",
    "global": "global-timestamped-key-value",
    "versioned": "versioned",
    "windowed-count": "timestamped-window",
    "session-count": "session",
    "sliding-count": "timestamped-window",
    "closing-count": "time-ordered-timestamped-window",
    "closing-session-count": "time-ordered-session",
    "window": "window",
    "headers-window": "headers-window",
    "headers-session": "headers-session",
    "join": "window-duplicates",
}
IN_HEADERS_FORMAT = {  # kinds that the option dsl.store.format=HEADERS changes
    "table": "headers-key-value",
    "windowed-count": "headers-window",
    "session-count": "headers-session",
    "join": "headers-window-duplicates",
}


@dataclass(frozen=True)
class Part:
    """A topic of input and the store that it fills (a join: two of each). ``role`` is a key of KINDS; ``settings`` are
    what the role takes, all in milliseconds:

    - ``versioned``: ``history_retention_ms``, ``segment_interval_ms``
    - ``windowed-count``, ``sliding-count``, ``closing-count`` (emits when windows close): ``window_size_ms``,
      ``grace_ms``
    - ``session-count``, ``closing-session-count``: ``gap_ms``, ``grace_ms``
    - ``window``, ``headers-window``: ``window_size_ms``, ``retention_ms``; a record is put at the start of its window
    - ``headers-session``: ``session_size_ms``, ``retention_ms``; a record's session begins as its window would
    - ``join`` (inner, of two streams): ``difference_ms``, ``grace_ms``
    """

    name: str
    role: str
    key_serde: str
    input_serde: str
    settings: dict[str, int] = field(default_factory=dict)
    other_serde: str = "string"

    @property
    def inputs(self) -> dict[str, str]:
        """Serde of the values of each input, by its name."""
        own = {self.name: self.input_serde}
        return {**own, f"{self.name}-other": self.other_serde} if self.role == "join" else own

    def stores(self, application_id: str, headers_format: bool) -> list[dict[str, Any]]:
        """Stores of the part as ``truth.json`` describes them, without their partitions."""
        kind = (IN_HEADERS_FORMAT if headers_format else {}).get(self.role, KINDS[self.role])
        value = "long" if self.role.endswith("-count") else self.input_serde
        settings: dict[str, Any] = dict(self.settings)
        named = {self.name: value}
        if self.role in ("windowed-count", "sliding-count", "closing-count"):
            settings["retention_ms"] = settings["window_size_ms"] + settings["grace_ms"]
        elif self.role in ("session-count", "closing-session-count"):
            settings["retention_ms"] = settings["gap_ms"] + settings["grace_ms"]
        elif self.role == "join":
            size = 2 * settings.pop("difference_ms")
            settings |= {"window_size_ms": size, "retention_ms": size + settings["grace_ms"]}
            named = {f"{self.name}-this-join-store": value, f"{self.name}-other-join-store": self.other_serde}
        if "window" in kind:
            settings["retain_duplicates"] = self.role == "join"
        return [
            {
                "name": name,
                "kind": kind,
                "key_serde": self.key_serde,
                "value_serde": serde,
                **settings,
                "changelog": None if self.role == "global" else f"{application_id}-{name}-changelog",
            }
            for name, serde in named.items()
        ]


@dataclass(frozen=True)
class Written:
    """A record and where the broker put it."""

    partition: int
    offset: int
    record: Record


@dataclass(frozen=True)
class Description:
    """An application. ``config`` holds settings of Kafka Streams besides those of the harness (commits every 100 ms, no
    cache); MEMTABLE_BYTES and TABLE_COMPRESSION are settings, too. ``compression`` is that of all producers."""

    application_id: str
    parts: tuple[Part, ...]
    partitions: int = 2
    config: dict[str, str] = field(default_factory=dict)
    compression: str = "none"

    @property
    def headers_format(self) -> bool:
        """True if the DSL's stores have headers."""
        return self.config.get("dsl.store.format", "").upper() == "HEADERS"

    @property
    def stores(self) -> list[dict[str, Any]]:
        """Stores of all parts as ``truth.json`` describes them, without their partitions."""
        return [store for part in self.parts for store in part.stores(self.application_id, self.headers_format)]

    @property
    def inputs(self) -> dict[str, Part]:
        """The part that reads each input, by the input's name."""
        return {name: part for part in self.parts for name in part.inputs}

    def topic(self, name: str) -> str:
        """Topic of an input."""
        return f"{self.application_id}.{name}-in"

    def as_json(self) -> str:
        """The description as the program reads it."""
        inputs = [
            {"topic": self.topic(name), "global": part.role == "global", "store": part.name}
            for name, part in self.inputs.items()
        ]
        parts = [
            {
                "name": part.name,
                "role": part.role,
                "key_serde": part.key_serde,
                "input_serde": part.input_serde,
                "other_serde": part.other_serde,
                **part.settings,
            }
            for part in self.parts
        ]
        config = {**self.config, "producer.compression.type": self.compression}
        return json.dumps(
            {
                "application_id": self.application_id,
                "config": config,
                "inputs": inputs,
                "parts": parts,
                "stores": self.stores,
            }
        )


class Application:
    """An application on one state directory, which can be started, closed and killed again and again.

    ``written`` has the records of each input in the order in which they were put.
    """

    def __init__(self, class_path: str, folder: Path, broker: Broker, description: Description) -> None:
        self.description, self.broker = description, broker
        self.written: dict[str, list[Written]] = {name: [] for name in description.inputs}
        self.state_directory = folder / "state" / description.application_id
        self._class_path, self._folder = class_path, folder
        self._process: JavaProcess | None = None
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "application.json").write_text(description.as_json(), encoding="utf-8")
        broker.create_topics([description.topic(name) for name in description.inputs], description.partitions)

    @property
    def process(self) -> JavaProcess:
        """The running process."""
        assert self._process is not None, "the application does not run"
        return self._process

    @property
    def topology(self) -> str:
        """Kafka's description of the topology, as ``Topology.describe()`` prints it."""
        described: str = self.process.ready["topology"]
        return described

    def start(self) -> None:
        """Start the application; return when all its tasks run."""
        assert self._process is None, "the application runs"
        description, state = self._folder / "application.json", self.state_directory.parent
        arguments = (str(description), self.broker.address, str(state))
        self._process = JavaProcess(self._class_path, self._folder, "Application", *arguments)
        assert self._process.ready["state_directory"] == str(self.state_directory)

    def put(self, name: str, records: Sequence[Record]) -> None:
        """Write records to an input."""
        part = self.description.inputs[name]
        serdes = (part.key_serde, part.inputs[name])
        places = self.broker.put(self.description.topic(name), records, serdes, self.description.compression)
        self.written[name] += [Written(*place, record) for place, record in zip(places, records, strict=True)]

    def wait(self) -> None:
        """Return when all records are processed and committed, and RocksDB has nothing to do in the background."""
        self.process.ask("wait")

    def flush(self) -> None:
        """Write all that the stores hold in memory to table files. A commit does not: see KIP-1035."""
        self.process.ask("flush")

    def truth(self) -> dict[str, Any]:
        """What the stores answer, in the form of ``truth.json``; a versioned store for each key that was put, and
        as of each time at which it was put, just before and just after."""
        versioned = {part.name: self._keys(part.name) for part in self.description.parts if part.role == "versioned"}
        found = self.process.ask("answers", versioned=versioned)
        self.wait()  # RocksDB may compact when the snapshots of queries for versions are released
        return {
            "application_id": self.description.application_id,
            "kafka_version": self.process.ready["kafka_version"],
            "config": self.description.config,
            "partitions": self.description.partitions,
            "stores": [{**store, "partitions": found[store["name"]]} for store in self.description.stores],
        }

    def _keys(self, name: str) -> list[dict[str, Any]]:
        times: dict[tuple[int, Any], set[int]] = {}
        for each in self.written[name]:
            time = each.record.timestamp
            times.setdefault((each.partition, each.record.key), set()).update((time - 1, time, time + 1))
        return [{"partition": at, "key": key, "times": sorted(each)} for (at, key), each in times.items()]

    def changelog(self, store: str) -> str:
        """The changelog topic of a store; of a global store, its input."""
        found = next(each for each in self.description.stores if each["name"] == store)
        return found["changelog"] or self.description.topic(store)

    def close(self) -> None:
        """Close the application cleanly, and end its process."""
        self.process.ask("close")
        self.kill()

    def kill(self) -> None:
        """End the process with SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process = None


def table_files(application: Application) -> list[Path]:
    """RocksDB's table files in the state directory."""
    return sorted(application.state_directory.rglob("*.sst"))


def answers(application: Application) -> dict[str, list[Row]]:
    """All rows of each store, partition by partition, in the store's order: ``key``, ``value`` and, by the kind of the
    store, ``timestamp``, ``headers``, ``start`` and ``end``, ``valid_from``."""
    return rows(application.truth())


def rows(truth: dict[str, Any]) -> dict[str, list[Row]]:
    """All rows of each store in what ``truth()`` returned."""
    return {
        store["name"]: [row for partition in store["partitions"] for row in partition["rows"]]
        for store in truth["stores"]
    }


@contextmanager
def running_application(
    class_path: str, folder: Path, broker: Broker, description: Description
) -> Iterator[Application]:
    """A started application with its files below ``folder``. Its process is killed at the end, come what may."""
    application = Application(class_path, folder, broker, description)
    try:
        application.start()
        yield application
    finally:
        application.kill()
