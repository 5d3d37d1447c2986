"""Point questions to committed segments: one key, by the segments' key indexes, without touching other rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from statestore.catalog.row_state import newest_ends, views_of
from statestore.catalog.segment_files import SegmentFiles
from statestore.catalog.snapshot import Snapshot
from statestore.formats.key_codec import KeyCodec

Key = tuple[Any, ...]


class Found(NamedTuple):
    """A stored version; times in epoch microseconds, ``values`` None for a tombstone."""

    start: int
    end: int
    values: tuple[Any, ...] | None


@dataclass
class _Probe:
    """One segment, opened for point reads: memoryviews, because they answer single numbers faster than numpy."""

    min_start: int
    max_end: int
    tombstone: bool
    find: Callable[[int], list[int]]
    starts: memoryview
    ends: memoryview
    keys: list[pa.Array | pa.ChunkedArray]
    values: list[pa.Array | pa.ChunkedArray]

    def has_key(self, row: int, key: Key, codec: KeyCodec) -> bool:
        stored = tuple(column[row].as_py() for column in self.keys)
        return stored == key or codec.normalize(stored) == key

    def found(self, row: int) -> Found:
        values = None if self.tombstone else tuple(column[row].as_py() for column in self.values)
        return Found(self.starts[row], self.ends[row], values)


class PointLookup:
    """Answers for one snapshot; segments are opened when a question first reaches them."""

    def __init__(self, files: SegmentFiles, snapshot: Snapshot, codec: KeyCodec) -> None:
        self._files = files
        self._codec = codec
        views = [v for v in views_of(snapshot.segments, snapshot.closures) if v.meta.role != "belief"]
        # Earliest ends first: the segment that closed next after a moment most likely holds what was valid then.
        views.sort(key=lambda v: (v.meta.max_valid_to, -v.meta.max_added))
        self._views = views
        self._probes: list[_Probe | None] = [None] * len(views)
        self._bounds = [
            (number, v.meta.min_valid_from, v.meta.max_valid_to)
            for number, v in enumerate(views)
            if not v.meta.tombstone
        ]

    def valid_at(self, key: Key, key_hash: int, moment: int) -> Found | None:
        """The value version with start <= moment < end."""
        for number, min_start, max_end in self._bounds:
            if min_start > moment or max_end <= moment:
                continue
            probe = self._probes[number] or self._open(number)
            for row in probe.find(key_hash):
                if probe.starts[row] <= moment < probe.ends[row] and probe.has_key(row, key, self._codec):
                    return probe.found(row)
        return None

    def ending_from(self, key: Key, key_hash: int, moment: int) -> list[Found]:
        """All versions and tombstones of the key that end at or after ``moment``, by start; replaced rows left out."""
        found = []
        for number, view in enumerate(self._views):
            if view.meta.max_valid_to < moment:
                continue
            probe = self._probes[number] or self._open(number)
            for row in probe.find(key_hash):
                end = probe.ends[row]
                if end >= moment and end > probe.starts[row] and probe.has_key(row, key, self._codec):
                    found.append(probe.found(row))
        return sorted(found)

    def _open(self, number: int) -> _Probe:
        view = self._views[number]
        segment = self._files.segment(view.meta)
        spec = self._files.spec
        probe = _Probe(
            min_start=view.meta.min_valid_from,
            max_end=view.meta.max_valid_to,
            tombstone=view.meta.tombstone,
            find=self._files.index(view.meta).find,
            starts=memoryview(segment.int64("valid_from")),
            ends=memoryview(newest_ends(self._files, view)),
            keys=[segment.column(name) for name in spec.key_names],
            values=[] if view.meta.tombstone else [segment.column(name) for name in spec.value_names],
        )
        self._probes[number] = probe
        return probe
