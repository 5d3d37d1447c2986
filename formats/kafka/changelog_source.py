"""Changelog topics as a `Source`: a broker's log segments, exported records, or a broker. Each topic is a state.

A topic is named as Kafka names it, ``<application>-<store>-changelog``. What is given about the store in a TOML file
counts for the topic, too.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from statestore.formats.engine import FileFinding, Part, Source, StateAt, StateInfo, StateSize, Version
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, UnsupportedError, shown
from statestore.formats.kafka.changelog_at import OFFSET, VERSION, ChangelogAt, changelog_schema
from statestore.formats.kafka.changelog_files import SUFFIX, file_topics
from statestore.formats.kafka.changelogs.record_log import LogMoment, RecordLog
from statestore.formats.kafka.key_filters import PARTITION, placement_of
from statestore.formats.kafka.known_store import KnownStore, is_complete, known_store
from statestore.formats.kafka.log_wholeness import Wholeness
from statestore.formats.kafka.past_versions import past_info, past_versions, store_of_past
from statestore.formats.kafka.store_settings import Given, StoreSettings
from statestore.formats.kafka.stores.kind_detection import KindGuess
from statestore.formats.places.locations import Location, not_local, parse_location

if TYPE_CHECKING:  # what edits and captures alone need is loaded by them
    from statestore.formats.edits import EditOptions, EditPlan, StateEdit
    from statestore.formats.kafka.changelog_written import ChangelogMoment
    from statestore.formats.kafka.edits.edited_records import TopicRecords
    from statestore.formats.kafka.edits.edited_store import EditedStore
    from statestore.formats.written import Written

_OFFSETS = re.compile(r"\d+|\d+:\d+(,\d+:\d+)*")


@dataclass(frozen=True)
class KnownChangelog:
    """The logs of a topic, and what is known of its store."""

    logs: tuple[RecordLog, ...]
    store: KnownStore
    whole: dict[int, Wholeness] = field(default_factory=dict, repr=False, compare=False)


class Topics(Protocol):
    """The topics at a location."""

    @property
    def identity(self) -> str:
        """A text that distinguishes them from others at the same location, earlier or later."""

    @property
    def listed(self) -> Sequence[str]:
        """The names of changelogs, in order."""

    def has(self, topic: str) -> bool:
        """Return whether there is a topic of this name, listed or not."""

    def logs(self, topic: str) -> Sequence[RecordLog]:
        """The logs of a topic, as they are now."""

    def size(self, topic: str) -> tuple[int | None, int | None]:
        """Bytes and number of files; None: unknown."""

    def lost(self, topic: str, logs: Sequence[RecordLog]) -> Iterable[FileFinding]:
        """Return what the logs of a topic lack that once was there."""

    def partition_count(self, topic: str) -> int | None:
        """The number of partitions of a topic; None where only those with records are known."""

    def end_offsets(self, topic: str, logs: Sequence[RecordLog]) -> Mapping[int, int]:
        """The offset behind the last one of each partition that a broker has; none where that is not known."""


@dataclass(frozen=True)
class ChangelogSource(Source):
    """Topics at a location as they were when it was opened. ``known`` and ``moments`` are caches by topic."""

    location: Location
    topics: Topics
    settings: StoreSettings
    known: dict[str, KnownChangelog] = field(default_factory=dict, repr=False, compare=False)
    moments: dict[str, ChangelogMoment] = field(default_factory=dict, repr=False, compare=False)

    @property
    def path(self) -> str:
        return str(self.location)

    @property
    def identity(self) -> str:
        return hashlib.sha256(f"{self.path}\n{self.topics.identity}".encode()).hexdigest()[:32]

    @property
    def version_words(self) -> tuple[str, str]:
        return "reading", "readings"

    @property
    def keeps_versions(self) -> bool:
        return False

    def states(self) -> Sequence[str]:
        return self.topics.listed

    def listed_as(self, name: str) -> str | None:
        if self._topic(name) != name:  # past versions have a name that no list has
            return name if self.changelog(name).store.kind.has_past else None
        return super().listed_as(name)

    def changelog(self, topic: str) -> KnownChangelog:
        """The logs of a topic, surveyed, also by the name of its past versions.

        Raises NotFoundError TABLE_NOT_FOUND, CorruptError KAFKA_LOG or others.
        """
        topic = self._topic(topic)
        if not self.topics.has(topic):
            raise NotFoundError(
                ErrorCode.TABLE_NOT_FOUND,
                f"{self.path} has no topic {topic!r}; there are {', '.join(self.topics.listed) or 'no changelogs'}",
            )
        if topic not in self.known:
            logs = tuple(self.topics.logs(topic))
            given = self._given(topic)
            store = known_store(topic, (), given, None if is_complete(given) else guess_logged(logs))
            self.known[topic] = KnownChangelog(logs, store)
        return self.known[topic]

    def _topic(self, state: str) -> str:
        """The topic of a state, which may be that of past versions."""
        return store_of_past(state, self.topics.listed)

    def info(self, state: str) -> StateInfo:
        store = self.changelog(state).store
        kind, columns = store.kind, changelog_schema(store.form, store.retention)
        row_key = (*(kind.keys if kind.has_past else kind.row_keys), PARTITION)
        found = StateInfo(
            self._topic(state),
            store.shown_kind,
            columns,
            kind.keys,
            row_key,
            lookups=(kind.keys, row_key),
            placement=(*placement_of(kind), OFFSET),
            has_past=True,
            facts=store.facts,
        )
        return found if found.name == state else past_info(found, state, self.path)

    def versions(self, state: str, numbers: Sequence[int] | None = None) -> Sequence[Version]:
        return [Version(VERSION, None)] if numbers is None or VERSION in numbers else []

    def at(self, state: str, version: int) -> StateAt:
        if self._topic(state) != state:
            return past_versions(self.at(self._topic(state), version), state, self.path)
        found = self.changelog(state)
        moment = LogMoment(self._until([log.partition for log in found.logs]), self.settings.until_time)
        hide = self.settings.hide_expired
        return ChangelogAt(found.logs, found.store.form, found.store.retention, moment, hide, found.whole)

    # Captures

    def moment(self, state: str, before: Version | None) -> tuple[Version, tuple[int, int] | None] | None:
        """The topic as it is now. Raises as `changelog_moment`, InvalidInputError CONFLICTING_OPTIONS."""
        from statestore.formats.kafka.changelog_written import changelog_moment, is_behind

        if is_behind(self._captured_at(state), before):  # another capture has looked after this source was opened
            self.known.pop(state, None)
        found = changelog_moment(self._captured_at(state), before, f"changelog {state} of {self.path}")
        if found is None:
            return None
        self.moments[state] = found
        number = found.version.number
        first = 0 if before is None else before.number + 1
        return found.version, (first, number - 1) if found.missing and first < number else None

    def written(self, state: str, version: Version, before: Version) -> Written | None:
        from statestore.formats.kafka.changelog_written import OFFSETS, ChangelogWritten, has_one_row_a_record

        found = self.moments.get(state)
        if found is None or found.version.number != version.number or found.before != before.facts.get(OFFSETS):
            return None
        at, info = self._captured_at(state), self.info(state)
        if not has_one_row_a_record(at.kind):
            return None
        columns = [name for name in info.columns.names if name not in info.placement or name in info.row_key]
        return ChangelogWritten(at, found.new, tuple(columns), info.row_key, found.missing > 0)

    def _captured_at(self, state: str) -> ChangelogAt:
        at = self.at(state, VERSION)
        if not isinstance(at, ChangelogAt):
            raise UnsupportedError(
                ErrorCode.CAPTURE_UNSUPPORTED,
                f"{state} of {self.path}: past versions are captured with those of now; capture {self._topic(state)}",
            )
        given = self.settings
        if given.until_offset is not None or given.until_time is not None or given.hide_expired:
            raise InvalidInputError(
                ErrorCode.CONFLICTING_OPTIONS,
                "a capture takes all records of a changelog; leave out the options untilOffset, untilTime and "
                "hideExpired",
            )
        return at

    def size(self, state: str) -> StateSize:
        found = self.changelog(state)
        size, files = self.topics.size(self._topic(state))
        notes = tuple(note for log in found.logs for note in log.findings.notes())
        return StateSize(size, files=files, partitions=((VERSION, VERSION, len(found.logs)),), problems=notes)

    def notices(self, state: str, versions: Sequence[int], parts: Sequence[Part] | None = None) -> Sequence[str]:
        return tuple(dict.fromkeys(remark for log in self.changelog(state).logs for remark in log.findings.remarks))

    def file_findings(self, state: str, versions: Sequence[int]) -> Sequence[FileFinding]:
        """Return what the logs have lost, as the files beside them show."""
        return tuple(self.topics.lost(self._topic(state), self.changelog(state).logs))

    # Edits

    def edit_plan(self, version: int, edits: Sequence[StateEdit], options: EditOptions) -> EditPlan:
        """The records that topics get. Raises as `kafka_edit_plan`."""
        from statestore.formats.kafka.edit_plan import EditedStores, kafka_edit_plan

        now = time.time_ns() // 1_000_000
        known = self.settings.application, getattr(self.topics, "address", None)
        stores = EditedStores(self._edited_store, self._edit_notes, self._ends, self._read_until, *known)
        return kafka_edit_plan(self, edits, options, stores, now)

    def with_records(self, path: str, files: Mapping[str, str]) -> ChangelogSource:
        """The topics with the records in files at ``path`` behind their own; ``files``: their names by topic."""
        from statestore.formats.kafka.edits.overlaid_logs import overlaid

        known = dict(self.known)
        for state, file in files.items():
            topic, found = self._topic(state), self.changelog(state)
            known[topic] = KnownChangelog(overlaid(found.logs, f"{path}/{file}"), found.store)
        return replace(self, location=parse_location(path), known=known)

    def _edited_store(self, state: str) -> EditedStore:
        from statestore.formats.kafka.edits.edited_store import EditedStore

        topic = self._topic(state)
        found, where = self.changelog(topic), f"changelog {state} of {self.path}"
        store = found.store
        edited = EditedStore(
            where,
            state,
            topic,
            store.form,
            store.guessed,
            store.retention,
            found.logs,
            self.topics.partition_count(topic),
            past=state != topic,
        )
        if self.settings.until_offset is not None or self.settings.until_time is not None:
            raise edited.refused(
                "it is read up to a moment (untilOffset, untilTime), and records of an edit come at its end; leave "
                "these options out"
            )
        return edited

    def _ends(self, state: str) -> Mapping[int, int]:
        return self.topics.end_offsets(self._topic(state), self.changelog(state).logs)

    def _read_until(self, topic: str) -> Mapping[int, int]:
        """The offset behind the last record of each partition. Raises InvalidInputError EDIT_REFUSED if unknown."""
        known = {}
        for log in self.changelog(topic).logs:
            found = log.findings
            if found.offsets_partly_known or (found.records is not None and found.missing_offsets is None):
                raise InvalidInputError(
                    ErrorCode.EDIT_REFUSED,
                    f"changelog {topic} of {self.path}: its records have no offsets, so whether the topic has gained "
                    "others since is unknown; edit the topic of the broker itself, or run the program in the target",
                )
            known[log.partition] = found.next_offset
        return known

    def _edit_notes(self, written: Mapping[str, TopicRecords]) -> Sequence[str]:
        from statestore.formats.kafka.edit_plan import shared_notes

        notes = shared_notes("the application", written, self.states())
        if any(each.erased for each in written.values()):
            notes.append(
                "To leave no copy of erased rows on the machines of the application either, delete its folder in "
                "state.dir on each of them while it is stopped; it restores its stores from the changelogs."
            )
        return notes

    def _given(self, topic: str) -> Given:
        """Return the settings of a topic: under its name, or the one store whose changelog it is."""
        stores = [name for name in self.settings.by_store if topic == name or topic.endswith(f"-{name}{SUFFIX}")]
        return self.settings.of(max(stores, key=len) if stores else topic)

    def _until(self, partitions: Collection[int]) -> dict[int, int]:
        """The last offset that is read, of each partition that ends early."""
        text = self.settings.until_offset
        if text is None:
            return {}
        if not _OFFSETS.fullmatch(text):
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"option untilOffset is {shown(text)}; expected an offset, or partition:offset,partition:offset",
            )
        if ":" not in text:
            return dict.fromkeys(partitions, int(text))
        last = {int(each.split(":")[0]): int(each.split(":")[1]) for each in text.split(",")}
        unknown = sorted(set(last) - set(partitions))
        if unknown:
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"option untilOffset names partition {unknown[0]}; the topic has {', '.join(map(str, partitions))}",
            )
        return last


def open_changelogs(location: Location, settings: StoreSettings) -> ChangelogSource:
    """Open the topics in the files at a location. Raises NotFoundError NOTHING_HERE, UnsupportedError."""
    if not location.is_local:
        raise not_local(location, "changelogs")
    return ChangelogSource(location, file_topics(location.path, settings.records), settings)


def open_broker(location: Location, settings: StoreSettings, config: str | None) -> ChangelogSource:
    """Open the topics of the brokers at a location; ``config``: the path of a file with settings of the client.

    Raises InvalidInputError INVALID_LOCATION, INVALID_OPTION or NO_ACCESS, UnsupportedError KAFKA_NOT_INSTALLED.
    """
    from statestore.formats.kafka.broker.broker_log import broker_topics
    from statestore.formats.kafka.broker.connection import address_of

    return ChangelogSource(location, broker_topics(address_of(location, config), SUFFIX), settings)


# Guesses of the kind and the serdes of a store from records of its changelog.
#
# Key-value, timestamped and versioned stores log the same form, and windows always have a sequence number, so a guess
# is about the form of keys (spec of ``WindowKeySchema``, ``SessionKeySchema``,
# ``TimestampedKeyAndJoinSideSerializer``):
#
#     window              key | start:int64 | sequence:int32      a start near the record's timestamp
#     session             key | end:int64 | start:int64           both near it
#     outer-join buffer   timestamp:int64 | side:1 | key          side 0 or 1


SAMPLED = 512
_TIME, _SEQUENCE = Struct(">q"), Struct(">i")
_DAY = 86_400_000
_NEAR = 3_660 * _DAY
_MOST_SEQUENCE = 1 << 24


@dataclass(frozen=True)
class _Record:
    key: bytes
    value: bytes | None
    timestamp: int

    def is_near(self, at: int) -> bool:
        """Return whether eight bytes of the key are a time of the record's years."""
        (time,) = _TIME.unpack_from(self.key, at if at >= 0 else len(self.key) + at)
        return bool(self.timestamp - _NEAR < time <= self.timestamp + _DAY and time >= 0)


