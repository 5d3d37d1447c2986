"""Real applications of Kafka Streams while they run, after SIGKILL and after a clean close."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.kafka.running.application import (
    MEMTABLE_BYTES,
    TABLE_COMPRESSION,
    Application,
    Description,
    Part,
    Row,
    answers,
    running_application,
    table_files,
)
from support.kafka.running.application_reads import (
    opened,
    rows_of,
    stores_file_of,
    stores_on_disk,
    wrong_stores,
)
from support.kafka.running.broker import Broker
from support.kafka.running.random_input import START_MS, many_records, random_records
from support.kafka.running.store_models import expected, expected_as_of
from support.kafka.running.tree_hash import tree_hash
from support.kafka.store_answers import expected as expected_row
from support.kafka.store_answers import missing

import statestore
from statestore.catalog.warehouse import Warehouse

pytestmark = pytest.mark.slow
pytest_plugins = ["support.kafka.running.broker_fixtures"]

RECORDS = 400
MANY = 4000  # more than a small memtable holds
COMPRESSIONS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}  # as batches of records have them

KEY_VALUE = (
    Part("stock", "key-value", "string", "long"),
    Part("recent", "in-memory", "integer", "string"),
    Part("audited", "headers-key-value", "string", "string"),
    Part("prices", "table", "long", "string"),
    Part("readings", "table", "integer", "string"),
    Part("currencies", "global", "string", "integer"),
)
PARTS = (
    *KEY_VALUE,
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
DSL = ("table", "versioned", "windowed-count", "session-count", "join")
EXACTLY_ONCE = {"processing.guarantee": "exactly_once_v2"}
SMALL_TABLES = {MEMTABLE_BYTES: str(64 << 10), TABLE_COMPRESSION: "LZ4_COMPRESSION"}
APPLICATIONS = (
    Description("shop", PARTS),
    Description("bank", PARTS, config={**EXACTLY_ONCE, **SMALL_TABLES}, compression="zstd"),
    Description(
        "archive",
        tuple(part for part in PARTS if part.role in DSL),
        1,
        config={"dsl.store.format": "HEADERS"},
        compression="lz4",
    ),
)


MARKER_LOOKS = 50
NOT_CLOSED = "the store was not closed"  # of each store that is read while the application runs, or was killed
ENDED = pytest.mark.parametrize("application", APPLICATIONS[:2], indirect=True, ids=lambda each: each.application_id)


@pytest.fixture(scope="module", params=APPLICATIONS, ids=lambda each: str(each.application_id))
def application(
    request: pytest.FixtureRequest, programs: str, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Application]:
    """A running application that has processed what was put. Tests may end it, but leave it running."""
    description: Description = request.param
    folder = tmp_path_factory.mktemp(description.application_id)
    with running_application(programs, folder, broker, description) as application:
        put_more(application)
        application.wait()
        yield application


def put_more(application: Application) -> None:
    """Put records into each input; the first ones are later than all before."""
    for name, part in application.description.inputs.items():
        earlier = application.written[name]
        start = max((each.record.timestamp for each in earlier), default=START_MS) + 1
        if name == "readings":
            records = many_records(len(earlier), MANY, start)
        else:
            records = random_records(part, name, len(earlier), RECORDS, start)
        application.put(name, records)


def in_order(found: dict[str, list[Row]]) -> dict[str, list[str]]:
    return {name: sorted(json.dumps(row, sort_keys=True) for row in rows) for name, rows in found.items()}


def assert_answers_are_right(application: Application) -> None:
    found, right = in_order(answers(application)), in_order(expected(application))
    assert sorted(found) == sorted(right)
    assert [name for name in right if found[name] != right[name]] == []


def stores_without_problem(found: Warehouse) -> list[str]:
    return [store for store in found.tables() if not found.summary(store).problems]


# While it runs


def test_stores_answer_as_a_model_of_the_input_says(application: Application) -> None:
    assert_answers_are_right(application)
    assert [name for name, rows in answers(application).items() if not rows] == []


def test_a_versioned_store_answers_as_of_each_time(application: Application) -> None:
    [store] = [store for store in application.truth()["stores"] if store["kind"] == "versioned"]
    [part] = [part for part in application.description.parts if part.name == store["name"]]
    written = application.written[part.name]
    asked = [each for partition in store["partitions"] for each in partition["as_of"]]
    assert len(asked) > RECORDS
    assert [each for each in asked if each["answer"] != expected_as_of(part, written, each["key"], each["as_of"])] == []


def test_rows_in_memory_only_are_unknown(application: Application) -> None:
    """Only the small memtables of one store were full; what it has written to tables was true at some time."""
    before = tree_hash(application.state_directory)
    found, written = opened(application), application.written["readings"]
    once = {(each.record.key, each.record.value, each.record.timestamp) for each in written}
    in_tables = {path.parts[-2] for path in table_files(application)}
    assert in_tables == ({"readings"} if MEMTABLE_BYTES in application.description.config else set())
    for store in found.tables():
        assert found.summary(store).problems
        if store in in_tables:
            with pytest.warns(statestore.StateStoreWarning, match=NOT_CLOSED):
                rows = rows_of(found, store)
            assert rows and {(row["key"], row["value"], row["timestamp"]) for row in rows} <= once
        else:
            with pytest.raises(statestore.NotFoundError, match="ROWS_NOT_FLUSHED"):
                rows_of(found, store)
    assert tree_hash(application.state_directory) == before


def test_the_directory_of_a_running_application_has_its_rows(application: Application) -> None:
    application.flush()
    databases = {path.parent for path in application.state_directory.rglob("CURRENT")}
    assert {path.parent for path in table_files(application)} == databases
    truth = application.truth()
    before = tree_hash(application.state_directory)
    with pytest.warns(statestore.StateStoreWarning, match=NOT_CLOSED) as notices:
        assert wrong_stores(application, truth) == []
    assert len(notices) == len(stores_on_disk(truth))
    assert stores_without_problem(opened(application)) == []
    assert tree_hash(application.state_directory) == before
    assert application.truth() == truth


def test_the_changelog_holds_what_the_store_answers(application: Application) -> None:
    broker, topic = application.broker, application.changelog("prices")
    latest = {record["key"]: record["value"] for record in broker.records(topic)}
    rows = answers(application)["prices"]
    found = {row["key"].to_bytes(8, signed=True).hex(): row["value"].encode().hex() for row in rows}
    assert {key: value for key, value in latest.items() if value is not None} == found


def test_the_log_of_the_running_broker_gives_the_rows_of_each_store(application: Application) -> None:
    """Also what only the changelog has: stores in memory."""
    truth = application.truth()
    folder = application.broker.log_directory(application.changelog("prices"), 0).parent

    def lacking() -> dict[str, Counter[str]]:
        """The rows that the log lacks, by store."""
        logs = statestore.inspect(folder, stores_file=str(stores_file_of(application)))
        found = {}
        for store in truth["stores"]:
            if store["changelog"] is not None:
                wanted = [expected_row(store, row) for part in store["partitions"] for row in part["rows"]]
                assert wanted
                found[store["name"]] = missing(rows_of(logs, store["changelog"]), wanted)
        return {name: rows for name, rows in found.items() if rows}

    # A commit is answered before its markers are in the logs of all partitions, and until then its records are open.
    for _ in range(MARKER_LOOKS):
        if not lacking():
            break
        application.wait()
    assert lacking() == {}


def test_the_broker_keeps_batches_as_the_application_compressed_them(application: Application) -> None:
    topic = application.changelog("prices")
    for partition in range(application.description.partitions):
        segment = min(application.broker.log_directory(topic, partition).glob("*.log"))
        attributes = int.from_bytes(segment.read_bytes()[21:23])
        assert attributes & 7 == COMPRESSIONS[application.description.compression]
        assert bool(attributes & 16) == ("processing.guarantee" in application.description.config)


# After its end


@ENDED
def test_the_directory_of_a_closed_application_has_its_rows(application: Application) -> None:
    """Once it runs again, the directory may be behind, and says so."""
    truth = application.truth()
    application.close()
    before, found = tree_hash(application.state_directory), opened(application)
    assert wrong_stores(application, truth) == []
    assert stores_without_problem(found) == found.tables()
    assert tree_hash(application.state_directory) == before

    put_more(application)
    application.start()
    application.wait()
    assert_answers_are_right(application)
    # Queries for versions take snapshots, whose release lets RocksDB compact the old status into a new file.
    assert set(stores_without_problem(opened(application))) <= {"menu"}


@ENDED
def test_the_directory_of_a_killed_application_has_the_rows_that_were_flushed(application: Application) -> None:
    application.flush()
    truth = application.truth()
    application.kill()
    before = tree_hash(application.state_directory)
    with pytest.warns(statestore.StateStoreWarning, match=NOT_CLOSED) as notices:
        assert wrong_stores(application, truth) == []
    assert len(notices) == len(stores_on_disk(truth))
    assert stores_without_problem(opened(application)) == []
    assert tree_hash(application.state_directory) == before

    if "processing.guarantee" in application.description.config:
        # Kafka 4.3.1 restores what was not closed, but ends on global and segmented stores (TaskCorruptedException).
        for folder in application.state_directory.glob("*/"):
            shutil.rmtree(folder)
    put_more(application)
    application.start()
    application.wait()
    assert_answers_are_right(application)


def test_an_application_that_is_killed_amid_its_work_goes_on(programs: str, broker: Broker, tmp_path: Path) -> None:
    """Windows are left out: an operator that starts again knows no stream time, and takes what comes too late."""
    description = Description("ledger", KEY_VALUE, config={**EXACTLY_ONCE, **SMALL_TABLES})
    with running_application(programs, tmp_path, broker, description) as application:
        put_more(application)
        application.kill()
        application.start()
        application.wait()
        assert_answers_are_right(application)


# Nothing is left


def test_processes_end_with_a_failed_test(programs: str, broker: Broker, tmp_path: Path) -> None:
    description = replace(APPLICATIONS[0], application_id="short", parts=KEY_VALUE[:1], partitions=1)
    with (
        pytest.raises(ZeroDivisionError),
        running_application(programs, tmp_path, broker, description) as application,
    ):
        process = application.process
        assert process.alive
        raise ZeroDivisionError
    assert not process.alive


def test_a_process_ends_with_its_input(programs: str, tmp_path: Path) -> None:
    """The input ends when the tests are killed."""
    command = ["java", "-cp", programs, "Broker", str(tmp_path)]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, "address" in ended.stdout) == (0, True)
