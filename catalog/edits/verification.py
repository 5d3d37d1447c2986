"""Proof that a target differs from its source by an edit alone, from the target as it is read again.

Of every state, the rows of the target must be those of the source without those that the edit removes and with those
that it adds. Both states stream by; of a row that differs the bag of rows tells, in whatever place it is. Where the
engine knows which rows may differ (`EditPlan.differing_rows`), only these are read, and where it moves rows as they are
stored, their bytes are compared and no row is decoded (`statestore.catalog.edits.stored_bags`). Whether the rows of the
edit lie where the engine searches them is checked by look-ups (`statestore.catalog.edits.key_checks`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.edits.key_checks import check_keys
from statestore.catalog.edits.row_sums import RowSums, differing_row, no_rows, row_hashes, sums_of
from statestore.catalog.edits.shown_rows import shown_row
from statestore.catalog.edits.stored_bags import same_as_stored
from statestore.catalog.edits.target_errors import of_target, wrong_plan
from statestore.catalog.edits.task_sums import SummedState, sums_in_tasks
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.formats.edits import EditPlan, StateEdit
from statestore.formats.engine import Source, StateAt
from statestore.formats.errors import NotFoundError, StateStoreError, UnsupportedError
from statestore.formats.kernels.arrays import Bools, Hashes
from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.state_table import RowPair
from statestore.formats.values.without_pandas import arrow_numbers

Progress = Callable[[int], None]
_Known = Mapping[tuple[str, int], RowSums | StateStoreError]
"""Bags of rows of states, or why they cannot be read, by the name of the state and 0 for the source or 1."""


@dataclass(frozen=True)
class Compared:
    """A state of the source and of the target, in the columns that are part of its rows."""

    state: str
    names: tuple[str, ...]
    before: StateAt
    after: StateAt


def verify_target(
    plan: EditPlan,
    source: Source,
    folder: str,
    edits: Sequence[StateEdit],
    path: str,
    progress: Progress,
    runs: TaskRuns | None = None,
) -> list[str]:
    """Raise StateStoreError EDIT_DIFFERS, which names a row that differs, unless the target is in ``folder``.

    ``edits`` are all that become of rows, `EditPlan.followed` included. ``path`` is that of the target in messages,
    ``progress`` is called with the number of rows that were read. With ``runs`` states that are read in whole are read
    in tasks. Raises the source's errors for damage of its files.

    Returns, as sentences, which states were not compared: those that no edit touches and of which the source's rows
    cannot be decoded. Only the engine's own copy of their bytes vouches for them.
    """
    dropped = set(plan.dropped)
    listed = [state for state in source.states() if state not in dropped]
    with of_target(path):
        target = plan.opened(folder)
        assert isinstance(target, Source)
        found = set(target.states())
    if found != set(listed):
        without = f" without {_listed(dropped)}" if dropped else ""
        raise wrong_plan(path, f"it has the states {_listed(found)}, its source{without} has {_listed(listed)}")
    edited = {edit.state for edit in edits}
    rows, undecoded = 0, []

    def counted(found: int) -> None:
        nonlocal rows
        rows = found
        progress(rows)

    stored = same_as_stored(plan, source, target, path, counted, runs)
    same = stored.states - edited
    states = list(dict.fromkeys([*listed, *(edit.state for edit in edits)]))
    differing = [state for state in states if state not in same]
    known = {} if runs is None else _sums_of_all(plan, (source, target), differing, path, runs)
    for state in states:
        mine = [edit for edit in edits if edit.state == state]
        try:
            compared = _compared(plan, source, target, state, path)
            if compared is None or state in same:
                continue
            rows = _check_rows(plan, compared, (source, target), mine, path, rows, progress, known)
        except UnsupportedError as error:
            if mine:
                raise
            if state in same:
                continue
            untouched = f"the rows of {state}, which no edit touches, were not compared"
            undecoded.append(f"{untouched}, for they cannot be decoded ({error.code})")
            continue
        info = source.info(state)
        for edit in _by_unit(mine, compared.names):
            with of_target(path):
                in_order = plan.keeps_order(state)
                check_keys(compared.after, info, compared.names, edit, path, in_order=in_order, runs=runs)
    if stored.lost is not None:
        raise wrong_plan(path, stored.lost)
    return undecoded


def columns_of(source: Source, state: str, version: int) -> pa.Schema:
    """Return the columns that are part of a state's rows."""
    placement = source.info(state).placement
    return pa.schema([field for field in source.at(state, version).schema if field.name not in placement])


def _by_unit(edits: Sequence[StateEdit], names: Sequence[str]) -> list[StateEdit]:
    """Return the edits of a state, those with one unit as one edit, without the rows that one adds and another removes.

    What follows from an edit may take rows away from where the edit puts them, such as elements of a list.
    """
    units: dict[tuple[str, ...], list[StateEdit]] = {}
    for edit in edits:
        units.setdefault(edit.unit, []).append(edit)
    return [_as_one(same, names) if len(same) > 1 else same[0] for same in units.values()]


def _as_one(edits: Sequence[StateEdit], names: Sequence[str]) -> StateEdit:
    removed, added = (pa.concat_tables([getattr(edit, side) for edit in edits]) for side in ("removed", "added"))
    gone, come = (_hashes(rows, names) for rows in (removed, added))
    return replace(
        edits[0],
        removed=removed.filter(arrow_numbers(_beyond(gone, come))).combine_chunks(),
        added=added.filter(arrow_numbers(_beyond(come, gone))).combine_chunks(),
    )