def guess_logged(logs: Iterable[RecordLog]) -> KindGuess:
    """Guess the kind of the store behind a changelog, from its first records."""
    sample = [record for log in logs for record in _sample(log)]
    if not sample:
        return KindGuess(None, False, ("the changelog has no record with a key",))
    for kind, meaning, fits, cut in _FORMS:
        if all(map(fits, sample)):
            if kind == "timestamped-window" and any(_sequence(record) for record in sample):
                kind, meaning = "window-duplicates", f"{meaning}, with sequence numbers"
            return _guess(kind, f"{len(sample)} of {len(sample)} sampled keys {meaning}", sample, cut)
    evidence = f"keys of {len(sample)} sampled records are not those of windows, sessions or outer joins"
    return _guess("timestamped-key-value", evidence, sample, lambda key: key)


def _guess(kind: str, evidence: str, sample: list[_Record], cut: Callable[[bytes], bytes]) -> KindGuess:
    keys = tuple(dict.fromkeys(cut(record.key) for record in sample))
    values = tuple(dict.fromkeys(record.value for record in sample if record.value is not None))
    return KindGuess(kind, False, (evidence,), (keys,), (values,))


def _sample(log: RecordLog) -> Iterable[_Record]:
    """The first SAMPLED records of a log, those with a key. A source is free to cut its records into lots."""
    wanted = SAMPLED
    for records in log.read():
        chosen = records.first(wanted).batch(("key", "value", "timestamp"))
        for key, value, timestamp in zip(*(column.to_pylist() for column in chosen.columns), strict=True):
            if key is not None:
                yield _Record(key, value, timestamp)
        wanted -= len(chosen)
        if wanted <= 0:
            return


def _sequence(record: _Record) -> int:
    number: int = _SEQUENCE.unpack_from(record.key, len(record.key) - 4)[0]
    return number


def _is_window(record: _Record) -> bool:
    return len(record.key) >= 12 and record.is_near(-12) and 0 <= _sequence(record) < _MOST_SEQUENCE


def _is_session(record: _Record) -> bool:
    if len(record.key) < 16 or not (record.is_near(-8) and record.is_near(-16)):
        return False
    end, start = (_TIME.unpack_from(record.key, len(record.key) - back)[0] for back in (16, 8))
    return bool(start <= end)


def _is_outer_join(record: _Record) -> bool:
    return len(record.key) >= 9 and record.is_near(0) and record.key[8] in (0, 1)


_FORMS: tuple[tuple[str, str, Callable[[_Record], bool], Callable[[bytes], bytes]], ...] = (
    ("session", "end in the bounds of a session near the record's time", _is_session, lambda key: key[:-16]),
    ("timestamped-window", "end in the start of a window near the record's time", _is_window, lambda key: key[:-12]),
    ("outer-join-buffer", "begin with a time near the record's and a side", _is_outer_join, lambda key: key[9:]),
)
