"""The retention rule of versioned stores (KIP-889): writes that are too late, and versions that are no longer visible.

The grace period equals the history retention. Both are measured from the observed stream time, which is the greatest
timestamp that the store was given. All times here are epoch microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.segments.segment_meta import OPEN


@dataclass(frozen=True)
class Retention:
    """``length`` of kept history and ``segment_interval``, None: unlimited; ``horizon`` of the last expiry.

    A record older than the horizon is refused regardless of the length: the versions that would follow it may be gone,
    so that an old record could become the newest of its key.
    """

    length: int | None
    segment_interval: int | None
    horizon: int = -(2**63)

    def is_late(self, moment: int, stream_time: int) -> bool:
        """Return True for a write that is refused, and for a moment whose history is gone."""
        return moment < self.horizon or (self.length is not None and moment < stream_time - self.length)

    def is_visible(self, end: int, high: int, stream_time: int) -> bool:
        """Return whether a read of moments up to ``high`` sees a version that ends at ``end``.

        Kafka drops whole segments, so a version outlives the retention until its segment (by end) is dropped.
        """
        if end == OPEN:
            return True
        if self.is_late(high, stream_time):
            return False
        if self.length is None or self.segment_interval is None:
            return end > self.horizon
        return end // self.segment_interval >= (stream_time - self.length) // self.segment_interval

    def without_late(self, batch: pa.RecordBatch, stream_time: int) -> tuple[pa.RecordBatch, int]:
        """Return the accepted records (of the store's record schema) and the number of refused ones.

        Each record is judged by the stream time at its turn.
        """
        if (self.length is None and self.horizon == -(2**63)) or not batch.num_rows:
            return batch, 0
        times = batch.column("timestamp").view(pa.int64()).to_numpy(zero_copy_only=False)
        accepted = times >= self.horizon
        if self.length is not None:
            accepted &= times >= np.maximum.accumulate(np.concatenate(([stream_time], times[:-1]))) - self.length
        late = int(np.count_nonzero(~accepted))
        return (batch.filter(pa.array(accepted)), late) if late else (batch, 0)


def retention_of(spec: StoreSpec) -> Retention:
    """Return the rule of a store, whose description has milliseconds."""
    length, interval = spec.history_retention, spec.segment_interval
    return Retention(None if length is None else length * 1000, None if interval is None else interval * 1000)
