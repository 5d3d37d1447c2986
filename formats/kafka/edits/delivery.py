"""The records of an edit on their way to the topics of a broker: checked before, in one transaction, and read again.

Records are computed from what a source has read. They are right for topics that have gained no record since, of an
application that does not run. Both are checked when the edit is planned and again just before it is written. What other
producers write in between is found when the topics are read again.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError, shown
from statestore.formats.kafka.broker.broker_log import BrokerLog
from statestore.formats.kafka.broker.connection import (
    ANSWER_S,
    BrokerAddress,
    Connection,
    address_of,
    administrator,
    changed,
    producer_settings,
)
from statestore.formats.kafka.edits.edited_records import TopicRecords
from statestore.formats.kafka.edits.produce_records import OutcomeUnknown, Record, write_all
from statestore.formats.places.locations import parse_location

PRODUCE, CONFIG, STOPPED = "produce", "produce_config", "stopped"
"""The settings of an edit that name the brokers to which its records go, and a file with settings of the client, and
say that the application is stopped, where the client cannot tell."""
Ends = Mapping[str, Mapping[int, int]]
"""Offsets by topic and partition."""
_AT_REST = ("EMPTY", "DEAD")
_PATIENCE_S, _MOST_TOLD = 60.0, 300
_BATCH_ROWS = 1 << 14
_COLUMNS = ("timestamp", "key", "value", "headers")


@dataclass(frozen=True)
class Delivery:
    """The brokers to which records go. ``application`` is the consumer group of the application, where it is known.

    ``stopped``: the user vouches that the application is, where its group cannot be described.
    """

    address: BrokerAddress
    application: str | None
    stopped: bool = False

    def partition_count(self, topic: str) -> int:
        """The number of partitions that a topic has. Raises InvalidInputError EDIT_REFUSED if there is none."""
        admin = administrator(self.address)
        return _partition_count(admin, topic)

    def check(self, topics: Sequence[TopicRecords], read: Ends) -> Ends:
        """Return the ends of topics, open transactions included.

        ``read``: the offsets behind the last record of each partition that the edit knows. Raises InvalidInputError
        EDIT_REFUSED where the application runs, or a topic is not as it was when it was read.
        """
        admin = administrator(self.address)
        _check_groups(admin, self.application, topics)
        if not self.stopped:
            _check_unseen_groups(admin, self.application, topics)
        ends: dict[str, Mapping[int, int]] = {}
        for each in topics:
            _check_times(admin, each.topic)
            ends[each.topic] = self._check_ends(admin, each, read.get(each.topic, {}))
        return ends

    def _check_ends(self, admin: Connection, topic: TopicRecords, read: Mapping[int, int]) -> Mapping[int, int]:
        name, count = topic.topic, _partition_count(admin, topic.topic)
        written = set(pc.unique(topic.records.column("partition")).to_pylist())
        wanted = sorted({*read, *written})
        if wanted[-1] >= count:
            raise _refused(admin, f"topic {name} has {count} partitions, and the edit knows partition {wanted[-1]}")
        ends, stable = (_ends(admin, name, wanted, is_stable=each) for each in (False, True))
        for at in wanted:
            place, begin = f"partition {at} of {name}", read.get(at, 0)
            if stable[at] != ends[at]:
                raise _refused(
                    admin,
                    f"{place} has an open transaction: the application runs, or was killed; close it, or wait until "
                    "the broker has ended the transaction (transaction.timeout.ms)",
                )
            if ends[at] < begin:
                raise _refused(
                    admin, f"{place} ends at offset {ends[at]}, before {begin}, where what was edited ends: it is "
                    "another topic, or was made anew"
                )  # fmt: skip
            if ends[at] > begin and self._has_records(admin, name, at, begin, ends[at]):
                raise _refused(
                    admin,
                    f"{place} has records from offset {begin} on that the edit does not know: what was edited is "
                    "behind the topic; edit the topic itself, as this broker has it, or close the application and copy "
                    "its state anew",
                )
        return ends

    def _has_records(self, admin: Connection, topic: str, partition: int, begin: int, end: int) -> bool:
        """Return whether there is or may have been a record from ``begin`` on: markers of transactions are none."""
        low = _ends(admin, topic, [partition], is_stable=True, is_earliest=True)[partition]
        return low > begin or any(map(len, BrokerLog(self.address, topic, partition, begin, end).read()))

    def deliver(self, topics: Sequence[TopicRecords], read: Ends, path: str, command: str) -> tuple[str, ...]:
        """Write the records, and return sentences on where they are.

        ``path`` is the target, ``command`` what a user types to write them later. Raises StateStoreError
        EDIT_NOT_DELIVERED.
        """
        try:
            ends = self.check(topics, read)
            write_all(producer_settings(self.address), _records_of(topics))
        except OutcomeUnknown as error:
            raise _undelivered(
                f"{path} is there and verified, and its records may have been produced to {self.address}: {error}. "
                f"Before the application starts, read its changelogs; where they have not changed, type: {command}"
            ) from error
        except Exception as error:
            why = error.message if isinstance(error, StateStoreError) else f"{error}"[:_MOST_TOLD]
            raise _undelivered(
                f"{path} is there and verified, and nothing was produced to {self.address}: {why}. When that is "
                f"mended, type: {command}"
            ) from error
        try:
            return tuple(self._read_again(each, ends[each.topic]) for each in topics)
        except StateStoreError as error:
            raise _undelivered(
                f"the records of {path} were produced to {self.address}, and could not be read again as they are: "
                f"{error.message}. Look at the state of the changelogs (statestore inspect) before the application "
                "starts; do not produce the records a second time"
            ) from error

    def _read_again(self, topic: TopicRecords, ends: Mapping[int, int]) -> str:
        """Return where the records of a topic are. Raises ConflictError if others follow its earlier end."""
        admin = administrator(self.address)
        told = []
        for at in sorted(pc.unique(topic.records.column("partition")).to_pylist()):
            wanted = topic.records.filter(pc.equal(topic.records.column("partition"), at)).select(_COLUMNS)
            high = self._committed(admin, topic.topic, at, ends[at] + len(wanted))
            log = BrokerLog(self.address, topic.topic, at, ends[at], high)
            batches = [each.batch(("offset", *_COLUMNS)) for each in log.read()]
            found = pa.Table.from_batches(batches).slice(0, len(wanted)) if batches else None
            if found is None or not _are_equal(found, wanted):
                raise changed(
                    self.address, f"partition {at} of {topic.topic} got other records, too, from offset {ends[at]} on"
                )
            first, last = (found.column("offset")[each].as_py() for each in (0, len(found) - 1))
            told.append(f"partition {at} from offset {first} to {last}")
        count = len(topic.records)
        return f"Produced to {self.address}, and read again: {count} records of {topic.topic}, {', '.join(told)}."

    def _committed(self, admin: Connection, topic: str, partition: int, least: int) -> int:
        """The end of what is committed, once it is at ``least``: the broker writes markers after its answer."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            high = _ends(admin, topic, [partition], is_stable=True)[partition]
            if high >= least or time.monotonic() > until:
                return high


