"""Facts about the stores of an application without their rows: families, sizes, offsets, and what is wrong.

An unclean copy, a damaged file or a link is a report about its database, never an error for the others. A database
without a table file is not an empty one: Kafka Streams switches the write-ahead log off, so rows that are not flushed
are in the application's memory and nowhere in the directory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.kafka.directory.applications import Application, Database, StorePartition
from statestore.formats.kafka.directory.database_copies import CURRENT, FIXED, digest, generation_of_files, opened_copy
from statestore.formats.kafka.directory.listings import Entry, entries_of, is_link, not_a_file
from statestore.formats.kafka.directory.stored_offsets import FAMILY, StoredOffsets, decode_offsets_family
from statestore.formats.kafka.directory.task_offsets import (
    CHECKPOINT,
    StoreOffsets,
    TaskOffsets,
    owner_of,
    read_task_offsets,
    store_offsets,
)
from statestore.formats.places.folder import Folder
from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.manifest import next_file_number, read_families
from statestore.formats.rocksdb.opened_families import Family, family_names, opened_families
from statestore.formats.rocksdb.plain_tables import opened_plain
from statestore.formats.rocksdb.rocksdb_errors import Unreadable, in_terms_of
from statestore.formats.rocksdb.table_head import newest_table_time

NO_TABLE_FILE = (
    "no table file yet: the rows are in the application's memory; its changelog holds them (a store that was closed "
    "without rows looks alike)"
)
OPEN = (
    "the store was not closed: the application was running, or crashed; rows written since the last flush are not in "
    "the directory, and its changelog holds them"
)
REOPENED = (
    "the store was opened again after it was closed: the application is running, or has crashed; rows written since "
    "are not in the directory, and its changelog holds them"
)
NO_OFFSET = (
    f"no offset of the store in {CHECKPOINT}: the application was running with exactly-once, or crashed, or the store "
    "has no changelog; rows written since the last flush are not in the directory, and its changelog holds them"
)
UNLISTED = (
    "table files are newer than the MANIFEST, whose last entries are not written yet or were cut off; the rows in them "
    "are not read, and its changelog holds them"
)
_UNCERTAIN = (NO_TABLE_FILE, OPEN, REOPENED, UNLISTED)
"""Problems of a database that can be read, and whose rows may not be the newest."""
MOST_OFFSETS = 100_000
MOST_OFFSET_BYTES = 64 << 20


@dataclass(frozen=True)
class FamilyFacts:
    """A column family. ``estimated_rows`` is RocksDB's estimate, which counts overwritten and deleted rows, too.

    Both are None where the files cannot be read.
    """

    name: str
    has_rows: bool | None
    estimated_rows: int | None


@dataclass(frozen=True)
class DatabaseFacts:
    """Facts about one RocksDB directory.

    ``bytes`` is the size of all its files, ``table_files`` and ``table_bytes`` those with rows. ``newest_table`` is the
    time of the last flush or compaction in epoch milliseconds, as RocksDB noted it in a table file, None without one or
    where none can be read. ``families`` is () and ``offsets`` None where the database cannot be opened; ``offsets`` is
    also None without a family of that name.
    ``is_refused``: it cannot be opened because its form is not supported, which is no damage.
    """

    database: Database
    bytes: int
    table_files: int
    table_bytes: int
    newest_table: int | None
    generation: str
    families: tuple[FamilyFacts, ...] = ()
    offsets: StoredOffsets | None = None
    problems: tuple[str, ...] = ()
    is_refused: bool = False

    @property
    def is_damaged(self) -> bool:
        """Return whether there are table files, and something is wrong with them."""
        return self.table_files > 0 and not self.families and not self.is_refused

    @property
    def is_unknown(self) -> bool:
        """Return whether the directory does not show if there are rows."""
        return self.table_files == 0 or not self.families or any(family.has_rows is None for family in self.families)


@dataclass(frozen=True)
class StoreFacts:
    """Facts about a store partition. ``problems`` also has those of its databases, with their paths.

    ``notices`` are reasons why rows that are read from it may not be the newest ones, or not all, each after the path
    of the task or database for which it holds.
    """

    partition: StorePartition
    databases: tuple[DatabaseFacts, ...]
    offsets: StoreOffsets
    generation: str
    problems: tuple[str, ...]
    notices: tuple[tuple[str, str], ...] = ()

    @property
    def bytes(self) -> int:
        """Size of all files of its databases."""
        return sum(found.bytes for found in self.databases)

    @property
    def families(self) -> tuple[str, ...]:
        """Names of the families of any of its databases, ascending."""
        return tuple(sorted({family.name for found in self.databases for family in found.families}))

    @property
    def estimated_rows(self) -> int | None:
        """RocksDB's estimate over all families with user data; None where a database cannot be judged."""
        if not self.databases or any(found.is_unknown for found in self.databases):
            return None
        return sum(
            family.estimated_rows or 0 for found in self.databases for family in found.families if family.name != FAMILY
        )


