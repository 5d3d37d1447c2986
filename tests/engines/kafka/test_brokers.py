"""Changelogs read from a real broker are those in its own log segments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.command_line import run
from support.kafka.running.application import Application, Description, Part, running_application
from support.kafka.running.broker import Broker, Record
from support.kafka.running.random_input import random_records

import statestore
from statestore import kafka
from statestore.formats.kafka.broker.broker_log import LOT, BrokerLog, broker_topics
from statestore.formats.kafka.broker.connection import BrokerAddress
from statestore.formats.kafka.changelogs.record_log import RecordLog
from statestore.formats.kafka.logs.log_directory import log_partitions
from statestore.formats.kafka.logs.log_reading import open_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
pytest_plugins = ["support.kafka.running.broker_fixtures"]

PARTS = (
    Part("stock", "key-value", "string", "long"),
    Part("prices", "table", "long", "string"),
    Part("audited", "headers-key-value", "string", "string"),
    Part("visits", "windowed-count", "string", "string", {"window_size_ms": 5_000, "grace_ms": 20_000}),
    Part("carts", "session-count", "integer", "long", {"gap_ms": 1_200, "grace_ms": 30_000}),
)
APPLICATIONS = (
    Description("shop", PARTS, compression="lz4"),
    Description("bank", PARTS, config={"processing.guarantee": "exactly_once_v2"}, compression="zstd"),
)
MANY = 40 * LOT


@pytest.fixture(scope="module")
def applications(
    programs: str, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Application]]:
    """Two applications that have processed what was put, and are closed."""
    found = []
    for description in APPLICATIONS:
        folder = tmp_path_factory.mktemp(description.application_id)
        with running_application(programs, folder, broker, description) as application:
            for name, part in description.inputs.items():
                application.put(name, random_records(part, name, 0, 300))
            application.wait()
            application.close()
            found.append(application)
    yield found


@pytest.fixture(scope="module")
def many(broker: Broker) -> str:
    """A topic of one partition with more records than a lot has."""
    broker.create_topics(["app-many-changelog"], 1)
    records = [Record(f"k{i % 1000}", i, i, (("n", None),) * (i % 3)) for i in range(MANY)]
    broker.put("app-many-changelog", records, ("string", "long"), "lz4")
    return "app-many-changelog"


def logs_of(broker: Broker, topic: str) -> tuple[BrokerLog, ...]:
    return broker_topics(BrokerAddress(broker.address), "-changelog").logs(topic)


def rows_of(logs: Any) -> list[dict[str, Any]]:
    return [row for log in logs for records in log.read() for row in records.batch().to_pylist()]


def on_disk(broker: Broker, topic: str) -> tuple[RecordLog, ...]:
    return tuple(map(open_log, log_partitions(broker.data, topic)))


def url(broker: Broker, below: str = "") -> str:
    return f"kafka://{broker.address}{below}"


def changelogs(applications: list[Application]) -> list[str]:
    return [application.changelog(part.name) for application in applications for part in PARTS]


def test_all_changelogs_are_listed(broker: Broker, applications: list[Application]) -> None:
    assert set(changelogs(applications)) <= set(statestore.inspect(url(broker)).tables())
    assert all(name.endswith("-changelog") for name in statestore.inspect(url(broker)).tables())


def test_records_are_those_in_the_segments(broker: Broker, applications: list[Application]) -> None:
    seen = 0
    for topic in changelogs(applications):
        found = rows_of(logs_of(broker, topic))
        assert found == rows_of(on_disk(broker, topic)), topic
        seen += len(found)
    assert seen > 2000


def test_tables_and_histories_are_those_of_the_segments(broker: Broker, applications: list[Application]) -> None:
    of_broker, of_files = statestore.inspect(url(broker)), statestore.inspect(broker.data)
    for topic in changelogs(applications):
        one, other = of_broker.table(topic), of_files.table(topic)
        assert one.scan().read_all().equals(other.scan().read_all()), topic
        until = {"until_offset": "40"}
        short, same = (statestore.inspect(p, **until).table(topic) for p in (url(broker), broker.data))
        try:
            rows = short.scan().read_all()
        except statestore.NotFoundError as error:  # a consumer does not know whether markers or records are missing
            assert "TIME_NOT_KEPT" in str(error) and topic in changelogs(applications[1:])
        else:
            assert rows.equals(same.scan().read_all())
    topic = applications[0].changelog("prices")
    one, other = of_broker.table(topic), of_files.table(topic)
    histories = [each.history().read_all().sort_by("changelog_offset") for each in (one, other)]
    assert histories[0].num_rows > 100 and histories[0].equals(histories[1])
    time = sorted(row["timestamp"] for row in rows_of(on_disk(broker, topic)))[150]
    assert one.scan(as_of=time).read_all().equals(other.scan(as_of=time).read_all())


def test_offsets_of_markers_are_not_known_to_hold_nothing(broker: Broker, applications: list[Application]) -> None:
    """A consumer cannot see markers: a log with them is not called complete, and one without is, once it was read."""
    for application, complete in zip(applications, (True, False), strict=True):
        for log in logs_of(broker, application.changelog("prices")):
            assert log.findings.missing_offsets is None
            rows_of([log])
            assert log.findings.is_complete == complete
            assert (log.findings.notes() == ()) == complete


def test_transactions(broker: Broker) -> None:
    """Committed, aborted and open ones: a reading ends before the open one."""
    from confluent_kafka import Producer

    topic = "app-moves-changelog"
    broker.create_topics([topic], 1)
    makers = [Producer({"bootstrap.servers": broker.address, "transactional.id": f"moves-{n}"}) for n in range(3)]
    for maker in makers:
        maker.init_transactions(30)
    for number, maker in enumerate(makers):
        maker.begin_transaction()
        for i in range(5):
            maker.produce(topic, key=f"{number}-{i}", value=b"v", timestamp=i + 1)
        maker.flush(30)
        if number == 0:
            maker.commit_transaction(30)
        elif number == 1:
            maker.abort_transaction(30)
    broker.put(topic, [Record("after", 1, 9)], ("string", "long"))
    (log,) = logs_of(broker, topic)
    rows = rows_of([log])
    assert [row["key"] for row in rows] == [f"0-{i}".encode() for i in range(5)]
    assert rows == rows_of(on_disk(broker, topic))
    assert log.high == 12  # 5 records, a marker, 5 records, a marker
    makers[2].abort_transaction(30)
    (log,) = logs_of(broker, topic)
    assert [row["key"] for row in rows_of([log])][5:] == [b"after"]
    assert rows_of([log]) == rows_of(on_disk(broker, topic))


def test_a_log_ends_where_it_was_opened(broker: Broker, many: str) -> None:
    (log,) = logs_of(broker, many)
    before = rows_of([log])
    assert len(before) == MANY == log.findings.records
    assert before == rows_of(on_disk(broker, many))
    broker.put(many, [Record("new", 1, MANY + i) for i in range(600)], ("string", "long"))
    assert rows_of([log]) == before
    (later,) = logs_of(broker, many)
    assert len(rows_of([later])) == MANY + 600


def test_a_log_that_lost_its_beginning(broker: Broker) -> None:
    """A log opened before is a conflict; one opened afterwards says where it begins."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = "app-cut-changelog"
    broker.create_topics([topic], 1)
    broker.put(topic, [Record(f"k{i % 9}", i, 1000 + i) for i in range(2000)], ("string", "long"))
    (log,) = logs_of(broker, topic)
    before = rows_of([log])
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_records([TopicPartition(topic, 0, 700)])[TopicPartition(topic, 0, 700)].result(30)
    with pytest.raises(statestore.ConflictError, match=r"KAFKA_LOG_CHANGED.*read again"):
        rows_of([log])
    (later,) = logs_of(broker, topic)
    assert later.findings.notes() == ("partition 0: begins at offset 700; what was before is unknown",)
    assert rows_of([later]) == before[700:]
    assert later.findings.missing_offsets == 700
    table = statestore.inspect(url(broker)).table(topic)
    assert table.scan().read_all().num_rows == 9
    # Record 700 is the first; up to 708, each is the first that is left of its key, which may have had a value before.
    assert table.table.known_from(1) == 1_708_000
    with pytest.raises(statestore.NotFoundError, match="TIME_NOT_KEPT"):
        table.scan(as_of=1699)


