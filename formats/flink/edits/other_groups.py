"""Stored entries in the key groups that their keys have with another max parallelism.

A key group is ``murmur(hash code of the key) mod max parallelism``, and stored keys begin with it. Every key that is
moved must lie where its hash code puts it with the old max parallelism: a key of which that is not so has another hash
code than is known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, joined_cells
from statestore.formats.flink.changelog.stored_entries import prefixes
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.columns.key_hashes import has_java_hash, hashed_as, java_hashes
from statestore.formats.flink.edits.keyed_stream import Entries, framed_entries
from statestore.formats.flink.edits.state_changes import unsupported
from statestore.formats.flink.serializers.flink_types import FlinkType, Opaque, Prefix, SortedLong
from statestore.formats.flink.serializers.type_names import shown
from statestore.formats.flink.streams.keyed_columns import prefix_width
from statestore.formats.kernels.arrays import Ints
from statestore.formats.values.key_groups import groups_of_codes

PROCESSOR_API = "write the state with Flink's State Processor API, which has the job's classes"
_FEW, _MUCH = 1 << 14, 4 << 20


@dataclass(frozen=True)
class OtherGroups:
    """The change of the max parallelism of an operator, from ``before`` to ``after``; ``key`` is the type of keys as
    stored.
    """

    key: FlinkType
    before: int
    after: int
    origin: str

    def check(self) -> None:
        """Raise UnsupportedError EDIT_UNSUPPORTED for keys whose hash code is not known."""
        if not has_java_hash(self.key):
            raise unsupported(
                self.origin,
                f"its keys cannot move to other key groups, because the hash code of {shown(self.key)} is one of the "
                f"job's classes, and no file has it; {PROCESSOR_API}, or keep the max parallelism",
            )

    def moved(self, entries: Entries, *, timers: bool) -> tuple[Ints, pa.BinaryArray]:
        """The new key group of each entry, and the entry as a stream of the target has it.

        Raises UnsupportedError EDIT_UNSUPPORTED, CorruptError FLINK_ROW.
        """
        keys, values = entries
        width, new_width = prefix_width(self.before), prefix_width(self.after)
        own = hashed_as(self.key)
        kinds: list[FlinkType] = [Prefix(width), *([SortedLong()] if timers else []), own, Opaque("")]
        cells = decode_cells(kinds, keys, [each is own for each in kinds], self.origin)
        codes = java_hashes(self.key, cells[-2])
        old = keys.numbers(0, f">u{width}").astype(np.int64)
        wrong = groups_of_codes(codes, self.before) != old
        if wrong.any():
            row = int(wrong.argmax())
            raise unsupported(
                self.origin,
                f"the stored key {keys.cell(row)[:40].hex()} is in key group {int(old[row])}, where its hash code as "
                f"{shown(self.key)} does not put it, so where it belongs with another max parallelism is not known; "
                f"{PROCESSOR_API}",
            )
        groups = groups_of_codes(codes, self.after)
        parts = [prefixes(groups, new_width), keys.cut(width).copied()]
        return groups, framed_entries(parts, keys.size - width + new_width, values)


def together(found: Iterable[tuple[int, Iterable[Entries]]]) -> Iterator[tuple[int, Entries]]:
    """Yield the entries of sections by their state, in batches that are not small, as those of a key group may be."""
    waiting: dict[int, list[Entries]] = {}
    counts: dict[int, list[int]] = {}
    for number, batches in found:
        for keys, values in batches:
            if not len(keys):
                continue
            mine, count = waiting.setdefault(number, []), counts.setdefault(number, [0, 0])
            mine.append((keys, values))
            count[0] += len(keys)
            count[1] += int(keys.size.sum() + values.size.sum())
            if count[0] >= _FEW or count[1] >= _MUCH:
                yield number, _joined(waiting.pop(number))
                del counts[number]
    for number, left in waiting.items():
        yield number, _joined(left)


def _joined(parts: list[Entries]) -> tuple[Cells, Cells]:
    return joined_cells([keys for keys, _ in parts]), joined_cells([values for _, values in parts])
