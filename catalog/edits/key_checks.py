"""Look-ups of the rows of an edit in its target, which find them only where the engine searches them.

A row in a wrong partition, or with a key of other bytes, is read by a scan and never found by the engine. So the units
of an edit are looked up by their keys: each has its rows, in their order where that is one of a list, and none where it
was removed; and a look-up that is confined to where a row was found (`StateInfo.placement`) still has a part to read.
Of edits of very many keys a part of the keys is looked up, and all rows of the edit are checked by the engine's rule
(`StateAt.placement`).
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.edits.row_sums import row_hashes
from statestore.catalog.edits.shown_rows import shown_row
from statestore.catalog.edits.target_errors import wrong_plan
from statestore.catalog.edits.task_shares import striped
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.formats.edits import StateEdit
from statestore.formats.engine import StateAt, StateInfo
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.values.equal_hashes import distinct
from statestore.formats.values.filters import Filter
from statestore.formats.values.without_pandas import arrow_numbers

MOST_KEYS = 2000
"""Keys that are looked up."""
KEYS_AT_ONCE = 2000
_HASHED_AT_ONCE = 1 << 17

Cells = tuple[Any, ...]


@dataclass(frozen=True)
class _Unit:
    """A unit of an edit: a batch of one row that shows it, and the hashes of the rows that it must have, in order."""

    row: pa.RecordBatch
    expected: tuple[int, ...]


@dataclass(frozen=True)
class _Check:
    """The look-ups of one edit. ``names`` are the columns of rows, ``by`` those by which they are looked up."""

    at: StateAt
    info: StateInfo
    edit: StateEdit
    names: tuple[str, ...]
    by: tuple[str, ...]
    path: str

    def wrong(self, what: str, row: pa.RecordBatch) -> Exception:
        return wrong_plan(self.path, f"{what.format(state=f'its state {self.edit.state}')}: {shown_row(row)}")


def check_keys(
    at: StateAt,
    info: StateInfo,
    names: Sequence[str],
    edit: StateEdit,
    path: str,
    *,
    in_order: bool,
    runs: TaskRuns | None = None,
) -> None:
    """Raise StateStoreError EDIT_DIFFERS unless look-ups in the target at ``path`` find the units as the edit says.

    ``names`` are the columns of rows, ``in_order``: the rows of a unit have an order. With ``runs`` tasks read what is
    read in whole. States that no key finds are not looked at.
    """
    by = _lookup_columns(info, edit)
    if not by:
        return
    check = _Check(at, info, edit, tuple(names), by, path)
    every = _distinct_units(edit)
    units = _units(edit, names, every[:: -(-len(every) // MOST_KEYS) or 1])
    if len(units) < len(every):
        _check_placement(check, every, runs)
    chosen = _keys(check, units)
    for start in range(0, len(chosen), KEYS_AT_ONCE):
        some = dict(list(chosen.items())[start : start + KEYS_AT_ONCE])
        found = _found(check, some)
        for unit in some:
            _compare(check, units[unit], found.get(unit, []), in_order=in_order)


def _compare(check: _Check, unit: _Unit, found: Sequence[int], *, in_order: bool) -> None:
    if tuple(found) == unit.expected or (not in_order and Counter(found) == Counter(unit.expected)):
        return
    if Counter(found) == Counter(unit.expected):
        raise check.wrong("{state} has the rows of a key in another order", unit.row)
    what = f"finds {len(found)} rows where {len(unit.expected)} are expected, or others than these"
    raise check.wrong(f"a look-up by key in {{state}} {what}", unit.row)


def _lookup_columns(info: StateInfo, edit: StateEdit) -> tuple[str, ...]:
    """Return the fewest columns by which the units of an edit can be looked up; () for none."""
    known = info.lookups or (info.key, info.row_key)
    return next((each for each in known if each and set(each) <= set(edit.unit)), ())


def _distinct_units(edit: StateEdit) -> Hashes:
    """Return the hash of the key of each unit."""
    batches = (*_batches(edit.added), *_batches(edit.removed))
    return distinct(np.concatenate([np.empty(0, np.uint64), *(row_hashes(each, edit.unit) for each in batches)]))


def _batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from rows.to_batches(max_chunksize=_HASHED_AT_ONCE)


def _units(edit: StateEdit, names: Sequence[str], wanted: Hashes) -> dict[int, _Unit]:
    """Return these units by the hashes of their keys."""
    rows: dict[int, list[int]] = {}
    shown: dict[int, pa.RecordBatch] = {}
    for table, is_added in ((edit.added, True), (edit.removed, False)):
        for batch in _batches(table.select(list(names))):
            mine = batch.take(arrow_numbers(_rows_of(batch, edit.unit, wanted)))
            if not mine.num_rows:
                continue
            hashes = row_hashes(mine, names).tolist()
            for number, unit in enumerate(row_hashes(mine, edit.unit).tolist()):
                expected = rows.setdefault(unit, [])
                if is_added:
                    expected.append(hashes[number])
                shown.setdefault(unit, mine.slice(number, 1))
    return {unit: _Unit(shown[unit], tuple(expected)) for unit, expected in rows.items()}


def _keys(check: _Check, units: Mapping[int, _Unit]) -> dict[int, Cells]:
    """Return the keys of units; a key with a null has no look-up."""
    keys = {unit: tuple(each.row.column(name)[0].as_py() for name in check.by) for unit, each in units.items()}
    return {unit: cells for unit, cells in keys.items() if None not in cells}


def _found(check: _Check, keys: Mapping[int, Cells]) -> dict[int, list[int]]:
    """Return the hashes of the rows of each unit that look-ups of their keys find, in order."""
    at, names, places = check.at, check.names, check.info.placement
    columns = zip(*keys.values(), strict=True)
    filters = [Filter(name, "in", distinct_cells(cells)) for name, cells in zip(check.by, columns, strict=True)]
    wanted = np.sort(np.fromiter(keys, np.uint64, len(keys)))
    found: dict[int, list[int]] = {}
    placed: dict[bytes, tuple[Cells, Cells, pa.RecordBatch]] = {}

    def of_part(part: Any) -> list[tuple[int, int, pa.RecordBatch]]:
        batches = at.rows(part, (*names, *places), filters)
        return [each for batch in batches for each in _of_units(batch, check, wanted)]

    for rows in in_order(of_part, at.parts(filters), reading_threads()):
        for unit, hash_, row in rows:
            found.setdefault(unit, []).append(hash_)
            place = tuple(row.column(name)[0].as_py() for name in places)
            placed.setdefault(pickle.dumps((keys[unit], place)), (keys[unit], place, row))
    for cells, place, row in placed.values():
        _check_place(check, cells, place, row)
    return found


def distinct_cells(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return values, which may be nested, each once."""
    return tuple({pickle.dumps(value): value for value in values}.values())


