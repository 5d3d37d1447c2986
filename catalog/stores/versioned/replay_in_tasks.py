"""Rebuilding by ranges of keys: each task replays the writes of its keys into parts of one commit of the new store."""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.commits.parts.staged_parts import StagedPart
from statestore.catalog.log.storage import LocalStorage, local_root
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.stores.versioned.task_writes import TaskWrite, task_write
from statestore.catalog.stores.versioned.versioned_store import NaturalVersionedStore, write_parts
from statestore.catalog.upkeep.ranges.compact_ranges import MIN_RANGE_ROWS
from statestore.catalog.upkeep.ranges.key_ranges import KeyRange, key_ranges
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.catalog.upkeep.rebuild import replay, take_over, writes_for
from statestore.formats.kernels.arrays import Bools
from statestore.formats.segments.segment_meta import file_ref_from_json, segment_meta_from_json, to_json
from statestore.formats.values.key_hash import hash_keys

SEGMENTS, FILES = ("values", "tombstones"), ("arrivals", "superseded", "left", "ended")
STAGING = "staging"


@dataclass(frozen=True)
class ReplayPlan:
    """The replay of a store's writes into another one; can be pickled."""

    root: str
    spec: StoreSpec
    write: TaskWrite
    ranges: tuple[KeyRange, ...]


def replay_in_tasks(runs: TaskRuns, table: VersionedTable, target: Any) -> None:
    """Do what `replay` does, in tasks where the target allows it.

    A store with a retention judges all records in their order, and one with a hot tier has a single writer: their
    replay stays in this process.
    """
    root = local_root(target._storage)
    assert root is not None  # stores are local
    write = task_write(root, target.spec)
    old = local_root(table.files().storage)
    if write is None or old is None or target.spec.history_retention is not None:
        replay(table, target)
        return
    assert isinstance(target, NaturalVersionedStore)
    rows = sum(meta.rows for meta in table.files().log_state().segments)
    count = max(1, min(runs.parallelism, rows // MIN_RANGE_ROWS))
    folder = root / STAGING / uuid.uuid4().hex
    folder.mkdir(parents=True)
    try:
        plan = ReplayPlan(str(old), table.spec, write.in_folder(folder), key_ranges(count, target.spec.key_groups))
        answers = runs.run(partial(replay_range, plan), count)
        write_parts(target, [part_from_json(each) for answer in answers for each in json.loads(answer)])
        take_over(table, target)
    finally:
        shutil.rmtree(folder.parent, ignore_errors=True)


def replay_range(plan: ReplayPlan, number: int) -> str:
    """Stage the writes of the keys of one range, in their order; return the parts as a text."""
    table = VersionedTable(LocalStorage(Path(plan.root)), plan.spec)
    writes = writes_for(table, plan.write.spec, partial(_in_range, plan.ranges[number]))
    parts = plan.write.stage((number,), (batch for each in writes for batch in each.to_batches()))
    return json.dumps([part_to_json(part) for part in parts])


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
