"""Offsets of a store, from the files of its task and from its own databases, and which of them count.

Up to release 4.2, a task has ``.checkpoint`` (changelog topics) and ``<store>.position`` (source topics). From 4.3 on
(KIP-1035) each database has a family ``offsets``; ``.checkpoint_<store>`` remains for stores that do not keep offsets
themselves. An upgrade leaves ``<store>.position`` behind. It is stale then, and so is any ``.checkpoint`` entry of a
store that has the family.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.kafka.directory.listings import entries_of, read_text
from statestore.formats.kafka.directory.state_directory import changelog_topic
from statestore.formats.kafka.directory.stored_offsets import FAMILY, StoredOffsets, merge_positions
from statestore.formats.places.folder import Folder

CHECKPOINT = ".checkpoint"
POSITION_SUFFIX = ".position"
_OWN_CHECKPOINT = f"{CHECKPOINT}_"
TopicOffsets = dict[tuple[str, int], int | None]


@dataclass(frozen=True)
class TaskOffsets:
    """Content of a task's offset files. ``checkpoint`` is None without the file; the others are by store."""

    checkpoint: Offsets | None = None
    own: Mapping[str, Offsets] = field(default_factory=dict)
    positions: Mapping[str, Offsets] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class StoreOffsets:
    """Offsets of one store partition.

    ``changelog`` has an offset by topic and partition: of the last record applied to what is on disk, or for a global
    store (``is_next``) of the next one; None where it is unknown. Of several databases the least offset counts, because
    each flushes by itself. Releases before 2.5 stored the next offset everywhere, so a difference of one proves
    nothing.

    ``position`` has the offsets of source records that the store has seen. ``changelog_from`` and ``position_from``
    name the file, or "family offsets"; None: there is none. ``closed_cleanly`` is None where nothing records it.
    ``stale`` names files that are left over from an earlier release.
    """

    changelog: TopicOffsets = field(default_factory=dict)
    changelog_from: str | None = None
    position: Mapping[str, Mapping[int, int | None]] = field(default_factory=dict)
    position_from: str | None = None
    closed_cleanly: bool | None = None
    is_next: bool = False
    stale: tuple[str, ...] = ()


def read_task_offsets(task: Folder) -> TaskOffsets:
    """Read the offset files of a task's folder. A damaged file is a problem, and read as if it were missing."""
    problems: list[str] = []
    try:
        names = list(entries_of(task))
    except StateStoreError as error:
        return TaskOffsets(problems=(error.message,))
    own = {
        name.removeprefix(_OWN_CHECKPOINT): offsets
        for name in names
        if name.startswith(_OWN_CHECKPOINT) and (offsets := _read(task, name, problems)) is not None
    }
    positions = {
        name.removesuffix(POSITION_SUFFIX): offsets
        for name in names
        if name.endswith(POSITION_SUFFIX) and (offsets := _read(task, name, problems)) is not None
    }
    checkpoint = _read(task, CHECKPOINT, problems) if CHECKPOINT in names else None
    return TaskOffsets(checkpoint, own, positions, tuple(problems))


def store_offsets(
    store: str,
    stored: Sequence[StoredOffsets | None],
    task: TaskOffsets,
    *,
    application: str,
    topology: str | None,
    neighbours: Collection[str],
    is_global: bool,
) -> StoreOffsets:
    """Offsets of a store partition from its databases and its task's files.

    ``stored`` has the content of each database's family ``offsets``, None for a database without the family.
    ``neighbours`` are the stores of the task; they decide whose changelog an entry of ``.checkpoint`` is.
    """
    families = [offsets for offsets in stored if offsets is not None]
    own_files = [f"{_OWN_CHECKPOINT}{store}"] if store in task.own else []
    position_files = [f"{store}{POSITION_SUFFIX}"] if store in task.positions else []
    in_checkpoint = _of_store(task.checkpoint or {}, store, application, topology, neighbours, is_global)
    if families:
        return StoreOffsets(
            _least(stored),
            f"family {FAMILY}",
            merge_positions([offsets.position for offsets in families]),
            f"family {FAMILY}" if any(offsets.position for offsets in families) else None,
            _closed(stored),
            is_global,
            (*([CHECKPOINT] if in_checkpoint else []), *own_files, *position_files),
        )
    own = task.own.get(store)
    return StoreOffsets(
        _flat(own) if own is not None else in_checkpoint,
        own_files[0] if own_files else CHECKPOINT if in_checkpoint else None,
        task.positions.get(store, {}),
        position_files[0] if position_files else None,
        None,
        is_global,
    )


def _read(task: Folder, name: str, problems: list[str]) -> Offsets | None:
    try:
        data = read_text(task, name)
        return None if data is None else decode_offsets(data, f"{task.path}/{name}")
    except StateStoreError as error:
        problems.append(error.message)
        return None