def delivery_of(settings: Mapping[str, str], application: str | None, source: BrokerAddress | None) -> Delivery | None:
    """Return the delivery that settings of an edit ask for; None without one.

    ``source``: the brokers from which the state is read, whose file of settings counts for them here, too. Raises
    InvalidInputError INVALID_OPTION or INVALID_LOCATION.
    """
    if PRODUCE not in settings:
        for name in (CONFIG, STOPPED):
            if name in settings:
                raise InvalidInputError(
                    ErrorCode.INVALID_OPTION, f"setting {name} goes with {PRODUCE}, kafka://host:port"
                )
        return None
    text = settings[PRODUCE]
    location = parse_location(text)
    if location.scheme != "kafka" or location.path.strip("/"):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"setting {PRODUCE} is {shown(text)}; expected brokers, as kafka://host:port"
        )
    address = address_of(location, settings.get(CONFIG), f"setting {CONFIG}")
    if address.config is None and source is not None and source.servers == address.servers:
        address = source
    return Delivery(address, application, settings.get(STOPPED) == "true")


# What brokers say


def _partition_count(admin: Connection, topic: str) -> int:
    found = admin.ask(partial(admin.consumer.list_topics, topic, timeout=ANSWER_S)).topics[topic]
    if found.error is not None or not found.partitions:
        raise _refused(
            admin, f"topic {topic}: {found.error or 'no partition'}; start the application once, it makes it"
        )
    return len(found.partitions)


def _check_groups(admin: Connection, application: str | None, topics: Sequence[TopicRecords]) -> None:
    """Raise InvalidInputError EDIT_REFUSED if the group of the application has members.

    A group is called as its application, and so do the names of its changelogs begin.
    """
    names = [application] if application else _of_topics(_consumer_groups(admin), topics)
    if not names:
        return
    for name, future in admin.consumer.describe_consumer_groups(names, request_timeout=ANSWER_S).items():
        group = _described(admin, future)
        if group is None or (group.state.name in _AT_REST and not group.members):
            continue
        raise _refused(
            admin,
            f"consumer group {name} has {len(group.members)} members and is {group.state.name.lower()}: the "
            "application runs, or was stopped less than session.timeout.ms ago (45 s by default). Stop all its "
            "instances, and wait; if it is the group of another application, name yours with option application",
        )


