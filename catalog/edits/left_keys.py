"""Notes of an edit about keys that it removes from one state, and of which another state keeps rows.

A person who is to be erased may be in several states of a job. So the keys of which an edit leaves no row in a state
are looked up in the others whose keys have the same types, as they are after the edit. The notes are kept in the
receipt: they say how many keys, and never which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.edits.key_checks import distinct_cells
from statestore.catalog.edits.row_sums import row_hashes, table_hashes
from statestore.formats.edits import EditPlan, StateEdit
from statestore.formats.engine import Source, StateInfo
from statestore.formats.errors import NotFoundError, StateStoreError
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.values.equal_hashes import distinct
from statestore.formats.values.filters import Filter
from statestore.formats.values.python_times import python_values
from statestore.formats.values.without_pandas import arrow_numbers

MOST_KEYS = 100
"""Keys that are searched in other states."""
_UNSEARCHED = "states {} were not searched for the keys that are removed here"


@dataclass(frozen=True)
class _Keyed:
    """A state with the columns ``by`` of its keys, and the edits of its rows."""

    name: str
    by: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    edits: tuple[StateEdit, ...]

    @property
    def shape(self) -> tuple[str, ...]:
        """The types of the key, without the names of fields."""
        return tuple(map(_shape, self.types))

    def gone(self) -> Hashes:
        """Return the keys of rows that are removed, and of none that comes."""
        return np.setdiff1d(self.hashes("removed"), self.hashes("added"))

    def hashes(self, side: str) -> Hashes:
        """Return the hash of the key of each row on one side of the edits."""
        found = [table_hashes(getattr(each, side), self.by) for each in self.edits]
        return np.concatenate([np.empty(0, np.uint64), *found])

    def removes_keys(self) -> bool:
        """Return whether each removed unit is all that its key has."""
        return all(set(each.unit) <= set(self.by) for each in self.edits)


def left_keys(source: Source, plan: EditPlan, edits: Sequence[StateEdit]) -> list[str]:
    """Return a note for each state of the source that keeps rows of keys which ``edits`` remove from another state.

    ``edits`` are those that were asked for and those that follow from them.
    """
    if not any(each.removed.num_rows for each in edits):
        return []
    states, unread = _states(source, plan, edits)
    notes: list[str] = []
    longer: list[str] = []
    is_any_gone = False
    for shape in dict.fromkeys(each.shape for each in states if each.edits):
        alike = [each for each in states if each.shape == shape]
        gone = {each.name: found for each in alike if each.edits and len(found := each.gone())}
        begun = [each.name for each in states if len(each.shape) > len(shape) and each.shape[: len(shape)] == shape]
        if gone and (len(alike) > 1 or begun or unread):
            told, is_gone = _notes_of(source, plan.version, alike, gone, unread)
            notes += told
            longer += begun if is_gone else []
            is_any_gone |= is_gone
    if longer:
        notes.append(f"{_UNSEARCHED.format('whose keys have more columns')}: {', '.join(dict.fromkeys(longer))}")
    if is_any_gone and unread:
        names = ", ".join(f"{name} ({code})" for name, code in unread.items())
        notes.append(f"{_UNSEARCHED.format('that cannot be read')}: {names}")
    return notes


def _states(source: Source, plan: EditPlan, edits: Iterable[StateEdit]) -> tuple[list[_Keyed], dict[str, str]]:
    """Return the states with keys that the target has, and the error codes of those that cannot be read."""
    mine: dict[str, list[StateEdit]] = {}
    for each in edits:
        mine.setdefault(each.state, []).append(each)
    states, unread = [], {}
    for name in source.states():
        if name in plan.dropped:
            continue
        try:
            info = source.info(name)
            by = _key_columns(info)
            if by:
                types = tuple(info.columns.field(each).type for each in by)
                states.append(_Keyed(name, by, types, tuple(mine.get(name, ()))))
            elif not info.key:
                source.at(name, plan.version)
        except NotFoundError:  # the version has no such state
            continue
        except StateStoreError as error:
            unread[name] = str(error.code)
    return states, unread


def _key_columns(info: StateInfo) -> tuple[str, ...]:
    """Return the fewest columns by which keys are looked up; () for none, as in lists whose rows have numbers alone."""
    by = info.lookups[0] if info.lookups else info.key
    return () if "position" in by or set(by) & set(info.placement) else by


def _shape(kind: pa.DataType) -> str:
    return f"({', '.join(_shape(each.type) for each in kind)})" if pa.types.is_struct(kind) else str(kind)


def _notes_of(
    source: Source, version: int, states: Sequence[_Keyed], gone: dict[str, Hashes], unread: dict[str, str]
) -> tuple[list[str], bool]:
    """Return the notes about states whose keys have the same types, and whether a key is gone from one of them.

    States that turn out not to be readable are added to ``unread``.
    """
    wanted = distinct(np.concatenate(list(gone.values())))
    whole = {each.name for each in states if each.removes_keys() and len(gone.get(each.name, ())) == len(wanted)}
    others = [each for each in states if each.name not in whole]
    if len(wanted) > MOST_KEYS:
        names = ", ".join(each.name for each in others if each.name not in gone or len(gone) > 1)
        told = f"rows of more than {MOST_KEYS} keys are removed here, and these states, whose keys have the same type, "
        return ([f"{told}were not searched for them: {names}"] if names else []), True
    keys = _keys([each for each in states if each.name in gone], wanted)
    left: dict[str, Hashes] = {}
    for each in others:
        try:
            left[each.name] = _left(source, version, each, keys, wanted)
        except NotFoundError:  # the version has no such state
            continue
        except StateStoreError as error:
            unread[each.name] = str(error.code)
    none = np.empty(0, np.uint64)
    erased = np.concatenate([np.setdiff1d(found, left.get(name, none)) for name, found in gone.items()])
    counts = {name: len(np.intersect1d(found, erased)) for name, found in left.items()}
    return [
        f"state {name} has rows of {count} of the keys that are removed here, and keeps them; delete them there, too, "
        "if they are to be erased"
        for name, count in counts.items()
        if count
    ], len(erased) > 0


def _keys(states: Iterable[_Keyed], wanted: Hashes) -> list[pa.Array]:
    """Return the columns of the wanted keys, each once in a batch of removed rows."""
    columns: list[list[pa.Array]] = []
    for state in states:
        for edit in state.edits:
            for batch in edit.removed.select(list(state.by)).to_batches():
                if batch.num_rows:
                    hashes, firsts = np.unique(row_hashes(batch, state.by), return_index=True)
                    chosen = batch.take(arrow_numbers(firsts[np.isin(hashes, wanted)]))
                    columns.append(chosen.columns)
    kinds = [column.type for column in columns[0]]
    return [pa.concat_arrays([_as(each[n], kind) for each in columns]) for n, kind in enumerate(kinds)]


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column with the names of fields in a type of the same shape."""
    if not pa.types.is_struct(kind):
        return column
    members = [_as(member, field.type) for member, field in zip(column.flatten(), kind, strict=True)]
    fields = [pa.field(field.name, member.type) for member, field in zip(members, kind, strict=True)]
    return pa.StructArray.from_arrays(members, fields=fields, mask=column.is_null())