def _hashes(rows: pa.Table, names: Sequence[str]) -> Hashes:
    return np.concatenate([np.empty(0, np.uint64), *(row_hashes(batch, names) for batch in rows.to_batches())])


def _beyond(hashes: Hashes, others: Hashes) -> Bools:
    """Return which rows of a bag are more than another bag has of the same."""
    order, theirs = np.argsort(hashes, kind="stable"), np.sort(others)
    first = np.searchsorted(hashes[order], hashes[order])
    before = np.arange(len(hashes)) - first
    there = np.searchsorted(theirs, hashes[order], side="right") - np.searchsorted(theirs, hashes[order])
    kept = np.empty(len(hashes), bool)
    kept[order] = before >= there
    return kept


def _compared(plan: EditPlan, source: Source, target: Source, state: str, path: str) -> Compared | None:
    """Return what is compared; None for a state that neither has at its version."""
    before = _at(source, state, plan.version)
    with of_target(path):
        after = _at(target, state, plan.target_version)
    if before is None and after is None:
        return None
    if before is None or after is None:
        raise wrong_plan(path, f"its version {plan.target_version} {'lacks' if after is None else 'has'} state {state}")
    columns, others = (
        [(field.name, field.type) for field in at.schema if field.name not in source.info(state).placement]
        for at in (before, after)
    )
    names = tuple(name for name, _ in columns)
    if columns != others and (names != tuple(name for name, _ in others) or not _is_empty(after, names, path)):
        raise wrong_plan(path, f"state {state} has the columns {others}, that of its source {columns}")
    return Compared(state, names, before, after)


def _is_empty(at: StateAt, names: Sequence[str], path: str) -> bool:
    """Return whether a state of the target has no rows: the types of some columns are learned from what they hold."""
    with of_target(path):
        return not any(batch.num_rows for part in at.parts(()) for batch in at.rows(part, names[:1], ()))


def _at(source: Source, state: str, version: int) -> StateAt | None:
    try:
        source.check_readable(state, version)
    except NotFoundError:
        return None
    return source.at(state, version)


def _check_rows(
    plan: EditPlan,
    compared: Compared,
    sources: tuple[Source, Source],
    edits: Sequence[StateEdit],
    path: str,
    rows: int,
    progress: Progress,
    known: _Known,
) -> int:
    """Raise where the bags of rows differ by more than the edits; return how many rows were read so far."""
    names = compared.names

    def pairs() -> Iterator[RowPair] | None:
        return plan.differing_rows(compared.state, *sources, names)

    def counted(found: RowSums) -> RowSums:
        nonlocal rows
        rows += found.rows
        progress(rows)
        return found

    chosen = pairs()
    before = after = no_rows()
    if chosen is None:
        for piece in _sums(compared.before, names, known.get((compared.state, 0))):
            before += counted(piece)
        with of_target(path):
            for piece in _sums(compared.after, names, known.get((compared.state, 1))):
                after += counted(piece)
    else:
        for gone, come in chosen:
            before, after = before + counted(sums_of(gone, names)), after + counted(sums_of(come, names))
    removed = [batch for edit in edits for batch in edit.removed.to_batches()]
    added = [batch for edit in edits for batch in edit.added.to_batches()]
    expected = before - sums_of(removed, names) + sums_of(added, names)
    bucket = expected.differing_bucket(after)
    if bucket is None:
        return rows

    def side(number: int) -> Iterator[pa.RecordBatch]:
        if chosen is None:
            yield from _rows(compared.after if number else compared.before, names)
            return
        for pair in pairs() or ():
            yield from pair[number]

    found = differing_row(_chain(side(0), added), _chain(side(1), removed), names, bucket)
    counts = f"; it has {after.rows} rows of {expected.rows} that are expected" if chosen is None else ""
    raise wrong_plan(path, f"its state {compared.state} {_difference(found)}{counts}")


def _difference(found: tuple[pa.RecordBatch, int] | None) -> str:
    if found is None:
        return "is not the source's with the edit"
    row, more = found
    what = "lacks a row that it must have" if more > 0 else "has a row that it must not have"
    times = f" ({abs(more)} times)" if abs(more) > 1 else ""
    return f"{what}{times}: {shown_row(row)}"


def _chain(*batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for each in batches:
        yield from each


def _sums(at: StateAt, names: Sequence[str], known: RowSums | StateStoreError | None) -> Iterator[RowSums]:
    """Yield the bags of rows of the parts, or what is known of them together."""
    if known is None:
        yield from in_order(partial(_sums_of_part, at, names), at.parts(()), reading_threads())
    elif isinstance(known, RowSums):
        yield known
    else:
        raise known


def _sums_of_all(
    plan: EditPlan, sources: tuple[Source, Source], states: Sequence[str], path: str, runs: TaskRuns
) -> _Known:
    """Return the bags of rows of the states that are read in whole, from tasks.

    States that cannot be read are left out, and tell why when they are compared.
    """
    summed: dict[tuple[str, int], SummedState] = {}
    for state in states:
        with contextlib.suppress(UnsupportedError):
            compared = _compared(plan, *sources, state, path)
            if compared is None or plan.differing_rows(state, *sources, compared.names) is not None:
                continue
            sides = [SummedState(at, compared.names) for at in (compared.before, compared.after)]
            summed.update(((state, number), each) for number, each in enumerate(sides))
    return dict(zip(summed, sums_in_tasks(list(summed.values()), runs), strict=True))


def _sums_of_part(at: StateAt, names: Sequence[str], part: Any) -> RowSums:
    return sums_of(at.rows(part, names, ()), names)


def _rows(at: StateAt, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for part in at.parts(()):
        yield from at.rows(part, names, ())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
