"""The checkpoint of a Structured Streaming query as a `Source` of states: read only, no Java, no Spark.

A version is a batch. State time is when batches began, by the times in the checkpoint. Columns are those of Spark's own
state source (``state_views``). Neither DuckDB nor Spark accepts several struct fields with one name here, so the
later ones get a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from statestore.formats.engine import FileFinding, Part, Source, StateInfo, StateSize, Version
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError, UnsupportedError
from statestore.formats.jobs import Job
from statestore.formats.places.locations import Location, parse_location
from statestore.formats.spark.checkpoint.checkpoint import DEFAULT_STORE, Checkpoint, Operator
from statestore.formats.spark.checkpoint.checkpoint_files import LOGS, PURGED, data_files
from statestore.formats.spark.checkpoint.crc_files import side_difference
from statestore.formats.spark.checkpoint.given_types import NOTHING_GIVEN, Given
from statestore.formats.spark.checkpoint.opened_checkpoints import open_now
from statestore.formats.spark.checkpoint.query_metadata import Batch, query_job
from statestore.formats.spark.checkpoint.spark_schema import unique_fields
from statestore.formats.spark.checkpoint.state_errors import missing
from statestore.formats.spark.checkpoint.state_views import (
    PARTITION,
    StateView,
    has_one_zero,
    number_within_key,
    row_key,
    state_views,
)
from statestore.formats.spark.read_parts import BatchesPart, batches_parts
from statestore.formats.spark.readable_batches import (
    batches_left,
    explained,
    explained_damage,
    kept_batches,
    read_batches,
    readable_batches,
    what_can_be_read,
    whole_batches,
)
from statestore.formats.spark.state_at import CheckpointAt, Shown, view_of
from statestore.formats.spark.state_size import size_of
from statestore.formats.spark.unrecorded_state import check_begun, check_given, log_findings, reasons_against
from statestore.formats.spark.untouched_partitions import MOST_BATCHES, touched_partitions
from statestore.formats.values.filters import Filter

if TYPE_CHECKING:
    from statestore.formats.edits import EditOptions, EditPlan, StateEdit
    from statestore.formats.engine_reads import EngineReads
    from statestore.formats.state_table import RowPair
    from statestore.formats.written import Written

OPERATOR_STATE = "state_0"


@dataclass(frozen=True)
class Found:
    """Cache of a source's lookups by state and version; its entries never change while the source is used."""

    views: dict[str, StateView] = field(default_factory=dict)
    infos: dict[str, StateInfo] = field(default_factory=dict)
    kept: dict[str, Sequence[int]] = field(default_factory=dict)
    readable: dict[str, Sequence[int]] = field(default_factory=dict)
    at: dict[tuple[str, int], CheckpointAt] = field(default_factory=dict)
    batches: dict[int, Batch] = field(default_factory=dict)
    listed: dict[str, Sequence[Version]] = field(default_factory=dict)


def open_source(location: Location, given: Given = NOTHING_GIVEN) -> CheckpointSource:
    """Open the checkpoint at a location with the states for users.

    These are ``state``, or ``left`` and ``right`` of a join, or the variables and ``timers`` of transformWithState.
    Where there are several operators, the names are numbered, counted from the sink.
    """
    checkpoint = open_now(location, given=given)
    check_given(checkpoint)
    shown = {}
    for operator in checkpoint.operators:
        for each in state_views(checkpoint, operator):
            if each.user:
                name = state_name(checkpoint, operator, each)
                shown[name] = Shown(operator.operator_id, each.name, operator.name or "Spark state")
    return CheckpointSource(location, checkpoint, shown)


def state_name(checkpoint: Checkpoint, operator: Operator, shown: StateView) -> str:
    """The name of a state for users."""
    base = "state" if shown.name == DEFAULT_STORE else shown.name
    return f"{base}_{operator.operator_id}" if len(checkpoint.operators) > 1 else base


