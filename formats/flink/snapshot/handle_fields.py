"""Reading handles out of ``_metadata``.

Source: ``org.apache.flink.runtime.checkpoint.metadata.MetadataV2V3SerializerBase`` and
``ChannelStateHandleSerializer``. A handle begins with a byte for its type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError, shown
from statestore.formats.flink.snapshot.data_input import DataInput
from statestore.formats.flink.snapshot.handles import (
    ChangelogHandle,
    ChangeSet,
    ChangesFile,
    EmptyHandle,
    FileHandle,
    InPlace,
    KeyedHandle,
    KeyGroupHandle,
    OperatorHandle,
    OperatorStateOffsets,
    PlainChanges,
    RelativeChanges,
    RelativeHandle,
    RocksHandle,
    SegmentHandle,
    StreamHandle,
    UnreadableHandle,
)

MAX_DEPTH = 64
"""Handles inside handles. Flink writes at most three levels."""
MAX_KEY_GROUPS = 1 << 15
"""Upper bound of the max parallelism of an operator (``KeyGroupRangeAssignment``)."""

_NULL, _IN_PLACE, _FILE, _KEY_GROUPS, _OPERATOR, _ROCKSDB, _RELATIVE, _SAVEPOINT = range(8)
_CHANGELOG, _CHANGELOG_BYTES, _CHANGELOG_FILES, _ROCKSDB_2, _KEY_GROUPS_2, _CHANGELOG_FILES_2, _CHANGELOG_2 = range(
    8, 15
)
_SEGMENT, _EMPTY_SEGMENT, _MERGED_OPERATOR = 15, 16, 17

_INPUT_CHANNEL, _OUTPUT_CHANNEL, _MERGED_INPUT, _MERGED_OUTPUT = 1, 2, 3, 4
MODES: tuple[Literal["split", "union", "broadcast"], ...] = ("split", "union", "broadcast")
_WHY = {
    _CHANGELOG_BYTES: "changes in place without a changelog",
    _CHANGELOG_FILES: "changes in files without a changelog",
    _CHANGELOG_FILES_2: "changes in files without a changelog",
}
_LEAST_PAIR = 3  # a utf and a byte for the type of the handle


def unknown_type(source: DataInput, kind: int, what: str) -> UnsupportedError:
    """The error for the type byte just read."""
    return UnsupportedError(
        ErrorCode.FLINK_UNSUPPORTED,
        f"{source.path}: at byte {source.at - 1}: found type {kind} of {what}, which is not known; it comes from a "
        "newer Flink or a state backend that is not supported, or the file is damaged: take a canonical savepoint of "
        "the job (flink savepoint --type canonical) and read that",
    )


def stream_handle(source: DataInput, what: str, depth: int = 0) -> StreamHandle | None:
    """Read a stream handle, None for the null handle.

    Raises CorruptError FLINK_METADATA, UnsupportedError FLINK_UNSUPPORTED.
    """
    start = source.at
    found = _stream(source, what, depth)
    source.note(start, found)
    return found


def _stream(source: DataInput, what: str, depth: int) -> StreamHandle | None:
    _check_depth(source, depth)
    kind = source.u8(f"the type of {what}")
    if kind == _NULL:
        return None
    if kind == _IN_PLACE:
        name = source.utf(f"the name of {what}")
        return InPlace(name, source.take(source.i32(f"the length of {what}"), what))
    if kind == _FILE:
        size = _size(source, what)
        return FileHandle(source.utf(f"the URI of {what}"), size)
    if kind == _RELATIVE:
        path = source.utf(f"the path of {what}")
        return RelativeHandle(path, _size(source, what))
    if kind == _SEGMENT:
        start, size = _size(source, what), _size(source, what)
        source.i32("the scope of a segment")
        uri = source.utf(f"the URI of {what}")
        return SegmentHandle(uri, start, size, source.utf("the id of a segment"))
    if kind == _EMPTY_SEGMENT:
        return EmptyHandle()
    if kind == _KEY_GROUPS:  # as a stream it is the stream inside
        _key_groups(source, -1)
        return stream_handle(source, what, depth + 1)
    raise unknown_type(source, kind, f"handle ({what})")


def given_stream(source: DataInput, what: str) -> StreamHandle:
    """Read a stream handle that must not be null. Raises as `stream_handle`."""
    start = source.at
    found = stream_handle(source, what)
    if found is None:
        raise source.error(f"found no handle for {what}, expected one", start)
    return found


def keyed_handle(source: DataInput, *, raw: bool = False, depth: int = 0) -> KeyedHandle | None:
    """Read a handle of keyed state, None for the null handle. Raises as `stream_handle`."""
    start = source.at
    found = _handle_of(source, source.u8("the type of a keyed state"), raw, depth)
    source.note(start, found)
    return found


def _handle_of(source: DataInput, kind: int, raw: bool, depth: int) -> KeyedHandle | None:
    _check_depth(source, depth)
    if kind == _NULL:
        return None
    if kind in (_KEY_GROUPS, _SAVEPOINT, _KEY_GROUPS_2):
        first, offsets = _key_groups(source, -1 if raw else 0)
        stream = given_stream(source, "keyed state")
        if kind == _KEY_GROUPS_2:
            source.utf("the id of a handle")
        return KeyGroupHandle("savepoint" if kind == _SAVEPOINT else "heap", first, offsets, stream)
    if kind in (_ROCKSDB, _ROCKSDB_2):
        return _rocksdb(source, kind)
    if kind in (_CHANGELOG, _CHANGELOG_2):
        return _changelog(source, kind, depth)
    if kind in _WHY:
        part = _changelog_bytes(source) if kind == _CHANGELOG_BYTES else _changelog_files(source, kind)
        return UnreadableHandle(kind, part.first_group, part.groups, _WHY[kind])
    raise unknown_type(source, kind, "keyed state")


def operator_handle(source: DataInput) -> OperatorHandle | None:
    """Read a handle of operator state, None for the null handle. Raises as `stream_handle`."""
    start = source.at
    found = _of_operator(source)
    source.note(start, found)
    return found


def _of_operator(source: DataInput) -> OperatorHandle | None:
    kind = source.u8("the type of an operator state")
    if kind == _NULL:
        return None
    if kind not in (_OPERATOR, _MERGED_OPERATOR):
        raise unknown_type(source, kind, "operator state")
    states = []
    for _ in range(source.count(source.i32("operator states"), 7, "operator states")):
        name = source.utf("the name of an operator state")
        mode = source.u8("the mode of an operator state")
        if mode >= len(MODES):
            raise source.error(f"found mode {mode} of operator state {shown(name)}, expected 0 to 2", source.at - 1)
        offsets = source.i64s(source.i32("offsets"), "offsets")
        states.append(OperatorStateOffsets(name, MODES[mode], offsets))
    if kind == _MERGED_OPERATOR:
        source.utf("a folder of merged files")
        source.utf("a folder of merged files")
        source.boolean("the mark of an empty operator state")
    return OperatorHandle(tuple(states), given_stream(source, "operator state"))


def channel_state(source: DataInput, version: int) -> tuple[int, StreamHandle | None]:
    """Read a handle of records in flight; return their bytes and where they lie. Raises as `stream_handle`."""
    kind = source.u8("the type of a channel state") if version >= 6 else _INPUT_CHANNEL
    if kind not in (_INPUT_CHANNEL, _OUTPUT_CHANNEL, _MERGED_INPUT, _MERGED_OUTPUT):
        raise unknown_type(source, kind, "channel state")
    source.skip(4, "the subtask of a channel state")
    if kind in (_INPUT_CHANNEL, _OUTPUT_CHANNEL):
        source.skip(8, "the numbers of a channel")
        offsets = source.count(source.i32("offsets"), 8, "offsets")
        source.skip(8 * offsets, "offsets")
        size = _size(source, "a channel state")
        return size, stream_handle(source, "a channel state")
    size = _size(source, "channel states")
    handle = stream_handle(source, "channel states")
    source.skip(source.i32("the length of offsets"), "offsets")
    return size, handle


def _check_depth(source: DataInput, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise source.error(f"found more than {MAX_DEPTH} handles inside each other, expected at most three")


def _size(source: DataInput, what: str) -> int:
    size = source.i64(f"the size of {what}")
    if size < 0:
        raise source.error(f"found size {size} of {what}, expected 0 or more", source.at - 8)
    return size


def _group_range(source: DataInput) -> tuple[int, int]:
    """Read the first key group and the number of key groups."""
    start = source.at
    first, groups = source.i32("the first key group"), source.i32("the number of key groups")
    if not (first >= 0 and groups >= 0 and first + groups <= MAX_KEY_GROUPS):
        raise source.error(
            f"found {groups} key groups from {first} on, expected a range within 0 to {MAX_KEY_GROUPS - 1}", start
        )
    return first, groups


def _key_groups(source: DataInput, least: int) -> tuple[int, tuple[int, ...]]:
    """Read the first key group and the offsets, which are ``least`` or more."""
    first, groups = _group_range(source)
    start = source.at
    offsets = source.i64s(groups, "offsets of key groups")
    if min(offsets, default=0) < least:
        raise source.error(f"found offset {min(offsets)} of a key group, expected {least} or more", start)
    return first, offsets


def _rocksdb(source: DataInput, kind: int) -> RocksHandle:
    checkpoint, backend = source.i64("a checkpoint id"), source.utf("the id of a state backend")
    first, groups = _group_range(source)
    if kind == _ROCKSDB_2:
        source.i64("the size of a checkpoint")
    meta = given_stream(source, "the state backend's header")
    shared, private = _files(source), _files(source)
    if kind == _ROCKSDB_2:
        source.utf("the id of a handle")
    return RocksHandle(checkpoint, backend, first, groups, meta, shared, private)


def _files(source: DataInput) -> tuple[tuple[str, StreamHandle], ...]:
    number = source.count(source.i32("files of RocksDB"), _LEAST_PAIR, "files of RocksDB")
    found = []
    for _ in range(number):
        name = source.utf("the name of a file of RocksDB")
        found.append((name, given_stream(source, "a file of RocksDB")))
    return tuple(found)


def _changelog(source: DataInput, kind: int, depth: int) -> ChangelogHandle | UnreadableHandle:
    first, groups = _group_range(source)
    source.i64("the size of a changelog")
    materialized = _handles(source, "materialized handles", depth)
    changes = _handles(source, "changelog handles", depth)
    source.i64("a materialization id")
    if kind == _CHANGELOG_2:
        source.i64("a checkpoint id")
    source.utf("the id of a handle")
    bases = tuple(each for each in materialized if isinstance(each, KeyGroupHandle | RocksHandle))
    sets = tuple(each for each in changes if isinstance(each, _Changes))
    if len(bases) < len(materialized) or len(sets) < len(changes):
        return UnreadableHandle(kind, first, groups, "a changelog inside of another one")
    found = tuple(part for each in sets for part in each.parts)
    return ChangelogHandle(first, groups, bases, found, sum(each.size for each in sets))


def _handles(source: DataInput, what: str, depth: int) -> list[KeyedHandle | _Changes]:
    """Read materialized handles or those of changes, without null ones."""
    found: list[KeyedHandle | _Changes] = []
    for _ in range(source.count(source.i32(what), 1, what)):
        kind = source.u8("the type of a keyed state")
        if kind == _CHANGELOG_BYTES:
            found.append(_changelog_bytes(source))
        elif kind in (_CHANGELOG_FILES, _CHANGELOG_FILES_2):
            found.append(_changelog_files(source, kind))
        elif (handle := _handle_of(source, kind, False, depth + 1)) is not None:
            found.append(handle)
    return found


@dataclass(frozen=True)
class _Changes:
    """Changes that one upload wrote, of ``size`` bytes."""

    first_group: int
    groups: int
    parts: tuple[ChangeSet | PlainChanges, ...]
    size: int


def _changelog_bytes(source: DataInput) -> _Changes:
    first, groups = _group_range(source)
    source.skip(16, "sequence numbers of changes")
    changes = []
    for _ in range(source.count(source.i32("changes"), 8, "changes")):
        group = source.i32("a key group")
        changes.append((group, source.take(source.i32("the length of a change"), "a change")))
    source.utf("the id of a handle")
    return _Changes(first, groups, (PlainChanges(tuple(changes)),), sum(len(each) for _, each in changes))


def _changelog_files(source: DataInput, kind: int) -> _Changes:
    first, groups = _group_range(source)
    parts = []
    for _ in range(source.count(source.i32("files of changes"), 9, "files of changes")):
        offset = _size(source, "an offset of changes")
        parts.append(ChangeSet(_changes_stream(source), offset))
    size = _size(source, "changes")
    source.i64("the size of new changes")
    source.utf("the id of a handle")
    if kind == _CHANGELOG_FILES_2:
        source.utf("the name of a changelog storage")
    return _Changes(first, groups, tuple(parts), size)


def _changes_stream(source: DataInput) -> StreamHandle:
    start = source.at
    found = _stream(source, "changes", 0)
    if found is None:
        raise source.error("found no handle for changes, expected one", start)
    if isinstance(found, FileHandle):
        found = ChangesFile(found.uri, found.size)
    elif isinstance(found, RelativeHandle):
        found = RelativeChanges(found.path, found.size)
    source.note(start, found)
    return found
