"""The plan of an edit of Kafka Streams' state: records for changelog topics, in a folder of files.

What a store holds is what its changelog topic says. A local directory follows it, and a full restore would undo what
was written there alone; so no directory is written. The target is a folder with the records of each topic, and the
program that produces them once the application is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from statestore.formats.edits import CopiedFile, EditOptions, EditPlan, StateEdit, Target
from statestore.formats.engine import Source
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError, shown
from statestore.formats.kafka.broker.connection import BrokerAddress
from statestore.formats.kafka.edits.delivery import Delivery, Ends, delivery_of
from statestore.formats.kafka.edits.edited_records import PARTITIONS, TopicRecords, topic_records
from statestore.formats.kafka.edits.edited_store import EditedStore
from statestore.formats.kafka.edits.record_files import (
    PROGRAM,
    RECORDS_FILE,
    instructions,
    line_bytes,
    program,
    program_command,
    record_file,
    records_path,
    write_instructions,
    write_records,
    write_records_file,
)
from statestore.formats.kafka.stores.kind_detection import SUBSCRIPTIONS

VERSION = 1


class EditableSource(Protocol):
    """A source whose states can be shown with the records of an edit behind those they have."""

    @property
    def path(self) -> str:
        """The location of the source."""

    def with_records(self, path: str, files: Mapping[str, str]) -> Source:
        """The source at ``path`` with records; ``files``: the names of their files there by state."""


@dataclass(frozen=True)
class KafkaEditPlan(EditPlan):
    """Records by state. ``ends``: the offsets at which topics ended, by partition, where they are known.

    ``delivery`` is where the records are to be produced, ``read`` what it checks the topics by (`Delivery.check`).
    ``file`` is the path of one more file with all records.
    """

    source: EditableSource
    topics: Mapping[str, TopicRecords]
    general_notes: tuple[str, ...]
    ends: Ends = field(default_factory=dict)
    delivery: Delivery | None = None
    read: Ends = field(default_factory=dict)
    file: str | None = None

    @property
    def version(self) -> int:
        return VERSION

    @property
    def target_version(self) -> int:
        return VERSION

    @property
    def notes(self) -> Sequence[str]:
        return (*self.general_notes, *(note for each in self.topics.values() for note in each.notes))

    def copied(self) -> Iterator[CopiedFile]:
        return iter(())

    def parts(self) -> Sequence[Any]:
        """The states whose topics get records."""
        return [state for state, topic in self.topics.items() if len(topic.records)]

    def written_bytes(self) -> int:
        lines = sum(line_bytes(topic.records) for topic in self.topics.values())
        return lines * (1 if self.file is None else 2) + len(program()) + len(self._instructions())

    def write(self, part: Any, target: Target) -> Mapping[str, int]:
        return write_records(self.topics[part], target)

    def finish(self, target: Target) -> Mapping[str, int]:
        return write_instructions(self._instructions(), target)

    @property
    def opens_local_folders(self) -> bool:
        """True: files of records are read where they lie on a disk."""
        return True

    def opened(self, path: str) -> Source:
        files = {state: record_file(self.topics[state].topic) for state in self.parts()}
        return self.source.with_records(path, files)

    def deliver(self, path: str) -> Sequence[str]:
        topics = self._topics()
        told = [] if self.file is None else [self._file_written(topics, path, self.file)]
        if self.delivery is None or not topics:
            return told
        command = program_command(f"{path}/{PROGRAM}", self.delivery.address.servers, self.ends)
        return [*told, *self.delivery.deliver(topics, self.read, path, command)]

    def _file_written(self, topics: Sequence[TopicRecords], path: str, file: str) -> str:
        """Write the one file of all records; return a sentence about it. Raises StateStoreError EDIT_NOT_DELIVERED."""
        try:
            write_records_file(topics, file)
        except StateStoreError as error:
            raise StateStoreError(
                ErrorCode.EDIT_NOT_DELIVERED,
                f"{path} is there and verified, and {file} was not written: {error.message}. Nothing was produced. "
                f"The files in {path} have the same records, by topic",
            ) from error
        return f"All {sum(len(each.records) for each in topics)} records are in {file}, too."

    def _topics(self) -> list[TopicRecords]:
        return [self.topics[state] for state in self.parts()]

    def _instructions(self) -> str:
        brokers = None if self.delivery is None else str(self.delivery.address)
        return instructions(self._topics(), self.ends, self.notes, brokers)


@dataclass(frozen=True)
class EditedStores:
    """The knowledge that a source has of its stores, for an edit: ``store`` gives one by its name.

    ``notes``: what the user of records has to know. ``ends``: the ends of a store's topic, where they are known.
    ``read``: the offsets behind the last record of each partition that the source has read, by which a delivery sees
    that the topic has gained none. ``application`` is its id, ``brokers`` those that were read, where they are known.
    """

    store: Callable[[str], EditedStore]
    notes: Callable[[Mapping[str, TopicRecords]], Sequence[str]]
    ends: Callable[[str], Mapping[int, int]]
    read: Callable[[str], Mapping[int, int]]
    application: str | None = None
    brokers: BrokerAddress | None = None


def kafka_edit_plan(
    source: EditableSource, edits: Sequence[StateEdit], options: EditOptions, stores: EditedStores, now: int
) -> KafkaEditPlan:
    """Return the plan of edits of states. ``now`` is the time of the edit in milliseconds.

    Raises UnsupportedError EDIT_UNSUPPORTED, InvalidInputError EDIT_REFUSED, WRONG_VALUE or INVALID_OPTION; where the
    records are to be produced, also the errors of `connected`.
    """
    if options.as_batch:
        raise UnsupportedError(
            ErrorCode.EDIT_UNSUPPORTED, "Kafka Streams has no batches, so an edit cannot be one; leave that option out"
        )
    delivery = delivery_of(options.settings, stores.application, stores.brokers)
    file = options.settings.get(RECORDS_FILE)
    file = None if file is None else records_path(file, source.path)
    topics: dict[str, TopicRecords] = {}
    for edit in edits:
        found = stores.store(edit.state)
        if edit.state in topics:
            raise found.refused("found two edits of it, expected one that has all its rows")
        if delivery is not None and found.partitions is None:
            found = replace(found, partitions=_count(delivery, found, options))
        if any(each.topic == found.topic for each in topics.values()):
            raise found.refused("found edits of its past and of its newest versions; make two edits, one of each")
        topics[edit.state] = topic_records(found, edit, options, now)
    written = {state: each for state, each in topics.items() if len(each.records)}
    notes = list(stores.notes(written))
    if delivery is None or not written:
        known = {each.topic: stores.ends(state) for state, each in written.items()}
        known = {topic: ends for topic, ends in known.items() if ends}
        return KafkaEditPlan(source, topics, tuple(notes), known, file=file)
    read = {each.topic: stores.read(state) for state, each in written.items()}
    ends = delivery.check(list(written.values()), read)
    notes.append(f"The records are produced to {delivery.address} once the target is there.")
    return KafkaEditPlan(source, topics, tuple(notes), ends, delivery, read, file)


def _count(delivery: Delivery, store: EditedStore, options: EditOptions) -> int:
    """The number of partitions that a topic has at the broker. Raises InvalidInputError INVALID_OPTION for another."""
    count = delivery.partition_count(store.topic)
    given = options.settings.get(PARTITIONS, str(count))
    if given != str(count):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"setting {PARTITIONS} is {shown(given)}, and {store.topic} has {count} at {delivery.address}; leave the "
            "setting out",
        )
    return count


def shared_notes(application: str, written: Mapping[str, TopicRecords], states: Sequence[str]) -> list[str]:
    """Sentences that hold for every edit of changelogs of an application, which has these states."""
    found = [
        f"Stop all instances of {application} before the records are produced, and start it afterwards: a running "
        "application does not read them, and overwrites them.",
        "If it runs with exactly_once_v2, let it close, or wait transaction.timeout.ms: an open transaction of it "
        "holds back the records of the edit, which have a transactional.id of their own.",
        "Delete the state directories of the application on every machine before it starts, so that it restores its "
        "stores: after a restart a versioned store does not find its earlier versions, and would keep what they were."
        if any(each.needs_restore for each in written.values())
        else "Local state directories may be kept: at its start the application applies what its changelogs have "
        "gained, and standby replicas do the same.",
    ]
    if any(each.erased for each in written.values()):
        found.append(
            "A delete takes effect at the start. The erased bytes leave the topic when the broker has compacted the "
            "segments that hold them (cleanup.policy, segment.ms, min.compaction.lag.ms, delete.retention.ms), and a "
            "local directory when RocksDB has compacted its tables. The files of this folder, and that of "
            "setting records, name the erased keys: delete them once they are applied."
        )
    joins = [name for name in states if any(part in name for part in SUBSCRIPTIONS)]
    if joins:
        found.append(
            f"The application joins tables by foreign keys ({', '.join(joins)}). Such a store is not edited: what it "
            "has of an edited row follows from the next record of that key in the input topic of its table, a delete "
            "there included."
        )
    return found
