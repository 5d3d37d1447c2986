"""The file ``_metadata`` with other handles at some places, and all else byte for byte as it was.

A handle is changed where its state is written anew, and where it names a file by the URI that the file had when Flink
wrote it: the copy has the file in its own folder, and names it by its name there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from statestore.formats.flink.columns.program_writer import modified_utf8
from statestore.formats.flink.snapshot.data_input import DataInput
from statestore.formats.flink.snapshot.file_places import StoredHandle
from statestore.formats.flink.snapshot.handle_fields import MODES
from statestore.formats.flink.snapshot.handles import (
    FileHandle,
    OperatorHandle,
    OperatorStateOffsets,
    RelativeHandle,
    SegmentHandle,
)
from statestore.formats.flink.snapshot.metadata import (
    FIRST_OF_FLINK_2,
    OperatorSnapshot,
    Place,
    SnapshotMetadata,
    parse_fields,
)

KEY_GROUPS, _OPERATOR, _RELATIVE, SAVEPOINT = b"\3", b"\4", b"\6", b"\7"


@dataclass(frozen=True)
class Span:
    """A handle or `Place`, and where its bytes are."""

    start: int
    stop: int
    found: object


@dataclass(frozen=True)
class MetadataSpans:
    """``_metadata`` as bytes and parsed, with its handles and places; those inside of others follow them."""

    data: bytes
    parsed: SnapshotMetadata
    spans: tuple[Span, ...]


class _Noting(DataInput):
    """An input that takes note of handles and places."""

    __slots__ = ("spans",)

    def __init__(self, data: bytes, path: str) -> None:
        super().__init__(data, path)
        self.spans: list[Span] = []

    def note(self, start: int, found: object) -> None:
        if found is not None:
            self.spans.append(Span(start, self.at, found))


def metadata_spans(data: bytes, path: str) -> MetadataSpans:
    """Parse a whole ``_metadata`` file. Raises as `parse_metadata`."""
    source = _Noting(data, path)
    parsed = parse_fields(source)
    return MetadataSpans(data, parsed, tuple(sorted(source.spans, key=lambda each: (each.start, -each.stop))))


def handles_outside(found: MetadataSpans, is_replaced: Callable[[object], bool]) -> list[object]:
    """The handles that stay: those neither replaced, by themselves or with a place, nor inside of what is."""
    kept: list[object] = []
    at = 0
    for span in found.spans:
        if span.start >= at and is_replaced(span.found):
            at = span.stop
        elif span.start >= at and not isinstance(span.found, Place):
            kept.append(span.found)
    return kept


def spliced(found: MetadataSpans, change: Callable[[object], bytes | None]) -> bytes:
    """The bytes with each handle or place replaced for which ``change`` returns others; nothing inside is asked for."""
    parts: list[bytes] = []
    at = 0
    for span in found.spans:
        new = change(span.found) if span.start >= at else None
        if new is not None:
            parts += [found.data[at : span.start], new]
            at = span.stop
    return b"".join([*parts, found.data[at:]])


def head_bytes(operator: OperatorSnapshot, version: int) -> bytes:
    """The head of an operator, from its name to its max parallelism, in a version of the metadata."""
    names = [_utf(operator.name or ""), _utf(operator.uid or "")] if version >= FIRST_OF_FLINK_2 else []
    numbers = [each.to_bytes(4, "big", signed=True) for each in (operator.parallelism, operator.max_parallelism)]
    return b"".join([*names, bytes.fromhex(operator.id), *numbers])


def named_in_folder(handle: object, names: Mapping[StoredHandle, str]) -> bytes | None:
    """The bytes of a handle whose file the copy has in its folder by a name; None for one that stays as it is."""
    if isinstance(handle, OperatorHandle) and isinstance(handle.stream, SegmentHandle):
        return operator_bytes(handle.states, relative_bytes(names[handle.stream], handle.stream.size))
    if isinstance(handle, FileHandle | SegmentHandle):
        return relative_bytes(names[handle], handle.size)
    if isinstance(handle, RelativeHandle) and names[handle] != handle.path:
        return relative_bytes(names[handle], handle.size)
    return None


def relative_bytes(name: str, size: int) -> bytes:
    """A handle of a file in the folder of ``_metadata``."""
    return _RELATIVE + _utf(name) + size.to_bytes(8, "big")


def keyed_bytes(kind: bytes, first_group: int, offsets: Sequence[int], stream: bytes) -> bytes:
    """A handle of key groups in a stream, of the type that savepoints have, or of an older one."""
    numbers = b"".join(each.to_bytes(8, "big", signed=True) for each in offsets)
    return kind + first_group.to_bytes(4, "big") + len(offsets).to_bytes(4, "big") + numbers + stream


def subtasks_bytes(count: int, added: Mapping[int, bytes]) -> bytes:
    """The number of subtasks, ``count`` and those that are ``added`` behind it: handles of keyed state by index."""
    parts = [(count + len(added)).to_bytes(4, "big")]
    for index, keyed in added.items():
        # No operator state before it, no raw keyed state and no records in flight behind.
        parts += [index.to_bytes(4, "big"), bytes(8), keyed, bytes(1), bytes(8)]
    return b"".join(parts)


def operator_bytes(states: Sequence[OperatorStateOffsets], stream: bytes) -> bytes:
    """A handle of operator state in a file of its own."""
    parts = [_OPERATOR, len(states).to_bytes(4, "big")]
    for state in states:
        offsets = b"".join(each.to_bytes(8, "big", signed=True) for each in state.offsets)
        parts += [_utf(state.name), bytes([MODES.index(state.mode)])]
        parts += [len(state.offsets).to_bytes(4, "big"), offsets]
    return b"".join([*parts, stream])


def _utf(text: str) -> bytes:
    octets = modified_utf8(text)
    return len(octets).to_bytes(2, "big") + octets
