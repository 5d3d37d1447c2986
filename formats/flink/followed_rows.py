"""Rows of keyed state that change along with those that an edit names: timers, parts of windows, positions of lists.

A timer of a key that has no rows any more would call the job for a key that it does not know. The contents of a window,
its timers, what its trigger keeps and its entry among merged windows belong together
(`statestore.formats.flink.window_rows`). The elements of a list have positions without holes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from statestore.formats.edits import StateEdit
from statestore.formats.engine import StateAt, StateInfo
from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.flink.edits.key_search import KeySearch, columns_of, distinct, in_schema, search_of
from statestore.formats.flink.edits.list_positions import Change, changed_lists, positions_along
from statestore.formats.flink.edits.state_changes import has_positions
from statestore.formats.flink.state_at import KeyedAt
from statestore.formats.flink.stored_parts import MOST_KEYS
from statestore.formats.flink.streams.state_form import KEY, NAMESPACE, POSITION
from statestore.formats.flink.streams.stored_states import StoredTimers
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.values.filters import Filter


class KeyedSource(Protocol):
    """A source of Flink, as far as rows that follow along need it."""

    def states(self) -> Sequence[str]: ...

    def info(self, state: str) -> StateInfo: ...

    def at(self, state: str, version: int) -> StateAt: ...


@dataclass(frozen=True, eq=False)
class OperatorStates:
    """The keyed states of an operator by their names, with the rows that an edit names, and those that follow.

    ``unreadable``: some state of the operator has other keys than the rest, or cannot be read.
    """

    source: KeyedSource
    states: Mapping[str, KeyedAt]
    edits: Mapping[str, StateEdit]
    unreadable: bool
    more: dict[str, Change] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def named(self, name: str) -> str | None:
        """The state with a stored name."""
        return next((state for state, at in self.states.items() if at.form.name == name), None)

    def names(self, state: str) -> list[str]:
        """The columns of a state's rows."""
        placement = self.source.info(state).placement
        return [name for name in self.states[state].schema.names if name not in placement]

    def changes(self, state: str) -> Iterator[Change]:
        """Yield the rows that go from a state, and those that come to it, so far."""
        if state in self.edits:
            yield self.edits[state].removed, self.edits[state].added
        if state in self.more:
            yield self.more[state]

    def removed(self, state: str) -> pa.Table:
        """The rows that go from a state so far."""
        return pa.concat_tables([self._empty(state), *(self._own(state, gone) for gone, _ in self.changes(state))])

    def added(self, state: str) -> pa.Table:
        """The rows that come to a state so far."""
        return pa.concat_tables([self._empty(state), *(self._own(state, come) for _, come in self.changes(state))])

    def _empty(self, state: str) -> pa.Table:
        at = self.states[state]
        return pa.schema([at.schema.field(name) for name in self.names(state)]).empty_table()

    def _own(self, state: str, rows: pa.Table) -> pa.Table:
        return in_schema(rows, self._empty(state).schema)

    def stored(self, state: str, names: Sequence[str], keys: KeySearch | None, columns: Sequence[str] = ()) -> pa.Table:
        """The rows of a state in the source, in all columns or some: those with keys in the columns ``names``."""
        at, wanted = self.states[state], list(columns or self.names(state))
        schema = pa.schema([at.schema.field(name) for name in wanted])
        filters = [] if keys is None else _filters(at, names, keys)
        found = []
        for part in at.parts(filters):
            for batch in at.rows(part, {*wanted, *names}, filters):
                rows = pa.Table.from_batches([batch])
                if keys is not None:
                    rows = rows.filter(pa.array(keys.found(columns_of(rows, names)) >= 0))
                found.append(rows.select(wanted))
        return pa.concat_tables([schema.empty_table(), *found])

    def remaining(self, state: str, names: Sequence[str], keys: KeySearch) -> Ints:
        """The number of rows of each key, in the columns ``names``, that a state has after all changes so far."""
        stored = self.stored(state, names, keys, names)
        return (
            _counts(keys, stored, names)
            - _counts(keys, self.removed(state), names)
            + _counts(keys, self.added(state), names)
        )

    def let_go(self, state: str, rows: pa.Table) -> int:
        """Let rows of the source go along, but those that go already, or are named by the edit as ones that come."""
        key = self.source.info(state).row_key
        known = pa.concat_tables([self.removed(state), self.added(state)])
        fresh = (
            rows
            if not known.num_rows
            else rows.filter(pa.array(search_of(known, key).found(columns_of(rows, key)) < 0))
        )
        self._follow(state, fresh, fresh.slice(0, 0))
        return int(fresh.num_rows)

    def let_come(self, state: str, rows: pa.Table) -> None:
        """Let rows come along."""
        self._follow(state, rows.slice(0, 0), rows)

    def _follow(self, state: str, gone: pa.Table, come: pa.Table) -> None:
        if not gone.num_rows and not come.num_rows:
            return
        old, new = self.more.get(state, (self._empty(state), self._empty(state)))
        self.more[state] = (
            pa.concat_tables([old, self._own(state, gone)]),
            pa.concat_tables([new, self._own(state, come)]),
        )

    def merged(self) -> dict[str, StateEdit]:
        """The edits of all states with what follows, but for positions, which follow from the order of elements."""
        found = dict(self.edits)
        for state in self.more:
            found[state] = StateEdit(state, self._unit(state), self.removed(state), self.added(state))
        return found

    def followed(self) -> list[StateEdit]:
        """All that follows from the edits, positions included."""
        found = []
        for state in sorted({*self.edits, *self.more}):
            at = self.states[state]
            gone, come = self.more.get(state, (self._empty(state), self._empty(state)))
            if has_positions(at.form) and not at.form.packed:
                gone, come = self._positions(state, (gone, come))
            if gone.num_rows or come.num_rows:
                found.append(StateEdit(state, self._unit(state), gone, come))
        return found

    def _unit(self, state: str) -> tuple[str, ...]:
        info = self.source.info(state)
        return info.row_key or info.key

    def _positions(self, state: str, more: Change) -> Change:
        names = [name for name in self.states[state].form.row_key if name != POSITION]
        lists = changed_lists(self.removed(state), self.added(state), names)
        if not lists.num_rows:
            return more
        stored = self.stored(state, names, search_of(lists, names))
        edit = self.edits.get(state)
        own = (self._empty(state), self._empty(state))
        if edit is not None:
            own = (self._own(state, edit.removed), self._own(state, edit.added))
            lists_of = search_of(lists, names)
            own = (_of(lists_of, own[0], names), _of(lists_of, own[1], names))
        return positions_along(stored, own, more, names)


