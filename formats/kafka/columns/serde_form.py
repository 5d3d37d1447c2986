"""Serdes as a reader of columns uses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.kafka.columns.origins import Origin

Decode = Callable[[Cells, Origin], pa.Array]


@dataclass(frozen=True)
class CellSerde:
    """Decoder of the cells of a column: ``decode(cells, origin)`` gives an array of ``type``.

    ``decode`` raises CorruptError KAFKA_BYTES about the first cell that has not the serde's form; ``size`` is the size
    of each cell where it is fixed.
    """

    name: str
    type: pa.DataType
    decode: Decode
    size: int | None = None
