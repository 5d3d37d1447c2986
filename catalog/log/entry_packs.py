"""Entry packs: old log entries, compressed, in one file for each run of versions (docs/log-format.md, "Entry packs").

Entries of small commits resemble each other, and each takes a block of the disk. Vacuum moves the entries that are
far behind the newest version into packs. Everything that reads an entry by its version finds it there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from statestore.catalog.log.frames import MAX_FRAME_BYTES, Frame, corrupt, decode_frames, encode_frames, frame
from statestore.catalog.log.storage import Storage
from statestore.formats.errors import NotFoundError

PACKED_VERSIONS = 4_096
PACKS = "log/_packs/"
PACK_FORMAT = b"log-pack/1"
_FRAME_VERSIONS = 64
_FRAME_BYTES = 1 << 22


@dataclass(frozen=True)
class Pack:
    """The opened pack of the versions from ``first`` on."""

    name: str
    first: int
    store: str
    frames: list[Frame]

    def entries(self) -> Iterator[tuple[int, bytes]]:
        """Yield each version with the bytes of its entry. Raises CorruptError LOG_CORRUPT."""
        for found in self.frames:
            yield from enumerate(self._lines(found), found.first)

    def texts(self, after: int) -> Iterator[bytes]:
        """Yield the entries of whole frames, of which at least one entry is later than version ``after``."""
        for found in self.frames:
            if found.first + found.count - 1 > after:
                yield found.content(self.name)

    def lines_with(self, version: int) -> tuple[int, list[bytes]]:
        """Return the first version of the frame that has ``version``, and the entries of the frame."""
        for found in self.frames:
            if found.first <= version < found.first + found.count:
                return found.first, self._lines(found)
        raise corrupt(self.name, f"it does not have version {version}")

    def _lines(self, found: Frame) -> list[bytes]:
        lines = found.content(self.name).split(b"\n")
        if len(lines) != found.count:
            raise corrupt(self.name, f"{len(lines)} entries for {found.count} versions from {found.first} on")
        return lines


@dataclass(frozen=True)
class _Opened:
    """The frame that was read last, and the state of its file, which a later store of the same name may replace."""

    storage: Storage
    state: Hashable
    pack: Pack
    first: int
    lines: list[bytes]


_last: _Opened | None = None


def first_of_pack(version: int) -> int:
    """Return the first version of the pack that can have ``version``."""
    return version // PACKED_VERSIONS * PACKED_VERSIONS


def pack_name(first: int) -> str:
    return f"{PACKS}{first:020d}.arrow"


def encode_pack(store: str, first: int, entries: list[bytes]) -> bytes | None:
    """Return the pack of the entries of a run of versions from ``first`` on, each on one line; None if an entry is too
    large.
    """
    frames, begin, size = [], 0, 0
    for number, data in enumerate(entries):
        size += len(data) + 1
        if size > MAX_FRAME_BYTES:
            return None
        if number + 1 == len(entries) or number + 1 - begin == _FRAME_VERSIONS or size > _FRAME_BYTES:
            frames.append(frame(first + begin, number + 1 - begin, b"\n".join(entries[begin : number + 1])))
            begin, size = number + 1, 0
    return encode_frames(PACK_FORMAT, store, frames)


def open_pack(storage: Storage, first: int) -> Pack:
    """Return the pack of the versions from ``first`` on.

    Raises NotFoundError FILE_NOT_FOUND, CorruptError LOG_CORRUPT.
    """
    name = pack_name(first)
    _, store, frames = decode_frames(name, storage.read(name), (PACK_FORMAT,), first, PACKED_VERSIONS)
    return Pack(name, first, store, frames)


def packed_entry(storage: Storage, version: int) -> bytes | None:
    """Return the bytes of a packed entry; None if there is no pack with this version. Raises CorruptError LOG_CORRUPT.

    Entries are mostly asked for in the order of their versions, so the frame that was read last is kept.
    """
    global _last
    first = first_of_pack(version)
    state = storage.state(pack_name(first))
    if state is None:
        return None
    last = _last
    if last is None or last.state != state or last.storage != storage:
        last = None
    if last is None or not last.first <= version < last.first + len(last.lines):
        try:
            pack = last.pack if last is not None and last.pack.first == first else open_pack(storage, first)
        except NotFoundError:  # the log was trimmed between the two looks
            return None
        last = _last = _Opened(storage, state, pack, *pack.lines_with(version))
    return last.lines[version - last.first]