def _check_place(check: _Check, cells: Cells, place: Cells, row: pa.RecordBatch) -> None:
    """Raise for a row that a look-up of its key finds only where it is not confined to other places."""
    exact = not check.info.one_zero
    filters = [Filter(name, "=", cell, exact=exact) for name, cell in zip(check.by, cells, strict=True)]
    filters += [Filter(name, "=", each) for name, each in zip(check.info.placement, place, strict=True)]
    if not check.at.parts(filters):
        where = ", ".join(f"{name} {each}" for name, each in zip(check.info.placement, place, strict=True))
        raise check.wrong(f"{{state}} has a row in {where}, where no look-up searches it", row)


def _of_units(batch: pa.RecordBatch, check: _Check, wanted: Hashes) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yield the unit, the hash and the row of each row of these units."""
    chosen = _rows_of(batch, check.edit.unit, wanted)
    if len(chosen):
        rows = batch.take(arrow_numbers(chosen))
        units, hashes = row_hashes(rows, check.edit.unit).tolist(), row_hashes(rows, check.names).tolist()
        yield from ((units[number], hashes[number], rows.slice(number, 1)) for number in range(len(units)))


def _rows_of(batch: pa.RecordBatch, unit: Sequence[str], wanted: Hashes) -> Ints:
    """Return the rows of these units, whose hashes are in order."""
    if not batch.num_rows or not len(wanted):
        return np.empty(0, np.int64)
    hashes = row_hashes(batch, unit)
    places = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
    return np.flatnonzero(wanted[places] == hashes)


def _check_placement(check: _Check, wanted: Hashes, runs: TaskRuns | None) -> None:
    """Raise where a row of these units lies in another part than the engine's rule says."""
    parts = check.at.parts(())
    if runs is None:
        answers: Iterable[str] = map(partial(_misplaced, check.at, check.edit.unit, wanted, [parts]), [0])
    else:
        shares = striped(parts, runs)
        answers = runs.run(partial(_misplaced, check.at, check.edit.unit, wanted, shares), len(shares))
    for found in answers:
        if found:
            raise wrong_plan(check.path, f"rows of its state {check.edit.state} lie in a wrong place: {found}")


def _misplaced(at: StateAt, unit: Sequence[str], wanted: Hashes, shares: Sequence[Sequence[Any]], number: int) -> str:
    """Return the first finding in a share of the parts; "" for none."""
    found = (_finding(at, part, unit, wanted) for part in shares[number] if _finding(at, part, unit, None))
    return next(filter(None, found), "")


def _finding(at: StateAt, part: Any, unit: Sequence[str], wanted: Hashes | None) -> str:
    """Return the first finding in a part, of these units alone, or of all rows, which takes less time."""
    placement = at.placement(part)
    if placement is None:
        return ""
    for batch in at.rows(part, unit, ()):
        chosen = None if wanted is None else _rows_of(batch, unit, wanted)
        placement.add(batch if chosen is None else batch.take(arrow_numbers(chosen)))
    return next((finding.text for finding in placement.findings()), "")