def _of(keys: KeySearch, rows: pa.Table, names: Sequence[str]) -> pa.Table:
    return rows.filter(pa.array(keys.found(columns_of(rows, names)) >= 0))


def _counts(keys: KeySearch, rows: pa.Table, names: Sequence[str]) -> Ints:
    if not rows.num_rows:
        return np.zeros(len(keys), np.int64)
    found = keys.found(columns_of(rows, names))
    return np.bincount(found[found >= 0], minlength=len(keys))


def _filters(at: KeyedAt, names: Sequence[str], keys: KeySearch) -> list[Filter]:
    """Filters by which few keys are looked up; none where all rows are to be read."""
    if names[0] != KEY or at.form.undivided:
        return []
    kind = at.schema.field(KEY).type
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind)) or keys.columns[0].type != kind:
        return []
    column = keys.columns[0].unique()
    if column.null_count or len(column) > MOST_KEYS:
        return []
    return [Filter(KEY, "in", tuple(column.to_pylist()))]


def operator_states(source: KeyedSource, version: int, operator: str, edits: Mapping[str, StateEdit]) -> OperatorStates:
    """The keyed states of an operator, by its id, with the edits of them."""
    found: dict[str, KeyedAt] = {}
    for state in source.states():
        try:
            at = source.at(state, version)
        except StateStoreError:
            continue
        if isinstance(at, KeyedAt) and at.operator.id == operator:
            found[state] = at
    kinds = {at.schema.field(KEY).type for at in found.values()}
    unreadable = len(kinds) > 1 or any(at.form.undivided for at in found.values())
    return OperatorStates(source, found, edits, unreadable)


