"""Framed entries in any order of key groups, brought into that order: in memory, or in a temporary file if they are
many.

Entries are held until they are `MOST` bytes. Then they are sorted by key group and state, and written down as a run.
The entries of a key group are at last those of all runs, one run after another. The file has no name, so that nothing
of it is left if the process dies.

    run    the entries of a state in a key group, for all states of a key group, for all key groups
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from statestore.formats.flink.edits.keyed_stream import Framed, FramedSection
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.unnamed_file import UnnamedFile

MOST = 128 << 20
"""Most bytes of entries that are held without a file. Memory has as much again while they are sorted."""
_EACH = 8  # bytes beside those of an entry


@dataclass(frozen=True)
class _Run:
    """A run whose entries are in memory, or in the file from byte ``at`` on.

    Of each part, the entries of a state in a key group, ``ids`` has a number that ascends with both, ``starts`` its
    first byte, ``lasts`` that of its last entry, ``stops`` the byte behind it.
    """

    ids: Ints
    starts: Ints
    lasts: Ints
    stops: Ints
    content: memoryview | None
    at: int = 0


class KeyGroupRuns:
    """Entries of ``states`` states that are added in any order, of which memory holds a ``share`` of `MOST`.

    Use it as a context manager: the file is removed at its end.
    """

    def __init__(self, states: int, share: float = 1) -> None:
        self._states = states
        self._share = share
        self._held: list[tuple[Ints, int, pa.BinaryArray]] = []
        self._weight = 0
        self._file = UnnamedFile()
        self._runs: list[_Run] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, groups: Ints, state: int, entries: pa.BinaryArray) -> None:
        """Add entries of a state, each with its key group. Raises StorageError DISK_FAILED."""
        self._held.append((groups.astype(np.uint16), state, entries))
        self._weight += entries.nbytes + _EACH * len(entries)
        if self._weight > MOST * self._share:
            self._end_run(in_memory=False)

    def sections(self, first_group: int, groups: int) -> Iterator[tuple[int, Iterator[FramedSection]]]:
        """Yield those of these key groups that have entries, ascending, and the sections of each.

        Each section is to be read before the next one. Nothing can be added any more. Raises StorageError DISK_FAILED.
        """
        if self._held:
            self._end_run(in_memory=not self._runs)
        empty = np.empty(0, np.int64)
        every = np.concatenate([empty, *(run.ids for run in self._runs)])
        of_run = np.concatenate([empty, *(np.full(len(run.ids), number) for number, run in enumerate(self._runs))])
        place = np.concatenate([empty, *(np.arange(len(run.ids)) for run in self._runs)])
        mine = every // self._states
        chosen = np.flatnonzero((mine >= first_group) & (mine < first_group + groups))
        chosen = chosen[np.argsort(every[chosen], kind="stable")]
        parts = zip(every[chosen].tolist(), of_run[chosen].tolist(), place[chosen].tolist(), strict=True)
        for group, of_group in itertools.groupby(parts, lambda part: part[0] // self._states):
            yield (
                group,
                (
                    (number % self._states, (self._read(self._runs[run], at) for _, run, at in found))
                    for number, found in itertools.groupby(of_group, lambda part: part[0])
                ),
            )

    def _end_run(self, *, in_memory: bool) -> None:
        """Sort the entries that are held, and write them down unless they stay in memory."""
        held, self._held, self._weight = self._held, [], 0
        groups = np.concatenate([each for each, _, _ in held])
        states = np.concatenate([np.full(len(each), state, np.uint16) for each, state, _ in held])
        order = np.argsort(states, kind="stable") if self._states > 1 else np.arange(len(groups))
        order = order[np.argsort(groups[order], kind="stable")]
        entries = pa.concat_arrays([each for _, _, each in held]).take(pa.array(order))
        ids = groups[order].astype(np.int64) * self._states + states[order]
        _, ends, data = entries.buffers()
        offsets = np.frombuffer(ends, np.int32)[entries.offset : entries.offset + len(entries) + 1].astype(np.int64)
        first = np.concatenate([[0], np.flatnonzero(np.diff(ids)) + 1])
        behind = np.append(first[1:], len(ids))
        content, at = memoryview(data), 0
        if not in_memory:
            at = self._file.append([content[: offsets[-1]]])
        parts = offsets[first], offsets[behind - 1], offsets[behind]
        self._runs.append(_Run(ids[first], *parts, content if in_memory else None, at))

    def _read(self, run: _Run, place: int) -> Framed:
        """The entries of a part of a run."""
        start, last, stop = int(run.starts[place]), int(run.lasts[place]), int(run.stops[place])
        if run.content is not None:
            return Framed(run.content[start:stop], last - start)
        found = memoryview(bytearray(stop - start))
        self._file.fill(found, run.at + start)
        return Framed(found, last - start)