def _left(source: Source, version: int, state: _Keyed, keys: Sequence[pa.Array], wanted: Hashes) -> Hashes:
    """Return those of the keys of which a state has rows after its edits. Raises what reads of it raise."""
    source.check_readable(state.name, version)
    at, by = source.at(state.name, version), state.by
    cells = [python_values(_as(column.drop_null(), kind)) for column, kind in zip(keys, state.types, strict=True)]
    filters = [Filter(name, "in", distinct_cells(each)) for name, each in zip(by, cells, strict=True)]

    def of_part(part: Any) -> Hashes:
        found = [row_hashes(batch, by) for batch in at.rows(part, by, filters) if batch.num_rows]
        return _among(np.concatenate([np.empty(0, np.uint64), *found]), wanted)

    there = np.concatenate([np.empty(0, np.uint64), *in_order(of_part, at.parts(filters), reading_threads())])
    there = np.concatenate([there, _among(state.hashes("added"), wanted)])
    before, removed = (_counts(each, wanted) for each in (there, _among(state.hashes("removed"), wanted)))
    return wanted[before > removed]


def _among(hashes: Hashes, wanted: Hashes) -> Hashes:
    return hashes[np.isin(hashes, wanted)]


def _counts(hashes: Hashes, wanted: Hashes) -> Ints:
    """Return how often each of the keys, which are in order, is among others."""
    return np.bincount(np.searchsorted(wanted, hashes), minlength=len(wanted))
