"""Changes of a state for tests of the changelog backend, and the entries that are left after them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.flink.changelog.logged_changes import LoggedChanges
from statestore.formats.flink.changelog.replay import Entries

Change = tuple[int, bytes, bytes]
"""An operation, the stored key without a map key, and what the operation needs."""


def changes_of(changes: list[Change]) -> LoggedChanges:
    operations, scopes, payloads = zip(*changes, strict=True)
    return LoggedChanges(
        np.array([scope[0] for scope in scopes], np.int64),
        np.array(operations, np.int64),
        cells_of(pa.array(scopes, pa.binary())),
        cells_of(pa.array(payloads, pa.binary())),
    )


def materialized(stored: Mapping[bytes, bytes]) -> Iterator[tuple[Cells, Cells]]:
    """The entries in batches of three."""
    for first in range(0, len(stored), 3):
        keys, values = list(stored)[first : first + 3], list(stored.values())[first : first + 3]
        yield cells_of(pa.array(keys, pa.binary())), cells_of(pa.array(values, pa.binary()))


def entries_of(found: Entries) -> dict[bytes, bytes]:
    entries: dict[bytes, bytes] = {}
    for keys, values in found:
        for place in range(len(keys)):
            assert keys.cell(place) not in entries
            entries[keys.cell(place)] = values.cell(place)
    return entries


def i32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def i64(number: int) -> bytes:
    return number.to_bytes(8, "big")
