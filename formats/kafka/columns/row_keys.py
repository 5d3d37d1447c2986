"""Row keys of stores as columns: the user's key, and the times and numbers that the store adds to it.

    plain                  key
    window                 key | start:int64 | sequence:int32
    time-ordered window    00 | start:int64 | key | sequence:int32       01...: an index row, which holds no data
    session                key | end:int64 | start:int64
    time-ordered session   00 | end:int64 | start:int64 | key            01...: an index row

(``WindowKeySchema``, ``SessionKeySchema``, ``PrefixedWindowKeySchemas``, ``PrefixedSessionKeySchemas``; KIP-825.)
Changelogs have the window and the session form, also those of time-ordered stores.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.kafka.columns.origins import Origin
from statestore.formats.kafka.columns.serde_form import CellSerde
from statestore.formats.kafka.columns.time_columns import times, window_ends

KeyForm = Literal["plain", "window", "time-ordered window", "session", "time-ordered session"]
Columns = dict[str, pa.Array]

WINDOW_SUFFIX = 12
SESSION_SUFFIX = 16
_PREFIX = 1
_REMEDY = "choose another kind of store"
LOGGED: dict[KeyForm, KeyForm] = {"time-ordered window": "window", "time-ordered session": "session"}


def base_rows(keys: pa.BinaryArray, least: int, form: str) -> pa.BooleanArray | None:
    """A mask of the base rows among rows of a time-ordered store; None if all are.

    Raises CorruptError KAFKA_BYTES for a key that begins with neither 00 nor 01 or is shorter than ``least`` bytes.
    """
    cells, origin = cells_of(keys), Origin("key", keys)
    origin.refuse(cells, cells.size < least, f"a {form} key of at least {least} bytes", _REMEDY)
    prefix = cells.numbers(0, "u1")
    origin.refuse(cells, prefix > 1, f"a {form} key that begins with 00 or 01", _REMEDY)
    return pa.array(prefix == 0) if prefix.any() else None


def window_keys(
    keys: pa.BinaryArray, serde: CellSerde, window_size: int | None, *, time_first: bool, duplicates: bool
) -> Columns:
    """The columns ``key``, ``window_start`` and ``window_end``, with ``duplicates`` also ``sequence``.

    Without ``duplicates``, a sequence number other than 0 is refused: the store has several rows for a key and start.
    """
    cells, origin = cells_of(keys), Origin("key", keys)
    form = "time-ordered window" if time_first else "window"
    least = WINDOW_SUFFIX + (_PREFIX if time_first else 0)
    origin.refuse(cells, cells.size < least, f"a {form} key of at least {least} bytes", _REMEDY)
    starts = cells.numbers(_PREFIX if time_first else -WINDOW_SUFFIX, ">i8")
    sequences = cells.numbers(-4, ">i4")
    found = {
        "key": serde.decode(cells.cut(9, 4) if time_first else cells.cut(0, WINDOW_SUFFIX), origin),
        "window_start": times(starts, origin.named("window start")),
        "window_end": window_ends(starts, window_size),
    }
    if duplicates:
        found["sequence"] = pa.array(sequences, pa.int32())
    elif sequences.any():
        index = int(np.argmax(sequences != 0))
        raise origin.error(
            index, f"sequence number {sequences[index]}", "0", "choose a kind of window store with duplicates"
        )
    return found


def session_keys(keys: pa.BinaryArray, serde: CellSerde, *, time_first: bool) -> Columns:
    """The columns ``key``, ``session_start`` and ``session_end``."""
    cells, origin = cells_of(keys), Origin("key", keys)
    form = "time-ordered session" if time_first else "session"
    least = SESSION_SUFFIX + (_PREFIX if time_first else 0)
    origin.refuse(cells, cells.size < least, f"a {form} key of at least {least} bytes", _REMEDY)
    ends = cells.numbers(_PREFIX if time_first else -SESSION_SUFFIX, ">i8")
    starts = cells.numbers(_PREFIX + 8 if time_first else -8, ">i8")
    origin.refuse(cells, ends < starts, f"a {form} key whose end is not before its start", _REMEDY)
    return {
        "key": serde.decode(cells.cut(least, 0) if time_first else cells.cut(0, least), origin),
        "session_start": times(starts, origin.named("session start")),
        "session_end": times(ends, origin.named("session end")),
    }


def plain_key(keys: pa.BinaryArray, serde: CellSerde) -> Columns:
    """The column ``key``."""
    cells: Cells = cells_of(keys)
    return {"key": serde.decode(cells, Origin("key", keys))}
