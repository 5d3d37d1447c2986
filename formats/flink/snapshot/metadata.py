"""The file ``_metadata`` of a savepoint or checkpoint: operators, their subtasks and the handles of their state.

Source: ``org.apache.flink.runtime.checkpoint.metadata.MetadataV2Serializer`` to ``MetadataV6Serializer``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.flink.snapshot.data_input import DataInput
from statestore.formats.flink.snapshot.handle_fields import (
    MAX_KEY_GROUPS,
    channel_state,
    keyed_handle,
    operator_handle,
    stream_handle,
)
from statestore.formats.flink.snapshot.handles import EmptyHandle, InPlace, KeyedHandle, OperatorHandle, StreamHandle
from statestore.formats.flink.snapshot.java_objects import classes_of_object
from statestore.formats.flink.snapshot.snapshot_names import METADATA

MAGIC = 0x4960672D
HEAD_BYTES = 16
VERSIONS = range(2, 7)
"""Versions that are read: Flink 1.4 to 1.10 write 2, 1.11 to 1.19 write 3, 1.20 writes 4, 2.0 to 2.3 write 5 and 6."""
FIRST_OF_FLINK_2 = 5

_MASTER_STATE_MAGIC = 0xC96B1696 - (1 << 32)
_SAVEPOINT = "org.apache.flink.runtime.checkpoint.SavepointType"
_LEAST_OPERATOR = 16 + 4 + 4 + 1 + 4
_LEAST_CHANNEL = 4 + 8 + 1


@dataclass(frozen=True)
class Place:
    """A place in the file that is no handle, as `DataInput.note` gets it.

    ``what`` is the "number" of operators, a whole "operator", its "head" (from its name to its max parallelism), the
    number of its "subtasks", or the managed "keyed" state of one, also where there is none. ``operator`` is an id.
    """

    what: Literal["number", "operator", "head", "subtasks", "keyed"]
    operator: str = ""
    subtask: int = -1


@dataclass(frozen=True)
class Subtask:
    """The state of one subtask. A finished one has none.

    ``channels`` and ``channel_bytes`` count the handles of records in flight, which an unaligned checkpoint has, and
    their bytes; ``in_flight`` are those that lie in files, each once.
    """

    index: int
    finished: bool
    managed_keyed: KeyedHandle | None = None
    raw_keyed: KeyedHandle | None = None
    managed_operator: OperatorHandle | None = None
    raw_operator: OperatorHandle | None = None
    channels: int = 0
    channel_bytes: int = 0
    in_flight: tuple[StreamHandle, ...] = ()


@dataclass(frozen=True)
class OperatorSnapshot:
    """The state of an operator. ``id`` is 32 hexadecimal digits; ``uid`` and ``name`` are stored from version 5 on.

    ``coordinator`` is the state of its coordinator, such as the enumerator of a source.
    """

    id: str
    uid: str | None
    name: str | None
    parallelism: int
    max_parallelism: int
    finished: bool
    subtasks: tuple[Subtask, ...]
    coordinator: StreamHandle | None = None


@dataclass(frozen=True)
class SnapshotMetadata:
    """The content of a ``_metadata`` file. ``is_savepoint`` is None where it does not say (up to version 3)."""

    version: int
    checkpoint_id: int
    operators: tuple[OperatorSnapshot, ...]
    is_savepoint: bool | None = None

    @property
    def is_unaligned(self) -> bool:
        """Return whether records in flight are part of the snapshot: its state is older than they are."""
        return any(subtask.channels for operator in self.operators for subtask in operator.subtasks)


def parse_metadata(data: bytes, path: str) -> SnapshotMetadata:
    """Parse a whole ``_metadata`` file; ``path`` names it in errors.

    Raises CorruptError FLINK_METADATA where it is damaged, UnsupportedError FLINK_UNSUPPORTED for another version or a
    handle of an unknown type.
    """
    return parse_fields(DataInput(data, path))


def parse_fields(source: DataInput) -> SnapshotMetadata:
    """Parse a whole ``_metadata`` file, whose handles ``source`` takes note of. Raises as `parse_metadata`."""
    version, checkpoint = _head(source)
    _skip_master_states(source)
    start = source.at
    number = source.count(source.i32("operators"), _LEAST_OPERATOR, "operators")
    source.note(start, Place("number"))
    operators = tuple(_operator(source, version) for _ in range(number))
    _check_distinct(source, [operator.id for operator in operators], "operator")
    if version <= 3:
        source.end()
        return SnapshotMetadata(version, checkpoint, operators)
    return SnapshotMetadata(version, checkpoint, operators, _is_savepoint(source))


def checkpoint_id(head: bytes, path: str) -> int:
    """Return the checkpoint id in the first HEAD_BYTES bytes of a ``_metadata`` file. Raises as `parse_metadata`."""
    return _head(DataInput(head, path))[1]


def _head(source: DataInput) -> tuple[int, int]:
    """The version of the metadata, and the checkpoint id."""
    magic = source.i32("the magic number") & 0xFFFFFFFF
    if magic != MAGIC:
        raise CorruptError(
            ErrorCode.FLINK_METADATA,
            f"{source.path}: found magic number 0x{magic:08X}, expected 0x{MAGIC:08X}; it is no {METADATA} file of "
            "Flink, or it is damaged: restore it from a copy",
        )
    version = source.i32("the version")
    if version not in VERSIONS:
        raise UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED,
            f"{source.path}: found version {version} of the metadata, expected {VERSIONS.start} to "
            f"{VERSIONS.stop - 1} (Flink 1.8 to 2.3); restore the job with one of these releases and take a savepoint",
        )
    return version, source.i64("the checkpoint id")


def _skip_master_states(source: DataInput) -> None:
    for _ in range(source.count(source.i32("master states"), 8, "master states")):
        magic = source.i32("the magic number of a master state")
        if magic != _MASTER_STATE_MAGIC:
            raise source.error(
                f"found 0x{magic & 0xFFFFFFFF:08X}, expected the magic number 0x{_MASTER_STATE_MAGIC & 0xFFFFFFFF:08X} "
                "of a master state",
                source.at - 4,
            )
        source.skip(source.i32("the length of a master state"), "a master state")


def _is_savepoint(source: DataInput) -> bool:
    """Read the properties, which are a Java object up to the end of the file; return whether they are a savepoint's."""
    classes = classes_of_object(source)
    source.end()
    return _SAVEPOINT in classes


