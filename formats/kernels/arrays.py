"""Types of arrays, by what their numbers are, and the two ends that are no times. Importing this imports no numba."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]  # times in microseconds, versions, row numbers, lengths
Bools = npt.NDArray[np.bool_]  # one for each row
Hashes = npt.NDArray[np.uint64]  # of keys
U32s = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]

OPEN = 2**63 - 1  # the end of a row that has not ended: after every time
ABSENT = -(2**63)  # the "end" of a row that a version does not have: before every time
