"""States that a changelog describes: each is logged before its first change, and changes have its number.

    description  byte op, 8 or 9 | version:int32 | the state, as in headers | of keyed states: bool ttl, and a Java
                 object if so | bool default, and a value if so | number:int16 | kind:byte

Numbers are those of one backend: after a restore, other states may have them, which are described before they change.
The type of keys is nowhere in a changelog, but within that of timers. Source: ``AbstractStateChangeLogger``,
``KvStateChangeLoggerImpl`` and ``ChangelogBackendLogApplier`` of Flink.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.serializers.backend_header import KeyedStateHeader, keyed_header, read_state_meta
from statestore.formats.flink.serializers.unknown_lengths import Unit, read_units
from statestore.formats.flink.snapshot.data_input import DataInput
from statestore.formats.flink.snapshot.handles import ChangelogHandle
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.flink.streams.change_sets import DESCRIPTION, read_changes

META_VERSIONS = (6, 7)
"""Versions of a state's description (``StateMetaInfoSnapshotReadersWriters``), which are read alike."""
_OPERATIONS = (8, 9)
_KEYED, _QUEUE = 0, 3
_BEHIND = 3  # the number and the kind
_NO_DEFAULTS = b"\0\0"  # neither a time to live nor a default value


@dataclass(frozen=True)
class LoggedStates:
    """The states that a changelog describes, each as it was last described, and which state has which number: from
    set ``set`` on, number ``number`` is the state of that name, as (set, number, name) in ``numbers``.
    """

    states: tuple[KeyedStateHeader, ...]
    numbers: tuple[tuple[int, int, str], ...]

    def numbers_of(self, name: str, sets: int) -> dict[int, set[int]]:
        """The numbers that a state has in each set of changes."""
        current: dict[int, str] = {}
        found: dict[int, set[int]] = {}
        ordered = iter([*self.numbers, (sets, 0, "")])
        at, number, described = next(ordered)
        for each in range(sets):
            while at <= each:
                current[number] = described
                at, number, described = next(ordered)
            found[each] = {number for number, state in current.items() if state == name}
        return found


def logged_states(files: SnapshotFiles, handle: ChangelogHandle) -> LoggedStates:
    """Read all descriptions of a changelog.

    Raises CorruptError FLINK_FILE and FLINK_METADATA, UnsupportedError FLINK_UNSUPPORTED, and the errors of
    `SnapshotFiles.open_at`.
    """
    states: dict[str, KeyedStateHeader] = {}
    numbers: list[tuple[int, int, str]] = []
    known: dict[bytes, KeyedStateHeader] = {}
    for changes in read_changes(files, handle.changes, described=True):
        for place in (changes.groups == DESCRIPTION).nonzero()[0].tolist():
            data = changes.cells.cell(place)
            body = data[:-_BEHIND]
            if body not in known:
                known[body] = _described(data, files.path)
            state = known[body]
            states[state.name] = state
            numbers.append((changes.number, int.from_bytes(data[-3:-1], "big", signed=True), state.name))
    return LoggedStates(tuple(states.values()), tuple(numbers))


def _described(data: bytes, path: str) -> KeyedStateHeader:
    source = DataInput(data, f"{path}, changelog")
    operation = source.u8("an operation")
    if operation not in _OPERATIONS:
        raise source.error(f"found operation {operation} that describes a state, expected 8 or 9", 0)
    version = source.i32("the version of a state's description")
    if version not in META_VERSIONS:
        raise UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED,
            f"{source.path}: found version {version} of a state's description, expected 6 or 7; take a "
            "canonical savepoint of the job",
        )
    if data[-1] not in (_KEYED, _QUEUE):
        raise source.error(f"found kind {data[-1]} of a state, expected {_KEYED} or {_QUEUE}", len(data) - 1)
    for end in _ends(data):
        body = data[source.at : end]
        try:
            (meta,), _ = read_units(body, source.path, None if end is None else len(body), _one)
        except UnsupportedError:
            if end is not None:
                raise
            continue
        return keyed_header(meta, source.path)
    raise AssertionError("the last way to read a description raises")


def _ends(data: bytes) -> Iterator[int | None]:
    """Where a description may end: unknown, unless a serializer of the job's own must be stepped over."""
    yield None
    behind = _BEHIND + (0 if data[-1] == _QUEUE else len(_NO_DEFAULTS))
    yield max(len(data) - behind, 5)


def _one(done: Sequence[Any]) -> tuple[Hashable, Unit] | None:
    return None if done else ("state", read_state_meta)


def joined_states(parts: Sequence[Sequence[KeyedStateHeader]]) -> tuple[KeyedStateHeader, ...]:
    """The states of several headers, in the order in which they are first met, each as the last one has it."""
    found: dict[str, KeyedStateHeader] = {}
    for states in parts:
        for each in states:
            found[each.name] = each
    return tuple(found.values())