def _of_store(
    checkpoint: Offsets,
    store: str,
    application: str,
    topology: str | None,
    neighbours: Collection[str],
    is_global: bool,
) -> TopicOffsets:
    if is_global:  # the topics are source topics, whose names say nothing about the store
        return _flat(checkpoint) if len(neighbours) == 1 else {}
    exact = changelog_topic(application, store, topology)
    if exact in checkpoint:
        return _flat({exact: checkpoint[exact]})
    return _flat({topic: found for topic, found in checkpoint.items() if owner_of(topic, neighbours) == store})


def owner_of(topic: str, stores: Collection[str]) -> str | None:
    """The store whose changelog a topic is by its end; of two, the one with the longer name."""
    return max((store for store in stores if topic.endswith(f"-{store}-changelog")), key=len, default=None)


def _flat(offsets: Mapping[str, Mapping[int, int | None]]) -> TopicOffsets:
    return {(topic, partition): offset for topic, found in offsets.items() for partition, offset in found.items()}


def _least(stored: Sequence[StoredOffsets | None]) -> TopicOffsets:
    """The least offset of each topic partition; None if a database does not have one."""
    found: TopicOffsets = {}
    for key in {key for offsets in stored if offsets is not None for key in offsets.changelog}:
        each = [None if offsets is None else offsets.changelog.get(key) for offsets in stored]
        known = [offset for offset in each if offset is not None]
        found[key] = min(known) if len(known) == len(each) else None
    return found


def _closed(stored: Sequence[StoredOffsets | None]) -> bool | None:
    each = [None if offsets is None else offsets.closed_cleanly for offsets in stored]
    if False in each:
        return False
    return None if None in each else True


# ``.checkpoint`` and ``<store>.position``: offsets by topic and partition as text (``OffsetCheckpoint``).
#
#     0                             version
#     2                             number of entries
#     orders 0 41                   topic, partition, offset; any run of white space between them
#     orders 1 -4                   -4: unknown
#
# A file that would be empty is not written, so a missing one is normal.


Offsets = dict[str, dict[int, int | None]]

VERSION = 0
UNKNOWN_OFFSET = -4
_LINE_END = re.compile("\r\n|\n|\r")
_SPACE = re.compile("[ \t\x0b\f]+")
_NUMBER = re.compile("[+-]?[0-9]{1,19}")


def decode_offsets(data: bytes | str, name: str = ".checkpoint") -> Offsets:
    """Offsets by topic and partition, None where unknown.

    Raises CorruptError KAFKA_FILE, naming the file ``name`` and what was found and expected. Negative offsets other
    than "unknown" are left out, as Kafka does.
    """
    lines = _lines(_text(data, name))
    version = _number(name, lines[0], 32) if lines else None
    if version != VERSION:
        raise _corrupt(name, f"found version {version}, expected {VERSION}")
    if len(lines) < 2:
        raise _corrupt(name, "found the end after its first line, expected the number of entries")
    expected = _number(name, lines[1], 32)
    found: Offsets = {}
    for line in lines[2:]:
        topic, partition, offset = _entry(name, line)
        if offset is not None and offset < 0:
            expected -= 1
        else:
            found.setdefault(topic, {})[partition] = offset
    entries = sum(map(len, found.values()))
    if entries != expected:
        raise _corrupt(name, f"found {entries} entries, expected {expected}")
    return found


def _text(data: bytes | str, name: str) -> str:
    try:
        return data if isinstance(data, str) else data.decode()
    except UnicodeDecodeError as error:
        raise _corrupt(name, f"found {error}, expected UTF-8") from error


def _lines(text: str) -> list[str]:
    lines = _LINE_END.split(text)
    return lines if lines[-1] else lines[:-1]


def _entry(name: str, line: str) -> tuple[str, int, int | None]:
    pieces = _SPACE.split(line.rstrip(" \t\x0b\f"))
    if len(pieces) != 3:
        raise _corrupt(name, f"found line {line[:80]!r}, expected topic, partition and offset")
    topic, partition, offset = pieces[0], _number(name, pieces[1], 32), _number(name, pieces[2], 64)
    if not topic or partition < 0:
        raise _corrupt(name, f"found line {line[:80]!r}, expected a topic and a partition of 0 or more")
    return topic, partition, None if offset == UNKNOWN_OFFSET else offset


def _number(name: str, text: str, bits: int) -> int:
    number = int(text) if _NUMBER.fullmatch(text) else None
    if number is None or not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise _corrupt(name, f"found {text[:40]!r}, expected a number of {bits} bits")
    return number


def _corrupt(name: str, found: str) -> CorruptError:
    return CorruptError(
        ErrorCode.KAFKA_FILE, f"file {name}: {found}; restore it from a copy, or delete it to do without"
    )
