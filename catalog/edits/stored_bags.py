"""States of a target that have the rows of the source byte by byte, as bags of stored rows tell.

It is the proof for rows that are only moved, and costs neither their decoding nor, where the plan has taken the bags of
the source as it read them, another read of the source. What differs is left to the comparison of decoded rows, which
names a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from statestore.catalog.edits.target_errors import of_target
from statestore.catalog.edits.task_shares import striped
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.formats.bytes.row_bags import NO_ROWS, RowBag, bags_of_text, text_of_bags
from statestore.formats.edits import EditPlan, StoredSide
from statestore.formats.engine import Source
from statestore.formats.places.reading_threads import in_order, limit_reading_threads, reading_threads

Bags = Mapping[str, RowBag]


@dataclass(frozen=True)
class SameAsStored:
    """The ``states`` that both sides have with the same stored rows, and what is ``lost``: the reason why there is no
    target, also where no column of a state shows the difference."""

    states: frozenset[str]
    lost: str | None


def same_as_stored(
    plan: EditPlan,
    source: Source,
    target: Source,
    path: str,
    progress: Callable[[int], None],
    runs: TaskRuns | None,
) -> SameAsStored:
    """Compare what both sides of a plan have stored.

    ``progress`` is called with the number of rows that were read. Raises StateStoreError EDIT_DIFFERS for a target at
    ``path`` that cannot be read again; the source's errors.
    """
    with of_target(path):
        sides = plan.stored_sides(source, target)
    if sides is None:
        return SameAsStored(frozenset(), None)
    rows = 0

    def counted(bags: Iterator[Bags]) -> dict[str, RowBag]:
        nonlocal rows
        found: dict[str, RowBag] = {}
        for piece in bags:
            for name, bag in piece.items():
                found[name] = found.get(name, NO_ROWS) + bag
                rows += bag.rows
            progress(rows)
        return found

    before = counted(_bags(sides[0], runs))
    with of_target(path):
        after = counted(_bags(sides[1], runs))
    names = before.keys() | after.keys()
    equal = frozenset(name for name in names if before.get(name, NO_ROWS) == after.get(name, NO_ROWS))
    lost = next(iter(sorted(names - equal)), None)
    if lost is None:
        return SameAsStored(equal, None)
    there, expected = (bags.get(lost, NO_ROWS).rows for bags in (after, before))
    return SameAsStored(
        equal, f"its {lost} is not stored as that of the source; it has {there} rows, the source {expected}"
    )


def _bags(side: StoredSide, runs: TaskRuns | None) -> Iterator[Bags]:
    parts = side.parts()
    if runs is None:
        yield from in_order(side.bags, parts, reading_threads())
        return
    shares = striped(parts, runs)
    for answer in runs.run(partial(_bags_of_share, side, shares), len(shares)) if shares else ():
        yield from bags_of_text(answer)


def _bags_of_share(side: StoredSide, shares: Sequence[Sequence[Any]], share: int) -> str:
    limit_reading_threads(1)  # a task has one core; others run beside it
    return text_of_bags([side.bags(part) for part in shares[share]])
