"""The plan of an edit of Kafka Streams' state: records for changelog topics, in a folder of files.

What a store holds is what its changelog topic says. A local directory follows it, and a full restore would undo what
was written there alone; so no directory is written. The target is a folder with the records of each topic, and the
program that produces them once the application is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from statestore.formats.edits import CopiedFile, EditOptions, EditPlan, StateEdit, Target
from statestore.formats.engine import Source
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.kafka.edits.edited_records import TopicRecords, topic_records
from statestore.formats.kafka.edits.edited_store import EditedStore
from statestore.formats.kafka.edits.record_files import (
    instructions,
    line_bytes,
    program,
    record_file,
    write_instructions,
    write_records,
)

VERSION = 1


class EditableSource(Protocol):
    """A source whose states can be shown with the records of an edit behind those they have."""

    def with_records(self, path: str, files: Mapping[str, str]) -> Source:
        """The source at ``path`` with records; ``files``: the names of their files there by state."""


@dataclass(frozen=True)
class KafkaEditPlan(EditPlan):
    """Records by state. ``ends``: the offsets at which topics ended, by partition, where they are known."""

    source: EditableSource
    topics: Mapping[str, TopicRecords]
    general_notes: tuple[str, ...]
    ends: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

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
        return lines + len(program()) + len(self._instructions())

    def write(self, part: Any, target: Target) -> Mapping[str, int]:
        return write_records(self.topics[part], target)

    def finish(self, target: Target) -> Mapping[str, int]:
        return write_instructions(self._topics(), self.ends, self.notes, target)

    @property
    def opens_local_folders(self) -> bool:
        """True: files of records are read where they lie on a disk."""
        return True

    def opened(self, path: str) -> Source:
        files = {state: record_file(self.topics[state].topic) for state in self.parts()}
        return self.source.with_records(path, files)

    def _topics(self) -> list[TopicRecords]:
        return [self.topics[state] for state in self.parts()]

    def _instructions(self) -> str:
        return instructions(self._topics(), self.ends, self.notes)


def kafka_edit_plan(
    source: EditableSource,
    edits: Sequence[StateEdit],
    options: EditOptions,
    store: Callable[[str], EditedStore],
    now: int,
    notes: Callable[[Mapping[str, TopicRecords]], Sequence[str]],
    ends: Callable[[str], Mapping[int, int]] = lambda _: {},
) -> KafkaEditPlan:
    """Return the plan of edits of states; ``store`` gives what is known of one, ``notes`` what its user must know.

    ``now`` is the time of the edit in milliseconds. ``ends``: the ends of a topic's partitions, where they are known.
    Raises UnsupportedError EDIT_UNSUPPORTED, InvalidInputError EDIT_REFUSED, WRONG_VALUE or INVALID_OPTION.
    """
    if options.as_batch:
        raise UnsupportedError(
            ErrorCode.EDIT_UNSUPPORTED, "Kafka Streams has no batches, so an edit cannot be one; leave that option out"
        )
    topics: dict[str, TopicRecords] = {}
    for edit in edits:
        found = store(edit.state)
        if edit.state in topics:
            raise found.refused("found two edits of it, expected one that has all its rows")
        topics[edit.state] = topic_records(found, edit, options, now)
    written = {state: each for state, each in topics.items() if len(each.records)}
    known = {each.topic: ends(state) for state, each in written.items()}
    return KafkaEditPlan(
        source, topics, tuple(notes(written)), {topic: offsets for topic, offsets in known.items() if offsets}
    )


def shared_notes(application: str, written: Mapping[str, TopicRecords]) -> list[str]:
    """Sentences that hold for every edit of changelogs of an application."""
    found = [
        f"Stop all instances of {application} before the records are produced, and start it afterwards: a running "
        "application does not read them, and overwrites them.",
        "If it runs with exactly_once_v2, let it close, or wait transaction.timeout.ms: an open transaction of it "
        "holds back the records of the edit, which have a transactional.id of their own.",
        "Local state directories may be kept: at its start the application applies what its changelogs have gained, "
        "and standby replicas do the same.",
    ]
    if any(each.erased for each in written.values()):
        found.append(
            "A delete takes effect at the start. The erased bytes leave the topic when the broker has compacted the "
            "segments that hold them (cleanup.policy, segment.ms, min.compaction.lag.ms, delete.retention.ms), and a "
            "local directory when RocksDB has compacted its tables. The files of this folder name the erased keys: "
            "delete them once they are applied."
        )
    return found
