"""Changelogs of a running application are captured from a broker that compacts them, by processes that are killed."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.capture.followers import PATIENCE_S, Follower
from support.kafka.running.application import Application, Description, Part, Written, running_application
from support.kafka.running.broker import Broker, Record, running_broker
from support.kafka.unpacked import write_stores_file

import statestore
from statestore.catalog.stores.versioned.captured_store import CapturedStore

pytestmark = pytest.mark.slow
pytest_plugins = ["support.kafka.running.broker_fixtures"]

PARTS = (
    Part("stock", "key-value", "string", "string"),
    Part("prices", "table", "string", "string"),
    Part("menu", "versioned", "string", "string", {"history_retention_ms": 4_000, "segment_interval_ms": 2_000}),
)
COMPACTED = {  # segments of two seconds of stream time, of which each is cleaned as soon as it is full
    "topic.segment.ms": "2000",
    "topic.min.cleanable.dirty.ratio": "0.001",
    "topic.delete.retention.ms": "0",
}
KEYS = 24
ROUND_MS = 3_000
Key = tuple[str, int]


@dataclass(frozen=True)
class Run:
    """Rounds of records, in ``kills`` of which the capture is killed, and in ``stops`` it stands still."""

    name: str
    rounds: int
    kills: int
    stops: int
    records: int = 60

    def __str__(self) -> str:
        return f"{self.name}-{self.rounds}-rounds-{self.kills}-kills"


RUNS = (Run("few", 4, 1, 1), Run("many", 60, 20, 6))


@pytest.fixture(scope="module")
def broker(programs: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(programs, tmp_path_factory.mktemp("broker"), compacting=True) as broker:
        yield broker


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_every_captured_version_is_the_state_that_was(programs: str, broker: Broker, tmp_path: Path, run: Run) -> None:
    description = Description(f"shop-{run.name}", PARTS, config=COMPACTED)
    chance = random.Random(run.rounds)
    killed = set(chance.sample(range(1, run.rounds), run.kills))
    # Versioned stores are not compacted as long as their records are young, and would lose versions otherwise.
    start = time.time_ns() // 1_000_000 - run.rounds * ROUND_MS
    stopped = set(chance.sample([n for n in range(1, run.rounds) if n not in killed], run.stops))
    with running_application(programs, tmp_path / "app", broker, description) as application:
        source = f"kafka://{broker.address}"
        states = [option for part in PARTS for option in ("--state", application.changelog(part.name))]
        stores = str(write_stores_file(description.stores, tmp_path / "stores.toml"))
        options = [*states, "--stores-file", stores]
        follower = Follower(source, tmp_path / "w", tmp_path, *options)
        for number in range(run.rounds):
            if number in stopped:
                await_all(follower, application, tmp_path / "w")
                follower.stop()
            put_round(application, chance, run, number, start)
            if number in stopped:
                await_compaction(application)
            elif number in killed:
                follower.pause(chance.random())
                follower.kill()
            if number in stopped | killed:
                follower = Follower(source, tmp_path / "w", tmp_path, *options)
        application.wait()
        await_all(follower, application, tmp_path / "w")
        follower.stop()
        gaps = {part.name: check_versions(application, tmp_path / "w", part) for part in PARTS}
        assert gaps["stock"] and gaps["prices"] and not gaps["menu"]
        again = statestore.capture(
            source,
            tmp_path / "w",
            states=[application.changelog(part.name) for part in PARTS],
            stores_file=stores,
        )
        assert again.versions == 0


def put_round(application: Application, chance: random.Random, run: Run, number: int, start: int) -> None:
    """Put records of some three seconds into each input; a few are late, and some are tombstones."""
    for part in PARTS:
        records = []
        for i in range(run.records):
            late = chance.choice((0, 0, 0, 900, 5_000))
            moment = max(start + number * ROUND_MS + i * 50 - late, start)
            key = f"k{chance.randrange(KEYS)}"
            value = None if chance.random() < 0.3 else f"{part.name} {number}-{i}"
            records.append(Record(key, value, moment))
        application.put(part.name, records)


def await_compaction(application: Application) -> None:
    """Return when the cleaner has removed records of the changelogs that are compacted."""
    application.wait()
    for part in PARTS[:2]:
        looks = 0
        written = len(application.written[part.name])
        while len(application.broker.records(application.changelog(part.name))) > written // 2:
            looks += 1
            assert looks < 300, f"{part.name} is not compacted"


def prefixes(application: Application, part: Part) -> dict[int, list[Written]]:
    """The input of each partition, record by record that of the changelog."""
    found: dict[int, list[Written]] = {}
    for each in sorted(application.written[part.name], key=lambda each: each.offset):
        found.setdefault(each.partition, []).append(each)
    return found


def await_all(follower: Follower, application: Application, warehouse: Path) -> None:
    wanted = {application.changelog(part.name): len(application.written[part.name]) for part in PARTS}
    waited = 0.0
    while any(newest(warehouse, state) < count for state, count in wanted.items()):
        follower.pause(0.05)
        waited += 0.05
        assert waited < PATIENCE_S, follower.output()


def newest(warehouse: Path, state: str) -> int:
    try:
        return max(batches(warehouse, state), default=-1)
    except statestore.StateStoreError:
        return -1


def batches(warehouse: Path, state: str) -> list[int]:
    versions = statestore.inspect(warehouse).table(state).versions()
    return [number for number in versions["batch"].to_pylist() if number is not None]


def check_versions(application: Application, warehouse: Path, part: Part) -> int:
    """Compare each captured version with a model of the records before its offsets; return the number of gaps."""
    state = application.changelog(part.name)
    store = statestore.connect(warehouse).open_store(state)
    assert isinstance(store, CapturedStore)
    logged = prefixes(application, part)
    seen, gaps = [], 0
    for row in store.table.versions().to_pylist():
        if row["batch"] is None:
            continue
        places = {int(number): each["offset"] for number, each in json.loads(row["offsets"]).items()}
        until = {number: logged[number][:offset] for number, offset in places.items()}
        assert sum(places.values()) == row["batch"]
        found = store.scan(version=row["version"]).read_all().to_pylist()
        right = {key: value for key, value, _, end in intervals(part, until) if end is None}
        assert by_key(found) == right, (part.name, row["version"])
        seen.append(row["batch"])
        gaps += row["missing_from"] is not None
    assert seen == sorted(set(seen)) and seen[-1] == len(application.written[part.name])
    if not gaps:
        rows = store.history().read_all().to_pylist()
        past = {
            ((row["key"], row["partition_id"]), row["value"], _ms(row["valid_from"]), _ms(row["valid_to"]))
            for row in rows
        }
        assert past == intervals(part, logged) and len(past) == len(rows)
    return gaps


def by_key(rows: Sequence[dict[str, Any]]) -> dict[Key, str]:
    found = {(row["key"], row["partition_id"]): row["value"] for row in rows}
    assert len(found) == len(rows)
    return found


def intervals(part: Part, logged: dict[int, list[Written]]) -> set[tuple[Key, Any, int, int | None]]:
    """The values of each key with the times between which they held: those of versions, or stream time."""
    found = set()
    for number, records in logged.items():
        stream_time = -1
        times: dict[str, dict[int, Any]] = {}
        for each in records:
            stream_time = max(stream_time, each.record.timestamp)
            if part.role == "versioned":
                if each.record.timestamp >= stream_time - part.settings["history_retention_ms"]:
                    times.setdefault(each.record.key, {})[each.record.timestamp] = each.record.value
            else:
                times.setdefault(each.record.key, {})[stream_time] = each.record.value
        for key, values in times.items():
            starts = sorted(values)
            for start, end in zip(starts, [*starts[1:], None], strict=True):
                if values[start] is not None:
                    found.add(((key, number), values[start], start, end))
    return found


def _ms(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)
