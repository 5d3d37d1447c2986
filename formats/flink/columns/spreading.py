"""Dense columns spread over rows of which some are null."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.formats.kernels.arrays import Bools


def spread(values: pa.Array, present: Bools) -> pa.Array:
    """The values where ``present``, in order, and nulls elsewhere."""
    if present.all():
        return values
    return values.take(pa.array(np.cumsum(present) - 1, mask=~present))