def _described(admin: Connection, future: Any) -> Any:
    """A group; None where there is none of the name."""
    try:
        return future.result()
    except admin.client.KafkaException as error:
        if error.args[0].code() == admin.client.KafkaError.GROUP_ID_NOT_FOUND:
            return None
        raise admin.failure(error.args[0]) from None


def _check_unseen_groups(admin: Connection, application: str | None, topics: Sequence[TopicRecords]) -> None:
    """Raise InvalidInputError EDIT_REFUSED for a group of the application that cannot be described.

    That is a group of the rebalance protocol ``streams`` (KIP-1071). Brokers list it to whoever does not ask for groups
    by their types, and answer that it is dead, whether it has members or not.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # what takes its place asks for types, and hides the group
        listed = admin.ask(partial(admin.consumer.list_groups, application, timeout=ANSWER_S))
    names = {each.id for each in listed}
    own = names & {application} if application else set(_of_topics(names, topics))
    unseen = sorted(own - set(_consumer_groups(admin))) if own else []
    if unseen:
        raise _refused(
            admin,
            f"group {unseen[0]} has a rebalance protocol (such as streams) whose members the client library cannot "
            "list, so whether the application runs is unknown. Stop all its instances, see that the group is empty "
            "(kafka-streams-groups.sh --describe --members), and say so by setting stopped=true",
        )


def _consumer_groups(admin: Connection) -> list[str]:
    """The groups that the client library can describe."""
    listed = admin.ask(admin.consumer.list_consumer_groups(request_timeout=ANSWER_S).result)
    if listed.errors:
        raise admin.failure(listed.errors[0].args[0])
    return [each.group_id for each in listed.valid]


def _of_topics(groups: Iterable[str], topics: Sequence[TopicRecords]) -> list[str]:
    """The groups of applications that may have these changelogs."""
    return [name for name in groups if any(each.topic.startswith(f"{name}-") for each in topics)]


def _check_times(admin: Connection, topic: str) -> None:
    """Raise InvalidInputError EDIT_REFUSED for a topic whose records get the times at which they are appended."""
    asked = admin.client.admin.ConfigResource(admin.client.admin.ResourceType.TOPIC, topic)
    future = admin.consumer.describe_configs([asked], request_timeout=ANSWER_S)[asked]
    kind = admin.ask(future.result)["message.timestamp.type"].value
    if kind != "CreateTime":
        raise _refused(
            admin,
            f"topic {topic} has message.timestamp.type {kind}, expected CreateTime: times of records are a part of the "
            "state",
        )


def _ends(
    admin: Connection, topic: str, partitions: Sequence[int], *, is_stable: bool, is_earliest: bool = False
) -> dict[int, int]:
    """The ends of partitions: of all records, or of those that no open transaction holds back; or the beginnings."""
    spec = admin.client.admin.OffsetSpec.earliest() if is_earliest else admin.client.admin.OffsetSpec.latest()
    level = admin.client.IsolationLevel.READ_COMMITTED if is_stable else admin.client.IsolationLevel.READ_UNCOMMITTED
    places = {admin.client.TopicPartition(topic, at): spec for at in partitions}
    futures = admin.consumer.list_offsets(places, isolation_level=level, request_timeout=ANSWER_S)
    return {place.partition: admin.ask(future.result).offset for place, future in futures.items()}


def _refused(admin: Connection, why: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.EDIT_REFUSED, f"{admin.address}: {why}")


def _undelivered(why: str) -> StateStoreError:
    return StateStoreError(ErrorCode.EDIT_NOT_DELIVERED, why)


# Records


def _records_of(topics: Sequence[TopicRecords]) -> Iterator[Record]:
    for topic in topics:
        for batch in topic.records.to_batches(_BATCH_ROWS):
            columns = (batch.column(name).to_pylist() for name in ("partition", *_COLUMNS))
            for partition, timestamp, key, value, headers in zip(*columns, strict=True):
                pairs = [(each["name"], each["value"]) for each in headers]
                yield topic.topic, partition, timestamp, key, value, pairs


def _are_equal(found: pa.Table, wanted: pa.Table) -> bool:
    return all(_one(found.column(name)).equals(_one(wanted.column(name))) for name in _COLUMNS)


def _one(column: pa.ChunkedArray) -> Any:
    """A column in one piece, so that arrays are compared and not their chunks."""
    return column.combine_chunks()
