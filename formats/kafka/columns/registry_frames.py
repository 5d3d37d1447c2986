"""Values behind the id of their schema, as serializers of a registry write them: 00 | schema id:int32 | value."""

from __future__ import annotations

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.kafka.columns.origins import Origin
from statestore.formats.kernels.arrays import Ints

FRAME_BYTES = 5


def check_frames(cells: Cells, origin: Origin, what: str, remedy: str) -> None:
    """Raise CorruptError KAFKA_BYTES about the first cell without an id in front; no cell may be null."""
    framed = (cells.size >= FRAME_BYTES) & (cells.first_bytes() == 0)
    origin.refuse(cells, ~framed, f"{what} behind 00 and the id of its schema", remedy)


def schema_ids(cells: Cells) -> Ints:
    """The ids in front of values that `check_frames` has accepted."""
    found: Ints = cells.numbers(1, ">i4")
    return found
