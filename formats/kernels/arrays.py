"""Types of arrays, by what their numbers are. Importing this module does not import numba."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]  # times in microseconds, versions, row numbers, lengths
Bools = npt.NDArray[np.bool_]  # one for each row
Hashes = npt.NDArray[np.uint64]  # of keys
U32s = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]
