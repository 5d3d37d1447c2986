"""Timers of keys, found by time: in their rows the time follows the key group (Flink's timer queues).

No call scans all keys: the timers that are due at a moment are the first rows of each key group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.catalog.keyed.rows.database import LocalDatabase
from statestore.catalog.keyed.rows.state_rows import Grouped, encoder, group_bytes, stored_key, table_schema
from statestore.catalog.keyed.rows.state_spec import StateDescriptor
from statestore.formats.kernels.arrays import Ints
from statestore.formats.serdes import natural_keys
from statestore.formats.values.types import TIME

_SIGN = 1 << 63


@dataclass(frozen=True)
class Due:
    """Timers that are due, by key group and time.

    They have ``times`` in epoch microseconds, the columns of the key and of the namespace, and the stored keys that
    `TimerState.remove` takes.
    """

    groups: Ints
    times: Ints
    keys: list[pa.Array]
    stored: list[bytes]
    namespaces: list[pa.Array]


class TimerState:
    """Times of keys, and of namespaces if it has such; a key may have several. For whole columns only."""

    def __init__(self, database: LocalDatabase, key: pa.Schema, key_groups: range, spec: StateDescriptor) -> None:
        self.spec = spec
        self._database, self._key, self._groups = database, key, key_groups
        self._encode = encoder(key, spec)

    def set(self, groups: Ints, times: Ints, keys: Sequence[pa.Array], namespaces: Sequence[pa.Array] = ()) -> None:
        """Set a timer for each key at its time, epoch microseconds; ``groups`` are the key groups of the keys.

        ``namespaces`` are the columns of the namespace, of a state that has namespaces.
        """
        self._database.load(self.spec.name, self._rows(groups, times, [*keys, *namespaces]))

    def due(self, before: int) -> Due:
        """Return all timers whose times are before a moment, epoch microseconds."""
        stored_keys: list[bytes] = []
        bound = (max(before, -_SIGN) + _SIGN).to_bytes(8)
        for group in self._groups:
            begin = group_bytes(group)
            stored_keys += self._database.keys_between(self.spec.name, begin, begin + bound)
        stored = pa.array(stored_keys, pa.binary())
        group_column, times, *columns = natural_keys.keys_from_bytes(stored_key(self._key, self.spec), stored)
        whole, named = group_column.to_numpy().astype(np.int64), len(self._key)
        return Due(whole, times.cast(pa.int64()).to_numpy(), columns[:named], stored_keys, columns[named:-1])

    def remove(self, stored: Sequence[bytes]) -> None:
        """Remove timers that `due` returned."""
        self._database.write(self.spec.name, [], keys=stored)

    def remove_at(
        self, groups: Ints, times: Ints, keys: Sequence[pa.Array], namespaces: Sequence[pa.Array] = ()
    ) -> None:
        """Remove the timers of keys at these times, if there are any."""
        self.remove(self._rows(groups, times, [*keys, *namespaces]).column(0).to_pylist())

    def _rows(self, groups: Ints, times: Ints, named: Sequence[pa.Array]) -> pa.RecordBatch:
        columns = [pa.array(times, TIME), *named, pa.array(np.ones(len(times), bool))]
        rows = pa.RecordBatch.from_arrays(columns, schema=table_schema(self._key, self.spec))
        return self._encode(Grouped(groups, rows))
