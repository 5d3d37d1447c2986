"""Applications, tasks and stores below a path, by the names of folders alone.

The path is that of an application, of a ``state.dir`` with several, of a named topology, or of one task. Nothing on
disk names the kind of a store. Names decide which folder is a database:

    <task>/rocksdb/<store>                    one database
    <task>/<store>/<store>.<ms>               a segment; also <store>:<ms> and <store>-<yyyyMMddHHmm>
    <task>/rocksdb/<store>-<yyyyMMddHHmm>     a segment as the releases of 2016 placed it
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field, replace
from uuid import UUID

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError
from statestore.formats.kafka.directory.listings import Entry, entries_of, read_text
from statestore.formats.kafka.directory.state_directory import (
    GLOBAL,
    PROCESS_METADATA,
    ROCKSDB,
    decode_process_metadata,
    decode_task,
    named_topology,
)
from statestore.formats.kafka_rows.time_segments import decode_original_time_segment_name, decode_time_segment_name
from statestore.formats.places.folder import Folder
from statestore.formats.places.listings import EntryKind

POSITION_SUFFIX = ".position"
_MOST_CHILDREN = 64


@dataclass(frozen=True)
class Database:
    """One RocksDB directory; ``path`` is below the application's folder.

    ``start`` is the time in epoch milliseconds with which its segment begins, from its name; None: not a segment.
    ``start_is_minute``: the name has minutes only, so the segment may begin up to a minute later.
    """

    path: str
    start: int | None = None
    start_is_minute: bool = False


@dataclass(frozen=True)
class StorePartition:
    """A store in one task, or a global store: then ``subtopology`` and ``partition`` are None.

    ``task`` is the task's folder below the application's. ``databases`` are in the order of their segments; () for a
    segmented store whose segments have all been dropped.
    """

    store: str
    task: str
    subtopology: int | None
    partition: int | None
    topology: str | None
    segmented: bool
    databases: tuple[Database, ...]
    problems: tuple[str, ...] = ()

    @property
    def is_global(self) -> bool:
        return self.subtopology is None


@dataclass(frozen=True)
class Application:
    """An application's folder and the store partitions in it.

    ``name`` is the folder's name, which is the application id unless somebody renamed a copy. ``tasks`` also has tasks
    without a store. ``problems`` are sentences for users about what could not be read.
    """

    folder: Folder
    name: str
    process: UUID | None = None
    tasks: tuple[str, ...] = ()
    partitions: tuple[StorePartition, ...] = ()
    problems: tuple[str, ...] = field(default=(), compare=False)

    @property
    def stores(self) -> tuple[str, ...]:
        """Names of the stores, ascending. Two topologies may have stores of one name."""
        return tuple(sorted({partition.store for partition in self.partitions}))


def recognises(folder: Folder) -> bool:
    """Return whether the names in a folder are those of a Kafka Streams application, ``state.dir`` or task.

    One listing decides about an application or a task. For a local ``state.dir``, its folders are listed, too. No file
    is read. Without Kafka's metadata file, all folders of an application must be tasks.
    """
    entries = [(info.base_name, info.kind is EntryKind.FOLDER) for info in folder.entries()]
    if _must_be_application(entries) or _is_task(folder, entries):
        return True
    children = [name for name, is_folder in entries if is_folder]
    if not folder.is_local or len(children) != len(entries) or len(children) > _MOST_CHILDREN:
        return False
    return any(_must_be_application(_names(entries_of(folder.at(name)))) for name in children)


def find_applications(folder: Folder) -> list[Application]:
    """The applications at or below a folder, by name, with what is in them.

    A folder that is a task, ``global`` or a named topology is read as its application with nothing else in it. A folder
    that cannot be listed becomes a problem of its application. Raises NotFoundError NOTHING_HERE where there is no
    application, and the storage's errors for the folder itself.
    """
    entries = entries_of(folder)
    names = _names(entries)
    if _is_task(folder, names) and not _is_application(names):
        return [_of_task(folder)]
    if named_topology(posixpath.basename(folder.path)) and _tasks(entries):
        return [_read(_parent(folder), only=posixpath.basename(folder.path))]
    if _is_application(names):
        return [_read(folder)]
    found = [
        _read(folder.at(name))
        for name, entry in entries.items()
        if entry.kind == "folder" and _is_application(_names(_listed(folder.at(name), [])))
    ]
    if not found:
        raise NotFoundError(
            ErrorCode.NOTHING_HERE,
            f"{folder.path}: found no Kafka Streams application; expected folders of tasks such as 0_0, or a state.dir "
            "with folders of applications",
        )
    return found


def _is_application(entries: list[tuple[str, bool]]) -> bool:
    folders = [name for name, is_folder in entries if is_folder]
    return (PROCESS_METADATA, False) in entries or any(map(decode_task, folders)) or folders == [GLOBAL]


def _must_be_application(entries: list[tuple[str, bool]]) -> bool:
    """Return whether nothing but an application has such entries: Kafka writes no zeros in front of a number."""
    folders = [name for name, is_folder in entries if is_folder]
    tasks = [name for name in folders if (task := decode_task(name)) and name == f"{task[0]}_{task[1]}"]
    own = [name for name in folders if name == GLOBAL or named_topology(name) is not None]
    return (PROCESS_METADATA, False) in entries or (bool(tasks) and len(tasks) + len(own) == len(folders))


def _is_task(folder: Folder, entries: list[tuple[str, bool]]) -> bool:
    name = posixpath.basename(folder.path)
    if decode_task(name) is None and name != GLOBAL:
        return False
    return any(
        (is_folder and name == ROCKSDB) or (not is_folder and name.endswith((POSITION_SUFFIX, ".checkpoint")))
        for name, is_folder in entries
    ) or (folder.is_local and any(_segments(folder.at(name), name) for name, is_folder in entries if is_folder))


def _names(entries: dict[str, Entry]) -> list[tuple[str, bool]]:
    return [(entry.name, entry.kind == "folder") for entry in entries.values()]


def _segments(folder: Folder, store: str) -> bool:
    return any(
        entry.kind == "folder" and _start_of(store, entry.name) is not None for entry in _listed(folder, []).values()
    )


def _parent(folder: Folder) -> Folder:
    return replace(folder, path=posixpath.dirname(folder.path) or "/")


def _of_task(folder: Folder) -> Application:
    task, parent = posixpath.basename(folder.path), _parent(folder)
    topology = posixpath.basename(parent.path)
    if named_topology(topology) is not None:
        return _read(_parent(parent), only=f"{topology}/{task}")
    return _read(parent, only=task)


def _read(folder: Folder, only: str | None = None) -> Application:
    """The application; with ``only``, nothing but the task or topology of this path."""
    problems: list[str] = []
    process = _process(folder, problems)
    tasks: list[str] = []
    partitions: list[StorePartition] = []
    listed = _listed(folder, problems)
    for name in _wanted(listed, only, problems):
        topology = named_topology(name)
        if topology is None:
            tasks.append(name)
        else:
            inside = only.rpartition("/")[2] if only is not None and "/" in only else None
            entries = _listed(folder.at(name), problems)
            tasks += [f"{name}/{task}" for task in _tasks(entries) if inside in (None, task)]
    for task in tasks:
        partitions += _stores_of(folder, task, problems)
    partitions.sort(key=_order)
    return Application(
        folder, posixpath.basename(folder.path), process, tuple(tasks), tuple(partitions), tuple(problems)
    )


def _wanted(listed: dict[str, Entry], only: str | None, problems: list[str]) -> list[str]:
    if only is not None:
        return [only.partition("/")[0]]
    for name, entry in listed.items():
        if entry.kind == "other" and (decode_task(name) or name == GLOBAL or named_topology(name)):
            problems.append(f"{name} is a link or no folder, and is not followed")
    folders = [name for name, entry in listed.items() if entry.kind == "folder"]
    return [
        *_tasks(listed),
        *(name for name in folders if name == GLOBAL),
        *(name for name in folders if named_topology(name) is not None),
    ]


def _tasks(entries: dict[str, Entry]) -> list[str]:
    found = [(task, name) for name, entry in entries.items() if entry.kind == "folder" and (task := decode_task(name))]
    return [name for _, name in sorted(found)]


def _listed(folder: Folder, problems: list[str]) -> dict[str, Entry]:
    """The entries; a folder that cannot be listed is a problem."""
    try:
        return entries_of(folder)
    except StateStoreError as error:
        problems.append(error.message)
        return {}


def _process(folder: Folder, problems: list[str]) -> UUID | None:
    try:
        data = read_text(folder, PROCESS_METADATA)
        return None if data is None else decode_process_metadata(data)
    except StateStoreError as error:
        problems.append(error.message)
        return None


def _order(partition: StorePartition) -> tuple[str, str, int, int]:
    return (
        partition.store,
        partition.topology or "",
        -1 if partition.subtopology is None else partition.subtopology,
        -1 if partition.partition is None else partition.partition,
    )


def _stores_of(folder: Folder, task: str, problems: list[str]) -> list[StorePartition]:
    topology, _, name = task.rpartition("/")
    number = decode_task(name)
    base = StorePartition(
        "", task, number[0] if number else None, number[1] if number else None, named_topology(topology), False, ()
    )
    found = []
    for entry in _listed(folder.at(*task.split("/")), problems).values():
        if entry.name == ROCKSDB:
            if entry.kind == "folder":
                found += _unsegmented(folder, base, problems)
            else:
                problems.append(f"{task}/{ROCKSDB} is a link or no folder, and is not followed")
        elif entry.kind == "folder":
            found.append(_segmented(folder, base, entry.name, problems))
        elif entry.kind == "other":
            found.append(_refused(replace(base, store=entry.name, segmented=True), f"{task}/{entry.name}"))
    return found


def _refused(partition: StorePartition, path: str) -> StorePartition:
    return replace(partition, problems=(f"{path} is a symbolic link or no folder, and is not followed",))


def _unsegmented(folder: Folder, base: StorePartition, problems: list[str]) -> list[StorePartition]:
    listed = _listed(folder.at(*base.task.split("/"), ROCKSDB), problems)
    found: list[StorePartition] = []
    originals: dict[str, list[Database]] = {}
    for entry in listed.values():
        path = f"{base.task}/{ROCKSDB}/{entry.name}"
        original = decode_original_time_segment_name(entry.name)
        if entry.kind == "other":
            found.append(_refused(replace(base, store=entry.name), path))
        elif entry.kind == "file":
            continue
        elif original is not None and original[0] not in listed:
            originals.setdefault(original[0], []).append(Database(path, original[1], True))
        else:
            found.append(replace(base, store=entry.name, databases=(Database(path),)))
    for store, databases in originals.items():
        found.append(replace(base, store=store, segmented=True, databases=_ordered(databases)))
    return found


def _segmented(folder: Folder, base: StorePartition, store: str, problems: list[str]) -> StorePartition:
    path = f"{base.task}/{store}"
    databases, own = [], []
    for entry in _listed(folder.at(*path.split("/")), problems).values():
        start = _start_of(store, entry.name)
        if start is None:
            if entry.kind != "file":
                own.append(f"{path}/{entry.name} has not the name of a segment of {store}, and is not read")
        elif entry.kind == "folder":
            databases.append(Database(f"{path}/{entry.name}", start, entry.name[len(store)] == "-"))
        else:
            own.append(f"{path}/{entry.name} is a symbolic link or no folder, and is not followed")
    return replace(base, store=store, segmented=True, databases=_ordered(databases), problems=tuple(own))


def _start_of(store: str, name: str) -> int | None:
    try:
        return decode_time_segment_name(store, name).start
    except InvalidInputError:
        return None


def _ordered(databases: list[Database]) -> tuple[Database, ...]:
    return tuple(sorted(databases, key=lambda database: (database.start or 0, database.path)))
