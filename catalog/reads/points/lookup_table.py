"""The table by which compiled code finds the row of a key at a moment: addresses of the arrays of opened segments.

It serves reads of single keys, each of which costs a tenth of what it does in Python. To load compiled code takes up to
a second, so it begins after some thousand reads, and after more where the process has not loaded any yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from statestore.catalog.reads.points.segment_filter import SegmentFilter
from statestore.catalog.reads.points.segment_probe import OpenedSegment
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.kernels.compiled_use import is_loaded, load_if_it_pays
from statestore.formats.segments.segment_meta import SegmentMeta

HALF, NOT_FOUND = 1 << 63, -1  # as in `point_kernels`, which cannot be imported without numba
WARM_READS = 1 << 12
BYTES_A_READ = 128  # as which a read counts in the decision to load compiled code


def reads_pay(reads: int, more: int) -> bool:
    """Return whether compiled code pays after so many reads of a store, ``more`` of them since the last question."""
    if not is_loaded():
        load_if_it_pays(more * BYTES_A_READ)
    return reads >= WARM_READS and is_loaded()


class LookupTable:
    """The table of `point_kernels.find_row`, and the arrays whose addresses it has.

    ``find`` takes a hash less HALF and a moment. It returns slot << 32 | row of a row of the hash that is valid then,
    NOT_FOUND if there is none, or another negative number if that is unknown. The row may be that of another key, and
    then nothing is known of the key that was asked for.
    """

    def __init__(self, found: SegmentFilter, metas: Sequence[SegmentMeta | None]) -> None:
        """Make the table for the segments in the slots of a filter, none of which is described yet."""
        from statestore.formats.kernels import point_kernels as kernels

        self._kernels = kernels
        self._every: Hashes = np.zeros(found.width, np.uint64)
        self._held: list[object] = [found, self._every]
        self._numbers: Ints = np.zeros(kernels.HEAD + len(metas) * kernels.FIELDS, np.int64)
        self._numbers[[kernels.WORDS, kernels.WIDTH, kernels.SHIFT, kernels.EVERY]] = (
            _address(found.view),
            found.width,
            found.shift,
            _address(self._every),
        )
        self.set_every(found.every)
        fields = self._numbers[kernels.HEAD :].reshape(-1, kernels.FIELDS)
        fields[:, [kernels.FIRST, kernels.LAST]] = 1, 0  # valid at no moment
        for slot, meta in enumerate(metas):
            if meta is not None and not meta.tombstone:
                fields[slot, [kernels.FIRST, kernels.LAST]] = meta.min_valid_from, meta.max_valid_to
        self._fields = fields
        self.find: Callable[[int, int], int] = partial(kernels.find_row, self._numbers)

    def set_every(self, every: int) -> None:
        """Set the slots that a look has to consider for every hash; more than necessary do no harm."""
        self._every[:] = np.frombuffer(every.to_bytes(8 * len(self._every), "little"), np.uint64)

    def find_many(self, hashes: Hashes, moment: int) -> Ints:
        """Return what ``find`` returns for each hash."""
        places = np.empty(len(hashes), np.int64)
        self._kernels.find_rows(self._numbers, hashes, moment, places)
        return places

    def describe(self, slot: int, opened: OpenedSegment) -> None:
        """Describe the segment in a slot, unless the rows of its hashes are in no order."""
        kernels, probe = self._kernels, opened.probe
        if opened.row_order is None:
            opened.row_order = kernels.order_of_rows(
                np.frombuffer(probe.hashes, np.uint64),
                np.frombuffer(probe.rows, np.uint32),
                np.frombuffer(probe.starts, np.int64),
                np.frombuffer(probe.ends, np.int64),
            )
        if opened.row_order == kernels.UNSORTED:
            return
        layers = np.array([(_address(rows), _address(ends), len(rows)) for rows, ends in opened.layers[::-1]], np.int64)
        self._held += [opened, layers]
        fields = self._fields[slot]
        fields[kernels.ROWS] = _address(probe.rows)
        fields[kernels.DIRECTORY] = _address(probe.directory)
        fields[kernels.BUCKET_SHIFT] = probe.shift
        fields[kernels.STARTS] = _address(probe.starts)
        fields[kernels.ENDS] = _address(probe.ends)
        fields[kernels.IS_CHAINED] = opened.row_order == kernels.CHAINED
        fields[kernels.LAYERS] = len(layers)
        fields[kernels.LAYER_TABLE] = _address(layers)
        fields[kernels.HASHES] = _address(probe.hashes)  # at last: from now on other threads may look into it


def _address(data: memoryview | Ints | Hashes) -> int:
    return int(np.asarray(data).ctypes.data)