def test_a_log_that_differs_from_its_first_reading(broker: Broker, many: str) -> None:
    """As if the broker had compacted it meanwhile."""
    (log,) = logs_of(broker, many)
    log.seen[3] = 12345
    with pytest.raises(statestore.ConflictError, match="KAFKA_LOG_CHANGED"):
        rows_of([log])


def test_nothing_is_left_on_the_broker(broker: Broker, many: str) -> None:
    from confluent_kafka.admin import AdminClient

    topics = set(broker_topics(BrokerAddress(broker.address), "").listed)
    statestore.inspect(url(broker)).table(many).scan().read_all()
    with pytest.raises(statestore.NotFoundError, match=r"TABLE_NOT_FOUND.*'nothing-changelog'"):
        statestore.inspect(url(broker, "/nothing-changelog"))
    admin = AdminClient({"bootstrap.servers": broker.address})
    assert set(broker_topics(BrokerAddress(broker.address), "").listed) == topics
    groups = {group.group_id for group in admin.list_consumer_groups().result(30).valid}
    assert "statestore" not in groups


def test_every_door(broker: Broker, many: str, spark: SparkSession, tmp_path: Path) -> None:
    serdes: dict[str, Any] = {"key_serde": "string", "value_serde": "long"}
    wanted = statestore.inspect(broker.data, **serdes).table(many).scan().read_all()
    assert wanted.num_rows >= 1000
    total = sum(wanted["value"].to_pylist())
    one = statestore.inspect(url(broker, f"/{many}"), **serdes)
    assert one.tables() == [many] and one.table(many).scan().read_all().equals(wanted)
    query = f'select sum(value) as total from "{many}"'
    assert statestore.sql(url(broker), query, **serdes).to_pylist() == [{"total": total}]
    assert statestore.attach(url(broker), **serdes).sql(query).fetchall() == [(total,)]
    config = tmp_path / "c.properties"
    config.write_text("# of the client\nclient.id=a test\n")
    done = run("sql", url(broker), query, "--value-serde", "long", "--consumer-config", config)
    assert str(total) in done.out and done.code == 0, done.err
    options = {"keySerde": "string", "valueSerde": "long"}
    frame = spark.read.format("statestore").options(**options).load(url(broker, f"/{many}"))
    assert frame.selectExpr("sum(value)").toArrow().column(0).to_pylist() == [total]
    records = rows_of(logs_of(broker, many))[:9]
    nine = [(each["key"], each["value"], each["partition"], each["offset"], 0) for each in records]
    raw = spark.createDataFrame(nine, "key binary, value binary, partition int, offset long, t long")
    topic = raw.selectExpr("key", "value", "partition", "offset", "timestamp_millis(t) as timestamp")
    found = kafka.decode(topic, "key-value", **serdes).collect()
    assert [(row.key, row.value, row.offset) for row in found] == [(f"k{i}", i, i) for i in range(9)]