@dataclass(frozen=True)
class CheckpointSource(Source):
    """A checkpoint as of the newest batch that was committed when it was opened."""

    location: Location
    checkpoint: Checkpoint
    shown: Mapping[str, Shown]
    found: Found = field(default_factory=lambda: Found(), repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        return CheckpointSource, (self.location, self.checkpoint, self.shown)

    @property
    def path(self) -> str:
        return str(self.location)

    @property
    def place(self) -> Location:
        return self.location

    @property
    def identity(self) -> str:
        return self.checkpoint.query_id

    @property
    def version_words(self) -> tuple[str, str]:
        return "batch", "batches"

    def states(self) -> Sequence[str]:
        return sorted(self.shown)

    @property
    def default(self) -> str | None:
        """The only state, or with several operators that of the one at the sink, as in Spark's own source."""
        if OPERATOR_STATE in self.shown:
            return OPERATOR_STATE
        return next(iter(self.shown)) if len(self.shown) == 1 else None

    def info(self, state: str) -> StateInfo:
        if state not in self.found.infos:
            self.found.infos[state] = self._info(state)
        return self.found.infos[state]

    def _info(self, state: str) -> StateInfo:
        state_view = self.state_view(state)
        columns = unique_fields(state_view.schema)
        return StateInfo(
            state,
            self.shown[state].kind,
            columns,
            ("key",),
            row_key(state_view),
            placement=(PARTITION.name,),
            operator=f"{self.shown[state].kind} [{self.shown[state].operator_id}]",
            one_zero=has_one_zero(self.checkpoint.operator(state_view.operator_id), state_view),
            number=number_within_key(state_view),
        )

    def job_info(self) -> Job:
        return query_job(self.checkpoint.query_id, self.checkpoint.batch)

    def newest(self, state: str) -> int:
        return self.checkpoint.batches[-1]

    def kept(self, state: str) -> Sequence[int]:
        """The newest batches, without a gap, whose state can be read now."""
        if state not in self.found.kept:
            self.found.kept[state] = self._kept(state)
        return self.found.kept[state]

    def check_readable(self, state: str, version: int) -> None:
        """Raise NotFoundError unless all files of the batch are there, whatever became of newer batches."""
        if version == self.newest(state) or version in self._readable(state):
            return
        store = self.state_view(state).store
        for batch in self._batches([version], batches_left) if version in self.checkpoint.batches else ():
            store.at(batch).check_partitions(self.path)
        raise NotFoundError(
            ErrorCode.VERSION_NOT_FOUND, f"{self.path} has no state of batch {version}; {self._statement(state)}"
        )

    def versions(self, state: str, numbers: Sequence[int] | None = None) -> Sequence[Version]:
        """Return these versions, by default all committed batches, with the bytes that each wrote.

        The oldest are left out if the query has purged them in the meantime.
        """
        if numbers is not None:
            return [_version(batch, facts=self._known(batch)) for batch in self._batches(numbers, batches_left)]
        if state not in self.found.listed:
            self.found.listed[state] = self._listed(state)
        return self.found.listed[state]

    def _listed(self, state: str) -> Sequence[Version]:
        store = self.state_view(state).store
        readable = set(whole_batches(self.checkpoint, store))
        written = Counter[int]()
        for number in store.folders:
            for file in data_files(self.checkpoint.folder(store, number)):
                written[file.version] += file.size
        return [
            _version(batch, batch.batch_id in readable, self._facts(batch, written))
            for batch in self._batches(self.checkpoint.batches, batches_left)
        ]

    def no_time(self, state: str, version: int) -> NotFoundError:
        path = self.checkpoint.root.at("offsets", version).path
        return missing(
            path,
            "no time of the batch, which a history and reads by time need; use batch numbers: read "
            "changes() by start_version and end_version, diff(), or the state of a batch",
        )

    def is_origin(self, state: str) -> bool:
        """Return whether the oldest kept batch is batch 0, before which there is no state."""
        return self.kept(state)[0] == 0

    def at(self, state: str, version: int) -> CheckpointAt:
        return self._at(state, version)

    def shared_schema(self, state: str) -> pa.Schema:
        """Columns that fit every kept batch. Raises UnsupportedError CHECKPOINT_READ for states without a history.

        These are whole lists, and states built on a snapshot that the user names.
        """
        shown = self.shown[state]
        if shown.snapshot is not None or not shown.flat:
            raise UnsupportedError(
                ErrorCode.CHECKPOINT_READ,
                f"history and changes of {state} of {self.path} are those of single rows and of all batches that are "
                "kept; leave out flattenCollectionTypes=false and snapshotStartBatchId",
            )
        return self.info(state).columns

    def explain_loss(self, error: StateStoreError, state: str, versions: Sequence[int]) -> StateStoreError:
        """Return the error with the batches that can be read. One of a listing says itself what was purged."""
        if versions:
            return explained(error, self.location, self.state_view(state), versions)
        return self._if_newest_is_gone(error, state)

    def _if_newest_is_gone(self, error: StateStoreError, state: str) -> StateStoreError:
        """Return VERSION_GONE where the query has removed the newest batch as it completed another, else the error."""
        shown = [state] if state in self.shown else list(self.shown)
        found = [explained(error, self.location, self.state_view(each), self.checkpoint.batches[-1:]) for each in shown]
        return next((each for each in found if each.code == ErrorCode.VERSION_GONE), error)

    def explain_damage(self, error: CorruptError, state: str) -> CorruptError:
        return explained_damage(error, self.location, self.state_view(state))

    def size(self, state: str) -> StateSize:
        found = size_of(self.checkpoint, self.state_view(state), self.kept(state))
        if found.damaged:
            error = missing(self.path, PURGED)
            gone = self._if_newest_is_gone(error, state)
            if gone is not error:
                raise gone
        return found

    def notices(self, state: str, versions: Sequence[int], parts: Sequence[Part] | None = None) -> Sequence[str]:
        """Return the logs of these batches that differ from their checksums. Spark reads them all the same."""
        root, reasons = self.checkpoint.root, reasons_against(self.checkpoint, self.state_view(state), versions)
        if not root.is_local:
            return reasons
        logs = (root.at(log, number).path for number in versions for log in LOGS)
        found = (side_difference(path) for path in logs)
        return reasons + [
            f"{each}; Spark does not verify this file, and it was read as it is" for each in found if each is not None
        ]

    def file_findings(self, state: str, versions: Sequence[int]) -> Sequence[FileFinding]:
        """Return the logs that differ from their checksums, and batches that have all their state and no commit.

        Of several batches it also returns files of changes that have keys of another partition, and snapshots that
        differ from the changes before them.
        """
        view = self.state_view(state)
        found = list(log_findings(self.checkpoint, view.store, versions))
        if len(versions) > 1:
            from statestore.formats.spark.base_comparison import differing_bases

            found += self._misplaced(state, versions)
            found += differing_bases(self.checkpoint, view, versions)
        return found

    def _misplaced(self, state: str, versions: Sequence[int]) -> Iterator[FileFinding]:
        """Yield the files of changes with keys of another partition: those of batches that place rows alike together,
        so that each partition is listed, and each file read, once."""
        from statestore.formats.spark.misplaced_keys import misplaced_in_changes

        opened = []
        for number in versions:
            with suppress(StateStoreError):
                opened.append(self._at(state, number))
        for _, alike in groupby(opened, lambda at: (at.state_view, at.checkpoint.batch.settings)):
            first, *others = alike
            batches = {first.version, *(each.version for each in others)}
            yield from misplaced_in_changes(first.checkpoint, first.state_view, batches)

    def delta_parts(
        self, state: str, versions: Sequence[Version], before: Version | None, filters: Sequence[Filter]
    ) -> Sequence[BatchesPart]:
        """One part for each partition, or for each group of partitions among which a repartition moved rows."""
        numbers = [version.number for version in versions]
        at = self._at(state, numbers[-1])
        first = [] if before is None else self._batches([before.number])
        chosen = self._batches(numbers)
        previous = first[0] if first else None
        return batches_parts(
            self.location, at.checkpoint, at.state_view, chosen, previous, filters, at.chosen_partitions
        )

    def written(self, state: str, version: Version, before: Version) -> Written | None:
        """The writes of the batch, from the delta or changelog of each partition; None where one has none, and where
        the query began to store other columns: rows that the batch did not write then look different.
        """
        from statestore.formats.spark.batch_writes import writes_of

        if before.number + 1 != version.number or self._has_other_columns(state, version.number, before.number):
            return None
        found: list[Batch] = []
        if before.number in self.checkpoint.batches:
            with suppress(NotFoundError):  # it was purged; the writes do not need it
                found = self._batches([before.number])
        return writes_of(self._at(state, version.number), found[0] if found else None)

    def _has_other_columns(self, state: str, version: int, before: int) -> bool:
        """Return whether a batch stores other columns than the batch before it, or that is not to be known."""
        operator_id = self.shown[state].operator_id
        if version not in self.checkpoint.root.at("state", operator_id, "_metadata", "v2").numbered():
            return False  # only a query that was started anew has other columns, and it writes its metadata then
        try:
            return not self._at(state, before).schema.equals(self._at(state, version).schema)
        except NotFoundError:
            return True

    def differing_rows(
        self, state: str, old: int, new: int, columns: Sequence[Collection[str]]
    ) -> Iterator[RowPair] | None:
        """Pairs of rows of each partition; both states in whole where rows may have moved between partitions."""
        if old == new:
            return iter(())
        from statestore.formats.spark.differing_batches import BatchSide, are_parted_alike, differing_batches

        ats = self._at(state, old), self._at(state, new)
        before, after = (
            BatchSide(at.checkpoint, at.state_view, names, partial(at.rows_of_partition, names))
            for at, names in zip(ats, columns, strict=True)
        )
        if self.shown[state].snapshot is None and are_parted_alike(before, after):
            return differing_batches(before, after, self._between(state, old, new))
        return None

    def _between(self, state: str, old: int, new: int) -> Sequence[Batch]:
        """Return the batches from one to another, in their order, if they are few and all kept."""
        first, last = sorted((old, new))
        numbers = range(first, last + 1)
        is_few = last - first <= MOST_BATCHES and set(numbers) <= set(self.kept(state))
        return self._batches(numbers) if is_few else ()

    def difference_filters(self, state: str, old: int, new: int) -> Sequence[Filter]:
        """The partitions in which a few neighbouring batches changed something."""
        first, last = sorted((old, new))
        numbers = range(first, last + 1)
        if last - first > MOST_BATCHES or self.shown[state].snapshot or not set(numbers) <= set(self.kept(state)):
            return ()
        at = self._at(state, last)
        touched = touched_partitions(at.checkpoint, at.state_view, self._batches(numbers))
        return () if touched is None else (Filter(PARTITION.name, "in", tuple(touched)),)

    def edit_plan(self, version: int, edits: Sequence[StateEdit], options: EditOptions) -> EditPlan:
        """The plan of a copy with the edits, as its options say (`edit_plan_of`)."""
        from statestore.formats.spark.edit_plan import edit_plan_of

        reopen = partial(_opened_at, self.checkpoint.given)
        return edit_plan_of(self.checkpoint, self.shown, version, edits, options, reopen)

    def engine_reads(self) -> EngineReads:
        """The reads by Spark's own source. Spark 3.5 has none; a later release reads its checkpoints, too."""
        from statestore.formats.spark.engine_reads import engine_reads_of

        return engine_reads_of(self.checkpoint, {name: self.state_view(name) for name in self.shown})

    def state_view(self, state: str) -> StateView:
        """The state view that a state shows, as of the newest batch."""
        if state not in self.found.views:
            self.found.views[state] = view_of(self.checkpoint, self.shown[state])
        return self.found.views[state]

    def _at(self, state: str, version: int) -> CheckpointAt:
        if (state, version) not in self.found.at:
            newest = version == self.checkpoint.batch.batch_id
            checkpoint = self.checkpoint if newest else open_now(self.location, version, self.checkpoint)
            shown = self.shown[state]
            whole = self.state_view(state) if newest else view_of(checkpoint, shown)
            check_begun(checkpoint, whole.store)
            # What says more of a checkpoint than reading one state view needs would travel to every task.
            seen = replace(whole, store=replace(whole.store, families=(whole.family,)))
            opened = CheckpointAt(self.location, replace(checkpoint, operators=(), batches=()), seen, shown)
            self.found.at[state, version] = opened
        return self.found.at[state, version]

    def _kept(self, state: str) -> Sequence[int]:
        store = self.state_view(state).store
        batches = kept_batches(self.checkpoint, store)
        if not batches:
            store.check_partitions(self.path)
            check_begun(self.checkpoint, store)
            newest = self.newest(state)
            raise missing(
                f"{state} of {self.path}",
                f"not all files that make up batch {newest}, the newest, are there; {self._statement(state)}",
            )
        return batches

    def _statement(self, state: str) -> str:
        return what_can_be_read(self.checkpoint, self.state_view(state).store)

    def _readable(self, state: str) -> Sequence[int]:
        if state not in self.found.readable:
            self.found.readable[state] = readable_batches(self.checkpoint, self.state_view(state).store)
        return self.found.readable[state]

    def _batches(
        self,
        numbers: Sequence[int],
        read: Callable[[Checkpoint, Sequence[int]], list[Batch]] = read_batches,
    ) -> list[Batch]:
        absent = [number for number in numbers if number not in self.found.batches]
        if absent:
            self.found.batches.update({batch.batch_id: batch for batch in read(self.checkpoint, absent)})
        return [self.found.batches[number] for number in numbers if number in self.found.batches]

    def _facts(self, batch: Batch, written: Mapping[int, int]) -> dict[str, object]:
        return {**self._known(batch), "bytes": written.get(batch.version, 0)}

    def _known(self, batch: Batch) -> dict[str, object]:
        """Return the facts of a batch that its own logs have."""
        return {
            "operation": "batch",
            "application": self.checkpoint.query_id,
            "batch": batch.batch_id,
            "offsets": None if batch.offsets is None else "\n".join(batch.offsets),
        }


def _opened_at(given: Given, path: str) -> CheckpointSource:
    return open_source(parse_location(path), given)


def _version(batch: Batch, readable: bool = True, facts: Mapping[str, object] | None = None) -> Version:
    return Version(
        batch.batch_id, _us(batch.timestamp_ms), readable, True, _us(batch.watermark_ms or None), facts or {}
    )


def _us(ms: int | None) -> int | None:
    return None if ms is None else ms * 1000
