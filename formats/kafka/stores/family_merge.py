"""Rows of a database whose store was upgraded in place, so that rows of one store lie in several column families.

Kafka moves a row to the newest family when it is written next (KIP-258, KIP-1271). It deletes the row in the older
family then, so a key is in one family only. If it is in two, the newest family counts, as in Kafka's own reads.

Families are read side by side in key order, a batch of each at a time. All keys up to the least of the batches' last
keys are complete in what is held. Of these, rows of older families are left out whose keys newer families have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

Batches = Iterator[pa.RecordBatch]


@dataclass
class Held:
    """Rows of one sorted stream that are read and not yet passed on. Keys are compared from byte ``skip`` on."""

    batches: Batches
    skip: int = 0
    rows: pa.RecordBatch | None = None
    ended: bool = False

    def fill(self) -> None:
        """Read the next batch if nothing is held."""
        while self.rows is None and not self.ended:
            batch = next(self.batches, None)
            if batch is None:
                self.ended = True
            elif batch.num_rows:
                self.rows = batch

    def last_key(self) -> bytes:
        """The greatest key that is held; there must be one."""
        assert self.rows is not None
        return self._key(self.rows.num_rows - 1)

    def take(self, bound: bytes) -> pa.RecordBatch | None:
        """Remove and return the rows up to and including a key; None: there are none."""
        if self.rows is None:
            return None
        stop = self._first_above(bound)
        taken, rest = self.rows.slice(0, stop), self.rows.slice(stop)
        self.rows = rest if rest.num_rows else None
        return taken if stop else None

    def _key(self, row: int) -> bytes:
        assert self.rows is not None
        key: bytes = self.rows.column(0)[row].as_py()
        return key[self.skip :]

    def _first_above(self, bound: bytes) -> int:
        assert self.rows is not None
        low, high = 0, self.rows.num_rows
        while low < high:
            middle = (low + high) // 2
            if self._key(middle) <= bound:
                low = middle + 1
            else:
                high = middle
        return low


def aligned(streams: Sequence[Held]) -> Iterator[list[pa.RecordBatch | None]]:
    """Yield the rows of sorted streams in spans of keys, one batch a stream; None: the stream has none in the span.

    All rows of a key are in one span, and spans are in key order. Memory holds a batch a stream.
    """
    while True:
        for stream in streams:
            stream.fill()
        bounds = [stream.last_key() for stream in streams if stream.rows is not None]
        if not bounds:
            return
        # A stream that has ended constrains nothing. One with rows may go on behind its last key.
        yield [stream.take(min(bounds)) for stream in streams]


def merged_families(families: Sequence[Batches]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (position of the family, its rows) of families given newest first, without rows that a newer one has.

    Every batch is in key order and has rows of one family. Keys of later batches are not less than keys of earlier ones
    of the same family.
    """
    for span in aligned([Held(batches) for batches in families]):
        newer: list[pa.Array] = []
        for position, rows in enumerate(span):
            if rows is None:
                continue
            kept = rows
            if newer:
                known = pc.is_in(rows.column(0), value_set=pa.chunked_array(newer).combine_chunks())
                if pc.any(known).as_py():
                    kept = rows.filter(pc.invert(known))
            newer.append(rows.column(0))
            if kept.num_rows:
                yield position, kept