def _operator(source: DataInput, version: int) -> OperatorSnapshot:
    start = source.at
    found = _fields_of_operator(source, version)
    source.note(start, Place("operator", found.id))
    return found


def _fields_of_operator(source: DataInput, version: int) -> OperatorSnapshot:
    begun = source.at
    name = uid = None
    if version >= 5:
        name, uid = source.utf("an operator's name") or None, source.utf("an operator's uid") or None
    number = source.take(16, "an operator's id").hex()
    start = source.at
    parallelism, most = source.i32("the parallelism"), source.i32("the max parallelism")
    if not (parallelism >= 0 and (most == -1 or 1 <= most <= MAX_KEY_GROUPS)):
        raise source.error(
            f"found parallelism {parallelism} and max parallelism {most} of operator {number}, expected a max "
            f"parallelism from 1 to {MAX_KEY_GROUPS}",
            start,
        )
    source.note(begun, Place("head", number))
    coordinator: StreamHandle | None = None
    if version == 2:
        source.i32("the length of a chain")  # 1 since Flink 1.3
    else:
        coordinator = stream_handle(source, "a coordinator's state")
    begun, subtasks = source.at, source.i32("subtasks")
    source.note(begun, Place("subtasks", number))
    if subtasks < 0 and version > 2:
        return OperatorSnapshot(number, uid, name, parallelism, most, True, (), coordinator)
    least = 4  # a finished subtask is its index alone
    found = [_subtask(source, version, number) for _ in range(source.count(subtasks, least, "subtasks"))]
    _check_distinct(source, [subtask.index for subtask in found], f"subtask of operator {number}")
    _check_groups(source, number, most, [subtask.managed_keyed for subtask in found])
    _check_groups(source, number, most, [subtask.raw_keyed for subtask in found])
    return OperatorSnapshot(number, uid, name, parallelism, most, False, tuple(found), coordinator)


def _check_distinct(source: DataInput, found: Sequence[object], what: str) -> None:
    twice = next((each for each, times in Counter(found).items() if times > 1), None)
    if twice is not None:
        raise source.error(f"found {what} {twice} twice, expected it once")


def _check_groups(source: DataInput, operator: str, most: int, handles: Sequence[KeyedHandle | None]) -> None:
    """Check that the subtasks of an operator have distinct key groups, else rows would be read twice."""
    end = 0
    for handle in sorted((each for each in handles if each is not None and each.groups), key=_first_group):
        last = handle.first_group + handle.groups
        if handle.first_group < end:
            raise source.error(
                f"found key group {handle.first_group} in two subtasks of operator {operator}, expected it in one"
            )
        if last > most:
            raise source.error(
                f"found key group {last - 1} in operator {operator}, expected only those below its max parallelism "
                f"{most}"
            )
        end = last


def _first_group(handle: KeyedHandle) -> int:
    return handle.first_group


def _subtask(source: DataInput, version: int, operator: str) -> Subtask:
    index = source.i32("the index of a subtask")
    if version == 2:
        if index < 0:
            raise source.error(f"found index {index} of a subtask, expected one from 0 on", source.at - 4)
        source.i64("a duration")  # without a meaning since Flink 1.3, like the number behind it
        if source.i32("states of Checkpointed functions"):
            raise source.error("found states of Checkpointed functions, which Flink 1.4 removed", source.at - 4)
    elif index < 0:
        return Subtask(-index - 1, True)
    managed_operator = operator_handle(source) if source.i32("the mark of operator state") else None
    raw_operator = operator_handle(source) if source.i32("the mark of raw operator state") else None
    start = source.at
    managed_keyed = keyed_handle(source)
    source.note(start, Place("keyed", operator, index))
    raw_keyed = keyed_handle(source, raw=True)
    channels = channel_bytes = 0
    in_flight: dict[StreamHandle, None] = {}
    for part in ("input channels", "result subpartitions") if version > 2 else ():
        number = source.count(source.i32(part), _LEAST_CHANNEL, part)
        channels += number
        for _ in range(number):
            size, handle = channel_state(source, version)
            channel_bytes += size
            if handle is not None and not isinstance(handle, InPlace | EmptyHandle):
                in_flight[handle] = None
    return Subtask(
        index,
        False,
        managed_keyed,
        raw_keyed,
        managed_operator,
        raw_operator,
        channels,
        channel_bytes,
        tuple(in_flight),
    )