def application_facts(application: Application) -> list[StoreFacts]:
    """Facts about each store partition, in the application's order. Reads the files of each database."""
    tasks = {task: read_task_offsets(application.folder.at(*task.split("/"))) for task in application.tasks}

    def facts(partition: StorePartition) -> StoreFacts:
        return store_facts(application, partition, tasks.get(partition.task))

    return list(in_order(facts, application.partitions, reading_threads()))


def store_facts(
    application: Application, partition: StorePartition, task: TaskOffsets | None = None, *, only_offsets: bool = False
) -> StoreFacts:
    """Facts about one store partition. ``task``: the offset files of its task, if they are read already.

    ``only_offsets``: leave out the families, so that few databases are opened.
    """
    if task is None:
        task = read_task_offsets(application.folder.at(*partition.task.split("/")))
    facts = _offset_facts if only_offsets else database_facts
    databases = tuple(facts(application.folder, database) for database in partition.databases)
    neighbours = {other.store for other in application.partitions if other.task == partition.task}
    offsets = store_offsets(
        partition.store,
        [found.offsets for found in databases],
        task,
        application=application.name,
        topology=partition.topology,
        neighbours=neighbours,
        is_global=partition.is_global,
    )
    problems = [*partition.problems, *task.problems]
    notices = [(partition.task, problem) for problem in (*partition.problems, *task.problems)]
    for found in databases:
        problems += (f"{found.database.path}: {problem}" for problem in found.problems)
        notices += ((found.database.path, problem) for problem in found.problems if problem in _UNCERTAIN)
    if offsets.stale:
        problems.append(f"{', '.join(offsets.stale)}: left over from an earlier release, and not used")
    if offsets.changelog_from is None and any(found.table_files for found in databases) and not task.problems:
        problems.append(
            f"{partition.task} has no offset of this store in {CHECKPOINT}: the application was running with "
            "exactly-once, or crashed, or the store has no changelog"
        )
        if not _may_be_source_topic(task, partition, neighbours):
            notices.append((partition.task, NO_OFFSET))
    generation = digest({found.database.path: found.generation for found in databases})
    return StoreFacts(partition, databases, offsets, generation, tuple(problems), tuple(notices))


def _may_be_source_topic(task: TaskOffsets, partition: StorePartition, neighbours: Collection[str]) -> bool:
    """Return whether a topic of ``.checkpoint`` that is no changelog by its name can be the one of a store.

    A source table has no changelog of its own with ``topology.optimization``: its source topic takes the place.
    """
    return any(
        owner_of(topic, neighbours) is None and (partition.partition in found or partition.is_global)
        for topic, found in (task.checkpoint or {}).items()
    )


def notices_of(application: Application, partitions: Iterable[StorePartition]) -> list[str]:
    """Reasons why rows of store partitions may not be the newest ones, or not all, each with the tasks or databases.

    The plan of each read can afford them.
    """
    tasks: dict[str, TaskOffsets] = {}
    places: dict[str, list[str]] = {}
    for partition in partitions:
        if partition.task not in tasks:
            tasks[partition.task] = read_task_offsets(application.folder.at(*partition.task.split("/")))
        for place, reason in store_facts(application, partition, tasks[partition.task], only_offsets=True).notices:
            places.setdefault(reason, []).append(place)
    return [f"{_listed(found)}: {reason}" for reason, found in places.items()]


def _listed(places: Sequence[str]) -> str:
    more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
    return ", ".join(places[:_MOST_PLACES]) + more


_offset_facts_of: dict[tuple[str, str], DatabaseFacts] = {}
"""Facts without families by paths of application and database: reads that follow open no database for them."""
_MOST_KEPT = 4096
_MOST_PLACES = 5


def _offset_facts(application: Folder, database: Database) -> DatabaseFacts:
    key = application.path, database.path
    known = _offset_facts_of.get(key)
    if known is not None and known.generation == _generation(application, database):
        return known
    found = database_facts(application, database, only_offsets=True)
    if len(_offset_facts_of) >= _MOST_KEPT:
        _offset_facts_of.clear()
    _offset_facts_of[key] = found
    return found


def _generation(application: Folder, database: Database) -> str | None:
    try:
        return generation_of_files(entries_of(application.at(*database.path.split("/"))).values())
    except StateStoreError:
        return None


