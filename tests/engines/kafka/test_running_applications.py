"""Real applications of Kafka Streams while they run, after SIGKILL and after a clean close."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.kafka.application import (
    MEMTABLE_BYTES,
    TABLE_COMPRESSION,
    Application,
    Description,
    Part,
    Row,
    answers,
    rows,
    running_application,
)
from support.kafka.broker import Broker, running_broker
from support.kafka.java_process import PROJECT
from support.kafka.java_project import class_path
from support.kafka.random_input import START_MS, random_records
from support.kafka.store_models import expected, expected_as_of
from support.kafka.tree_hash import tree_hash

pytestmark = pytest.mark.slow

RECORDS = 400

PARTS = (
    Part("stock", "key-value", "string", "long"),
    Part("recent", "in-memory", "integer", "string"),
    Part("audited", "headers-key-value", "string", "string"),
    Part("prices", "table", "long", "string"),
    Part("currencies", "global", "string", "integer"),
    Part("menu", "versioned", "string", "string", {"history_retention_ms": 60_000, "segment_interval_ms": 20_000}),
    Part("visits", "windowed-count", "string", "string", {"window_size_ms": 5_000, "grace_ms": 20_000}),
    Part("carts", "session-count", "integer", "long", {"gap_ms": 1_200, "grace_ms": 30_000}),
    Part("peaks", "window", "long", "integer", {"window_size_ms": 5_000, "retention_ms": 90_000}),
    Part("audited-windows", "headers-window", "string", "long", {"window_size_ms": 5_000, "retention_ms": 90_000}),
    Part(
        "audited-sessions", "headers-session", "integer", "string", {"session_size_ms": 4_000, "retention_ms": 90_000}
    ),
    Part("payments", "join", "string", "string", {"difference_ms": 4_000, "grace_ms": 6_000}, "long"),
)
PLAIN = Description("shop", PARTS)
TRANSACTIONS = Description(
    "bank",
    PARTS,
    config={
        "processing.guarantee": "exactly_once_v2",
        MEMTABLE_BYTES: str(64 << 10),
        TABLE_COMPRESSION: "LZ4_COMPRESSION",
    },
    compression="zstd",
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return class_path(PROJECT, tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="module")
def broker(programs: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(programs, tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="module", params=[PLAIN, TRANSACTIONS], ids=lambda each: str(each.application_id))
def application(
    request: pytest.FixtureRequest, programs: str, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Application]:
    """A running application that has processed some records. Tests may kill it, but leave it running."""
    description: Description = request.param
    folder = tmp_path_factory.mktemp(description.application_id)
    with running_application(programs, folder, broker, description) as application:
        put_more(application)
        yield application


def put_more(application: Application) -> None:
    """Records for each input, later than all before; wait until they are processed."""
    for name, part in application.description.inputs.items():
        earlier = application.written[name]
        start = max((each.record.timestamp for each in earlier), default=START_MS) + 1
        application.put(name, random_records(part, name, len(earlier), RECORDS, start))
    application.wait()


def in_order(found: dict[str, list[Row]]) -> dict[str, list[str]]:
    return {name: sorted(json.dumps(row, sort_keys=True) for row in each) for name, each in found.items()}


def modelled(application: Application) -> dict[str, list[str]]:
    parts = application.description.parts
    return in_order({name: each for part in parts for name, each in expected(part, application.written).items()})


def test_stores_answer_as_a_model_of_the_input_says(application: Application) -> None:
    assert in_order(answers(application)) == modelled(application)


def test_versioned_stores_answer_as_of_each_time(application: Application) -> None:
    part = next(part for part in PARTS if part.role == "versioned")
    [store] = [store for store in application.truth()["stores"] if store["name"] == part.name]
    asked = [each for partition in store["partitions"] for each in partition["as_of"]]
    written = application.written[part.name]
    assert len(asked) > RECORDS
    assert [each for each in asked if each["answer"] != expected_as_of(part, written, each["key"], each["as_of"])] == []
