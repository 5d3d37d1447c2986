"""Kafka's times, epoch milliseconds as int64, as columns of Arrow timestamps in microseconds.

A timestamp of microseconds reaches 292,000 years to each side of 1970. A time beyond is refused, because no user meant
it: the bytes are of another kind of store, or a producer sent nanoseconds. Only a computed end of a window may lie
beyond (Kafka caps it at 2^63 - 1 ms) and is null then, as it is where the size of windows is unknown.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.formats.kafka.columns.origins import Origin
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.values.without_pandas import arrow_numbers

TIME = pa.timestamp("us", "UTC")
UNKNOWN = -1  # Kafka's timestamp of a value that was written before timestamps were kept
MOST_MS = (2**63 - 1) // 1000


def times(milliseconds: Ints, origin: Origin, missing: Bools | None = None) -> pa.TimestampArray:
    """Convert times; ``missing`` ones become null.

    Raises CorruptError KAFKA_BYTES for a time beyond the range; ``origin`` names the rows.
    """
    if len(milliseconds) and (int(milliseconds.max()) > MOST_MS or int(milliseconds.min()) < -MOST_MS):
        beyond = (milliseconds > MOST_MS) | (milliseconds < -MOST_MS)
        beyond = beyond if missing is None else beyond & ~missing
        if beyond.any():
            index = int(beyond.argmax())
            raise origin.error(
                index,
                f"{int(milliseconds[index])}",
                f"epoch milliseconds from {-MOST_MS} to {MOST_MS}",
                "choose another kind of store",
            )
        milliseconds = np.clip(milliseconds, -MOST_MS, MOST_MS)
    return arrow_numbers(milliseconds * 1000, missing).view(TIME)


def timestamps(milliseconds: Ints, origin: Origin) -> pa.TimestampArray:
    """Convert timestamps of values, null for -1 (unknown). Errors as `times`."""
    unknown = milliseconds == UNKNOWN
    return times(milliseconds, origin, unknown if unknown.any() else None)


def window_ends(starts: Ints, size: int | None) -> pa.TimestampArray:
    """The ends, exclusive, of windows of ``size`` ms that begin at ``starts``, which `times` has accepted.

    Null where the size is unknown (None), or the end lies beyond the range of timestamps.
    """
    if size is None or size > 2 * MOST_MS:
        return pa.nulls(len(starts), TIME)
    beyond = starts > MOST_MS - size
    ends = np.where(beyond, 0, starts + size) * 1000
    return pa.array(ends, pa.int64(), mask=beyond if beyond.any() else None).view(TIME)