def database_facts(application: Folder, database: Database, *, only_offsets: bool = False) -> DatabaseFacts:
    """Facts about one database. Whatever is wrong with it is in ``problems``.

    ``only_offsets``: leave out the families, and copy and read no table file but those of family ``offsets``.
    """
    folder = application.at(*database.path.split("/"))
    try:
        if is_link(folder):
            raise not_a_file(folder.path)
        entries = entries_of(folder)
    except StateStoreError as error:
        return DatabaseFacts(database, 0, 0, 0, None, "", problems=(error.message,))
    tables = [entry for entry in entries.values() if FIXED.fullmatch(entry.name)]
    newest = None
    problems: list[str] = []
    families: tuple[FamilyFacts, ...] = ()
    offsets = None
    is_open_again = is_refused = False
    try:
        with opened_copy(folder, family=FAMILY if only_offsets else None) as copy:
            if has_unlisted_tables(copy, tables):
                problems.append(UNLISTED)
            if only_offsets:
                offsets = _read_offsets(copy, folder.path, problems)
            else:
                families, offsets = read_facts(copy, folder.path, problems)
                newest = newest_table_time(copy)
            is_open_again = is_opened_since_last_flush(copy)
    except StateStoreError as error:
        is_refused = isinstance(error, UnsupportedError)
        problems.append(error.message)
    if not tables and CURRENT in entries:
        problems.append(NO_TABLE_FILE)
    if offsets is not None and offsets.closed_cleanly is False:
        problems.append(OPEN)
    elif offsets is not None and offsets.closed_cleanly and is_open_again:
        problems.append(REOPENED)
        offsets = replace(offsets, closed_cleanly=False)
    return DatabaseFacts(
        database,
        sum(entry.size for entry in entries.values() if entry.kind == "file"),
        len(tables),
        sum(entry.size for entry in tables),
        None if newest is None else newest * 1000,
        generation_of_files(entries.values()),
        families,
        offsets,
        tuple(problems),
        is_refused,
    )


def _read_offsets(copy: Path, where: str, problems: list[str]) -> StoredOffsets | None:
    """The stored offsets in a copy for their family; None where there are none, or only RocksDB could read them."""
    wrong: list[str] = []
    try:
        if FAMILY not in read_families(copy):
            return None
        with opened_plain(copy, [FAMILY], None) as opened:
            return _offsets(opened[FAMILY], wrong)
    except Unreadable:
        return None
    finally:
        problems += (in_terms_of(where, copy, each) for each in wrong)


def has_unlisted_tables(copy: Path, tables: Iterable[Entry]) -> bool:
    """Return whether the MANIFEST of a private copy, which RocksDB has not opened yet, is older than a table file.

    ``tables`` were listed before the copy was made. RocksDB itself removes such a file, and goes on without its rows.
    """
    try:
        following = next_file_number(copy)
    except (StateStoreError, Unreadable):
        return False  # what cannot be read is reported by others
    return any(int(table.name.partition(".")[0]) >= following for table in tables)


def is_opened_since_last_flush(copy: Path) -> bool:
    """Return whether family ``offsets`` of a private copy has no table file from after the database was opened last.

    RocksDB numbers its files in the order of their creation, and each time a database is opened, it begins a MANIFEST.
    A clean close (KIP-1035) writes the status to a table file of the family. Until a flush, the status on disk is that
    of the close before. A compaction of this small family, which is rare, makes a new file too, and hides that.
    """
    try:
        family = read_families(copy).get(FAMILY)
    except (StateStoreError, Unreadable):
        return False  # what cannot be read is reported by others
    manifest = int((copy / CURRENT).read_text("ascii").strip().rpartition("-")[2])
    return family is not None and all(file.number < manifest for file in family.files)


def generation_of(application: Folder, databases: Iterable[Database]) -> str:
    """A text that changes whenever files of the databases change: their names, sizes and times of change.

    Two equal texts mean equal table files. A flush or a compaction changes it; so does a copy that does not keep times.
    Raises the storage's errors.
    """
    return digest(
        {
            database.path: generation_of_files(entries_of(application.at(*database.path.split("/"))).values())
            for database in databases
        }
    )


def read_facts(
    directory: Path, where: str, problems: list[str], *, offsets: bool = True
) -> tuple[tuple[FamilyFacts, ...], StoredOffsets | None]:
    """Families and stored offsets of a private copy of a database; ``where`` is the original's path for messages.

    ``offsets``: read them. Raises the errors of `opened_families` where it cannot be opened. A family that cannot be
    read becomes a problem.
    """
    names = family_names(directory)
    wrong: list[str] = []
    with opened_families(directory, names) as opened:
        found = tuple(_family(opened[name], name, wrong) for name in names)
        stored = _offsets(opened[FAMILY], wrong) if offsets and FAMILY in names else None
    problems += (in_terms_of(where, directory, each) for each in wrong)
    return found, stored


def _family(family: Family, name: str, problems: list[str]) -> FamilyFacts:
    try:
        has_rows = next(family.pairs(KeyRange()), None) is not None
        return FamilyFacts(name, has_rows, family.estimated_rows)
    except (StateStoreError, Unreadable) as error:
        problems.append(f"family {name}: {getattr(error, 'message', error)}")
        return FamilyFacts(name, None, None)


def _offsets(family: Family, problems: list[str]) -> StoredOffsets | None:
    found: dict[bytes, bytes] = {}
    size = 0
    try:
        for key, value in family.pairs(KeyRange()):
            found[key] = value
            size += len(value)
            if len(found) > MOST_OFFSETS or size > MOST_OFFSET_BYTES:
                problems.append(f"family {FAMILY} has more than {MOST_OFFSETS} rows or {MOST_OFFSET_BYTES} bytes")
                return None
        return decode_offsets_family(found)
    except (StateStoreError, Unreadable) as error:
        problems.append(f"family {FAMILY}: {getattr(error, 'message', error)}")
    return None
