"""Writing the timers of a subtask in raw keyed state anew, with the changes of an edit.

Each block has the timers of all services of its key group (`statestore.formats.flink.streams.raw_timers`). Timers that
go are left out, and those that come stand behind the others of their state; all else keeps its bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.flink.edits.keyed_stream import Put, WrittenStream
from statestore.formats.flink.edits.state_changes import StateChanges, mask_texts, masks_of
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.flink.streams.keyed_columns import timer_rows
from statestore.formats.flink.streams.raw_timers import (
    TimersOfGroup,
    block_bounds,
    block_of,
    known_classes,
    timers_in,
)
from statestore.formats.flink.streams.stored_states import StoredTimers
from statestore.formats.kernels.arrays import Bools

_NOTHING = -1  # the place of a key group without a block
_COUNT, _TIME = 4, 8


@dataclass(frozen=True)
class WrittenTimers:
    """The stream of a subtask's timers that was written, and which changes were met there, by state."""

    stream: WrittenStream
    met: Mapping[str, Bools]

    @property
    def bytes(self) -> int:
        return self.stream.bytes

    def as_text(self) -> str:
        """Return the value as a text, which `of_text` reads."""
        return json.dumps([self.stream.offsets, self.stream.bytes, mask_texts(self.met)])

    @staticmethod
    def of_text(text: str) -> WrittenTimers:
        offsets, size, met = json.loads(text)
        return WrittenTimers(WrittenStream(tuple(offsets), size), masks_of(met))


def write_timers(
    files: SnapshotFiles, stored: StoredTimers, changes: Mapping[str, StateChanges], origin: str, put: Put
) -> WrittenTimers:
    """Write the timers of a subtask by ``put``, block after block; ``changes`` are those of its states by their names.

    Memory holds a block. Raises InvalidInputError EDIT_REFUSED for an addition of what is stored already, and the
    errors of the rows.
    """
    handle = stored.handle
    met = {state: np.zeros(len(each), bool) for state, each in changes.items()}
    at, offsets = 0, [_NOTHING] * handle.groups
    with files.open_at(handle.stream) as part:
        for group, (start, end) in sorted(block_bounds(handle, part.size, part.path).items()):
            if end <= start:
                continue
            block = block_of(part, start, end)
            offsets[group - handle.first_group] = at
            for piece in _changed(block, group, changes, met, part.path, origin):
                put(piece)
                at += len(piece)
    return WrittenTimers(WrittenStream(tuple(offsets), at), met)


def _changed(
    block: bytes, group: int, changes: Mapping[str, StateChanges], met: Mapping[str, Bools], path: str, origin: str
) -> Iterator[bytes]:
    """Yield the pieces of a block with its changes."""
    known, at = known_classes(tuple(each.form.stored for each in changes.values())), 0
    for found in timers_in(block, path, origin, known, list(changes)):
        if found.state not in changes:
            continue
        kept, new = _told(found, group, changes[found.state], met[found.state])
        yield block[at : found.start]
        yield (int(kept.sum()) + len(new)).to_bytes(_COUNT, "big")
        yield from (block[found.places[place] : found.places[place + 1]] for place in np.flatnonzero(kept).tolist())
        yield from new
        at = int(found.places[-1])
    yield block[at:]


def _told(found: TimersOfGroup, group: int, changes: StateChanges, met: Bools) -> tuple[Bools, list[bytes]]:
    """Return which timers of a state stay in a key group, and the bytes of those that come."""
    kept = np.ones(found.rows, bool)
    if found.rows:
        rows = timer_rows(changes.form, found.columns, group, found.rows, changes.names)
        columns = {name: rows.column(name) for name in rows.schema.names}
        places = changes.found({name: columns.get(name, pa.nulls(found.rows)) for name in changes.names})
        mine = places[places >= 0]
        stored = mine[~changes.removed[mine]]
        if len(stored):
            raise changes.refused(int(stored[0]), "is stored already; change it, or remove it in the same edit")
        met[mine] = True
        kept[places >= 0] = changes.added[mine]
    new = changes.new_in(group)
    new = new[~met[new]]
    met[new] = True
    keys = cells_of(changes.keys.take(pa.array(new)))
    return kept, [_raw(keys.cell(number)) for number in range(len(new))]


def _raw(key: bytes) -> bytes:
    """The bytes of a timer in raw keyed state, from those that it has as an entry: the time comes last, as it is."""
    return key[_TIME:] + bytes([key[0] ^ 0x80]) + key[1:_TIME]
