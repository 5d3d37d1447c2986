"""Changes of a state, held in memory, or in a temporary file from which they are read part by part.

A replay needs all changes of a key at once, and those of a state may be more than memory has room for. Changes that
are many are written down by bucket, such as the key group, in runs. Then some buckets at a time are read from all runs.

    run    key groups | operations | sizes | the changes, all by bucket, and within it in their order
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from statestore.formats.bytes.byte_columns import Cells, ends_of, joined_cells
from statestore.formats.kernels.arrays import Bools, Bytes, Ints
from statestore.formats.places.unnamed_file import UnnamedFile

MOST = 128 << 20
"""Most bytes of changes that are held without a file, with what a replay needs beside them. Parts have a quarter."""
_EACH = 128  # bytes beside those of a change: where it lies, its number, its hash
_PART_OF = 4


@dataclass(frozen=True)
class RawChanges:
    """Changes, each without its operation and state, behind the prefix of a stored key of its key group."""

    groups: Ints
    operations: Bytes
    cells: Cells

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def weight(self) -> int:
        """The bytes that they take in a replay, about."""
        return len(self.cells.data) + _EACH * len(self)

    def select(self, which: Bools | Ints) -> RawChanges:
        """The changes where the mask is true, or at these places."""
        return RawChanges(self.groups[which], self.operations[which], self.cells.select(which))


def joined_changes(parts: Sequence[RawChanges]) -> RawChanges:
    """The changes of all parts, one after another."""
    if len(parts) == 1:
        return parts[0]
    groups = [np.empty(0, np.int64), *(each.groups for each in parts)]
    operations = [np.empty(0, np.uint8), *(each.operations for each in parts)]
    cells = joined_cells([each.cells for each in parts])
    return RawChanges(np.concatenate(groups), np.concatenate(operations), cells)


Placed = Callable[[RawChanges], tuple[RawChanges, Ints]]
"""Returns changes, of which one may have become several, and the bucket of each."""


@dataclass(frozen=True)
class _Run:
    """A run from byte ``at`` on: the first change of each bucket, and the first byte of its changes."""

    at: int
    first: Ints
    first_byte: Ints


class HeldChanges:
    """Changes that are added in their order. Use it as a context manager: the file is removed at its end."""

    def __init__(self, placed: Placed, buckets: int) -> None:
        self._placed, self._buckets = placed, buckets
        self._held: list[RawChanges] = []
        self._weight = 0
        self._file = UnnamedFile()
        self._runs: list[_Run] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def is_written(self) -> bool:
        """Return whether they are too many to be held in memory."""
        return self._file.is_written

    def add(self, changes: RawChanges) -> None:
        """Add changes behind all others. Raises StorageError DISK_FAILED."""
        self._held.append(changes)
        self._weight += changes.weight
        if self._weight > (MOST // _PART_OF if self.is_written else MOST):
            self._write()

    def all(self) -> RawChanges:
        """All changes in their order, where they are not written down."""
        return joined_changes(self._held)

    def parts(self) -> Iterator[tuple[int, RawChanges]]:
        """Yield the changes of some buckets after another, each with the last of these buckets.

        All of them must have been written, which `write` does. Raises StorageError DISK_FAILED.
        """
        weights = sum(np.diff(run.first) * _EACH + np.diff(run.first_byte) for run in self._runs)
        begun, weight = 0, 0
        for bucket, more in enumerate(np.broadcast_to(weights, self._buckets).tolist()):
            if weight and weight + more > MOST // _PART_OF:
                yield bucket - 1, self._read(begun, bucket)
                begun, weight = bucket, 0
            weight += more
        yield self._buckets - 1, self._read(begun, self._buckets)

    def write(self) -> None:
        """Write down those that are still in memory. Raises StorageError DISK_FAILED."""
        self._write()

    def _write(self) -> None:
        waiting, self._held, self._weight = self._held[::-1], [], 0
        while waiting:
            some: list[RawChanges] = []
            weight = 0
            while waiting and (not some or weight < MOST // _PART_OF):
                some.append(waiting.pop())
                weight += some[-1].weight
            self._write_run(*self._placed(joined_changes(some)))

    def _write_run(self, changes: RawChanges, buckets: Ints) -> None:
        changes = changes.select(np.argsort(buckets, kind="stable"))
        octets, offsets = changes.cells.content()
        first = ends_of(np.bincount(buckets, minlength=self._buckets))
        columns = (changes.groups, changes.operations, changes.cells.size, octets)
        at = self._file.append(np.ascontiguousarray(each).data for each in columns)
        self._runs.append(_Run(at, first, offsets[first]))

    def _read(self, begun: int, ended: int) -> RawChanges:
        """The changes of buckets ``begun`` to before ``ended``."""
        spans = [(run.first[begun], run.first[ended]) for run in self._runs]
        sizes = [run.first_byte[ended] - run.first_byte[begun] for run in self._runs]
        places, ends = ends_of(np.array([last - first for first, last in spans])), ends_of(np.array(sizes))
        count = int(places[-1])
        groups, operations, size = np.empty(count, np.int64), np.empty(count, np.uint8), np.empty(count, np.int64)
        data = np.empty(int(ends[-1]), np.uint8)
        for run, (first, last), at, stop, end, behind in zip(
            self._runs, spans, places[:-1], places[1:], ends[:-1], ends[1:], strict=True
        ):
            total = int(run.first[-1])
            self._fill(groups[at:stop], run.at + 8 * int(first))
            self._fill(operations[at:stop], run.at + 8 * total + int(first))
            self._fill(size[at:stop], run.at + 9 * total + 8 * int(first))
            self._fill(data[end:behind], run.at + 17 * total + int(run.first_byte[begun]))
            assert last - first == stop - at
        return RawChanges(groups, operations, Cells(data, ends_of(size)[:-1], size))

    def _fill(self, target: npt.NDArray[np.generic], at: int) -> None:
        self._file.fill(target.view(np.uint8).data, at)
