"""Changelog topics in files as a `Source`: a broker's log segments, or exported records. Each topic is a state.

A topic is named as Kafka names it, ``<application>-<store>-changelog``. What is given about the store in a TOML file
counts for the topic, too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from statestore.formats.engine import Source, StateAt, StateInfo, StateSize, Version
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, shown
from statestore.formats.kafka.changelog_at import OFFSET, VERSION, ChangelogAt, changelog_schema
from statestore.formats.kafka.changelog_files import RECORD_FILE, SUFFIX
from statestore.formats.kafka.changelog_guess import guess_logged
from statestore.formats.kafka.changelogs.file_records import record_files
from statestore.formats.kafka.changelogs.record_log import LogMoment, RecordLog
from statestore.formats.kafka.key_filters import PARTITION
from statestore.formats.kafka.known_store import KnownStore, known_store
from statestore.formats.kafka.logs.log_directory import log_partitions
from statestore.formats.kafka.logs.log_reading import open_log
from statestore.formats.kafka.store_settings import Given, StoreSettings
from statestore.formats.places.locations import Location, not_local

_OFFSETS = re.compile(r"\d+|\d+:\d+(,\d+:\d+)*")


@dataclass(frozen=True)
class KnownChangelog:
    """The logs of a topic, and what is known of its store."""

    logs: tuple[RecordLog, ...]
    store: KnownStore


@dataclass(frozen=True)
class ChangelogSource(Source):
    """Topics at a location as they were when it was opened. ``known`` is a cache by topic."""

    location: Location
    topics: tuple[str, ...]
    settings: StoreSettings
    files: Mapping[str, tuple[str, ...]]
    known: dict[str, KnownChangelog] = field(default_factory=dict, repr=False, compare=False)

    @property
    def path(self) -> str:
        return str(self.location)

    @property
    def identity(self) -> str:
        return hashlib.sha256("\n".join((self.path, *self.topics)).encode()).hexdigest()[:32]

    @property
    def version_words(self) -> tuple[str, str]:
        return "reading", "readings"

    def states(self) -> Sequence[str]:
        return self.topics

    def changelog(self, topic: str) -> KnownChangelog:
        """The logs of a topic, surveyed. Raises NotFoundError TABLE_NOT_FOUND, CorruptError KAFKA_LOG or others."""
        if topic not in self.topics:
            raise NotFoundError(
                ErrorCode.TABLE_NOT_FOUND, f"{self.path} has no topic {topic!r}; there are {', '.join(self.topics)}"
            )
        if topic not in self.known:
            logs = self._logs(topic)
            given = self._given(topic)
            complete = None not in (given.kind, given.key_serde, given.value_serde)
            store = known_store(topic, (), given, None if complete else guess_logged(logs))
            self.known[topic] = KnownChangelog(logs, store)
        return self.known[topic]

    def info(self, state: str) -> StateInfo:
        store = self.changelog(state).store
        kind, columns = store.kind, changelog_schema(store.form, store.retention)
        row_key = (*(kind.keys if kind.has_past else kind.row_keys), PARTITION)
        return StateInfo(
            state,
            store.shown_kind,
            columns,
            kind.keys,
            row_key,
            lookups=(kind.keys, row_key),
            placement=(PARTITION, OFFSET),
            has_past=True,
            facts=store.facts,
        )

    def versions(self, state: str, numbers: Sequence[int] | None = None) -> Sequence[Version]:
        return [Version(VERSION, None)] if numbers is None or VERSION in numbers else []

    def at(self, state: str, version: int) -> StateAt:
        found = self.changelog(state)
        moment = LogMoment(
            {log.partition: last for log in found.logs if (last := self._until(log.partition)) is not None},
            self.settings.until_time,
        )
        return ChangelogAt(found.logs, found.store.form, found.store.retention, moment, self.settings.hide_expired)

    def size(self, state: str) -> StateSize:
        found = self.changelog(state)
        sizes = [Path(file).stat().st_size for file in self.files[state]]
        notes = tuple(note for log in found.logs for note in log.findings.notes())
        return StateSize(
            sum(sizes), files=len(sizes), partitions=((VERSION, VERSION, len(found.logs)),), problems=notes
        )

    def _logs(self, topic: str) -> tuple[RecordLog, ...]:
        if self.files[topic][0].endswith(".log"):
            return tuple(map(open_log, log_partitions(self.location.path, topic)))
        return tuple(record_files(self.files[topic]))

    def _given(self, topic: str) -> Given:
        """What is given about a topic: under its name, or the one store whose changelog it is."""
        stores = [name for name in self.settings.by_store if topic == name or topic.endswith(f"-{name}{SUFFIX}")]
        return self.settings.of(max(stores, key=len) if stores else topic)

    def _until(self, partition: int) -> int | None:
        """The last offset of a partition that is read."""
        text = self.settings.until_offset
        if text is None:
            return None
        if not _OFFSETS.fullmatch(text):
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"option untilOffset is {shown(text)}; expected an offset, or partition:offset,partition:offset",
            )
        if ":" not in text:
            return int(text)
        return {int(each.split(":")[0]): int(each.split(":")[1]) for each in text.split(",")}.get(partition)


def open_changelogs(location: Location, settings: StoreSettings) -> ChangelogSource:
    """Open the topics in the files at a location. Raises NotFoundError NOTHING_HERE, UnsupportedError."""
    if not location.is_local:
        raise not_local(location, "changelogs")
    files: dict[str, list[str]] = {}
    for entry in sorted(Path(location.path).iterdir()):
        found = RECORD_FILE.fullmatch(entry.name)
        if found is not None and entry.is_file():
            files.setdefault(found[1], []).append(str(entry))
    if not files:
        for partition in log_partitions(location.path):
            files.setdefault(partition.topic, []).extend(f"{partition.folder}/{name}" for name in partition.segments)
    named = {topic: tuple(paths) for topic, paths in files.items() if paths}
    return ChangelogSource(location, tuple(sorted(named)), settings, named)
