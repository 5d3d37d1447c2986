"""A value state for whole columns: many keys are read, written and removed at once, without a Python call for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.catalog.keyed.rows.database import LocalDatabase
from statestore.catalog.keyed.rows.row_keys import stored_key
from statestore.catalog.keyed.rows.state_spec import StateDescriptor
from statestore.formats.kernels.arrays import Ints
from statestore.formats.serdes import natural_keys, natural_values
from statestore.formats.serdes.value_layout import ValueLayout, value_layout


@dataclass(frozen=True)
class ValueColumns:
    """A value state without namespaces, addressed by its `stored_keys`."""

    database: LocalDatabase
    key: pa.Schema
    spec: StateDescriptor

    def stored_keys(self, groups: Ints, keys: Sequence[pa.Array]) -> pa.Array:
        """Return the stored key of each row of the key columns, whose key groups are ``groups``."""
        ones = pa.array(np.zeros(len(groups), np.int8))
        columns = [pa.array(groups.astype(np.int16)), *keys, ones]
        return natural_keys.keys_to_bytes(stored_key(self.key, self.spec), columns)

    def get(self, stored: pa.Array) -> pa.Array:
        """Return the value of each stored key; null if there is none."""
        found = pa.array(self.database.get_many(self.spec.name, stored.to_pylist()), pa.binary())
        there = found.is_valid().to_numpy(zero_copy_only=False)
        (values,) = natural_values.values_from_bytes(self._layout(), found.drop_null())
        if there.all():
            return values
        return values.take(pa.array(np.cumsum(there) - 1, pa.int64(), mask=~there))

    def put(self, stored: pa.Array, values: pa.Array) -> None:
        """Write values without nulls."""
        rows = natural_values.values_to_bytes(self._layout(), [values])
        self.database.load(self.spec.name, pa.RecordBatch.from_arrays([stored, rows], names=["key", "value"]))

    def remove(self, stored: pa.Array) -> None:
        """Remove the values of stored keys, which may have none."""
        self.database.write(self.spec.name, [], keys=stored.to_pylist())

    def _layout(self) -> ValueLayout:
        return value_layout(pa.schema([pa.field("value", self.spec.value)]))
