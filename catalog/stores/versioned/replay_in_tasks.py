"""Rebuilding by ranges of keys: each task replays the writes of its keys into parts of one commit of the new store.

A task writes its files where the new store lies, in a directory or an object store, and nobody sees them before that
commit. Ranges share no key, and are so many that most are one part, which the commit takes as it is. The compaction
that is due after it runs in tasks, too, before anybody sees the store.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.commits.parts.publish_parts import Judged
from statestore.catalog.commits.parts.staged_parts import NEVER, StagedPart
from statestore.catalog.commits.parts.staging_folder import StagingFolder
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.stores.versioned.natural_versioned import NaturalVersionedStore, write_parts
from statestore.catalog.stores.versioned.task_writes import PART_BYTES, TaskWrite, task_write
from statestore.catalog.upkeep import compaction_rules
from statestore.catalog.upkeep.ranges.compact_range import KeyRange, key_ranges
from statestore.catalog.upkeep.ranges.compact_ranges import compact_ranges, idle, waiting_for_turn
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.catalog.upkeep.rebuild import is_timeline, refused_for, replay, take_over, writes_for
from statestore.catalog.upkeep.vacuum import remove_replaced
from statestore.formats.kernels.arrays import Bools
from statestore.formats.segments.segment_meta import file_ref_from_json, segment_meta_from_json, to_json
from statestore.formats.values.key_hash import hash_keys

SEGMENTS, FILES = ("values", "tombstones"), ("arrivals", "superseded", "left", "ended")


@dataclass(frozen=True)
class ReplayPlan:
    """The replay of a store's writes into another one; can be pickled."""

    storage: Storage
    spec: StoreSpec
    write: TaskWrite
    ranges: tuple[KeyRange, ...]


def replay_in_tasks(runs: TaskRuns | None, table: VersionedTable, target: Any) -> None:
    """Do what `replay` does, in tasks where there are runs and the target allows it.

    A store with a hot tier has a single writer, and one with a retention judges the writes of a store without versions
    in the order of all: their replay stays in this process.
    """
    write = task_write(target._storage, target.spec)
    in_order = target.spec.history_retention is not None and not is_timeline(table.spec, target.spec)
    if runs is None or write is None or in_order:
        replay(table, target)
        return
    assert isinstance(target, NaturalVersionedStore)
    rows = sum(meta.rows for meta in table.files().log.newest().segments)
    # With many rows, this process would write all segments of tasks again.
    target.auto_compact = rows < compaction_rules.DEFAULT.task_rows
    count = range_count(table, runs, write)
    folder = StagingFolder.of_new_write(target._storage)
    folder.make()
    try:
        plan = ReplayPlan(table.storage, table.spec, write.in_folder(folder), key_ranges(count, target.spec.key_groups))
        answers = runs.run(partial(replay_range, plan), count)
        read = [json.loads(answer) for answer in answers]
        parts = [part_from_json(part) for each in read for part in each["parts"]]
        if parts:
            write_parts(target, parts, judge=_accepted)
        take_over(table, target, sum(each["refused"] for each in read))
    finally:
        folder.remove()
    if not target.auto_compact:
        _compact(runs, target)


def _compact(runs: TaskRuns, target: NaturalVersionedStore) -> None:
    """Make a new store dense, as a handle does that is closed, but in tasks."""
    with waiting_for_turn(target._files):
        target._advance(compact_ranges(target._files, target._log_state, runs, idle, compaction_rules.DEFAULT))
    remove_replaced(target._files, target._log_state)


def range_count(table: VersionedTable, runs: TaskRuns, write: TaskWrite) -> int:
    """Return the number of tasks: none has more rows than a part, about, and no core is idle if it pays.

    Parts of one range would share keys, which the process that commits had to resolve and write again.
    """
    segments = table.files().log.newest().segments
    rows, size = sum(meta.rows for meta in segments), sum(meta.file.bytes for meta in segments)
    least = max(-(-rows * 9 // (write.part_rows * 8)), -(-size // PART_BYTES))  # ranges differ in size
    return max(1, least, min(runs.parallelism, rows // compaction_rules.DEFAULT.task_rows))


def _accepted(log_state: LogState, parts: Sequence[StagedPart]) -> Judged:
    """Accept all records: ranges follow each other, and none of their records is too late by those of its own range."""
    latest = [part.latest for part in parts if part.earliest <= part.latest]
    return Judged((NEVER,) * len(parts), max(latest, default=None))


def replay_range(plan: ReplayPlan, number: int) -> str:
    """Stage the writes of the keys of one range, in their order; return the parts, and how many writes the new store
    refuses, as a text.
    """
    table, spec = VersionedTable(plan.storage, plan.spec), plan.write.spec
    mine = partial(_in_range, plan.ranges[number])
    writes = writes_for(table, spec, mine)
    parts = plan.write.stage((number,), (batch for each in writes for batch in each.to_batches()))
    return json.dumps({"parts": [part_to_json(part) for part in parts], "refused": refused_for(table, spec, mine)})


def _in_range(keys: KeyRange, columns: list[pa.Array]) -> Bools:
    hashes = hash_keys(columns)
    mine: Bools = (hashes >= np.uint64(keys.first)) & (hashes <= np.uint64(keys.last))
    return mine


def part_to_json(part: StagedPart) -> dict[str, Any]:
    """Return a part in a form for JSON."""
    fields = dict(vars(part))
    for name in (*SEGMENTS, *FILES):
        fields[name] = None if fields[name] is None else to_json(fields[name])
    return fields


def part_from_json(data: dict[str, Any]) -> StagedPart:
    """Return the part of which `part_to_json` made the data."""
    fields = {**data, "order": tuple(data["order"]), "segments": tuple(data["segments"])}
    for names, read in ((SEGMENTS, segment_meta_from_json), (FILES, file_ref_from_json)):
        for name in names:
            fields[name] = None if data[name] is None else read(data[name])
    return StagedPart(**fields)
