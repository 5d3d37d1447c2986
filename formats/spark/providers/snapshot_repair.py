"""Reads past a snapshot that cannot be read: from the snapshot before it, and all changes since then.

Spark does so when it loads state (``spark.sql.streaming.stateStore.autoSnapshotRepair.enabled``, since 4.1): a snapshot
whose upload broke, or a zip without its table files, costs time and no rows, as long as the deltas or changelogs since
an earlier snapshot, or since the empty state, are all there. The user gets a notice. Without these files the error of
the snapshot is raised. Spark replays up to ``MOST_REPLAYED`` files of changes unless it is configured otherwise; here
there is no limit, because the rows are the same.

The damage may show only in the middle of a snapshot. So rows are held back until a snapshot was read to its end, or is
too large for that; if a large one fails later, rows of it are with the reader already, and the error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.notices import notify_repaired
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile
from statestore.formats.spark.checkpoint.load_plan import LoadPlan
from statestore.formats.spark.checkpoint.state_errors import without_advice

MOST_REPLAYED = 50
HELD_BYTES = 8 << 20
_OPTION = "spark.sql.streaming.stateStore.autoSnapshotRepair"
Plan = Callable[[Collection[str]], LoadPlan]
"""Function from the names of snapshots that cannot be read to the plan that does without them."""
T = TypeVar("T")


class _Unreadable(Exception):
    """A snapshot cannot be read; ``found`` is the error."""

    def __init__(self, found: CorruptError | NotFoundError) -> None:
        super().__init__(found)
        self.found = found


class BaseReading:
    """One reading of a base: how many bytes came from it, and whether its end was reached."""

    def __init__(self) -> None:
        self.bytes = 0
        self.is_over = False

    def counted(self, over: Callable[[pa.RecordBatch], T]) -> Callable[[pa.RecordBatch], T]:
        """The function that counts a batch of the base, and applies ``over`` to it."""

        def count(batch: pa.RecordBatch) -> T:
            self.bytes += batch.nbytes
            return over(batch)

        return count

    def rows(self, batches: Iterator[list[T]]) -> Iterator[T]:
        """Yield what came of the base. An error of its file, not of its rows, is one of the snapshot."""
        try:
            for batch in batches:
                yield from batch
        except (CorruptError, NotFoundError) as error:
            if error.code == ErrorCode.SPARK_STATE_ROW:
                raise
            raise _Unreadable(error) from error
        self.is_over = True


def rows_of_whole_base(where: str, plan: Plan, read: Callable[[LoadPlan, BaseReading], Iterator[T]]) -> Iterator[T]:
    """Yield what ``read`` returns for the newest plan whose base can be read; ``where`` is the partition's folder.

    Raises the error of the first base where no other plan is left, or where too much was read of a base.
    """
    spoiled: dict[str, CorruptError | NotFoundError] = {}
    while True:
        chosen, reading = _planned(plan, spoiled), BaseReading()
        held: list[T] = []
        is_given = False
        try:
            for rows in read(chosen, reading):
                if not (is_given or reading.is_over) and reading.bytes <= HELD_BYTES:
                    held.append(rows)
                    continue
                if not is_given:
                    is_given = True
                    _say(where, chosen, spoiled)
                    yield from held
                    held.clear()
                yield rows
        except _Unreadable as error:
            if is_given or chosen.base is None:
                raise error.found from error.found.__cause__
            spoiled[chosen.base.name] = error.found
            continue
        if not is_given:
            _say(where, chosen, spoiled)
            yield from held
        return


def rows_of_given_base(chosen: LoadPlan, read: Callable[[LoadPlan, BaseReading], Iterator[T]]) -> Iterator[T]:
    """Yield what ``read`` returns for a plan that the user has chosen. Raises the error of its base."""
    try:
        yield from read(chosen, BaseReading())
    except _Unreadable as error:
        raise error.found from error.found.__cause__


def with_whole_base(plan: Plan, use: Callable[[DataFile | None], T]) -> T:
    """Return the result of ``use`` for the base of the newest plan whose files are neither damaged nor missing.

    Raises the error of the first base where no other plan is left.
    """
    spoiled: dict[str, CorruptError | NotFoundError] = {}
    while True:
        base = _planned(plan, spoiled).base
        try:
            return use(base)
        except (CorruptError, NotFoundError) as error:
            if base is None:
                raise
            spoiled[base.name] = error


def _planned(plan: Plan, spoiled: dict[str, CorruptError | NotFoundError]) -> LoadPlan:
    try:
        return plan(spoiled.keys())
    except (CorruptError, NotFoundError) as error:
        if not spoiled:
            raise
        first = next(iter(spoiled.values()))
        raise first from error


def _say(where: str, chosen: LoadPlan, spoiled: dict[str, CorruptError | NotFoundError]) -> None:
    if not spoiled:
        return
    base = "the empty state" if chosen.base is None else chosen.base.name
    count = len(chosen.changes)
    limit = f"; Spark replays at most {MOST_REPLAYED} ({_OPTION}.maxChangeFileReplay)" if count > MOST_REPLAYED else ""
    how = f"read from {base} and the {count} files of changes since then, as Spark does ({_OPTION}.enabled){limit}"
    found = "; ".join(map(without_advice, spoiled.values()))
    text = f"{', '.join(spoiled)} cannot be read, so the state was {how}; no row is missing: {found}"
    notify_repaired(where, spoiled.values(), text)