def is_timers(at: KeyedAt) -> bool:
    """Return whether a state has timers."""
    return at.form.kind == "timers"


def is_raw(at: KeyedAt) -> bool:
    """Return whether timers lie in raw keyed state, as those of a heap timer service beside RocksDB do."""
    return any(isinstance(stored, StoredTimers) for stored, _ in at.stored)


def follow_erased_keys(states: OperatorStates) -> None:
    """Let the timers go of keys that have no rows left in the states of their operator."""
    timers = [state for state, at in states.states.items() if is_timers(at)]
    others = [state for state in states.states if state not in timers]
    cells = _fewer(states, others)
    if not timers or not cells.num_rows:
        return
    if states.unreadable:
        states.notes.append(_untold(timers))
        return
    keys = search_of(cells, [KEY])
    timers = [state for state in timers if states.stored(state, [KEY], keys, [KEY]).num_rows]
    if not timers:
        return
    left, emptied = np.zeros(len(keys), bool), np.zeros(len(keys), bool)
    try:
        for state in others:
            remaining = states.remaining(state, [KEY], keys) > 0
            left |= remaining
            emptied |= (_counts(keys, states.removed(state), [KEY]) > 0) & ~remaining
    except UnsupportedError:
        states.notes.append(_untold(timers))
        return
    for state in timers:
        _follow_in(states, state, cells, ~left)
        _tell_of(states, state, cells, left & emptied)


def _untold(timers: Sequence[str]) -> str:
    return (
        f"timers stay ({_listed(timers)}), also those of keys that are erased, for the keys of some state cannot be "
        "told: delete them in the same edit where the job must not be called for such a key"
    )


def _fewer(states: OperatorStates, others: Sequence[str]) -> pa.Table:
    """The keys of which more rows go from some state than come to it."""
    found = []
    for state in others:
        gone, come = states.removed(state).select([KEY]), states.added(state).select([KEY])
        if gone.num_rows:
            keys, number, first = distinct(columns_of(gone, [KEY]))
            fewer = _counts(keys, come, [KEY]) < np.bincount(number, minlength=len(keys))
            found.append(gone.take(pa.array(first[fewer])))
    every = pa.concat_tables(found) if found else pa.table({KEY: pa.nulls(0)})
    return every.take(pa.array(distinct(columns_of(every, [KEY]))[2])) if every.num_rows else every


def _follow_in(states: OperatorStates, state: str, cells: pa.Table, chosen: Bools) -> None:
    """Let the timers of some keys go, or say how many stay."""
    if not chosen.any():
        return
    rows = states.stored(state, [KEY], search_of(cells.filter(pa.array(chosen)), [KEY]))
    if not rows.num_rows:
        return
    gone = states.let_go(state, rows)
    if gone:
        states.notes.append(f"{gone} timers of keys that are erased go along, in {state}")


def _tell_of(states: OperatorStates, state: str, cells: pa.Table, chosen: Bools) -> None:
    """Say how many timers stay of keys that have lost all rows of one state, and have others."""
    if not chosen.any():
        return
    rows = states.stored(state, [KEY], search_of(cells.filter(pa.array(chosen)), [KEY]))
    key = states.source.info(state).row_key
    gone = states.removed(state)
    if gone.num_rows and rows.num_rows:
        rows = rows.filter(pa.array(search_of(gone, key).found(columns_of(rows, key)) < 0))
    if rows.num_rows:
        states.notes.append(
            f"{rows.num_rows} timers stay in {state} of keys that lose their rows in one state and have some in "
            "others: delete them in the same edit where the job must not be called for such a key"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def namespace_names(at: KeyedAt) -> list[str]:
    """The columns of a state that tell its keys and namespaces apart."""
    return [KEY, *([NAMESPACE] if at.form.has_namespace else [])]
