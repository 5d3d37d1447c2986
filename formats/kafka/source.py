"""The stores of a Kafka Streams application's state directory as a `Source`: read only, while it runs or not.

There is one version, the directory as it is. Versioned stores hold their past; other stores have only the rows of now,
of no known moment. What nothing on disk says of a store is given by the user or guessed, and a guess is shown as one.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from statestore.formats.engine import FileFinding, Part, Source, StateAt, StateInfo, StateSize, Version
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, UnsupportedError
from statestore.formats.jobs import Job, JobInput
from statestore.formats.kafka.columns.store_kinds import row_schema
from statestore.formats.kafka.directory.applications import Application, StorePartition, find_applications
from statestore.formats.kafka.directory.store_facts import (
    NO_TABLE_FILE,
    StoreFacts,
    application_facts,
    notices_of,
    store_facts,
)
from statestore.formats.kafka.directory.unlisted_files import unlisted_files
from statestore.formats.kafka.key_filters import PARTITION, placement_of
from statestore.formats.kafka.known_store import KnownStore, know_store
from statestore.formats.kafka.past_versions import past_info, past_versions, store_of_past
from statestore.formats.kafka.schemas.schema_files import public_serde
from statestore.formats.kafka.store_at import VERSION, DatabasePart, VersionedAt, state_schema, store_at
from statestore.formats.kafka.store_settings import StoreSettings, StoreUse
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import Location, parse_location
from statestore.formats.values.times import format_time

if TYPE_CHECKING:  # what edits alone need is loaded by them
    from statestore.formats.edits import EditOptions, EditPlan, StateEdit
    from statestore.formats.kafka.changelogs.record_log import RecordLog
    from statestore.formats.kafka.edits.edited_records import TopicRecords
    from statestore.formats.kafka.edits.edited_store import EditedStore


@dataclass(frozen=True)
class ApplicationSource(Source):
    """An application as it stood when it was opened. ``known`` is a cache of what is known of its stores.

    ``edited`` are the logs of stores with the records behind them that an edit gives their changelogs.
    """

    location: Location
    application: Application
    settings: StoreSettings
    known: dict[str, KnownStore] = field(default_factory=dict, repr=False, compare=False)
    edited: Mapping[str, tuple[RecordLog, ...]] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return str(self.location)

    @property
    def place(self) -> Location:
        return self.location

    @property
    def identity(self) -> str:
        process = self.application.process
        return f"{self.application.name}/{process}" if process else self.application.name

    @property
    def version_words(self) -> tuple[str, str]:
        return "directory", "directories"

    def states(self) -> Sequence[str]:
        return self.application.stores

    def listed_as(self, name: str) -> str | None:
        base = store_of_past(name, self.application.stores)
        if base != name:  # past versions have a name that no list has
            return name if self.store(base).kind.has_past else None
        return super().listed_as(name)

    def store(self, name: str) -> KnownStore:
        """Return a store with its form, also by the name of its past versions. Raises NotFoundError TABLE_NOT_FOUND."""
        name = store_of_past(name, self.application.stores)
        if name not in self.known:
            if name not in self.application.stores:
                raise NotFoundError(
                    ErrorCode.TABLE_NOT_FOUND,
                    f"{self.path} has no store {name!r}; there are {', '.join(self.application.stores) or 'none'}",
                )
            store = know_store(self.application, name, self.settings.of(name))
            self._check_places(store)
            use = self.settings.topology.get(name)
            self.known[name] = store if use is None else replace(store, facts={**store.facts, "topology": use.shown()})
        return self.known[name]

    def _check_places(self, store: KnownStore) -> None:
        """Raise InvalidInputError for databases of one name that are not one store of the kind."""
        numbers = [each.partition for each in store.partitions]
        tasks = ", ".join(f"{each.task}" for each in store.partitions)
        if len(set(numbers)) < len(numbers):
            raise InvalidInputError(
                ErrorCode.STATE_SELECTION,
                f"{self.path}: store {store.name!r} has one partition in several of the tasks {tasks}: some are left "
                f"over from another topology; open one task, such as {self.path}/{store.partitions[-1].task}",
            )
        other = [each.task for each in store.partitions if each.databases and each.segmented != store.kind.segmented]
        if other and store.is_known:
            form = "no segments" if store.kind.segmented else "segments of time"
            raise InvalidInputError(
                ErrorCode.KAFKA_STORE_KIND,
                f"{self.path}: store {store.name!r} has {form} in task {other[0]}, unlike a {store.kind.name} store; "
                "choose another kind",
            )

    def info(self, state: str) -> StateInfo:
        store = self.store(state)
        kind, columns = store.kind, state_schema(store)
        row_key = tuple(
            name for name in kind.row_keys if name in columns.names and not (kind.has_past and name != "key")
        )
        # A store in several partitions has a key in one of them, unless the application placed it by itself.
        found = StateInfo(
            store.name,
            store.shown_kind,
            columns,
            kind.keys,
            (*row_key, PARTITION),
            lookups=(kind.keys, (*row_key, PARTITION)),
            placement=placement_of(kind),
            has_past=kind.has_past,
            facts=store.facts,
            operator=part_of(store.partitions),
        )
        return found if state == store.name else past_info(found, state, self.path)

    def versions(self, state: str, numbers: Sequence[int] | None = None) -> Sequence[Version]:
        return [Version(VERSION, None)] if numbers is None or VERSION in numbers else []

    def at(self, state: str, version: int) -> StateAt:
        base = store_of_past(state, self.application.stores)
        if base != state:
            return past_versions(self.at(base, version), state, self.path)
        given = self.settings
        if state in self.edited:
            from statestore.formats.kafka.changelog_at import edited_at

            return edited_at(self.store(state), self.edited[state], hide_expired=given.hide_expired)
        return store_at(
            self.application.folder,
            self.store(state),
            allow_unflushed=given.allow_unflushed,
            hide_expired=given.hide_expired,
        )

    def job_info(self) -> Job:
        return application_job(self.application, self.settings.topology)

    def described(self) -> str:
        return describe_stores(self.application.name, map(self.store, self.states()), self.settings.topology)

    @property
    def keeps_versions(self) -> bool:
        return False

    def no_time(self, state: str, version: int) -> NotFoundError:
        return NotFoundError(
            ErrorCode.TIME_NOT_KEPT,
            f"store {state} of {self.path} is of kind {self.store(state).kind.name}, which keeps only the rows of now; "
            "its changelog has their history",
        )

    def notices(self, state: str, versions: Sequence[int], parts: Sequence[Part] | None = None) -> Sequence[str]:
        """Return the signs that a store was not closed, or that some of its files are not read, in these partitions."""
        store = self.store(state)
        read = None if parts is None else {part.partition for part in parts if isinstance(part, DatabasePart)}
        chosen = [each for each in store.partitions if read is None or each in read or not each.databases]
        found = [*self.application.problems, *notices_of(self.application, chosen)]
        # Without the option, the read of a database without table files is an error that says more.
        return [each for each in found if self.settings.allow_unflushed or not each.endswith(NO_TABLE_FILE)]

    def moment(self, state: str, before: Version | None) -> tuple[Version, tuple[int, int] | None] | None:
        """The store as it was closed: its number is the sum of the offsets behind those that its partitions have
        applied, its time that of its newest table file. All between two such states cannot be read.

        Raises NotFoundError ROWS_NOT_FLUSHED for a store that may be running, TIME_NOT_KEPT without its offsets;
        UnsupportedError CAPTURE_UNSUPPORTED for windows and sessions, whose segments go by themselves.
        """
        store, where = self.store(state), f"store {state} of {self.path}"
        if store.kind.segmented or state != store.name:
            raise UnsupportedError(
                ErrorCode.CAPTURE_UNSUPPORTED,
                f"{where}: found a store of kind {store.kind.name}; of a directory, stores without segments of time "
                "are captured. Capture the changelog of this one",
            )
        if any(each.is_global for each in store.partitions):
            raise UnsupportedError(
                ErrorCode.CAPTURE_UNSUPPORTED,
                f"{where}: a global store has no changelog, whose offsets a capture goes by; capture its input topic",
            )
        notices = notices_of(self.application, store.partitions)
        if notices:
            raise NotFoundError(
                ErrorCode.ROWS_NOT_FLUSHED,
                f"{where}: {notices[0]}. A directory is captured when its application is closed; capture the changelog "
                "beside it",
            )
        facts = self.facts(state)
        offsets = {place: offset for each in facts for place, offset in each.offsets.changelog.items()}
        if None in offsets.values() or not all(each.offsets.changelog for each in facts):
            raise NotFoundError(
                ErrorCode.TIME_NOT_KEPT, f"{where}: the offsets of its changelog are not known; capture the changelog"
            )
        flushed = [each.newest_table for found in facts for each in found.databases if each.newest_table is not None]
        if not flushed:
            return None
        number = sum(offset + 1 for offset in offsets.values() if offset is not None)
        shown = json.dumps({f"{topic}-{partition}": offset for (topic, partition), offset in sorted(offsets.items())})
        first = 0 if before is None else before.number + 1
        version = Version(number, max(flushed) * 1000, facts={"offsets": shown})
        return version, (first, number - 1) if first < number else None

    def size(self, state: str) -> StateSize:
        """Sizes from the files. Rows are unknown: RocksDB only estimates their number, and deletions mislead it."""
        facts = self.facts(state)
        databases = [database for each in facts for database in each.databases]
        problems = tuple(dict.fromkeys(problem for each in facts for problem in each.problems))
        return StateSize(
            bytes=sum(database.bytes for database in databases),
            files=sum(database.table_files for database in databases),
            partitions=((VERSION, VERSION, len(facts)),),
            problems=(*self.application.problems, *problems),
            damaged=any(database.is_damaged for database in databases),
            details=tuple(partition_note(each) for each in facts),
        )

    def file_findings(self, state: str, versions: Sequence[int]) -> Sequence[FileFinding]:
        """Return the table files that no MANIFEST lists, so that no read has their rows."""
        databases = [database for each in self.store(state).partitions for database in each.databases]
        return [found for each in databases for found in unlisted_files(self.application.folder, each)]

    # Edits

    def edit_plan(self, version: int, edits: Sequence[StateEdit], options: EditOptions) -> EditPlan:
        """The records that the changelogs of stores get. Raises as `kafka_edit_plan`."""
        from statestore.formats.kafka.edit_plan import EditedStores, kafka_edit_plan

        now, name = time.time_ns() // 1_000_000, self.application.name
        stores = EditedStores(self._edited_store, self._edit_notes, lambda _: {}, self._read_until, name)
        return kafka_edit_plan(self, edits, options, stores, now)

    def with_records(self, path: str, files: Mapping[str, str]) -> ApplicationSource:
        """The application at ``path`` with the records in files there; ``files``: their names by store."""
        from statestore.formats.kafka.edits.overlaid_logs import overlaid

        logs = {self.store(name).name: (self._logs(name), f"{path}/{file}") for name, file in files.items()}
        edited = {name: overlaid(*each) for name, each in logs.items()}
        return replace(self, location=parse_location(path), edited=edited)

    def _logs(self, state: str) -> tuple[RecordLog, ...]:
        from statestore.formats.kafka.directory_log import DirectoryLog

        store = self.store(state)
        allowed = self.settings.allow_unflushed
        return tuple(DirectoryLog(self.application.folder, store, each, allowed) for each in store.partitions)

    def _edited_store(self, state: str) -> EditedStore:
        """Return a store as an edit needs it.

        Raises InvalidInputError EDIT_REFUSED where its files may be behind its changelog.
        """
        from statestore.formats.kafka.edits.edited_store import EditedStore

        store, where = self.store(state), f"store {state} of {self.path}"
        topics = {topic for each in self.facts(state) for topic, _ in each.offsets.changelog}
        found = EditedStore(
            where,
            state,
            next(iter(topics)) if len(topics) == 1 else "",
            store.form,
            store.guessed,
            store.retention,
            self._logs(state),
            past=state != store.name,
        )
        if any(each.is_global for each in store.partitions):
            raise found.refused(
                "it is a global store, which has no changelog: put the corrected records into its input topic"
            )
        notices = notices_of(self.application, store.partitions)
        if notices:
            raise found.refused(f"its files may be behind its changelog ({notices[0]}); edit the changelog itself")
        if len(topics) != 1:
            named = ", ".join(sorted(topics)) or "none"
            raise found.refused(
                f"found {named} as its changelog topic in the offsets of the directory, expected one; edit the "
                "changelog itself: the topic of a broker, or an export of it"
            )
        at = self.at(store.name, VERSION)
        times = {} if not isinstance(at, VersionedAt) else at.stream_times()
        return replace(found, stream_times=times)

    def _read_until(self, state: str) -> Mapping[int, int]:
        """The offset behind the last one that each partition of a store has applied.

        Raises InvalidInputError EDIT_REFUSED if it is unknown.
        """
        known: dict[int, int] = {}
        for each in self.facts(state):
            for (_, partition), offset in each.offsets.changelog.items():
                if offset is None or self.application.process is None:
                    raise InvalidInputError(
                        ErrorCode.EDIT_REFUSED,
                        f"store {state} of {self.path}: the offset of its changelog that it has applied is unknown "
                        f"({each.partition.task}: {offset}), or written by a release before 2.8, so whether the topic "
                        "has gained records since is unknown; edit the topic of the broker itself, or run the program "
                        "in the target",
                    )
                known[partition] = offset + 1
        return known

    def _edit_notes(self, written: Mapping[str, TopicRecords]) -> Sequence[str]:
        from statestore.formats.kafka.edit_plan import shared_notes

        notes = shared_notes(f"application {self.application.name}", written, self.states())
        tasks = (each.task for state in written if written[state].erased for each in self.store(state).partitions)
        folders = ", ".join(f"{self.path}/{task}" for task in dict.fromkeys(tasks))
        if folders:
            notes.append(
                "To leave no copy of erased rows, delete these folders of tasks while the application is stopped, here "
                f"and on every machine that has them: {folders}; the application restores them from its changelogs."
            )
        return notes

    def facts(self, state: str) -> list[StoreFacts]:
        """Offsets, sizes and problems of each partition of a store."""
        return [store_facts(self.application, partition) for partition in self.store(state).partitions]


def partition_note(facts: StoreFacts) -> str:
    """A sentence about one partition of a store: what has been flushed, up to which offset, and how it was left."""
    place, offsets = facts.partition.task, facts.offsets
    times = [database.newest_table for database in facts.databases if database.newest_table is not None]
    is_flushed = any(database.table_files for database in facts.databases)
    flushed = format_time(max(times) * 1000) if times else "at an unknown time"
    parts = [f"last flush {flushed}" if is_flushed else "nothing flushed"]
    for (topic, partition), offset in sorted(offsets.changelog.items()):
        word = "next offset" if offsets.is_next else "offset"
        shown = "unknown" if offset is None else str(offset)
        parts.append(f"{word} {shown} of {topic}-{partition} ({offsets.changelog_from})")
    if not offsets.changelog:
        parts.append("no offset of its changelog")
    for topic, partitions in sorted(offsets.position.items()):
        seen = ", ".join(f"{partition}: {offset}" for partition, offset in sorted(partitions.items()))
        parts.append(f"has seen {topic} up to {seen}")
    closed = {True: "closed cleanly", False: "not closed", None: "not known whether it was closed"}
    families = ", ".join(
        sorted({family.name for database in facts.databases for family in database.families if family.has_rows})
    )
    return f"{place}: {'; '.join(parts)}; {closed[offsets.closed_cleanly]}; families with rows: {families or 'none'}"


def open_directory(location: Location, settings: StoreSettings) -> ApplicationSource:
    """Open the application at a location, or the one of a ``state.dir`` that the settings name.

    Raises InvalidInputError STATE_SELECTION where there are several, or none of that name.
    """
    found = find_applications(folder_at(location))
    names = [application.name for application in found]
    if settings.application is not None:
        found = [application for application in found if application.name == settings.application]
    if len(found) != 1:
        asked = "" if settings.application is None else f", not {settings.application!r}"
        raise InvalidInputError(
            ErrorCode.STATE_SELECTION,
            f"{location} has the applications {', '.join(names)}{asked}; open one of them, such as "
            f"{location.at(names[0])}, or name it with option application",
        )
    (application,) = found
    return ApplicationSource(location, application, settings)


# The sub-topologies of an application, which keep its stores, and the topics that each has read.
#
# The names of tasks have the number of the sub-topology. The topics are those of a description of the topology, where
# one is given; else those whose records a store has seen, which Kafka Streams stores with their offsets.


GLOBAL = "global stores"


def part_of(partitions: Sequence[StorePartition]) -> str | None:
    """Return the sub-topology that has a store; several where tasks of another topology are left over."""
    found = dict.fromkeys(map(_part, partitions))
    return " and ".join(found) or None


def application_job(application: Application, topology: Mapping[str, StoreUse]) -> Job:
    """Return what the directory records of the application, and a description of its topology, if there is one."""
    known = _described(application, topology) if topology else _seen(application)
    inputs = tuple(JobInput(f"topic {topic}", parts=tuple(sorted(parts))) for topic, parts in sorted(known.items()))
    whence = (
        "Topics are those of the given topology"
        if topology
        else "Topics are those of which a store has seen records; others may be read, too"
    )
    return Job(
        f"application {application.name}",
        f"{whence}. What a sub-topology writes is not recorded in the directory.",
        ("sub-topology", "sub-topologies"),
        inputs,
    )


def _part(partition: StorePartition) -> str:
    if partition.subtopology is None:
        return GLOBAL
    named = f"{partition.topology}, " if partition.topology else ""
    return f"{named}sub-topology {partition.subtopology}"


def _described(application: Application, topology: Mapping[str, StoreUse]) -> dict[str, set[str]]:
    stores: dict[str, list[StorePartition]] = {}
    for each in application.partitions:
        stores.setdefault(each.store, []).append(each)
    pairs = (
        (topic, part)
        for store, partitions in stores.items()
        if store in topology and (part := part_of(partitions)) is not None
        for topic in topology[store].topics
    )
    return _by_topic(pairs)


def _seen(application: Application) -> dict[str, set[str]]:
    parts = {
        each: part_of([other for other in application.partitions if other.store == each]) or ""
        for each in application.stores
    }
    return _by_topic(
        (topic, parts[found.partition.store])
        for found in application_facts(application)
        for topic in found.offsets.position
    )


def _by_topic(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for topic, part in pairs:
        found.setdefault(topic, set()).add(part)
    return found


# The TOML file that says of an application's stores what nothing on disk says: found, guessed, and to be corrected.


_BARE = re.compile(r"[A-Za-z0-9_-]+")
_KEYS = {"kind": "kind", "key serde": "key_serde", "value serde": "value_serde"}


def describe_stores(application: str, stores: Iterable[KnownStore], topology: Mapping[str, StoreUse]) -> str:
    """Return the file. Each value has a comment that says where it comes from; a guess is to be checked."""
    known = list(stores)
    parts = [_head(application)]
    parts += [_store(store, topology.get(store.name)) for store in known]
    names = {store.name for store in known}
    parts += [
        _printable(f"# {name} ({use.shown()}) has no files: it is kept in memory, and only its changelog has it")
        for name, use in topology.items()
        if name not in names
    ]
    return "\n\n".join(parts) + "\n"


def _head(application: str) -> str:
    return (
        f"# What is known of the stores of the Kafka Streams application {_printable(application)}. Nothing on disk\n"
        "# names kinds and serdes, so check what is guessed, correct it, and give this file with --stores-file.\n"
        f"application = {json.dumps(application)}"
    )


def _store(store: KnownStore, use: StoreUse | None) -> str:
    lines = [f"[stores.{_name(store.name)}]"]
    if use is not None:
        lines.append(f"# {_printable(use.shown())}")
    key, value = public_serde(store.form.key_serde), public_serde(store.form.value_serde)
    values = {"kind": store.form.kind, "key serde": key, "value serde": value}
    for fact, key in _KEYS.items():
        stated = store.facts[fact]
        is_known = not stated.startswith("unknown")
        lines.append(f"# {_printable(stated)}")
        lines.append(f"{'' if is_known else '# '}{key} = {json.dumps(values[fact])}")
    if "window_end" in row_schema(store.form).names:
        size = store.form.window_size
        lines.append("# window_size = 60000  # milliseconds; not on disk" if size is None else f"window_size = {size}")
    if store.kind.segmented or store.kind.has_past:
        kept = store.retention
        lines.append("# retention = 86400000  # milliseconds; not on disk" if kept is None else f"retention = {kept}")
    return "\n".join(lines)


def _name(store: str) -> str:
    return store if _BARE.fullmatch(store) else json.dumps(store)


def _printable(text: str) -> str:
    """A comment has no control characters, line ends among them."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
