"""The row checksums of ``stateStore.rowChecksum.enabled``.

A checksum is a CRC32C of four bytes, little-endian, over the key and the value before which it stands. The checksum of
a deletion is over the key.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.bytes.crc32c import crc32c_of_cells
from statestore.formats.spark.checkpoint.state_errors import corrupt_row

CHECKSUM_BYTES = 4


def verify_checksums(stored: npt.NDArray[Any], keys: Cells, values: Cells | None = None) -> None:
    """Raise CorruptError SPARK_STATE_ROW, naming the first row that does not match its checksum."""
    found = crc32c_of_cells(keys) if values is None else crc32c_of_cells(values, crc32c_of_cells(keys))
    wrong = found != stored
    if wrong.any():
        row = int(np.argmax(wrong))
        raise corrupt_row(f"row {row} has checksum {int(found[row]):#010x}, expected {int(stored[row]):#010x}")
