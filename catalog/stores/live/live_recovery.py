"""Recovery of a hot tier: from its position by the changelog's tail, or anew from segments and changelog."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.commits.changelogs import Changelogs
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.log.version_chunks import NO_TIME
from statestore.catalog.reads.belief import NOW, TimeRange
from statestore.catalog.reads.changes import plan_changes, read_changes
from statestore.catalog.reads.plan import plan, splits_of
from statestore.catalog.reads.scan import read_split
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.stores.live.hot_tier import HotTier
from statestore.catalog.stores.live.live_rows import RowForms, apply_rows
from statestore.catalog.stores.live.tier_errors import TierBrokenError
from statestore.catalog.stores.live.tier_position import (
    TierPosition,
    expected_extents,
    is_of_this_boot,
    missing,
    read_position,
    remove_position,
)
from statestore.formats.state_table import Query
from statestore.formats.values.times import TICK

NO_TIME_MS = NO_TIME // TICK
UPKEEP = frozenset(("compact", "expire"))


@dataclass(frozen=True)
class TierState:
    """The state of a tier: observed stream time (epoch milliseconds), last sequence number, and refused records.

    ``dropped`` counts the records that were refused since the last commit.
    """

    stream_time: int
    sequence: int
    dropped: int = 0


@dataclass(frozen=True)
class Content:
    """Functions that bring a kind's rows into a tier.

    ``fill`` writes the committed rows into an empty tier. ``apply`` writes a batch of the changelog. ``follow`` writes
    the changes of the commits after a version into a tier that holds exactly that version; None if the kind fills a new
    tier instead.
    """

    fill: Callable[[HotTier, LogState], TierState]
    apply: Callable[[HotTier, pa.RecordBatch, TierState], TierState]
    follow: Callable[[HotTier, LogState, int], TierState] | None = None


def catch_up(
    content: Content,
    new_tier: Callable[[], HotTier],
    files: SegmentFiles,
    log_state: LogState,
    changelogs: Changelogs,
    anew: bool = False,
) -> tuple[HotTier, TierState]:
    """Open the existing tier and replay the tail; recreate the tier if it is lost, stale or damaged, or if ``anew``.

    Raises TierBrokenError if a new tier cannot be made either, and CorruptError CHANGELOG_CORRUPT if acknowledged
    writes are missing that the tier's position records: the tier would return rows that no table will ever have.
    """
    spec, tier = files.spec, new_tier()
    position = None if anew else read_position(tier.root)
    if position is not None:
        _expect_acknowledged(position, files, log_state, changelogs)
    if position is not None and _usable(position, spec, log_state):
        try:
            tier.open(position.segments)
            stream_time = max(position.stream_time, _stream_time(spec, log_state))
            state = TierState(stream_time, position.sequence, position.dropped)
            tail = changelogs.uncommitted((position.changelog, position.offset))
            return tier, _replay(content, tier, tail, state)
        except TierBrokenError:
            tier.close()
            tier = new_tier()
        except BaseException:
            tier.close()
            raise
    return tier, _rebuild(content, tier, log_state, changelogs)


def _expect_acknowledged(
    position: TierPosition, files: SegmentFiles, log_state: LogState, changelogs: Changelogs
) -> None:
    sizes = changelogs.sizes()
    for extent in expected_extents(position, files.storage, files.spec, log_state):
        size = sizes.get(extent.name)
        if size is None or size < extent.end:
            raise missing(files.storage, extent, size)
        changelogs.expect(*extent)


def _rebuild(content: Content, tier: HotTier, log_state: LogState, changelogs: Changelogs) -> TierState:
    """Recreate the tier from the committed rows and then from the acknowledged ones."""
    try:
        with contextlib.suppress(OSError):  # first, so that an interrupted removal does not look like a tier
            remove_position(tier.root)
        tier.remove_files()
        return _replay(content, tier, changelogs.uncommitted(), content.fill(tier, log_state))
    except BaseException:
        tier.close()
        raise


def can_follow(content: Content, log_state: LogState, version: int) -> bool:
    """Return whether a tier that holds exactly commit ``version`` (-1: nothing) can be brought to ``log_state``."""
    horizon = log_state.horizon
    return version >= 0 and content.follow is not None and not (horizon is not None and version < horizon.version)


def rows_content(files: SegmentFiles, forms: RowForms) -> Content:
    """Return the content of kinds whose rows have the same form in the tier and in the changelog."""
    return Content(partial(_fill, files, forms), partial(_apply, forms), partial(_follow, files, forms))


def _fill(files: SegmentFiles, forms: RowForms, tier: HotTier, log_state: LogState) -> TierState:
    rule = forms.spec.windowing
    stream_time = _stream_time(forms.spec, log_state)
    first_live = rule.first_live_time_segment(stream_time) if rule else 0
    window = TimeRange(NOW, NOW, log_state.version, newest=True)
    sequence = 0
    names = (*forms.spec.key_names, *forms.spec.value_names)
    for split in splits_of(plan(files, log_state, window, ()), window):
        for batch in read_split(files, split, names):
            sequence = max(sequence, _greatest_sequence(batch))
            row_keys, values = forms.rows(batch)
            apply_rows(tier, row_keys, values, forms.time_segments(forms.times(row_keys)), first_live)
    return TierState(stream_time, sequence)


def _follow(files: SegmentFiles, forms: RowForms, tier: HotTier, log_state: LogState, version: int) -> TierState:
    rule = forms.spec.windowing
    stream_time = _stream_time(forms.spec, log_state)
    first_live = rule.first_live_time_segment(stream_time) if rule else 0
    if rule:
        tier.drop_before(first_live)
    query = Query(mode="changes", start_version=version + 1, end_version=log_state.version)
    table = VersionedTable(files.storage, files.spec)
    schema = table.schema(query)
    batches = [b for split in plan_changes(files, log_state, query) for b in read_changes(files, split, schema, ())]
    changes = pa.Table.from_batches(batches, schema=schema)
    changes = changes.filter(pc.not_equal(changes["_change_type"], "update_preimage")).sort_by("_commit_version")
    for batch in changes.combine_chunks().to_batches():
        row_keys, values = forms.rows(batch)
        deleted = pc.equal(batch.column("_change_type"), "delete")
        values = pc.if_else(deleted, pa.scalar(None, pa.binary()), values)
        apply_rows(tier, row_keys, values, forms.time_segments(forms.times(row_keys)), first_live)
    return TierState(stream_time, 0)


def _apply(forms: RowForms, tier: HotTier, batch: pa.RecordBatch, state: TierState) -> TierState:
    """Write a batch of the changelog as Kafka does: the stream time moves first, then rows of dead segments are left
    out.

    Such rows are not counted as refused.
    """
    rule = forms.spec.windowing
    row_keys = batch.column("key")
    stream_time, sequence = latest(batch, state), state.sequence
    first_live = rule.first_live_time_segment(stream_time) if rule else 0
    if rule is not None:
        tier.drop_before(first_live)
        if rule.duplicates:
            sequence = max(sequence, _greatest_logged(row_keys))
    apply_rows(tier, row_keys, batch.column("value"), forms.time_segments(forms.times(row_keys)), first_live)
    return TierState(stream_time, sequence, state.dropped)


def latest(batch: pa.RecordBatch, state: TierState) -> int:
    """Return the stream time after a batch of the changelog."""
    return max(state.stream_time, int(batch.column("timestamp").to_numpy().max(initial=NO_TIME_MS)))


def _stream_time(spec: StoreSpec, log_state: LogState) -> int:
    """Return the stream time of the committed rows.

    The stream time of a key-value store is the time of the commit and is unrelated to its puts.
    """
    return NO_TIME_MS if spec.kind == "key_value" else log_state.stream_time_us // TICK


def _usable(position: TierPosition, spec: StoreSpec, log_state: LogState) -> bool:
    """Return whether the tier holds all commits, which is so if there was only upkeep since its position."""
    if position.store_id != spec.store_id or position.version > log_state.version:
        return False
    if position.time_ordered != (spec.windowing is not None and spec.windowing.time_ordered):
        return False  # of a release that stored every row by key
    if not is_of_this_boot(position) and position.changelog:
        return False  # the machine may have lost the end of the changelog, but not that of the tier
    return set(log_state.versions.operations_after(position.version)) <= UPKEEP


def _replay(content: Content, tier: HotTier, batches: Iterable[pa.RecordBatch], state: TierState) -> TierState:
    for batch in batches:
        state = content.apply(tier, batch, state)
    return state


def _greatest_sequence(batch: pa.RecordBatch) -> int:
    if "sequence" not in batch.schema.names or not batch.num_rows:
        return 0
    return int(pc.max(batch.column("sequence")).as_py())


def _greatest_logged(row_keys: pa.BinaryArray) -> int:
    return max((int.from_bytes(key[-4:], "big") for key in row_keys.to_pylist()), default=0)
