"""Proof that a target differs from its source by an edit alone, from the target as it is read again.

Of every state, the rows of the target must be those of the source without those that the edit removes and with those
that it adds. Both states stream by; of a row that differs the bag of rows tells, in whatever place it is. Where the
engine knows which rows may differ (`EditPlan.differing_rows`), only these are read. Whether the rows of the edit lie
where the engine searches them is checked by look-ups (`statestore.catalog.edits.key_checks`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from statestore.catalog.edits.key_checks import check_keys
from statestore.catalog.edits.row_sums import RowSums, differing_row, no_rows, sums_of
from statestore.catalog.edits.shown_rows import shown_row
from statestore.catalog.edits.target_folder import wrong_plan
from statestore.catalog.edits.task_shares import striped
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.formats.edits import EditPlan, StateEdit
from statestore.formats.engine import Source, StateAt
from statestore.formats.errors import NotFoundError, StateStoreError, UnsupportedError
from statestore.formats.places.reading_threads import in_order, limit_reading_threads, reading_threads
from statestore.formats.state_table import RowPair

Progress = Callable[[int], None]


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
    listed = list(source.states())
    with _of_target(path):
        target = plan.opened(folder)
        assert isinstance(target, Source)
        found = set(target.states())
    if found != set(listed):
        raise wrong_plan(path, f"it has the states {_listed(found)}, its source has {_listed(listed)}")
    rows, undecoded = 0, []
    for state in dict.fromkeys([*listed, *(edit.state for edit in edits)]):
        mine = [edit for edit in edits if edit.state == state]
        try:
            compared = _compared(plan, source, target, state, path)
            if compared is None:
                continue
            rows = _check_rows(plan, compared, (source, target), mine, path, rows, progress, runs)
        except UnsupportedError as error:
            if mine:
                raise
            untouched = f"the rows of {state}, which no edit touches, were not compared"
            undecoded.append(f"{untouched}, for they cannot be decoded ({error.code})")
            continue
        info = source.info(state)
        for edit in mine:
            with _of_target(path):
                in_order = plan.keeps_order(state)
                check_keys(compared.after, info, compared.names, edit, path, in_order=in_order, runs=runs)
    return undecoded


def columns_of(source: Source, state: str, version: int) -> pa.Schema:
    """Return the columns that are part of a state's rows."""
    placement = source.info(state).placement
    return pa.schema([field for field in source.at(state, version).schema if field.name not in placement])


def _compared(plan: EditPlan, source: Source, target: Source, state: str, path: str) -> Compared | None:
    """Return what is compared; None for a state that neither has at its version."""
    before = _at(source, state, plan.version)
    with _of_target(path):
        after = _at(target, state, plan.target_version)
    if before is None and after is None:
        return None
    if before is None or after is None:
        raise wrong_plan(path, f"its version {plan.target_version} {'lacks' if after is None else 'has'} state {state}")
    columns, others = (
        [(field.name, field.type) for field in at.schema if field.name not in source.info(state).placement]
        for at in (before, after)
    )
    if columns != others:
        raise wrong_plan(path, f"state {state} has the columns {others}, that of its source {columns}")
    return Compared(state, tuple(name for name, _ in columns), before, after)


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
    runs: TaskRuns | None,
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
        for piece in _sums(compared.before, names, runs):
            before += counted(piece)
        with _of_target(path):
            for piece in _sums(compared.after, names, runs, path):
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


def _sums(at: StateAt, names: Sequence[str], runs: TaskRuns | None, target: str | None = None) -> Iterator[RowSums]:
    """Yield the bags of rows of the parts. ``target``: its path, where the state is that of the target."""
    parts = at.parts(())
    if runs is None or len(parts) == 1:
        return in_order(partial(_sums_of_part, at, names), parts, reading_threads())
    shares = striped(parts, runs)
    return map(RowSums.of_text, runs.run(partial(_sums_in_task, at, names, shares, target), len(shares)))


def _sums_in_task(
    at: StateAt, names: Sequence[str], shares: Sequence[Sequence[Any]], target: str | None, number: int
) -> str:
    limit_reading_threads(1)
    total = no_rows()
    with contextlib.nullcontext() if target is None else _of_target(target):
        for part in shares[number]:
            total += _sums_of_part(at, names, part)
    return total.as_text()


def _sums_of_part(at: StateAt, names: Sequence[str], part: Any) -> RowSums:
    return sums_of(at.rows(part, names, ()), names)


def _rows(at: StateAt, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for part in at.parts(()):
        yield from at.rows(part, names, ())


@contextlib.contextmanager
def _of_target(path: str) -> Iterator[None]:
    """Raise EDIT_DIFFERS for a target that cannot be read again."""
    try:
        yield
    except (StateStoreError, OSError, ValueError, KeyError) as error:
        raise wrong_plan(path, f"it cannot be read again ({error})") from error


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
