"""The states of tracked keys on a keyed backend: read, put and removed by columns; idle keys are found by time.

The backend has three states: ``state``, and with a timeout also ``updated``, the time of a key's last record, and
``idle``, an index of the keys by that time. The cost of a batch depends on its keys and on those that time out, not on
the number of all keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.rows.state_table_rows import Ints
from statestore.catalog.keyed.timers import Due
from statestore.formats.values.key_groups import key_groups
from statestore.formats.values.types import TIME

Bools = npt.NDArray[np.bool_]
STATE, UPDATED, IDLE = "state", "updated", "idle"


@dataclass(frozen=True)
class Keys:
    """Distinct keys: their columns, key groups, and stored keys."""

    columns: list[pa.Array]
    groups: Ints
    stored: pa.Array

    def __len__(self) -> int:
        return len(self.stored)

    def only(self, chosen_keys: Bools) -> Keys:
        """The keys where ``chosen_keys`` is true."""
        chosen = pa.array(chosen_keys)
        return Keys([c.filter(chosen) for c in self.columns], self.groups[chosen_keys], self.stored.filter(chosen))

    def among(self, others: Keys) -> Bools:
        """A mask of the keys that are among the others."""
        flags: Bools = pc.is_in(self.stored, value_set=others.stored).to_numpy(zero_copy_only=False)
        return flags

    def with_others(self, others: Keys) -> Keys:
        """Return these keys, followed by the others."""
        columns = [pa.concat_arrays(pair) for pair in zip(self.columns, others.columns, strict=True)]
        groups = np.concatenate((self.groups, others.groups))
        return Keys(columns, groups, pa.concat_arrays([self.stored, others.stored]))


class TrackedStates:
    """The states of all keys in a backend. ``timed``: idle keys are tracked as well."""

    def __init__(self, backend: KeyedBackend, state_type: pa.DataType, key_groups: int, *, timed: bool) -> None:
        timed = timed or UPDATED in backend.states()  # a timeout that is set again later must not find old times
        self._groups = key_groups
        self._values = backend.value_columns(STATE, state_type)
        self._updated = backend.value_columns(UPDATED, TIME) if timed else None
        self._idle = backend.timer_state(IDLE) if timed else None

    def distinct(self, columns: Sequence[pa.Array]) -> tuple[Keys, Ints]:
        """The distinct keys in order of appearance, and for each row the index of its key."""
        groups = key_groups(columns, self._groups)
        coded = self._values.stored_keys(groups, columns).dictionary_encode()
        codes = coded.indices.to_numpy().astype(np.int64)
        first = np.full(len(coded.dictionary), len(codes), np.int64)
        np.minimum.at(first, codes, np.arange(len(codes)))
        keys = Keys([column.take(pa.array(first)) for column in columns], groups[first], coded.dictionary)
        return keys, codes

    def get(self, keys: Keys) -> pa.Array:
        """The state of each key, null if there is none."""
        return self._values.get(keys.stored)

    def put(self, keys: Keys, states: pa.Array, time: int) -> None:
        """Put the states of keys that had a record at ``time``, in epoch microseconds."""
        self._values.put(keys.stored, states)
        self._touch(keys, time)

    def touch(self, keys: Keys, time: int) -> None:
        """Record the time of keys that had a record and keep their states."""
        self._touch(keys, time)

    def remove(self, keys: Keys) -> None:
        """Remove the states of keys, whether they have states or not."""
        self._values.remove(keys.stored)
        if self._updated is not None:
            self._forget(keys)
            self._updated.remove(keys.stored)

    def idle(self, before: int) -> Keys:
        """Keys whose last record came before ``before``, in epoch microseconds."""
        assert self._idle is not None
        due: Due = self._idle.due(before)
        return Keys(due.keys, due.groups, self._values.stored_keys(due.groups, due.keys))

    def _touch(self, keys: Keys, time: int) -> None:
        if self._updated is None or self._idle is None or not len(keys):
            return
        self._forget(keys)
        times = np.full(len(keys), time, np.int64)
        self._updated.put(keys.stored, pa.array(times, TIME))
        self._idle.set(keys.groups, times, keys.columns)

    def _forget(self, keys: Keys) -> None:
        """Remove the timers of keys, which are at the times in ``updated``."""
        assert self._updated is not None and self._idle is not None
        before = self._updated.get(keys.stored)
        has_state = before.is_valid().to_numpy(zero_copy_only=False)
        if has_state.any():
            old = keys.only(has_state)
            self._idle.remove_at(old.groups, before.drop_null().cast(pa.int64()).to_numpy(), old.columns)
